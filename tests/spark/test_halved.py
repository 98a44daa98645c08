"""Batches that are more than their topic takes: halved again and again, with others waiting behind them.

Whatever is lost or refused meanwhile, each partition has its rows once and in the order in which the task had them.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

import pyarrow as pa

from mainstem.client.errors import KafkaError
from mainstem.client.sync_admin import Admin
from mainstem.spark import sink as sinks
from mainstem.spark.producing import Sender
from mainstem.spark.sink import Identity, RowWriter, SinkMessage, stage
from mainstem.testing import Cluster
from tests.spark.brokers import Broker
from tests.spark.protocol import SCHEMA, Query

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(300)]

PARTITIONS = 3
BATCH_BYTES_MAX = 3000
ROWS = 1500
ARROW_BATCHES = 6
FAULTS = ["refused", "request lost", "answer lost", "killed", "everything"]
REQUESTS_BETWEEN_MAX = 30


def rows(first: int, last: int) -> pa.RecordBatch:
    """Each with its number as the key, and a value that does not get smaller."""
    keys = [b"%d" % nth for nth in range(first, last)]
    values = [hashlib.sha512(key).hexdigest().encode() for key in keys]
    return pa.record_batch([pa.array(values, pa.binary()), pa.array(keys, pa.binary())], names=["value", "key"])


def arrow_batches(last: int = ARROW_BATCHES) -> Iterator[pa.RecordBatch]:
    for nth in range(last):
        yield rows(nth * ROWS, (nth + 1) * ROWS)


def arrow_batches_that_end_early() -> Iterator[pa.RecordBatch]:
    yield from arrow_batches(ARROW_BATCHES // 2)
    raise RuntimeError("the task fails")


@pytest.fixture
def halved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For each batch that was halved, how many were waiting for that partition, it included."""
    waiting: list[int] = []
    real = Sender._halve

    def noted(self: Sender, where: tuple[str, int], error: KafkaError) -> None:
        waiting.append(len(self._queues[where].batches))
        real(self, where, error)

    monkeypatch.setattr(Sender, "_halve", noted)
    return waiting


async def task(query: Query, batches: Iterator[pa.RecordBatch], batch: int = 0) -> SinkMessage:
    """One attempt of one, in a process of its own."""
    async with query.process() as client:
        sinks._slots.clear()
        row_writer = RowWriter(SCHEMA, query.options)
        identity = Identity(query.sink, batch, "run", query=query.id)
        return await stage(client, row_writer, query.options, batches, identity, 0)


def check(query: Query, topic: str, message: SinkMessage, halved: list[int], times: int = 1) -> None:
    """All is there `times`, and each time in order; the offsets that were told are those of the last time."""
    assert len(halved) > 100
    assert max(halved) >= 3
    read = query.broker.read(topic)
    assert sorted(int(each.key or b"") for each in read) == sorted([*range(ROWS * ARROW_BATCHES)] * times)
    assert all(each.value == hashlib.sha512(each.key or b"").hexdigest().encode() for each in read)
    assert message.staged is not None
    told = {number: (first, last) for _, number, first, last in message.staged.written}
    for number in range(PARTITIONS):
        mine = [each for each in read if each.partition == number]
        keys = [int(each.key or b"") for each in mine]
        assert keys == sorted({*keys}) * times
        count = len(mine) // times
        assert told[number] == (mine[-count].offset, mine[-1].offset)


@pytest.fixture(params=["mainstem", "mainstem_v1", "kafka"])
def broker(request: pytest.FixtureRequest) -> Broker:
    found = request.getfixturevalue(f"{request.param}_broker")
    assert isinstance(found, Broker)
    return found


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_batches_that_are_halved_many_times_stay_in_order_and_once(
    broker: Broker, halved: list[int], codec: str
) -> None:
    topic = broker.topic(PARTITIONS, {"max.message.bytes": str(BATCH_BYTES_MAX)})
    query = Query(broker, topic, **{"kafka.compression.type": codec})

    async def story() -> SinkMessage:
        for batch in range(2):
            with pytest.raises(RuntimeError, match="the task fails"):
                await task(query, arrow_batches_that_end_early(), batch)
            message = await task(query, arrow_batches(), batch)
            assert message.staged is not None
            await query.settle(batch, "run", [message.staged])
        assert await query.open_transactions() == []
        return message

    check(query, topic, asyncio.run(story()), halved, times=2)


@asynccontextmanager
async def trouble(cluster: Cluster, kind: str) -> AsyncIterator[list[str]]:
    """Again and again while something is written, and some requests in between; what there was of it so far."""
    dice = random.Random(8)
    happened: list[str] = []

    async def killed() -> None:
        await asyncio.to_thread(cluster.kill)
        await asyncio.to_thread(cluster.restart)

    async def put(fault: Callable[[], None]) -> None:
        fault()

    faults: dict[str, Callable[[], Awaitable[None]]] = {
        "refused": lambda: put(lambda: cluster.fail("Produce", "NOT_LEADER_OR_FOLLOWER")),
        "request lost": lambda: put(lambda: cluster.disconnect("Produce")),
        "answer lost": lambda: put(lambda: cluster.disconnect("Produce", carried_out=True)),
        "killed": killed,
    }

    async def go_on() -> None:
        while True:
            until = cluster.requests("Produce") + dice.randint(2, REQUESTS_BETWEEN_MAX)
            while cluster.requests("Produce") < until:
                await asyncio.sleep(0.001)
            chosen = dice.choice([*faults]) if kind == "everything" else kind
            await faults[chosen]()
            happened.append(chosen)

    going = asyncio.ensure_future(go_on())
    try:
        yield happened
    finally:
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)
        cluster.heal()
        await asyncio.to_thread(cluster.start)


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("transaction_version", [1, 2])
def test_halves_that_are_sent_again_stay_in_order_and_once(
    halved: list[int], transaction_version: int, kind: str
) -> None:
    async def story(cluster: Cluster, query: Query) -> SinkMessage:
        async with trouble(cluster, kind) as happened:
            message = await task(query, arrow_batches())
        assert len(happened) >= 5
        assert message.staged is not None
        await query.settle(0, "run", [message.staged])
        assert await query.open_transactions() == []
        return message

    with Cluster() as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.update_features({"transaction.version": transaction_version}, downgrade=True)
        cluster.create_topic("t", PARTITIONS, {"max.message.bytes": str(BATCH_BYTES_MAX)})
        query = Query(Broker("mainstem", cluster.bootstrap, cluster.data_dir), "t")
        check(query, "t", asyncio.run(story(cluster, query)), halved)
