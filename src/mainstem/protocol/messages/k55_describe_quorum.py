"""DescribeQuorum (key 55) describes the metadata quorum (KIP-595)."""

from __future__ import annotations

from mainstem.protocol.schema import ZERO_UUID, Int16, Int32, Int64, Message, Str, Struct, Uint16, Uuid, field


class PartitionData(Struct):
    partition_index: Int32 = field("0+")


class TopicData(Struct):
    topic_name: Str = field("0+")
    partitions: list[PartitionData] = field("0+")


class DescribeQuorumRequest(Message, api_key=55, versions="0-2", flexible="0+"):
    topics: list[TopicData] = field("0+")


class ReplicaState(Struct):
    replica_id: Int32 = field("0+")
    replica_directory_id: Uuid = field("2+", default=ZERO_UUID)
    log_end_offset: Int64 = field("0+")
    last_fetch_timestamp: Int64 = field("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: Int64 = field("1+", default=-1, ignorable=True)


class ResponsePartitionData(Struct):
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: Str | None = field("2+", default="", ignorable=True)
    leader_id: Int32 = field("0+")
    leader_epoch: Int32 = field("0+")
    high_watermark: Int64 = field("0+")
    current_voters: list[ReplicaState] = field("0+")
    observers: list[ReplicaState] = field("0+")


class ResponseTopicData(Struct):
    topic_name: Str = field("0+")
    partitions: list[ResponsePartitionData] = field("0+")


class Listener(Struct):
    name: Str = field("2+")
    host: Str = field("2+")
    port: Uint16 = field("2+")


class Node(Struct):
    node_id: Int32 = field("2+")
    listeners: list[Listener] = field("2+")


class DescribeQuorumResponse(Message, api_key=55, versions="0-2", flexible="0+"):
    error_code: Int16 = field("0+")
    error_message: Str | None = field("2+", default="", ignorable=True)
    topics: list[ResponseTopicData] = field("0+")
    nodes: list[Node] = field("2+", default_factory=list)
