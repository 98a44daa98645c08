"""A broker in this process, and a client that speaks in plain messages: nothing between a test and the wire."""

import asyncio
import itertools
import random
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from mainstem.broker.app import Broker
from mainstem.broker.clock import SystemClock
from mainstem.broker.config import BrokerConfig
from mainstem.broker.drivers.controller import Carry, carry_directly
from mainstem.broker.format import format_directories
from mainstem.protocol.builder import BatchBuilder
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from mainstem.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from mainstem.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from mainstem.protocol.rpc import decode_response, encode_request
from mainstem.protocol.schema import Message
from mainstem.storage.fs import FileSystem
from mainstem.storage.posix import PosixFileSystem

M = TypeVar("M", bound=Message)
CLUSTER_ID = "AAECAwQFBgcICQoLDA0ODw"
_seeds = itertools.count(1000)


def node_config(path: Path | str, **settings: str) -> BrokerConfig:
    return BrokerConfig(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(path),
            "offsets.topic.replication.factor": "1",
            "group.initial.rebalance.delay.ms": "0",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "3",
        }
        | {key.replace("_", "."): value for key, value in settings.items()}
    )


async def start_node(
    path: Path | str,
    fs: FileSystem | None = None,
    on_fatal: Callable[[BaseException], None] = lambda error: None,
    carry: Carry = carry_directly,
    **settings: str,
) -> Broker:
    """A running node on `path`, which is formatted if it is new."""
    disk = fs or PosixFileSystem()
    config = node_config(path, **settings)
    clock = SystemClock()
    format_directories(disk, random.Random(1), config, clock.wall_ms(), CLUSTER_ID, ignore_formatted=True)
    # Each start is an incarnation of its own, so its randomness must be too.
    rng = random.Random(next(_seeds))
    node = Broker(asyncio.get_running_loop(), disk, clock, rng, config, CLUSTER_ID, on_fatal=on_fatal, carry=carry)
    await node.start()
    return node


def run_with_node(
    path: Path | str,
    scenario: Callable[[Broker, "Peer"], Awaitable[None]],
    fs: FileSystem | None = None,
    **settings: str,
) -> None:
    """Runs one scenario against a fresh node with one connection, and stops the node."""

    async def run() -> None:
        node = await start_node(path, fs, lambda error: None, carry_directly, **settings)
        peer = await connect(node)
        try:
            await asyncio.wait_for(scenario(node, peer), 30)
        finally:
            peer.close()
            await node.stop()

    asyncio.run(run())


@contextmanager
def failing(node: Broker, kind: type[Message], code: ErrorCode) -> Iterator[None]:
    """Meanwhile messages of that kind between brokers come to nothing."""
    send = node.peers.send

    async def fail(node_id: int, message: Message, version: int) -> Message:
        if isinstance(message, kind):
            raise RemoteError(code, "as the test wants it")
        return await send(node_id, message, version)

    node.peers.send = fail  # type: ignore[method-assign]
    try:
        yield
    finally:
        node.peers.send = send  # type: ignore[method-assign]


async def connect(node: Broker) -> "Peer":
    address = node.advertised[0]
    return Peer(*await asyncio.open_connection(address.host, address.port))


class Peer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._ids = itertools.count(1)

    def close(self) -> None:
        self.writer.close()

    def send(self, request: Message, version: int) -> int:
        correlation_id = next(self._ids)
        self.writer.write(encode_request(request, version, correlation_id, "test"))
        return correlation_id

    async def receive(self, kind: type[M], version: int) -> M:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        _, message = decode_response(await self.reader.readexactly(size), kind.API_KEY, version)
        assert isinstance(message, kind)
        return message

    async def ask(self, request: Message, version: int, kind: type[M]) -> M:
        self.send(request, version)
        return await self.receive(kind, version)

    async def ensure_topic(self, topic: str) -> None:
        """Asks for a topic, which creates it."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        found = await self.ask(request, 12, MetadataResponse)
        assert found.topics[0].error_code == 0, found

    async def produce(self, topic: str, *values: bytes, acks: int = -1, **options: Any) -> PartitionProduceResponse:
        request = produce_request(topic, batch_of(*values, **options), acks=acks)
        answer = await self.ask(request, 9, ProduceResponse)
        return answer.responses[0].partition_responses[0]

    async def fetch(self, topic: str, offset: int, **options: int) -> PartitionData:
        answer = await self.ask(fetch_request(topic, offset, **options), 12, FetchResponse)
        return answer.responses[0].partitions[0]


def batch_of(*values: bytes, timestamp: int = 1_700_000_000_000, **options: Any) -> bytes:
    builder = BatchBuilder(**options)
    for value in values:
        builder.append(timestamp, None, value)
    return builder.build()


def produce_request(topic: str, records: bytes | None, *, acks: int = -1, timeout_ms: int = 5000) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)]),
        ],
    )


def fetch_request(
    topic: str,
    offset: int,
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    session_id: int = 0,
    session_epoch: int = -1,
    isolation_level: int = 0,
    leader_epoch: int = -1,
    max_bytes: int = 1 << 20,
) -> FetchRequest:
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(
                        partition=0,
                        fetch_offset=offset,
                        partition_max_bytes=1 << 20,
                        current_leader_epoch=leader_epoch,
                    )
                ],
            )
        ],
        forgotten_topics_data=[],
    )
