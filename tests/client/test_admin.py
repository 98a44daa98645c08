"""The admin against a running broker, ours and Apache Kafka: every question, and what a mistake is answered."""

import asyncio
import pickle
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import pytest

from mainstem.client.admin import AsyncAdmin
from mainstem.client.admin_base import SomeFailedError
from mainstem.client.admin_configs import ConfigChange, ConfigOperation, ConfigResource, ConfigSource, ResourceType
from mainstem.client.admin_records import ALL_RECORDS, OffsetSpec
from mainstem.client.admin_topics import NewTopic
from mainstem.client.errors import (
    GroupIdNotFoundError,
    IllegalStateError,
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from mainstem.client.sync_admin import Admin
from mainstem.client.types import OffsetAndMetadata, TopicPartition
from tests.client.writing import append

Story = Callable[[AsyncAdmin], Awaitable[None]]
_names = count()


def fresh(prefix: str) -> str:
    """A name that no other test of the session uses."""
    return f"{prefix}-{next(_names)}"


@pytest.fixture
def act(bootstrap: str) -> Callable[[Story], None]:
    def run(story: Story) -> None:
        async def whole() -> None:
            async with AsyncAdmin(bootstrap_servers=bootstrap, default_api_timeout_ms=20_000) as admin:
                await asyncio.wait_for(story(admin), 40)

        asyncio.run(whole())

    return run


Act = Callable[[Story], None]


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Waits for it: brokers of Kafka follow what the controller has decided a moment later."""
    while not await holds():
        await asyncio.sleep(0.02)


async def has_partitions(admin: AsyncAdmin, name: str, number: int) -> bool:
    return len((await admin.describe_topics([name]))[name].partitions) == number


async def is_there(admin: AsyncAdmin, name: str) -> bool:
    return not await is_gone(admin, name)


async def is_gone(admin: AsyncAdmin, name: str) -> bool:
    return name not in [each.name for each in await admin.list_topics()]


async def create(admin: AsyncAdmin, topic: NewTopic) -> None:
    """Creates a topic and waits until every partition has a leader."""
    await admin.create_topics([topic])

    async def is_led() -> bool:
        found = (await admin.describe_topics()).get(topic.name)
        return found is not None and all(each.leader >= 0 for each in found.partitions)

    await until(is_led)


def test_a_topic_is_created_described_grown_and_deleted(act: Act) -> None:
    name = fresh("orders")

    async def story(admin: AsyncAdmin) -> None:
        made = await admin.create_topics([NewTopic(name, 3, 1, {"cleanup.policy": "compact"})])
        await until(lambda: is_there(admin, name))
        assert (made[name].num_partitions, made[name].replication_factor) == (3, 1)
        assert made[name].configs["cleanup.policy"] == "compact"
        described = (await admin.describe_topics([name]))[name]
        assert described.topic_id == made[name].topic_id
        assert [each.partition for each in described.partitions] == [0, 1, 2]
        assert all(each.leader == 1 and each.isr == (1,) for each in described.partitions)
        await admin.create_partitions({name: 5})
        await until(lambda: has_partitions(admin, name, 5))
        assert name in [each.name for each in await admin.list_topics()]
        assert name in await admin.describe_topics()
        await admin.delete_topics([name])
        await until(lambda: is_gone(admin, name))

    act(story)


def test_a_topic_that_exists_or_cannot_be_is_an_error_of_its_own_class(act: Act) -> None:
    name = fresh("orders")

    async def story(admin: AsyncAdmin) -> None:
        await create(admin, NewTopic(name, 1))
        with pytest.raises(TopicExistsError) as caught:
            await admin.create_topics([NewTopic(name, 1)])
        assert caught.value.topic == name
        with pytest.raises(InvalidTopicError):
            await admin.create_topics([NewTopic("what is this", 1)])
        with pytest.raises(InvalidConfigurationError):
            await admin.create_topics([NewTopic(fresh("x"), 1, configs={"cleanup.policy": "burn"})])
        with pytest.raises(InvalidPartitionsError):
            await admin.create_partitions({name: 1})
        with pytest.raises(UnknownTopicOrPartitionError):
            await admin.describe_topics([fresh("nothing")])
        with pytest.raises(UnknownTopicOrPartitionError):
            await admin.delete_topics([fresh("nothing")])

    act(story)


def test_of_several_things_those_that_can_be_done_are_done(act: Act) -> None:
    old, new = fresh("old"), fresh("new")

    async def story(admin: AsyncAdmin) -> None:
        await create(admin, NewTopic(old, 1))
        with pytest.raises(SomeFailedError) as caught:
            await admin.create_topics([NewTopic(old, 1), NewTopic(new, 1)])
        assert list(caught.value.errors) == [old]
        assert isinstance(caught.value.errors[old], TopicExistsError)
        assert list(caught.value.done) == [new]
        caught_in_group = False
        try:
            await admin.create_topics([NewTopic(old, 1), NewTopic(new, 1)])
        except* TopicExistsError as group:
            caught_in_group = len(group.exceptions) == 2
        assert caught_in_group
        assert "1 of 2 failed: TOPIC_ALREADY_EXISTS" in str(caught.value)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)

    act(story)


def test_nothing_is_created_when_it_is_only_validated(act: Act) -> None:
    name = fresh("orders")

    async def story(admin: AsyncAdmin) -> None:
        await admin.create_topics([NewTopic(name, 2)], validate_only=True)
        with pytest.raises(UnknownTopicOrPartitionError):
            await admin.describe_topics([name])

    act(story)


def test_configs_say_their_value_and_source_and_are_changed_one_by_one(act: Act) -> None:
    name = fresh("orders")
    resource = ConfigResource(ResourceType.TOPIC, name)

    async def story(admin: AsyncAdmin) -> None:
        await create(admin, NewTopic(name, 1, configs={"retention.ms": "1000"}))
        changes = [
            ConfigChange("max.message.bytes", "2000"),
            ConfigChange("retention.ms", None, ConfigOperation.DELETE),
        ]
        await admin.alter_configs({resource: changes})
        found = (await admin.describe_configs([resource], include_synonyms=True))[resource]
        assert found["max.message.bytes"].value == "2000"
        assert found["max.message.bytes"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG
        assert found["max.message.bytes"].kind == "INT"
        assert found["max.message.bytes"].synonyms[0].name == "max.message.bytes"
        assert found["retention.ms"].is_default
        one = (await admin.describe_configs([resource], ["retention.ms"]))[resource]
        assert list(one) == ["retention.ms"]
        with pytest.raises(InvalidConfigurationError):
            await admin.alter_configs({resource: [ConfigChange("no.such.config", "1")]})
        broker = ConfigResource(ResourceType.BROKER, "1")
        assert (await admin.describe_configs([broker]))[broker]["node.id"].value == "1"

    act(story)


def test_offsets_are_found_by_name_and_by_time_and_records_deleted_below_one(act: Act) -> None:
    name = fresh("orders")
    tp = TopicPartition(name, 0)

    async def story(admin: AsyncAdmin) -> None:
        await create(admin, NewTopic(name, 2))
        await append(admin, tp, b"a", b"b", b"c", timestamp=1_000)
        await append(admin, tp, b"d", timestamp=5_000)
        assert await admin.beginning_offsets([tp]) == {tp: 0}
        assert await admin.end_offsets([tp, TopicPartition(name, 1)]) == {tp: 4, TopicPartition(name, 1): 0}
        assert (await admin.list_offsets({tp: 2_000}))[tp].offset == 3
        assert (await admin.list_offsets({tp: 9_000}))[tp].offset == -1
        assert (await admin.list_offsets({tp: OffsetSpec.MAX_TIMESTAMP}))[tp][:2] == (3, 5_000)
        assert await admin.delete_records({tp: 2}) == {tp: 2}
        assert await admin.beginning_offsets([tp]) == {tp: 2}
        with pytest.raises(OffsetOutOfRangeError):
            await admin.delete_records({tp: 99})
        assert await admin.delete_records({tp: ALL_RECORDS}) == {tp: 4}
        with pytest.raises(UnknownTopicOrPartitionError, match="partitions 0 to 1"):
            await admin.end_offsets([TopicPartition(name, 7)])

    act(story)


def test_offsets_of_a_group_without_members_are_set_read_and_forgotten(act: Act) -> None:
    name, group = fresh("orders"), fresh("readers")
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)

    async def story(admin: AsyncAdmin) -> None:
        await create(admin, NewTopic(name, 2))
        await admin.alter_group_offsets(group, {first: 3, second: OffsetAndMetadata(4, "note")})
        found = await admin.list_group_offsets(group)
        assert {tp: (each.offset, each.metadata) for tp, each in found.items()} == {first: (3, ""), second: (4, "note")}
        assert list(await admin.list_group_offsets(group, [second])) == [second]
        listed = {each.group_id: each for each in await admin.list_groups()}[group]
        assert (listed.state, listed.kind) == ("Empty", "classic")
        assert group not in [each.group_id for each in await admin.list_groups(states=["Stable"])]
        described = (await admin.describe_groups([group]))[group]
        assert (described.state, described.members, described.coordinator) == ("Empty", (), 1)
        await admin.delete_group_offsets(group, [first])
        assert list(await admin.list_group_offsets(group)) == [second]
        await admin.delete_groups([group])
        with pytest.raises(GroupIdNotFoundError):
            await admin.describe_groups([group])
        with pytest.raises(GroupIdNotFoundError):
            await admin.delete_groups([group])

    act(story)


def test_the_cluster_its_directories_and_its_quorum_are_described(act: Act) -> None:
    name = fresh("orders")

    async def story(admin: AsyncAdmin) -> None:
        await create(admin, NewTopic(name, 1))
        await append(admin, TopicPartition(name, 0), b"a" * 100)
        cluster = await admin.describe_cluster()
        assert [each.node_id for each in cluster.brokers] == [1]
        assert cluster.cluster_id
        (folders,) = (await admin.describe_log_dirs()).values()
        (folder,) = folders.values()
        assert folder.error is None
        assert folder.replicas[TopicPartition(name, 0)].size_bytes > 100
        assert folder.total_bytes > folder.usable_bytes > 0
        quorum = await admin.describe_quorum()
        assert quorum.leader_id == 1
        assert [each.node_id for each in quorum.voters] == [1]
        assert (await admin.broker_versions(1)).apis[0][1] >= 12
        assert await admin.list_partition_reassignments() == {}
        elected = await admin.elect_leaders([TopicPartition(name, 0)])
        assert str(elected[TopicPartition(name, 0)]).startswith("ELECTION_NOT_NEEDED")

    act(story)


def test_idempotent_producers_of_a_partition_are_described(act: Act) -> None:
    name = fresh("orders")
    tp = TopicPartition(name, 0)

    async def story(admin: AsyncAdmin) -> None:
        await create(admin, NewTopic(name, 1))
        await append(admin, tp, b"a", b"b", producer_id=4711, producer_epoch=2, base_sequence=0)
        (state,) = (await admin.describe_producers([tp]))[tp]
        assert (state.producer_id, state.producer_epoch, state.last_sequence) == (4711, 2, 1)
        assert state.transaction_start == -1

    act(story)


def test_an_admin_that_finds_no_broker_says_so_when_its_time_is_up() -> None:
    async def whole() -> None:
        options: dict[str, Any] = {"default_api_timeout_ms": 300, "retry_backoff_ms": 20}
        async with AsyncAdmin(bootstrap_servers="127.0.0.1:1", **options) as admin:
            with pytest.raises(
                KafkaTimeoutError, match=r"listing topics did not succeed within 300 ms.*127\.0\.0\.1:1"
            ):
                await admin.list_topics()

    asyncio.run(whole())


def test_the_synchronous_admin_has_every_method_and_waits_for_it(bootstrap: str) -> None:
    name = fresh("orders")
    public = {each for each in dir(AsyncAdmin) if not each.startswith("_")} - {"start", "cluster"}
    assert public <= set(dir(Admin))
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(name, 2)])
        assert admin.describe_topics([name])[name].partitions[1].partition == 1
        with pytest.raises(TopicExistsError):
            admin.create_topics([NewTopic(name, 2)])
        resource = ConfigResource.topic(name)
        admin.alter_configs({resource: {"retention.ms": "5000"}})
        admin.alter_configs({resource: {"retention.ms": None}})
        admin.delete_topics([name])
    assert Admin.create_topics.__doc__ == AsyncAdmin.create_topics.__doc__


def test_features_of_the_cluster_are_described_and_not_taken_where_they_cannot_be(act: Act) -> None:
    async def story(admin: AsyncAdmin) -> None:
        found = await admin.describe_features()
        assert found["metadata.version"].supported_min <= found["metadata.version"].finalized
        with pytest.raises(KafkaError):
            await admin.update_features({"metadata.version": 9999}, validate_only=True)

    act(story)


def test_an_admin_that_was_not_started_says_so() -> None:
    async def whole() -> None:
        with pytest.raises(IllegalStateError, match="not started"):
            await AsyncAdmin().list_topics()

    asyncio.run(whole())
