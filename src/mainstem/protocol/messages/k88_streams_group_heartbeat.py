"""StreamsGroupHeartbeat (key 88) joins, keeps alive and leaves a streams group (KIP-1071)."""

from __future__ import annotations

from mainstem.protocol.schema import Bool, Int8, Int16, Int32, Int64, Message, Str, Struct, Uint16, field


class KeyValue(Struct):
    key: Str = field("0+")
    value: Str = field("0+")


class TopicInfo(Struct):
    name: Str = field("0+")
    partitions: Int32 = field("0+")
    replication_factor: Int16 = field("0+")
    topic_configs: list[KeyValue] = field("0+")


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


class Topology(Struct):
    epoch: Int32 = field("0+")
    subtopologies: list[Subtopology] = field("0+")


class TaskIds(Struct):
    subtopology_id: Str = field("0+")
    partitions: list[Int32] = field("0+")


class Endpoint(Struct):
    host: Str = field("0+")
    port: Uint16 = field("0+")


class TaskOffset(Struct):
    subtopology_id: Str = field("0+")
    partition: Int32 = field("0+")
    offset: Int64 = field("0+")


class StreamsGroupHeartbeatRequest(Message, api_key=88, versions="0", flexible="0+"):
    group_id: Str = field("0+")
    member_id: Str = field("0+")
    member_epoch: Int32 = field("0+")
    endpoint_information_epoch: Int32 = field("0+")
    instance_id: Str | None = field("0+", default=None)
    rack_id: Str | None = field("0+", default=None)
    rebalance_timeout_ms: Int32 = field("0+", default=-1)
    topology: Topology | None = field("0+", default=None)
    active_tasks: list[TaskIds] | None = field("0+", default=None)
    standby_tasks: list[TaskIds] | None = field("0+", default=None)
    warmup_tasks: list[TaskIds] | None = field("0+", default=None)
    process_id: Str | None = field("0+", default=None)
    user_endpoint: Endpoint | None = field("0+", default=None)
    client_tags: list[KeyValue] | None = field("0+", default=None)
    task_offsets: list[TaskOffset] | None = field("0+", default=None)
    task_end_offsets: list[TaskOffset] | None = field("0+", default=None)
    shutdown_application: Bool = field("0+", default=False)


class Status(Struct):
    status_code: Int8 = field("0+")
    status_detail: Str = field("0+")


class TopicPartition(Struct):
    topic: Str = field("0+")
    partitions: list[Int32] = field("0+")


class EndpointToPartitions(Struct):
    user_endpoint: Endpoint = field("0+")
    active_partitions: list[TopicPartition] = field("0+")
    standby_partitions: list[TopicPartition] = field("0+")


class StreamsGroupHeartbeatResponse(Message, api_key=88, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+", default=None)
    member_id: Str = field("0+")
    member_epoch: Int32 = field("0+")
    heartbeat_interval_ms: Int32 = field("0+")
    acceptable_recovery_lag: Int32 = field("0+")
    task_offset_interval_ms: Int32 = field("0+")
    status: list[Status] | None = field("0+")
    active_tasks: list[TaskIds] | None = field("0+", default=None)
    standby_tasks: list[TaskIds] | None = field("0+", default=None)
    warmup_tasks: list[TaskIds] | None = field("0+", default=None)
    endpoint_information_epoch: Int32 = field("0+")
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = field("0+", default=None)
