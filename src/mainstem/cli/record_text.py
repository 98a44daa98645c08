"""Records as text, for people and for pipes, and back.

JSON lines are what `mainstem consume --format json` writes and `mainstem produce --json` reads, so that one can be
piped into the other: `topic`, `partition`, `offset`, `timestamp`, `key`, `value`, `headers`. Keys and values that are
not UTF-8 stand as `{"base64": "…"}`. A value that is other JSON is written as the text of that JSON. Headers are an
object, or a list of pairs where a name comes more than once.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from mainstem.cli.failures import UserError
from mainstem.cli.values import time_in_words
from mainstem.client.types import ConsumerRecord, Headers

_FIELDS: Final = ("topic", "partition", "offset", "timestamp", "time", "key", "value", "headers")


@dataclass(frozen=True, slots=True)
class NewRecord:
    """What is to be sent; None leaves the partition and the time to the producer."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None = None
    timestamp_ms: int | None = None


def to_json(record: ConsumerRecord) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _json_bytes(record.key),
        "value": _json_bytes(record.value),
        "headers": _json_headers(record.headers),
    }


def from_json(line: bytes, number: int) -> NewRecord:
    """UserError that names the line where it is no record."""
    try:
        found = json.loads(line)
    except ValueError as error:
        raise UserError(f"line {number} is not JSON: {error}") from None
    if not isinstance(found, dict) or not found.keys() & {"key", "value"}:
        raise UserError(f'line {number} is not an object with "key" or "value"')
    headers = found.get("headers") or {}
    if isinstance(headers, dict):
        headers = list(headers.items())
    if not isinstance(headers, list) or not all(_is_header(each) for each in headers):
        raise UserError(f'line {number}: "headers" is neither an object nor a list of pairs')
    try:
        return NewRecord(
            _bytes_of(found.get("key")),
            _bytes_of(found.get("value")),
            [(_header_name(name), _bytes_of(value)) for name, value in headers],
            _whole(found.get("partition")),
            _whole(found.get("timestamp")),
        )
    except (ValueError, binascii.Error) as error:
        raise UserError(f"line {number}: {error}") from None


def template(text: str) -> Callable[[ConsumerRecord], str]:
    """A way to write a record: `{partition}:{offset} {key}={value}\\n`. UserError for a field that there is not."""
    shape = text.replace("\\n", "\n").replace("\\t", "\t")

    def write(record: ConsumerRecord) -> str:
        return shape.format(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp=record.timestamp,
            time=time_in_words(record.timestamp),
            key=shown(record.key),
            value=shown(record.value),
            headers=headers_in_words(record.headers),
        )

    try:
        write(ConsumerRecord("", 0, 0, 0, 0, b"", b"", []))
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise UserError(
            f"--format has {error}; the fields are {', '.join('{' + each + '}' for each in _FIELDS)}"
        ) from None
    return write


def shown(data: bytes | None) -> str:
    return "null" if data is None else data.decode("utf-8", "backslashreplace")


def headers_in_words(headers: Headers) -> str:
    return ",".join(f"{name}={shown(value)}" for name, value in headers)


def _json_headers(headers: Headers) -> Any:
    pairs = [(name, _json_bytes(value)) for name, value in headers]
    found = dict(pairs)
    return found if len(found) == len(pairs) else pairs


def _is_header(pair: Any) -> bool:
    return isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str)


def _json_bytes(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def _bytes_of(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"}:
        return base64.b64decode(value["base64"], validate=True)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _header_name(name: str) -> str:
    name.encode("utf-8", "surrogateescape")  # ValueError where no bytes are meant by it
    return name


def _whole(value: Any) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise ValueError(f"{value!r} is not a whole number")
    return value
