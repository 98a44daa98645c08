"""Tells which JSON values certainly do not fit a schema, one by one and cheaply.

Arrow parses thousands of values at once, but says no more than that one of them is bad, and a call for each costs more
than a hundred good ones. So where some are bad they are sieved here first. Rule: what is told bad is bad to Arrow,
`overflow` or `base64_fields` as well; what is not may be either, and they decide.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

from mainstem.spark.overflow import WIDE
from mainstem.spark.quoted_words import WORDS

if TYPE_CHECKING:
    import pyarrow as pa

Check = Callable[[Any], bool]
"""Whether a parsed value, which is not null, can fit."""

_BEGINS_AS_DAY: Final = re.compile(r"\d{4}-(?:0\d|1[0-2])-[0-3]\d(?:[ T]|$)")
_ARROWS_OWN: Final = re.compile(r"Inf|\d{1000}")
"""Arrow takes the word for a number, and passes over numbers however long; Python does not."""

_DECIMAL: Final = re.compile(r"[-+]?\d*\.?\d*(?:[eE][-+]?\d*)?", re.ASCII)
"""Whatever Arrow takes for one where it stands in a string."""


class Sieve:
    def __init__(self, schema: pa.Schema) -> None:
        self._fits = _object([(field.name, field.type) for field in schema])
        # Each digit of a decimal counts. Elsewhere it is quicker without.
        self.has_decimals = any(_has_decimals(field.type) for field in schema)
        self._decoder = json.JSONDecoder(parse_float=Decimal if self.has_decimals else None)

    def is_bad(self, text: str, *, unsure: bool = False) -> bool:
        """`unsure` is the answer where one cannot be sure."""
        try:
            return not self._fits(self._decoder.decode(text))
        except (RecursionError, InvalidOperation):
            return unsure  # the latter of an exponent that Python has no room for
        except ValueError:
            return unsure or _ARROWS_OWN.search(text) is None


def _check(kind: pa.DataType) -> Check:
    import pyarrow.types as pt

    if pt.is_boolean(kind):
        return lambda value: type(value) is bool
    if pt.is_integer(kind):
        largest = 1 << (kind.bit_width - 1)
        return lambda value: type(value) is int and -largest <= value < largest
    if pt.is_floating(kind):
        return lambda value: type(value) in (int, float, Decimal) or value in WORDS
    if pt.is_decimal(kind):
        return _decimal(kind.precision, kind.scale)
    if pt.is_string(kind) or pt.is_binary(kind):
        return lambda value: type(value) is str
    if pt.is_timestamp(kind) or pt.is_date(kind):
        return lambda value: type(value) is str and _BEGINS_AS_DAY.match(value) is not None
    if pt.is_list(kind):
        fits = _check(kind.value_type)
        return lambda value: type(value) is list and all(each is None or fits(each) for each in value)
    if pt.is_struct(kind):
        return _object([(field.name, field.type) for field in kind.fields])
    return lambda value: True


def _has_decimals(kind: pa.DataType) -> bool:
    import pyarrow.types as pt

    if pt.is_list(kind):
        return _has_decimals(kind.value_type)
    if pt.is_struct(kind):
        return any(_has_decimals(field.type) for field in kind.fields)
    return bool(pt.is_decimal(kind))


def _decimal(precision: int, scale: int) -> Check:
    def fits(value: Any) -> bool:
        if type(value) is str:
            if _DECIMAL.fullmatch(value) is None:
                return False
            value = Decimal(value)
        elif type(value) is int:
            return bool(abs(value) < 10 ** (precision - scale))
        elif type(value) is not Decimal:
            return False
        _, digits, exponent = value.as_tuple()
        if not value:
            return bool(exponent >= -WIDE)
        significant = "".join(map(str, digits)).rstrip("0")
        last = exponent + len(digits) - len(significant)
        return bool(value.adjusted() < precision - scale and last >= -scale)

    return fits


def _object(fields: list[tuple[str, pa.DataType]]) -> Check:
    checks = [(name, _check(kind)) for name, kind in fields]

    def fits(value: Any) -> bool:
        if type(value) is not dict:
            return False
        for name, check in checks:
            found = value.get(name)
            if found is not None and not check(found):
                return False
        return True

    return fits
