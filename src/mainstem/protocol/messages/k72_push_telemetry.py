"""PushTelemetry (key 72) takes in a client's metrics (KIP-714)."""

from __future__ import annotations

from mainstem.protocol.schema import Bool, Bytes, Int8, Int16, Int32, Message, Uuid, field


class PushTelemetryRequest(Message, api_key=72, versions="0", flexible="0+"):
    client_instance_id: Uuid = field("0+")
    subscription_id: Int32 = field("0+")
    terminating: Bool = field("0+")
    compression_type: Int8 = field("0+")
    metrics: Bytes = field("0+")


class PushTelemetryResponse(Message, api_key=72, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
