"""Requests that reach every answer of the controller, in an order in which each finds what it needs.

Sent to Kafka and to our controller, they must be answered alike and leave the same records. Node 1 is the only one.
"""

from collections.abc import Iterator

from mainstem.protocol.messages import k33_alter_configs as k33
from mainstem.protocol.messages import k44_incremental_alter_configs as k44
from mainstem.protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from mainstem.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from mainstem.protocol.messages.k37_create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from mainstem.protocol.messages.k43_elect_leaders import ElectLeadersRequest, TopicPartitions
from mainstem.protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from mainstem.protocol.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from mainstem.protocol.messages.k57_update_features import FeatureUpdateKey, UpdateFeaturesRequest
from mainstem.protocol.messages.k64_unregister_broker import UnregisterBrokerRequest
from mainstem.protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsRequest
from mainstem.protocol.schema import ZERO_UUID, Message

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)

Case = tuple[str, Message, int]


def topic(
    name: str,
    partitions: int = 1,
    factor: int = 1,
    assignments: dict[int, list[int]] | None = None,
    configs: dict[str, str | None] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in (assignments or {}).items()
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )


def create(*topics: CreatableTopic, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(topics), validate_only=validate_only)


def add_partitions(
    name: str, count: int, assignments: list[list[int]] | None = None, validate_only: bool = False
) -> CreatePartitionsRequest:
    placed = None if assignments is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    topics = [CreatePartitionsTopic(name=name, count=count, assignments=placed)]
    return CreatePartitionsRequest(topics=topics, timeout_ms=30000, validate_only=validate_only)


def delete_names(*names: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names], timeout_ms=30000
    )


def delete_ids(*ids: bytes) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=one) for one in ids], timeout_ms=30000)


def change(
    resource_type: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> k44.IncrementalAlterConfigsRequest:
    configs = [k44.AlterableConfig(name=key, config_operation=how, value=value) for key, how, value in changes]
    resource = k44.AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=configs)
    return k44.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)


def replace(resource_type: int, name: str, **configs: str | None) -> k33.AlterConfigsRequest:
    given = [k33.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    resource = k33.AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=given)
    return k33.AlterConfigsRequest(resources=[resource], validate_only=False)


def feature(name: str, level: int, upgrade_type: int = 1, validate_only: bool = False) -> UpdateFeaturesRequest:
    updates = [FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)]
    return UpdateFeaturesRequest(feature_updates=updates, validate_only=validate_only)


def reassign(name: str, index: int, replicas: list[int] | None, change_factor: bool = True) -> Message:
    partitions = [ReassignablePartition(partition_index=index, replicas=replicas)]
    return AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=change_factor, topics=[ReassignableTopic(name=name, partitions=partitions)]
    )


def elect(kind: int, topics: dict[str, list[int]] | None) -> ElectLeadersRequest:
    named = None if topics is None else [TopicPartitions(topic=name, partitions=p) for name, p in topics.items()]
    return ElectLeadersRequest(election_type=kind, topic_partitions=named)


def create_topic_cases() -> Iterator[Case]:
    yield "create", create(topic("orders", 3, 1, configs={"retention.ms": "1000000", "cleanup.policy": "compact"})), 7
    yield "create with defaults", create(topic("defaults", -1, -1)), 7
    yield "create placed", create(topic("placed", -1, -1, {0: [1], 1: [1]})), 7
    yield "create again", create(topic("orders")), 7
    yield "create old version", create(topic("old", 2, 1)), 2
    yield "create v4 without configs", create(topic("older", 1, 1)), 4
    yield "validate only", create(topic("checked", 2, 1, configs={"segment.ms": "5"}), validate_only=True), 7
    yield "twice in one request", create(topic("twice"), topic("twice"), topic("once")), 7
    yield "dots collide", create(topic("a.b")), 7
    yield "dots collide 2", create(topic("a_b")), 7
    yield "dots collide in one request", create(topic("c.d"), topic("c_d")), 7
    for label, name in {
        "empty": "", "one dot": ".", "two dots": "..", "too long": "x" * 250, "bad letter": "a/b", "space": "a b",
        "metadata topic": "__cluster_metadata", "longest": "y" * 249,
    }.items():  # fmt: skip
        yield f"name {label}", create(topic(name)), 7
    yield "no partitions", create(topic("bad", 0, 1)), 7
    yield "negative partitions", create(topic("bad", -2, 1)), 7
    yield "too many partitions", create(topic("bad", 10001, 1)), 7
    yield "factor 0", create(topic("bad", 1, 0)), 7
    yield "factor 2", create(topic("bad", 1, 2)), 7
    yield "factor -2", create(topic("bad", 1, -2)), 7
    yield "placed and counted", create(topic("bad", 2, -1, {0: [1], 1: [1]})), 7
    yield "placed with factor", create(topic("bad", -1, 1, {0: [1], 1: [1]})), 7
    yield "placed on nobody", create(topic("bad", -1, -1, {0: []})), 7
    yield "placed on unknown", create(topic("bad", -1, -1, {0: [7]})), 7
    yield "placed twice on one", create(topic("bad", -1, -1, {0: [1, 1]})), 7
    yield "placed unevenly", create(topic("bad", -1, -1, {0: [1], 1: [1, 2]})), 7
    yield "placed with a gap", create(topic("bad", -1, -1, {0: [1], 2: [1]})), 7
    yield "placed negative", create(topic("bad", -1, -1, {0: [-1]})), 7
    yield "unknown config", create(topic("bad", configs={"no.such": "1"})), 7
    yield "bad config value", create(topic("bad", configs={"retention.ms": "abc"})), 7
    yield "config out of range", create(topic("bad", configs={"segment.bytes": "5"})), 7
    yield "null config", create(topic("bad", configs={"retention.ms": None})), 7
    yield "bad cleanup policy", create(topic("bad", configs={"cleanup.policy": "burn"})), 7
    yield (
        "lags that contradict",
        create(topic("bad", configs={"min.compaction.lag.ms": "100", "max.compaction.lag.ms": "50"})),
        7,
    )
    yield "one good one bad", create(topic("good"), topic("bad", 0, 1)), 7


def partition_cases() -> Iterator[Case]:
    yield "grow", add_partitions("orders", 5), 3
    yield "grow placed", add_partitions("orders", 7, [[1], [1]]), 3
    yield "grow validate only", add_partitions("orders", 9, validate_only=True), 3
    yield "grow to the same", add_partitions("orders", 7), 3
    yield "shrink", add_partitions("orders", 2), 3
    yield "grow unknown", add_partitions("nothing", 2), 3
    yield "grow negative", add_partitions("orders", -1), 3
    yield "grow placed too few", add_partitions("orders", 9, [[1]]), 3
    yield "grow placed on unknown", add_partitions("orders", 8, [[9]]), 3
    yield "grow placed unevenly", add_partitions("orders", 8, [[1, 2]]), 3
    yield "grow placed on nobody", add_partitions("orders", 8, [[]]), 3
    twice = add_partitions("orders", 8)
    twice.topics.append(CreatePartitionsTopic(name="orders", count=9, assignments=None))
    yield "grow twice", twice, 3


def config_cases() -> Iterator[Case]:
    yield "set", change(TOPIC, "orders", ("segment.ms", SET, "500000"), ("retention.ms", DELETE, None)), 1
    yield "append", change(TOPIC, "orders", ("cleanup.policy", APPEND, "delete")), 1
    yield "append what is there", change(TOPIC, "orders", ("cleanup.policy", APPEND, "delete")), 1
    yield "subtract", change(TOPIC, "orders", ("cleanup.policy", SUBTRACT, "compact")), 1
    yield "append to a default", change(TOPIC, "old", ("cleanup.policy", APPEND, "compact")), 1
    yield "append to a number", change(TOPIC, "old", ("retention.ms", APPEND, "5")), 1
    yield "set null", change(TOPIC, "orders", ("segment.ms", SET, None)), 1
    yield "set the same", change(TOPIC, "orders", ("segment.ms", SET, "500000")), 1
    yield "delete what is not set", change(TOPIC, "orders", ("flush.ms", DELETE, None)), 1
    yield "no changes", change(TOPIC, "orders"), 1
    yield "set validate only", change(TOPIC, "orders", ("segment.ms", SET, "6000"), validate_only=True), 1
    yield "set invalid", change(TOPIC, "orders", ("segment.ms", SET, "abc")), 1
    yield "set unknown key", change(TOPIC, "orders", ("no.such", SET, "1")), 1
    yield "set on unknown topic", change(TOPIC, "nothing", ("segment.ms", SET, "1000")), 1
    yield "set on bad topic name", change(TOPIC, "a/b", ("segment.ms", SET, "1000")), 1
    yield "set on empty topic name", change(TOPIC, "", ("segment.ms", SET, "1000")), 1
    yield "set twice", change(TOPIC, "orders", ("segment.ms", SET, "1000"), ("segment.ms", SET, "2000")), 1
    yield "set and delete", change(TOPIC, "orders", ("segment.ms", SET, "1000"), ("segment.ms", DELETE, None)), 1
    yield "unknown type", change(77, "x", ("a", SET, "1")), 1
    yield "type unknown 0", change(0, "x", ("a", SET, "1")), 1
    yield "broker", change(BROKER, "1", ("log.cleaner.threads", SET, "2")), 1
    yield "broker default", change(BROKER, "", ("message.max.bytes", SET, "2000000")), 1
    yield "broker other", change(BROKER, "9", ("message.max.bytes", SET, "2000000")), 1
    yield "broker no number", change(BROKER, "x", ("message.max.bytes", SET, "2000000")), 1
    yield "broker negative", change(BROKER, "-1", ("message.max.bytes", SET, "2000000")), 1
    yield "broker unknown key", change(BROKER, "1", ("my.own.setting", SET, "5")), 1
    yield "broker invalid", change(BROKER, "1", ("log.cleaner.threads", SET, "abc")), 1
    yield "broker read only", change(BROKER, "1", ("log.dirs", SET, "/x")), 1
    yield "broker min isr", change(BROKER, "1", ("min.insync.replicas", SET, "1")), 1
    yield "default min isr", change(BROKER, "", ("min.insync.replicas", SET, "1")), 1
    yield "default min isr delete", change(BROKER, "", ("min.insync.replicas", DELETE, None)), 1
    yield "broker append", change(BROKER, "1", ("log.cleanup.policy", APPEND, "compact")), 1
    yield "broker subtract", change(BROKER, "1", ("log.cleanup.policy", SUBTRACT, "delete")), 1
    yield "broker append to all", change(BROKER, "", ("log.cleanup.policy", APPEND, "compact")), 1
    yield "broker subtract what is not there", change(BROKER, "", ("log.cleanup.policy", SUBTRACT, " compact")), 1
    yield "broker append to a number", change(BROKER, "1", ("log.cleaner.threads", APPEND, "2")), 1
    yield "broker delete what is not set", change(BROKER, "1", ("log.cleaner.backoff.ms", DELETE, None)), 1
    yield "broker delete", change(BROKER, "1", ("log.cleanup.policy", DELETE, None)), 1
    yield "broker replace", replace(BROKER, "1", my_own_setting="5", log_cleaner_threads="2"), 2
    yield "broker replace with the same", replace(BROKER, "1", my_own_setting="5", log_cleaner_threads="2"), 2
    yield "append nothing", change(TOPIC, "orders", ("cleanup.policy", APPEND, "")), 1
    yield "append nothing and something", change(TOPIC, "orders", ("cleanup.policy", APPEND, ",compact")), 1
    yield "append with a comma behind", change(TOPIC, "orders", ("cleanup.policy", APPEND, "delete,")), 1
    yield "topic min isr", change(TOPIC, "orders", ("min.insync.replicas", SET, "1")), 1
    yield "logger", change(BROKER_LOGGER, "1", ("kafka", SET, "INFO")), 1
    yield "client metrics", change(CLIENT_METRICS, "sub", ("interval.ms", SET, "10000"), ("metrics", SET, "a,b")), 1
    yield "client metrics invalid", change(CLIENT_METRICS, "sub", ("interval.ms", SET, "10")), 1
    yield "client metrics unknown key", change(CLIENT_METRICS, "sub", ("no.such", SET, "10")), 1
    yield "client metrics nameless", change(CLIENT_METRICS, "", ("interval.ms", SET, "10000")), 1
    yield "client metrics append", change(CLIENT_METRICS, "sub", ("metrics", APPEND, "c")), 1
    yield "client metrics match", change(CLIENT_METRICS, "sub", ("match", SET, "client_id=x")), 1
    yield "client metrics bad match", change(CLIENT_METRICS, "sub", ("match", SET, "nonsense")), 1
    yield "group", change(GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")), 1
    yield "group unknown key", change(GROUP, "g", ("no.such", SET, "50000")), 1
    yield "group invalid", change(GROUP, "g", ("consumer.session.timeout.ms", SET, "x")), 1
    yield "group out of range", change(GROUP, "g", ("consumer.session.timeout.ms", SET, "5")), 1
    yield "group nameless", change(GROUP, "", ("consumer.session.timeout.ms", SET, "50000")), 1
    yield "replace", replace(TOPIC, "orders", segment_ms="700000", cleanup_policy="delete"), 2
    yield "replace with nothing", replace(TOPIC, "old"), 2
    yield "replace invalid", replace(TOPIC, "orders", segment_ms="x"), 2
    yield "replace null", replace(TOPIC, "orders", segment_ms=None), 2
    yield "replace unknown topic", replace(TOPIC, "nothing", segment_ms="5000"), 2
    yield "replace default broker", replace(BROKER, "", message_max_bytes="3000000"), 2
    two = change(TOPIC, "orders", ("segment.ms", SET, "1000"))
    two.resources.append(two.resources[0])
    yield "one resource twice", two, 1
    mixed = change(TOPIC, "orders", ("segment.ms", SET, "800000"))
    mixed.resources += change(TOPIC, "nothing", ("segment.ms", SET, "1000")).resources
    yield "one good one bad resource", mixed, 1


def feature_cases() -> Iterator[Case]:
    yield "feature unknown", feature("no.such", 1), 1
    yield "feature too high", feature("group.version", 9), 1
    yield "feature same", feature("group.version", 1), 1
    yield "feature down unsafe flag missing", feature("group.version", 0), 1
    yield "feature down validate", feature("streams.version", 0, 2, validate_only=True), 1
    yield "feature down", feature("streams.version", 0, 2), 1
    yield "feature up", feature("streams.version", 1), 1
    yield "feature negative", feature("streams.version", -1), 1
    yield "feature bad type", feature("streams.version", 0, 7), 1
    yield "feature v2 error", feature("no.such", 1), 2
    yield "feature v2 fine", feature("streams.version", 1), 2
    yield "metadata too high", feature("metadata.version", 31), 1
    yield "metadata too low", feature("metadata.version", 3, 3), 1
    yield "metadata same", feature("metadata.version", 30), 1
    yield "metadata down", feature("metadata.version", 29, 2), 1
    yield "metadata down wrong type", feature("metadata.version", 29, 1), 1
    yield "metadata unsafe down", feature("metadata.version", 29, 3), 1
    yield "kraft same", feature("kraft.version", 1), 1
    yield "kraft down", feature("kraft.version", 0, 2), 1
    twice = feature("streams.version", 1)
    twice.feature_updates.append(FeatureUpdateKey(feature="streams.version", max_version_level=0, upgrade_type=2))
    yield "feature twice", twice, 1
    mixed = feature("streams.version", 0, 2)
    mixed.feature_updates.append(FeatureUpdateKey(feature="no.such", max_version_level=1, upgrade_type=1))
    yield "feature one good one bad", mixed, 1
    yield "feature one good one bad v2", mixed, 2
    old = UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey(feature="group.version", max_version_level=0, allow_downgrade=True)]
    )
    yield "feature v0 down", old, 0
    yield "transaction down", feature("transaction.version", 1, 2), 1
    yield "transaction up", feature("transaction.version", 2), 1
    yield "elr down", feature("eligible.leader.replicas.version", 0, 2), 1
    yield "elr up", feature("eligible.leader.replicas.version", 1), 1
    yield "empty features", UpdateFeaturesRequest(feature_updates=[]), 1


def elect_twice(name: str, first: int, second: int) -> ElectLeadersRequest:
    named = [TopicPartitions(topic=name, partitions=[index]) for index in (first, second)]
    return ElectLeadersRequest(election_type=0, topic_partitions=named)


def leader_cases() -> Iterator[Case]:
    nothing = ReassignableTopic(name="orders", partitions=[])
    yield "elect preferred", elect(0, {"orders": [0, 1]}), 2
    yield "elect unclean", elect(1, {"orders": [0]}), 2
    yield "elect all", elect(0, None), 2
    yield "elect all unclean", elect(1, None), 2
    yield "elect unknown topic", elect(0, {"nothing": [0]}), 2
    yield "elect unknown partition", elect(0, {"orders": [99]}), 2
    yield "elect bad type", elect(5, {"orders": [0]}), 2
    yield "elect a topic twice", elect_twice("orders", 0, 1), 2
    yield "elect v0", ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="orders", partitions=[0])]), 0
    yield "reassign to the same", reassign("orders", 0, [1]), 1
    yield "reassign to unknown", reassign("orders", 0, [2]), 1
    yield "reassign to two", reassign("orders", 0, [1, 2]), 1
    yield "reassign to nobody", reassign("orders", 0, []), 1
    yield "reassign twice on one", reassign("orders", 0, [1, 1]), 1
    yield "reassign negative", reassign("orders", 0, [-1]), 1
    yield "cancel nothing", reassign("orders", 0, None), 1
    yield "reassign unknown topic", reassign("nothing", 0, [1]), 1
    yield "reassign unknown partition", reassign("orders", 99, [1]), 1
    yield "reassign factor kept", reassign("orders", 0, [1, 2], change_factor=False), 1
    yield "reassign nothing", AlterPartitionReassignmentsRequest(topics=[]), 1
    yield "reassign no partition", AlterPartitionReassignmentsRequest(topics=[nothing]), 1
    yield "reassign v0", reassign("orders", 0, [1]), 0
    yield "list reassignments", ListPartitionReassignmentsRequest(), 0
    named = [ListPartitionReassignmentsTopics(name="orders", partition_indexes=[0])]
    yield "list named reassignments", ListPartitionReassignmentsRequest(topics=named), 0
    unknown = [ListPartitionReassignmentsTopics(name="nothing", partition_indexes=[0])]
    yield "list unknown reassignments", ListPartitionReassignmentsRequest(topics=unknown), 0


def broker_cases() -> Iterator[Case]:
    yield "ids of an unknown broker", AllocateProducerIdsRequest(broker_id=9, broker_epoch=1), 0
    yield "ids of an old epoch", AllocateProducerIdsRequest(broker_id=1, broker_epoch=1), 0
    yield "unregister unknown", UnregisterBrokerRequest(broker_id=9), 0


def delete_cases() -> Iterator[Case]:
    yield "delete", delete_names("good"), 6
    yield "delete again", delete_names("good"), 6
    yield "delete twice", delete_names("once", "once"), 6
    yield "delete old version", DeleteTopicsRequest(topic_names=["old", "nothing"], timeout_ms=1000), 5
    yield "delete unknown id", delete_ids(b"\x40" * 16), 6
    yield "delete zero id", delete_ids(ZERO_UUID), 6
    both = DeleteTopicsRequest(topics=[DeleteTopicState(name="orders", topic_id=b"\x40" * 16)], timeout_ms=1000)
    yield "delete by both", both, 6
    yield "delete empty name", delete_names(""), 6
    yield "delete metadata", delete_names("__cluster_metadata"), 6
    yield "recreate", create(topic("good", 2, 1)), 7


def all_cases() -> Iterator[Case]:
    yield from create_topic_cases()
    yield from partition_cases()
    yield from config_cases()
    yield from leader_cases()
    yield from broker_cases()
    yield from delete_cases()
    yield from feature_cases()
