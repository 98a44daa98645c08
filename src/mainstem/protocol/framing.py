"""From a stream of bytes to frames: memory bounded by what peers really send, and no copy that need not be.

All connections of a loop receive into one shared buffer, because a loop reads one socket at a time: ten thousand idle
connections hold nothing, and what a read touches stays in the processor's cache. What arrives whole is copied out once,
as immutable `bytes`. A frame whose end has not arrived stays where it is, and the next read of its connection goes
behind it; so a large frame, too, is copied once where one connection sends much. Only where another connection reads
first, or the frame is larger than the buffer, is it collected in a `bytearray`, which grows with what has come, not
with what the peer says will come: a peer cannot make us allocate by announcing. (A `BytesIO` would save the last copy,
but grows to the exact size at each write and then moves everything: five times the cost.)
"""

from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Final

from librt.strings import read_i32_be
from mypy_extensions import i64

from mainstem.protocol.errors import ErrorCode, RemoteError

SIZE_BYTES: Final = 4
SHARED_BYTES: Final = 1 << 20
_SMALL_BYTES: Final = 16 << 10
"""Up to this much is copied out of the shared buffer in one go and cut into frames from there."""
_UNKNOWN: Final = -1


class SharedBuffer:
    """What every connection of one loop reads into. Its content is good until the next read of another of them.

    Pages of its own, which the system gives when they are first written to: a client that is sent little holds little.

    `waiting` is the receiver whose half-received frame still lies here; whoever reads next has it saved first.
    """

    __slots__ = ("size", "view", "waiting")

    def __init__(self, size: int = SHARED_BYTES) -> None:
        self.view = memoryview(mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS))
        self.size: i64 = size
        self.waiting: FrameReceiver | None = None


class FrameReceiver:
    """One connection's half-received frame. `buffer` says where to read to, `received` gives the frames completed.

    Each `received` follows a `buffer` of the same receiver, with no other's in between. `refused` says why a frame was
    not taken: nothing that comes after it can be told apart, but what came before it is whole.
    """

    __slots__ = ("_end", "_expected", "_got", "_max_frame_bytes", "_partial", "_shared", "_start", "refused")

    def __init__(self, shared: SharedBuffer, max_frame_bytes: i64) -> None:
        self._shared = shared
        self._max_frame_bytes: i64 = max_frame_bytes
        self._start: i64 = 0
        self._end: i64 = 0
        """Where in the shared buffer the begun frame lies, prefix and all, while this receiver is the one waiting."""
        self._partial: bytearray | None = None
        """The beginning of a frame, or of its size prefix, where another connection needed the buffer."""
        self._got: i64 = 0
        self._expected: i64 = _UNKNOWN
        """The frame's bytes without its prefix, or -1 while it is the prefix that is incomplete."""
        self.refused: RemoteError | None = None

    @property
    def held_bytes(self) -> int:
        """Memory of its own; what lies in the shared buffer is not."""
        return 0 if self._partial is None else self._got

    def buffer(self) -> memoryview:
        """Where the next bytes belong."""
        shared = self._shared
        waiting = shared.waiting
        if waiting is None:
            return shared.view
        if waiting is not self:
            waiting.save()
            return shared.view
        # Behind what has come of the frame, if all of it fits there or can be made to.
        wanted: i64 = SIZE_BYTES + max(self._expected, 0)
        if wanted > shared.size:
            self.save()
            return shared.view
        if self._start + wanted > shared.size:
            begun: i64 = self._end - self._start
            shared.view[:begun] = shared.view[self._start : self._end]
            self._start = 0
            self._end = begun
        return shared.view[self._end :]

    def save(self) -> None:
        """Takes what has come of a frame out of the shared buffer, which somebody else needs."""
        shared = self._shared
        assert shared.waiting is self
        shared.waiting = None
        start: i64 = self._start
        if self._expected != _UNKNOWN:
            start += SIZE_BYTES
        self._partial = bytearray(shared.view[start : self._end])
        self._got = self._end - start

    def close(self) -> None:
        """Nothing more comes: lets go of the shared buffer."""
        if self._shared.waiting is self:
            self._shared.waiting = None

    def received(self, count: i64) -> list[bytes]:
        """Takes in `count` bytes just read into `buffer()`; the frames they complete, without their prefixes."""
        frames: list[bytes] = []
        try:
            self._cut(count, frames)
        except RemoteError as error:
            self.refused = error
        return frames

    def _cut(self, count: i64, frames: list[bytes]) -> None:
        at: i64 = 0
        end: i64 = count
        shared = self._shared
        if shared.waiting is self:
            shared.waiting = None
            at = self._start
            end = self._end + count
            if end - at < SIZE_BYTES + self._expected:
                # Nothing is complete before this frame is; its prefix was looked at when it came.
                self._wait(at, end, self._expected)
                return
        elif self._is_collecting():
            if self._expected == _UNKNOWN:
                at = self._complete_prefix(count)
            if self._expected != _UNKNOWN:
                at = self._complete_frame(at, count, frames)
            if self._is_collecting():
                return
        if end - at <= _SMALL_BYTES:
            self._split_small(at, bytes(shared.view[at:end]), frames)
        else:
            self._split(shared.view, at, end, frames)

    def _is_collecting(self) -> bool:
        """Asked anew each time: once it was seen not to be None, the compiler would take `_partial` to stay so."""
        return self._partial is not None

    def _wait(self, start: i64, end: i64, expected: i64) -> None:
        """Leaves a begun frame where it is: most often the next read is this connection's again."""
        self._shared.waiting = self
        self._start = start
        self._end = end
        self._expected = expected

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

    def _split_small(self, start: i64, data: bytes, frames: list[bytes]) -> None:
        end: i64 = len(data)
        at: i64 = 0
        while end - at >= SIZE_BYTES:
            size = self._checked(i64(read_i32_be(data, at)))
            if end - at - SIZE_BYTES < size:
                self._wait(start + at, start + end, size)
                return
            at += SIZE_BYTES
            frames.append(data[at : at + size])
            at += size
        if at < end:
            self._wait(start + at, start + end, _UNKNOWN)

    def _split(self, view: memoryview, at: i64, end: i64, frames: list[bytes]) -> None:
        while end - at >= SIZE_BYTES:
            size = self._checked(i64(read_i32_be(bytes(view[at : at + SIZE_BYTES]), 0)))
            if end - at - SIZE_BYTES < size:
                self._wait(at, end, size)
                return
            at += SIZE_BYTES
            frames.append(bytes(view[at : at + size]))
            at += size
        if at < end:
            self._wait(at, end, _UNKNOWN)

    def _checked(self, size: i64) -> i64:
        if size < 0 or size > self._max_frame_bytes:
            raise RemoteError(
                ErrorCode.INVALID_REQUEST,
                f"a frame of {size} bytes; between 0 and {self._max_frame_bytes} are allowed",
            )
        return size
