"""Building the indexes of a segment anew in a thread, where a reader found that they are not what was written.

The batches say everything that an index says. So a damaged index costs nobody anything but time: whoever meets it
reads without it (`reading`, `timestamps`), and this job, begun and finished on the loop, writes both indexes from the
headers. Readers may go on meanwhile: no entry is believed that the batch it names does not bear out.

Only a segment that takes no more batches is built anew; the active one is rolled first.
"""

from librt.strings import BytesWriter, write_i32_be, write_i64_be
from mypy_extensions import i64

from mainstem.protocol.batch import NO_TIMESTAMP
from mainstem.storage.errors import StorageError
from mainstem.storage.fs import File
from mainstem.storage.index_file import IndexFile
from mainstem.storage.offset_index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from mainstem.storage.scan import HeaderScan
from mainstem.storage.segment import Segment
from mainstem.storage.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES


class Reindexing:
    """`generation` is the log's. Made on the loop; `run` blocks and is for a thread; then `finish` or `unpin`."""

    def __init__(self, segment: Segment, generation: i64) -> None:
        self.segment = segment
        self.generation: i64 = generation
        self.error: Exception | None = None
        self._offsets = b""
        self._times = b""
        self._max_timestamp: i64 = NO_TIMESTAMP
        self._max_timestamp_offset: i64 = segment.base_offset
        self._log: File = segment.log.pin()
        self._offset_file: File = segment.offset_index.ref.pin(create=True)
        self._time_file: File = segment.time_index.ref.pin(create=True)

    def run(self) -> None:
        """A failure is kept for `ReadableLog.finish_reindexing`."""
        try:
            self._scan()
            for file, data in ((self._offset_file, self._offsets), (self._time_file, self._times)):
                file.write_at(0, [data])
                file.truncate(len(data))
                file.sync()
        except (OSError, StorageError) as error:
            self.error = error

    def _scan(self) -> None:
        """As `Segment.index_written` and, at the end, `Segment.become_inactive` would have it."""
        segment = self.segment
        base_offset: i64 = segment.base_offset
        offsets, times = BytesWriter(), BytesWriter()
        offsets_left: i64 = segment.offset_index.max_entries
        times_left: i64 = segment.time_index.max_entries - 1
        last_time: i64 = NO_TIMESTAMP
        since_entry: i64 = 0
        next_offset: i64 = base_offset
        scan = HeaderScan(self._log, 0, segment.size, False)
        while scan.advance():
            header = scan.header
            segment.check_follows(header, next_offset, scan.position)
            next_offset = header.next_offset
            if header.max_timestamp > self._max_timestamp:
                self._max_timestamp = header.max_timestamp
                self._max_timestamp_offset = header.last_offset
            if since_entry > segment.index_interval_bytes and offsets_left > 0 and times_left > 0:
                since_entry = 0
                offsets_left -= 1
                write_i32_be(offsets, header.last_offset - base_offset)  # type: ignore[arg-type]
                write_i32_be(offsets, scan.position)  # type: ignore[arg-type]
                if self._max_timestamp > last_time:
                    last_time = self._max_timestamp
                    times_left -= 1
                    self._write_time(times)
            since_entry += scan.size
        if self._max_timestamp > last_time:
            self._write_time(times)
        self._offsets, self._times = offsets.getvalue(), times.getvalue()

    def _write_time(self, times: BytesWriter) -> None:
        write_i64_be(times, self._max_timestamp)
        write_i32_be(times, self._max_timestamp_offset - self.segment.base_offset)  # type: ignore[arg-type]

    def finish(self) -> None:
        """On the loop, where the segment is still the log's: what is remembered of the indexes is as they are."""
        segment = self.segment
        _replaced(segment.offset_index, self._offsets, OFFSET_ENTRY_BYTES)
        _replaced(segment.time_index, self._times, TIME_ENTRY_BYTES)
        segment.indexes_rebuilt(self._max_timestamp, self._max_timestamp_offset)
        self.unpin()

    def unpin(self) -> None:
        segment = self.segment
        segment.log.unpin()
        segment.offset_index.ref.unpin()
        segment.time_index.ref.unpin()


def _replaced(index: IndexFile, data: bytes, entry_bytes: int) -> None:
    index.replaced(len(data) // entry_bytes, data[len(data) - entry_bytes :] if data else b"")
