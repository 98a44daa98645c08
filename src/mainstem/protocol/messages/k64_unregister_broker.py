"""UnregisterBroker (key 64) removes a broker's registration (KIP-631)."""

from __future__ import annotations

from mainstem.protocol.schema import Int16, Int32, Message, Str, field


class UnregisterBrokerRequest(Message, api_key=64, versions="0", flexible="0+"):
    broker_id: Int32 = field("0+")


class UnregisterBrokerResponse(Message, api_key=64, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+")
