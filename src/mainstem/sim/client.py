"""A small client on the simulated network: one connection at a time, raw requests, answers matched to them.

It does what every client must: it connects anew when its connection is gone, gives up on an answer that does not come,
and leaves it to its caller what a request that was not answered means. `life` says to which life of the broker an
answer belongs, because one that was on its way when the power failed tells of a log that may be no more.
"""

import asyncio
import struct
from collections.abc import Callable
from typing import Any, TypeVar

from mainstem.protocol.rpc import decode_response, encode_request
from mainstem.protocol.schema import Message
from mainstem.sim.ledger import Violation
from mainstem.sim.loop import SimLoop
from mainstem.sim.network import SimTransport

M = TypeVar("M", bound=Message)


class NoAnswer(Exception):  # noqa: N818
    """The request may have been carried out, or may be yet, or never."""


class NotSent(NoAnswer):
    """The request never left."""


def _fail(future: "asyncio.Future[Message]", why: str) -> None:
    if not future.done():
        future.set_exception(NoAnswer(why))
        future.exception()  # whoever sent it may not look at the answer any more, and nobody is to be warned


def _give_up(connecting: "asyncio.Future[tuple[Any, Any]]") -> None:
    if not connecting.done():
        connecting.set_exception(TimeoutError("nobody accepts the connection"))


class BadBytes(NoAnswer):
    """An answer whose records do not match their checksum."""


class ClientConnection(asyncio.Protocol):
    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._transport: SimTransport | None = None
        self._received = b""
        self._waiting: dict[int, tuple[int, int, asyncio.Future[Message]]] = {}
        self._correlation_id = 0
        self.life = -1

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, SimTransport)
        assert transport.peer is not None
        self._transport = transport
        self.life = transport.peer.loop.life

    def send(
        self, request: Message, version: int, client_id: str, *, answered: bool = True
    ) -> "asyncio.Future[Message]":
        assert self._transport is not None
        self._correlation_id += 1
        future: asyncio.Future[Message] = self._loop.create_future()
        if answered:
            self._waiting[self._correlation_id] = (request.API_KEY, version, future)
        else:
            future.set_result(request)
        self._transport.write(encode_request(request, version, self._correlation_id, client_id))
        return future

    def data_received(self, data: bytes) -> None:
        received = self._received + data
        at = 0
        while len(received) - at >= 4:
            (size,) = struct.unpack_from(">i", received, at)
            if len(received) - at - 4 < size:
                break
            frame = received[at + 4 : at + 4 + size]
            (correlation_id,) = struct.unpack_from(">i", frame)
            expected = next(iter(self._waiting), None)
            assert correlation_id == expected, f"answer {correlation_id} came where {expected} was due"
            key, version, future = self._waiting.pop(correlation_id)
            if not future.done():
                future.set_result(decode_response(frame, key, version)[1])
            at += 4 + size
        self._received = received[at:]

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        waiting, self._waiting = self._waiting, {}
        for _, _, future in waiting.values():
            _fail(future, str(error))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
            self.connection_lost(None)


class SimClient:
    def __init__(self, loop: SimLoop, name: str, address: tuple[str, int], timeout_s: float = 2.0) -> None:
        self.loop = loop
        self.name = name
        self._address = address
        self._timeout_s = timeout_s
        self._connection: ClientConnection | None = None
        self.is_damaged: Callable[[tuple[str, int]], bool] = lambda place: False
        """Whether a partition's bytes have changed by themselves, so that nonsense must be expected of it."""

    def another(self, timeout_s: float | None = None) -> "SimClient":
        """One with a connection of its own, in the same process."""
        made = SimClient(self.loop, self.name, self._address, timeout_s or self._timeout_s)
        made.is_damaged = self.is_damaged
        return made

    def complain(self, promise: str, place: tuple[str, int], what: str) -> None:
        """Raises a violation, or BadBytes where the partition is damaged."""
        if self.is_damaged(place):
            raise BadBytes(what)
        raise Violation(promise, f"{place}: {what}")

    @property
    def life(self) -> int:
        """The life of the broker that the connection belongs to."""
        return -1 if self._connection is None else self._connection.life

    async def connected(self) -> ClientConnection:
        if self._connection is None or not self._connection.is_open:
            host, port = self._address
            connecting = self.loop.connecting(lambda: ClientConnection(self.loop), host, port)
            timer = self.loop.call_later(self._timeout_s, _give_up, connecting)
            try:
                _, connection = await connecting
            except OSError as error:
                raise NotSent(str(error)) from None
            finally:
                timer.cancel()
            if not connection.is_open:
                raise NotSent("the connection was lost as soon as it was made")
            self._connection = connection
        return self._connection

    async def send(self, request: Message, version: int, *, answered: bool = True) -> "asyncio.Future[Message]":
        connection = self._connection
        if connection is None or not connection.is_open:
            connection = await self.connected()
        return connection.send(request, version, self.name, answered=answered)

    async def answer(self, sent: "asyncio.Future[Message]", kind: type[M], timeout_s: float | None = None) -> M:
        def give_up() -> None:
            # Later answers would be taken for those to later requests: the connection is of no more use.
            self.close()
            _fail(sent, "timed out")

        timer = self.loop.call_later(timeout_s or self._timeout_s, give_up)
        try:
            message = await sent
        finally:
            timer.cancel()
        assert isinstance(message, kind), f"{type(message).__name__} is not a {kind.__name__}"
        return message

    async def ask(self, request: Message, version: int, kind: type[M], timeout_s: float | None = None) -> M:
        return await self.answer(await self.send(request, version), kind, timeout_s)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
