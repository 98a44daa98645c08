"""AlterClientQuotas (key 49) changes quotas of clients (KIP-546)."""

from __future__ import annotations

from mainstem.protocol.schema import Bool, Float64, Int16, Int32, Message, Str, Struct, field


class EntityData(Struct):
    entity_type: Str = field("0+")
    entity_name: Str | None = field("0+")


class OpData(Struct):
    key: Str = field("0+")
    value: Float64 = field("0+")
    remove: Bool = field("0+")


class EntryData(Struct):
    entity: list[EntityData] = field("0+")
    ops: list[OpData] = field("0+")


class AlterClientQuotasRequest(Message, api_key=49, versions="0-1", flexible="1+"):
    entries: list[EntryData] = field("0+")
    validate_only: Bool = field("0+")


class ResponseEntryData(Struct):
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+")
    entity: list[EntityData] = field("0+")


class AlterClientQuotasResponse(Message, api_key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    entries: list[ResponseEntryData] = field("0+")
