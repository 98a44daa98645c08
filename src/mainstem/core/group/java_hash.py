"""Java's String.hashCode, which decides where a group lives, and the order of a small HashMap, which breaks a tie."""

from collections.abc import Iterable
from typing import Final

_INT_MIN: Final = -(2**31)
_SMALLEST_TABLE: Final = 16


def string_hash(text: str) -> int:
    """`text.hashCode()`: over UTF-16 code units, wrapping at 32 bits."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        code = (31 * code + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return code - 2**32 if code >= 2**31 else code


def partition_for(key: str, partition_count: int) -> int:
    """The partition of an internal topic that a group or a transactional id belongs to."""
    code = string_hash(key)
    return (0 if code == _INT_MIN else abs(code)) % partition_count


def in_hash_map_order(keys: Iterable[str]) -> list[str]:
    """`keys` in the order in which a Java HashMap they were put into hands them out (collisions: as they came)."""
    listed = list(keys)
    table = _SMALLEST_TABLE
    while len(listed) > table * 3 // 4:
        table *= 2

    def bucket(key: str) -> int:
        code = string_hash(key) & 0xFFFFFFFF
        return (code ^ (code >> 16)) & (table - 1)

    return sorted(listed, key=bucket)
