"""DescribeConfigs (key 32) describes configurations."""

from __future__ import annotations

from mainstem.protocol.schema import Bool, Int8, Int16, Int32, Message, Str, Struct, field


class DescribeConfigsResource(Struct):
    resource_type: Int8 = field("0+")
    resource_name: Str = field("0+")
    configuration_keys: list[Str] | None = field("0+")


class DescribeConfigsRequest(Message, api_key=32, versions="1-4", flexible="4+"):
    resources: list[DescribeConfigsResource] = field("0+")
    include_synonyms: Bool = field("1+", default=False)
    include_documentation: Bool = field("3+", default=False)


class DescribeConfigsSynonym(Struct):
    name: Str = field("1+")
    value: Str | None = field("1+")
    source: Int8 = field("1+")


class DescribeConfigsResourceResult(Struct):
    name: Str = field("0+")
    value: Str | None = field("0+")
    read_only: Bool = field("0+")
    config_source: Int8 = field("1+", default=-1, ignorable=True)
    is_sensitive: Bool = field("0+")
    synonyms: list[DescribeConfigsSynonym] = field("1+", ignorable=True)
    config_type: Int8 = field("3+", default=0, ignorable=True)
    documentation: Str | None = field("3+", default="", ignorable=True)


class DescribeConfigsResult(Struct):
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+")
    resource_type: Int8 = field("0+")
    resource_name: Str = field("0+")
    configs: list[DescribeConfigsResourceResult] = field("0+")


class DescribeConfigsResponse(Message, api_key=32, versions="1-4", flexible="4+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    results: list[DescribeConfigsResult] = field("0+")
