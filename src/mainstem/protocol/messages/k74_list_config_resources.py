"""ListConfigResources (key 74) lists resources that have a configuration."""

from __future__ import annotations

from mainstem.protocol.schema import Int8, Int16, Int32, Message, Str, Struct, field


class ListConfigResourcesRequest(Message, api_key=74, versions="0-1", flexible="0+"):
    resource_types: list[Int8] = field("1+", default_factory=list)


class ConfigResource(Struct):
    resource_name: Str = field("0+")
    resource_type: Int8 = field("1+", default=16, ignorable=True)


class ListConfigResourcesResponse(Message, api_key=74, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    config_resources: list[ConfigResource] = field("0+")
