"""DescribeGroups (key 15) describes classic groups."""

from __future__ import annotations

from mainstem.protocol.schema import Bool, Bytes, Int16, Int32, Message, Str, Struct, field


class DescribeGroupsRequest(Message, api_key=15, versions="0-6", flexible="5+"):
    groups: list[Str] = field("0+")
    include_authorized_operations: Bool = field("3+", default=False)


class DescribedGroupMember(Struct):
    member_id: Str = field("0+")
    group_instance_id: Str | None = field("4+", default=None, ignorable=True)
    client_id: Str = field("0+")
    client_host: Str = field("0+")
    member_metadata: Bytes = field("0+")
    member_assignment: Bytes = field("0+")


class DescribedGroup(Struct):
    error_code: Int16 = field("0+")
    error_message: Str | None = field("6+", default=None)
    group_id: Str = field("0+")
    group_state: Str = field("0+")
    protocol_type: Str = field("0+")
    protocol_data: Str = field("0+")
    members: list[DescribedGroupMember] = field("0+")
    authorized_operations: Int32 = field("3+", default=-0x80000000)


class DescribeGroupsResponse(Message, api_key=15, versions="0-6", flexible="5+"):
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    groups: list[DescribedGroup] = field("0+")
