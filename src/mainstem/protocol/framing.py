"""From a stream of bytes to frames: one copy a frame, and memory bounded by what peers really send.

All connections of a loop receive into one shared buffer, because a loop reads one socket at a time: ten thousand idle
connections hold nothing. What arrives whole is copied out once, as immutable `bytes`. A frame larger than what has
arrived gets a buffer of its own that the kernel fills directly; it grows with what has come, not with what the peer
says will come, so that a peer cannot make us allocate by announcing.
"""

from typing import Final

from librt.strings import read_i32_be
from mypy_extensions import i64

from mainstem.protocol.errors import ErrorCode, RemoteError

SIZE_BYTES: Final = 4
SHARED_BYTES: Final = 1 << 20
_FIRST_GROWTH: Final = 256 << 10
"""A partial frame's own buffer starts at this size at most and doubles as it fills."""


class SharedBuffer:
    """What every connection of one loop reads into. Its content is good until the next read of any of them."""

    __slots__ = ("bytes", "view")

    def __init__(self, size: int = SHARED_BYTES) -> None:
        self.bytes = bytearray(size)
        self.view = memoryview(self.bytes)


class FrameReceiver:
    """One connection's half-received frame. `buffer` says where to read to, `received` gives the frames completed."""

    __slots__ = ("_expected", "_got", "_max_frame_bytes", "_partial", "_shared")

    def __init__(self, shared: SharedBuffer, max_frame_bytes: i64) -> None:
        self._shared = shared
        self._max_frame_bytes: i64 = max_frame_bytes
        self._partial: bytearray | None = None
        """The beginning of a frame, size prefix included, when a read ended inside it."""
        self._got: i64 = 0
        self._expected: i64 = 0
        """The whole frame's bytes with its prefix, or 0 while the prefix itself is incomplete."""

    @property
    def held_bytes(self) -> int:
        return 0 if self._partial is None else len(self._partial)

    def buffer(self) -> memoryview:
        """Where the next bytes belong."""
        partial = self._partial
        if partial is None or self._expected == 0:
            return self._shared.view
        if self._got == len(partial):
            grown = bytearray(min(self._expected, 2 * self._got))
            grown[: self._got] = partial
            self._partial = partial = grown
        return memoryview(partial)[self._got :]

    def received(self, count: i64) -> list[bytes]:
        """Takes in `count` bytes just read into `buffer()`; the frames they complete, without their prefixes."""
        partial = self._partial
        if partial is None:
            return self._split(self._shared.view, count)
        if self._expected == 0:
            # The size prefix itself was torn: put the pieces together and look again.
            joined = bytes(partial[: self._got]) + bytes(self._shared.view[:count])
            self._partial = None
            return self._split(memoryview(joined), len(joined))
        self._got += count
        if self._got < self._expected:
            return []
        frame = bytes(memoryview(partial)[SIZE_BYTES : self._expected])
        self._partial = None
        return [frame]

    def _split(self, view: memoryview, end: i64) -> list[bytes]:
        frames: list[bytes] = []
        at: i64 = 0
        while end - at >= SIZE_BYTES:
            size: i64 = i64(read_i32_be(bytes(view[at : at + SIZE_BYTES]), 0))
            if size < 0 or size > self._max_frame_bytes:
                raise RemoteError(
                    ErrorCode.INVALID_REQUEST,
                    f"a frame of {size} bytes; between 0 and {self._max_frame_bytes} are allowed",
                )
            if end - at < SIZE_BYTES + size:
                self._keep(view, at, end, SIZE_BYTES + size)
                return frames
            frames.append(bytes(view[at + SIZE_BYTES : at + SIZE_BYTES + size]))
            at += SIZE_BYTES + size
        if at < end:
            self._keep(view, at, end, 0)
        return frames

    def _keep(self, view: memoryview, at: i64, end: i64, expected: i64) -> None:
        got: i64 = end - at
        room: i64 = got
        if expected > 0:
            room = min(expected, max(2 * got, i64(_FIRST_GROWTH)))
        partial = bytearray(room)
        partial[:got] = view[at:end]
        self._partial = partial
        self._got = got
        self._expected = expected
