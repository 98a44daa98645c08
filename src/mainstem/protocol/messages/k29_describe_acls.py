"""DescribeAcls (key 29) lists access control entries that match a filter."""

from __future__ import annotations

from mainstem.protocol.schema import Int8, Int16, Int32, Message, Str, Struct, field


class DescribeAclsRequest(Message, api_key=29, versions="1-3", flexible="2+"):
    resource_type_filter: Int8 = field("0+")
    resource_name_filter: Str | None = field("0+")
    pattern_type_filter: Int8 = field("1+", default=3)
    principal_filter: Str | None = field("0+")
    host_filter: Str | None = field("0+")
    operation: Int8 = field("0+")
    permission_type: Int8 = field("0+")


class AclDescription(Struct):
    principal: Str = field("0+")
    host: Str = field("0+")
    operation: Int8 = field("0+")
    permission_type: Int8 = field("0+")


class DescribeAclsResource(Struct):
    resource_type: Int8 = field("0+")
    resource_name: Str = field("0+")
    pattern_type: Int8 = field("1+", default=3)
    acls: list[AclDescription] = field("0+")


class DescribeAclsResponse(Message, api_key=29, versions="1-3", flexible="2+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+")
    resources: list[DescribeAclsResource] = field("0+")
