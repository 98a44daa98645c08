"""The sink's protocol, step by step and crash by crash, without Spark: tasks and drivers are called as Spark would.

A "process" here is a client of its own with nothing remembered. A driver that is killed is one that stops at a step and
is never heard of again; Spark then starts a new run of the query, which replays the batch.
"""

from __future__ import annotations

import asyncio
import random
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from pyspark.sql.types import BinaryType, StructField, StructType  # noqa: E402

from mainstem.client.cluster import Cluster  # noqa: E402
from mainstem.spark import sink as sinks  # noqa: E402
from mainstem.spark.decisions import DecisionLog  # noqa: E402
from mainstem.spark.exactly_once import SINK_PREFIX, Coordinator, SinkError, Staged  # noqa: E402
from mainstem.spark.options import SinkOptions, sink_options  # noqa: E402
from mainstem.spark.sink import Identity, RowWriter, stage  # noqa: E402
from mainstem.spark.transactions import Transactions  # noqa: E402
from tests.spark.brokers import Broker  # noqa: E402

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(300)]

SCHEMA = StructType([StructField("value", BinaryType()), StructField("key", BinaryType())])
STEPS = ["decide", "write-decision", "end-decision", "decided", "commit-one", "wait-markers", "note-finished"]


class KilledError(Exception):
    """Where a driver stopped for good."""


class Query:
    """One streaming query with its sink, as its checkpoint would name it."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self.broker = broker
        self.options: SinkOptions = sink_options({"kafka.bootstrap.servers": broker.bootstrap, "topic": topic})
        self.sink = SINK_PREFIX + uuid.uuid4().hex

    @asynccontextmanager
    async def process(self) -> AsyncIterator[Cluster]:
        async with Cluster(self.options.kafka, random.Random()) as cluster:
            yield cluster

    async def write(self, batch: int, run: str, rows: list[bytes], tasks: int = 2) -> list[Staged]:
        """What the tasks of a batch do, each in a worker process of its own."""
        staged = []
        for task in range(tasks):
            mine = rows[task::tasks]
            columns = [pa.array(mine, pa.binary()), pa.array(mine, pa.binary())]
            batches = [pa.record_batch(columns, names=["value", "key"])] if mine else []
            async with self.process() as cluster:
                sinks._slots.clear()
                message = await stage(
                    cluster,
                    RowWriter(SCHEMA, self.options),
                    self.options,
                    iter(batches),
                    Identity(self.sink, batch, run),
                    task,
                )
            if message.staged is not None:
                staged.append(message.staged)
        return staged

    async def settle(
        self,
        batch: int,
        run: str,
        staged: Sequence[Staged],
        *,
        commit: bool = True,
        step: Callable[[str], None] | None = None,
    ) -> None:
        """What the driver does, in a process of its own."""
        async with self.process() as cluster:
            coordinator = Coordinator(
                cluster,
                self.options.kafka,
                self.sink,
                Transactions(cluster),
                DecisionLog(cluster),
                step or (lambda name: None),
            )
            await (coordinator.commit if commit else coordinator.abort)(batch, run, staged)

    async def recover(self) -> None:
        async with self.process() as cluster:
            await Coordinator(
                cluster, self.options.kafka, self.sink, Transactions(cluster), DecisionLog(cluster)
            ).recover()

    async def open_transactions(self) -> list[str]:
        async with self.process() as cluster:
            return await Transactions(cluster).ongoing(self.sink)


def killed_at(wanted: str) -> Callable[[str], None]:
    def step(name: str) -> None:
        if name == wanted:
            raise KilledError(name)

    return step


def rows_of(batch: int) -> list[bytes]:
    return [b"%d-%d" % (batch, nth) for nth in range(20)]


def play(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.topic(2)


@pytest.fixture
def query(broker: Broker, topic: str) -> Query:
    return Query(broker, topic)


def test_batches_are_there_once_they_are_committed_and_leave_nothing_open(query: Query, topic: str) -> None:
    async def story() -> None:
        for batch in range(3):
            await query.settle(batch, "run", await query.write(batch, "run", rows_of(batch)))
            assert await asyncio.to_thread(query.broker.values, topic) == sorted(
                row for done in range(batch + 1) for row in rows_of(done)
            )
        assert await query.open_transactions() == []

    play(story())


@pytest.mark.parametrize("abort_follows", [False, True], ids=["silence", "abort"])
@pytest.mark.parametrize("step", STEPS)
def test_a_driver_killed_before_any_step_neither_loses_nor_doubles(
    query: Query, topic: str, step: str, abort_follows: bool
) -> None:
    """With `abort`, commit failed and Spark called abort with the same messages, as it does."""

    async def story() -> None:
        await query.settle(0, "first", await query.write(0, "first", rows_of(0)))
        staged = await query.write(1, "first", rows_of(1))
        with pytest.raises(KilledError):
            await query.settle(1, "first", staged, step=killed_at(step))
        if abort_follows:
            await query.settle(1, "first", staged, commit=False)
        # The replay has another number of partitions.
        again = await query.write(1, "second", rows_of(1), tasks=3)
        await query.settle(1, "second", again)
        await query.settle(2, "second", await query.write(2, "second", rows_of(2)))
        assert await query.open_transactions() == []

    play(story())
    assert query.broker.values(topic) == sorted(rows_of(0) + rows_of(1) + rows_of(2))


@pytest.mark.parametrize("step", STEPS)
def test_a_driver_killed_twice_at_the_same_step_neither_loses_nor_doubles(query: Query, topic: str, step: str) -> None:
    async def story() -> None:
        for run in ("first", "second"):
            staged = await query.write(0, run, rows_of(0))
            try:
                await query.settle(0, run, staged, step=killed_at(step))
            except KilledError:
                continue
        await query.settle(0, "third", await query.write(0, "third", rows_of(0)))
        await query.settle(1, "third", await query.write(1, "third", rows_of(1)))
        assert await query.open_transactions() == []

    play(story())
    assert query.broker.values(topic) == sorted(rows_of(0) + rows_of(1))


def test_a_killed_worker_leaves_a_transaction_that_the_commit_aborts(query: Query, topic: str) -> None:
    async def story() -> None:
        await query.write(0, "run", rows_of(0))  # attempts that nobody heard of again
        await query.settle(0, "run", await query.write(0, "run", rows_of(0)))
        assert await query.open_transactions() == []

    play(story())
    assert query.broker.values(topic) == sorted(rows_of(0))


def test_of_two_drivers_on_one_checkpoint_only_the_last_decides(query: Query, topic: str) -> None:
    async def story() -> None:
        staged = await query.write(0, "old", rows_of(0))

        async def other_driver() -> None:
            await query.settle(0, "new", await query.write(0, "new", rows_of(0)))

        def overtaken(name: str) -> None:
            if name == "write-decision":
                thread = threading.Thread(target=lambda: asyncio.run(other_driver()))
                thread.start()
                thread.join()

        with pytest.raises(Exception, match=r"FENCED|INVALID_PRODUCER_EPOCH|another driver"):
            await query.settle(0, "old", staged, step=overtaken)
        await query.settle(1, "new", await query.write(1, "new", rows_of(1)))
        # A third run takes over; when the second is heard of again it is told so.
        await query.settle(2, "newest", await query.write(2, "newest", rows_of(2)))
        staged = await query.write(3, "new", rows_of(3))
        with pytest.raises(SinkError, match="another run of the query has taken over"):
            await query.settle(3, "new", staged)

    play(story())
    assert query.broker.values(topic) == sorted(rows_of(0) + rows_of(1) + rows_of(2))


def test_a_checkpoint_that_was_rewound_is_refused(query: Query, topic: str) -> None:
    async def story() -> None:
        for batch in range(2):
            await query.settle(batch, "run", await query.write(batch, "run", rows_of(batch)))
        with pytest.raises(SinkError, match="the checkpoint was rewound"):
            await query.write(0, "again", rows_of(0))

    play(story())
    assert query.broker.values(topic) == sorted(rows_of(0) + rows_of(1))


def test_a_replay_of_a_decided_batch_writes_nothing(query: Query, topic: str) -> None:
    async def story() -> None:
        await query.settle(0, "run", await query.write(0, "run", rows_of(0)))
        assert await query.write(0, "again", rows_of(0)) == []
        await query.settle(0, "again", [])

    play(story())
    assert query.broker.values(topic) == sorted(rows_of(0))


def test_a_transaction_that_ended_before_the_decision_fails_the_batch(query: Query, topic: str) -> None:
    async def story() -> None:
        staged = await query.write(0, "run", rows_of(0))
        async with query.process() as cluster:
            await Transactions(cluster).end(staged[0].triple, False)
        with pytest.raises(SinkError, match="nothing of the batch was written"):
            await query.settle(0, "run", staged)
        await query.settle(0, "run", staged, commit=False)

    play(story())
    assert query.broker.values(topic) == []


def test_rows_that_were_lost_after_the_decision_are_named(query: Query, topic: str) -> None:
    async def story() -> None:
        staged = await query.write(0, "run", rows_of(0), tasks=1)
        with pytest.raises(KilledError):
            await query.settle(0, "run", staged, step=killed_at("commit-one"))
        async with query.process() as cluster:
            # As if the time-out had come while the driver was away.
            assert await Transactions(cluster).end(staged[0].triple, False) == 0
            await Transactions(cluster).wait_until_complete([staged[0].triple])
        with pytest.raises(SinkError, match=rf"batch 0 .* these rows were lost: {topic}-0 offsets 0 to"):
            await query.recover()

    play(story())


def test_what_was_decided_is_finished_without_the_query(query: Query, topic: str) -> None:
    async def story() -> None:
        staged = await query.write(0, "run", rows_of(0))
        with pytest.raises(KilledError):
            await query.settle(0, "run", staged, step=killed_at("commit-one"))
        await query.recover()
        assert await query.open_transactions() == []

    play(story())
    assert query.broker.values(topic) == sorted(rows_of(0))


def test_the_command_lists_and_finishes_what_was_decided(
    query: Query, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from mainstem.cli.main import main

    async def story() -> None:
        staged = await query.write(0, "run", rows_of(0))
        with pytest.raises(KilledError):
            await query.settle(0, "run", staged, step=killed_at("commit-one"))

    play(story())
    assert main(["pipeline", "sinks", "-b", query.broker.bootstrap]) == 0
    assert f"{query.sink}  batch 0  decided, not finished" in capsys.readouterr().out
    assert main(["pipeline", "finish", query.sink, "-b", query.broker.bootstrap]) == 0
    assert query.broker.values(topic) == sorted(rows_of(0))
    assert main(["pipeline", "finish", "no-such-sink", "-b", query.broker.bootstrap]) == 4
    assert "there is no sink no-such-sink" in capsys.readouterr().err


def test_a_decision_that_hangs_open_does_not_hide_those_of_another_sink(
    broker: Broker, query: Query, topic: str
) -> None:
    other = Query(broker, topic)

    async def story() -> None:
        staged = await other.write(0, "run", rows_of(7))
        with pytest.raises(KilledError):
            await other.settle(0, "run", staged, step=killed_at("end-decision"))
        await query.settle(0, "run", await query.write(0, "run", rows_of(0)))
        assert await query.write(0, "again", rows_of(0)) == []
        await other.settle(0, "run", staged, commit=False)
        assert await other.open_transactions() == []

    play(story())
    assert query.broker.values(topic) == sorted(rows_of(0))
