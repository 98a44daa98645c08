"""SyncGroup (key 14) hands the leader's assignment to the members of a classic group."""

from __future__ import annotations

from mainstem.protocol.schema import Bytes, Int16, Int32, Message, Str, Struct, field


class SyncGroupRequestAssignment(Struct):
    member_id: Str = field("0+")
    assignment: Bytes = field("0+")


class SyncGroupRequest(Message, api_key=14, versions="0-5", flexible="4+"):
    group_id: Str = field("0+")
    generation_id: Int32 = field("0+")
    member_id: Str = field("0+")
    group_instance_id: Str | None = field("3+", default=None)
    protocol_type: Str | None = field("5+", default=None, ignorable=True)
    protocol_name: Str | None = field("5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = field("0+")


class SyncGroupResponse(Message, api_key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field("0+")
    protocol_type: Str | None = field("5+", default=None, ignorable=True)
    protocol_name: Str | None = field("5+", default=None, ignorable=True)
    assignment: Bytes = field("0+")
