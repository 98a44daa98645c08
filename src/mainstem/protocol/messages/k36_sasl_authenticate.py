"""SaslAuthenticate (key 36) carries one step of a SASL exchange."""

from __future__ import annotations

from mainstem.protocol.schema import Bytes, Int16, Int64, Message, Str, field


class SaslAuthenticateRequest(Message, api_key=36, versions="0-2", flexible="2+"):
    auth_bytes: Bytes = field("0+")


class SaslAuthenticateResponse(Message, api_key=36, versions="0-2", flexible="2+"):
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+")
    auth_bytes: Bytes = field("0+")
    session_lifetime_ms: Int64 = field("1+", default=0, ignorable=True)
