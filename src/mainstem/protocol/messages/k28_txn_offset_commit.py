"""TxnOffsetCommit (key 28) stores a group's positions as part of a transaction."""

from __future__ import annotations

from mainstem.protocol.schema import Int16, Int32, Int64, Message, Str, Struct, field


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: Int32 = field("0+")
    committed_offset: Int64 = field("0+")
    committed_leader_epoch: Int32 = field("2+", default=-1, ignorable=True)
    committed_metadata: Str | None = field("0+")


class TxnOffsetCommitRequestTopic(Struct):
    name: Str = field("0+")
    partitions: list[TxnOffsetCommitRequestPartition] = field("0+")


class TxnOffsetCommitRequest(Message, api_key=28, versions="0-5", flexible="3+"):
    transactional_id: Str = field("0+")
    group_id: Str = field("0+")
    producer_id: Int64 = field("0+")
    producer_epoch: Int16 = field("0+")
    generation_id: Int32 = field("3+", default=-1)
    member_id: Str = field("3+", default="")
    group_instance_id: Str | None = field("3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = field("0+")


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")


class TxnOffsetCommitResponseTopic(Struct):
    name: Str = field("0+")
    partitions: list[TxnOffsetCommitResponsePartition] = field("0+")


class TxnOffsetCommitResponse(Message, api_key=28, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    topics: list[TxnOffsetCommitResponseTopic] = field("0+")
