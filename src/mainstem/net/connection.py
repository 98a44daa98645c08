"""One client's connection: frames in, responses out, one request at a time.

- A request gets an `Exchange` that may be answered at once or later. The next one is taken up when it is answered, as
  in Kafka: so a client that sends two at once may rely on the first when it asks the second.
- What a connection holds is bounded: while a request waits its turn, or the peer does not read what was answered,
  nothing more is read from it. Nobody else waits for it.
- What cannot be told apart any more, as after a length that cannot be, ends the connection, when all that came before
  it has been answered.
- A response is a list of chunks: bytes, and slices of files. A large slice of a file goes out by `sendfile` when
  the loop's transport has nothing of its own to send first; else, and where there is no descriptor, it is read in
  pieces. A slice that is not in memory is read by a thread first, so that a slow disk never blocks the loop.

A `Connection` has what `asyncio.BufferedProtocol` has, but does not inherit from it: compiled classes cannot. The
listener puts asyncio's class before it.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from mainstem.protocol.framing import FrameReceiver, SharedBuffer

_SENDFILE_FROM_BYTES = 32 << 10
"""Below this, one read and a joined write cost less than a system call of its own for the slice."""
_JOINED_MAX = 16
"""How many answers are sent in one go, where as many requests arrived together."""
_ROUNDS_A_TURN = 4
"""How often in a row it is so: a read may bring ten thousand requests, and others have their turn in between."""
_PIECE_BYTES = 128 << 10
"""How much of a slice is handed to the transport when the socket is full, to learn when it has room again."""


class FileSlice(Protocol):
    """Bytes of a file, as storage hands them out. Held open until `release`."""

    @property
    def position(self) -> int: ...
    @property
    def size(self) -> int: ...
    def descriptor(self) -> int: ...
    def read(self, at: int, size: int) -> bytes:
        """`size` bytes from `at` within the slice. May block."""

    def read_cached(self, at: int, size: int) -> bytes | None:
        """The same, or None where it would block."""

    def release(self) -> None: ...


Chunk = bytes | FileSlice


class Exchange:
    """One request, and the way of its response."""

    __slots__ = ("connection", "frame", "is_answered", "on_lost")

    def __init__(self, connection: "Connection", frame: bytes) -> None:
        self.connection = connection
        self.frame = frame
        """What came. Whoever has read it and may answer much later leaves it empty: it may be large."""
        self.is_answered = False
        self.on_lost: Callable[[], None] | None = None
        """Called where the peer goes before it is answered: for what would otherwise wait for nobody."""

    def respond(self, chunks: list[Chunk]) -> None:
        """Answers: the chunks make the whole frame, its size prefix included. An empty list answers nothing."""
        assert not self.is_answered, "a request is answered once"
        self.is_answered = True
        self.connection.answered(chunks)

    def close(self) -> None:
        """Ends the connection, without an answer to this request."""
        self.connection.end()
        self.respond([])


Handler = Callable[[Exchange], None]


class Connection:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        handler: Handler,
        shared: SharedBuffer,
        *,
        listener_name: str,
        max_frame_bytes: int,
        on_lost: Callable[["Connection"], None] = lambda connection: None,
    ) -> None:
        self.listener_name = listener_name
        self.peer = ""
        self.local = ""
        self._loop = loop
        self._handler = handler
        self._receiver = FrameReceiver(shared, max_frame_bytes)
        self._on_lost = on_lost
        self._transport: Any = None
        """An asyncio.Transport, but by what it does: uvloop's do not inherit from it. None when it is lost."""
        self._descriptor = -1
        self._waiting: deque[bytes] = deque()
        """Frames whose turn has not come; when a read leaves any, reading is paused."""
        self._current: Exchange | None = None
        """The request that is being answered."""
        self._is_paused = False
        self._outgoing: deque[Chunk] = deque()
        self._slice_sent = 0
        """How much of the slice at the head of `_outgoing` is out."""
        self._transport_full = False
        self._warming = False
        self._is_pumping = False
        self._goes_on_later = False
        self._closing = False
        self._aborted = False
        self.data: object = None
        """What the layer above keeps with this connection."""

    # What the loop calls

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        # Every byte the transport holds back is one it tells us about: sendfile must not overtake it.
        transport.set_write_buffer_limits(high=0)
        self.peer = _address(transport.get_extra_info("peername"))
        self.local = _address(transport.get_extra_info("sockname"))
        socket = transport.get_extra_info("socket")
        if socket is not None and transport.get_extra_info("ssl_object") is None:
            self._descriptor = socket.fileno()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receiver.buffer()

    def buffer_updated(self, count: int) -> None:
        frames = self._receiver.received(count)
        if self._closing:
            return
        self._waiting.extend(frames)
        self._pump()
        if self._waiting or self._receiver.refused is not None:
            self._pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._descriptor = -1
        self._closing = True
        self._waiting.clear()
        self._receiver.close()
        if self._warming:
            self._outgoing.popleft()  # a thread is reading from it and lets go of it afterwards
        _release(self._outgoing)
        self._outgoing.clear()
        current = self._current
        self._current = None
        if current is not None and current.on_lost is not None:
            current.on_lost()
        self._on_lost(self)

    def pause_writing(self) -> None:
        self._transport_full = True

    def resume_writing(self) -> None:
        self._transport_full = False
        self._pump()

    # What the layer above calls

    def abort(self) -> None:
        """Drops the connection now, with whatever it still had to send."""
        self._closing = True
        self._aborted = True
        if self._transport is not None:
            self._transport.abort()

    def end(self) -> None:
        """Takes up nothing more, and ends the connection when everything answered is out."""
        self._closing = True
        self._waiting.clear()

    def answered(self, chunks: list[Chunk]) -> None:
        """The answer to the request whose turn it is."""
        if self.is_gone:
            _release(chunks)
            return
        self._current = None
        self._outgoing.extend(chunks)
        if not self._is_pumping:
            self._pump()

    @property
    def is_parked(self) -> bool:
        """Whether the request whose turn it is waits for something, and nothing is read meanwhile."""
        current = self._current
        return self._is_paused and current is not None and current.on_lost is not None

    # In

    def _pause_reading(self) -> None:
        if not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._is_paused and self._receiver.refused is None and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()

    # Out

    def _pump(self) -> None:
        """Sends what can be sent, and takes up requests as earlier ones are answered."""
        self._is_pumping = True
        rounds = 0
        while True:
            self._send()
            if self._outgoing or self._transport_full or self.is_gone:
                break
            if rounds == _ROUNDS_A_TURN:
                self._go_on_later()
                break
            if not self._take_up():
                break
            rounds += 1
        self._is_pumping = False
        if not self._waiting and not self._closing:
            self._resume_reading()

    def _go_on_later(self) -> None:
        if not self._goes_on_later:
            self._goes_on_later = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._goes_on_later = False
        self._pump()

    def _take_up(self) -> bool:
        """Hands over requests one after the other, while each is answered at once; whether there is more to do."""
        if self._closing or self._is_answering:
            return False
        if not self._waiting:
            if self._receiver.refused is None:
                return False
            self.end()
            return True
        for _ in range(_JOINED_MAX):
            exchange = Exchange(self, self._waiting.popleft())
            self._current = exchange
            self._handler(exchange)
            if self._is_answering or not self._waiting:
                break
        return True

    def _send(self) -> None:
        outgoing = self._outgoing
        while outgoing and not self._transport_full and not self._warming and not self.is_gone:
            head = outgoing[0]
            if isinstance(head, bytes):
                self._send_bytes()
            elif self._descriptor >= 0 and head.descriptor() >= 0 and head.size >= _SENDFILE_FROM_BYTES:
                self._send_file(head)
            else:
                self._send_piece(head)
        if self._closing and not outgoing and self._transport is not None:
            self._transport.close()

    @property
    def _is_answering(self) -> bool:
        """Asked anew each time: the compiler would take `_current` to stay what was assigned to it."""
        return self._current is not None

    @property
    def is_gone(self) -> bool:
        """Whether nothing more can be sent; an aborted transport tells so a turn of the loop later."""
        return self._aborted or self._transport is None

    def _send_bytes(self) -> None:
        """Joins the bytes at the head, small slices of files among them, into one write."""
        outgoing = self._outgoing
        parts: list[bytes] = []
        while outgoing:
            head = outgoing[0]
            if isinstance(head, bytes):
                parts.append(head)
            elif head.size < _SENDFILE_FROM_BYTES:
                try:
                    data = head.read_cached(0, head.size)
                except OSError:
                    self.abort()
                    return
                if data is None:
                    break
                if len(data) < head.size:  # the file was cut after the slice was taken
                    self.abort()
                    return
                parts.append(data)
                head.release()
            else:
                break
            outgoing.popleft()
        self._write(parts[0] if len(parts) == 1 else b"".join(parts))

    def _write(self, data: bytes) -> None:
        assert self._transport is not None
        if self._descriptor >= 0:
            # Straight to the socket: uvloop would keep it until the end of the turn.
            try:
                sent = os.write(self._descriptor, data)
            except BlockingIOError:
                sent = 0
            except OSError:
                self.abort()
                return
            if sent == len(data):
                return
            self._transport.write(memoryview(data)[sent:])
        else:
            self._transport.write(data)

    def _send_file(self, piece: FileSlice) -> None:
        while self._slice_sent < piece.size:
            try:
                if piece.read_cached(self._slice_sent, 1) is None:
                    self._warm(piece)
                    return
                sent = os.sendfile(
                    self._descriptor,
                    piece.descriptor(),
                    piece.position + self._slice_sent,
                    min(piece.size - self._slice_sent, 1 << 20),
                )
            except BlockingIOError:
                self._send_piece(piece)
                return
            except OSError:
                self.abort()
                return
            if sent == 0:  # the file was cut after the slice was taken: the response cannot be completed
                self.abort()
                return
            self._slice_sent += sent
        self._slice_done(piece)

    def _send_piece(self, piece: FileSlice) -> None:
        """Reads a little of a slice and leaves it to the transport, which tells when there is room again."""
        assert self._transport is not None
        try:
            data = piece.read_cached(self._slice_sent, min(_PIECE_BYTES, piece.size - self._slice_sent))
        except OSError:
            self.abort()
            return
        if data is None:
            self._warm(piece)
            return
        if not data:  # the file was cut after the slice was taken
            self.abort()
            return
        self._slice_sent += len(data)
        if self._slice_sent == piece.size:
            self._slice_done(piece)
        self._transport.write(data)

    def _slice_done(self, piece: FileSlice) -> None:
        self._outgoing.popleft()
        self._slice_sent = 0
        piece.release()

    def _warm(self, piece: FileSlice) -> None:
        """Has a thread read what is not in memory; sending goes on when it is."""
        self._warming = True
        start = self._slice_sent
        size = min(piece.size - start, 1 << 20)
        reading = self._loop.run_in_executor(None, piece.read, start, size)

        def done(future: "asyncio.Future[bytes]") -> None:
            self._warming = False
            # Asked first: a failure that nobody has looked at would be called an error of ours.
            has_failed = future.cancelled() or future.exception() is not None
            if self._transport is None:
                piece.release()
            elif has_failed or not future.result():
                self.abort()
            else:
                # The page may be gone again under memory pressure: send what was read, so that we move on.
                data = future.result()
                self._slice_sent += len(data)
                if self._slice_sent == piece.size:
                    self._slice_done(piece)
                self._write(data)
                self._pump()

        reading.add_done_callback(done)


def _release(chunks: Iterable[Chunk]) -> None:
    for chunk in chunks:
        if not isinstance(chunk, bytes):
            chunk.release()


def _address(name: object) -> str:
    if isinstance(name, tuple) and len(name) >= 2:
        return f"{name[0]}:{name[1]}"
    return str(name or "")
