"""Finding a producer's older batches in the log, for a retry that comes after a restart.

A snapshot keeps a producer's last batch, and Kafka remembers five while it runs: after a restart a retry of one of
the other four would be refused, and its records written twice by a client that gives up on the sequence. So when such
a retry comes, and only then and once a producer, the headers before its last known batch are read backwards, an
index block at a time.
"""

from typing import Final

from mypy_extensions import i64

from mainstem.core.log.producers import BATCHES_MAX, BatchMark, Producer
from mainstem.storage.scan import HeaderScan
from mainstem.storage.segment import Segment

SEARCH_BYTES_MAX: Final = 64 << 20
"""How far back it looks: a retry is of something in flight when the broker stopped, so it is near."""
_STEP_BYTES: Final = 1 << 20


def find_older_batches(segments: list[Segment], producer: Producer | None) -> list[BatchMark]:
    """Up to four batches of the producer's epoch before its oldest known one, oldest first. May block."""
    if producer is None or not producer.batches:
        return []
    search = _Search(producer)
    at: i64 = len(segments) - 1
    while at >= 0 and not search.is_done:
        segment = segments[at]
        if segment.base_offset < search.before:
            search.look_through(segment)
        at -= 1
    return search.found


class _Search:
    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.before: i64 = producer.batches[0].first_offset
        self.found: list[BatchMark] = []
        self.left: i64 = SEARCH_BYTES_MAX

    @property
    def is_done(self) -> bool:
        return len(self.found) + len(self.producer.batches) >= BATCHES_MAX or self.left <= 0

    def look_through(self, segment: Segment) -> None:
        """From the end of the segment to its start, in steps that begin at index entries."""
        known = segment.locate(self.before)
        end: i64 = segment.size if known is None else known.position
        segment.check_indexes()
        index = segment.offset_index.ref.pin()
        log = segment.log.pin()
        try:
            while end > 0 and not self.is_done:
                start: i64 = segment.offset_index.position_before(index, max(end - _STEP_BYTES, 0))
                marks: list[BatchMark] = []
                scan = HeaderScan(log, start, end, False)
                while scan.advance():
                    header = scan.header
                    if (
                        header.producer_id == self.producer.producer_id
                        and header.producer_epoch == self.producer.epoch
                        and not header.is_control
                        and header.base_offset < self.before
                    ):
                        marks.append(
                            BatchMark(
                                header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp
                            )
                        )
                room = BATCHES_MAX - len(self.producer.batches) - len(self.found)
                self.found = marks[-room:] + self.found
                self.left -= end - start
                end = start
        finally:
            segment.log.unpin()
            segment.offset_index.ref.unpin()
