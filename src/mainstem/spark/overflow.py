"""Finds rows of which a number is more than its column holds, and which Arrow's parser lets pass all the same.

Of a number that no `float` or `double` reaches it makes infinity. Of a decimal it counts the digits that are written,
not those that there have to be behind the point as well; so that there is room for them, and none is lost before it is
looked at here, decimals are parsed as `WIDE`. Rule: what was written as infinity is, by whichever word Arrow takes for
it; no other number becomes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

WIDE: Final = 76
"""The digits of the widest decimal."""

MAY_BE_DEEP: Final = r"\.\d{60}|[eE]-\d\d|\\u00(?:2[dDeE]|3\d|[46]5)"
"""Stands wherever a number has more than `WIDE` digits behind the point, which Arrow reads past the end of a table for:
many of them, a small exponent, or either in a string with escapes."""

_STRING_OR_WORD: Final = re.compile(r'"(?:[^"\\]|\\.)*"|-?Inf(?:inity)?')

Parse = Callable[["pa.Array"], "pa.Table | None"]
Question = Callable[[Any, Any], Any]
"""Of an array and the type it is to have: which of its values, or None where no value of that type can be meant."""


def rows_beyond(table: pa.Table, schema: pa.Schema, text_of: Callable[[int], str], parse: Parse) -> set[int]:
    """Those of a table that was parsed from texts, one a row, and is to have `schema`."""
    import pyarrow as pa

    found = _in_table(table, schema, _is_beyond_decimal)
    infinite = sorted(_in_table(table, schema, _is_infinite))
    if infinite:
        # What stays infinite without the words for it was a number.
        wordless = [_STRING_OR_WORD.sub(_without_word, text_of(row)) for row in infinite]
        again = parse(pa.array(wordless, pa.string()))
        remain = range(len(infinite)) if again is None else _in_table(again, schema, _is_infinite)
        found.update(infinite[nth] for nth in remain)
    return found


def _without_word(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith('"') else "0"


def _in_table(table: pa.Table, schema: pa.Schema, question: Question) -> set[int]:
    return {row for field in schema for row in _rows(table.column(field.name), field.type, question)}


def _rows(column: Any, kind: Any, question: Question) -> set[int]:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as pt

    if pt.is_struct(kind):
        parts = [(pc.struct_field(column, nth), field.type) for nth, field in enumerate(kind.fields)]
        return {row for part, of in parts for row in _rows(part, of, question)}
    if pt.is_list(kind):
        inner = _rows(pc.list_flatten(column), kind.value_type, question)
        return {*pc.list_parent_indices(column).take(pa.array(inner, pa.int64())).to_pylist()}
    answer = question(column, kind)
    return set() if answer is None else {*pc.indices_nonzero(answer).to_pylist()}


def _is_infinite(column: Any, kind: Any) -> Any:
    import pyarrow.compute as pc
    import pyarrow.types as pt

    return pc.is_inf(column) if pt.is_floating(kind) else None


def _is_beyond_decimal(column: Any, kind: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as pt

    if not pt.is_decimal(kind):
        return None
    least, most = (pa.scalar(Decimal((sign, (9,) * kind.precision, -kind.scale)), column.type) for sign in (1, 0))
    return pc.or_(pc.less(column, least), pc.greater(column, most))
