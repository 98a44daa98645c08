"""LeaveGroup (key 13) leaves a classic group; several members at once since v3 (KIP-345)."""

from __future__ import annotations

from mainstem.protocol.schema import Int16, Int32, Message, Str, Struct, field


class MemberIdentity(Struct):
    member_id: Str = field("3+")
    group_instance_id: Str | None = field("3+", default=None)
    reason: Str | None = field("5+", default=None, ignorable=True)


class LeaveGroupRequest(Message, api_key=13, versions="0-5", flexible="4+"):
    group_id: Str = field("0+")
    member_id: Str = field("0-2", default="")
    members: list[MemberIdentity] = field("3+", default_factory=list)


class MemberResponse(Struct):
    member_id: Str = field("3+")
    group_instance_id: Str | None = field("3+")
    error_code: Int16 = field("3+")


class LeaveGroupResponse(Message, api_key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field("0+")
    members: list[MemberResponse] = field("3+", default_factory=list)
