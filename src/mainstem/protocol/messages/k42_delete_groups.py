"""DeleteGroups (key 42) deletes empty groups."""

from __future__ import annotations

from mainstem.protocol.schema import Int16, Int32, Message, Str, Struct, field


class DeleteGroupsRequest(Message, api_key=42, versions="0-2", flexible="2+"):
    groups_names: list[Str] = field("0+")


class DeletableGroupResult(Struct):
    group_id: Str = field("0+")
    error_code: Int16 = field("0+")


class DeleteGroupsResponse(Message, api_key=42, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    results: list[DeletableGroupResult] = field("0+")
