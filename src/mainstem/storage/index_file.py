"""What the offset index and the time index have in common: a file of sorted, fixed-size entries.

Memory does not grow with an index: only the number of entries and the last one are held; a lookup reads single
entries by position until it is down to one block, and that block once. Most lookups are near the end, so the last
block is tried first.

Kafka keeps the indexes of an active segment preallocated with zeros; we do not, but a file with a zero tail, as an
unclean stop of Kafka leaves it, is read up to its last entry. All of a time index may be one entry of zeros: a batch at
the base offset with timestamp 0. So a single slot of one is taken for an entry; where Kafka preallocated no more than
that, the segment was active, and a recovery builds its indexes anew.
"""

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from mainstem.storage.errors import WOULD_BLOCK, StorageError
from mainstem.storage.fs import File
from mainstem.storage.open_files import FileRef

BLOCK_ENTRIES: Final = 512

_PIECE_BYTES: Final = 4080
"""Whole entries of either kind, and less than a page: that many zeros at the end are a running Kafka's (`recovery`)."""


def read_bytes(file: File, position: i64, size: i64, cached: bool) -> bytes:
    """`size` bytes or an error; with `cached`, WouldBlock where they are not in memory."""
    data: bytes
    if cached:
        found = file.read_cached(position, size)
        if found is None:
            raise WOULD_BLOCK
        data = found
    else:
        data = file.read_at(position, size)
    if len(data) != size:
        raise StorageError(file.path, f"{size} bytes expected, {len(data)} there", position)
    return data


class IndexFile:
    """Entries of `entry_bytes` each, of which `entries` are valid. `max_bytes` is `segment.index.bytes`, and
    `may_be_zero` whether an entry, which is the first then, may be nothing but zeros."""

    def __init__(self, ref: FileRef, base_offset: i64, entry_bytes: i64, max_bytes: i64, may_be_zero: bool) -> None:
        self.ref = ref
        self.base_offset: i64 = base_offset
        self.entry_bytes: i64 = entry_bytes
        self.max_entries: i64 = max_bytes // entry_bytes
        self.entries: i64 = 0
        self.loaded = False
        self._may_be_zero = may_be_zero
        self._anew: BytesWriter | None = None
        """All entries so far, while they are worked out again."""

    def create(self) -> None:
        """Makes the file, empty."""
        file = self.ref.pin(create=True)
        try:
            if file.size() > 0:
                file.truncate(0)
        finally:
            self.ref.unpin()
        self.entries = 0
        self.loaded = True
        self.remember_last(b"")

    def load(self) -> None:
        """Counts the entries and reads the last one, the first time it is needed. FileNotFoundError without a file."""
        if self.loaded:
            return
        file = self.ref.pin()
        try:
            size: i64 = file.size()
            self.entries = self._count(file, size // self.entry_bytes)
            self.remember_last(self._entry_before(file, self.entries))
        finally:
            self.ref.unpin()
        self.loaded = True

    def read_last(self, file: File) -> bytes:
        """The last entry of `file`, which is this index, or `b""`; changes nothing, and may block: for a thread."""
        return self._entry_before(file, self._count(file, file.size() // self.entry_bytes))

    def _entry_before(self, file: File, slot: i64) -> bytes:
        return b"" if slot == 0 else read_bytes(file, (slot - 1) * self.entry_bytes, self.entry_bytes, False)

    def remember_last(self, entry: bytes) -> None:
        """Takes over the last entry; `b""` where there is none."""
        raise AssertionError("each index has its own")

    def append_entry(self, entry: bytes) -> None:
        anew = self._anew
        if anew is not None:
            anew.write(entry)
        else:
            file = self.ref.pin()
            try:
                self.ref.version += 1
                file.write_at(self.entries * self.entry_bytes, [entry])
            finally:
                self.ref.unpin()
        self.entries += 1
        self.remember_last(entry)

    def cut_to(self, entries: i64) -> None:
        """Leaves only the first `entries`."""
        self.load()
        assert 0 <= entries <= self.entries
        file = self.ref.pin()
        try:
            self.ref.version += 1
            file.truncate(entries * self.entry_bytes)
            last = self._entry_before(file, entries)
        finally:
            self.ref.unpin()
        self.entries = entries
        self.remember_last(last)

    def begin_anew(self) -> None:
        """Forgets what the file says. What is added now is only collected; `end_anew` must follow."""
        self._anew = BytesWriter()
        self.entries = 0
        self.loaded = True
        self.remember_last(b"")

    def end_anew(self) -> None:
        """Writes what was collected, and makes the file where it is missing.

        One that says just that is let be: after a kill nearly all do, and to free the blocks of a file and allocate
        others takes a disk longer than all the rest of opening a small log. Whoever wrote it may not have synced it.
        """
        anew = self._anew
        if anew is None:
            return
        self._anew = None
        data = anew.getvalue()
        self.ref.version += 1
        file = self.ref.pin(create=True)
        try:
            size: i64 = file.size()
            if size != len(data) or file.read_at(0, size) != data:
                for at in range(0, len(data), _PIECE_BYTES):
                    file.write_at(at, [data[at : at + _PIECE_BYTES]])
                if size > len(data):
                    file.truncate(len(data))
        finally:
            self.ref.unpin()

    def replaced(self, entries: i64, last: bytes) -> None:
        """The file was written anew, with so many entries."""
        self.entries = entries
        self.loaded = True
        self.remember_last(last)

    def trim(self) -> None:
        """Cuts a tail that is no entry, as Kafka does when a segment is rolled or closed."""
        self.load()
        file = self.ref.pin()
        try:
            if file.size() != self.entries * self.entry_bytes:
                self.ref.version += 1
                file.truncate(self.entries * self.entry_bytes)
        finally:
            self.ref.unpin()

    def _count(self, file: File, slots: i64) -> i64:
        """How many of `slots` are entries: all, or those before a tail of zeros."""
        if slots == 0 or (slots == 1 and self._may_be_zero) or not self._is_zero(file, slots - 1):
            return slots
        low: i64 = 0
        high: i64 = slots - 1
        while low < high:
            middle: i64 = (low + high) // 2
            if self._is_zero(file, middle):
                high = middle
            else:
                low = middle + 1
        return low

    def _is_zero(self, file: File, slot: i64) -> bool:
        return not any(read_bytes(file, slot * self.entry_bytes, self.entry_bytes, False))
