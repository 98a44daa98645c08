"""A whole directory moves from Kafka to our broker and back, after a clean stop and after kill -9, and nothing of it is
lost: topics and their ids, configs, every byte of every record, producers and open transactions, groups, their members
and their offsets; and what only Kafka acts on, which then is in no file but the snapshots that we wrote.

Both sides are asked over the wire, in the same words.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from mainstem.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from mainstem.protocol.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from mainstem.protocol.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from mainstem.protocol.messages.k15_describe_groups import DescribeGroupsRequest
from mainstem.protocol.messages.k16_list_groups import ListGroupsRequest
from mainstem.protocol.messages.k18_api_versions import ApiVersionsRequest
from mainstem.protocol.messages.k19_create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from mainstem.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from mainstem.protocol.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from mainstem.protocol.messages.k29_describe_acls import DescribeAclsRequest
from mainstem.protocol.messages.k30_create_acls import AclCreation, CreateAclsRequest
from mainstem.protocol.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from mainstem.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from mainstem.protocol.messages.k48_describe_client_quotas import DescribeClientQuotasRequest
from mainstem.protocol.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from mainstem.protocol.messages.k50_describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from mainstem.protocol.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from mainstem.protocol.messages.k61_describe_producers import DescribeProducersRequest, TopicRequest
from mainstem.protocol.messages.k66_list_transactions import ListTransactionsRequest
from mainstem.protocol.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from mainstem.protocol.messages.k76_share_group_heartbeat import ShareGroupHeartbeatRequest
from mainstem.protocol.messages.k88_streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)
from mainstem.protocol.schema import Message
from mainstem.storage.checkpoint import LOG_STARTS
from tests.compat.differential.sides import Side
from tests.compat.scenarios import eventually
from tests.support.kafka import Kafka, KafkaNode
from tests.support.node import Node

pytestmark = [pytest.mark.kafka, pytest.mark.campaign]

OFTEN = {
    # Where a log starts is written down now and then: a kill in between would forget what was deleted.
    "log.flush.start.offset.checkpoint.interval.ms": "200",
}
KAFKAS = {
    **OFTEN,
    # ACLs can be made where there is somebody to look at them.
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
OURS = {
    **OFTEN,
    # Each change is followed by a snapshot, and what the snapshot covers goes: Kafka finds nothing of its own log.
    "metadata.log.max.record.bytes.between.snapshots": "1",
    "metadata.max.retention.bytes": "1",
    "transaction.state.log.num.partitions": "1",
}
LONG_MS = 300_000
"""Longer than the whole move takes: sessions and transactions outlive it."""
TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
OTHER_GROUPS = {"consumers": "consumer", "sharers": "share", "streamers": "streams"}


def is_fine(answer: Any) -> bool:
    return bool(answer.error_code == 0)


# -- what is there -------------------------------------------------------------------------------------------------


def records_of(side: Side, topic: str, index: int, start: int, end: int) -> bytes:
    """Every byte of a partition."""
    found = b""
    offset = start
    while offset < end:
        wanted = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 24)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=1 << 24, topics=[FetchTopic(topic=topic, partitions=[wanted])]
        )
        request.forgotten_topics_data = []
        answer: Any = side.send(request, 11)
        part = answer.responses[0].partitions[0]
        assert part.error_code == 0, part
        data = part.records or b""
        assert data, f"{topic}-{index}: nothing at {offset} of {end}"
        found += data
        at = 0
        while at + 12 <= len(data):
            offset = int.from_bytes(data[at : at + 8], "big") + int.from_bytes(data[at + 23 : at + 27], "big") + 1
            at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return found


def ends_of(side: Side, topic: str, count: int, timestamp: int, isolation: int) -> list[int]:
    wanted = [ListOffsetsPartition(partition_index=i, timestamp=timestamp) for i in range(count)]
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation, topics=[ListOffsetsTopic(name=topic, partitions=wanted)]
    )

    def ask() -> list[Any]:
        answer: Any = side.send(request, 7)
        return sorted(answer.topics[0].partitions, key=lambda one: one.partition_index)

    return [one.offset for one in eventually(ask, lambda found: all(map(is_fine, found)))]


def configs_of(side: Side, kind: int, name: str) -> dict[str, str | None]:
    """What was set, not what it would be otherwise."""
    answer: Any = side.send(
        DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)],
            include_synonyms=False,
            include_documentation=False,
        ),
        4,
    )
    dynamic = (1, 2, 3, 7, 8)  # of a topic, a broker, all brokers, client metrics, a group
    return {one.name: one.value for one in answer.results[0].configs if one.config_source in dynamic}


def offsets_of(side: Side, group: str) -> list[tuple[str, int, int, int, str]]:
    wanted = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)], require_stable=False)
    answer: Any = side.send(wanted, 8)
    assert answer.groups[0].error_code == 0, answer
    return sorted(
        (topic.name, one.partition_index, one.committed_offset, one.committed_leader_epoch, one.metadata)
        for topic in answer.groups[0].topics
        for one in topic.partitions
    )


def members_of(side: Side, group: str) -> list[Any]:
    answer: Any = side.send(DescribeGroupsRequest(groups=[group], include_authorized_operations=False), 5)
    described = answer.groups[0]
    members = [(m.member_id, m.group_instance_id, m.member_metadata, m.member_assignment) for m in described.members]
    return [described.group_state, described.protocol_type, described.protocol_data, sorted(members)]


def producers_of(side: Side, topic: str, count: int) -> list[Any]:
    wanted = [TopicRequest(name=topic, partition_indexes=list(range(count)))]
    answer: Any = side.send(DescribeProducersRequest(topics=wanted), 0)
    return sorted(
        (part.partition_index, one.producer_id, one.producer_epoch, one.last_sequence, one.current_txn_start_offset)
        for part in answer.topics[0].partitions
        for one in part.active_producers
    )


def transactions_of(side: Side) -> list[tuple[str, str]]:
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
    answer: Any = eventually(lambda: side.send(request, 0), is_fine)
    return sorted((one.transactional_id, one.transaction_state) for one in answer.transaction_states)


def groups_of(side: Side) -> dict[str, tuple[str, str]]:
    request = ListGroupsRequest(states_filter=[], types_filter=[])
    answer: Any = eventually(lambda: side.send(request, 5), is_fine)
    return {one.group_id: (one.protocol_type, one.group_type) for one in answer.groups}


def everything(port: int) -> dict[str, Any]:
    """What clients of either broker can find out."""
    side = Side("any", port)
    topics = eventually(side.look_up_topics, lambda found: set(found) == set(side.topic_ids))
    seen: dict[str, Any] = {"ids": dict(side.topic_ids), "partitions": topics}
    for topic, count in topics.items():
        starts = ends_of(side, topic, count, -2, 0)
        ends = ends_of(side, topic, count, -1, 0)
        seen[f"offsets {topic}"] = [starts, ends, ends_of(side, topic, count, -1, 1)]
        seen[f"configs {topic}"] = configs_of(side, TOPIC, topic)
        seen[f"producers {topic}"] = producers_of(side, topic, count)
        if topic in ("__consumer_offsets", "__transaction_state", "__share_group_state"):
            continue  # A coordinator that starts may write there.
        seen[f"records {topic}"] = [records_of(side, topic, i, starts[i], ends[i]) for i in range(count)]
    for topic in ("__consumer_offsets", "__transaction_state", "__share_group_state"):
        seen.pop(f"offsets {topic}", None)
        seen.pop(f"producers {topic}", None)
    seen["broker configs"] = [configs_of(side, BROKER, name) for name in ("1", "")]
    seen["groups"] = groups_of(side)
    for group in seen["groups"]:
        seen[f"offsets of {group}"] = offsets_of(side, group)
        if group not in OTHER_GROUPS:
            seen[f"members of {group}"] = members_of(side, group)
    seen["transactions"] = transactions_of(side)
    side.close()
    return seen


def kept_for_kafka(port: int) -> dict[str, Any]:
    """What only Kafka can tell."""
    side = Side("kafka", port)
    any_acl = DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    features: Any = side.send(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4)
    found = {
        "acls": side.plain(side.send(any_acl, 3)),
        "quotas": side.plain(side.send(DescribeClientQuotasRequest(components=[], strict=False), 1)),
        "scram": side.plain(side.send(DescribeUserScramCredentialsRequest(users=None), 0)),
        "client metrics": configs_of(side, CLIENT_METRICS, "metrics"),
        "group configs": configs_of(side, GROUP, "consumers"),
        "features": sorted((one.name, one.max_version_level) for one in features.finalized_features),
    }
    side.close()
    return found


# -- what is done --------------------------------------------------------------------------------------------------


def send(side: Side, message: Message, version: int) -> Any:
    answer = side.send(message, version)
    text = repr(side.plain(answer))
    assert "'error_code': 0" in text, text
    return answer


def create(side: Side, name: str, partitions: int, **configs: str) -> None:
    wanted = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        assignments=[],
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )
    send(side, CreateTopicsRequest(topics=[wanted], timeout_ms=30_000, validate_only=False), 7)


def configure(side: Side, kind: int, name: str, key: str, value: str) -> None:
    change = AlterableConfig(name=key, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[change])
    send(side, IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)


def produce(bootstrap: str, topic: str, count: int, **settings: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    for i in range(count):
        producer.produce(topic, key=f"key {i % 7}".encode(), value=f"value {i}".encode() * 20, headers={"n": str(i)})
    assert producer.flush(30) == 0


def leave_a_transaction_open(bootstrap: str, transactional_id: str, topic: str) -> Producer:
    """One transaction that is committed, one that is aborted, and one that stays open as long as the producer."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": LONG_MS,
            "log_level": 0,  # It will not find its broker again.
        }
    )
    producer.init_transactions(30)
    for end in (producer.commit_transaction, producer.abort_transaction, None):
        producer.begin_transaction()
        for i in range(5):
            producer.produce(topic, value=f"in a transaction {i}".encode())
        producer.flush(30)
        if end is not None:
            end(30)
    return producer


def use_a_group(bootstrap: str, group: str, topic: str, instance: str | None = None) -> None:
    """A member that commits; a static one does not leave."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    if instance is not None:
        settings |= {"group.instance.id": instance, "session.timeout.ms": LONG_MS}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    deadline = time.monotonic() + 30
    while not consumer.assignment() and time.monotonic() < deadline:
        consumer.poll(0.1)
    committed = [
        TopicPartition(topic, one.partition, 3 + one.partition, f"by {group}") for one in consumer.assignment()
    ]
    consumer.commit(offsets=committed, asynchronous=False)
    consumer.close()


def make_what_only_kafka_serves(side: Side) -> None:
    for operation in (3, 4):
        acl = AclCreation(
            resource_type=2,
            resource_name="plain",
            principal="User:somebody",
            host="*",
            operation=operation,
            permission_type=3,
        )
        send(side, CreateAclsRequest(creations=[acl]), 3)
    limits = [
        OpData(key="producer_byte_rate", value=1e9, remove=False),
        OpData(key="request_percentage", value=90.5, remove=False),
    ]
    for name in ("somebody", None):
        who = [EntityData(entity_type="user", entity_name=name), EntityData(entity_type="client-id", entity_name="app")]
        send(side, AlterClientQuotasRequest(entries=[EntryData(entity=who, ops=limits)], validate_only=False), 1)
    credentials = ScramCredentialUpsertion(
        name="somebody", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"p" * 32
    )
    send(side, AlterUserScramCredentialsRequest(deletions=[], upsertions=[credentials]), 0)
    configure(side, CLIENT_METRICS, "metrics", "interval.ms", "60000")
    configure(side, GROUP, "consumers", "consumer.session.timeout.ms", "50000")
    eventually(
        lambda: side.send(
            ConsumerGroupHeartbeatRequest(
                group_id="consumers",
                member_id="AAAAAAAAAAAAAAAAAAAAAA",
                member_epoch=0,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=["plain"],
                topic_partitions=[],
            ),
            1,
        ),
        is_fine,
    )
    eventually(
        lambda: side.send(
            ShareGroupHeartbeatRequest(
                group_id="sharers", member_id="AAAAAAAAAAAAAAAAAAAAAQ", member_epoch=0, subscribed_topic_names=["plain"]
            ),
            1,
        ),
        is_fine,
    )
    part = Subtopology(
        subtopology_id="0",
        source_topics=["plain"],
        source_topic_regex=[],
        state_changelog_topics=[],
        repartition_sink_topics=[],
        repartition_source_topics=[],
        copartition_groups=[],
    )
    eventually(
        lambda: side.send(
            StreamsGroupHeartbeatRequest(
                group_id="streamers",
                member_id="AAAAAAAAAAAAAAAAAAAAAg",
                member_epoch=0,
                endpoint_information_epoch=0,
                rebalance_timeout_ms=60_000,
                topology=Topology(epoch=1, subtopologies=[part]),
                active_tasks=[],
                standby_tasks=[],
                warmup_tasks=[],
                process_id="process",
                client_tags=[],
            ),
            0,
        ),
        is_fine,
    )


def fill(port: int, prefix: str = "", transactional_id: str = "open") -> Producer:
    """Uses every part of a broker; what is returned keeps a transaction open."""
    side = Side("any", port)
    bootstrap = f"127.0.0.1:{port}"
    plain, compacted, other = f"{prefix}plain", f"{prefix}compacted", f"{prefix}transactions"
    create(side, plain, 3, retention_ms="7200000", max_message_bytes="500000")
    create(side, compacted, 1, cleanup_policy="compact", segment_bytes="1048576")
    create(side, other, 1, segment_bytes="1048576")
    create(side, f"{prefix}gone", 2)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        produce(bootstrap, plain, 40, **{"compression.type": codec, "enable.idempotence": codec == "gzip"})
    produce(bootstrap, compacted, 100)
    configure(side, TOPIC, plain, "min.insync.replicas", "1")
    configure(side, BROKER, "", "log.cleaner.backoff.ms", "14000")
    configure(side, BROKER, "1", "log.cleaner.threads", "2")
    deleted = DeleteRecordsTopic(name=plain, partitions=[DeleteRecordsPartition(partition_index=0, offset=4)])
    send(side, DeleteRecordsRequest(topics=[deleted], timeout_ms=30_000), 2)
    use_a_group(bootstrap, f"{prefix}left", plain)
    use_a_group(bootstrap, f"{prefix}static", plain, instance="i1")
    simple = Consumer({"bootstrap.servers": bootstrap, "group.id": f"{prefix}simple"})
    simple.commit(offsets=[TopicPartition(compacted, 0, 5)], asynchronous=False)
    simple.close()
    gone = DeleteTopicsRequest(topics=[DeleteTopicState(name=f"{prefix}gone", topic_id=bytes(16))], timeout_ms=30_000)
    send(side, gone, 6)
    held = leave_a_transaction_open(bootstrap, transactional_id, other)
    side.close()
    return held


def end(node: Node | KafkaNode, clean: bool, prefix: str = "") -> None:
    """A clean stop or kill -9."""
    if clean:
        assert not node.stop()
        return
    starts = node.data / LOG_STARTS
    eventually(starts.read_text, lambda text: f"{prefix}plain 0 4" in text)
    node.kill()


def assert_same(look: Callable[[int], dict[str, Any]], port: int, expected: dict[str, Any]) -> None:
    """Compares what is there with what was, once the coordinators have had the time to read their logs."""

    def differing() -> dict[str, tuple[Any, Any]]:
        found = look(port)
        pairs = {key: (found.get(key, "missing"), expected.get(key, "missing")) for key in found | expected}
        return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}

    eventually(differing, lambda difference: not difference)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_directory_of_kafkas_moves_to_us_and_back(kafka: Kafka, tmp_path: Path, clean: bool) -> None:
    with KafkaNode(kafka, tmp_path, KAFKAS) as theirs:
        held = [fill(theirs.port)]
        side = Side("kafka", theirs.port)
        make_what_only_kafka_serves(side)
        side.close()
        before, only_kafkas = everything(theirs.port), kept_for_kafka(theirs.port)
        end(theirs, clean)
    with Node(tmp_path, OURS) as ours:
        assert_same(everything, ours.port, before)
        held.append(fill(ours.port, "more-", "open too"))
        now = everything(ours.port)
        assert set(before["ids"].items()) <= set(now["ids"].items())
        end(ours, clean, "more-")
    with KafkaNode(kafka, tmp_path, KAFKAS) as theirs:
        assert_same(everything, theirs.port, now)
        assert_same(kept_for_kafka, theirs.port, only_kafkas)
        produce(theirs.bootstrap, "plain", 10)
        theirs.stop()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_directory_of_ours_moves_to_kafka_and_back(kafka: Kafka, tmp_path: Path, clean: bool) -> None:
    with Node(tmp_path, OFTEN | {"transaction.state.log.num.partitions": "1"}) as ours:
        held = [fill(ours.port)]
        before = everything(ours.port)
        end(ours, clean)
    with KafkaNode(kafka, tmp_path, OFTEN) as theirs:
        assert_same(everything, theirs.port, before)
        held.append(fill(theirs.port, "more-", "open too"))
        now = everything(theirs.port)
        end(theirs, clean, "more-")
    with Node(tmp_path) as ours:
        assert_same(everything, ours.port, now)
        produce(ours.bootstrap, "plain", 10)
