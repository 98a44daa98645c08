"""D1, D2: a log's offsets are in order after every step, and its end never goes back while the broker lives."""

from mainstem.broker.app import Broker
from mainstem.broker.partition import Partition
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Violation
from mainstem.storage.log import Log


class LogOrder(Checker):
    def __init__(self, world: object) -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self._seen: dict[Log, tuple[int, int, int, int, int]] = {}

    def died(self, broker: Broker | None, how: str) -> None:
        self._seen.clear()

    def forget(self) -> None:
        self._seen.clear()

    def after_step(self, broker: Broker) -> None:
        seen = self._seen
        for partition in broker.partitions:
            log = partition.log
            now = (log.log_start, log.last_stable_offset, log.high_watermark, log.log_end, log.recovery_point)
            before = seen.get(log)
            if now != before:
                self._moved(partition, before, now)
                seen[log] = now

    def _moved(
        self, partition: Partition, before: tuple[int, int, int, int, int] | None, now: tuple[int, int, int, int, int]
    ) -> None:
        start, stable, high, end, recovery_point = now
        if not (start <= stable <= high <= end and recovery_point <= end):
            raise Violation(
                "D2 offsets are in order",
                f"{partition}: start {start}, stable {stable}, high {high}, end {end}, recovery point {recovery_point}",
            )
        if before is not None:
            if end < before[3] or high < before[2]:
                raise Violation(
                    "D1 offsets are given once", f"{partition}: end {before[3]} to {end}, high {before[2]} to {high}"
                )
            if start < before[0]:
                raise Violation("D2 offsets are in order", f"{partition}: start {before[0]} to {start}")
