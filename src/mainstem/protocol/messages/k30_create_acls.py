"""CreateAcls (key 30) adds access control entries."""

from __future__ import annotations

from mainstem.protocol.schema import Int8, Int16, Int32, Message, Str, Struct, field


class AclCreation(Struct):
    resource_type: Int8 = field("0+")
    resource_name: Str = field("0+")
    resource_pattern_type: Int8 = field("1+", default=3)
    principal: Str = field("0+")
    host: Str = field("0+")
    operation: Int8 = field("0+")
    permission_type: Int8 = field("0+")


class CreateAclsRequest(Message, api_key=30, versions="1-3", flexible="2+"):
    creations: list[AclCreation] = field("0+")


class AclCreationResult(Struct):
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+")


class CreateAclsResponse(Message, api_key=30, versions="1-3", flexible="2+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    results: list[AclCreationResult] = field("0+")
