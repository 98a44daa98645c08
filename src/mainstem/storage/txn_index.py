"""The transaction index of a segment (`.txnindex`): the aborted transactions whose markers are in it.

An entry is 34 bytes, big-endian: version (int16, 0), producer id, first offset, last offset (the marker's) and the
last stable offset when the marker was written (int64 each). The file exists only where a transaction was aborted.
Entries rise by last offset and by last stable offset. A search begins, by bisection, near the first whose marker is in
the range or past it, and ends at the first whose last stable offset is at or past the end of the range: who reads at
the end of a segment with a hundred thousand aborted transactions looks at a few hundred of them.
"""

from typing import Final

from librt.strings import BytesWriter, read_i16_be, read_i64_be, write_i16_be, write_i64_be
from mypy_extensions import i64

from mainstem.storage.errors import StorageError
from mainstem.storage.fs import File, FileSystem
from mainstem.storage.index_file import read_bytes
from mainstem.storage.open_files import FileRef

ENTRY_BYTES: Final = 34
VERSION: Final = 0
_LAST_OFFSET_AT: Final = 18
BLOCK_ENTRIES: Final = 256


class AbortedTransaction:
    """One aborted transaction, as a fetch response lists it and the transaction index keeps it."""

    __slots__ = ("first_offset", "last_offset", "last_stable_offset", "producer_id")

    def __init__(self, producer_id: i64, first_offset: i64, last_offset: i64, last_stable_offset: i64) -> None:
        self.producer_id: i64 = producer_id
        self.first_offset: i64 = first_offset
        self.last_offset: i64 = last_offset
        self.last_stable_offset: i64 = last_stable_offset

    def __repr__(self) -> str:
        return (
            f"AbortedTransaction({self.producer_id}, {self.first_offset}, {self.last_offset}, "
            f"{self.last_stable_offset})"
        )

    def to_bytes(self) -> bytes:
        writer = BytesWriter()
        write_i16_be(writer, VERSION)
        write_i64_be(writer, self.producer_id)
        write_i64_be(writer, self.first_offset)
        write_i64_be(writer, self.last_offset)
        write_i64_be(writer, self.last_stable_offset)
        return writer.getvalue()


class TxnIndex:
    def __init__(self, ref: FileRef, base_offset: i64, fs: FileSystem, exists: bool) -> None:
        self.ref = ref
        self.base_offset: i64 = base_offset
        self.exists = exists
        self._fs = fs

    def append(self, aborted: AbortedTransaction) -> None:
        file = self.ref.pin(create=True)
        try:
            self.will_change()
            file.write_at(file.size(), [aborted.to_bytes()])
        finally:
            self.ref.unpin()

    def will_change(self) -> None:
        """For whoever writes to the file by himself."""
        self.exists = True
        self.ref.version += 1

    def entries(self) -> list[AbortedTransaction]:
        found: list[AbortedTransaction] = []
        if self.exists:
            file = self.ref.pin()
            try:
                size: i64 = file.size()
                position: i64 = 0
                while position < size:
                    position = self.collect_from(file, position, size, -1, -1, found, False)
            finally:
                self.ref.unpin()
        return found

    def position_before(self, file: File, size: i64, first_offset: i64, cached: bool) -> i64:
        """Where to begin to look for those that end at or past `first_offset`."""
        return self._before(file, size // ENTRY_BYTES, first_offset, cached) * ENTRY_BYTES

    def _before(self, file: File, entries: i64, offset: i64, cached: bool) -> i64:
        """A slot, at most a block away, before which every marker is below `offset`."""
        low: i64 = 0
        high: i64 = entries
        while high - low > BLOCK_ENTRIES:
            middle: i64 = (low + high) // 2
            last_offset: i64 = read_i64_be(read_bytes(file, middle * ENTRY_BYTES + _LAST_OFFSET_AT, 8, cached), 0)
            if last_offset < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def truncate_to(self, offset: i64) -> None:
        """Removes the entries whose marker is at or past `offset`."""
        if not self.exists:
            return
        entries = self.entries()
        keep: i64 = 0
        for aborted in entries:
            if aborted.last_offset >= offset:
                break
            keep += 1
        if keep < len(entries):
            file = self.ref.pin()
            try:
                self.ref.version += 1
                file.truncate(keep * ENTRY_BYTES)
            finally:
                self.ref.unpin()

    def reset(self) -> None:
        """Removes what is there: recovery writes it anew, and only where there is something to write."""
        if self.exists:
            self.ref.discard()
            self._fs.remove(self.ref.path)
            self.exists = False

    def collect_from(
        self,
        file: File,
        position: i64,
        size: i64,
        first_offset: i64,
        upper_offset: i64,
        found: list[AbortedTransaction],
        cached: bool,
    ) -> i64:
        """Adds those of one block that overlap `[first_offset, upper_offset)`, or all where the end is negative.

        Where the next block begins: `size` when there are no more, and -1 when later segments have no more of them
        either. By the file alone, which the caller has pinned; `cached` raises WouldBlock where the disk would be read.
        """
        if size % ENTRY_BYTES != 0:
            raise StorageError(self.ref.path, f"{size} bytes are no whole number of entries")
        block = read_bytes(file, position, min(BLOCK_ENTRIES * ENTRY_BYTES, size - position), cached)
        at: i64 = 0
        while at + ENTRY_BYTES <= len(block):
            if i64(read_i16_be(block, at)) != VERSION:
                raise StorageError(self.ref.path, "unknown entry version", position + at)
            aborted = AbortedTransaction(
                read_i64_be(block, at + 2),
                read_i64_be(block, at + 10),
                read_i64_be(block, at + 18),
                read_i64_be(block, at + 26),
            )
            if aborted.last_offset < self.base_offset or aborted.first_offset > aborted.last_offset:
                raise StorageError(
                    self.ref.path, f"{aborted!r} cannot be in the segment at {self.base_offset}", position + at
                )
            if upper_offset < 0:
                found.append(aborted)
            else:
                if aborted.last_offset >= first_offset and aborted.first_offset < upper_offset:
                    found.append(aborted)
                if aborted.last_stable_offset >= upper_offset:
                    return -1
            at += ENTRY_BYTES
        return position + at
