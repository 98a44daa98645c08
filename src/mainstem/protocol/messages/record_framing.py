"""How the records of the internal logs carry messages.

A record of the metadata log has no key; its value is a frame version (1), the type (`api_key`) and the version, all
unsigned varints, and the body (KIP-631). A record of a coordinator's log has a key that begins with its type (int16)
and a value that begins with its version (int16); a null value takes the key back.

Only what a broker wrote is read here, yet disks err: anything malformed raises RemoteError. A type or version that is
too new is UNSUPPORTED_VERSION, so that a reader can tell it from CORRUPT_MESSAGE.
"""

from __future__ import annotations

from importlib import import_module
from struct import Struct as StructFormat
from typing import Final

from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.primitives import read_uvarint, uvarint
from mainstem.protocol.schema import Message

METADATA_FRAME_VERSION: Final = 1
_int16: Final = StructFormat(">h")


def _messages_in(module_name: str) -> list[type[Message]]:
    module = import_module(f"mainstem.protocol.messages.{module_name}")
    found = [item for item in vars(module).values() if isinstance(item, type) and issubclass(item, Message)]
    return [item for item in found if item is not Message]


_metadata_types: dict[int, type[Message]] = {}


def metadata_record_types() -> dict[int, type[Message]]:
    """The records of the metadata log by `api_key`."""
    if not _metadata_types:
        _metadata_types.update({cls.API_KEY: cls for cls in _messages_in("metadata_records")})
    return _metadata_types


def encode_metadata_record(record: Message, version: int) -> bytes:
    """The value of a record of the metadata log."""
    chunks = [b"\x01", uvarint(record.API_KEY), uvarint(version)]
    record.encode_into(chunks, version)
    return b"".join(chunks)


def decode_metadata_record(value: bytes) -> tuple[Message, int]:
    """What the value of a record of the metadata log holds, and the version it was written in."""
    frame_version, at = read_uvarint(value, 0)
    if frame_version != METADATA_FRAME_VERSION:
        raise RemoteError(ErrorCode.UNSUPPORTED_VERSION, f"a metadata record with frame version {frame_version}")
    api_key, at = read_uvarint(value, at)
    version, at = read_uvarint(value, at)
    cls = metadata_record_types().get(api_key)
    if cls is None:
        raise RemoteError(ErrorCode.UNSUPPORTED_VERSION, f"a metadata record of the unknown type {api_key}")
    record, end = _decode(cls, value, version, at)
    if end != len(value):
        raise RemoteError(ErrorCode.CORRUPT_MESSAGE, f"{len(value) - end} bytes after a {cls.__name__}")
    return record, version


class CoordinatorRecords:
    """The types of record in one coordinator's log, by the int16 that their keys begin with."""

    __slots__ = ("_keys", "_modules", "_values")

    def __init__(self, *modules: str) -> None:
        self._modules = modules
        self._keys: dict[int, type[Message]] = {}
        self._values: dict[int, type[Message]] = {}

    def _load(self) -> None:
        for module in self._modules:
            for cls in _messages_in(module):
                (self._keys if cls.__name__.endswith("Key") else self._values)[cls.API_KEY] = cls

    @property
    def keys(self) -> dict[int, type[Message]]:
        if not self._keys:
            self._load()
        return self._keys

    @property
    def values(self) -> dict[int, type[Message]]:
        if not self._values:
            self._load()
        return self._values

    def encode_key(self, key: Message) -> bytes:
        assert self.keys.get(key.API_KEY) is type(key), f"{key!r} is not a key of this log"
        return _int16.pack(key.API_KEY) + key.encode(0)

    def encode_value(self, value: Message, version: int) -> bytes:
        assert self.values.get(value.API_KEY) is type(value), f"{value!r} is not a value of this log"
        return _int16.pack(version) + value.encode(version)

    def decode_key(self, data: bytes) -> Message:
        key_type = _leading_int16(data)
        cls = self.keys.get(key_type)
        if cls is None:
            raise RemoteError(ErrorCode.UNSUPPORTED_VERSION, f"a coordinator's record of the unknown type {key_type}")
        return cls.decode(data, 0, _int16.size)

    def decode_value(self, key_type: int, data: bytes) -> Message:
        """The value that belongs to a key with that `API_KEY`."""
        return _decode(self.values[key_type], data, _leading_int16(data), _int16.size)[0]

    def decode(self, key: bytes, value: bytes | None) -> tuple[Message, Message | None]:
        """Both halves of a record; no value where the record takes its key back."""
        decoded = self.decode_key(key)
        return decoded, None if value is None else self.decode_value(decoded.API_KEY, value)


GROUP_RECORDS: Final = CoordinatorRecords("group_records", "share_group_records", "streams_group_records")
"""`__consumer_offsets`"""
TXN_RECORDS: Final = CoordinatorRecords("txn_records")
"""`__transaction_state`"""
SHARE_RECORDS: Final = CoordinatorRecords("share_records")
"""`__share_group_state`"""


def _leading_int16(data: bytes) -> int:
    if len(data) < _int16.size:
        raise RemoteError(ErrorCode.CORRUPT_MESSAGE, f"a coordinator's record with {len(data)} bytes")
    number: int = _int16.unpack_from(data)[0]
    return number


def _decode(cls: type[Message], data: bytes, version: int, at: int) -> tuple[Message, int]:
    if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
        raise RemoteError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{cls.__name__} v{version}; v{cls.MIN_VERSION} to v{cls.MAX_VERSION} are supported",
        )
    return cls.decode_from(data, version, at)
