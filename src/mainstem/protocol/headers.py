"""What stands before the body of a request and of a response.

    request header v1    api key i16, api version i16, correlation id i32, client id (nullable string)
    request header v2    the same, then tagged fields; the client id keeps its old length
    response header v0   correlation id i32
    response header v1   the same, then tagged fields

Flexible versions of an API have headers v2 and v1, the others v1 and v0; the ApiVersions response alone always has
v0, because a client must be able to read it before it knows the broker's versions. A broker that is asked for a
version of ApiVersions that it does not know answers in v0 with UNSUPPORTED_VERSION and the range that it does know
(KIP-511); `is_unsupported_api_versions` recognises such a request, whose body is not to be read.
"""

from typing import Final

from librt.strings import BytesWriter, read_i16_be, read_i32_be, write_i16_be, write_i32_be
from mypy_extensions import i16, i32, i64

from mainstem.protocol.api import FLEXIBLE_FROM
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.primitives import REQUEST_ELEMENTS_MAX, read_uvarint, too_many_elements

API_VERSIONS_KEY: Final = 18
API_VERSIONS_MAX: Final = 4
REQUEST_HEADER_BYTES_MIN: Final = 10
CLIENT_ID_BYTES_MAX: Final = 0x7FFF


class RequestHeader:
    """The header of a request; `body_at` is where the body begins in the frame it was read from."""

    __slots__ = ("api_key", "api_version", "body_at", "client_id", "correlation_id")

    def __init__(self, api_key: i64, api_version: i64, correlation_id: i64, client_id: str, body_at: i64) -> None:
        self.api_key: i64 = api_key
        self.api_version: i64 = api_version
        self.correlation_id: i64 = correlation_id
        self.client_id = client_id
        self.body_at: i64 = body_at

    def __repr__(self) -> str:
        return (
            f"RequestHeader(api_key={self.api_key}, api_version={self.api_version}, "
            f"correlation_id={self.correlation_id}, client_id={self.client_id!r})"
        )

    @property
    def is_unsupported_api_versions(self) -> bool:
        """Whether this is an ApiVersions request to be answered as KIP-511 says."""
        return self.api_key == API_VERSIONS_KEY and (self.api_version < 0 or self.api_version > API_VERSIONS_MAX)


def flexible_from(api_key: i64) -> i64:
    """The first flexible version of an API; RemoteError for a key that none has."""
    first: i64 = -1
    if 0 <= api_key < len(FLEXIBLE_FROM):
        first = FLEXIBLE_FROM[api_key]
    if first < 0:
        raise RemoteError(ErrorCode.INVALID_REQUEST, f"there is no API with key {api_key}")
    return first


def read_request_header(frame: bytes) -> RequestHeader:
    """The header at the start of a frame (without its size).

    Whether the version is supported is not judged here. A null client id is read as an empty one, as Kafka does;
    tagged fields are skipped, for none is defined.
    """
    length: i64 = len(frame)
    if length < REQUEST_HEADER_BYTES_MIN:
        raise RemoteError(ErrorCode.INVALID_REQUEST, f"a request of {length} bytes has no room for its header")
    api_key = i64(read_i16_be(frame, 0))
    api_version = i64(read_i16_be(frame, 2))
    first_flexible = flexible_from(api_key)
    client_id_bytes = i64(read_i16_be(frame, 8))
    at: i64 = 10
    client_id = ""
    if client_id_bytes >= 0:
        at += client_id_bytes
        if at > length:
            raise RemoteError(
                ErrorCode.INVALID_REQUEST, f"a client id of {client_id_bytes} bytes passes the frame's end"
            )
        client_id = frame[10:at].decode("utf-8", "replace")
    elif client_id_bytes != -1:
        raise RemoteError(ErrorCode.INVALID_REQUEST, f"a client id of {client_id_bytes} bytes")
    if api_version >= first_flexible:
        at = skip_tags(frame, at)
    return RequestHeader(api_key, api_version, i64(read_i32_be(frame, 4)), client_id, at)


def skip_tags(data: bytes, position: i64) -> i64:
    """The position after the tagged fields at `position`."""
    length: i64 = len(data)
    if position < length and data[position] == 0:
        return position + 1
    count, at = read_uvarint(data, position)
    if count > REQUEST_ELEMENTS_MAX:
        raise too_many_elements()
    for _ in range(count):
        _tag, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        at += size
        if at > length:
            raise RemoteError(ErrorCode.CORRUPT_MESSAGE, f"a tagged field of {size} bytes passes the end")
    return at


def read_response_header(frame: bytes, flexible: bool) -> tuple[i64, i64]:
    """The correlation id at the start of a frame (without its size), and the position of the body."""
    if len(frame) < 4:
        raise RemoteError(ErrorCode.CORRUPT_MESSAGE, f"a response of {len(frame)} bytes has no room for its header")
    return i64(read_i32_be(frame, 0)), skip_tags(frame, 4) if flexible else 4


def has_flexible_response_header(api_key: i64, api_version: i64) -> bool:
    return api_key != API_VERSIONS_KEY and api_version >= flexible_from(api_key)


def encode_request_header(api_key: i64, api_version: i64, correlation_id: i64, client_id: str | None) -> bytes:
    writer = BytesWriter()
    write_i16_be(writer, i16(api_key))
    write_i16_be(writer, i16(api_version))
    write_i32_be(writer, i32(correlation_id))
    if client_id is None:
        write_i16_be(writer, -1)
    else:
        text = client_id.encode()
        if len(text) > CLIENT_ID_BYTES_MAX:
            raise ValueError(f"a client id of {len(text)} bytes; {CLIENT_ID_BYTES_MAX} are allowed")
        write_i16_be(writer, i16(len(text)))
        writer.write(text)
    if api_version >= flexible_from(api_key):
        writer.append(0)
    return writer.getvalue()


def encode_response_header(api_key: i64, api_version: i64, correlation_id: i64) -> bytes:
    writer = BytesWriter()
    write_i32_be(writer, i32(correlation_id))
    if has_flexible_response_header(api_key, api_version):
        writer.append(0)
    return writer.getvalue()
