"""D3: what a crash may take. Nothing, where the process was killed; with the power, only what was not yet synced."""

from typing import Final

from mainstem.broker.app import Broker
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Violation
from mainstem.storage.log import Log

Key = tuple[bytes, int]
Ends = dict[Key, tuple[int, int]]

UNKNOWN: Final = 1 << 40
"""Where a log may end at most when nobody can tell: a write that failed may have left its whole batch."""


class CrashKeeps(Checker):
    def __init__(self, world: object) -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self._logs: dict[Key, Log] = {}
        """Every log that was open in this life, those included that have failed since."""
        self._followed = -1
        self._may_end: dict[Key, tuple[int, int]] = {}
        """Where each log may end when it comes back."""
        self._durable: dict[Key, int] = {}
        """How far each log was synced when last seen alive: a second death, before it is back, may cost the rest."""

    def after_step(self, broker: Broker) -> None:
        if broker._quorum.followed_end != self._followed:
            self._followed = broker._quorum.followed_end
            self.note(broker)

    def note(self, broker: Broker) -> None:
        """Follows the logs that are open now."""
        for partition in broker.partitions:
            self._logs[partition.topic_id, partition.index] = partition.log

    def died(self, broker: Broker | None, how: str) -> None:
        power = how == "power loss"
        if broker is not None and self.world.process.is_serving:
            self.note(broker)
        for key, (low, high) in list(self._may_end.items()):
            if power and key in self._durable:
                self._may_end[key] = (min(low, self._durable[key]), high)
        if broker is not None and not self.world.process.is_serving:
            # Coordinators may have written to their logs before the start was through. Those of a directory that has
            # failed since are no longer there to be asked.
            here = {(partition.topic_id, partition.index): partition.log for partition in broker.partitions}
            for key, (low, high) in list(self._may_end.items()):
                if key in here:
                    self._may_end[key] = (low, max(high, here[key].log_end))
                elif broker.partitions.dirs.any_offline:
                    self._may_end[key] = (low, UNKNOWN)
        for key, log in self._logs.items():
            high = UNKNOWN if log.failure is not None else log.log_end
            self._may_end[key] = (log.recovery_point if power else log.log_end, high)
            self._durable[key] = log.recovery_point
        self._logs.clear()

    def forget(self) -> None:
        self._logs.clear()
        self._may_end.clear()
        self._durable.clear()
        self._followed = -1

    def ends(self, broker: Broker) -> Ends:
        """How far each log is synced, and where it ends."""
        return {(each.topic_id, each.index): (each.log.recovery_point, each.log.log_end) for each in broker.partitions}

    def expect(self, ends: Ends) -> None:
        """The broker comes back with a copy of its disk, from when its logs ended there.

        What was not synced then is no more than cached on the copy: a power loss before they are back may take it.
        """
        self._may_end = {key: (end, end) for key, (_, end) in ends.items()}
        self._durable = {key: durable for key, (durable, _) in ends.items()}

    def served(self, broker: Broker) -> None:
        damaged = self.world.ledger.damaged
        for partition in broker.partitions:
            key = (partition.topic_id, partition.index)
            # A coordinator may have written to its log before the start was through.
            end = self.world.written.recovered.get((partition.topic, partition.index), partition.log.log_end)
            bounds = self._may_end.pop(key, None)
            if bounds is None or (partition.topic, partition.index) in damaged:
                continue
            low, high = bounds
            if not low <= end <= high:
                raise Violation(
                    "D3 a crash loses only what was not synced",
                    f"{partition} came back with end {end}; it must lie between {low} and {high} "
                    f"(life {self.world.process.life})",
                )
        missing = [
            key
            for key in self._may_end
            if key[0] in broker.image.topics_by_id and (broker.image.topics_by_id[key[0]].name, key[1]) not in damaged
        ]
        if missing and not broker.partitions.dirs.any_offline:
            names = [f"{broker.image.topics_by_id[topic].name}-{index}" for topic, index in missing]
            raise Violation("D3 no log disappears", f"{', '.join(names)} did not come back")
        self._may_end = {key: bounds for key, bounds in self._may_end.items() if key in missing}
        self.note(broker)
