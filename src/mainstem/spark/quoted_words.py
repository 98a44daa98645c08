"""`"NaN"`, `"Infinity"` and `"-Infinity"`, as Spark's `to_json` writes what JSON has no number for.

Spark reads them as numbers where the column is a `float` or a `double`, and Arrow as text wherever they stand. So where
it does not take a value, the quotes are taken away there, and nothing else of the value is changed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

QUOTED: Final = r'"(?:NaN|-?Infinity)"'
WORDS: Final = ("NaN", "Infinity", "-Infinity")


class _AsWritten(str):
    """A number, which no reading and writing may change."""

    __slots__ = ()


def without_quotes(text: str, schema: pa.Schema) -> str:
    """A value with those words bare where the schema has a number for them; as it was where it cannot be understood."""
    try:
        read = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return text
    fields = [(field.name, field.type) for field in schema]
    return _written(_bare_object(read, fields)) if type(read) is dict else text


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a field is there twice, and the parser has to say so")
    return made


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_float=_AsWritten, parse_int=_AsWritten, parse_constant=_AsWritten
)


def _bare(value: Any, kind: pa.DataType) -> Any:
    import pyarrow.types as pt

    if pt.is_floating(kind) and type(value) is str and value in WORDS:
        return _AsWritten(value)
    if pt.is_list(kind) and type(value) is list:
        return [_bare(each, kind.value_type) for each in value]
    if pt.is_struct(kind) and type(value) is dict:
        return _bare_object(value, [(field.name, field.type) for field in kind.fields])
    return value


def _bare_object(value: dict[str, Any], fields: list[tuple[str, pa.DataType]]) -> dict[str, Any]:
    return {**value, **{name: _bare(value[name], kind) for name, kind in fields if name in value}}


def _written(value: Any) -> str:
    if isinstance(value, _AsWritten):
        return str(value)
    if type(value) is dict:
        return "{" + ",".join(f"{json.dumps(name)}:{_written(each)}" for name, each in value.items()) + "}"
    if type(value) is list:
        return "[" + ",".join(map(_written, value)) + "]"
    return json.dumps(value)
