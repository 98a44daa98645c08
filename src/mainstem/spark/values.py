"""What is in a value, as typed columns: `valueFormat`. Decoded in the workers, so that only columns cross to Spark.

- `string`: UTF-8, with replacement characters where it is not.
- `json`: one object a value; fields that the schema does not name are ignored, those that are missing are null. The
  parser is Arrow's, and decides alone what is well formed and fits the schema. A null value gives nulls.

A value that cannot be read goes, as text, to the column `_corrupt` where the schema has one, and fails the query with
its topic, partition and offset where not.

A format is a function from an array of bytes to columns and a list of rows that it could not read, in `FORMATS`: Avro
and Protobuf have their place there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

Decoded = tuple[list["pa.Array"], list[int]]
"""The columns, in the order of the schema, and the rows that could not be read: their columns are null."""

TWO_OBJECTS: Final = r"\}\s*\{"
"""Outside of strings this never stands in one JSON value, for a comma separates what is in an array."""


def decode_json(values: pa.Array, schema: pa.Schema) -> Decoded:
    import pyarrow as pa
    import pyarrow.compute as pc

    values, unreadable = _as_text(values)
    rows = len(values)
    present = pc.is_valid(values)
    # A line break can only be white space between tokens: in a string it is escaped.
    lines = pc.replace_substring_regex(values, r"[\r\n]", " ")
    trimmed = pc.utf8_trim_whitespace(lines)
    one_object = pc.and_(pc.starts_with(trimmed, "{"), pc.ends_with(trimmed, "}"))
    plain = pc.and_not(one_object, pc.match_substring_regex(trimmed, TWO_OBJECTS))
    plain = pc.fill_null(plain, False)
    if unreadable:
        plain = pc.and_(plain, pa.array([row not in unreadable for row in range(rows)]))
    together = pc.indices_nonzero(plain)
    bad = set(unreadable)
    parsed, taken = _parse_some(trimmed, together.to_pylist(), schema, bad)
    # What looks like several objects in one value is judged alone, so that it cannot stand in for a missing row.
    odd = pc.indices_nonzero(pc.and_(present, pc.invert(plain))).to_pylist()
    for row in odd:
        if row in bad:
            continue
        tables, rows_taken = _parse_some(trimmed, [row], schema, bad)
        parsed += tables
        taken += rows_taken
    return _spread(parsed, taken, rows, schema), sorted(bad)


def _as_text(values: pa.Array) -> tuple[pa.Array, set[int]]:
    """As strings; rows that are not UTF-8 are replaced by nulls, and told."""
    import pyarrow as pa

    try:
        return values.cast(pa.string()), set()
    except pa.ArrowInvalid:
        pass
    texts: list[str | None] = []
    bad: set[int] = set()
    for row, value in enumerate(values.to_pylist()):
        try:
            texts.append(None if value is None else value.decode("utf-8"))
        except UnicodeDecodeError:
            texts.append(None)
            bad.add(row)
    return pa.array(texts, pa.string()), bad


def _parse_some(lines: pa.Array, rows: list[int], schema: pa.Schema, bad: set[int]) -> tuple[list[pa.Table], list[int]]:
    """Parses rows together; halves them where that fails, down to those that are bad on their own."""
    if not rows:
        return [], []
    table = _parse(lines.take(_indices(rows)), schema)
    if table is not None:
        return [table], list(rows)
    if len(rows) == 1:
        bad.add(rows[0])
        return [], []
    middle = len(rows) // 2
    left, left_rows = _parse_some(lines, rows[:middle], schema, bad)
    right, right_rows = _parse_some(lines, rows[middle:], schema, bad)
    return left + right, left_rows + right_rows


def _indices(rows: list[int]) -> pa.Array:
    import pyarrow as pa

    return pa.array(rows, pa.int64())


def _parse(lines: pa.Array, schema: pa.Schema) -> pa.Table | None:
    """A table with one row a line, or None where Arrow does not take them all."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.json as pj

    text = pc.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), "\n")[0].as_buffer()
    try:
        table = pj.read_json(
            pa.BufferReader(text),
            read_options=pj.ReadOptions(use_threads=False, block_size=max(len(text) + 1, 1)),
            parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return table if table.num_rows == len(lines) else None


def _spread(tables: list[pa.Table], taken: list[int], rows: int, schema: pa.Schema) -> list[pa.Array]:
    """Puts what was parsed back to its rows, with nulls between."""
    import numpy as np
    import pyarrow as pa

    if not tables:
        return [pa.nulls(rows, field.type) for field in schema]
    table = pa.concat_tables(tables) if len(tables) > 1 else tables[0]
    columns = [table.column(field.name).combine_chunks() for field in schema]
    if taken == list(range(rows)):
        return columns
    where = np.full(rows, -1, np.int64)
    where[np.array(taken, np.int64)] = np.arange(len(taken))
    picks = pa.array(where, mask=where < 0)
    return [column.take(picks) for column in columns]


def decode_string(values: pa.Array) -> pa.Array:
    import pyarrow as pa

    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [None if value is None else value.decode("utf-8", "replace") for value in values.to_pylist()], pa.string()
        )


FORMATS: Final[dict[str, Callable[[pa.Array, pa.Schema], Decoded]]] = {"json": decode_json}
