"""Bytes in JSON: base64, as Spark's `to_json` writes and its `from_json` reads them.

Arrow's parser gives the text. What Jackson takes, Spark takes: padding where it is due and units of four that follow
it, and blanks between units. What it does not take makes its row a bad one.
"""

from __future__ import annotations

import re
from binascii import a2b_base64
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

_PLAIN: Final = re.compile(rb"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_UNIT: Final = re.compile(rb"[A-Za-z0-9+/]{2}(?:[A-Za-z0-9+/]{2}|[A-Za-z0-9+/]=|==)")
_UNITS: Final = re.compile(rb"(?:[\0- ]*" + _UNIT.pattern + rb")*[\0- ]*")


def in_bytes(table: pa.Table) -> tuple[pa.Table, set[int]]:
    """The table with what is of a binary type decoded, null where that cannot be; the rows where it cannot."""
    import pyarrow as pa

    if not any(_has_bytes(field.type) for field in table.schema):
        return table, set()
    bad: set[int] = set()
    columns = []
    for column in table.columns:
        array, undecodable = _decoded(column.combine_chunks())
        columns.append(array)
        bad.update(undecodable)
    return pa.table(columns, schema=table.schema), bad


def _has_bytes(kind: Any) -> bool:
    import pyarrow.types as pt

    if pt.is_list(kind):
        return _has_bytes(kind.value_type)
    if pt.is_struct(kind):
        return any(_has_bytes(field.type) for field in kind.fields)
    return bool(pt.is_binary(kind))


def _decoded(array: Any) -> tuple[Any, set[int]]:
    import numpy as np
    import pyarrow as pa
    import pyarrow.types as pt

    if not _has_bytes(array.type):
        return array, set()
    if pt.is_struct(array.type):
        parts = [_decoded(part) for part in array.flatten()]
        children = [child for child, _ in parts]
        made = pa.StructArray.from_arrays(children, fields=array.type.fields, mask=array.is_null())
        return made, set().union(*(bad for _, bad in parts))
    if pt.is_list(array.type):
        values, bad = _decoded(array.values)
        rows = np.searchsorted(array.offsets.to_numpy(), sorted(bad), side="right") - 1
        made = pa.ListArray.from_arrays(array.offsets, values, type=array.type, mask=array.is_null())
        return made, {row for row in rows.tolist() if 0 <= row < len(array)}
    texts = array.to_pylist()
    found = [None if text is None else _bytes(text) for text in texts]
    bad = {nth for nth, text in enumerate(texts) if text is not None and found[nth] is None}
    return pa.array(found, array.type), bad


def _bytes(text: bytes) -> bytes | None:
    """None where it is no base64."""
    if _PLAIN.fullmatch(text):
        return a2b_base64(text)
    if _UNITS.fullmatch(text):
        return b"".join(map(a2b_base64, _UNIT.findall(text)))
    return None
