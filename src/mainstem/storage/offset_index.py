"""The offset index of a segment (`.index`): from an offset to a position at or before the batch that holds it.

An entry is 8 bytes, big-endian: the last offset of a batch, relative to the segment's base (int32), and the position
at which that batch starts (int32). Offsets and positions both rise strictly.
"""

from typing import Final

from librt.strings import BytesWriter, read_i32_be, write_i32_be
from mypy_extensions import i64

from mainstem.core.log.compaction import RELATIVE_MAX
from mainstem.storage.errors import StorageError
from mainstem.storage.fs import File
from mainstem.storage.index_file import BLOCK_ENTRIES, IndexFile, read_bytes
from mainstem.storage.open_files import FileRef

ENTRY_BYTES: Final = 8


class OffsetIndex(IndexFile):
    """`last_offset` is the base offset, and `last_position` 0, while there is no entry."""

    def __init__(self, ref: FileRef, base_offset: i64, max_bytes: i64) -> None:
        super().__init__(ref, base_offset, ENTRY_BYTES, max_bytes, may_be_zero=False)
        self.last_offset: i64 = base_offset
        self.last_position: i64 = 0

    @property
    def is_full(self) -> bool:
        return self.entries >= self.max_entries

    def remember_last(self, entry: bytes) -> None:
        if entry:
            self.last_offset = self.base_offset + i64(read_i32_be(entry, 0))
            self.last_position = i64(read_i32_be(entry, 4))
        else:
            self.last_offset = self.base_offset
            self.last_position = 0

    def is_ahead_of(self, offset: i64, position: i64) -> bool:
        """Whether the last entry is not before what is written now: it is wrong."""
        self.load()
        return self.entries > 0 and (offset <= self.last_offset or position <= self.last_position)

    def append(self, offset: i64, position: i64) -> None:
        self.load()
        relative: i64 = offset - self.base_offset
        assert 0 <= relative <= RELATIVE_MAX, f"{offset} does not fit an index that starts at {self.base_offset}"
        assert not self.is_ahead_of(offset, position)
        writer = BytesWriter()
        write_i32_be(writer, relative)  # type: ignore[arg-type]
        write_i32_be(writer, position)  # type: ignore[arg-type]
        self.append_entry(writer.getvalue())

    def lookup(self, file: File, target: i64, cached: bool) -> i64:
        """The position of the last entry at or before offset `target`, or 0. `file` is this index, pinned."""
        slot: i64 = self._floor(file, target - self.base_offset, 0, cached)
        if slot < 0:
            return 0
        return i64(read_i32_be(read_bytes(file, slot * ENTRY_BYTES, ENTRY_BYTES, cached), 4))

    def offset_at_or_after(self, file: File, position: i64, cached: bool) -> i64:
        """The offset of the first entry at or past `position`, or -1: an upper bound for what ends there."""
        slot: i64 = self._floor(file, position - 1, 4, cached) + 1
        if slot >= self.entries:
            return -1
        return self.base_offset + i64(read_i32_be(read_bytes(file, slot * ENTRY_BYTES, ENTRY_BYTES, cached), 0))

    def position_before(self, file: File, position: i64) -> i64:
        """The position of the last entry at or before `position`, or 0: a place from which batches can be read."""
        slot: i64 = self._floor(file, position, 4, False)
        if slot < 0:
            return 0
        return i64(read_i32_be(read_bytes(file, slot * ENTRY_BYTES, ENTRY_BYTES, False), 4))

    def truncate_to(self, offset: i64) -> None:
        """Removes the entries at or past `offset`."""
        self.load()
        file = self.ref.pin()
        try:
            keep: i64 = self._floor(file, offset - self.base_offset - 1, 0, False) + 1
        finally:
            self.ref.unpin()
        if keep < self.entries:
            self.cut_to(keep)

    def check(self, log_bytes: i64) -> None:
        """Raises StorageError unless this can be the index of a segment of `log_bytes`."""
        self.load()
        if self.entries == 0:
            return
        if self.last_offset < self.base_offset or not 0 < self.last_position < log_bytes:
            raise StorageError(
                self.ref.path,
                f"entry {self.last_offset} -> {self.last_position} is outside a segment of {log_bytes} bytes",
            )

    def _floor(self, file: File, target: i64, field_at: i64, cached: bool) -> i64:
        """The last slot whose field (0: relative offset, 4: position) is at or below `target`, or -1."""
        low: i64 = 0
        high: i64 = self.entries
        if high > BLOCK_ENTRIES:
            tail: i64 = high - BLOCK_ENTRIES
            if self._field(file, tail, field_at, cached) <= target:
                low = tail
            else:
                high = tail
        while high - low > BLOCK_ENTRIES:
            middle: i64 = (low + high) // 2
            if self._field(file, middle, field_at, cached) <= target:
                low = middle
            else:
                high = middle
        if low == high:
            return -1
        first: i64 = low
        block = read_bytes(file, first * ENTRY_BYTES, (high - first) * ENTRY_BYTES, cached)
        while low < high:
            middle = (low + high) // 2
            if i64(read_i32_be(block, (middle - first) * ENTRY_BYTES + field_at)) <= target:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def _field(self, file: File, slot: i64, field_at: i64, cached: bool) -> i64:
        return i64(read_i32_be(read_bytes(file, slot * ENTRY_BYTES + field_at, 4, cached), 0))
