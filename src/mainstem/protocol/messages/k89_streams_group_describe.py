"""StreamsGroupDescribe (key 89) describes streams groups (KIP-1071)."""

from __future__ import annotations

from mainstem.protocol.schema import Bool, Int16, Int32, Int64, Message, Str, Struct, Uint16, field


class StreamsGroupDescribeRequest(Message, api_key=89, versions="0", flexible="0+"):
    group_ids: list[Str] = field("0+")
    include_authorized_operations: Bool = field("0+")


class KeyValue(Struct):
    key: Str = field("0+")
    value: Str = field("0+")


class TopicInfo(Struct):
    name: Str = field("0+")
    partitions: Int32 = field("0+")
    replication_factor: Int16 = field("0+")
    topic_configs: list[KeyValue] = field("0+")


class Subtopology(Struct):
    subtopology_id: Str = field("0+")
    source_topics: list[Str] = field("0+")
    repartition_sink_topics: list[Str] = field("0+")
    state_changelog_topics: list[TopicInfo] = field("0+")
    repartition_source_topics: list[TopicInfo] = field("0+")


class Topology(Struct):
    epoch: Int32 = field("0+")
    subtopologies: list[Subtopology] | None = field("0+", default=None)


class Endpoint(Struct):
    host: Str = field("0+")
    port: Uint16 = field("0+")


class TaskOffset(Struct):
    subtopology_id: Str = field("0+")
    partition: Int32 = field("0+")
    offset: Int64 = field("0+")


class TaskIds(Struct):
    subtopology_id: Str = field("0+")
    partitions: list[Int32] = field("0+")


class Assignment(Struct):
    active_tasks: list[TaskIds] = field("0+")
    standby_tasks: list[TaskIds] = field("0+")
    warmup_tasks: list[TaskIds] = field("0+")


class Member(Struct):
    member_id: Str = field("0+")
    member_epoch: Int32 = field("0+")
    instance_id: Str | None = field("0+", default=None)
    rack_id: Str | None = field("0+", default=None)
    client_id: Str = field("0+")
    client_host: Str = field("0+")
    topology_epoch: Int32 = field("0+")
    process_id: Str = field("0+")
    user_endpoint: Endpoint | None = field("0+", default=None)
    client_tags: list[KeyValue] = field("0+")
    task_offsets: list[TaskOffset] = field("0+")
    task_end_offsets: list[TaskOffset] = field("0+")
    assignment: Assignment = field("0+")
    target_assignment: Assignment = field("0+")
    is_classic: Bool = field("0+")


class DescribedGroup(Struct):
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+", default=None)
    group_id: Str = field("0+")
    group_state: Str = field("0+")
    group_epoch: Int32 = field("0+")
    assignment_epoch: Int32 = field("0+")
    topology: Topology | None = field("0+", default=None)
    members: list[Member] = field("0+")
    authorized_operations: Int32 = field("0+", default=-0x80000000)


class StreamsGroupDescribeResponse(Message, api_key=89, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    groups: list[DescribedGroup] = field("0+")
