"""JoinGroup (key 11) joins a classic group, or re-joins it."""

from __future__ import annotations

from mainstem.protocol.schema import Bool, Bytes, Int16, Int32, Message, Str, Struct, field


class JoinGroupRequestProtocol(Struct):
    name: Str = field("0+")
    metadata: Bytes = field("0+")


class JoinGroupRequest(Message, api_key=11, versions="0-9", flexible="6+"):
    group_id: Str = field("0+")
    session_timeout_ms: Int32 = field("0+")
    rebalance_timeout_ms: Int32 = field("1+", default=-1, ignorable=True)
    member_id: Str = field("0+")
    group_instance_id: Str | None = field("5+", default=None)
    protocol_type: Str = field("0+")
    protocols: list[JoinGroupRequestProtocol] = field("0+")
    reason: Str | None = field("8+", default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    member_id: Str = field("0+")
    group_instance_id: Str | None = field("5+", default=None, ignorable=True)
    metadata: Bytes = field("0+")


class JoinGroupResponse(Message, api_key=11, versions="0-9", flexible="6+"):
    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    error_code: Int16 = field("0+")
    generation_id: Int32 = field("0+", default=-1)
    protocol_type: Str | None = field("7+", default=None, ignorable=True)
    protocol_name: Str | None = field("0+", nullable="7+")
    leader: Str = field("0+")
    skip_assignment: Bool = field("9+", default=False)
    member_id: Str = field("0+")
    members: list[JoinGroupResponseMember] = field("0+")
