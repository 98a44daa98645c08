"""Whole requests and responses as frames, from the declared messages.

For every API alike; Produce and Fetch have faster ways of their own in `produce` and `fetch`. A frame that is encoded
here begins with its size, a frame that is decoded here does not: `framing` has taken the size off.

What a client sent malformed is INVALID_REQUEST, for which Kafka closes the connection; a malformed response is
CORRUPT_MESSAGE. Bytes after a message are let pass, as Kafka does.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from mainstem.protocol.api import APIS, find_api
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.headers import (
    API_VERSIONS_KEY,
    RequestHeader,
    encode_request_header,
    encode_response_header,
    has_flexible_response_header,
    read_request_header,
    read_response_header,
)
from mainstem.protocol.messages.k18_api_versions import ApiVersion, ApiVersionsResponse
from mainstem.protocol.primitives import REQUEST_ELEMENTS_MAX
from mainstem.protocol.schema import Message

_pack_size: Final = Struct(">i").pack


def encode_request(message: Message, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """A request as a frame, its size included."""
    chunks = [b"", encode_request_header(message.API_KEY, version, correlation_id, client_id)]
    message.encode_into(chunks, version)
    chunks[0] = _pack_size(sum(map(len, chunks)))
    return b"".join(chunks)


def encode_response(message: Message, version: int, correlation_id: int) -> bytes:
    """A response as a frame, its size included."""
    chunks = [b"", encode_response_header(message.API_KEY, version, correlation_id)]
    message.encode_into(chunks, version)
    chunks[0] = _pack_size(sum(map(len, chunks)))
    return b"".join(chunks)


def decode_request(frame: bytes) -> tuple[RequestHeader, Message]:
    """The header and the body of a request.

    RemoteError with UNSUPPORTED_VERSION when the API has no such version; a caller that answers ApiVersions asks
    `RequestHeader.is_unsupported_api_versions` first.
    """
    header = read_request_header(frame)
    return header, decode_request_body(frame, header)


def decode_request_body(frame: bytes, header: RequestHeader) -> Message:
    api = find_api(header.api_key)
    if not api.has_version(header.api_version):
        raise RemoteError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{api.name} v{header.api_version}; v{api.min_version} to v{api.max_version} are supported",
        )
    try:
        return api.request.decode(frame, header.api_version, header.body_at, REQUEST_ELEMENTS_MAX)
    except RemoteError as error:
        raise RemoteError(ErrorCode.INVALID_REQUEST, error.message) from None


def decode_response(frame: bytes, api_key: int, version: int) -> tuple[int, Message]:
    """The correlation id and the body of the response to a request with that key and version."""
    correlation_id, body_at = read_response_header(frame, has_flexible_response_header(api_key, version))
    return correlation_id, find_api(api_key).response.decode(frame, version, body_at)


def encode_unsupported_api_versions(correlation_id: int) -> bytes:
    """The answer to an ApiVersions request of an unknown version: v0, error 35, and the range of ApiVersions.

    A client reads from it which version to ask for next (KIP-511).
    """
    api = APIS[API_VERSIONS_KEY]
    answer = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)],
    )
    return encode_response(answer, 0, correlation_id)
