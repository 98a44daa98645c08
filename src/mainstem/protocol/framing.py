"""Frames: four bytes of size, then that many bytes of a request or a response.

`FrameSplitter` lends its own buffer to whoever receives (as `asyncio.BufferedProtocol` wants it) and hands out whole
frames as immutable `bytes`, each copied once. Its buffer grows to a frame that is larger, no further than the limit
allows, and only as its bytes arrive: a peer that announces much and sends little costs little. A size that is negative
or above the limit (`socket.request.max.bytes`) raises RemoteError, after which the connection can only be closed:
where the next frame begins is unknown.
"""

from typing import Final

from librt.strings import BytesWriter, read_i32_be, write_i32_be
from mypy_extensions import i32, i64

from mainstem.protocol.errors import ErrorCode, RemoteError

SIZE_BYTES: Final = 4
BUFFER_BYTES_MIN: Final = 4096
KEPT_BYTES_MAX: Final = 1 << 20
"""A buffer that grew beyond this is given up as soon as it is empty; one that did not serves the next frame as well."""


class FrameSplitter:
    """Bytes in, frames out."""

    __slots__ = ("_buffer", "_end", "_idle_bytes", "_limit_bytes", "_start")

    def __init__(self, limit_bytes: i64, buffer_bytes: i64 = 65536) -> None:
        assert limit_bytes > 0
        assert buffer_bytes >= BUFFER_BYTES_MIN
        self._limit_bytes: i64 = limit_bytes
        self._idle_bytes: i64 = buffer_bytes
        self._buffer = bytearray(buffer_bytes)
        self._start: i64 = 0
        self._end: i64 = 0

    @property
    def pending_bytes(self) -> i64:
        """How much has arrived of a frame that is not whole yet."""
        return self._end - self._start

    def room(self) -> memoryview:
        """Where to receive the next bytes; never empty. `received` then says how many came."""
        left: i64 = len(self._buffer) - self._end
        # A few bytes of room at the end would cost a read of their own.
        if left == 0 or (left < BUFFER_BYTES_MIN and self._start > 0):
            self._make_room()
        return memoryview(self._buffer)[self._end :]

    def received(self, count: i64) -> list[bytes]:
        """Takes `count` bytes written into `room` and returns the frames that are whole now."""
        assert 0 <= count <= len(self._buffer) - self._end
        self._end += count
        frames: list[bytes] = []
        start: i64 = self._start
        end: i64 = self._end
        view = memoryview(self._buffer)
        while end - start >= SIZE_BYTES:
            size = self._checked_size(start)
            stop: i64 = start + SIZE_BYTES + size
            if stop > end:
                break
            frames.append(bytes(view[start + SIZE_BYTES : stop]))
            start = stop
        view.release()
        if start == end:
            start = end = 0
            if len(self._buffer) > KEPT_BYTES_MAX and len(self._buffer) > self._idle_bytes:
                self._buffer = bytearray(self._idle_bytes)
        self._start = start
        self._end = end
        return frames

    def feed(self, data: bytes) -> list[bytes]:
        """For those who have the bytes already: the frames that are whole after `data`."""
        frames: list[bytes] = []
        at: i64 = 0
        while at < len(data):
            room = self.room()
            count: i64 = min(len(room), len(data) - at)
            room[:count] = data[at : at + count]
            room.release()
            frames.extend(self.received(count))
            at += count
        return frames

    def _checked_size(self, start: i64) -> i64:
        size = i64(read_i32_be(bytes(self._buffer[start : start + SIZE_BYTES]), 0))
        if size < 0 or size > self._limit_bytes:
            raise RemoteError(
                ErrorCode.INVALID_REQUEST, f"a frame of {size} bytes; {self._limit_bytes} are the most that is taken"
            )
        return size

    def _make_room(self) -> None:
        """Moves what is pending to the front, into a larger buffer when the frame needs one."""
        pending: i64 = self._end - self._start
        capacity: i64 = len(self._buffer)
        wanted: i64 = capacity
        if pending >= SIZE_BYTES:
            whole: i64 = SIZE_BYTES + self._checked_size(self._start)
            # Doubling as bytes come in, not at once what was announced.
            if whole > capacity:
                wanted = min(whole, max(pending * 2, capacity))
        moved = self._buffer[self._start : self._end]
        if wanted > capacity:
            # A fresh one, because the view that `room` lent may still be alive, and would forbid resizing.
            self._buffer = bytearray(wanted)
        self._buffer[:pending] = moved
        self._start = 0
        self._end = pending


def frame(payload: bytes) -> bytes:
    """`payload` with its size before it."""
    return size_prefix(len(payload)) + payload


def size_prefix(size: i64) -> bytes:
    assert 0 <= size <= 0x7FFFFFFF
    writer = BytesWriter()
    write_i32_be(writer, i32(size))
    return writer.getvalue()
