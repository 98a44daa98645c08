"""AssignReplicasToDirs (key 73) tells the controller which log directory holds which replica (KIP-858)."""

from __future__ import annotations

from mainstem.protocol.schema import Int16, Int32, Int64, Message, Struct, Uuid, field


class PartitionData(Struct):
    partition_index: Int32 = field("0+")


class TopicData(Struct):
    topic_id: Uuid = field("0+")
    partitions: list[PartitionData] = field("0+")


class DirectoryData(Struct):
    id: Uuid = field("0+")
    topics: list[TopicData] = field("0+")


class AssignReplicasToDirsRequest(Message, api_key=73, versions="0", flexible="0+"):
    broker_id: Int32 = field("0+")
    broker_epoch: Int64 = field("0+", default=-1)
    directories: list[DirectoryData] = field("0+")


class ResponsePartitionData(Struct):
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")


class ResponseTopicData(Struct):
    topic_id: Uuid = field("0+")
    partitions: list[ResponsePartitionData] = field("0+")


class ResponseDirectoryData(Struct):
    id: Uuid = field("0+")
    topics: list[ResponseTopicData] = field("0+")


class AssignReplicasToDirsResponse(Message, api_key=73, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    directories: list[ResponseDirectoryData] = field("0+")
