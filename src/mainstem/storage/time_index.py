"""The time index of a segment (`.timeindex`): from a timestamp to an offset before which nothing is as late.

An entry is 12 bytes, big-endian: the largest timestamp so far (int64) and the last offset of the batch that brought
it, relative to the segment's base (int32). Timestamps rise strictly, so everything in the segment before the offset
of the last entry below t is below t as well: that is where the search for t starts.
"""

from typing import Final

from librt.strings import BytesWriter, read_i32_be, read_i64_be, write_i32_be, write_i64_be
from mypy_extensions import i64

from mainstem.protocol.batch import NO_TIMESTAMP
from mainstem.storage.errors import StorageError
from mainstem.storage.fs import File
from mainstem.storage.index_file import BLOCK_ENTRIES, IndexFile, read_bytes
from mainstem.storage.open_files import FileRef

ENTRY_BYTES: Final = 12


class TimeIndex(IndexFile):
    """`last_timestamp` is -1, and `last_offset` the base, while there is no entry."""

    def __init__(self, ref: FileRef, base_offset: i64, max_bytes: i64) -> None:
        super().__init__(ref, base_offset, ENTRY_BYTES, max_bytes, may_be_zero=True)
        self.last_timestamp: i64 = NO_TIMESTAMP
        self.last_offset: i64 = base_offset

    @property
    def is_full(self) -> bool:
        """One slot stays free for the entry that is added when the segment is rolled."""
        return self.entries >= self.max_entries - 1

    def remember_last(self, entry: bytes) -> None:
        if entry:
            self.last_timestamp = read_i64_be(entry, 0)
            self.last_offset = self.base_offset + i64(read_i32_be(entry, 8))
        else:
            self.last_timestamp = NO_TIMESTAMP
            self.last_offset = self.base_offset

    def parse_last(self, entry: bytes) -> tuple[int, int] | None:
        """The timestamp and the offset of the last entry, as `read_last` found it; None where they cannot be."""
        if not entry:
            return NO_TIMESTAMP, self.base_offset
        timestamp, offset = read_i64_be(entry, 0), self.base_offset + i64(read_i32_be(entry, 8))
        return None if timestamp < 0 or offset < self.base_offset else (timestamp, offset)

    def is_ahead_of(self, timestamp: i64, offset: i64) -> bool:
        """Whether the last entry has a larger offset than a later timestamp: one of the two is wrong."""
        self.load()
        return timestamp > self.last_timestamp and self.entries > 0 and offset < self.last_offset

    def append_if_later(self, timestamp: i64, offset: i64) -> None:
        """Adds an entry when `timestamp` is later than the last one; Kafka adds nothing for an equal one."""
        self.load()
        if timestamp <= self.last_timestamp:
            return
        assert self.entries == 0 or offset >= self.last_offset
        writer = BytesWriter()
        write_i64_be(writer, timestamp)
        write_i32_be(writer, offset - self.base_offset)  # type: ignore[arg-type]
        self.append_entry(writer.getvalue())

    def lookup(self, file: File, timestamp: i64, cached: bool) -> i64:
        """The offset of the last entry at or before `timestamp`, or the base. `file` is this index, pinned."""
        slot: i64 = self._floor(file, timestamp, cached)
        if slot < 0:
            return self.base_offset
        return self.base_offset + i64(read_i32_be(read_bytes(file, slot * ENTRY_BYTES + 8, 4, cached), 0))

    def truncate_to(self, offset: i64) -> None:
        """Removes the entries at or past `offset`. Truncation is rare, so it simply goes back one by one."""
        self.load()
        if self.entries == 0 or self.last_offset < offset:
            return
        keep: i64 = self.entries - 1
        file = self.ref.pin()
        try:
            relative: i64 = offset - self.base_offset
            while (
                keep > 0 and i64(read_i32_be(read_bytes(file, (keep - 1) * ENTRY_BYTES + 8, 4, False), 0)) >= relative
            ):
                keep -= 1
        finally:
            self.ref.unpin()
        self.cut_to(keep)

    def check(self, log_bytes: i64) -> None:
        """Raises StorageError unless this can be the time index of a segment of `log_bytes`."""
        self.load()
        if self.entries > 0 and (self.last_offset < self.base_offset or self.last_timestamp < 0 or log_bytes == 0):
            raise StorageError(self.ref.path, f"entry {self.last_timestamp} -> {self.last_offset} cannot be")

    def _floor(self, file: File, target: i64, cached: bool) -> i64:
        """The last slot whose timestamp is at or below `target`, or -1."""
        low: i64 = 0
        high: i64 = self.entries
        while high - low > BLOCK_ENTRIES:
            middle: i64 = (low + high) // 2
            if read_i64_be(read_bytes(file, middle * ENTRY_BYTES, 8, cached), 0) <= target:
                low = middle
            else:
                high = middle
        if low == high:
            return -1
        first: i64 = low
        block = read_bytes(file, first * ENTRY_BYTES, (high - first) * ENTRY_BYTES, cached)
        while low < high:
            middle = (low + high) // 2
            if read_i64_be(block, (middle - first) * ENTRY_BYTES) <= target:
                low = middle + 1
            else:
                high = middle
        return low - 1
