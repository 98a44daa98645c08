"""The client's view of a cluster, against a node in this process."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest

from mainstem.broker.app import Broker
from mainstem.client.cluster import Cluster, CoordinatorKind
from mainstem.client.connection import BrokerConnection
from mainstem.client.errors import (
    IllegalStateError,
    InvalidTopicError,
    KafkaTimeoutError,
    NoBrokersAvailableError,
    NotCoordinatorError,
    UnknownTopicOrPartitionError,
)
from mainstem.client.options import CommonOptions
from mainstem.client.types import TopicPartition
from mainstem.protocol.api import ApiKey
from tests.support.raw import start_node

Story = Callable[[Broker, Cluster], Awaitable[None]]


def options_for(*nodes: Broker, **options: object) -> CommonOptions:
    servers = ",".join(f"{node.advertised[0].host}:{node.advertised[0].port}" for node in nodes)
    return CommonOptions.from_kwargs({"bootstrap_servers": servers, "reconnect_backoff_max_ms": 100, **options})


def run(path: Path, story: Story, *, allow_auto_create: bool = True, **options: object) -> None:
    async def act() -> None:
        node = await start_node(path)
        try:
            cluster = Cluster(options_for(node, **options), Random(1), allow_auto_create=allow_auto_create)
            async with cluster:
                await asyncio.wait_for(story(node, cluster), 30)
        finally:
            await node.stop()

    asyncio.run(act())


def test_a_topic_that_is_not_there_is_created_where_that_is_wanted(tmp_path: Path) -> None:
    async def story(node: Broker, cluster: Cluster) -> None:
        found = await cluster.metadata(["orders"])
        assert list(found["orders"].partitions) == [0]
        assert cluster.cache.name_of(found["orders"].topic_id) == "orders"
        leader = cluster.leader(TopicPartition("orders", 0))
        assert leader is not None
        assert leader.leader == 1
        assert (await cluster.node(1)).version_for(ApiKey.METADATA) >= 12

    run(tmp_path, story)


def test_a_topic_that_is_not_there_is_an_error_that_names_it_where_it_is_not(tmp_path: Path) -> None:
    async def story(node: Broker, cluster: Cluster) -> None:
        with pytest.raises(UnknownTopicOrPartitionError) as caught:
            await cluster.metadata(["nothing"], 2000)
        assert caught.value.topic == "nothing"
        with pytest.raises(InvalidTopicError):
            await cluster.metadata(["what is this"])
        assert "nothing" not in await cluster.all_topics()

    run(tmp_path, story, allow_auto_create=False)


def test_the_bootstrap_connection_becomes_the_brokers_own(tmp_path: Path) -> None:
    async def story(node: Broker, cluster: Cluster) -> None:
        first = await cluster.any_node()
        assert first.node_id == -1
        await cluster.metadata(["orders"])
        assert await cluster.node(1) is first
        assert first.name.startswith("1 at 127.0.0.1:")
        assert await cluster.controller() is first

    run(tmp_path, story)


def test_all_who_ask_for_a_node_at_once_share_one_connection(tmp_path: Path) -> None:
    async def story(node: Broker, cluster: Cluster) -> None:
        await cluster.update()
        (await cluster.node(1)).close()
        first, second, third = await asyncio.gather(cluster.node(1), cluster.node(1), cluster.any_node())
        assert first is second is third

    run(tmp_path, story)


def test_a_coordinator_is_found_and_kept_until_it_is_forgotten(tmp_path: Path) -> None:
    async def story(node: Broker, cluster: Cluster) -> None:
        async def find() -> BrokerConnection:
            return await cluster.coordinator(CoordinatorKind.GROUP, "readers")

        found = await cluster.retrying(find, 10_000)
        assert await find() is found
        cluster.forget_coordinator(CoordinatorKind.GROUP, "readers")
        assert await find() is found

    run(tmp_path, story)


def test_a_broker_that_went_away_is_found_again_when_it_is_back(tmp_path: Path) -> None:
    async def act() -> None:
        node = await start_node(tmp_path)
        port = node.advertised[0].port
        cluster = Cluster(options_for(node), Random(1), allow_auto_create=True)
        await cluster.metadata(["orders"])
        await node.stop()
        with pytest.raises(NoBrokersAvailableError, match=r"no broker answers; tried (1 at )?127"):
            await cluster.any_node()
        again = await start_node(tmp_path, listeners=f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0")
        try:
            connection = await cluster.retrying(cluster.any_node, 10_000)
            assert connection.is_open
            await cluster.next_update(10)
            assert cluster.leader(TopicPartition("orders", 0)) is not None
        finally:
            await cluster.close()
            await again.stop()

    asyncio.run(act())


def test_a_node_that_metadata_does_not_know_is_refused(tmp_path: Path) -> None:
    async def story(node: Broker, cluster: Cluster) -> None:
        await cluster.update()
        with pytest.raises(NoBrokersAvailableError, match="no such broker"):
            await cluster.node(99)

    run(tmp_path, story)


def test_retries_end_with_the_time_and_name_the_last_error(tmp_path: Path) -> None:
    async def story(node: Broker, cluster: Cluster) -> None:
        tries = 0

        async def refuse() -> None:
            nonlocal tries
            tries += 1
            raise NotCoordinatorError("elsewhere", topic="orders")

        with pytest.raises(KafkaTimeoutError, match=r"committing did not succeed within 200 ms.*NOT_COORDINATOR"):
            await cluster.retrying(refuse, 200, "committing")
        assert tries > 2

        async def hopeless() -> None:
            raise InvalidTopicError("no")

        with pytest.raises(InvalidTopicError):
            await cluster.retrying(hopeless, 10_000)

    run(tmp_path, story, retry_backoff_ms=10, retry_backoff_max_ms=50)


def test_an_idle_connection_is_closed_and_opened_again_when_it_is_needed(tmp_path: Path) -> None:
    async def story(node: Broker, cluster: Cluster) -> None:
        first = await cluster.any_node()
        while first.is_open:
            await asyncio.sleep(0.01)
        assert await cluster.any_node() is not first

    run(tmp_path, story, connections_max_idle_ms=50)


def test_a_closed_client_says_so(tmp_path: Path) -> None:
    async def story(node: Broker, cluster: Cluster) -> None:
        connection = await cluster.any_node()
        await cluster.close()
        assert not connection.is_open
        with pytest.raises(IllegalStateError, match="closed"):
            await cluster.any_node()

    run(tmp_path, story)
