"""The records of `__consumer_offsets` for offsets, classic groups and consumer groups (KIP-848).

A key is its type (int16, the `api_key` here) and the body in version 0; a value is its version (int16) and the body;
a null value takes the key back. See `record_framing`.
"""

from __future__ import annotations

from mainstem.protocol.schema import ZERO_UUID, Bytes, Int8, Int32, Int64, Message, Str, Struct, Uuid, field


class LegacyOffsetCommitKey(Message, api_key=0, versions="0", flexible="none"):
    group: Str = field("0")
    topic: Str = field("0")
    partition: Int32 = field("0")


class LegacyOffsetCommitValue(Message, api_key=0, versions="0", flexible="none"):
    offset: Int64 = field("0")
    metadata: Str = field("0")
    commit_timestamp: Int64 = field("0")


class OffsetCommitKey(Message, api_key=1, versions="0", flexible="none"):
    group: Str = field("0")
    topic: Str = field("0")
    partition: Int32 = field("0")


class OffsetCommitValue(Message, api_key=1, versions="0-4", flexible="4+"):
    offset: Int64 = field("0+")
    leader_epoch: Int32 = field("3+", default=-1, ignorable=True)
    metadata: Str = field("0+")
    commit_timestamp: Int64 = field("0+")
    expire_timestamp: Int64 = field("1", default=-1, ignorable=True)
    topic_id: Uuid = field("4+", default=ZERO_UUID, tag=0, ignorable=True)


class GroupMetadataKey(Message, api_key=2, versions="0", flexible="none"):
    group: Str = field("0")


class MemberMetadata(Struct):
    member_id: Str = field("0+")
    group_instance_id: Str | None = field("3+", default=None, ignorable=True)
    client_id: Str = field("0+")
    client_host: Str = field("0+")
    rebalance_timeout: Int32 = field("1+", default=-1, ignorable=True)
    session_timeout: Int32 = field("0+")
    subscription: Bytes = field("0+")
    assignment: Bytes = field("0+")


class GroupMetadataValue(Message, api_key=2, versions="0-4", flexible="4+"):
    protocol_type: Str = field("0+")
    generation: Int32 = field("0+")
    protocol: Str | None = field("0+")
    leader: Str | None = field("0+")
    current_state_timestamp: Int64 = field("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = field("0+")


class ConsumerGroupMetadataKey(Message, api_key=3, versions="0", flexible="none"):
    group_id: Str = field("0")


class ConsumerGroupMetadataValue(Message, api_key=3, versions="0", flexible="0+"):
    epoch: Int32 = field("0+")
    metadata_hash: Int64 = field("0+", default=0, tag=0)


class ConsumerGroupPartitionMetadataKey(Message, api_key=4, versions="0", flexible="none"):
    group_id: Str = field("0")


class PartitionMetadata(Struct):
    partition: Int32 = field("0+")
    racks: list[Str] = field("0+")


class TopicMetadata(Struct):
    topic_id: Uuid = field("0+")
    topic_name: Str = field("0+")
    num_partitions: Int32 = field("0+")
    partition_metadata: list[PartitionMetadata] = field("0+")


class ConsumerGroupPartitionMetadataValue(Message, api_key=4, versions="0", flexible="0+"):
    topics: list[TopicMetadata] = field("0+")


class ConsumerGroupMemberMetadataKey(Message, api_key=5, versions="0", flexible="none"):
    group_id: Str = field("0")
    member_id: Str = field("0")


class ClassicProtocol(Struct):
    name: Str = field("0+")
    metadata: Bytes = field("0+")


class ClassicMemberMetadata(Struct):
    session_timeout_ms: Int32 = field("0+", default=0)
    supported_protocols: list[ClassicProtocol] = field("0+", default_factory=list)


class ConsumerGroupMemberMetadataValue(Message, api_key=5, versions="0", flexible="0+"):
    instance_id: Str | None = field("0+")
    rack_id: Str | None = field("0+")
    client_id: Str = field("0+")
    client_host: Str = field("0+")
    subscribed_topic_names: list[Str] = field("0+")
    subscribed_topic_regex: Str | None = field("0+")
    rebalance_timeout_ms: Int32 = field("0+", default=-1)
    server_assignor: Str | None = field("0+")
    # Kafka's schema says null, but not as a string, which leaves the empty default: null is written out.
    classic_member_metadata: ClassicMemberMetadata | None = field("0+", default_factory=ClassicMemberMetadata, tag=0)


class ConsumerGroupTargetAssignmentMetadataKey(Message, api_key=6, versions="0", flexible="none"):
    group_id: Str = field("0")


class ConsumerGroupTargetAssignmentMetadataValue(Message, api_key=6, versions="0", flexible="0+"):
    assignment_epoch: Int32 = field("0+")
    assignment_timestamp: Int64 = field("0+", default=0, tag=0, ignorable=True)


class ConsumerGroupTargetAssignmentMemberKey(Message, api_key=7, versions="0", flexible="none"):
    group_id: Str = field("0")
    member_id: Str = field("0")


class TopicPartition(Struct):
    topic_id: Uuid = field("0+")
    partitions: list[Int32] = field("0+")


class ConsumerGroupTargetAssignmentMemberValue(Message, api_key=7, versions="0", flexible="0+"):
    topic_partitions: list[TopicPartition] = field("0+")


class ConsumerGroupCurrentMemberAssignmentKey(Message, api_key=8, versions="0", flexible="none"):
    group_id: Str = field("0")
    member_id: Str = field("0")


class TopicPartitions(Struct):
    topic_id: Uuid = field("0+")
    partitions: list[Int32] = field("0+")
    # Kafka's schema says null, but not as a string, which leaves the empty default: null is written out.
    assignment_epochs: list[Int32] | None = field("0+", default_factory=list, tag=0)


class ConsumerGroupCurrentMemberAssignmentValue(Message, api_key=8, versions="0", flexible="0+"):
    member_epoch: Int32 = field("0+")
    previous_member_epoch: Int32 = field("0+")
    state: Int8 = field("0+")
    assigned_partitions: list[TopicPartitions] = field("0+")
    partitions_pending_revocation: list[TopicPartitions] = field("0+")


class ConsumerGroupRegularExpressionKey(Message, api_key=16, versions="0", flexible="none"):
    group_id: Str = field("0")
    regular_expression: Str = field("0")


class ConsumerGroupRegularExpressionValue(Message, api_key=16, versions="0", flexible="0+"):
    topics: list[Str] = field("0+")
    version: Int64 = field("0+")
    timestamp: Int64 = field("0+")
