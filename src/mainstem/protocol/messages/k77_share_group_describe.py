"""ShareGroupDescribe (key 77) describes share groups (KIP-932)."""

from __future__ import annotations

from mainstem.protocol.schema import Bool, Int16, Int32, Message, Str, Struct, Uuid, field


class ShareGroupDescribeRequest(Message, api_key=77, versions="1", flexible="0+"):
    group_ids: list[Str] = field("0+")
    include_authorized_operations: Bool = field("0+")


class TopicPartitions(Struct):
    topic_id: Uuid = field("0+")
    topic_name: Str = field("0+")
    partitions: list[Int32] = field("0+")


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = field("0+")


class Member(Struct):
    member_id: Str = field("0+")
    rack_id: Str | None = field("0+", default=None)
    member_epoch: Int32 = field("0+")
    client_id: Str = field("0+")
    client_host: Str = field("0+")
    subscribed_topic_names: list[Str] = field("0+")
    assignment: Assignment = field("0+")


class DescribedGroup(Struct):
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+", default=None)
    group_id: Str = field("0+")
    group_state: Str = field("0+")
    group_epoch: Int32 = field("0+")
    assignment_epoch: Int32 = field("0+")
    assignor_name: Str = field("0+")
    members: list[Member] = field("0+")
    authorized_operations: Int32 = field("0+", default=-0x80000000)


class ShareGroupDescribeResponse(Message, api_key=77, versions="1", flexible="0+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    groups: list[DescribedGroup] = field("0+")
