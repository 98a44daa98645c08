"""Tells which JSON values certainly do not fit a schema, one by one and cheaply.

Arrow parses thousands of values at once, but says no more than that one of them is bad, and a call for each costs more
than a hundred good ones. So where some are bad they are sieved here first. Rule: what is told bad is bad to Arrow as
well; what is not may be either, and Arrow decides.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

Check = Callable[[Any], bool]
"""Whether a parsed value, which is not null, can fit."""

_BEGINS_AS_DAY: Final = re.compile(r"\d{4}-(?:0\d|1[0-2])-[0-3]\d(?:[ T]|$)")
_INFINITE: Final = "Inf"
"""Arrow takes it for a number, Python does not."""


class Sieve:
    def __init__(self, schema: pa.Schema) -> None:
        self._fits = _object([(field.name, field.type) for field in schema])

    def is_bad(self, text: str) -> bool:
        try:
            return not self._fits(json.loads(text))
        except RecursionError:
            return False
        except ValueError:
            return _INFINITE not in text


def _check(kind: pa.DataType) -> Check:
    import pyarrow.types as pt

    if pt.is_boolean(kind):
        return lambda value: type(value) is bool
    if pt.is_integer(kind):
        largest = 1 << (kind.bit_width - 1)
        return lambda value: type(value) is int and -largest <= value < largest
    if pt.is_floating(kind):
        return lambda value: type(value) in (int, float)
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
