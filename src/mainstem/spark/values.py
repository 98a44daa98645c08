"""What is in a value, as typed columns: `valueFormat`. Decoded in the workers, so that only columns cross to Spark.

- `string`: UTF-8, with replacement characters where it is not.
- `json`: one object a value; fields that the schema does not name are ignored, those that are missing are null. The
  parser is Arrow's, and decides what fits the schema, but for numbers that it changes (`overflow`) and bytes, which
  are base64 (`base64_fields`). A null value gives nulls.

A value that cannot be read goes, as text, to the column `_corrupt` where the schema has one, and fails the query with
its topic, partition and offset where not.

A format is a function from an array of bytes to columns and a list of rows that it could not read, in `FORMATS`: Avro
and Protobuf have their place there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mainstem.spark.base64_fields import in_bytes
from mainstem.spark.json_sieve import Sieve
from mainstem.spark.overflow import MAY_BE_DEEP, WIDE, rows_beyond
from mainstem.spark.quoted_words import QUOTED, without_quotes
from mainstem.spark.times import settled

if TYPE_CHECKING:
    import pyarrow as pa

Decoded = tuple[list["pa.Array"], list[int]]
"""The columns, in the order of the schema, and the rows that could not be read: their columns are null."""

GOES_ON: Final = r"\}\s*[^\s,\]}]"
"""Outside of strings this never stands in one JSON value: only a comma or the end of what is around can follow."""

MAY_HAVE_ZONE: Final = r'\d[T ]\d[\d:.]*[-+]\d\d(?::?\d\d)?"|\\u00[23]'
"""Stands wherever a time is so many hours from UTC, which Arrow takes it to: that may be on another day."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What to have Arrow parse a schema as."""

    times: pa.Schema
    """With dates as times."""
    days: pa.Schema | None
    """With dates as text; None where there are none."""


def decode_json(values: pa.Array, schema: pa.Schema) -> Decoded:
    import pyarrow as pa
    import pyarrow.compute as pc

    values, bad = _as_text(values)
    rows = len(values)
    # Between tokens a line break is white space, as a tab is; in a string neither may stand, and the parser says so.
    lines = pc.replace_substring_regex(values, r"[\r\n]", "\t")
    # What else Unicode has for white space is none to JSON.
    trimmed = pc.utf8_trim(lines, " \t")
    # What is no object is not shown to Arrow, which does not survive a null.
    is_object = pc.fill_null(pc.and_(pc.starts_with(trimmed, "{"), pc.ends_with(trimmed, "}")), False)
    bad.update(pc.indices_nonzero(pc.and_not(pc.is_valid(values), is_object)).to_pylist())
    # Several in one value would stand in for rows that are missing.
    doubtful = pc.and_(is_object, pc.fill_null(pc.match_substring_regex(trimmed, GOES_ON), False))
    for row in pc.indices_nonzero(doubtful).to_pylist():
        if not _is_one_value(trimmed[row].as_py()):
            bad.add(row)
    sieve = Sieve(schema)
    if sieve.has_decimals:
        doubtful = pc.and_(is_object, pc.fill_null(pc.match_substring_regex(trimmed, MAY_BE_DEEP), False))
        bad.update(
            row for row in pc.indices_nonzero(doubtful).to_pylist() if sieve.is_bad(trimmed[row].as_py(), unsure=True)
        )
    if bad:
        is_object = pc.and_(is_object, pa.array([row not in bad for row in range(rows)]))
    objects = pc.indices_nonzero(is_object)
    ways = readings(schema)
    table = _parse(trimmed.take(objects), ways) if len(objects) else None
    if table is None:
        quoted = pc.and_(is_object, pc.fill_null(pc.match_substring_regex(trimmed, QUOTED), False))
        if pc.any(quoted).as_py():
            bare = [without_quotes(text, schema) for text in trimmed.filter(quoted).to_pylist()]
            trimmed = pc.replace_with_mask(trimmed, quoted, pa.array(bare, pa.string()))
            table = _parse(trimmed.take(objects), ways)
    if table is not None:
        parsed, taken = [table], objects.to_pylist()
    else:
        texts = zip(objects.to_pylist(), trimmed.take(objects).to_pylist(), strict=True)
        bad_objects = {row for row, text in texts if sieve.is_bad(text)}
        bad |= bad_objects
        likely = [row for row in objects.to_pylist() if row not in bad_objects]
        parsed, taken = _parse_some(trimmed, likely, ways, bad)
    if not parsed:
        return [pa.nulls(rows, field.type) for field in schema], sorted(bad)
    whole = pa.concat_tables(parsed)
    whole, beyond = in_bytes(whole)
    beyond |= rows_beyond(whole, schema, lambda nth: trimmed[taken[nth]].as_py(), lambda some: _parse(some, ways))
    if beyond:
        bad.update(taken[nth] for nth in beyond)
        kept = [nth for nth in range(len(taken)) if nth not in beyond]
        whole, taken = whole.take(_indices(kept)), [taken[nth] for nth in kept]
    return _spread(whole.cast(schema, safe=False), taken, rows), sorted(bad)


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


def _is_one_value(text: str) -> bool:
    try:
        json.loads(text, parse_int=len)  # whose digits Python would count
    except (ValueError, RecursionError):
        return False
    return True


def _parse_some(
    lines: pa.Array, rows: list[int], readings: list[Reading], bad: set[int]
) -> tuple[list[pa.Table], list[int]]:
    """Parses rows together; halves them where that fails, down to those that are bad on their own."""
    if not rows:
        return [], []
    table = _parse(lines.take(_indices(rows)), readings)
    if table is not None:
        return [table], list(rows)
    if len(rows) == 1:
        bad.add(rows[0])
        return [], []
    middle = len(rows) // 2
    left, left_rows = _parse_some(lines, rows[:middle], readings, bad)
    right, right_rows = _parse_some(lines, rows[middle:], readings, bad)
    return left + right, left_rows + right_rows


def _indices(rows: list[int]) -> pa.Array:
    import pyarrow as pa

    return pa.array(rows, pa.int64())


def _parse(lines: pa.Array, readings: list[Reading]) -> pa.Table | None:
    """A table with one row a line, or None where Arrow does not take them all."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), "\n")[0].as_buffer()
    for reading in readings:
        with suppress(pa.ArrowInvalid):
            table = _read(text, reading.times)
            if table.num_rows != len(lines):
                return None
            if reading.days is not None and pc.any(pc.match_substring_regex(lines, MAY_HAVE_ZONE)).as_py():
                # Which days there are is known to be well formed now, and is taken from how they were written.
                table = _read(text, reading.days)
            return settled(table, readings[0].times)
    return None


def _read(text: pa.Buffer, schema: pa.Schema) -> pa.Table:
    import pyarrow as pa
    import pyarrow.json as pj

    return pj.read_json(
        pa.BufferReader(text),
        read_options=pj.ReadOptions(use_threads=False, block_size=max(len(text) + 1, 1)),
        parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )


def readings(schema: pa.Schema) -> list[Reading]:
    """What to have Arrow parse a schema as, one after the other.

    It reads dates only as times, and of a time no more digits than its unit has, where Go and Java write nine. Years
    after 2262 do not fit into nanoseconds. Where a decimal has no room for a number it reads another one: here it has
    room for all of whose digits the parser lets pass.
    """
    import pyarrow as pa

    def reading(unit: str) -> Reading:
        times, days = (
            pa.schema([field.with_type(_parsed_as(field.type, unit, day)) for field in schema])
            for day in (pa.timestamp(unit), pa.string())
        )
        return Reading(times, days if days != times else None)

    found = [reading(unit) for unit in ("us", "ns")]
    return found if found[0] != found[1] else found[:1]


def _parsed_as(kind: Any, unit: str, day: Any) -> Any:
    import pyarrow as pa
    import pyarrow.types as pt

    if pt.is_date32(kind):
        return day
    if pt.is_timestamp(kind):
        return pa.timestamp(unit, kind.tz)
    if pt.is_decimal(kind):
        return pa.decimal256(WIDE - kind.scale, kind.scale)
    if pt.is_list(kind):
        return pa.list_(kind.value_field.with_type(_parsed_as(kind.value_type, unit, day)))
    if pt.is_struct(kind):
        return pa.struct([field.with_type(_parsed_as(field.type, unit, day)) for field in kind.fields])
    return kind


def _spread(table: pa.Table, taken: list[int], rows: int) -> list[pa.Array]:
    """Puts what was parsed back to its rows, with nulls between."""
    import numpy as np
    import pyarrow as pa

    columns = [column.combine_chunks() for column in table.columns]
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
