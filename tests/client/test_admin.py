"""The admin, against every target."""

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from mainstem.client.admin import AsyncAdmin
from mainstem.client.admin_types import (
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from mainstem.client.connection import BrokerConnection
from mainstem.client.errors import (
    GroupIdNotFoundError,
    IllegalStateError,
    InvalidConfigurationError,
    InvalidPartitionsError,
    KafkaError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from mainstem.client.sync_admin import Admin
from mainstem.client.sync_producer import Producer
from mainstem.client.types import OffsetAndMetadata, TopicPartition
from mainstem.protocol.messages.k03_metadata import MetadataRequest
from tests.support.reading import eventually, read_values
from tests.support.targets import Target


@pytest.fixture
def admin(target: Target) -> Iterator[Admin]:
    with Admin(bootstrap_servers=target.bootstrap) as made:
        yield made


@pytest.fixture
def topic(admin: Admin) -> str:
    name = f"kept-{uuid4().hex[:10]}"
    admin.create_topics([NewTopic(name, 2, 1)])
    eventually(lambda: name in admin.list_topics(), True)
    return name


def test_a_topic_is_created_described_and_deleted(admin: Admin) -> None:
    name = f"short-lived-{uuid4().hex[:10]}"
    created = admin.create_topics([NewTopic(name, 3, 1, {"retention.ms": "1000"})])
    assert (created[name].partitions, created[name].replication_factor) == (3, 1)
    assert created[name].configs["retention.ms"] == "1000"
    eventually(lambda: name in admin.list_topics(), True)
    described = admin.describe_topics([name])[name]
    assert [each.partition for each in described.partitions] == [0, 1, 2]
    assert all(each.leader >= 0 and each.isr == each.replicas for each in described.partitions)
    assert described.topic_id == created[name].topic_id
    assert name in admin.list_topics()
    admin.delete_topics([name])
    eventually(lambda: name in admin.list_topics(), False)
    with pytest.raises(UnknownTopicOrPartitionError) as caught:
        admin.delete_topics([name])
    assert caught.value.topic == name


def test_only_the_topics_that_are_named_are_asked_for(admin: Admin, topic: str) -> None:
    asked: list[MetadataRequest] = []

    async def ask(connection: BrokerConnection, request: Any, kind: Any, **options: Any) -> Any:
        if isinstance(request, MetadataRequest):
            asked.append(request)
        return await original(connection, request, kind, **options)

    original = BrokerConnection.ask
    BrokerConnection.ask = ask  # type: ignore[method-assign, assignment]
    try:
        assert list(admin.describe_topics([topic, topic])) == [topic]
        with pytest.raises(UnknownTopicOrPartitionError) as caught:
            admin.describe_topics([f"no-{topic}", topic])
    finally:
        BrokerConnection.ask = original  # type: ignore[method-assign]
    assert caught.value.topic == f"no-{topic}"
    assert [[each.name for each in request.topics or ()] for request in asked] == [[topic], [f"no-{topic}", topic]]
    assert not any(request.allow_auto_topic_creation for request in asked)
    assert f"no-{topic}" not in admin.list_topics()


def test_of_several_topics_those_that_can_be_are_created_and_the_error_names_the_others(
    admin: Admin, topic: str
) -> None:
    good = f"good-{uuid4().hex[:10]}"
    with pytest.raises(TopicExistsError) as caught:
        admin.create_topics([NewTopic(topic, 1, 1), NewTopic(good, 1, 1), NewTopic("bad name", 1, 1)])
    assert caught.value.topic == topic
    assert any("bad name" in note for note in caught.value.__notes__)
    eventually(lambda: good in admin.list_topics(), True)


def test_validating_creates_nothing(admin: Admin) -> None:
    name = f"imagined-{uuid4().hex[:10]}"
    admin.create_topics([NewTopic(name, 1, 1)], validate_only=True)
    assert name not in admin.list_topics()


def test_a_topic_grows_but_does_not_shrink(admin: Admin, topic: str) -> None:
    admin.create_partitions({topic: 5})
    eventually(lambda: len(admin.describe_topics([topic])[topic].partitions), 5)
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({topic: 3})


def test_settings_are_set_and_taken_back(admin: Admin, topic: str) -> None:
    resource = ConfigResource.topic(topic)
    admin.alter_configs({resource: {"retention.ms": "12345", "cleanup.policy": "compact"}})
    eventually(lambda: admin.describe_configs([resource])[resource]["retention.ms"].value, "12345")
    found = admin.describe_configs([resource])[resource]
    assert (found["retention.ms"].value, found["retention.ms"].is_default) == ("12345", False)
    assert found["max.message.bytes"].value is not None
    admin.alter_configs({resource: [ConfigChange("cleanup.policy", "delete", ConfigOperation.APPEND)]})

    def policies() -> set[str]:
        policy = admin.describe_configs([resource], names=["cleanup.policy"])[resource]
        assert list(policy) == ["cleanup.policy"]
        return set((policy["cleanup.policy"].value or "").split(","))

    eventually(policies, {"compact", "delete"})
    admin.alter_configs({resource: {"retention.ms": None}})
    eventually(lambda: admin.describe_configs([resource])[resource]["retention.ms"].is_default, True)
    with pytest.raises(InvalidConfigurationError) as caught:
        admin.alter_configs({resource: {"retention.ms": "soon"}})
    assert caught.value.topic == topic


def test_a_brokers_own_settings_are_asked_of_that_broker(admin: Admin) -> None:
    node_id = admin.describe_cluster().brokers[0].node_id
    resource = ConfigResource.broker(node_id)
    assert admin.describe_configs([resource])[resource]["node.id"].value == str(node_id)


def test_what_has_settings_is_listed(target: Target, admin: Admin, topic: str) -> None:
    if target.name == "kafka39":
        with pytest.raises(UnsupportedVersionError):
            admin.list_config_resources([ResourceType.TOPIC])
    else:
        assert ConfigResource.topic(topic) in admin.list_config_resources([ResourceType.TOPIC])


def test_offsets_of_a_group_are_set_listed_and_forgotten(admin: Admin, topic: str) -> None:
    group = f"group-{uuid4().hex[:10]}"
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    admin.alter_group_offsets(group, {first: 5, second: OffsetAndMetadata(7, "note")})
    found = admin.list_group_offsets(group)
    assert {tp: (position.offset, position.metadata) for tp, position in found.items()} == {
        first: (5, ""),
        second: (7, "note"),
    }
    assert list(admin.list_group_offsets(group, [second])) == [second]
    admin.delete_group_offsets(group, [second])
    assert list(admin.list_group_offsets(group)) == [first]
    assert group in [each.group_id for each in admin.list_groups()]
    described = admin.describe_groups([group])[group]
    assert (described.state, described.members) == ("Empty", [])
    admin.delete_groups([group])
    assert group not in [each.group_id for each in admin.list_groups()]
    with pytest.raises(GroupIdNotFoundError):
        admin.delete_groups([group])


def test_an_offset_that_is_none_is_not_committed_and_the_old_one_stays(admin: Admin, topic: str) -> None:
    group, tp = f"group-{uuid4().hex[:10]}", TopicPartition(topic, 0)
    admin.alter_group_offsets(group, {tp: 5})
    for offset in (-1, -3, 2**63):
        with pytest.raises(IllegalStateError, match="cannot be committed"):
            admin.alter_group_offsets(group, {tp: offset})
    assert admin.list_group_offsets(group)[tp].offset == 5


def test_a_group_that_there_is_not_is_told(target: Target, admin: Admin) -> None:
    with pytest.raises(GroupIdNotFoundError):
        admin.describe_groups([f"nobody-{uuid4().hex}"])


def test_offsets_are_found_by_place_and_by_time_and_records_are_deleted(
    target: Target, admin: Admin, topic: str
) -> None:
    tp = TopicPartition(topic, 0)
    with Producer(bootstrap_servers=target.bootstrap, linger_ms=0) as producer:
        for at in range(10):
            producer.send(topic, b"%d" % at, partition=0, timestamp_ms=1_000_000 + 1000 * at).result(30)
    assert admin.list_offsets({tp: OffsetSpec.EARLIEST})[tp].offset == 0
    assert admin.list_offsets({tp: OffsetSpec.LATEST})[tp].offset == 10
    assert admin.list_offsets({tp: OffsetSpec.MAX_TIMESTAMP})[tp][:2] == (9, 1_009_000)
    assert admin.list_offsets({tp: 1_004_500})[tp][:2] == (5, 1_005_000)
    assert admin.list_offsets({tp: 2_000_000})[tp].offset == -1
    assert admin.delete_records({tp: 4}) == {tp: 4}
    assert admin.list_offsets({tp: OffsetSpec.EARLIEST})[tp].offset == 4
    assert admin.delete_records({tp: -1}) == {tp: 10}
    assert read_values_from(target, topic) == []
    with pytest.raises(KafkaError) as caught:
        admin.delete_records({tp: 99})
    assert (caught.value.topic, caught.value.partition) == (topic, 0)


def read_values_from(target: Target, topic: str) -> list[bytes | None]:
    with Producer(bootstrap_servers=target.bootstrap) as producer:
        producer.send(topic, b"last", partition=1).result(30)
    return [value for value in read_values(target.bootstrap, topic, 1) if value != b"last"]


def test_a_partition_that_there_is_not_is_told(admin: Admin, topic: str) -> None:
    with pytest.raises(KafkaError, match="the topic has 2 partitions"):
        admin.list_offsets({TopicPartition(topic, 9): OffsetSpec.LATEST}, timeout_ms=1000)


def test_the_producers_of_a_partition_are_known(target: Target, admin: Admin, topic: str) -> None:
    with Producer(bootstrap_servers=target.bootstrap) as producer:
        producer.send(topic, b"x", partition=0).result(30)
        producer.send(topic, b"y", partition=0).result(30)
    (found,) = admin.describe_producers([TopicPartition(topic, 0)])[TopicPartition(topic, 0)]
    assert (found.last_sequence, found.transaction_start_offset) == (1, -1)


def test_the_cluster_tells_of_itself(target: Target, admin: Admin) -> None:
    cluster = admin.describe_cluster()
    assert cluster.cluster_id
    (broker,) = cluster.brokers
    assert f"{broker.host}:{broker.port}" == target.bootstrap
    quorum = admin.describe_quorum()
    assert quorum.leader_id == broker.node_id
    assert [each.node_id for each in quorum.voters] == [broker.node_id]
    features = admin.describe_features()
    assert features["metadata.version"].finalized > 0
    directories = admin.describe_log_dirs()
    assert list(directories) == [broker.node_id]
    assert directories[broker.node_id][0].error_code == 0
    assert admin.describe_log_dirs([broker.node_id])[broker.node_id][0].path == directories[broker.node_id][0].path


def test_an_election_that_is_not_needed_says_so(admin: Admin, topic: str) -> None:
    tp = TopicPartition(topic, 0)
    error = admin.elect_leaders([tp])[tp]
    assert type(error).__name__ == "ElectionNotNeededError"
    assert admin.list_partition_reassignments() == {}


def test_on_asyncio_the_same_is_awaited(target: Target, topic: str) -> None:
    async def act() -> None:
        async with AsyncAdmin(bootstrap_servers=target.bootstrap) as admin:
            assert topic in await admin.list_topics()
            assert (await admin.describe_topics([topic]))[topic].name == topic

    asyncio.run(asyncio.wait_for(act(), 30))
