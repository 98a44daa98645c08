"""DeleteShareGroupState (key 86) deletes the stored state of share partitions (KIP-932); between brokers."""

from __future__ import annotations

from mainstem.protocol.schema import Int16, Int32, Message, Str, Struct, Uuid, field


class PartitionData(Struct):
    partition: Int32 = field("0+")


class DeleteStateData(Struct):
    topic_id: Uuid = field("0+")
    partitions: list[PartitionData] = field("0+")


class DeleteShareGroupStateRequest(Message, api_key=86, versions="0", flexible="0+"):
    group_id: Str = field("0+")
    topics: list[DeleteStateData] = field("0+")


class PartitionResult(Struct):
    partition: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+", default=None)


class DeleteStateResult(Struct):
    topic_id: Uuid = field("0+")
    partitions: list[PartitionResult] = field("0+")


class DeleteShareGroupStateResponse(Message, api_key=86, versions="0", flexible="0+"):
    results: list[DeleteStateResult] = field("0+")
