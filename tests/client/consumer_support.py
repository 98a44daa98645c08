"""What tests of the consumer do to a broker, and ways to read until something is so."""

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from mainstem.client.connection import BrokerConnection
from mainstem.client.consumer_sync import Consumer
from mainstem.client.errors import raise_for
from mainstem.client.types import ConsumerRecord, TopicPartition
from mainstem.protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from mainstem.protocol.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from tests.support.client_load import Writer
from tests.support.targets import Target as BareTarget

WAIT_S = 30.0


class Target:
    """A broker, and what a test does to it that is not the consumer's business."""

    def __init__(self, name: str, bootstrap: str) -> None:
        self.name = name
        self.bootstrap = bootstrap
        self.writer = Writer(bootstrap)

    def topic(self, partitions: int = 1, configs: Mapping[str, str] | None = None, name: str | None = None) -> str:
        """Makes a new topic that nobody else knows of."""
        topic = name or f"t-{uuid.uuid4().hex[:12]}"
        # What `fill` writes is from 1970: brokers would delete it half a minute after they started, and every five.
        settings = {"retention.ms": "-1", **(configs or {})}
        wanted = CreatableTopic(
            name=topic,
            num_partitions=partitions,
            replication_factor=1,
            assignments=[],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in settings.items()],
        )
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=30_000)
        answer = self._ask(request, CreateTopicsResponse)
        raise_for(answer.topics[0].error_code, answer.topics[0].error_message, topic=topic)
        return topic

    def grow(self, topic: str, partitions: int) -> None:
        wanted = CreatePartitionsTopic(name=topic, count=partitions, assignments=None)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=30_000, validate_only=False)
        answer = self._ask(request, CreatePartitionsResponse)
        raise_for(answer.results[0].error_code, answer.results[0].error_message, topic=topic)

    def fill(self, topic: str, partition: int, count: int, first: int = 0, batch: int = 100) -> list[bytes]:
        """Writes numbered records; their values."""
        values = [b"%d:%d" % (partition, number) for number in range(first, first + count)]
        for at in range(0, count, batch):
            self.writer.send(topic, partition, values[at : at + batch], timestamp=1_000_000 + first + at)
        return values

    def consumer(self, *topics: str, **options: Any) -> Consumer:
        settings = {"bootstrap_servers": self.bootstrap, "auto_offset_reset": "earliest", "fetch_max_wait_ms": 100}
        return Consumer(*topics, **{**settings, **options})

    def member(self, group: str, *topics: str, **options: Any) -> Consumer:
        settings = {"heartbeat_interval_ms": 200, "session_timeout_ms": 10_000, "enable_auto_commit": False}
        return self.consumer(*topics, group_id=group, **{**settings, **options})

    def _ask(self, request: Any, kind: Any) -> Any:
        async def ask() -> Any:
            connection = await self._connect()
            try:
                return await connection.ask(request, kind)
            finally:
                connection.close()

        return asyncio.run(ask())

    async def _connect(self) -> BrokerConnection:
        host, _, port = self.bootstrap.rpartition(":")
        return await BrokerConnection.open(host, int(port), "suite")


def new_group() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"


def read(consumer: Consumer, count: int, timeout_s: float = WAIT_S) -> list[ConsumerRecord]:
    """The next `count` records, or as many as came in the time."""
    records: list[ConsumerRecord] = []
    deadline = time.monotonic() + timeout_s
    while len(records) < count and time.monotonic() < deadline:
        records += consumer.poll(500, max_records=count - len(records))
    return records


def values(records: Sequence[ConsumerRecord]) -> list[bytes]:
    return [record.value for record in records]


def until(condition: Callable[[], object], *consumers: Consumer, timeout_s: float = WAIT_S) -> list[ConsumerRecord]:
    """Polls the consumers in turn until the condition holds; what they read meanwhile."""
    records: list[ConsumerRecord] = []
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        for consumer in consumers:
            records += consumer.poll(20)
    return records


def have_all(consumers: Sequence[Consumer], topic: str, partitions: int) -> bool:
    """Whether the consumers share the partitions of a topic: every one has one reader, and each reader has some."""
    had = sorted(tp for consumer in consumers for tp in consumer.assignment)
    return had == [TopicPartition(topic, number) for number in range(partitions)] and all(
        consumer.assignment for consumer in consumers
    )


@pytest.fixture
def target(target: BareTarget) -> Target:
    """The broker under test, with what these tests do to it."""
    return Target(target.name, target.bootstrap)
