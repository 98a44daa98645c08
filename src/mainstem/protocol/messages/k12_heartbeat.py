"""Heartbeat (key 12) keeps a member of a classic group alive."""

from __future__ import annotations

from mainstem.protocol.schema import Int16, Int32, Message, Str, field


class HeartbeatRequest(Message, api_key=12, versions="0-4", flexible="4+"):
    group_id: Str = field("0+")
    generation_id: Int32 = field("0+")
    member_id: Str = field("0+")
    group_instance_id: Str | None = field("3+", default=None)


class HeartbeatResponse(Message, api_key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field("0+")
