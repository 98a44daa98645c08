"""`segment.ms`: a batch goes into a new segment where the active one has taken batches for that long.

By timestamps, as in Kafka: the largest of the batch and that of the first batch in its segment. Looked at when a batch
was appended, in runs that have such a topic. It is retention's business: what is in one segment goes together (P1).
"""

from mainstem.protocol.batch import BatchView
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Place, Violation


class SegmentsEndInTime(Checker):
    def __init__(self, world: object) -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self._first: dict[Place, tuple[int, int]] = {}
        """The base of the segment that was written to last, and the largest timestamp of its first batch."""

    def reopened(self, place: Place, end: int, kept: list[BatchView], lost: list[BatchView]) -> None:
        self._first.pop(place, None)

    def forget(self) -> None:
        self._first.clear()

    def appended(self, place: Place, batch: BatchView) -> None:
        age_max_ms = self.world.segment_ages.get(place[0])
        broker = self.world.process.broker
        partition = None if broker is None else broker.partitions.get(*place)
        if age_max_ms is None or partition is None or not self.world.process.is_serving:
            return
        base = next(
            each.base_offset for each in reversed(partition.log.segments) if each.base_offset <= batch.base_offset
        )
        known = self._first.get(place)
        if base == batch.base_offset or known is None or known[0] != base:
            self._first[place] = (base, self._first_timestamp(place, base, batch))
            return
        waited_ms = batch.max_timestamp - known[1]
        if waited_ms > age_max_ms:
            raise Violation(
                "P1 a segment ends in time",
                f"{place[0]}-{place[1]}: the batch at {batch.base_offset} is {waited_ms} ms younger than the first of "
                f"its segment, at {base}; segment.ms is {age_max_ms}",
            )
        self.world.count("age of a segment checked")

    def _first_timestamp(self, place: Place, base: int, batch: BatchView) -> int:
        written = self.world.written.find(place)
        there = written.batches if written is not None else []
        return next((each.max_timestamp for each in there if each.base_offset >= base), batch.max_timestamp)
