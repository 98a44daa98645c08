"""On three nodes of Apache Kafka: leaders that move, followers that are read from, and a log that was cut.

One node cannot show these: answers that name the new leader (KIP-951), replicas that are nearer (KIP-392), positions
that are checked with a new leader (KIP-320).
"""

import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from mainstem.client import Admin, Consumer, NewTopic, Producer, TopicPartition
from mainstem.client.cluster import Cluster
from mainstem.client.errors import KafkaError, LogTruncationError
from tests.client.consumer_support import read, values
from tests.support.kafka import Kafka, missing
from tests.support.kafka_cluster import KafkaCluster

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.kafka,
    pytest.mark.xdist_group("kafka-cluster"),
    pytest.mark.timeout(600),
]

WAIT_S = 90.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    kafka = Kafka()
    kafka.fetch()
    with (
        KafkaCluster(kafka, tmp_path_factory.mktemp("cluster")) as running,
        Admin(bootstrap_servers=running.bootstrap) as admin,
    ):
        until(lambda: len(admin.describe_cluster().brokers) == 3)
        yield running


@pytest.fixture
def admin(cluster: KafkaCluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        yield admin


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.1)


def new_topic(admin: Admin, *replicas: int, **configs: str) -> TopicPartition:
    """A topic of one partition on these brokers, of which the first leads."""
    name = f"t-{uuid4().hex[:12]}"
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    admin.create_topics([NewTopic(name, assignments={0: replicas}, configs=settings)])
    tp = TopicPartition(name, 0)
    until(lambda: leader(admin, tp) == replicas[0] and in_sync(admin, tp) == set(replicas))
    return tp


def leader(admin: Admin, tp: TopicPartition) -> int:
    return admin.describe_topics([tp.topic])[tp.topic].partitions[0].leader


def in_sync(admin: Admin, tp: TopicPartition) -> set[int]:
    return set(admin.describe_topics([tp.topic])[tp.topic].partitions[0].isr)


def have_lead(admin: Admin, tp: TopicPartition, *replicas: int) -> None:
    """Has the first of these lead, with metadata that says so on every broker."""
    admin.alter_partition_reassignments({tp: replicas})
    until(lambda: not admin.list_partition_reassignments([tp]))

    def is_elected() -> bool:
        admin.elect_leaders([tp])  # which does nothing while the one that is wanted is not in sync
        return leader(admin, tp) == replicas[0]

    until(is_elected)


def without_metadata(cluster: Cluster | None) -> None:
    """From now on it learns of a leader only by what an answer says in passing."""
    assert cluster is not None
    cluster.request_update = lambda **_: None  # type: ignore[method-assign]


def test_a_producer_goes_to_the_leader_that_an_answer_names_without_asking_for_metadata(
    cluster: KafkaCluster, admin: Admin
) -> None:
    tp = new_topic(admin, 2, 3)
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        producer.send(tp.topic, b"to the first").result(60)
        have_lead(admin, tp, 3, 2)
        without_metadata(producer._async._cluster)
        assert producer.send(tp.topic, b"to the second").result(60).offset == 1


def test_a_consumer_goes_to_the_leader_that_an_answer_names_without_asking_for_metadata(
    cluster: KafkaCluster, admin: Admin
) -> None:
    tp = new_topic(admin, 2, 3)
    with (
        Producer(bootstrap_servers=cluster.bootstrap) as producer,
        Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign([tp])
        producer.send(tp.topic, b"from the first").result(60)
        assert values(read(consumer, 1)) == [b"from the first"]
        without_metadata(consumer._core._cluster)
        have_lead(admin, tp, 3, 2)
        producer.send(tp.topic, b"from the second").result(60)
        assert values(read(consumer, 1)) == [b"from the second"]


def test_a_consumer_reads_from_the_replica_in_its_rack_and_from_the_leader_when_that_is_gone(
    cluster: KafkaCluster, admin: Admin
) -> None:
    tp = new_topic(admin, 1, 2)
    with (
        Producer(bootstrap_servers=cluster.bootstrap) as producer,
        Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", client_rack="r2") as consumer,
    ):
        consumer.assign([tp])
        for number in range(100):
            producer.send(tp.topic, b"%d" % number)
        producer.flush()
        assert values(read(consumer, 100)) == [b"%d" % number for number in range(100)]
        assert consumer._core._fetcher._sessions[2].partitions.keys() == {tp}, "the follower was not asked"
        cluster.nodes[2].kill()
        try:
            producer.send(tp.topic, b"last").result(60)
            assert values(read(consumer, 1, 60)) == [b"last"]
        finally:
            cluster.nodes[2].start()
            until(lambda: in_sync(admin, tp) == {1, 2})


def test_where_a_log_was_cut_a_consumer_goes_on_from_where_the_logs_agree(cluster: KafkaCluster, admin: Admin) -> None:
    tp = new_topic(admin, 2, 3, min_insync_replicas="1")
    options = {"bootstrap_servers": cluster.bootstrap, "metadata_max_age_ms": 1000}
    kept = [b"kept %d" % number for number in range(10)]
    lost = [b"lost %d" % number for number in range(10)]
    after = [b"after %d" % number for number in range(15)]
    with (
        Consumer(**options, auto_offset_reset="earliest") as lenient,
        Consumer(**options, auto_offset_reset="none") as strict,
    ):
        for consumer in (lenient, strict):
            consumer.assign([tp])
            consumer.seek(tp, 0)
        write(cluster, tp, kept)
        cluster.nodes[3].kill()
        until(lambda: in_sync(admin, tp) == {2})
        write(cluster, tp, lost)
        for consumer in (lenient, strict):
            assert values(read(consumer, 20, 60)) == kept + lost
        cluster.nodes[2].kill()
        try:
            cluster.nodes[3].start()
            until(lambda: elected_uncleanly(admin, tp, 3))
            write(cluster, tp, after)
            # Its position lies within the new log: only the epochs tell that it was cut.
            assert values(read(lenient, 15, 60)) == after
            with pytest.raises(LogTruncationError, match=tp.topic):
                read(strict, 1, 60)
        finally:
            cluster.nodes[2].start()


def write(cluster: KafkaCluster, tp: TopicPartition, what: list[bytes]) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap, metadata_max_age_ms=1000) as producer:
        for future in [producer.send(tp.topic, value) for value in what]:
            future.result(90)


def elected_uncleanly(admin: Admin, tp: TopicPartition, node: int) -> bool:
    try:
        admin.elect_leaders([tp], unclean=True)
    except KafkaError as error:
        if not error.retriable:
            raise
    return leader(admin, tp) == node
