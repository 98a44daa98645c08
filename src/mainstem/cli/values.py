"""Words on the command line as values: times, durations, sizes, `key=value`, and lists of partitions.

Each is a type for argparse: it raises `argparse.ArgumentTypeError` with a sentence that shows how to write it.
"""

from __future__ import annotations

import re
import time
from argparse import ArgumentTypeError
from datetime import datetime
from typing import Final

_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_UNITS_BYTES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def duration_ms(text: str) -> int:
    """`500ms`, `30s`, `5m`, `2h`, `7d`, `1h30m`."""
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|[smhdw])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ArgumentTypeError(f"{text!r} is not a duration; write 500ms, 30s, 5m, 2h or 7d")
    return round(sum(float(number) * _UNITS_MS[unit] for number, unit in parts))


def point_in_time(text: str) -> int:
    """A time in milliseconds: `now`, `5m` for five minutes ago, ISO 8601 (local where it has no zone), or itself."""
    if text == "now":
        return time.time_ns() // 1_000_000
    if text.isdecimal() and len(text) >= 11:
        return int(text)
    try:
        return time.time_ns() // 1_000_000 - duration_ms(text.removesuffix(" ago"))
    except ArgumentTypeError:
        pass
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise ArgumentTypeError(
            f"{text!r} is not a time; write 5m for five minutes ago, 2026-01-31T12:00:00Z, or milliseconds since 1970"
        ) from None


def size(text: str) -> int:
    """`100`, `64k`, `10MB`, `1GiB`: powers of 1024."""
    found = re.fullmatch(r"(\d+)\s*([kmgt]?)i?b?", text.lower())
    if found is None:
        raise ArgumentTypeError(f"{text!r} is not a size; write 100, 64k, 10M or 1G")
    return int(found[1]) * _UNITS_BYTES[found[2]]


def count(text: str) -> int:
    """A number of things: `1000`, `10k`, `1m`; thousands, not powers of two."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([km]?)", text.lower().replace("_", "").replace(",", ""))
    if found is None:
        raise ArgumentTypeError(f"{text!r} is not a number; write 1000, 10k or 1m")
    return round(float(found[1]) * {"": 1, "k": 1000, "m": 1_000_000}[found[2]])


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return int(text)


def not_negative(text: str) -> int:
    if not text.isdecimal():
        raise ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return int(text)


def key_value(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key.strip(), value


def partitions(text: str) -> list[int]:
    """`0`, `0,3`, `0-7`."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ArgumentTypeError(f"{text!r} does not name partitions; write 0 or 0,3 or 0-7")
        found.extend(range(int(first), int(last or first) + 1))
    return found


def several(number: int, thing: str) -> str:
    """`1 record`, `1,000 records`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def in_words(number: float, unit: str = "B") -> str:
    """A size as people say it: `1.5 KiB`."""
    for prefix in ("", "Ki", "Mi", "Gi"):
        if abs(number) < 1024:
            return f"{number:.0f} {unit}" if prefix == "" else f"{number:.1f} {prefix}{unit}"
        number /= 1024
    return f"{number:.1f} Ti{unit}"


def time_in_words(ms: int) -> str:
    """A time in milliseconds as ISO 8601 in UTC, `-` where there is none."""
    if ms < 0:
        return "-"
    seconds, rest = divmod(ms, 1000)
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest:03d}Z"
    except (OverflowError, ValueError, OSError):
        return str(ms)


def duration_in_words(ms: float) -> str:
    """`1.2 s`, `3 m 20 s`, `2 h 5 m`."""
    if ms < 1000:
        return f"{ms:.0f} ms"
    seconds = ms / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} m {seconds} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} m" if hours < 48 else f"{hours // 24} d {hours % 24} h"
