"""BrokerRegistration (key 62) registers a broker, one incarnation of it, with the controller (KIP-631)."""

from __future__ import annotations

from mainstem.protocol.schema import Bool, Int16, Int32, Int64, Message, Str, Struct, Uint16, Uuid, field


class Listener(Struct):
    name: Str = field("0+")
    host: Str = field("0+")
    port: Uint16 = field("0+")
    security_protocol: Int16 = field("0+")


class Feature(Struct):
    name: Str = field("0+")
    min_supported_version: Int16 = field("0+")
    max_supported_version: Int16 = field("0+")


class BrokerRegistrationRequest(Message, api_key=62, versions="0-4", flexible="0+"):
    broker_id: Int32 = field("0+")
    cluster_id: Str = field("0+")
    incarnation_id: Uuid = field("0+")
    listeners: list[Listener] = field("0+")
    features: list[Feature] = field("0+")
    rack: Str | None = field("0+")
    is_migrating_zk_broker: Bool = field("1+", default=False)
    log_dirs: list[Uuid] = field("2+", default_factory=list, ignorable=True)
    previous_broker_epoch: Int64 = field("3+", default=-1, ignorable=True)


class BrokerRegistrationResponse(Message, api_key=62, versions="0-4", flexible="0+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    broker_epoch: Int64 = field("0+", default=-1)
