"""D3: what a crash may take. Nothing, where the process was killed; with the power, only what was not yet synced.

Tells the ledger where each log ended when it came back, so that it knows what may be gone.
"""

from mainstem.broker.app import Broker
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Violation

Key = tuple[bytes, int]


class CrashKeeps(Checker):
    def __init__(self, world: object) -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self._known: dict[Key, tuple[int, int, bool]] = {}
        """Recovery point, end, and whether the log had failed, as last seen alive."""
        self._may_end: dict[Key, tuple[int, int]] = {}
        """Where each log may end when it comes back."""

    def after_step(self, broker: Broker) -> None:
        for partition in broker.partitions:
            log = partition.log
            key = (partition.topic_id, partition.index)
            self._known[key] = (log.recovery_point, log.log_end, False)

    def died(self, broker: Broker | None, how: str) -> None:
        power = how == "power loss"
        if broker is not None and self.world.process.is_serving:
            for partition in broker.partitions:
                log = partition.log
                key = (partition.topic_id, partition.index)
                self._known[key] = (log.recovery_point, log.log_end, log.failure is not None)
        for key, (durable, end, failed) in self._known.items():
            low, high = self._may_end.get(key, (end, end))
            if power:
                low = min(low, durable)
            # A write that failed may have left its whole batch.
            self._may_end[key] = (low, high + (1 << 20 if failed else 0))

    def served(self, broker: Broker) -> None:
        for partition in broker.partitions:
            key = (partition.topic_id, partition.index)
            end = partition.log.log_end
            bounds = self._may_end.pop(key, None)
            if bounds is None:
                continue
            low, high = bounds
            if not low <= end <= (high if not self.world.had_disk_error else 1 << 40):
                raise Violation(
                    "D3 a crash loses only what was not synced",
                    f"{partition} came back with end {end}; it must lie between {low} and {high} "
                    f"(life {self.world.process.life})",
                )
            if end < high:
                self.world.count("log came back shorter")
                self.world.ledger.cut((partition.topic, partition.index), self.world.process.life, end)
            self._known[key] = (partition.log.recovery_point, end, False)
        missing = [key for key in self._may_end if key[0] in broker.image.topics_by_id]
        if missing and not broker.partitions.dirs.any_offline:
            names = [f"{broker.image.topics_by_id[topic].name}-{index}" for topic, index in missing]
            raise Violation("D3 no log disappears", f"{', '.join(names)} did not come back")
        self._may_end = {key: bounds for key, bounds in self._may_end.items() if key in missing}
        self._known = {key: known for key, known in self._known.items() if key[0] in broker.image.topics_by_id}
