"""Numbers in settings, as Java reads them: Python's own functions take what Java refuses, and the other way round."""

import re
from typing import Final

_WHOLE: Final = re.compile(r"[+-]?\d+")
_DECIMAL: Final = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)")
_HEXADECIMAL: Final = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?")
_SUFFIX: Final = "fFdD"


def is_whole_number(text: str) -> bool:
    """The digits may be those of any script; Python's `int` would take underscores and spaces, too."""
    return _WHOLE.fullmatch(text) is not None


def parse_double(text: str) -> float:
    """As `Double.parseDouble`; ValueError where that refuses."""
    if _DECIMAL.fullmatch(text):
        return float(text.rstrip(_SUFFIX))
    if _HEXADECIMAL.fullmatch(text):
        try:
            return float.fromhex(text.rstrip(_SUFFIX))
        except OverflowError:
            return float("-inf") if text.startswith("-") else float("inf")
    raise ValueError(f"'{text}' is no number")
