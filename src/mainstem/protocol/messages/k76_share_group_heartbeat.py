"""ShareGroupHeartbeat (key 76) joins, keeps alive and leaves a share group (KIP-932)."""

from __future__ import annotations

from mainstem.protocol.schema import Int16, Int32, Message, Str, Struct, Uuid, field


class ShareGroupHeartbeatRequest(Message, api_key=76, versions="1", flexible="0+"):
    group_id: Str = field("0+")
    member_id: Str = field("0+")
    member_epoch: Int32 = field("0+")
    rack_id: Str | None = field("0+", default=None)
    subscribed_topic_names: list[Str] | None = field("0+", default=None)


class TopicPartitions(Struct):
    topic_id: Uuid = field("0+")
    partitions: list[Int32] = field("0+")


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = field("0+")


class ShareGroupHeartbeatResponse(Message, api_key=76, versions="1", flexible="0+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+", default=None)
    member_id: Str | None = field("0+", default=None)
    member_epoch: Int32 = field("0+")
    heartbeat_interval_ms: Int32 = field("0+")
    assignment: Assignment | None = field("0+", default=None)
