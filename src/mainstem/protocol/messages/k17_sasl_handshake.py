"""SaslHandshake (key 17) chooses the SASL mechanism of a connection."""

from __future__ import annotations

from mainstem.protocol.schema import Int16, Message, Str, field


class SaslHandshakeRequest(Message, api_key=17, versions="0-1", flexible="none"):
    mechanism: Str = field("0+")


class SaslHandshakeResponse(Message, api_key=17, versions="0-1", flexible="none"):
    error_code: Int16 = field("0+")
    mechanisms: list[Str] = field("0+")
