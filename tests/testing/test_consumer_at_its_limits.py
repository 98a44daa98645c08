"""What a consumer holds and for how long: memory, connections, other people's threads and groups."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mainstem.client.admin import AsyncAdmin
from mainstem.client.consumer import AsyncConsumer
from mainstem.client.consumer_sync import Consumer
from mainstem.client.errors import IllegalStateError
from mainstem.client.fetcher import Fetcher
from mainstem.client.listeners import RebalanceListener
from mainstem.client.producer import AsyncProducer
from mainstem.client.subscription import PartitionState
from mainstem.client.sync_producer import Producer
from mainstem.client.types import ConsumerRecord, TopicPartition
from mainstem.testing import Cluster

BIG = 100_000
"""Bytes of a record that is a fetch by itself."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster({"group.min.session.timeout.ms": "100"}) as started:
        yield started


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    name = f"t-{abs(hash(request.node.name))}"
    cluster.create_topic(name, 2)
    return name


async def write(cluster: Cluster, topic: str, partition: int, values: list[bytes]) -> None:
    """One batch a record."""
    async with AsyncProducer(bootstrap_servers=cluster.bootstrap) as producer:
        for value in values:
            await producer.send_and_wait(topic, value, partition=partition)


@asynccontextmanager
async def reading(cluster: Cluster, **options: Any) -> AsyncIterator[AsyncConsumer]:
    settings: dict[str, Any] = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 50, **options}
    async with AsyncConsumer(bootstrap_servers=cluster.bootstrap, **settings) as consumer:
        yield consumer


def test_what_was_fetched_before_a_seek_is_dropped_by_whoever_takes_arrow(cluster: Cluster, topic: str) -> None:
    async def story() -> None:
        tp = TopicPartition(topic, 0)
        await write(cluster, topic, 0, [bytes(BIG)] * 4)
        async with reading(cluster, max_partition_fetch_bytes=BIG) as consumer:
            await consumer.assign([tp])
            for _ in range(5):
                assert await consumer.fetch_arrow(5000, max_batches=1)
                while not consumer._fetcher.ready_count:
                    await asyncio.sleep(0.001)
                await consumer.seek(tp, 0)
            assert await consumer.fetch_arrow(5000, max_batches=1)
            assert all(version == state.version for state, version, _ in consumer._fetcher._ready)

    asyncio.run(asyncio.wait_for(story(), 20))


def test_what_paused_partitions_have_fetched_keeps_no_other_from_being_read(cluster: Cluster, topic: str) -> None:
    async def story() -> None:
        paused, read = TopicPartition(topic, 0), TopicPartition(topic, 1)
        await write(cluster, topic, 0, [bytes(BIG)] * 4)
        async with reading(cluster, max_partition_fetch_bytes=BIG, fetch_max_bytes=BIG) as consumer:
            await consumer.assign([paused, read])
            while consumer._subscription.state(paused).buffered_bytes < BIG:
                await consumer.poll(0, max_records=1)
                await asyncio.sleep(0.001)
            await consumer.pause(paused)
            await write(cluster, topic, 1, [b"there"])
            assert [record.value for record in await consumer.poll(5000)] == [b"there"]
            await consumer.resume(paused)
            assert {record.partition for record in await consumer.poll(5000)} == {0}

    asyncio.run(asyncio.wait_for(story(), 20))


def test_a_seek_in_each_partition_does_not_look_at_all_of_them_each_time(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With thousands of partitions that took minutes."""

    async def story() -> None:
        tps = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
        await write(cluster, topic, 0, [b"1"])
        await write(cluster, topic, 1, [b"2"])
        looks: list[int] = []
        plan = Fetcher._plan

        def look(fetcher: Fetcher) -> dict[int, list[PartitionState]]:
            looks.append(1)
            return plan(fetcher)

        async with reading(cluster, fetch_max_wait_ms=5000) as consumer:
            await consumer.assign(tps)
            while not consumer._fetcher._running:
                await consumer.poll(10)
            monkeypatch.setattr(Fetcher, "_plan", look)
            for _ in range(50):
                for tp in tps:
                    await consumer.seek(tp, 0)
            assert len(looks) < 5
            monkeypatch.undo()
            await write(cluster, topic, 0, [b"3"])
            values: list[bytes] = []
            while len(values) < 3:
                values += [record.value for record in await consumer.poll(5000)]
            assert sorted(values) == [b"1", b"2", b"3"]

    asyncio.run(asyncio.wait_for(story(), 20))


@pytest.mark.parametrize("offset", [-1, 1 << 63])
def test_a_seek_to_an_offset_that_cannot_be_is_refused_at_once(cluster: Cluster, topic: str, offset: int) -> None:
    async def story() -> None:
        async with reading(cluster) as consumer:
            await consumer.assign([TopicPartition(topic, 0)])
            with pytest.raises(IllegalStateError, match="there is none"):
                await consumer.seek(TopicPartition(topic, 0), offset)

    asyncio.run(asyncio.wait_for(story(), 20))


class Raises(RebalanceListener):
    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        raise ValueError("the application's own mistake")


@pytest.mark.parametrize("ends", ["a listener raises", "no time is left"])
def test_no_connection_is_left_open_however_closing_ends(cluster: Cluster, topic: str, ends: str) -> None:
    async def story() -> None:
        await write(cluster, topic, 0, [b"1"])
        consumer = AsyncConsumer(
            bootstrap_servers=cluster.bootstrap, group_id=topic, auto_offset_reset="earliest", enable_auto_commit=False
        )
        await consumer.start()
        await consumer.subscribe([topic], listener=Raises() if ends == "a listener raises" else None)
        while not await consumer.poll(1000):
            pass
        connections = [
            *consumer._fetcher._lane._connections.values(),
            *consumer._lane._connections.values(),
            *consumer._cluster._connections.values(),
        ]
        assert len(connections) == 3
        if ends == "a listener raises":
            with pytest.raises(ValueError, match="own mistake"):
                await consumer.close()
        else:
            await consumer.close(timeout_ms=0)
        assert not any(each.is_open for each in connections)

    asyncio.run(asyncio.wait_for(story(), 20))


def test_a_synchronous_consumer_in_a_producers_callback_is_refused_instead_of_stopping_both(
    cluster: Cluster, topic: str
) -> None:
    """Callbacks run on the thread that does the work of all synchronous clients."""
    told: list[object] = []
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        consumer = Consumer(topic, bootstrap_servers=cluster.bootstrap, group_id=topic)

        def callback(_: object) -> None:
            for call in (consumer.commit, lambda: consumer.poll(60_000)):
                try:
                    call()
                except IllegalStateError as error:
                    told.append(str(error))

        consumer.poll(0)
        sent = producer.send(topic, b"1")
        sent.add_done_callback(callback)
        producer.flush(timeout_ms=10_000)
        producer.send(topic, b"2").result(10)
        assert len(told) == 2
        assert all("in a callback" in str(each) for each in told)
        consumer.close()


def test_whoever_closes_while_others_are_slow_to_join_commits_and_goes_at_once(cluster: Cluster, topic: str) -> None:
    """The answer to its JoinGroup comes when all have joined; whatever is asked on that connection waits for it."""

    async def story() -> None:
        options: dict[str, Any] = {
            "group_id": topic,
            "partition_assignment_strategy": "cooperative-sticky",
            "heartbeat_interval_ms": 50,
            "auto_commit_interval_ms": 600_000,
        }
        tps = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
        await write(cluster, topic, 0, [b"1"])
        await write(cluster, topic, 1, [b"1"])
        async with AsyncAdmin(bootstrap_servers=cluster.bootstrap) as admin:
            async with reading(cluster, **options) as slow:
                quick = AsyncConsumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", **options)
                await quick.start()
                await slow.subscribe([topic])
                await quick.subscribe([topic])
                read: list[ConsumerRecord] = []
                while len(read) < 2 or not (len(slow.assignment) == len(quick.assignment) == 1):
                    read += await slow.poll(20)
                    read += await quick.poll(20)
                async with reading(cluster, **options) as third:
                    await third.subscribe([topic])
                    assert quick._membership is not None
                    while not quick._membership._is_joining:
                        await third.poll(10)
                        await quick.poll(10)
                    (mine,) = quick.assignment
                    started_s = time.monotonic()
                    await quick.close()
                    assert time.monotonic() - started_s < 5
                    assert (await admin.list_group_offsets(topic))[mine].offset == 1
            assert mine in tps

    asyncio.run(asyncio.wait_for(story(), 30))


def test_what_was_read_is_committed_when_other_partitions_are_assigned(cluster: Cluster, topic: str) -> None:
    """When that is due, as in Java: of partitions that go, no later poll commits anything."""

    async def story() -> None:
        first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
        await write(cluster, topic, 0, [b"1", b"2", b"3"])
        async with reading(cluster, group_id=topic, auto_commit_interval_ms=1) as consumer:
            await consumer.assign([first])
            read: list[ConsumerRecord] = []
            while len(read) < 3:
                read += await consumer.poll(1000)
            while consumer._until_commit_s() > 0:
                await asyncio.sleep(0.001)
            await consumer.assign([second])
            while (found := (await consumer.committed([first]))[first]) is None or found.offset < 3:
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(story(), 10))
