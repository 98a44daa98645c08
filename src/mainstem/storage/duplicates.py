"""Finding a producer's older batches in the log, for a retry that comes after a restart.

A snapshot keeps a producer's last batch, and Kafka remembers five while it runs: after a restart a retry of one of
the other four would be refused, and its records written twice by a client that gives up on the sequence. So when such
a retry comes, and only then and once a producer, the headers before its last known batch are read backwards, an
index block at a time.

That may take a second where batches are tiny, so a batch that may be such a retry is judged in a thread
(`Log.takes_long`), and an `OlderSearch` runs before it, with files of its own. Whatever happens to the log meanwhile:
what it found is taken only if it still fits, and if not, `find_older_batches` looks again, on the loop, less far.
"""

from typing import Final

from mypy_extensions import i64

from mainstem.core.log.producers import BATCHES_MAX, BatchMark, Producer, ProducerStates
from mainstem.protocol.batch import HEADER_BYTES, BatchView
from mainstem.storage.errors import StorageError
from mainstem.storage.fs import File, FileSystem
from mainstem.storage.scan import HeaderScan
from mainstem.storage.segment import Segment

SEARCH_BYTES_MAX: Final = 256 << 20
"""How far back it looks: a retry is of something in flight when the broker stopped, so it is near."""
_ON_LOOP_BYTES_MAX: Final = 64 << 20
SEGMENTS_MAX: Final = 256
"""In how many segments it looks, however small they are: each has an index to open, on the loop."""
_STEP_BYTES: Final = 1 << 20


def find_older_batches(segments: list[Segment], producer: Producer | None) -> list[BatchMark]:
    """Up to four batches of the producer's epoch before its oldest known one, oldest first. May block."""
    if producer is None or not producer.batches:
        return []
    search = _Search(producer, _ON_LOOP_BYTES_MAX)
    at: i64 = len(segments) - 1
    looked: i64 = 0
    while at >= 0 and looked < SEGMENTS_MAX and not search.is_done:
        segment = segments[at]
        if segment.base_offset < search.before:
            looked += 1
            segment.check_indexes()
            index, log = segment.offset_index.ref.pin(), segment.log.pin()
            try:
                search.look_through(segment, index, log)
            finally:
                segment.log.unpin()
                segment.offset_index.ref.unpin()
        at -= 1
    return search.found


def begin_older_search(
    fs: FileSystem, segments: list[Segment], states: ProducerStates, buffer: bytes, start: i64, end: i64
) -> "OlderSearch | None":
    """The search that the batch in `buffer[start:end]` calls for, if it does."""
    if not may_be_older(states, buffer, start, end):
        return None
    producer = states.get(BatchView(buffer, start).producer_id)
    return None if producer is None else OlderSearch(fs, segments, producer)


def may_be_older(states: ProducerStates, buffer: bytes, start: i64, end: i64) -> bool:
    """Whether the batch in `buffer[start:end]` may be one that only the log remembers. Looks at the header only."""
    if end - start < HEADER_BYTES:
        return False
    batch = BatchView(buffer, start)
    if batch.producer_id < 0:
        return False
    return states.may_be_older_duplicate(batch.producer_id, batch.producer_epoch, batch.last_sequence)


class OlderSearch:
    """Made on the loop; `run` is for a thread; `give_to` hands over what it found, on the loop."""

    def __init__(self, fs: FileSystem, segments: list[Segment], producer: Producer) -> None:
        self._fs = fs
        self._search = _Search(producer, SEARCH_BYTES_MAX)
        self._segments: list[Segment] = []
        self._is_complete = False
        self._can_run = True
        left: i64 = SEARCH_BYTES_MAX
        at: i64 = len(segments) - 1
        while at >= 0 and left > 0 and len(self._segments) < SEGMENTS_MAX:
            segment = segments[at]
            if segment.base_offset < self._search.before:
                self._can_run = self._can_run and not segment.index_damage()
                self._segments.append(segment)
                left -= segment.size
            at -= 1

    def run(self) -> None:
        if not self._can_run:
            return
        try:
            for segment in self._segments:
                if self._search.is_done:
                    break
                self._look_through(segment)
            self._is_complete = True
        except (OSError, StorageError):
            return  # renamed or removed meanwhile, or damaged: who looks on the loop finds out

    def _look_through(self, segment: Segment) -> None:
        index = self._fs.open(segment.offset_index.ref.path)
        try:
            log = self._fs.open(segment.log.path)
            try:
                self._search.look_through(segment, index, log)
            finally:
                log.close()
        finally:
            index.close()

    def give_to(self, states: ProducerStates) -> None:
        search = self._search
        producer = states.get(search.producer_id)
        if (
            self._is_complete
            and producer is not None
            and producer.older_unread
            and producer.epoch == search.epoch
            and len(producer.batches) == search.known
            and producer.batches[0].first_offset == search.before
        ):
            states.add_older(search.producer_id, search.found)


class _Search:
    def __init__(self, producer: Producer, bytes_max: i64) -> None:
        self.producer_id: i64 = producer.producer_id
        self.epoch: i64 = producer.epoch
        self.known: i64 = len(producer.batches)
        self.before: i64 = producer.batches[0].first_offset
        self.found: list[BatchMark] = []
        self.left: i64 = bytes_max

    @property
    def is_done(self) -> bool:
        return len(self.found) + self.known >= BATCHES_MAX or self.left <= 0

    def look_through(self, segment: Segment, index: File, log: File) -> None:
        """From the end of the segment to its start, in steps that begin at index entries."""
        size: i64 = segment.size
        try:
            known = segment.locate_in(index, log, size, self.before, False)
        except StorageError:
            # The index or the batches: the batches alone tell.
            known = segment.locate_without_index(log, size, self.before)
        end: i64 = size if known is None else known.position
        while end > 0 and not self.is_done:
            start: i64 = max(segment.offset_index.position_before(index, max(end - _STEP_BYTES, 0)), 0)
            try:
                marks = self._marks(HeaderScan(log, start, end, False))
            except StorageError:
                start = 0
                marks = self._marks(HeaderScan(log, start, end, False))
            room: i64 = BATCHES_MAX - self.known - len(self.found)
            self.found = marks[-room:] + self.found
            self.left -= end - start
            end = start

    def _marks(self, scan: HeaderScan) -> list[BatchMark]:
        marks: list[BatchMark] = []
        while scan.advance():
            header = scan.header
            if (
                header.producer_id == self.producer_id
                and header.producer_epoch == self.epoch
                and not header.is_control
                and header.base_offset < self.before
            ):
                marks.append(
                    BatchMark(header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp)
                )
        return marks
