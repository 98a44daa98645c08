"""Whatever a broker answers, a consumer reads everything once and in order, or says clearly why not."""

import time
from collections.abc import Iterator

import pytest

from mainstem.client.consumer_sync import Consumer
from mainstem.client.errors import CommitFailedError, GroupAuthorizationError, KafkaError
from mainstem.client.listeners import RebalanceListener
from mainstem.client.types import TopicPartition
from mainstem.testing import Cluster
from tests.support.client_load import Writer

TP = TopicPartition("t", 0)
QUICK = {"retry_backoff_ms": 10, "retry_backoff_max_ms": 50, "reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 50}


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    with Cluster({"group.min.session.timeout.ms": "100"}) as started:
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


@pytest.mark.parametrize("error", ["NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "UNKNOWN_TOPIC_OR_PARTITION"])
def test_a_commit_is_tried_again(cluster: Cluster, topic: str, error: str) -> None:
    Writer(cluster.bootstrap).send(topic, 0, [b"1"])
    with consumer_of(cluster, topic, group_id=topic) as consumer:
        assert read(consumer, 1) == [b"1"]
        cluster.fail("OffsetCommit", error, times=2)
        consumer.commit()
        assert consumer.committed(consumer.assignment) == {(topic, 0): (1, "", 0)}


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


def test_what_no_retry_cures_ends_joining(cluster: Cluster, topic: str) -> None:
    with consumer_of(cluster, topic, group_id=topic) as consumer:
        cluster.fail("JoinGroup", "GROUP_AUTHORIZATION_FAILED")
        with pytest.raises(GroupAuthorizationError, match=f"group '{topic}'"):
            consumer.poll(5000)


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
