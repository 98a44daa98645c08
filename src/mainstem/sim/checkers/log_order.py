"""D1, D2: a log's offsets are in order after every step, and its end never goes back while the broker lives."""

from mainstem.broker.app import Broker
from mainstem.broker.partition import Partition
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Violation
from mainstem.storage.log import Log


class LogOrder(Checker):
    def __init__(self, world: object) -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self._seen: dict[Partition, tuple[Log, int, int]] = {}

    def died(self, broker: Broker | None, how: str) -> None:
        self._seen.clear()

    def after_step(self, broker: Broker) -> None:
        for partition in broker.partitions:
            log = partition.log
            start, high, end = log.log_start, log.high_watermark, log.log_end
            if not (start <= log.last_stable_offset <= high <= end and log.recovery_point <= end):
                raise Violation(
                    "D2 offsets are in order",
                    f"{partition}: start {start}, stable {log.last_stable_offset}, high {high}, end {end}, "
                    f"recovery point {log.recovery_point}",
                )
            before = self._seen.get(partition)
            if before is not None and before[0] is log and (end < before[1] or high < before[2]):
                raise Violation(
                    "D1 offsets are given once", f"{partition}: end {before[1]} to {end}, high {before[2]} to {high}"
                )
            self._seen[partition] = (log, end, high)
