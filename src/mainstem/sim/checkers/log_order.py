"""D1, D2: a log's offsets are in order after every step, and its end never goes back while the broker lives.

P1: where everything is synced before it is acknowledged, the high watermark moves only over what is synced.

At the end the batches themselves are read, past the broker: each begins after the one before it has ended.
It looks at every log after every step, so it is compiled where the hot modules are.
"""

from collections.abc import Callable

from mypy_extensions import i64

from mainstem.broker.app import Broker
from mainstem.broker.partition import Partition
from mainstem.protocol.batch import iterate_batches
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Violation
from mainstem.storage.log import Log


class Offsets:
    """Where a log began and ended when it was last looked at."""

    __slots__ = ("end", "high", "recovery_point", "stable", "start")

    def __init__(self, start: i64, stable: i64, high: i64, end: i64, recovery_point: i64) -> None:
        self.start = start
        self.stable = stable
        self.high = high
        self.end = end
        self.recovery_point = recovery_point


class LogOrder(Checker):
    def __init__(self, world: object) -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self._seen: dict[Log, Offsets] = {}
        self.on_start: Callable[[Partition, int], None] = _nobody_asks
        """Told where each log starts, when it is first seen and when that has moved."""
        self.moved: list[Partition] = []
        """Those with a log that is new, or has moved in the last step."""

    def died(self, broker: Broker | None, how: str) -> None:
        self._seen.clear()

    def forget(self) -> None:
        self._seen.clear()

    def after_step(self, broker: Broker) -> None:
        seen = self._seen
        if self.moved:
            self.moved = []
        for partition in broker.partitions.by_place.values():
            log = partition.log
            before = seen.get(log)
            if (
                before is None
                or log.log_end != before.end
                or log.high_watermark != before.high
                or log.last_stable_offset != before.stable
                or log.recovery_point != before.recovery_point
                or log.log_start != before.start
            ):
                seen[log] = _moved(partition, log, before, self.world.ledger.is_durable((partition.topic, 0)))
                self.moved.append(partition)
                if before is None or log.log_start != before.start:
                    self.on_start(partition, log.log_start)

    def at_end(self, broker: Broker) -> None:
        for partition in broker.partitions:
            if (partition.topic, partition.index) in self.world.ledger.damaged:
                continue
            last: i64 = -1
            for segment in partition.log.segments:
                data = self.world.disk.peek(segment.log.path)[: segment.size]
                for batch in iterate_batches(data, 0, len(data)):
                    if batch.base_offset <= last:
                        raise Violation(
                            "D1 offsets are given once", f"{partition}: a batch at {batch.base_offset} is after {last}"
                        )
                    last = batch.last_offset


def _nobody_asks(partition: Partition, start: int) -> None:
    pass


def _moved(partition: Partition, log: Log, before: Offsets | None, is_durable: bool) -> Offsets:
    now = Offsets(log.log_start, log.last_stable_offset, log.high_watermark, log.log_end, log.recovery_point)
    if not (now.start <= now.stable <= now.high <= now.end and now.recovery_point <= now.end):
        raise Violation(
            "D2 offsets are in order",
            f"{partition}: start {now.start}, stable {now.stable}, high {now.high}, end {now.end}, "
            f"recovery point {now.recovery_point}",
        )
    if before is not None:
        if now.end < before.end or now.high < before.high:
            raise Violation(
                "D1 offsets are given once",
                f"{partition}: end {before.end} to {now.end}, high {before.high} to {now.high}",
            )
        if now.start < before.start:
            raise Violation("D2 offsets are in order", f"{partition}: start {before.start} to {now.start}")
        if is_durable and now.high > before.high and now.high > now.recovery_point:
            raise Violation(
                "P1 what is shown is synced",
                f"{partition}: high {before.high} to {now.high}, and synced up to {now.recovery_point}",
            )
    return now
