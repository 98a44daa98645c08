"""Kafka's ids of 16 bytes (topics, directories, clusters, incarnations), as text and fresh ones.

In text they are URL-safe base64 of 22 characters without padding. Inside they are `bytes`, so that nothing converts
them on the way.
"""

import base64
import binascii
from random import Random
from typing import Final

from mainstem.protocol.primitives import UUID_BYTES

METADATA_TOPIC_ID: Final = bytes(15) + b"\x01"
"""The topic id of `__cluster_metadata`."""
RESERVED_BELOW: Final = 101
"""Kafka keeps the first ids for itself (0 none, 1 the metadata topic, 2 lost and 3 migrating directories)."""


def uuid_to_text(uuid: bytes) -> str:
    assert len(uuid) == UUID_BYTES, uuid
    return base64.urlsafe_b64encode(uuid)[:22].decode("ascii")


def uuid_from_text(text: str) -> bytes:
    """ValueError unless `text` is the one spelling of an id."""
    try:
        uuid = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        uuid = b""
    if len(uuid) != UUID_BYTES or uuid_to_text(uuid) != text:
        raise ValueError(f"{text!r} is not an id: 22 letters of URL-safe base64 without padding")
    return uuid


def random_uuid(rng: Random) -> bytes:
    """A fresh version-4 UUID that is none of the reserved ones, nor looks like a command line option in text."""
    while True:
        value = bytearray(rng.randbytes(UUID_BYTES))
        value[6] = value[6] & 0x0F | 0x40
        value[8] = value[8] & 0x3F | 0x80
        fresh = bytes(value)
        if int.from_bytes(fresh, "big") >= RESERVED_BELOW and not uuid_to_text(fresh).startswith("-"):
            return fresh
