"""The sink's protocol, step by step and crash by crash, without Spark: tasks and drivers are called as Spark would."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import threading
import uuid
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

import pyarrow as pa
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from pyspark.sql.types import BinaryType, StructField, StructType

from mainstem.client.errors import KafkaError, TopicAuthorizationError
from mainstem.spark import exactly_once
from mainstem.spark import sink as sinks
from mainstem.spark.decisions import CONFIGS, DECIDED, FINISHED, TOPIC, Decision, DecisionLog
from mainstem.spark.exactly_once import Coordinator, SinkError, Staged
from mainstem.spark.sink import Identity, RowWriter, stage
from mainstem.spark.transactions import Transactions, Triple
from tests.spark.brokers import Broker
from tests.spark.protocol import SCHEMA, KilledError, Query, killed_at, play, rows_of

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(300)]

STEPS = ["decide", "write-decision", "end-decision", "decided", "commit-one", "wait-markers", "note-finished"]


@pytest.fixture(params=["mainstem", "mainstem_v1", "kafka"])
def broker(request: pytest.FixtureRequest) -> Broker:
    found = request.getfixturevalue(f"{request.param}_broker")
    assert isinstance(found, Broker)
    return found


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
        left = await query.write(0, "run", rows_of(0))  # attempts that nobody heard of again
        await query.settle(0, "run", await query.write(0, "run", rows_of(0)))
        assert await query.open_transactions() == []
        async with query.process() as cluster:
            ended = await Transactions(cluster).describe(each.triple.transactional_id for each in left)
        # With their markers: before those are there, they hold back whoever reads what is committed.
        # Under version 1 they were fenced by taking their ids over, which leaves those with nothing begun.
        assert {each.state for each in ended.values()} <= {"CompleteAbort", "Empty"}

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


async def lose(query: Query) -> None:
    """Decides batch 0 of which one task's rows are gone, as if the time-out had come while the driver was away."""
    staged = await query.write(0, "run", rows_of(0))
    with pytest.raises(KilledError):
        await query.settle(0, "run", staged, step=killed_at("commit-one"))
    async with query.process() as cluster:
        assert await Transactions(cluster).end(staged[0].triple, False) == 0
        await Transactions(cluster).wait_until_complete([staged[0].triple])


def test_a_run_that_is_told_of_lost_rows_leaves_nothing_open(query: Query, topic: str) -> None:
    """Also what was not lost of the batch is there."""

    async def story() -> None:
        await lose(query)
        staged = await query.write(1, "next", rows_of(1))
        for commit in (True, False):
            with pytest.raises(
                SinkError, match=rf"these rows were lost: .* --accept-loss {query.sink}`, or begin with"
            ):
                await query.settle(1, "next", staged, commit=commit)
        assert await query.open_transactions() == []

    play(story())
    assert query.broker.values(topic) == sorted(rows_of(0)[1::2])


def test_a_driver_that_cannot_finish_the_last_batch_aborts_nothing_of_it(query: Query, topic: str) -> None:
    """It aborts what it has open all the same, and that has the run's name, as what was decided has."""

    async def story() -> None:
        staged = await query.write(0, "run", rows_of(0))
        with pytest.raises(KilledError):
            await query.settle(0, "run", staged, step=killed_at("commit-one"))
        later = await query.write(1, "run", rows_of(1))
        with pytest.raises(KilledError):
            await query.settle(1, "run", later, commit=False, step=killed_at("finish-last"))
        assert await query.open_transactions() == sorted(each.triple.transactional_id for each in staged)
        await query.recover()

    play(story())
    assert query.broker.values(topic) == sorted(rows_of(0))


def test_a_sink_goes_on_after_a_loss_once_it_is_accepted(
    query: Query, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from mainstem.cli.main import main

    at = ["-b", query.broker.bootstrap]

    async def more(batch: int) -> None:
        await query.write(batch, "left", rows_of(batch))

    async def go_on() -> None:
        assert await query.write(0, "next", rows_of(0)) == []
        await query.settle(0, "next", [])
        await query.settle(1, "next", await query.write(1, "next", rows_of(1)))
        assert await query.open_transactions() == []

    play(lose(query))
    play(more(1))
    assert main(["pipeline", "abort", query.sink, *at]) == 1
    said = capsys.readouterr()
    assert f"{query.sink}: 2 transactions aborted" in said.out
    assert f"batch 0 of {query.sink} was decided, but these rows were lost: {topic}-" in said.err
    assert main(["pipeline", "finish", query.sink, *at]) == 1
    said = capsys.readouterr()
    assert "these rows were lost" in said.err
    assert "bug" not in said.err
    assert main(["pipeline", "finish", "--accept-loss", query.sink, "--json", *at]) == 0
    lost = json.loads(capsys.readouterr().out)["lost"]
    assert {each["topic"] for each in lost} == {topic}
    assert sum(each["last_offset"] - each["first_offset"] + 1 for each in lost) == 10
    assert main(["pipeline", "finish", query.sink, *at]) == 0
    play(go_on())
    assert query.broker.values(topic) == sorted(rows_of(0)[1::2] + rows_of(1))


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
    capsys.readouterr()
    assert main(["pipeline", "finish", query.sink, "--json", "-b", query.broker.bootstrap]) == 0
    assert json.loads(capsys.readouterr().out) == {"sink": query.sink, "batch": 0, "lost": []}
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


def test_a_sink_leaves_alone_what_is_open_in_another_whose_name_begins_with_its_own(broker: Broker) -> None:
    name, topic = f"orders-{uuid.uuid4().hex[:8]}", broker.topic(2)
    orders, european = Query(broker, topic, name), Query(broker, topic, f"{name}.eu")

    async def story() -> None:
        staged = await european.write(0, "run", rows_of(1))
        await orders.settle(0, "run", await orders.write(0, "run", rows_of(0)))
        lost = await orders.write(1, "run", rows_of(2))
        await orders.settle(1, "run", lost, commit=False)
        await european.settle(0, "run", staged)
        assert await orders.open_transactions() == []

    play(story())
    assert broker.values(topic) == sorted(rows_of(0) + rows_of(1))


def test_of_two_named_writes_at_once_neither_aborts_what_the_other_decides(broker: Broker, topic: str) -> None:
    """The second decides while the first finishes, on what was open before the first decided."""
    name = f"app.{uuid.uuid4().hex}"
    one, two = Query(broker, topic, name), Query(broker, topic, name)
    one.id = two.id = ""

    async def story() -> None:
        await one.write(1, "dead", rows_of(7))  # nobody decides on these
        first, second = await one.write(1, "first", rows_of(1)), await two.write(2, "second", rows_of(2))
        is_finishing, is_decided = threading.Event(), threading.Event()
        outcomes: list[str] = []

        def hold_first(step: str) -> None:
            if step == "note-finished":
                is_finishing.set()
                assert is_decided.wait(60)

        def hold_second(step: str) -> None:
            if step == "decided":
                is_decided.set()
                driver.join(60)

        def drive() -> None:
            asyncio.run(one.settle(1, "first", first, step=hold_first))
            outcomes.append("first")

        driver = threading.Thread(target=drive)
        driver.start()
        assert await asyncio.to_thread(is_finishing.wait, 60)
        await asyncio.to_thread(lambda: asyncio.run(two.settle(2, "second", second, step=hold_second)))
        assert outcomes == ["first"]
        assert await one.open_transactions() == []

    play(story())
    assert broker.values(topic) == sorted(rows_of(1) + rows_of(2))


def test_what_a_named_write_left_is_aborted_by_the_next_that_is_no_older(broker: Broker, topic: str) -> None:
    query = Query(broker, topic, f"app.{uuid.uuid4().hex}")
    query.id = ""

    async def story() -> None:
        left = await query.write(2, "dead", rows_of(2))
        await query.settle(1, "late", await query.write(1, "late", rows_of(1)))
        assert await query.open_transactions() == sorted(each.triple.transactional_id for each in left)
        await query.settle(2, "again", await query.write(2, "again", rows_of(2)))
        assert await query.open_transactions() == []

    play(story())
    assert broker.values(topic) == sorted(rows_of(1) + rows_of(2))


def test_a_batch_of_another_query_is_not_taken_for_a_replay(broker: Broker, topic: str) -> None:
    """Two queries were given one name: rows of the second must not vanish without a word."""
    name = uuid.uuid4().hex
    one, other = Query(broker, topic, name), Query(broker, topic, name)

    async def story() -> None:
        early = await other.write(0, "b", rows_of(7))
        await one.settle(0, "a", await one.write(0, "a", rows_of(0)))
        with pytest.raises(SinkError, match=f"was written by another query, {one.id}; two queries must not share"):
            await other.settle(0, "b", early)
        with pytest.raises(SinkError, match="was written by another query"):
            await other.write(0, "b", rows_of(7))
        assert await one.write(0, "again", rows_of(0)) == []
        assert await one.open_transactions() == []

    play(story())
    assert broker.values(topic) == sorted(rows_of(0))


def very_large(query: Query, tasks: int, partitions: int) -> Decision:
    """Offsets are irregular, as those of tasks that write side by side: compression leaves much of them."""
    rng = random.Random(1)
    triples = tuple(Triple(f"{query.sink}.{uuid.uuid4().hex}.0", 10**6 + nth, 0) for nth in range(tasks))
    written = tuple(
        tuple(("orders", number, first, first + rng.randrange(10**6)) for number, first in enumerate(some))
        for some in ([rng.randrange(10**12) for _ in range(partitions)] for _ in range(tasks))
    )
    return Decision(0, "run", (), triples, written)


async def decides(query: Query, made: Decision) -> None:
    async with query.process() as cluster:
        transactions, decisions = Transactions(cluster), DecisionLog(cluster)
        await decisions.ensure()
        coordinator = Coordinator(cluster, query.options.kafka, query.sink, transactions, decisions)
        own = await transactions.init(query.sink)
        await coordinator._decide_on(own, made)
        # The broker answers before the marker is there; a driver that reads has taken over, which waits for it.
        await transactions.wait_until_complete([own])
        assert await decisions.last(query.sink) == made
        await coordinator.forget()


def test_a_decision_of_very_many_tasks_and_partitions_is_written(query: Query) -> None:
    """In one record, which is larger than a topic takes by default."""
    made = very_large(query, 1000, 400)
    assert len(gzip.compress(made.to_bytes())) > 3 << 20
    play(decides(query, made))


@pytest.fixture
def small_topic(broker: Broker) -> Iterator[AdminClient]:
    """The topic of decisions as it was made once: its segments are smaller than a large decision."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    if TOPIC not in admin.list_topics(timeout=30).topics:
        broker.make_topic(TOPIC, 1, {"cleanup.policy": "compact"})
    set_configs(admin, {"segment.bytes": str(1 << 20), "max.message.bytes": str(64 << 20), "segment.ms": "604800000"})
    yield admin
    set_configs(admin, {name: CONFIGS[name] for name in ("segment.bytes", "max.message.bytes", "segment.ms")})


def set_configs(admin: AdminClient, configs: dict[str, str]) -> None:
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in configs.items()]
    changed = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=entries)
    for done in admin.incremental_alter_configs([changed]).values():
        done.result(30)


def test_a_topic_that_takes_no_large_decisions_is_made_to(query: Query, small_topic: AdminClient) -> None:
    play(decides(query, very_large(query, 1000, 400)))
    (described,) = small_topic.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, TOPIC)]).values()
    found = {name: entry.value for name, entry in described.result(30).items()}
    assert (found["segment.bytes"], found["segment.ms"]) == (CONFIGS["segment.bytes"], CONFIGS["segment.ms"])
    assert found["max.message.bytes"] == str(64 << 20), "what takes more than is needed stays"


@pytest.mark.usefixtures("small_topic")
def test_a_decision_that_brokers_refuse_names_the_way_out(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(_: DecisionLog) -> None:
        raise TopicAuthorizationError("not allowed")

    monkeypatch.setattr(DecisionLog, "_enlarge", refused)
    with pytest.raises(SinkError, match=r"names 400000 pairs of a task and a partition .* coalesce before the write"):
        play(decides(query, very_large(query, 1000, 400)))


def test_a_decision_that_no_broker_would_take_is_not_sent(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exactly_once, "VALUE_BYTES_MAX", 1000)
    with pytest.raises(SinkError, match=r"more than the topic mainstem-sink\.decisions takes"):
        play(decides(query, very_large(query, 10, 10)))


def test_what_another_sink_has_decided_is_not_looked_into(query: Query) -> None:
    """It may name thousands of tasks, or be of a newer version; every process that writes reads on past it."""

    async def story() -> None:
        async with query.process() as cluster:
            transactions, decisions = Transactions(cluster), DecisionLog(cluster)
            await decisions.ensure()
            other = query.sink + "-other"
            coordinator = Coordinator(cluster, query.options.kafka, other, transactions, decisions)
            own = await transactions.init(other)
            await coordinator._produce(own, DECIDED, b'{"version": 3}')
            assert await transactions.end(own, True) == 0
            await transactions.wait_until_complete([own])
            assert await decisions.last(query.sink) is None
            with pytest.raises(ValueError, match="a decision of version 3"):
                await decisions.last(other)
            await coordinator.forget()

    play(story())


@pytest.mark.parametrize("name", ["eu/finished", "eu/given-up", "decided/eu", "/", "eu.orders:1"])
def test_a_sink_may_have_any_name(broker: Broker, topic: str, name: str) -> None:
    name = f"{uuid.uuid4().hex[:8]}{name}"
    query, other = Query(broker, topic, name), Query(broker, topic)

    async def story() -> None:
        await query.settle(0, "run", await query.write(0, "run", rows_of(0)))
        await query.settle(0, "run", await query.write(0, "run", rows_of(0)))
        await query.settle(1, "run", [], commit=False)
        await other.settle(0, "run", await other.write(0, "run", rows_of(1)))
        async with query.process() as cluster:
            last = await DecisionLog(cluster).last(query.sink)
        assert last is not None
        assert (last.batch, last.is_finished) == (0, True)

    play(story())
    assert broker.values(topic) == sorted(rows_of(0) + rows_of(1))


def test_what_cannot_be_read_of_one_sink_stops_no_other(
    broker: Broker, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from mainstem.cli.main import main

    broken, query = Query(broker, topic), Query(broker, topic)
    at = ["-b", broker.bootstrap]

    async def breaks(kind: str) -> None:
        async with broken.process() as cluster:
            coordinator = Coordinator(
                cluster, broken.options.kafka, broken.sink, Transactions(cluster), DecisionLog(cluster)
            )
            await coordinator._produce(Triple("", -1, -1), kind, b"not a number")

    async def goes_on() -> None:
        await query.settle(0, "run", await query.write(0, "run", rows_of(0)))

    async def story() -> None:
        await broken.settle(0, "run", await broken.write(0, "run", rows_of(7)))
        for kind in ("\xff", FINISHED):
            await breaks(kind)
        with pytest.raises(ValueError, match=rf"says of {broken.sink} cannot be read: .*not a number"):
            await broken.write(1, "run", rows_of(8))

    play(story())
    play(goes_on())
    assert main(["pipeline", "sinks", *at]) == 0
    assert f"{query.sink}  batch 0  finished" in capsys.readouterr().out
    assert main(["pipeline", "finish", query.sink, *at]) == 0
    capsys.readouterr()
    assert main(["pipeline", "finish", broken.sink, *at]) == 1
    said = capsys.readouterr().err
    assert f"says of {broken.sink} cannot be read" in said
    assert "bug" not in said
    assert broker.values(topic) == sorted(rows_of(0) + rows_of(7))
    play(forgotten(broken))


async def forgotten(query: Query) -> None:
    """The broker is for all tests here, and they list its sinks."""
    async with query.process() as cluster:
        await Coordinator(
            cluster, query.options.kafka, query.sink, Transactions(cluster), DecisionLog(cluster)
        ).forget()


def test_a_driver_that_another_one_has_passed_by_is_told_so(query: Query, topic: str) -> None:
    """Its tasks looked at the decisions before: the batch must not be taken for one that happened."""

    async def story() -> None:
        await query.settle(0, "old", await query.write(0, "old", rows_of(0)))
        late = await query.write(1, "copy", rows_of(1))
        await query.settle(1, "old", await query.write(1, "old", rows_of(2)))
        await query.settle(2, "old", await query.write(2, "old", rows_of(3)))
        with pytest.raises(SinkError, match="comes after batch 2 was written"):
            await query.settle(1, "copy", late)
        assert await query.open_transactions() == []

    play(story())
    assert query.broker.values(topic) == sorted(rows_of(0) + rows_of(2) + rows_of(3))


def test_a_task_that_fails_leaves_no_transaction_open(query: Query, topic: str) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        column = pa.array([b"x"] * 10, pa.binary())
        yield pa.record_batch([column, column], names=["value", "key"])
        raise OSError("the rows end here")

    async def story() -> None:
        rows = RowWriter(SCHEMA, query.options)
        identity = Identity(query.sink, 0, "run", query=query.id)
        async with query.process() as cluster:
            with pytest.raises(OSError, match="the rows end here"):
                await stage(cluster, rows, query.options, failing(), identity, 0)
        assert await query.open_transactions() == []

    play(story())
    query.broker.produce(topic, [b"after"])
    assert query.broker.values(topic) == [b"after"]


def test_a_task_that_begins_after_its_batch_was_given_up_leaves_no_transaction_open(query: Query, topic: str) -> None:
    """Spark does not wait for tasks that still run, and of a write without a name nobody comes later to clean up."""

    def late() -> Iterator[pa.RecordBatch]:
        driver = threading.Thread(target=play, args=(query.settle(0, "run", [], commit=False),))
        driver.start()
        driver.join()
        column = pa.array([b"x"] * 10, pa.binary())
        yield pa.record_batch([column, column], names=["value", "key"])

    async def story() -> None:
        rows = RowWriter(SCHEMA, query.options)
        identity = Identity(query.sink, 0, "run", query=query.id)
        async with query.process() as cluster:
            with pytest.raises(SinkError, match=r"batch 0 of .* was given up while a task of it still wrote"):
                await stage(cluster, rows, query.options, late(), identity, 0)
        assert await query.open_transactions() == []
        await query.settle(0, "next", await query.write(0, "next", rows_of(0)))

    play(story())
    assert query.broker.values(topic) == sorted(rows_of(0))


@pytest.mark.parametrize(("ending", "told"), [("given up", SinkError), ("decided", KafkaError)])
def test_a_task_killed_after_the_end_of_its_batch_leaves_no_transaction_open(
    query: Query, topic: str, monkeypatch: pytest.MonkeyPatch, ending: str, told: type[Exception]
) -> None:
    """It had not begun when the driver looked: its batch was given up, or another attempt of it won."""

    def meanwhile(step: str) -> None:
        if step == "begun-transaction":
            driver = threading.Thread(target=play, args=(settled(),))
            driver.start()
            driver.join()

    async def settled() -> None:
        await query.settle(0, "run", winners, commit=ending == "decided")

    async def killed(*_: object) -> None:
        """Has no time for what a task does when it fails."""

    winners: list[Staged] = []
    column = pa.array([b"x"] * 10, pa.binary())
    batches = [pa.record_batch([column, column], names=["value", "key"])]

    async def story() -> None:
        winners.extend(await query.write(0, "run", rows_of(0)))
        monkeypatch.setattr(sinks, "on_step", meanwhile)
        monkeypatch.setattr(sinks, "_abort_own", killed)
        identity = Identity(query.sink, 0, "run", query=query.id)
        async with query.process() as cluster:
            with pytest.raises(told):
                await stage(cluster, RowWriter(SCHEMA, query.options), query.options, iter(batches), identity, 0)
        assert await query.open_transactions() == []

    play(story())
    assert query.broker.values(topic) == (sorted(rows_of(0)) if ending == "decided" else [])


def test_an_attempt_that_begins_after_another_has_won_writes_nothing(query: Query, topic: str) -> None:
    def late() -> Iterator[pa.RecordBatch]:
        driver = threading.Thread(target=play, args=(won(),))
        driver.start()
        driver.join()
        column = pa.array([b"x"] * 10, pa.binary())
        yield pa.record_batch([column, column], names=["value", "key"])

    async def won() -> None:
        await query.settle(0, "run", await query.write(0, "run", rows_of(0)))

    async def story() -> None:
        identity = Identity(query.sink, 0, "run", query=query.id)
        async with query.process() as cluster:
            lost = await stage(cluster, RowWriter(SCHEMA, query.options), query.options, late(), identity, 0)
        assert lost.staged is None
        assert await query.open_transactions() == []

    play(story())
    assert query.broker.values(topic) == sorted(rows_of(0))


def test_a_commit_that_comes_after_its_batch_was_given_up_decides_nothing(query: Query, topic: str) -> None:
    """Spark stopped waiting for it: what it would decide on is being aborted."""

    async def story() -> None:
        staged = await query.write(0, "run", rows_of(0))
        await query.settle(0, "run", [], commit=False)
        with pytest.raises(SinkError, match=r"batch 0 of .* was given up"):
            await query.settle(0, "run", staged)
        await query.settle(0, "next", await query.write(0, "next", rows_of(0)))

    play(story())
    assert query.broker.values(topic) == sorted(rows_of(0))


def test_a_driver_that_gives_up_leaves_alone_what_the_next_run_has_open(query: Query, topic: str) -> None:
    """The next run may decide on it at any moment, and what is decided must not be aborted."""

    async def story() -> None:
        old = await query.write(0, "old", rows_of(0))
        new = await query.write(0, "new", rows_of(0))
        await query.settle(0, "old", old, commit=False)
        assert await query.open_transactions() == sorted(each.triple.transactional_id for each in new)
        await query.settle(0, "new", new)
        assert await query.open_transactions() == []

    play(story())
    assert query.broker.values(topic) == sorted(rows_of(0))


def test_rows_without_a_key_of_small_batches_are_spread_over_the_partitions(broker: Broker) -> None:
    topic = broker.topic(4)
    query = Query(broker, topic)
    schema = StructType([StructField("value", BinaryType())])

    async def story() -> None:
        for batch in range(12):
            rows = pa.record_batch([pa.array([b"%d" % batch], pa.binary())], names=["value"])
            identity = Identity(query.sink, batch, "run", query=query.id)
            async with query.process() as cluster:
                told = await stage(cluster, RowWriter(schema, query.options), query.options, iter([rows]), identity, 0)
            assert told.staged is not None
            await query.settle(batch, "run", [told.staged])

    play(story())
    assert {each.partition for each in broker.read(topic)} == {0, 1, 2, 3}
