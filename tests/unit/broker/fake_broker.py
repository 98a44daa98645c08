"""A broker with real partitions on a simulated disk, and a controller that answers what a test tells it to."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar, cast

from mainstem.broker.app import Broker
from mainstem.broker.config import BrokerConfig
from mainstem.broker.context import RequestContext
from mainstem.broker.drivers.assignments import DirectoryAssignments
from mainstem.broker.log_moves import LogMoves
from mainstem.broker.partition import Partition
from mainstem.broker.partitions import Partitions
from mainstem.broker.producer_ids import ProducerIds
from mainstem.core.controller.image import ClusterImage, ImageDelta
from mainstem.protocol.errors import RemoteError
from mainstem.protocol.messages.k73_assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from mainstem.protocol.messages.metadata_records import (
    BrokerEndpoint,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from mainstem.protocol.schema import Message
from mainstem.sim.disk import SimDisk
from mainstem.storage.meta_properties import MetaProperties, write_meta_properties

CLUSTER = "a-cluster"
NODE = 1
NOW_MS = 1_700_000_000_000
DIRECTORIES = ("/d1", "/d2")
T = TypeVar("T")

GIVEN = {
    "process.roles": "broker,controller",
    "node.id": str(NODE),
    "listeners": "PLAINTEXT://127.0.0.1:19092,CONTROLLER://127.0.0.1:19093",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": ",".join(DIRECTORIES),
}


class FakeClock:
    def wall_ms(self) -> int:
        return NOW_MS

    def breathe(self) -> None:
        """Nobody waits."""


class FakeController:
    """Answers with what `answer` makes of a request, and remembers what it was sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[Message, int]] = []
        self.answer: Callable[[Message], Message | RemoteError] = lambda request: RemoteError(0)  # type: ignore[arg-type]

    async def send(self, message: Message, version: int) -> Message:
        self.sent.append((message, version))
        answer = self.answer(message)
        if isinstance(answer, RemoteError):
            raise answer
        return answer


class FakeBroker:
    def __init__(self, loop: asyncio.AbstractEventLoop, **given: str) -> None:
        self.loop = loop
        self.fs = SimDisk(Random(1), lambda: NOW_MS)
        for number, path in enumerate(DIRECTORIES):
            self.fs.make_directories(path)
            write_meta_properties(self.fs, path, MetaProperties(CLUSTER, NODE, bytes([number + 1]) * 16), now_ms=0)
        self.clock = FakeClock()
        self.rng = Random(2)
        self.config = BrokerConfig({**GIVEN, **{key.replace("_", "."): value for key, value in given.items()}})
        self.node_id = NODE
        self.cluster_id = CLUSTER
        self.broker_epoch = 5
        self.image = ClusterImage()
        self.controller = FakeController()
        self.partitions = Partitions(
            loop,
            self.fs,
            self.clock,
            self.rng,
            node_id=NODE,
            cluster_id=CLUSTER,
            log_dirs=self.config.log_dirs,
            settings=self.config.given,
            open_files_max=1000,
            producer_expiration_ms=86_400_000,
        )
        self.producer_ids = ProducerIds(self.as_broker)
        self.log_moves = LogMoves(self.as_broker)
        self.assignments = DirectoryAssignments(self.as_broker)

    @property
    def as_broker(self) -> Broker:
        return cast(Broker, self)

    async def caught_up(self) -> None:
        """What the fake controller answers is followed by nobody."""

    async def start(self) -> None:
        await self.partitions.load(self.image)
        endpoint = BrokerEndpoint(name="PLAINTEXT", host="127.0.0.1", port=19092, security_protocol=0)
        await self.replay(
            RegisterBrokerRecord(
                broker_id=NODE,
                incarnation_id=bytes(16),
                broker_epoch=5,
                end_points=[endpoint],
                features=[],
                rack="r1",
                fenced=False,
            )
        )

    async def replay(self, *records: Message) -> None:
        """Metadata that the controller has committed."""
        delta = ImageDelta()
        self.image.replay_all(records, delta)
        await self.partitions.apply(self.image, delta)

    async def create_topic(self, name: str, partitions: int = 1, **configs: str) -> bytes:
        topic_id = (name.encode() + bytes(16))[:16]
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        await self.replay(
            *(ConfigRecord(resource_type=2, resource_name=name, name=key, value=settings[key]) for key in settings),
            TopicRecord(name=name, topic_id=topic_id),
            *(
                PartitionRecord(
                    partition_id=index,
                    topic_id=topic_id,
                    replicas=[NODE],
                    isr=[NODE],
                    removing_replicas=[],
                    adding_replicas=[],
                    leader=NODE,
                    leader_epoch=0,
                    partition_epoch=0,
                )
                for index in range(partitions)
            ),
        )
        return topic_id

    def assign(self, message: Message) -> Message:
        """For the controller to answer with: the metadata names the directories that it is told of."""
        assert isinstance(message, AssignReplicasToDirsRequest)
        for directory in message.directories:
            for topic in directory.topics:
                for each in topic.partitions:
                    self.name_directory(topic.topic_id, each.partition_index, directory.id)
        return AssignReplicasToDirsResponse(error_code=0, directories=[])

    def name_directory(self, topic_id: bytes, index: int, directory_id: bytes) -> None:
        change = PartitionChangeRecord(topic_id=topic_id, partition_id=index, directories=[directory_id])
        self.image.replay_all([change], ImageDelta())

    def produce(self, topic: str, index: int, data: bytes) -> Partition:
        partition = self.partitions.find(topic, index)
        partition.append(data, 0, len(data))
        partition.notify()
        return partition

    def nodes(self, listener_name: str) -> list[tuple[int, str, int, str | None]]:
        return Broker.nodes(self.as_broker, listener_name)

    def offline_replicas(self, state: Any) -> list[int]:
        return Broker.offline_replicas(self.as_broker, state)


def context(api_key: int, version: int) -> RequestContext:
    return RequestContext(api_key, version, 1, "a-client", 0, "PLAINTEXT", "127.0.0.1:50000")


def run(story: Callable[[FakeBroker], Coroutine[Any, Any, T]], **given: str) -> T:
    """Tells a story to a fresh broker, and ends it after some seconds."""

    async def told() -> T:
        broker = FakeBroker(asyncio.get_running_loop(), **given)
        await broker.start()
        return await asyncio.wait_for(story(broker), 10)

    return asyncio.run(told())
