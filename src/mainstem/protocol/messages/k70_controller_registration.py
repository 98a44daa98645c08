"""ControllerRegistration (key 70) registers a controller with the active one (KIP-919)."""

from __future__ import annotations

from mainstem.protocol.schema import Bool, Int16, Int32, Message, Str, Struct, Uint16, Uuid, field


class Listener(Struct):
    name: Str = field("0+")
    host: Str = field("0+")
    port: Uint16 = field("0+")
    security_protocol: Int16 = field("0+")


class Feature(Struct):
    name: Str = field("0+")
    min_supported_version: Int16 = field("0+")
    max_supported_version: Int16 = field("0+")


class ControllerRegistrationRequest(Message, api_key=70, versions="0", flexible="0+"):
    controller_id: Int32 = field("0+")
    incarnation_id: Uuid = field("0+")
    zk_migration_ready: Bool = field("0+")
    listeners: list[Listener] = field("0+")
    features: list[Feature] = field("0+")


class ControllerRegistrationResponse(Message, api_key=70, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+")
