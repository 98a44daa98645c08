"""A small client on the simulated network: one connection at a time, raw requests, answers matched to them.

It does what every client must: it connects anew when its connection is gone, gives up on an answer that does not come,
and leaves it to its caller what a request that was not answered means. Batches to and from one partition, most
of what is sent, take the compiled way of Mainstem's own client. `life` says to which life of the broker an answer
belongs, because one that was on its way when the power failed tells of a log that may be no more.
"""

import asyncio
import struct
from collections.abc import Callable
from typing import Any, Final, TypeVar

from mainstem.protocol.batch import BatchView
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchTopic,
    encode_fetch_request,
    read_fetch_response,
)
from mainstem.protocol.primitives import ZERO_UUID
from mainstem.protocol.produce import (
    PartitionBatches,
    ProducePartitionResponse,
    TopicBatches,
    encode_produce_request,
    read_produce_response,
)
from mainstem.protocol.records import Record
from mainstem.protocol.rpc import decode_response, encode_request
from mainstem.protocol.schema import Message
from mainstem.sim.ledger import Violation
from mainstem.sim.loop import SimLoop
from mainstem.sim.network import SimTransport

A = TypeVar("A")

Judge = Callable[[tuple[str, int], int], Callable[[int], None] | None]
"""Of a partition that is asked for in a life of the broker, what judges the error code of the answer, if anything."""

FETCH_VERSION: Final = 12
PRODUCE_TIMEOUT_MS: Final = 1500
OFFSET_IS_TOLD: Final = "T1 a retry gets its first offset"


class NoAnswer(Exception):  # noqa: N818
    """The request may have been carried out, or may be yet, or never."""


class NotSent(NoAnswer):
    """The request never left."""


def _fail(future: "asyncio.Future[Any]", why: str) -> None:
    if not future.done():
        future.set_exception(NoAnswer(why))
        future.exception()  # whoever sent it may not look at the answer any more, and nobody is to be warned


def _give_up(connecting: "asyncio.Future[tuple[Any, Any]]") -> None:
    if not connecting.done():
        connecting.set_exception(TimeoutError("nobody accepts the connection"))


class BadBytes(NoAnswer):
    """An answer whose records do not match their checksum."""


class Fetched:
    """What was fetched of one partition."""

    __slots__ = ("data", "partition")

    def __init__(self, partition: FetchPartitionResponse, data: bytes) -> None:
        self.partition = partition
        self.data = data


def _one_fetched(frame: bytes, version: int) -> Fetched:
    found = read_fetch_response(frame, version)[1].topics[0].partitions[0]
    start = max(found.records_start, 0)
    return Fetched(found, frame[start : start + found.records_size])


def _one_produced(frame: bytes, version: int) -> ProducePartitionResponse:
    return read_produce_response(frame, version)[1].topics[0].partitions[0]


def check_offset_is_told(name: str, told: ProducePartitionResponse) -> None:
    """Whether a batch was taken, or was there already, its producer is told where.

    Kafka refuses one that came before the last five that it knows as a duplicate. This broker never does.
    """
    if told.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER or (
        told.error_code == ErrorCode.NONE and told.base_offset < 0
    ):
        raise Violation(
            OFFSET_IS_TOLD, f"{name} was told {ErrorCode(told.error_code).name} and offset {told.base_offset}"
        )


class ClientConnection(asyncio.Protocol):
    def __init__(self, loop: SimLoop, judge: Judge) -> None:
        self._loop = loop
        self._judge = judge
        self._transport: SimTransport | None = None
        self._received = b""
        self._waiting: dict[int, tuple[Callable[[bytes], object], asyncio.Future[Any]]] = {}
        """By correlation id, how the answer is read and who waits for it."""
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

    def send(self, request: Message, version: int, client_id: str) -> "asyncio.Future[Message]":
        self._correlation_id += 1
        frame = encode_request(request, version, self._correlation_id, client_id)
        key = request.API_KEY
        return self._write(frame, lambda answer: decode_response(answer, key, version)[1])

    def send_batch(
        self,
        place: tuple[str, int],
        batch: bytes,
        version: int,
        client_id: str,
        transactional_id: str | None,
        acks: int,
    ) -> "asyncio.Future[ProducePartitionResponse]":
        self._correlation_id += 1
        topics = [TopicBatches(place[0], ZERO_UUID, [PartitionBatches(place[1], [batch])])]
        pieces = encode_produce_request(
            version, self._correlation_id, client_id, transactional_id, acks, PRODUCE_TIMEOUT_MS, topics
        )
        judge = self._judge(place, self.life)

        def read(answer: bytes) -> ProducePartitionResponse:
            told = _one_produced(answer, version)
            if judge is not None:
                judge(told.error_code)
            return told

        return self._write(b"".join(pieces), read, is_answered=acks != 0)

    def send_fetch(self, request: FetchRequest, client_id: str) -> "asyncio.Future[Fetched]":
        self._correlation_id += 1
        frame = encode_fetch_request(request, FETCH_VERSION, self._correlation_id, client_id)
        judge = self._judge((request.topics[0].name, request.topics[0].partitions[0].partition), self.life)

        def read(answer: bytes) -> Fetched:
            told = _one_fetched(answer, FETCH_VERSION)
            if judge is not None:
                judge(told.partition.error_code)
            return told

        return self._write(frame, read)

    def _write(
        self, frame: bytes, read: Callable[[bytes], object], *, is_answered: bool = True
    ) -> "asyncio.Future[Any]":
        assert self._transport is not None
        future: asyncio.Future[Any] = self._loop.create_future()
        if is_answered:
            self._waiting[self._correlation_id] = (read, future)
        self._transport.write(frame)
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
            read, future = self._waiting.pop(correlation_id)
            if not future.done():
                future.set_result(read(frame))
            at += 4 + size
        self._received = received[at:]

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        waiting, self._waiting = self._waiting, {}
        for _, future in waiting.values():
            _fail(future, str(error))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
            self.connection_lost(None)


def _no_difference(place: tuple[str, int], batch: BatchView, record: Record, value: bytes) -> str:
    return ""


def _no_judge(place: tuple[str, int], life: int) -> Callable[[int], None] | None:
    return None


class SimClient:
    def __init__(self, loop: SimLoop, name: str, address: tuple[str, int], timeout_s: float = 2.0) -> None:
        self.loop = loop
        self.name = name
        self._address = address
        self._timeout_s = timeout_s
        self._connection: ClientConnection | None = None
        self.is_damaged: Callable[[tuple[str, int]], bool] = lambda place: False
        """Whether a partition's bytes have changed by themselves, so that nonsense must be expected of it."""
        self.difference: Callable[[tuple[str, int], BatchView, Record, bytes], str] = _no_difference
        """In what a record that was read is not as it was sent, if in anything."""
        self.judge: Judge = _no_judge

    def another(self, timeout_s: float | None = None) -> "SimClient":
        """One with a connection of its own, in the same process."""
        made = SimClient(self.loop, self.name, self._address, timeout_s or self._timeout_s)
        made.is_damaged = self.is_damaged
        made.difference = self.difference
        made.judge = self.judge
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

    def _open(self) -> ClientConnection | None:
        """The connection, where there is one: most requests have none to wait for."""
        connection = self._connection
        return connection if connection is not None and connection.is_open else None

    async def connected(self) -> ClientConnection:
        if self._connection is None or not self._connection.is_open:
            host, port = self._address
            connecting = self.loop.connecting(lambda: ClientConnection(self.loop, self.judge), host, port)
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

    async def send(self, request: Message, version: int) -> "asyncio.Future[Message]":
        connection = self._open() or await self.connected()
        return connection.send(request, version, self.name)

    async def send_batch(
        self, place: tuple[str, int], batch: bytes, version: int, *, transactional_id: str | None = None, acks: int = -1
    ) -> "asyncio.Future[ProducePartitionResponse]":
        connection = self._open() or await self.connected()
        return connection.send_batch(place, batch, version, self.name, transactional_id, acks)

    async def produce(self, place: tuple[str, int], batch: bytes, version: int) -> ProducePartitionResponse:
        return await self.answer(await self.send_batch(place, batch, version), ProducePartitionResponse)

    async def fetch(
        self, place: tuple[str, int], offset: int, *, max_wait_ms: int, max_bytes: int, is_committed: bool = False
    ) -> Fetched:
        wanted = FetchTopic(place[0], ZERO_UUID, [FetchPartition(place[1], offset, max_bytes)])
        request = FetchRequest(max_wait_ms, 1, max_bytes, [wanted])
        request.isolation_level = int(is_committed)
        connection = self._open() or await self.connected()
        return await self.answer(connection.send_fetch(request, self.name), Fetched)

    async def answer(self, sent: "asyncio.Future[Any]", kind: type[A], timeout_s: float | None = None) -> A:
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
        if isinstance(message, ProducePartitionResponse):
            check_offset_is_told(self.name, message)
        return message

    async def ask(self, request: Message, version: int, kind: type[A], timeout_s: float | None = None) -> A:
        return await self.answer(await self.send(request, version), kind, timeout_s)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
