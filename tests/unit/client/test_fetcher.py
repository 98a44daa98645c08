"""Where a partition is fetched from: its leader, a replica that is nearer (KIP-392), and back; and when it is not.

Two brokers are stand-ins that answer by a script. Metadata comes once, and is not asked for again: a consumer that goes
elsewhere only when metadata comes would wait for five minutes.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from mainstem.client.cluster import Cluster
from mainstem.client.consumer import AsyncConsumer
from mainstem.client.fetcher import Fetcher
from mainstem.client.options import ConsumerOptions
from mainstem.client.subscription import PartitionState, Subscription
from mainstem.client.types import TopicPartition
from mainstem.protocol.api import ApiKey
from mainstem.protocol.builder import BatchBuilder
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.headers import RequestHeader
from mainstem.protocol.messages.k01_fetch import FetchableTopicResponse, FetchResponse, PartitionData
from mainstem.protocol.messages.k03_metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from mainstem.protocol.rpc import encode_response
from tests.unit.client.fake_broker import fake_broker, versions

TP = TopicPartition("t", 0)
FETCH_VERSION = 11
LEADER, FOLLOWER = 1, 2

Fetched = Callable[[int, int], PartitionData]
"""What the partition gives in an answer: by the node that is asked, and how often it was before."""


def records(value: bytes, offset: int = 0) -> bytes:
    builder = BatchBuilder(base_offset=offset, leader_epoch=5)
    builder.append(1000, None, value)
    return builder.build()


def part(data: bytes = b"", *, error: int = 0, preferred: int = -1) -> PartitionData:
    return PartitionData(
        partition_index=0,
        error_code=error,
        high_watermark=2,
        aborted_transactions=None,
        preferred_read_replica=preferred,
        records=data,
    )


async def read_one(fetched: Fetched, **options: Any) -> tuple[bytes, list[int]]:
    """The value of the first record that comes, and the nodes that were asked for it."""
    ports: dict[int, int] = {}
    asked: list[int] = []

    def answers(node: int) -> Callable[[RequestHeader, bytes], bytes | None]:
        def answer(header: RequestHeader, frame: bytes) -> bytes | None:
            if header.api_key == ApiKey.API_VERSIONS:
                apis = ((ApiKey.FETCH, 4, FETCH_VERSION), (ApiKey.METADATA, 0, 9), (ApiKey.API_VERSIONS, 0, 3))
                return versions(header, *apis)
            if header.api_key == ApiKey.METADATA:
                return encode_response(metadata(ports), header.api_version, header.correlation_id)
            before = asked.count(node)
            asked.append(node)
            response = FetchResponse(
                responses=[FetchableTopicResponse(topic=TP.topic, partitions=[fetched(node, before)])]
            )
            return encode_response(response, header.api_version, header.correlation_id)

        return answer

    async with fake_broker(answers(LEADER)) as ports[LEADER], fake_broker(answers(FOLLOWER)) as ports[FOLLOWER]:
        consumer = AsyncConsumer(bootstrap_servers=f"127.0.0.1:{ports[LEADER]}", client_rack="near", **options)
        async with consumer:
            await consumer.assign([TP])
            await consumer.seek(TP, 0)
            (record,) = await consumer.poll(10_000, max_records=1)
            return record.value, asked


def metadata(ports: dict[int, int]) -> MetadataResponse:
    partition = MetadataResponsePartition(
        error_code=0,
        partition_index=0,
        leader_id=LEADER,
        leader_epoch=5,
        replica_nodes=[LEADER, FOLLOWER],
        isr_nodes=[LEADER, FOLLOWER],
    )
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node, host="127.0.0.1", port=port) for node, port in ports.items()],
        cluster_id="c",
        controller_id=LEADER,
        topics=[MetadataResponseTopic(error_code=0, name=TP.topic, partitions=[partition])],
    )


def test_a_replica_that_the_leader_names_is_asked_at_once() -> None:
    def fetched(node: int, before: int) -> PartitionData:
        return part(preferred=FOLLOWER) if node == LEADER else part(records(b"from the follower"))

    value, asked = asyncio.run(read_one(fetched))
    assert value == b"from the follower"
    assert asked[:2] == [LEADER, FOLLOWER]


def test_the_leader_is_asked_again_where_the_replica_has_not_what_is_asked_for() -> None:
    def fetched(node: int, before: int) -> PartitionData:
        if node == FOLLOWER:
            return part(error=ErrorCode.OFFSET_OUT_OF_RANGE)
        return part(preferred=FOLLOWER) if before == 0 else part(records(b"from the leader"))

    value, asked = asyncio.run(read_one(fetched))
    assert value == b"from the leader"
    assert asked[:3] == [LEADER, FOLLOWER, LEADER]


def test_the_leader_is_asked_again_when_the_replica_was_named_long_ago() -> None:
    def fetched(node: int, before: int) -> PartitionData:
        if node == FOLLOWER:
            return part()
        return part(preferred=FOLLOWER) if before == 0 else part(records(b"from the leader"))

    value, asked = asyncio.run(read_one(fetched, metadata_max_age_ms=200))
    assert value == b"from the leader"
    assert asked[:2] == [LEADER, FOLLOWER]


class Emptied(PartitionState):
    """One whose records another thread takes in the moment after it was looked at for the so-manieth time."""

    __slots__ = ("looks", "taken")
    looks: int
    taken: Callable[[], None]

    @property
    def buffered_bytes(self) -> int:
        found = self.bytes_in - self.bytes_out
        self.looks -= 1
        if self.looks == 0:
            self.taken()
        return found


@pytest.mark.parametrize(("limit", "looks"), [({"fetch_max_bytes": 100}, 1), ({"max_partition_fetch_bytes": 50}, 2)])
def test_room_that_is_made_while_somebody_looks_for_it_is_noticed(limit: dict[str, int], looks: int) -> None:
    async def story() -> None:
        options = ConsumerOptions.from_kwargs(limit)
        subscription = Subscription()
        cluster = Cluster(options, Random(1))
        cluster.cache.update(metadata({LEADER: 1}), [TP.topic])
        fetcher = Fetcher(cluster, subscription, options, Random(1))
        state = Emptied(TP)
        subscription.partitions = {TP: state}
        state.looks = 0
        state.move(0)
        state.bytes_in = 100

        def take_all() -> None:
            state.bytes_out = state.bytes_in
            fetcher.has_room_again = fetcher._is_hungry

        state.looks, state.taken = looks, take_all
        assert fetcher._plan() or fetcher.has_room_again
        await cluster.close()

    asyncio.run(story())


def test_bounds_of_nothing_still_let_one_fetch_through() -> None:
    async def story() -> None:
        options = ConsumerOptions(fetch_max_bytes=0, max_partition_fetch_bytes=0)
        subscription = Subscription()
        cluster = Cluster(options, Random(1))
        cluster.cache.update(metadata({LEADER: 1}), [TP.topic])
        fetcher = Fetcher(cluster, subscription, options, Random(1))
        state = PartitionState(TP)
        subscription.partitions = {TP: state}
        state.move(0)
        assert fetcher._plan() == {LEADER: [state]}
        state.bytes_in = 1
        assert fetcher._plan() == {}
        await cluster.close()

    asyncio.run(story())
