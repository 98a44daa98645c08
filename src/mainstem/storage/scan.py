"""Walking the batches of a segment file: by header where only the header matters, whole where recovery judges them.

`HeaderScan` reads a window at a time and no record: a lookup from an index entry finds its batch in one read most of
the time. `BatchScan` reads whole batches for checking or decoding, in chunks that grow only for a batch larger than
one. Both stop at `end`, which is what the log knows to be written, never at what the file happens to hold.
"""

from typing import Final

from mypy_extensions import i64

from mainstem.protocol.batch import HEADER_BYTES, BatchView
from mainstem.storage.errors import WOULD_BLOCK, StorageError
from mainstem.storage.fs import File

WINDOW_BYTES: Final = 4096
CHUNK_BYTES: Final = 1 << 20


class HeaderScan:
    """`advance` moves to the next batch and says whether there is one; `header` and `position` are then that batch's.

    Bytes that cannot be a batch raise StorageError, and so does a batch that goes on past `end`: what is scanned was
    checked when it was written or recovered, and ends with a whole batch.
    """

    def __init__(self, file: File, position: i64, end: i64, cached: bool) -> None:
        self.position: i64 = position
        self.size: i64 = 0
        self._file = file
        self._next: i64 = position
        self._end: i64 = end
        self._cached = cached
        self._window = b""
        self._window_at: i64 = 0
        self._header: BatchView | None = None

    @property
    def header(self) -> BatchView:
        """Only the 61 bytes of the header are certain to be there."""
        header = self._header
        assert header is not None, "advance first"
        return header

    def advance(self) -> bool:
        at: i64 = self._next
        if at >= self._end:
            return False
        header = self.peek()
        self._header = header
        self.position = at
        self.size = header.size
        self._next = at + self.size
        return True

    def peek(self) -> BatchView:
        """The header that the next `advance` moves to."""
        at: i64 = self._next
        if at + HEADER_BYTES > self._end:
            raise StorageError(self._file.path, f"{self._end - at} bytes are no batch header", at)
        if at + HEADER_BYTES > self._window_at + len(self._window) or at < self._window_at:
            self._fill(at)
        header = BatchView(self._window, at - self._window_at)
        size: i64 = header.size
        if size < HEADER_BYTES or header.magic != 2:
            raise StorageError(self._file.path, f"no batch here (length {size}, magic {header.magic})", at)
        if at + size > self._end:
            raise StorageError(self._file.path, f"a batch of {size} bytes where {self._end - at} are left", at)
        return header

    def _fill(self, at: i64) -> None:
        wanted: i64 = min(WINDOW_BYTES, self._end - at)
        window: bytes | None
        if self._cached:
            window = self._file.read_cached(at, wanted)
            if window is None:
                raise WOULD_BLOCK
        else:
            window = self._file.read_at(at, wanted)
        if len(window) < HEADER_BYTES:
            raise StorageError(self._file.path, f"the file ends {len(window)} bytes into a batch", at)
        self._window = window
        self._window_at = at


class BatchScan:
    """`advance` moves to the next whole batch; it stops, with `broken` saying why, at what cannot be one."""

    def __init__(self, file: File, position: i64, end: i64, chunk_bytes: i64 = CHUNK_BYTES) -> None:
        self.position: i64 = position
        self.next_position: i64 = position
        self.broken = ""
        self._file = file
        self._end: i64 = end
        self._chunk_bytes: i64 = chunk_bytes
        self._chunk = b""
        self._chunk_at: i64 = 0
        self._batch: BatchView | None = None

    @property
    def batch(self) -> BatchView:
        batch = self._batch
        assert batch is not None, "advance first"
        return batch

    def advance(self) -> bool:
        at: i64 = self.next_position
        if at >= self._end:
            return False
        if at + HEADER_BYTES > self._end:
            self.broken = f"{self._end - at} bytes are no batch header"
            return False
        self._need(at, HEADER_BYTES)
        if len(self._chunk) - (at - self._chunk_at) < HEADER_BYTES:
            self.broken = "the file ends inside a batch header"
            return False
        batch = BatchView(self._chunk, at - self._chunk_at)
        size: i64 = batch.size
        if size < HEADER_BYTES or batch.magic != 2:
            self.broken = f"no batch (length {size}, magic {batch.magic})"
            return False
        if at + size > self._end:
            self.broken = f"a batch of {size} bytes where {self._end - at} are left"
            return False
        if at + size > self._chunk_at + len(self._chunk):
            self._need(at, size)
            if len(self._chunk) < size:
                self.broken = "the file ends inside a batch"
                return False
            batch = BatchView(self._chunk, 0)
        self._batch = batch
        self.position = at
        self.next_position = at + size
        return True

    def _need(self, at: i64, size: i64) -> None:
        if at < self._chunk_at or at + size > self._chunk_at + len(self._chunk):
            self._chunk = self._file.read_at(at, max(size, min(self._chunk_bytes, self._end - at)))
            self._chunk_at = at


def find_batch(scan: HeaderScan, target: i64) -> bool:
    """Moves `scan` to the first batch that ends at or after offset `target`; False where there is none."""
    while scan.advance():
        if scan.header.last_offset >= target:
            return True
    return False
