"""The names of the files in a partition's folder, as Kafka gives them.

A segment's files carry its base offset in 20 digits. A suffix after the extension says what is being done to a file:
`.deleted` waits for its removal, `.cleaned` is being written by the cleaner, `.swap` replaces what it was made from.
"""

from typing import Final

from mypy_extensions import i64

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"

DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"

LEADER_EPOCHS: Final = "leader-epoch-checkpoint"

INDEX_EXTENSIONS: Final = (OFFSET_INDEX, TIME_INDEX, TXN_INDEX)
SEGMENT_EXTENSIONS: Final = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX)

_DIGITS: Final = 20


def offset_name(offset: i64, extension: str) -> str:
    return str(offset).zfill(_DIGITS) + extension


def parse_offset_name(name: str) -> tuple[int, str] | None:
    """(offset, extension with suffixes) of a file named after an offset, or None for any other name."""
    digits, dot, rest = name.partition(".")
    if not dot or len(digits) != _DIGITS or not (digits.isascii() and digits.isdigit()):
        return None
    return int(digits), dot + rest
