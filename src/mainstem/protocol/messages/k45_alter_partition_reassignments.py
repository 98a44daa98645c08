"""AlterPartitionReassignments (key 45) starts, changes or cancels the reassignment of partitions (KIP-455)."""

from __future__ import annotations

from mainstem.protocol.schema import Bool, Int16, Int32, Message, Str, Struct, field


class ReassignablePartition(Struct):
    partition_index: Int32 = field("0+")
    replicas: list[Int32] | None = field("0+", default=None)


class ReassignableTopic(Struct):
    name: Str = field("0+")
    partitions: list[ReassignablePartition] = field("0+")


class AlterPartitionReassignmentsRequest(Message, api_key=45, versions="0-1", flexible="0+"):
    timeout_ms: Int32 = field("0+", default=60000)
    allow_replication_factor_change: Bool = field("1+", default=True)
    topics: list[ReassignableTopic] = field("0+")


class ReassignablePartitionResponse(Struct):
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+")


class ReassignableTopicResponse(Struct):
    name: Str = field("0+")
    partitions: list[ReassignablePartitionResponse] = field("0+")


class AlterPartitionReassignmentsResponse(Message, api_key=45, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    allow_replication_factor_change: Bool = field("1+", default=True, ignorable=True)
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+")
    responses: list[ReassignableTopicResponse] = field("0+")
