"""IncrementalAlterConfigs (key 44) changes single values of configurations (KIP-339)."""

from __future__ import annotations

from mainstem.protocol.schema import Bool, Int8, Int16, Int32, Message, Str, Struct, field


class AlterableConfig(Struct):
    name: Str = field("0+")
    config_operation: Int8 = field("0+")
    value: Str | None = field("0+")


class AlterConfigsResource(Struct):
    resource_type: Int8 = field("0+")
    resource_name: Str = field("0+")
    configs: list[AlterableConfig] = field("0+")


class IncrementalAlterConfigsRequest(Message, api_key=44, versions="0-1", flexible="1+"):
    resources: list[AlterConfigsResource] = field("0+")
    validate_only: Bool = field("0+")


class AlterConfigsResourceResponse(Struct):
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+")
    resource_type: Int8 = field("0+")
    resource_name: Str = field("0+")


class IncrementalAlterConfigsResponse(Message, api_key=44, versions="0-1", flexible="1+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    responses: list[AlterConfigsResourceResponse] = field("0+")
