"""DeleteAcls (key 31) removes access control entries that match filters."""

from __future__ import annotations

from mainstem.protocol.schema import Int8, Int16, Int32, Message, Str, Struct, field


class DeleteAclsFilter(Struct):
    resource_type_filter: Int8 = field("0+")
    resource_name_filter: Str | None = field("0+")
    pattern_type_filter: Int8 = field("1+", default=3)
    principal_filter: Str | None = field("0+")
    host_filter: Str | None = field("0+")
    operation: Int8 = field("0+")
    permission_type: Int8 = field("0+")


class DeleteAclsRequest(Message, api_key=31, versions="1-3", flexible="2+"):
    filters: list[DeleteAclsFilter] = field("0+")


class DeleteAclsMatchingAcl(Struct):
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+")
    resource_type: Int8 = field("0+")
    resource_name: Str = field("0+")
    pattern_type: Int8 = field("1+", default=3)
    principal: Str = field("0+")
    host: Str = field("0+")
    operation: Int8 = field("0+")
    permission_type: Int8 = field("0+")


class DeleteAclsFilterResult(Struct):
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+")
    matching_acls: list[DeleteAclsMatchingAcl] = field("0+")


class DeleteAclsResponse(Message, api_key=31, versions="1-3", flexible="2+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    filter_results: list[DeleteAclsFilterResult] = field("0+")
