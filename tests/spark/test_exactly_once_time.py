"""The sink's protocol and the clock: batches that take longer than a transaction may, and transactions without an end.

Brokers here allow transactions of two seconds, so that a time-out can be waited for.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

import pyarrow as pa

from mainstem.spark.exactly_once import SinkError
from mainstem.spark.sink import Identity, RowWriter, stage
from mainstem.spark.transactions import ONGOING, Transactions
from tests.spark.brokers import Broker
from tests.spark.protocol import SCHEMA, KilledError, Query, killed_at, play, rows_of
from tests.spark.test_sink import copy
from tests.support.kafka import Kafka, KafkaNode
from tests.support.kafka import missing as kafka_missing
from tests.support.node import Node

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(300)]

SHORT = {
    "transaction.max.timeout.ms": "2000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
TWO_PHASE = {"transaction.two.phase.commit.enable": "true"}
WAITED_S_MAX = 60.0
TOO_LONG = (
    r"batch 0 of .* nothing of the batch was written\. A batch may take 2000 ms, which is the brokers' "
    r"transaction\.max\.timeout\.ms: .* Raise that limit, .* run again with the same checkpoint: all is written once\. "
    r".* A new one .* writes again what was written from the beginning on, unless it starts where the old one was"
)


@pytest.fixture(params=["mainstem", "kafka"])
def hasty(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker whose transactions time out soon."""
    if request.param == "mainstem":
        with Node(tmp_path_factory.mktemp("hasty"), SHORT) as node:
            yield Broker("mainstem", node.bootstrap, node.data)
        return
    reason = kafka_missing()
    if reason is not None:
        pytest.skip(reason)
    found = Kafka()
    found.fetch()
    with KafkaNode(found, tmp_path_factory.mktemp("hasty"), SHORT) as kafka:
        yield Broker("kafka", kafka.bootstrap, kafka.data)


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One whose transactions time out as soon, but for those of two-phase commit."""
    with Node(tmp_path_factory.mktemp("strict"), {**SHORT, **TWO_PHASE}) as node:
        yield Broker("mainstem", node.bootstrap, node.data)


def in_another_thread(work: Coroutine[Any, Any, T]) -> T:
    """What tasks take rows from does not know of their event loop."""
    with ThreadPoolExecutor(1) as other:
        return other.submit(asyncio.run, work).result()


async def wait_until_none_is_open(query: Query) -> None:
    """Nor being aborted: until its marker is there, the leader of a partition takes more of a transaction."""
    async with asyncio.timeout(WAITED_S_MAX), query.process() as cluster:
        while await Transactions(cluster).listed(query.sink, [ONGOING, "PrepareAbort"]):
            await asyncio.sleep(0.05)


def test_a_batch_longer_than_the_time_out_fails_before_it_is_decided_and_can_be_tried_again(hasty: Broker) -> None:
    topic = hasty.topic(2)
    query = Query(hasty, topic)

    async def story() -> None:
        staged = await query.write(0, "run", rows_of(0))
        await wait_until_none_is_open(query)
        with pytest.raises(SinkError, match=TOO_LONG):
            await query.settle(0, "run", staged)
        await query.settle(0, "run", staged, commit=False)
        await query.settle(0, "next", await query.write(0, "next", rows_of(0)))

    play(story())
    assert hasty.values(topic) == sorted(rows_of(0))


def test_a_task_whose_transaction_times_out_while_it_writes_is_told_why(hasty: Broker) -> None:
    topic = hasty.topic(1)
    query = Query(hasty, topic, **{"kafka.buffer.memory": "1"})

    def slowly() -> Iterator[pa.RecordBatch]:
        column = pa.array([b"x"] * 10, pa.binary())
        # With so little memory the first rows are acknowledged before it asks for more.
        yield pa.record_batch([column, column], names=["value", "key"])
        assert in_another_thread(query.open_transactions()) != []
        in_another_thread(wait_until_none_is_open(query))
        yield pa.record_batch([column, column], names=["value", "key"])

    async def story() -> None:
        identity = Identity(query.sink, 0, "run", query=query.id)
        async with query.process() as cluster:
            with pytest.raises(SinkError, match=TOO_LONG):
                await stage(cluster, RowWriter(SCHEMA, query.options), query.options, slowly(), identity, 0)
        await query.settle(0, "next", await query.write(0, "next", rows_of(0)))

    play(story())
    assert hasty.values(topic) == sorted(rows_of(0))


def test_a_driver_that_stays_away_too_long_after_it_decided_is_told_what_was_lost(hasty: Broker) -> None:
    topic = hasty.topic(1)
    query = Query(hasty, topic)

    async def story() -> None:
        staged = await query.write(0, "run", rows_of(0), tasks=1)
        with pytest.raises(KilledError):
            await query.settle(0, "run", staged, step=killed_at("commit-one"))
        await wait_until_none_is_open(query)
        with pytest.raises(SinkError, match=rf"batch 0 .* these rows were lost: {topic}-0 offsets 0 to 19"):
            await query.settle(0, "next", await query.write(0, "next", rows_of(0)))

    play(story())


def test_a_batch_of_two_phase_commit_may_take_as_long_as_it_takes(strict: Broker) -> None:
    topic = strict.topic(2)
    other, query = Query(strict, topic), Query(strict, topic, twoPhaseCommit="true")

    async def story() -> None:
        staged = await query.write(0, "run", rows_of(0))
        # One without two-phase commit, begun later, has timed out: ours would have, too.
        await other.write(0, "run", rows_of(7))
        await wait_until_none_is_open(other)
        assert len(await query.open_transactions()) == len(staged)
        await query.settle(0, "run", staged)
        assert await query.open_transactions() == []

    play(story())
    assert strict.values(topic) == sorted(rows_of(0))


def test_a_driver_of_two_phase_commit_may_stay_away_after_it_decided(strict: Broker) -> None:
    topic = strict.topic(1)
    other, query = Query(strict, topic), Query(strict, topic, twoPhaseCommit="true")

    async def story() -> None:
        staged = await query.write(0, "run", rows_of(0))
        with pytest.raises(KilledError):
            await query.settle(0, "run", staged, step=killed_at("commit-one"))
        await other.write(0, "run", rows_of(7))
        await wait_until_none_is_open(other)
        await query.settle(0, "next", await query.write(0, "next", rows_of(0)))
        await query.settle(1, "next", await query.write(1, "next", rows_of(1)))
        assert await query.open_transactions() == []

    play(story())
    assert strict.values(topic) == sorted(rows_of(0) + rows_of(1))


def test_a_query_of_two_phase_commit_that_is_given_up_can_be_aborted(
    strict: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    from mainstem.cli.main import main

    topic = strict.topic(1)
    query = Query(strict, topic, twoPhaseCommit="true")
    play(_given_up(query))
    assert main(["pipeline", "sinks", "-b", strict.bootstrap]) == 0
    assert f"{query.sink}  batch 0  finished  2 transactions open" in capsys.readouterr().out
    assert main(["pipeline", "abort", query.sink, "-b", strict.bootstrap]) == 0
    assert f"{query.sink}: 2 transactions aborted" in capsys.readouterr().out
    assert main(["pipeline", "abort", query.sink, "-b", strict.bootstrap]) == 0
    assert f"{query.sink}: nothing was open" in capsys.readouterr().out
    assert main(["pipeline", "abort", query.sink, "--json", "-b", strict.bootstrap]) == 0
    assert json.loads(capsys.readouterr().out) == {"sink": query.sink, "aborted": 0}
    assert strict.values(topic) == sorted(rows_of(0))


async def _given_up(query: Query) -> None:
    await query.settle(0, "run", await query.write(0, "run", rows_of(0)))
    await query.write(1, "run", rows_of(1))


def test_a_stream_of_two_phase_commit_arrives_once(spark: SparkSession, strict: Broker, tmp_path: Path) -> None:
    source, target = strict.topic(2), strict.topic(2)
    strict.produce(source, [b"%d" % nth for nth in range(1000)])
    assert copy(spark, strict, source, target, tmp_path, twoPhaseCommit="true").awaitTermination(300)
    assert strict.values(target) == strict.values(source)


def test_two_phase_commit_where_the_broker_has_none_is_a_sentence(broker: Broker) -> None:
    query = Query(broker, broker.topic(1), twoPhaseCommit="true")
    with pytest.raises(ValueError, match=r"twoPhaseCommit: broker .* does not offer two-phase commit; set"):
        play(_write_one(query))


async def _write_one(query: Query) -> None:
    await query.write(0, "run", rows_of(0))
