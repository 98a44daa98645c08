"""The headers before every request and response, as declared; `protocol.headers` reads and writes them by hand."""

from __future__ import annotations

from mainstem.protocol.schema import Int16, Int32, Message, Str, field


class RequestHeader(Message, versions="1-2", flexible="2+"):
    request_api_key: Int16 = field("0+")
    request_api_version: Int16 = field("0+")
    correlation_id: Int32 = field("0+")
    client_id: Str | None = field("1+", legacy=True)


class ResponseHeader(Message, versions="0-1", flexible="1+"):
    correlation_id: Int32 = field("0+")
