"""From a stream of bytes to frames: memory bounded by what peers really send, and no copy that need not be.

All connections of a loop receive into one shared buffer, because a loop reads one socket at a time: ten thousand idle
connections hold nothing, and what a read touches stays in the processor's cache. What arrives whole is copied out once,
as immutable `bytes`. A frame whose end has not arrived is collected in a `bytearray`, which grows with what has come,
not with what the peer says will come, so that a peer cannot make us allocate by announcing. (A `BytesIO` would save
the last copy, but grows to the exact size at each write and then moves everything: five times the cost.)

A loop has one large buffer besides, which whoever is in the middle of a large frame borrows: the rest of the frame is
then received straight into its place. It is memory that is warm already; a buffer that grows anew for each frame costs
more in page faults than all copying. While it is lent, others do without.
"""

from typing import Final

from librt.strings import read_i32_be
from mypy_extensions import i64

from mainstem.protocol.errors import ErrorCode, RemoteError

SIZE_BYTES: Final = 4
SHARED_BYTES: Final = 1 << 20
_SMALL_BYTES: Final = 16 << 10
"""Up to this much is copied out of the shared buffer in one go and cut into frames from there."""
LARGE_BYTES: Final = 4 << 20
"""The largest frame that is collected in the buffer that is lent."""
_LARGE_FROM_BYTES: Final = 128 << 10
"""Below this, it is not worth it."""
_UNKNOWN: Final = -1


class SharedBuffer:
    """What every connection of one loop reads into. Its content is good until the next read of any of them."""

    __slots__ = ("_large", "bytes", "is_lent", "view")

    def __init__(self, size: int = SHARED_BYTES) -> None:
        self.bytes = bytearray(size)
        self.view = memoryview(self.bytes)
        self._large: memoryview | None = None
        self.is_lent = False

    def borrow(self) -> memoryview:
        """The large buffer, until `is_lent` is taken back. Made when it is first wanted."""
        assert not self.is_lent, "the large buffer is lent to one frame at a time"
        self.is_lent = True
        large = self._large
        if large is None:
            large = memoryview(bytearray(LARGE_BYTES))
            self._large = large
        return large


class FrameReceiver:
    """One connection's half-received frame. `buffer` says where to read to, `received` gives the frames completed."""

    __slots__ = ("_borrowed", "_expected", "_got", "_max_frame_bytes", "_partial", "_shared")

    def __init__(self, shared: SharedBuffer, max_frame_bytes: i64) -> None:
        self._shared = shared
        self._max_frame_bytes: i64 = max_frame_bytes
        self._partial: bytearray | None = None
        """The beginning of a frame, or of its size prefix, when a read ended inside it."""
        self._borrowed: memoryview | None = None
        """The same for a large frame: the buffer that the rest of it is received into."""
        self._got: i64 = 0
        self._expected: i64 = _UNKNOWN
        """The frame's bytes without its prefix, or -1 while it is the prefix that is incomplete."""

    @property
    def held_bytes(self) -> int:
        return self._got if self._is_inside_frame() else 0

    def buffer(self) -> memoryview:
        """Where the next bytes belong."""
        if self._borrowed is not None:
            return self._borrowed[self._got : self._expected]
        return self._shared.view

    def release(self) -> None:
        """Gives up a frame that will not be completed: the connection is gone."""
        self._partial = None
        if self._borrowed is not None:
            self._borrowed = None
            self._shared.is_lent = False

    def received(self, count: i64) -> list[bytes]:
        """Takes in `count` bytes just read into `buffer()`; the frames they complete, without their prefixes."""
        frames: list[bytes] = []
        borrowed = self._borrowed
        if borrowed is not None:
            self._got += count
            if self._got == self._expected:
                frames.append(bytes(borrowed[: self._expected]))
                self.release()
            return frames
        at: i64 = 0
        if self._is_inside_frame():
            if self._expected == _UNKNOWN:
                at = self._complete_prefix(count)
            if self._expected != _UNKNOWN:
                at = self._complete_frame(at, count, frames)
            if self._is_inside_frame():
                return frames
        view = self._shared.view
        if count - at <= _SMALL_BYTES:
            self._split_small(bytes(view[at:count]), frames)
        else:
            self._split(view, at, count, frames)
        return frames

    def _is_inside_frame(self) -> bool:
        return self._partial is not None or self._borrowed is not None

    def _complete_prefix(self, count: i64) -> i64:
        """Goes on with a size prefix that was torn; where the rest of the input begins."""
        partial = self._partial
        assert partial is not None
        taken: i64 = min(SIZE_BYTES - self._got, count)
        partial.extend(self._shared.view[:taken])
        self._got += taken
        if self._got == SIZE_BYTES:
            self._expected = self._checked(i64(read_i32_be(bytes(partial), 0)))
            self._partial = bytearray()
            self._got = 0
        return taken

    def _complete_frame(self, at: i64, count: i64, frames: list[bytes]) -> i64:
        """Goes on with a frame whose size is known; where the rest of the input begins."""
        partial = self._partial
        assert partial is not None
        taken: i64 = min(self._expected - self._got, count - at)
        if taken > 0:
            partial.extend(self._shared.view[at : at + taken])
            self._got += taken
        if self._got == self._expected:
            frames.append(bytes(partial))
            self._partial = None
        return at + taken

    def _split_small(self, data: bytes, frames: list[bytes]) -> None:
        end: i64 = len(data)
        at: i64 = 0
        while end - at >= SIZE_BYTES:
            size = self._checked(i64(read_i32_be(data, at)))
            at += SIZE_BYTES
            if end - at < size:
                self._keep(data[at:], size)
                return
            frames.append(data[at : at + size])
            at += size
        if at < end:
            self._keep(data[at:], _UNKNOWN)

    def _split(self, view: memoryview, at: i64, end: i64, frames: list[bytes]) -> None:
        while end - at >= SIZE_BYTES:
            size = self._checked(i64(read_i32_be(bytes(view[at : at + SIZE_BYTES]), 0)))
            at += SIZE_BYTES
            if end - at < size:
                self._keep(view[at:end], size)
                return
            frames.append(bytes(view[at : at + size]))
            at += size
        if at < end:
            self._keep(view[at:end], _UNKNOWN)

    def _checked(self, size: i64) -> i64:
        if size < 0 or size > self._max_frame_bytes:
            raise RemoteError(
                ErrorCode.INVALID_REQUEST,
                f"a frame of {size} bytes; between 0 and {self._max_frame_bytes} are allowed",
            )
        return size

    def _keep(self, begun: bytes | memoryview, expected: i64) -> None:
        self._got = len(begun)
        self._expected = expected
        if _LARGE_FROM_BYTES <= expected <= LARGE_BYTES and not self._shared.is_lent:
            borrowed = self._shared.borrow()
            borrowed[: self._got] = begun
            self._borrowed = borrowed
        else:
            self._partial = bytearray(begun)
