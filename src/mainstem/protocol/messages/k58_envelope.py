"""Envelope (key 58) carries a request that a broker passes on to the controller (KIP-590)."""

from __future__ import annotations

from mainstem.protocol.schema import Bytes, Int16, Message, field


class EnvelopeRequest(Message, api_key=58, versions="0", flexible="0+"):
    request_data: Bytes = field("0+")
    request_principal: Bytes | None = field("0+")
    client_host_address: Bytes = field("0+")


class EnvelopeResponse(Message, api_key=58, versions="0", flexible="0+"):
    response_data: Bytes | None = field("0+", default=None)
    error_code: Int16 = field("0+")
