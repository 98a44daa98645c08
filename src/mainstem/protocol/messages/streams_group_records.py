"""The records of `__consumer_offsets` for streams groups (KIP-1071). Framed as in `group_records`."""

from __future__ import annotations

from mainstem.protocol.schema import Int8, Int16, Int32, Int64, Message, Str, Struct, Uint16, field


class StreamsGroupMetadataKey(Message, api_key=17, versions="0", flexible="none"):
    group_id: Str = field("0")


class LastAssignmentConfig(Struct):
    key: Str = field("0+")
    value: Str = field("0+")


class StreamsGroupMetadataValue(Message, api_key=17, versions="0", flexible="0+"):
    epoch: Int32 = field("0+")
    metadata_hash: Int64 = field("0+")
    validated_topology_epoch: Int32 = field("0+", default=-1, tag=0)
    # Kafka's schema says null, but not as a string, which leaves the empty default: null is written out.
    last_assignment_configs: list[LastAssignmentConfig] | None = field("0+", default_factory=list, tag=1)


class StreamsGroupMemberMetadataKey(Message, api_key=19, versions="0", flexible="none"):
    group_id: Str = field("0")
    member_id: Str = field("0")


class Endpoint(Struct):
    host: Str = field("0+")
    port: Uint16 = field("0+")


class KeyValue(Struct):
    key: Str = field("0+")
    value: Str = field("0+")


class StreamsGroupMemberMetadataValue(Message, api_key=19, versions="0", flexible="0+"):
    instance_id: Str | None = field("0+")
    rack_id: Str | None = field("0+")
    client_id: Str = field("0+")
    client_host: Str = field("0+")
    rebalance_timeout_ms: Int32 = field("0+", default=-1)
    topology_epoch: Int32 = field("0+")
    process_id: Str = field("0+")
    user_endpoint: Endpoint | None = field("0+", default=None)
    client_tags: list[KeyValue] = field("0+")


class StreamsGroupTargetAssignmentMetadataKey(Message, api_key=20, versions="0", flexible="none"):
    group_id: Str = field("0")


class StreamsGroupTargetAssignmentMetadataValue(Message, api_key=20, versions="0", flexible="0+"):
    assignment_epoch: Int32 = field("0+")
    assignment_timestamp: Int64 = field("0+", default=0, tag=0, ignorable=True)


class StreamsGroupTargetAssignmentMemberKey(Message, api_key=21, versions="0", flexible="none"):
    group_id: Str = field("0")
    member_id: Str = field("0")


class TaskIds(Struct):
    subtopology_id: Str = field("0+")
    partitions: list[Int32] = field("0+")


class StreamsGroupTargetAssignmentMemberValue(Message, api_key=21, versions="0", flexible="0+"):
    active_tasks: list[TaskIds] = field("0+")
    standby_tasks: list[TaskIds] = field("0+")
    warmup_tasks: list[TaskIds] = field("0+")


class StreamsGroupCurrentMemberAssignmentKey(Message, api_key=22, versions="0", flexible="none"):
    group_id: Str = field("0")
    member_id: Str = field("0")


class StreamsGroupCurrentMemberAssignmentTaskIds(Struct):
    subtopology_id: Str = field("0+")
    partitions: list[Int32] = field("0+")
    # Kafka's schema says null, but not as a string, which leaves the empty default: null is written out.
    assignment_epochs: list[Int32] | None = field("0+", default_factory=list, tag=0)


class StreamsGroupCurrentMemberAssignmentValue(Message, api_key=22, versions="0", flexible="0+"):
    member_epoch: Int32 = field("0+")
    previous_member_epoch: Int32 = field("0+")
    state: Int8 = field("0+")
    active_tasks: list[StreamsGroupCurrentMemberAssignmentTaskIds] = field("0+")
    standby_tasks: list[StreamsGroupCurrentMemberAssignmentTaskIds] = field("0+")
    warmup_tasks: list[StreamsGroupCurrentMemberAssignmentTaskIds] = field("0+")
    active_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentTaskIds] = field("0+")
    standby_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentTaskIds] = field("0+")
    warmup_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentTaskIds] = field("0+")


class StreamsGroupTopologyKey(Message, api_key=23, versions="0", flexible="none"):
    group_id: Str = field("0")


class TopicConfig(Struct):
    key: Str = field("0+")
    value: Str = field("0+")


class TopicInfo(Struct):
    name: Str = field("0+")
    partitions: Int32 = field("0+")
    replication_factor: Int16 = field("0+")
    topic_configs: list[TopicConfig] = field("0+")


class CopartitionGroup(Struct):
    source_topics: list[Int16] = field("0+")
    source_topic_regex: list[Int16] = field("0+")
    repartition_source_topics: list[Int16] = field("0+")


class Subtopology(Struct):
    subtopology_id: Str = field("0+")
    source_topics: list[Str] = field("0+")
    source_topic_regex: list[Str] = field("0+")
    state_changelog_topics: list[TopicInfo] = field("0+")
    repartition_sink_topics: list[Str] = field("0+")
    repartition_source_topics: list[TopicInfo] = field("0+")
    copartition_groups: list[CopartitionGroup] = field("0+")


class StreamsGroupTopologyValue(Message, api_key=23, versions="0", flexible="0+"):
    epoch: Int32 = field("0+")
    subtopologies: list[Subtopology] = field("0+")
