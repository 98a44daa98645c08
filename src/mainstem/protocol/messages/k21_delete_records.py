"""DeleteRecords (key 21) moves the start of partitions forward."""

from __future__ import annotations

from mainstem.protocol.schema import Int16, Int32, Int64, Message, Str, Struct, field


class DeleteRecordsPartition(Struct):
    partition_index: Int32 = field("0+")
    offset: Int64 = field("0+")


class DeleteRecordsTopic(Struct):
    name: Str = field("0+")
    partitions: list[DeleteRecordsPartition] = field("0+")


class DeleteRecordsRequest(Message, api_key=21, versions="0-2", flexible="2+"):
    topics: list[DeleteRecordsTopic] = field("0+")
    timeout_ms: Int32 = field("0+")


class DeleteRecordsPartitionResult(Struct):
    partition_index: Int32 = field("0+")
    low_watermark: Int64 = field("0+")
    error_code: Int16 = field("0+")


class DeleteRecordsTopicResult(Struct):
    name: Str = field("0+")
    partitions: list[DeleteRecordsPartitionResult] = field("0+")


class DeleteRecordsResponse(Message, api_key=21, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    topics: list[DeleteRecordsTopicResult] = field("0+")
