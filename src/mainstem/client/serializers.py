"""Keys and values to bytes and back: text, JSON, Avro, Protobuf. Anything that can be called will do as well.

A serializer is called with the value and gives bytes, or None for none; a deserializer is called with bytes. None is
never given to either: it stands for no key, or a deleted one. What one of them raises becomes a `SerializationError`.

    Producer(key_serializer=serializers.text, value_serializer=serializers.json)
    Consumer("orders", value_deserializer=serializers.from_json)

Avro and Protobuf use the libraries that everyone uses (`pip install mainstem[avro]`, `mainstem[protobuf]`). The bytes
are bare, without a schema registry's header.
"""

from __future__ import annotations

import io
import json as _json
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from mainstem.client.errors import InvalidPartitionsError, InvalidTimestampError, SerializationError
from mainstem.client.options import INT32_MAX, INT64_MAX


def text(value: str) -> bytes:
    return value.encode()


def from_text(data: bytes) -> str:
    return data.decode()


def json(value: Any) -> bytes:
    """Compact JSON in UTF-8."""
    return _json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def from_json(data: bytes) -> Any:
    return _json.loads(data)


AvroSchema = dict[str, Any] | list[Any] | str
"""As Python has it, or as the text of an `.avsc` file."""


def _parsed(schema: AvroSchema) -> Any:
    import fastavro

    if isinstance(schema, str) and schema.lstrip().startswith(("{", "[", '"')):
        schema = _json.loads(schema)
    return fastavro.parse_schema(schema)


def avro(schema: AvroSchema) -> Callable[[Any], bytes]:
    """A serializer for values of an Avro schema."""
    import fastavro

    parsed = _parsed(schema)

    def serialize(value: Any) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, value)
        return out.getvalue()

    return serialize


def from_avro(schema: AvroSchema, reader_schema: AvroSchema | None = None) -> Callable[[bytes], Any]:
    """A deserializer for what was written with `schema`, read as `reader_schema` where that is given."""
    import fastavro

    parsed = _parsed(schema)
    reader = None if reader_schema is None else _parsed(reader_schema)

    def deserialize(data: bytes) -> Any:
        return fastavro.schemaless_reader(io.BytesIO(data), parsed, reader)

    return deserialize


class ProtobufMessage(Protocol):
    """What every class that protoc makes has."""

    def SerializeToString(self) -> bytes: ...  # noqa: N802
    def ParseFromString(self, data: bytes) -> Any: ...  # noqa: N802


P = TypeVar("P", bound=ProtobufMessage)


def protobuf(value: ProtobufMessage) -> bytes:
    return value.SerializeToString()


def from_protobuf(kind: Callable[[], P]) -> Callable[[bytes], P]:
    """A deserializer for messages of this class."""

    def deserialize(data: bytes) -> P:
        message = kind()
        message.ParseFromString(data)
        return message

    return deserialize


def serialize(serializer: Callable[[Any], bytes | None], value: Any, what: str, topic: str) -> bytes | None:
    """What the serializer makes of a value; SerializationError where it cannot."""
    try:
        data = serializer(value)
    except Exception as error:
        raise SerializationError(f"the {what} serializer failed: {error!r}", topic=topic) from error
    if data is not None and not isinstance(data, bytes):
        kind = type(data).__name__
        raise SerializationError(f"the {what} serializer gave {kind}; it gives bytes or None", topic=topic)
    return data


def as_bytes(value: Any, what: str, topic: str) -> bytes:
    """Something that is nearly bytes as bytes; SerializationError for anything else."""
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    kind = type(value).__name__
    raise SerializationError(
        f"the {what} is {kind}; it is bytes or None, unless {what}_serializer is given", topic=topic
    )


def check_place(topic: str, partition: int | None, timestamp_ms: int | None) -> None:
    """Raises for a place or a time that no record has; `time.time() * 1000` is none, for it is no whole number."""
    if partition is not None and not (isinstance(partition, int) and 0 <= partition <= INT32_MAX):
        raise InvalidPartitionsError(
            f"partition is {partition!r}; it is an int, at least 0 and less than 2**31, or None", topic=topic
        )
    if timestamp_ms is not None and not (isinstance(timestamp_ms, int) and 0 <= timestamp_ms <= INT64_MAX):
        raise InvalidTimestampError(
            f"timestamp_ms is {timestamp_ms!r}; it is an int, at least 0 and less than 2**63, or None", topic=topic
        )
