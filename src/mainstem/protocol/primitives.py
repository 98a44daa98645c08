"""The smallest pieces of Kafka's encoding: varints and uuids.

An unsigned varint carries 32 bits in up to five bytes, low bits first; a signed one is zigzag-encoded on top. A
uuid is 16 `bytes` throughout (it costs nothing to read, compare or write); its text, in files and tools, is the
URL-safe base64 of Kafka's `Uuid` without padding.

What a peer sent too short or too long raises RemoteError and nothing else.
"""

import base64
import binascii
from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from mainstem.protocol.errors import ErrorCode, RemoteError

UUID_BYTES: Final = 16
ZERO_UUID: Final = bytes(16)
METADATA_TOPIC_ID: Final = bytes(15) + b"\x01"
"""The topic id of `__cluster_metadata`; Kafka reserves the ids up to 100."""

VARINT_BYTES_MAX: Final = 5


def read_uvarint(data: bytes, position: i64) -> tuple[i64, i64]:
    """The unsigned varint at `position`, and the position after it."""
    length: i64 = len(data)
    value: i64 = 0
    shift: i64 = 0
    at: i64 = position
    while at < length and shift < 35:
        byte: i64 = i64(data[at])
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                raise RemoteError(ErrorCode.CORRUPT_MESSAGE, f"a varint of more than 32 bits at {position}")
            return value, at
        shift += 7
    if shift >= 35:
        raise RemoteError(ErrorCode.CORRUPT_MESSAGE, f"a varint of more than five bytes at {position}")
    raise RemoteError(ErrorCode.CORRUPT_MESSAGE, f"the data ends inside the varint at {position}")


def read_varint(data: bytes, position: i64) -> tuple[i64, i64]:
    """The signed varint at `position`, and the position after it."""
    value, after = read_uvarint(data, position)
    return (value >> 1) ^ -(value & 1), after


def write_uvarint(writer: BytesWriter, value: i64) -> None:
    rest: i64 = value
    while rest >= 0x80:
        writer.append((rest & 0x7F) | 0x80)
        rest >>= 7
    writer.append(rest)


def uvarint(value: i64) -> bytes:
    """`value`, from 0 to 2^32 - 1, as an unsigned varint."""
    if value < 0 or value > 0xFFFFFFFF:
        raise ValueError(f"{value} does not fit an unsigned varint; 0 to 2^32 - 1 do")
    writer = BytesWriter()
    write_uvarint(writer, value)
    return writer.getvalue()


def varint(value: i64) -> bytes:
    """`value`, from -2^31 to 2^31 - 1, as a signed varint."""
    if value < -0x80000000 or value > 0x7FFFFFFF:
        raise ValueError(f"{value} does not fit a varint; -2^31 to 2^31 - 1 do")
    return uvarint(((value << 1) ^ (value >> 31)) & 0xFFFFFFFF)


def uuid_to_text(uuid: bytes) -> str:
    """The 22 characters Kafka shows for a uuid, as in `meta.properties` and `partition.metadata`."""
    return base64.urlsafe_b64encode(uuid)[:22].decode("ascii")


def uuid_from_text(text: str) -> bytes:
    """The uuid that Kafka shows as `text`; ValueError when no uuid looks like that."""
    try:
        uuid = base64.b64decode(text.rstrip("=") + "==", altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError, ValueError):
        uuid = b""
    if len(uuid) != UUID_BYTES:
        raise ValueError(f"{text!r} is not a uuid; one is 22 characters of URL-safe base64")
    return uuid
