"""Whatever a broker answers, a consumer reads everything once and in order, or says clearly why not."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from mainstem.client.consumer import AsyncConsumer
from mainstem.client.consumer_sync import Consumer
from mainstem.client.errors import (
    CommitFailedError,
    GroupAuthorizationError,
    IllegalStateError,
    KafkaError,
    SerializationError,
    TopicAuthorizationError,
)
from mainstem.client.listeners import RebalanceListener
from mainstem.client.membership import Membership
from mainstem.client.types import TopicPartition
from mainstem.testing import Cluster
from tests.support.client_load import Writer

TP = TopicPartition("t", 0)
QUICK: dict[str, Any] = {
    "retry_backoff_ms": 10,
    "retry_backoff_max_ms": 50,
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 50,
}


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    # What `Writer` writes is from 1970, and would be deleted half a minute after the broker started.
    with Cluster({"group.min.session.timeout.ms": "100", "log.retention.ms": "-1"}) as started:
        yield started


@pytest.fixture
def cluster(shared: Cluster, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    yield shared
    shared.heal()


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    name = f"t-{abs(hash(request.node.name))}"
    cluster.create_topic(name)
    return name


def consumer_of(cluster: Cluster, topic: str, **options: object) -> Consumer:
    settings: dict[str, object] = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 50, **QUICK, **options}
    if "group_id" in settings:
        settings = {"heartbeat_interval_ms": 50, "session_timeout_ms": 1000, "enable_auto_commit": False, **settings}
    return Consumer(topic, bootstrap_servers=cluster.bootstrap, **settings)


def read(consumer: Consumer, count: int, timeout_s: float = 20) -> list[bytes]:
    found: list[bytes] = []
    deadline = time.monotonic() + timeout_s
    while len(found) < count and time.monotonic() < deadline:
        found += [record.value for record in consumer.poll(200)]
    return found


@pytest.mark.parametrize(
    "error",
    [
        "NOT_LEADER_OR_FOLLOWER",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_ID",
        "INCONSISTENT_TOPIC_ID",
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
        "REPLICA_NOT_AVAILABLE",
        "KAFKA_STORAGE_ERROR",
        "OFFSET_NOT_AVAILABLE",
        "UNKNOWN_SERVER_ERROR",
        "INVALID_FETCH_SESSION_EPOCH",
        "FETCH_SESSION_ID_NOT_FOUND",
        "FETCH_SESSION_TOPIC_ID_ERROR",
    ],
)
def test_a_fetch_that_fails_is_tried_again(cluster: Cluster, topic: str, error: str) -> None:
    writer = Writer(cluster.bootstrap)
    writer.send(topic, 0, [b"1", b"2"])
    with consumer_of(cluster, topic) as consumer:
        assert read(consumer, 2) == [b"1", b"2"]
        before = cluster.requests("Fetch")
        cluster.fail("Fetch", error, times=3)
        deadline = time.monotonic() + 10
        while cluster.requests("Fetch") <= before + 3 and time.monotonic() < deadline:
            assert consumer.poll(50) == []
        writer.send(topic, 0, [b"3"])
        assert read(consumer, 1) == [b"3"]


def test_an_offset_that_is_not_there_is_asked_for_anew(cluster: Cluster, topic: str) -> None:
    Writer(cluster.bootstrap).send(topic, 0, [b"1", b"2"])
    with consumer_of(cluster, topic) as consumer:
        cluster.fail("Fetch", "OFFSET_OUT_OF_RANGE")
        assert read(consumer, 2) == [b"1", b"2"]


@pytest.mark.parametrize("api", ["Fetch", "ListOffsets", "Metadata"])
def test_a_lost_connection_is_made_anew(cluster: Cluster, topic: str, api: str) -> None:
    writer = Writer(cluster.bootstrap)
    writer.send(topic, 0, [b"1"])
    cluster.disconnect(api, times=3)
    with consumer_of(cluster, topic) as consumer:
        assert read(consumer, 1) == [b"1"]
        cluster.disconnect(api, times=2)
        writer.send(topic, 0, [b"2"])
        assert read(consumer, 1) == [b"2"]


@pytest.mark.parametrize(
    ("api", "error"),
    [
        ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE"),
        ("JoinGroup", "NOT_COORDINATOR"),
        ("JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("JoinGroup", "UNKNOWN_MEMBER_ID"),
        ("JoinGroup", "REBALANCE_IN_PROGRESS"),
        ("SyncGroup", "REBALANCE_IN_PROGRESS"),
        ("SyncGroup", "UNKNOWN_MEMBER_ID"),
        ("SyncGroup", "ILLEGAL_GENERATION"),
        ("SyncGroup", "NOT_COORDINATOR"),
        ("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("OffsetFetch", "UNSTABLE_OFFSET_COMMIT"),
        ("OffsetFetch", "NOT_COORDINATOR"),
        ("ListOffsets", "LEADER_NOT_AVAILABLE"),
        ("ListOffsets", "FENCED_LEADER_EPOCH"),
    ],
)
def test_joining_gets_there_in_the_end(cluster: Cluster, topic: str, api: str, error: str) -> None:
    Writer(cluster.bootstrap).send(topic, 0, [b"1", b"2"])
    cluster.fail(api, error, times=2)
    with consumer_of(cluster, topic, group_id=topic) as consumer:
        assert read(consumer, 2) == [b"1", b"2"]
        consumer.commit()
        assert consumer.committed(consumer.assignment) == {(topic, 0): (2, "", 0)}


def test_joining_again_does_not_depend_on_how_exact_timers_are(cluster: Cluster, topic: str) -> None:
    """Those of uvloop count in milliseconds, and may be early by less."""
    Writer(cluster.bootstrap).send(topic, 0, [b"1"])
    with consumer_of(cluster, topic, group_id=topic) as consumer:
        membership = consumer._core._membership
        assert membership is not None
        loop = membership._loop

        class Early:
            def time(self) -> float:
                return loop.time() - 0.002

            def call_at(self, when: float, call: Callable[[], None]) -> asyncio.TimerHandle:
                return loop.call_at(when, call)

        membership._loop = cast(asyncio.AbstractEventLoop, Early())
        cluster.fail("JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS", times=3)
        assert [record.value for record in consumer.poll(10_000)] == [b"1"]


@pytest.mark.parametrize(
    "api", ["FindCoordinator", "JoinGroup", "SyncGroup", "OffsetFetch", "OffsetCommit", "Heartbeat"]
)
def test_a_group_outlives_lost_connections(cluster: Cluster, topic: str, api: str) -> None:
    Writer(cluster.bootstrap).send(topic, 0, [b"1", b"2"])
    with consumer_of(cluster, topic, group_id=topic) as consumer:
        cluster.disconnect(api, times=2)
        assert read(consumer, 2) == [b"1", b"2"]
        consumer.commit()
        seen = cluster.requests(api)
        deadline = time.monotonic() + 10
        while api == "Heartbeat" and cluster.requests(api) < seen + 4 and time.monotonic() < deadline:
            consumer.poll(50)
        assert consumer.committed(consumer.assignment) == {(topic, 0): (2, "", 0)}


class Told(RebalanceListener):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.calls.append("assigned")

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.calls.append("revoked")

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.calls.append("lost")


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("error", ["UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"])
def test_a_member_that_was_voted_out_loses_its_partitions_and_joins_again(
    cluster: Cluster, topic: str, error: str, strategy: str
) -> None:
    told = Told()
    options = {"group_id": topic, "partition_assignment_strategy": strategy}
    with consumer_of(cluster, topic, **options) as consumer:
        consumer.subscribe([topic], listener=told)
        deadline = time.monotonic() + 10
        while told.calls != ["assigned"] and time.monotonic() < deadline:
            consumer.poll(50)
        cluster.fail("Heartbeat", error)
        while told.calls[:3] != ["assigned", "lost", "assigned"] and time.monotonic() < deadline:
            consumer.poll(50)
        assert told.calls == ["assigned", "lost", "assigned"]


def test_a_rebalance_is_joined_at_the_next_poll(cluster: Cluster, topic: str) -> None:
    told = Told()
    with consumer_of(cluster, topic, group_id=topic, partition_assignment_strategy="range") as consumer:
        consumer.subscribe([topic], listener=told)
        deadline = time.monotonic() + 10
        while told.calls != ["assigned"] and time.monotonic() < deadline:
            consumer.poll(50)
        cluster.fail("Heartbeat", "REBALANCE_IN_PROGRESS")
        while len(told.calls) < 3 and time.monotonic() < deadline:
            consumer.poll(50)
        assert told.calls == ["assigned", "revoked", "assigned"]


def test_partitions_are_given_back_whatever_a_listener_raises_and_read_on_when_they_return(
    cluster: Cluster, topic: str
) -> None:
    class Fails(RebalanceListener):
        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            raise LookupError("mine")

    writer = Writer(cluster.bootstrap)
    writer.send(topic, 0, [b"1"])
    with consumer_of(cluster, topic, group_id=topic, partition_assignment_strategy="range") as consumer:
        consumer.subscribe([topic], listener=Fails())
        assert read(consumer, 1) == [b"1"]
        consumer.commit()
        cluster.fail("Heartbeat", "REBALANCE_IN_PROGRESS")
        with pytest.raises(LookupError, match="mine"):
            read(consumer, 1)
        writer.send(topic, 0, [b"2"])
        assert read(consumer, 1) == [b"2"]
        consumer.subscribe([topic])


def test_an_interrupt_within_a_listener_ends_the_poll_and_nothing_else(cluster: Cluster, topic: str) -> None:
    class Interrupted(RebalanceListener):
        times = 0

        def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            self.times += 1
            if self.times == 1:
                raise KeyboardInterrupt

    Writer(cluster.bootstrap).send(topic, 0, [b"1"])
    with consumer_of(cluster, topic, group_id=topic) as consumer:
        consumer.subscribe([topic], listener=Interrupted())
        with pytest.raises(KeyboardInterrupt):
            read(consumer, 1)
        assert read(consumer, 1) == [b"1"]


async def poll_with_little_patience(consumer: AsyncConsumer) -> list[bytes]:
    with contextlib.suppress(TimeoutError):
        return [record.value for record in await asyncio.wait_for(consumer.poll(5000), 0.2)]
    return []


def test_whoever_stops_waiting_while_everything_is_given_back_reads_on_afterwards(cluster: Cluster, topic: str) -> None:
    writer = Writer(cluster.bootstrap)
    writer.send(topic, 0, [b"1"])

    async def story() -> None:
        async with async_member(cluster, topic, "range") as consumer:
            found: list[bytes] = []
            while not found:
                found += await poll_with_little_patience(consumer)
            await give_up_in_a_commit(cluster, consumer)
            await asyncio.to_thread(writer.send, topic, 0, [b"2"])
            while b"2" not in found:
                found += await poll_with_little_patience(consumer)

    asyncio.run(asyncio.wait_for(story(), 20))


def test_whoever_stops_waiting_while_one_partition_is_given_back_gives_it_back_afterwards(cluster: Cluster) -> None:
    topic = "t-given-back"
    cluster.create_topic(topic, 2)
    writer = Writer(cluster.bootstrap)
    for number in range(2):
        writer.send(topic, number, [b"1"])

    async def story() -> None:
        async with async_member(cluster, topic, "cooperative-sticky") as first:
            found: list[bytes] = []
            while len(found) < 2:
                found += await poll_with_little_patience(first)
            async with async_member(cluster, topic, "cooperative-sticky") as second:
                joining = asyncio.create_task(second.poll(15_000))
                await give_up_in_a_commit(cluster, first, is_told=False)
                while not (len(first.assignment) == len(second.assignment) == 1):
                    found += await poll_with_little_patience(first)
                for tp in (*first.assignment, *second.assignment):
                    await asyncio.to_thread(writer.send, topic, tp.partition, [b"new"])
                while b"new" not in found:
                    found += await poll_with_little_patience(first)
                assert [record.value for record in await joining] == [b"new"]

    asyncio.run(asyncio.wait_for(story(), 20))


def async_member(cluster: Cluster, topic: str, strategy: str) -> AsyncConsumer:
    return AsyncConsumer(
        topic,
        bootstrap_servers=cluster.bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        partition_assignment_strategy=strategy,
        auto_commit_interval_ms=60_000,
        heartbeat_interval_ms=50,
        session_timeout_ms=5000,
        fetch_max_wait_ms=50,
        **QUICK,
    )


async def give_up_in_a_commit(cluster: Cluster, consumer: AsyncConsumer, *, is_told: bool = True) -> None:
    """Has partitions revoked, and stops waiting while what was read of them is being committed."""
    before = cluster.requests("OffsetCommit")
    cluster.delay("OffsetCommit", 1.0)
    if is_told:
        cluster.fail("Heartbeat", "REBALANCE_IN_PROGRESS")
    while cluster.requests("OffsetCommit") == before:
        await poll_with_little_patience(consumer)
    cluster.heal()


@pytest.mark.parametrize("error", ["NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "UNKNOWN_TOPIC_OR_PARTITION"])
def test_a_commit_is_tried_again(cluster: Cluster, topic: str, error: str) -> None:
    Writer(cluster.bootstrap).send(topic, 0, [b"1"])
    with consumer_of(cluster, topic, group_id=topic) as consumer:
        assert read(consumer, 1) == [b"1"]
        cluster.fail("OffsetCommit", error, times=2)
        consumer.commit()
        assert consumer.committed(consumer.assignment) == {(topic, 0): (1, "", 0)}


def test_an_automatic_commit_that_failed_does_not_set_back_what_was_committed_after_it(
    cluster: Cluster, topic: str
) -> None:
    tp = TopicPartition(topic, 0)
    Writer(cluster.bootstrap).send(topic, 0, [b"%d" % number for number in range(20)])
    options = {"enable_auto_commit": True, "auto_commit_interval_ms": 1000, "max_poll_records": 5}
    slow = {"retry_backoff_ms": 150, "retry_backoff_max_ms": 150}
    with consumer_of(cluster, topic, group_id=topic, **options, **slow) as consumer:
        assert len(read(consumer, 5)) == 5
        consumer.pause(tp)
        before = cluster.requests("OffsetCommit")
        cluster.fail("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS")
        while cluster.requests("OffsetCommit") == before:
            consumer.poll(10)
        consumer.resume(tp)
        assert len(read(consumer, 15)) == 15
        consumer.commit()
        told = cluster.requests("OffsetCommit")
        while cluster.requests("OffsetCommit") == told:
            consumer.poll(10)
        assert consumer.committed([tp])[tp] == (20, "", 0)


def test_a_commit_that_cannot_be_is_told(cluster: Cluster, topic: str) -> None:
    Writer(cluster.bootstrap).send(topic, 0, [b"1"])
    with consumer_of(cluster, topic, group_id=topic) as consumer:
        assert read(consumer, 1) == [b"1"]
        cluster.fail("OffsetCommit", "ILLEGAL_GENERATION")
        with pytest.raises(CommitFailedError, match="max_poll_interval_ms"):
            consumer.commit()
        cluster.fail("OffsetCommit", "GROUP_AUTHORIZATION_FAILED")
        with pytest.raises(KafkaError, match=topic) as told:
            consumer.commit({TopicPartition(topic, 0): 1})
        assert not told.value.retriable


@pytest.mark.parametrize("face", ["objects", "arrow"])
def test_an_error_that_is_over_is_the_end_of_it(cluster: Cluster, topic: str, face: str) -> None:
    """Who polls on hears of it again while it lasts, and reads on when it is over, without waiting for metadata."""
    writer = Writer(cluster.bootstrap)
    with consumer_of(cluster, topic) as consumer:

        def poll() -> int:
            if face == "objects":
                return len(consumer.poll(5000))
            return sum(batch.num_rows for batch in consumer.fetch_arrow(5000))

        cluster.fail("Fetch", "TOPIC_AUTHORIZATION_FAILED", times=2)
        for _ in range(2):
            with pytest.raises(TopicAuthorizationError, match=topic):
                poll()
        writer.send(topic, 0, [b"1"])
        assert poll() == 1


def test_a_deserializer_that_raises_an_error_of_ours_loses_nothing(cluster: Cluster, topic: str) -> None:
    def whole(data: bytes) -> int:
        if not data.isdigit():
            raise SerializationError(f"{data!r} is no number")
        return int(data)

    Writer(cluster.bootstrap).send(topic, 0, [b"1", b"2", b"x", b"4"])
    with consumer_of(cluster, topic, value_deserializer=whole) as consumer:
        assert [record.value for record in consumer.poll(5000)] == [1, 2]
        with pytest.raises(SerializationError, match="is no number"):
            consumer.poll(5000)
        consumer.seek(TopicPartition(topic, 0), 3)
        assert [record.value for record in consumer.poll(5000)] == [4]


def test_what_happens_just_before_a_poll_waits_is_noticed(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with consumer_of(cluster, topic) as consumer:
        consumer.position(TopicPartition(topic, 0))
        core = consumer._core
        rung: list[bool] = []

        class Bell(threading.Event):
            def wait(self, timeout: float | None = None) -> bool:
                rung.append(self.is_set())
                return super().wait(timeout)

        def look(core: AsyncConsumer) -> bool:
            found = bool(AsyncConsumer.is_quiet.fget(core))  # type: ignore[attr-defined]
            if found and not rung:
                core._notify()
            return found

        monkeypatch.setattr(core, "bell", Bell())
        monkeypatch.setattr(type(core), "is_quiet", property(look))
        deadline = time.monotonic() + 10
        while not rung and time.monotonic() < deadline:
            consumer.poll(50)
        assert rung[0]


def test_what_no_retry_cures_is_raised_while_joining_and_who_polls_on_tries_again(cluster: Cluster, topic: str) -> None:
    Writer(cluster.bootstrap).send(topic, 0, [b"1"])
    with consumer_of(cluster, topic, group_id=topic) as consumer:
        cluster.fail("JoinGroup", "GROUP_AUTHORIZATION_FAILED", times=2)
        for _ in range(2):
            with pytest.raises(GroupAuthorizationError, match=f"group '{topic}'"):
                consumer.poll(5000)
        assert read(consumer, 1) == [b"1"]


def test_a_paused_broker_is_waited_for(cluster: Cluster, topic: str) -> None:
    writer = Writer(cluster.bootstrap)
    with consumer_of(cluster, topic, group_id=topic, enable_auto_commit=True) as consumer:
        writer.send(topic, 0, [b"1"])
        assert read(consumer, 1) == [b"1"]
        cluster.pause()
        assert consumer.poll(500) == []
        cluster.resume()
        writer.send(topic, 0, [b"2"])
        assert read(consumer, 1) == [b"2"]


def test_a_subscription_that_is_refused_leaves_the_listener_of_the_one_before(cluster: Cluster, topic: str) -> None:
    told: list[str] = []

    class Listener(RebalanceListener):
        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            told.append("revoked")

    with consumer_of(cluster, topic, group_id=topic) as consumer:
        consumer.subscribe([topic], listener=Listener())
        while not consumer.assignment:
            consumer.poll(50)
        with pytest.raises(IllegalStateError, match="unsubscribe first"):
            consumer.subscribe(pattern="other.*")
        consumer.unsubscribe()
    assert told == ["revoked"]


def member_of(consumer: Consumer) -> Membership:
    assert consumer._core._membership is not None
    return consumer._core._membership


def test_a_member_that_is_voted_out_while_it_gives_some_partitions_back_loses_the_others(
    cluster: Cluster, topic: str
) -> None:
    """It keeps them over a rebalance (KIP-429), but somebody else may read them already."""
    other = f"{topic}-other"
    cluster.create_topic(other)
    told: list[tuple[str, list[str]]] = []

    class Listener(RebalanceListener):
        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            if not told:
                cluster.fail("Heartbeat", "UNKNOWN_MEMBER_ID")
                until(lambda: member_of(consumer)._generation < 0)
            told.append(("revoked", [tp.topic for tp in partitions]))

        def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
            told.append(("lost", [tp.topic for tp in partitions]))

    def until(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline, "it did not come about in time"
            time.sleep(0.005)

    def polls_until(condition: Callable[[], bool]) -> None:
        until(lambda: consumer.poll(20) == [] and condition())

    options = {"group_id": topic, "partition_assignment_strategy": "cooperative-sticky"}
    with consumer_of(cluster, topic, **options) as consumer:
        consumer.subscribe([topic, other], listener=Listener())
        polls_until(lambda: len(consumer.assignment) == 2)
        consumer.subscribe([other], listener=Listener())
        polls_until(lambda: len(told) == 2 and member_of(consumer).is_settled)
        assert consumer.assignment == [(other, 0)]
    assert told[:2] == [("revoked", [topic]), ("lost", [other])]
