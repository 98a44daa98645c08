"""What a listener asks of the kernel for the sockets of its connections.

How long a connection has been idle is the kernel's knowledge, so that nothing has to be noted for each request; so is
that the peer has left one from which nothing is read.
"""

import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

_LAST_DATA: Final = struct.Struct("=44xIII")
"""Of Linux's tcp_info: milliseconds since data was sent, since it was acknowledged, and since it was received."""
_CLOSED: Final = 7
_CLOSE_WAIT: Final = 8
"""Linux's states of a connection that was reset, and of one whose peer sends nothing more."""


@dataclass(frozen=True, slots=True)
class SocketOptions:
    """-1 leaves to the system what it is."""

    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    max_idle_ms: int = -1
    """How long a connection may be idle; a negative number is for ever."""

    def prepare_listening(self, listening: Any) -> None:
        """Connections take their receive buffer over from the listening socket, and have it from the first byte on."""
        if self.receive_buffer_bytes != -1:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer_bytes)

    def prepare(self, opened: Any) -> None:
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self.send_buffer_bytes != -1:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.send_buffer_bytes)


def idle_ms(opened: Any) -> int:
    """How long ago data was last received or sent."""
    sent, _, received = _LAST_DATA.unpack(opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_DATA.size))
    return int(min(sent, received))


def has_left(opened: Any) -> bool:
    """Whether the peer has closed or reset the connection, be it that some of what it sent is not read yet."""
    return opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] in (_CLOSED, _CLOSE_WAIT)


class ConnectionLimit:
    """How many connections there may be, on all listeners that share it: `most`, but never more than `ceiling`.

    `on_change` is told when there is one more or one less.
    """

    __slots__ = ("_ceiling", "_on_change", "count", "most")

    def __init__(
        self, most: int = 1 << 31, ceiling: int = 1 << 31, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self.count = 0
        self.most = most
        self._ceiling = ceiling
        self._on_change = on_change

    def enter(self) -> bool:
        """One more; False where it is one too many. It counts until it `leave`s, all the same."""
        self.count += 1
        self._on_change()
        return self.count <= min(self.most, self._ceiling)

    def leave(self) -> None:
        self.count -= 1
        self._on_change()
