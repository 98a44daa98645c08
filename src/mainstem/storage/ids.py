"""Kafka's ids of 16 bytes (cluster, directory, topic) as files hold them: URL-safe base64, 22 letters, no padding."""

import base64
import binascii
from random import Random
from typing import Final

ZERO_ID: Final = bytes(16)
METADATA_TOPIC_ID: Final = bytes(15) + b"\x01"
RESERVED_BELOW: Final = 101
"""Kafka keeps the first ids for itself (0 none, 1 the metadata topic, 2 lost and 3 migrating directories)."""


def id_to_text(value: bytes) -> str:
    assert len(value) == 16, value
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def id_from_text(text: str) -> bytes:
    """ValueError unless `text` is the one spelling of an id."""
    try:
        value = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        value = b""
    if len(value) != 16 or id_to_text(value) != text:
        raise ValueError(f"{text!r} is not an id: 22 letters of URL-safe base64 without padding")
    return value


def random_id(rng: Random) -> bytes:
    """A fresh version-4 UUID that is none of the reserved ones, nor looks like a command line option in text."""
    while True:
        value = bytearray(rng.randbytes(16))
        value[6] = value[6] & 0x0F | 0x40
        value[8] = value[8] & 0x3F | 0x80
        fresh = bytes(value)
        if int.from_bytes(fresh, "big") >= RESERVED_BELOW and not id_to_text(fresh).startswith("-"):
            return fresh
