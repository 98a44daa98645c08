"""DescribeTopicPartitions (key 75) describes the partitions of topics page by page, with eligible leaders (KIP-966)."""

from __future__ import annotations

from mainstem.protocol.schema import Bool, Int16, Int32, Message, Str, Struct, Uuid, field


class TopicRequest(Struct):
    name: Str = field("0+")


class Cursor(Struct):
    topic_name: Str = field("0+")
    partition_index: Int32 = field("0+")


class DescribeTopicPartitionsRequest(Message, api_key=75, versions="0", flexible="0+"):
    topics: list[TopicRequest] = field("0+")
    response_partition_limit: Int32 = field("0+", default=2000)
    cursor: Cursor | None = field("0+", default=None)


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: Int16 = field("0+")
    partition_index: Int32 = field("0+")
    leader_id: Int32 = field("0+")
    leader_epoch: Int32 = field("0+", default=-1, ignorable=True)
    replica_nodes: list[Int32] = field("0+")
    isr_nodes: list[Int32] = field("0+")
    eligible_leader_replicas: list[Int32] | None = field("0+", default=None)
    last_known_elr: list[Int32] | None = field("0+", default=None)
    offline_replicas: list[Int32] = field("0+", ignorable=True)


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: Int16 = field("0+")
    name: Str | None = field("0+")
    topic_id: Uuid = field("0+", ignorable=True)
    is_internal: Bool = field("0+", default=False, ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = field("0+")
    topic_authorized_operations: Int32 = field("0+", default=-0x80000000)


class DescribeTopicPartitionsResponse(Message, api_key=75, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+", default=0, ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = field("0+")
    next_cursor: Cursor | None = field("0+", default=None)
