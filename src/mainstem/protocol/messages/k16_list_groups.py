"""ListGroups (key 16) lists groups, by state since v4 and by type since v5."""

from __future__ import annotations

from mainstem.protocol.schema import Int16, Int32, Message, Str, Struct, field


class ListGroupsRequest(Message, api_key=16, versions="0-5", flexible="3+"):
    states_filter: list[Str] = field("4+", default_factory=list)
    types_filter: list[Str] = field("5+", default_factory=list)


class ListedGroup(Struct):
    group_id: Str = field("0+")
    protocol_type: Str = field("0+")
    group_state: Str = field("4+", default="", ignorable=True)
    group_type: Str = field("5+", default="", ignorable=True)


class ListGroupsResponse(Message, api_key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field("0+")
    groups: list[ListedGroup] = field("0+")
