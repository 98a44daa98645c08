"""Zigzag varints, as records use them (Kafka's `varint` and `varlong`).

A varint is at most five bytes, a varlong at most ten; a longer one is refused. Like Java, a reader drops the bits of
the last byte that do not fit instead of refusing them. The sign is taken apart first, so no step leaves 64 bits:
compiled and interpreted code agree to the bit without a mask.
"""

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from mainstem.protocol.errors import ErrorCode, RemoteError

I64_MAX: Final = 9223372036854775807
I64_MIN: Final = -9223372036854775808
_FAR: Final = 1 << 61
"""Sums of what lies nearer to zero than this stay in range. The compiler has no machine word for the two above, so a
look at one of them costs more than all the rest of an addition."""


def read_varint(buffer: bytes, position: i64, end: i64) -> tuple[i64, i64]:
    """The 32-bit value at `position` and the position after it; never reads at or past `end`."""
    if position >= end:
        raise ends_early(position)
    byte: i64 = buffer[position]
    sign: i64 = byte & 1
    magnitude: i64 = (byte & 0x7F) >> 1
    position += 1
    if byte < 0x80:
        return magnitude ^ -sign, position
    shift: i64 = 6
    while shift < 27:
        if position >= end:
            raise ends_early(position)
        byte = buffer[position]
        position += 1
        magnitude |= (byte & 0x7F) << shift
        if byte < 0x80:
            return magnitude ^ -sign, position
        shift += 7
    if position >= end:
        raise ends_early(position)
    byte = buffer[position]
    if byte >= 0x80:
        raise RemoteError(ErrorCode.INVALID_RECORD, "a varint is longer than five bytes")
    magnitude |= (byte & 0x0F) << 27
    return magnitude ^ -sign, position + 1


def read_varlong(buffer: bytes, position: i64, end: i64) -> tuple[i64, i64]:
    """The 64-bit value at `position` and the position after it; never reads at or past `end`."""
    if position >= end:
        raise ends_early(position)
    byte: i64 = buffer[position]
    sign: i64 = byte & 1
    magnitude: i64 = (byte & 0x7F) >> 1
    position += 1
    if byte < 0x80:
        return magnitude ^ -sign, position
    shift: i64 = 6
    while shift < 62:
        if position >= end:
            raise ends_early(position)
        byte = buffer[position]
        position += 1
        magnitude |= (byte & 0x7F) << shift
        if byte < 0x80:
            return magnitude ^ -sign, position
        shift += 7
    if position >= end:
        raise ends_early(position)
    byte = buffer[position]
    if byte >= 0x80:
        raise RemoteError(ErrorCode.INVALID_RECORD, "a varlong is longer than ten bytes")
    magnitude |= (byte & 1) << 62
    return magnitude ^ -sign, position + 1


def ends_early(position: i64) -> RemoteError:
    return RemoteError(ErrorCode.INVALID_RECORD, f"a record ends early, at {position}")


def write_varint(writer: BytesWriter, value: i64) -> None:
    """Writes a zigzag varint of any size up to 64 bits; small values take the same bytes as a varint and a varlong."""
    sign: i64 = 0
    if value < 0:
        sign = 1
        value = -(value + 1)
    byte: i64 = ((value & 0x3F) << 1) | sign
    value >>= 6
    while value > 0:
        writer.append(u8(byte | 0x80))
        byte = value & 0x7F
        value >>= 7
    writer.append(u8(byte))


def varint_size(value: i64) -> i64:
    """How many bytes `write_varint` writes."""
    if value < 0:
        value = -(value + 1)
    size: i64 = 1
    value >>= 6
    while value > 0:
        size += 1
        value >>= 7
    return size


def add_i64(a: i64, b: i64) -> i64:
    """a + b in two's complement, as Java adds; a timestamp delta may run over either end."""
    if a > -_FAR and a < _FAR and b > -_FAR and b < _FAR:
        return a + b
    if a > 0 and b > I64_MAX - a:
        return (a + I64_MIN) + (b + I64_MIN)
    if a < 0 and b < I64_MIN - a:
        return (a - I64_MIN) + (b - I64_MIN)
    return a + b


def subtract_i64(a: i64, b: i64) -> i64:
    """a - b in two's complement."""
    if b == I64_MIN:
        # a + 2^63, which is in range as it stands for negative a, and 2^64 less than that otherwise.
        return a - I64_MIN if a < 0 else a + I64_MIN
    return add_i64(a, -b)
