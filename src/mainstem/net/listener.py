"""A listening socket and the connections that came through it."""

import asyncio
import socket
from typing import Any

from mainstem.net.connection import Connection, Handler
from mainstem.protocol.framing import SharedBuffer


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
        max_connections: int = 1 << 31,
    ) -> None:
        self.name = name
        self.port = 0
        self._loop = loop
        self._handler = handler
        self._shared = shared
        self._max_frame_bytes = max_frame_bytes
        self._max_connections = max_connections
        self._connections: dict[Connection, None] = {}
        self._server: asyncio.AbstractServer | None = None

    async def open(self, host: str, port: int) -> None:
        """Binds; port 0 takes a free one, which `port` then says."""
        self._server = await self._loop.create_server(
            self._accept, host or None, port, backlog=1024, reuse_address=True, start_serving=False
        )
        sockets = getattr(self._server, "sockets", ())
        self.port = sockets[0].getsockname()[1] if sockets else port

    async def serve(self) -> None:
        assert self._server is not None, "a listener is opened before it serves"
        await self._server.start_serving()

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def close(self) -> None:
        """Stops accepting and drops every connection."""
        if self._server is not None:
            self._server.close()
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
        return _Protocol(connection, is_refused=len(self._connections) > self._max_connections)

    def _lost(self, connection: Connection) -> None:
        self._connections.pop(connection, None)


class _Protocol(asyncio.BufferedProtocol):
    """A connection as a loop wants it. What runs per read is the connection's own, without a call in between."""

    def __init__(self, connection: Connection, is_refused: bool) -> None:
        self._connection = connection
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
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._is_refused:
            self._connection.abort()

    def eof_received(self) -> bool:
        return False
