"""Options that only show when something goes wrong, or in what is left out: each with the fault that shows it."""

import asyncio
import contextlib
from collections.abc import Iterator
from random import Random

import pytest

from mainstem.client import Admin, Consumer, Producer
from mainstem.client.cluster import Cluster as ClientCluster
from mainstem.client.errors import (
    InvalidOptionError,
    NoBrokersAvailableError,
    NotControllerError,
    NotLeaderOrFollowerError,
)
from mainstem.client.options import CommonOptions
from mainstem.protocol.api import ApiKey
from mainstem.protocol.headers import RequestHeader
from mainstem.protocol.messages.k03_metadata import MetadataResponse, MetadataResponseBroker
from mainstem.protocol.rpc import encode_response
from mainstem.testing import Cluster
from tests.unit.client.fake_broker import fake_broker, versions

QUICK = {"retry_backoff_ms": 10, "retry_backoff_max_ms": 20}
DEAD_PORT = 1


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as started:
        yield started


def test_a_record_is_tried_as_often_as_retries_say(cluster: Cluster) -> None:
    cluster.create_topic("t")
    with Producer(bootstrap_servers=cluster.bootstrap, retries=2, **QUICK) as producer:
        producer.partitions_for("t")
        before = cluster.requests("Produce")
        cluster.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=None)
        with pytest.raises(NotLeaderOrFollowerError):
            producer.send("t", b"x").result(20)
        assert cluster.requests("Produce") == before + 3


def test_an_admin_tries_as_often_as_retries_say(cluster: Cluster) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap, retries=2, **QUICK) as admin:
        cluster.fail("CreatePartitions", "NOT_CONTROLLER", times=None)
        with pytest.raises(NotControllerError):
            admin.create_partitions({"t": 2})
        assert cluster.requests("CreatePartitions") == 3


def test_internal_topics_match_a_pattern_only_where_that_was_asked_for(cluster: Cluster) -> None:
    cluster.create_topic("orders")
    options = {"bootstrap_servers": cluster.bootstrap, "auto_offset_reset": "earliest"}
    with (
        Consumer(**options, group_id="first") as plain,
        Consumer(**options, group_id="second", exclude_internal_topics=False) as curious,
    ):
        for consumer in (plain, curious):
            consumer.subscribe(pattern=".*")
        while "__consumer_offsets" not in curious.subscription:
            curious.poll(50)
            plain.poll(50)
        assert plain.subscription == {"orders"}


def test_the_group_protocol_that_there_is_not_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="this client knows 'classic' only"):
        Consumer("t", group_id="g", group_protocol="consumer")


@pytest.mark.parametrize(("strategy", "asked"), [("rebootstrap", 2), ("none", 1)])
def test_where_no_known_broker_answers_a_client_starts_anew_if_it_may(strategy: str, asked: int) -> None:
    """KIP-899: the brokers that metadata named are all gone, and only the bootstrap server is left."""
    seen = []

    def answer(header: RequestHeader, frame: bytes) -> bytes:
        if header.api_key == ApiKey.API_VERSIONS:
            return versions(header, (ApiKey.METADATA, 0, 12), (ApiKey.API_VERSIONS, 0, 3))
        seen.append(header.api_key)
        broker = MetadataResponseBroker(node_id=7, host="127.0.0.1", port=DEAD_PORT, rack=None)
        response = MetadataResponse(brokers=[broker], cluster_id="c", controller_id=7, topics=[])
        return encode_response(response, header.api_version, header.correlation_id)

    async def act() -> None:
        async with fake_broker(answer) as port:
            options = {"bootstrap_servers": f"127.0.0.1:{port}", "metadata_recovery_strategy": strategy}
            quick = {"reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 2}
            async with ClientCluster(CommonOptions.from_kwargs({**options, **quick}), Random(1)) as client:
                await client.update()
                for connection in [*client._connections.values()]:
                    connection.close()
                with pytest.raises(NoBrokersAvailableError, match=f"tried 7 at 127.0.0.1:{DEAD_PORT}"):
                    await client.update()
                with contextlib.suppress(NoBrokersAvailableError):
                    await client.update()

    asyncio.run(asyncio.wait_for(act(), 20))
    assert len(seen) == asked


@pytest.mark.parametrize(("trigger_ms", "asks_again"), [(300, True), (60_000, False)])
def test_where_known_brokers_say_nothing_for_long_a_client_starts_anew(trigger_ms: int, asks_again: bool) -> None:
    """KIP-1102: the broker that metadata named takes connections and answers nothing; the bootstrap server would."""
    seen: list[str] = []

    async def act() -> None:
        ports: dict[str, int] = {}

        def bootstrap(header: RequestHeader, frame: bytes) -> bytes:
            if header.api_key == ApiKey.API_VERSIONS:
                return versions(header, (ApiKey.METADATA, 0, 12), (ApiKey.API_VERSIONS, 0, 3))
            seen.append("bootstrap")
            broker = MetadataResponseBroker(node_id=7, host="127.0.0.1", port=ports["silent"], rack=None)
            response = MetadataResponse(brokers=[broker], cluster_id="c", controller_id=7, topics=[])
            return encode_response(response, header.api_version, header.correlation_id)

        def silent(header: RequestHeader, frame: bytes) -> bytes | None:
            if header.api_key == ApiKey.API_VERSIONS:
                return versions(header, (ApiKey.METADATA, 0, 12), (ApiKey.API_VERSIONS, 0, 3))
            seen.append("silent")
            return None

        async with fake_broker(bootstrap) as ports["bootstrap"], fake_broker(silent) as ports["silent"]:
            options = CommonOptions.from_kwargs(
                {
                    "bootstrap_servers": f"127.0.0.1:{ports['bootstrap']}",
                    "metadata_recovery_rebootstrap_trigger_ms": trigger_ms,
                    "request_timeout_ms": 50,
                    "reconnect_backoff_ms": 1,
                    "reconnect_backoff_max_ms": 2,
                    **QUICK,
                }
            )
            async with ClientCluster(options, Random(1)) as client:
                await client.update()
                for connection in [*client._connections.values()]:
                    connection.close()
                client.request_update(now=True)
                deadline = asyncio.get_running_loop().time() + (10 if asks_again else 1)
                while seen.count("bootstrap") < 2 and asyncio.get_running_loop().time() < deadline:
                    await asyncio.sleep(0.02)

    asyncio.run(asyncio.wait_for(act(), 20))
    assert seen.count("silent") >= 3
    assert seen.count("bootstrap") == (2 if asks_again else 1)
