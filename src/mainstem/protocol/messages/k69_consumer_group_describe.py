"""ConsumerGroupDescribe (key 69) describes consumer groups of the new protocol (KIP-848)."""

from __future__ import annotations

from mainstem.protocol.schema import Bool, Int8, Int16, Int32, Message, Str, Struct, Uuid, field


class ConsumerGroupDescribeRequest(Message, api_key=69, versions="0-1", flexible="0+"):
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
    instance_id: Str | None = field("0+", default=None)
    rack_id: Str | None = field("0+", default=None)
    member_epoch: Int32 = field("0+")
    client_id: Str = field("0+")
    client_host: Str = field("0+")
    subscribed_topic_names: list[Str] = field("0+")
    subscribed_topic_regex: Str | None = field("0+", default=None)
    assignment: Assignment = field("0+")
    target_assignment: Assignment = field("0+")
    member_type: Int8 = field("1+", default=-1, ignorable=True)


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


class ConsumerGroupDescribeResponse(Message, api_key=69, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    groups: list[DescribedGroup] = field("0+")
