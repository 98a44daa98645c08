"""A broker in the process: quick to start, and as hard to live with as a test wants it."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from mainstem import Admin, ConfigResource, NewTopic
from mainstem.client.consumer_sync import Consumer
from mainstem.client.errors import (
    KafkaError,
    PolicyViolationError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
)
from mainstem.client.types import TopicPartition
from mainstem.protocol.errors import ErrorCode
from mainstem.testing import Cluster
from tests.support.client_load import Writer


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"t": 1}) as started:
        yield started


def values(cluster: Cluster, count: int, topic: str = "t") -> list[bytes]:
    with Consumer(topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        found: list[bytes] = []
        deadline = time.monotonic() + 20
        while len(found) < count and time.monotonic() < deadline:
            found += [record.value for record in consumer.poll(1000)]
        return found


def test_it_is_there_in_under_half_a_second() -> None:
    with Cluster():
        pass  # what is imported once is imported now
    took = []
    for _ in range(3):
        began = time.perf_counter()
        with Cluster() as cluster:
            assert cluster.bootstrap
            took.append(time.perf_counter() - began)
    assert min(took) < 0.5


def test_its_data_goes_with_it_unless_the_folder_was_given(tmp_path: object) -> None:
    with Cluster() as cluster:
        folder = cluster.data_dir
        assert folder.is_dir()
    assert not folder.exists()
    given = str(tmp_path)
    with Cluster(data_dir=given, topics={"t": 1}) as cluster:
        Writer(cluster.bootstrap).send("t", 0, [b"a"])
    with Cluster(data_dir=given) as cluster:
        assert values(cluster, 1) == [b"a"]


def test_two_of_them_live_side_by_side() -> None:
    with Cluster(topics={"t": 1}) as one, Cluster(topics={"t": 1}) as other:
        assert one.port != other.port
        Writer(one.bootstrap).send("t", 0, [b"one"])
        Writer(other.bootstrap).send("t", 0, [b"other"])
        assert (values(one, 1), values(other, 1)) == ([b"one"], [b"other"])


def test_what_was_acknowledged_survives_a_kill_and_clients_find_the_same_port(cluster: Cluster) -> None:
    port = cluster.port
    for number in range(3):
        Writer(cluster.bootstrap).send("t", 0, [b"%d" % number])
        cluster.kill()
        assert not cluster.is_running
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", port), 1)
        cluster.restart()
        assert cluster.port == port
    assert values(cluster, 3) == [b"0", b"1", b"2"]


def test_a_clean_restart_keeps_everything(cluster: Cluster) -> None:
    Writer(cluster.bootstrap).send("t", 0, [b"a"])
    cluster.restart()
    assert values(cluster, 1) == [b"a"]


def test_a_consumer_goes_on_after_a_kill(cluster: Cluster) -> None:
    Writer(cluster.bootstrap).send("t", 0, [b"a"])
    with Consumer("t", bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        assert [record.value for record in consumer.poll(5000)] == [b"a"]
        cluster.kill()
        cluster.restart()
        Writer(cluster.bootstrap).send("t", 0, [b"b"])
        assert [record.value for record in consumer.poll(10_000)] == [b"b"]


def test_a_paused_broker_takes_connections_and_answers_nobody(cluster: Cluster) -> None:
    with Consumer("t", bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        cluster.pause()
        socket.create_connection(("127.0.0.1", cluster.port), 1).close()
        with pytest.raises(KafkaError):
            consumer.end_offsets([TopicPartition("t", 0)], timeout_ms=300)
        cluster.resume()
        assert consumer.end_offsets([TopicPartition("t", 0)]) == {("t", 0): 0}


def test_a_delay_is_for_its_api_only(cluster: Cluster) -> None:
    with Consumer(bootstrap_servers=cluster.bootstrap) as consumer:
        cluster.delay("ListOffsets", 0.3)
        began = time.monotonic()
        consumer.partitions_for("t")
        assert time.monotonic() - began < 0.3
        consumer.end_offsets([TopicPartition("t", 0)])
        assert time.monotonic() - began >= 0.3
        cluster.heal()
        began = time.monotonic()
        consumer.end_offsets([TopicPartition("t", 0)])
        assert time.monotonic() - began < 0.3


def test_requests_fail_as_often_as_they_are_told_to(cluster: Cluster) -> None:
    writer = Writer(cluster.bootstrap)
    cluster.fail("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2)
    assert [writer.try_send("t", 0, [b"x"]) for _ in range(3)] == [6, 6, 0]
    cluster.fail("produce", "invalid_record", times=None)
    assert [writer.try_send("t", 0, [b"x"]) for _ in range(4)] == [87] * 4
    cluster.heal()
    assert writer.try_send("t", 0, [b"x"]) == 0
    assert values(cluster, 2) == [b"x", b"x"]


def test_an_error_reaches_the_application_where_no_retry_cures_it(cluster: Cluster) -> None:
    with Consumer("t", bootstrap_servers=cluster.bootstrap) as consumer:
        consumer.poll(100)
        cluster.fail("Fetch", "TOPIC_AUTHORIZATION_FAILED", times=3)
        with pytest.raises(TopicAuthorizationError, match="topic t") as told:
            consumer.poll(10_000)
        assert not told.value.retriable
        cluster.fail("ListOffsets", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        with pytest.raises(TopicAuthorizationError):
            consumer.end_offsets([TopicPartition("t", 0)])


def test_every_topic_that_was_asked_for_gets_the_error(cluster: Cluster) -> None:
    with Consumer(bootstrap_servers=cluster.bootstrap) as consumer:
        cluster.fail("Metadata", "UNKNOWN_TOPIC_OR_PARTITION", times=None)
        with pytest.raises(UnknownTopicOrPartitionError, match="topic t"):
            consumer.partitions_for("t", timeout_ms=300)
        cluster.heal()
        assert consumer.partitions_for("t") == [0]


@pytest.mark.parametrize(
    ("api", "ask"),
    [
        ("CreateTopics", lambda admin: admin.create_topics([NewTopic("new", 1, configs={"retention.ms": "1000"})])),
        (
            "IncrementalAlterConfigs",
            lambda admin: admin.alter_configs({ConfigResource.topic("t"): {"retention.ms": "1"}}),
        ),
        ("DescribeConfigs", lambda admin: admin.describe_configs([ConfigResource.topic("t")], names=["retention.ms"])),
        ("ListGroups", lambda admin: admin.list_groups(states=["Stable"])),
        ("ListTransactions", lambda admin: admin.list_transactions(states=["Ongoing"])),
        ("DeleteTopics", lambda admin: admin.delete_topics(["t"])),
        ("DeleteRecords", lambda admin: admin.delete_records({TopicPartition("t", 0): 0})),
    ],
)
def test_an_error_is_told_whatever_was_asked_along_with_it(
    cluster: Cluster, api: str, ask: Callable[[Admin], object]
) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        cluster.fail(api, "POLICY_VIOLATION")
        with pytest.raises(PolicyViolationError):
            ask(admin)


def test_a_dropped_connection_is_before_or_after_the_request_was_carried_out(cluster: Cluster) -> None:
    writer = Writer(cluster.bootstrap)
    cluster.disconnect("Produce")
    with pytest.raises(ConnectionError):
        writer.try_send("t", 0, [b"lost"])
    cluster.disconnect("Produce", carried_out=True)
    with pytest.raises(ConnectionError):
        Writer(cluster.bootstrap).try_send("t", 0, [b"kept"])
    Writer(cluster.bootstrap).send("t", 0, [b"last"])
    assert values(cluster, 2) == [b"kept", b"last"]


def test_requests_are_counted(cluster: Cluster) -> None:
    before = cluster.requests("Produce")
    Writer(cluster.bootstrap).send("t", 0, [b"a"])
    assert cluster.requests("Produce") == before + 1


def test_a_name_that_there_is_not_is_answered_with_the_nearest(cluster: Cluster) -> None:
    with pytest.raises(ValueError, match="did you mean 'Produce'"):
        cluster.fail("Prduce", ErrorCode.NONE)
    with pytest.raises(ValueError, match="did you mean 'NOT_LEADER_OR_FOLLOWER'"):
        cluster.fail("Produce", "NOT_LEADER_OR_FOLOWER")


def test_a_kill_leaves_neither_descriptors_nor_threads_behind() -> None:
    """A test run may kill hundreds of times, and has about a thousand descriptors on most systems."""

    def life() -> tuple[int, int]:
        with Cluster(topics={"t": 1}) as cluster:
            Writer(cluster.bootstrap).send("t", 0, [b"a"])
            cluster.kill()
        return len(os.listdir("/dev/fd")), threading.active_count()

    before = life()  # what is made once is made now
    for _ in range(3):
        after = life()
    assert after[0] <= before[0]
    assert after[1] <= before[1]
