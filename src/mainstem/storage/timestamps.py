"""Finding offsets by timestamp: the time index names a place to start, headers the batch, records the offset."""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from mainstem.protocol.batch import BatchView
from mainstem.protocol.errors import RemoteError
from mainstem.protocol.records import iterate_records
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
        self.index_damage = ""
        """What is wrong with the segment's indexes, where something is."""
        self._end: i64 = segment.size
        segment.check_indexes()
        self._times: File = segment.time_index.ref.pin()
        self._index: File = segment.offset_index.ref.pin()
        self._log: File = segment.log.pin()

    def run(self, breathe: Callable[[], None] | None = None) -> None:
        """A batch may hold millions of records: `breathe` is called every few hundred, to give others their turn."""
        try:
            try:
                self.found = self._search(self._start(), breathe)
            except StorageError as damage:
                # The indexes or the batches: the batches alone tell.
                self.found = self._search(HeaderScan(self._log, 0, self._end, False), breathe)
                self.index_damage = str(damage)
        except (OSError, StorageError) as error:
            self.error = error

    def unpin(self) -> None:
        self.segment.log.unpin()
        self.segment.offset_index.ref.unpin()
        self.segment.time_index.ref.unpin()

    def _start(self) -> HeaderScan:
        segment = self.segment
        offset: i64 = max(segment.time_index.lookup(self._times, self.timestamp, False), self.log_start)
        return segment.scan_in(self._index, self._log, self._end, offset, False)

    def _search(self, scan: HeaderScan, breathe: Callable[[], None] | None) -> TimestampedOffset | None:
        seen: i64 = 0
        while scan.advance():
            if scan.header.max_timestamp < self.timestamp or scan.header.last_offset < self.log_start:
                continue
            batch = BatchView(self._log.read_at(scan.position, scan.size), 0)
            try:
                for record in iterate_records(batch):
                    if record.timestamp >= self.timestamp and record.offset >= self.log_start:
                        return TimestampedOffset(record.offset, record.timestamp, batch.leader_epoch)
                    seen += 1
                    if breathe is not None and seen % _BREATH_RECORDS == 0:
                        breathe()
            except RemoteError:
                continue  # a compressed batch is trusted when it comes: what a producer broke inside is passed over
        return None
