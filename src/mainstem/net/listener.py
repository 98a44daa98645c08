"""A listening socket and the connections that came through it.

A connection past the limit is closed at once. One that was idle for too long is closed too, and one whose peer has
left while a request of it is parked and others wait behind that: nothing is read from it, so nobody would notice.
While there are any connections, each is looked at now and then.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Final

from mainstem.net.connection import Connection, Handler
from mainstem.net.sockets import ConnectionLimit, SocketOptions, has_left, idle_ms
from mainstem.protocol.framing import SharedBuffer

_LOOKS_PER_IDLE_TIME: Final = 4
_LOOK_INTERVAL_MAX_S: Final = 10.0


class Listener:
    """Accepts on one address. Connections live in a dict, so that closing them is in the order they came (B4)."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        handler: Handler,
        shared: SharedBuffer,
        *,
        max_frame_bytes: int,
        limit: ConnectionLimit | None = None,
        options: SocketOptions = SocketOptions(),  # noqa: B008 - it is a value
        look_interval_max_s: float = _LOOK_INTERVAL_MAX_S,
    ) -> None:
        self.name = name
        self.port = 0
        self._loop = loop
        self._handler = handler
        self._shared = shared
        self._max_frame_bytes = max_frame_bytes
        self._limit = ConnectionLimit() if limit is None else limit
        self._options = options
        self._look_interval_s = look_interval_max_s
        if options.max_idle_ms >= 0:
            self._look_interval_s = min(options.max_idle_ms / 1000 / _LOOKS_PER_IDLE_TIME, look_interval_max_s)
        self._sockets: dict[Connection, Any] = {}
        self._look: asyncio.TimerHandle | None = None
        self._connections: dict[Connection, None] = {}
        self._server: asyncio.AbstractServer | None = None

    async def open(self, host: str, port: int) -> None:
        """Binds; port 0 takes a free one, which `port` then says."""
        self._server = await self._loop.create_server(
            self._accept, host or None, port, backlog=1024, reuse_address=True, start_serving=False
        )
        sockets = getattr(self._server, "sockets", ())
        for listening in sockets:
            self._options.prepare_listening(listening)
        self.port = sockets[0].getsockname()[1] if sockets else port

    async def serve(self) -> None:
        assert self._server is not None, "a listener is opened before it serves"
        await self._server.start_serving()

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    @property
    def sockets(self) -> list[Any]:
        """Those of the connections."""
        return list(self._sockets.values())

    def close(self) -> None:
        """Stops accepting and drops every connection."""
        if self._server is not None:
            self._server.close()
        if self._look is not None:
            self._look.cancel()
        for connection in list(self._connections):
            connection.abort()

    def _accept(self) -> "_Protocol":
        connection = Connection(
            self._loop,
            self._handler,
            self._shared,
            listener_name=self.name,
            max_frame_bytes=self._max_frame_bytes,
            on_lost=self._lost,
        )
        self._connections[connection] = None
        return _Protocol(connection, self._opened, is_refused=not self._limit.enter())

    def _opened(self, connection: Connection, opened: Any) -> None:
        self._options.prepare(opened)
        self._sockets[connection] = opened
        if self._look is None:
            self._look_later()

    def _lost(self, connection: Connection) -> None:
        self._sockets.pop(connection, None)
        if connection in self._connections:
            del self._connections[connection]
            self._limit.leave()

    def _look_later(self) -> None:
        self._look = self._loop.call_later(self._look_interval_s, self._look_at_all)

    def _look_at_all(self) -> None:
        max_idle_ms = self._options.max_idle_ms
        for connection, opened in list(self._sockets.items()):
            if 0 <= max_idle_ms < idle_ms(opened) or (connection.is_parked and has_left(opened)):
                connection.abort()
        self._look = None
        if self._sockets:
            self._look_later()


class _Protocol(asyncio.BufferedProtocol):
    """A connection as a loop wants it. What runs per read is the connection's own, without a call in between."""

    def __init__(self, connection: Connection, on_opened: Callable[[Connection, Any], None], is_refused: bool) -> None:
        self._connection = connection
        self._on_opened = on_opened
        self._is_refused = is_refused
        self.get_buffer = connection.get_buffer  # type: ignore[method-assign]
        self.buffer_updated = connection.buffer_updated  # type: ignore[method-assign, assignment]
        self.pause_writing = connection.pause_writing  # type: ignore[method-assign]
        self.resume_writing = connection.resume_writing  # type: ignore[method-assign]
        self.connection_lost = connection.connection_lost  # type: ignore[method-assign, assignment]

    def connection_made(self, transport: Any) -> None:
        self._connection.connection_made(transport)
        opened = transport.get_extra_info("socket")
        if opened is not None and opened.family in (socket.AF_INET, socket.AF_INET6):
            self._on_opened(self._connection, opened)
        if self._is_refused:
            self._connection.abort()

    def eof_received(self) -> bool:
        return False
