"""Makes of times, as Arrow's parser has them, those that Spark has; and how Spark is to write its own.

A date is the day that is written, whatever time and zone follow it; where that matters it comes here as its text. Of a
time with more than six fractional digits the rest is cut off, which is towards the past, also before 1970: a cast of
Arrow's goes towards 1970 there, into the next second and the next day.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

JSON_OPTIONS: Final = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""How Spark is to write times as JSON: its own formats have milliseconds, and cut off the rest."""


def settled(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A table that was parsed, with the types of `schema`: a text where that has a time begins with a day."""
    import pyarrow as pa

    if table.schema.equals(schema):
        return table
    columns = [_settled(table.column(field.name).combine_chunks(), field.type) for field in schema]
    return pa.table(columns, schema=schema)


def _settled(array: Any, kind: Any) -> Any:
    import pyarrow as pa
    import pyarrow.types as pt

    if array.type == kind:
        return array
    if pt.is_struct(kind):
        parts = zip(array.flatten(), kind.fields, strict=True)
        children = [_settled(part, field.type) for part, field in parts]
        return pa.StructArray.from_arrays(children, fields=kind.fields, mask=array.is_null())
    if pt.is_list(kind):
        inner = _settled(array.values, kind.value_type)
        return pa.ListArray.from_arrays(array.offsets, inner, type=kind, mask=array.is_null())
    return _day(array).cast(kind) if pt.is_string(array.type) else _cut(array, kind)


def _day(array: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.utf8_slice_codeunits(array, 0, len("2026-01-02")).cast(pa.date32())


def _cut(array: Any, kind: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    cut = array.cast(kind, safe=False)
    late = pc.greater(cut.cast(array.type), array)
    return pc.subtract(cut.view(pa.int64()), late.cast(pa.int64())).view(kind)
