"""Finding offsets by timestamp: the time index names a place to start, headers the batch, records the offset.

An index that is missing or wrong costs time and nothing else: the job reads every header without it, in a thread, and
says so.
"""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from mainstem.protocol.batch import NO_TIMESTAMP, BatchView
from mainstem.protocol.errors import RemoteError
from mainstem.protocol.records import RecordScan
from mainstem.protocol.varint import I64_MAX
from mainstem.storage.errors import StorageError
from mainstem.storage.fs import File
from mainstem.storage.scan import HeaderScan
from mainstem.storage.segment import Segment

_BREATH_RECORDS: Final = 512


class TimestampedOffset:
    __slots__ = ("leader_epoch", "offset", "timestamp")

    def __init__(self, offset: i64, timestamp: i64, leader_epoch: i64) -> None:
        self.offset: i64 = offset
        self.timestamp: i64 = timestamp
        self.leader_epoch: i64 = leader_epoch


class TimestampJob:
    """Looks in one segment for the first record at or after `timestamp`, not before `log_start`.

    Made and pinned on the loop; `run` may block and is for a thread; `Log.finish_find` takes it back.
    """

    def __init__(self, segment: Segment, timestamp: i64, log_start: i64, upper_bound: i64, generation: i64) -> None:
        self.segment = segment
        self.timestamp: i64 = timestamp
        self.log_start: i64 = log_start
        self.upper_bound: i64 = upper_bound
        self.generation: i64 = generation
        self.found: TimestampedOffset | None = None
        self.error: Exception | None = None
        self.reindexed: i64 = segment.reindexed
        self.index_damage = segment.index_damage()
        """What is wrong with the segment's indexes, where something is."""
        self._end: i64 = segment.size
        self._times: File | None = None
        self._index: File | None = None
        if not self.index_damage:
            self._times = segment.time_index.ref.pin()
            self._index = segment.offset_index.ref.pin()
        self._log: File = segment.log.pin()

    def run(self, breathe: Callable[[], None] | None = None) -> None:
        """A batch may hold millions of records: `breathe` is called every few hundred, to give others their turn."""
        try:
            try:
                self.found = self._search(self._start(), breathe)
            except StorageError as damage:
                # The indexes or the batches: the batches alone tell.
                self.found = self._search(self._all(), breathe)
                self.index_damage = str(damage)
        except (OSError, StorageError) as error:
            self.error = error

    def unpin(self) -> None:
        self.segment.log.unpin()
        if self._index is not None:
            self._index = None
            self.segment.offset_index.ref.unpin()
        if self._times is not None:
            self._times = None
            self.segment.time_index.ref.unpin()

    def _start(self) -> HeaderScan:
        segment, times, index = self.segment, self._times, self._index
        if times is None or index is None:
            return self._all()
        offset: i64 = max(segment.time_index.lookup(times, self.timestamp, False), self.log_start)
        return segment.scan_in(index, self._log, self._end, offset, False)

    def _all(self) -> HeaderScan:
        return HeaderScan(self._log, 0, self._end, False)

    def _search(self, scan: HeaderScan, breathe: Callable[[], None] | None) -> TimestampedOffset | None:
        seen: i64 = 0
        while scan.advance():
            if scan.header.max_timestamp < self.timestamp or scan.header.last_offset < self.log_start:
                continue
            batch = BatchView(self._log.read_at(scan.position, scan.size), 0)
            try:
                records = RecordScan(batch)
                while records.advance():
                    offset, timestamp = records.place()
                    if timestamp >= self.timestamp and offset >= self.log_start:
                        return TimestampedOffset(offset, timestamp, batch.leader_epoch)
                    seen += 1
                    if breathe is not None and seen % _BREATH_RECORDS == 0:
                        breathe()
            except RemoteError:
                continue  # a compressed batch is trusted when it comes: what a producer broke inside is passed over
        return None


class LargestTimestampsJob(TimestampJob):
    """Learns the largest timestamp of each of `segments`; `Log.finish_find` goes on from there.

    A log may have thousands of segments whose indexes nobody has opened yet. It opens them itself, one after the other,
    and stops where one has what is looked for. What an index cannot tell, the batches do.
    """

    def __init__(self, segments: list[Segment], timestamp: i64, upper_bound: i64, generation: i64) -> None:
        super().__init__(segments[0], timestamp, 0, upper_bound, generation)
        self.learned: list[tuple[Segment, int, int]] = []
        """Segments with their largest timestamp and the last offset of the batch that brought it."""
        self._segments = segments

    @property
    def is_for_largest(self) -> bool:
        """Whether the largest timestamp of all is looked for."""
        return self.timestamp == I64_MAX

    def run(self, breathe: Callable[[], None] | None = None) -> None:
        try:
            for segment in self._segments:
                largest, offset = self._by_index(segment) or self._by_batches(segment)
                self.learned.append((segment, largest, offset))
                if largest >= self.timestamp:
                    return
        except (OSError, StorageError) as error:
            self.error = error

    def _by_index(self, segment: Segment) -> tuple[int, int] | None:
        """None where the index is missing, or cannot be right."""
        index = segment.time_index
        try:
            file = segment.open_apart(index.ref)
        except FileNotFoundError:
            return None
        try:
            return index.parse_last(index.read_last(file))
        except StorageError:
            return None
        finally:
            file.close()

    def _by_batches(self, segment: Segment) -> tuple[int, int]:
        largest: i64 = NO_TIMESTAMP
        offset: i64 = segment.base_offset
        file = segment.open_apart(segment.log)
        try:
            scan = HeaderScan(file, 0, segment.size, False)
            while scan.advance():
                if scan.header.max_timestamp > largest:
                    largest = scan.header.max_timestamp
                    offset = scan.header.last_offset
        finally:
            file.close()
        return largest, offset
