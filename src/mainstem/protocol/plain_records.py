"""Records that have no headers, no nulls and the timestamp of their batch, written from columns as fast as it goes.

Most of what is sent is of this kind. Before the key, such a record has five small fields that fit into one word
together: its length, attributes, timestamp delta, offset delta and the key's length. They are put together in a
register and written at once; written one by one they cost as much as copying the value does.

A row for which that does not hold, or that is large, is left to the caller, who writes it field by field.
"""

from typing import Final

from librt.strings import BytesWriter, read_i64_le, write_i16_le, write_i64_le
from mypy_extensions import i16, i64, u8

WORD_KEY_BYTES_MAX: Final = 63
"""The length of a longer key takes two bytes."""

TWO_BYTES_MAX: Final = 8191
"""The largest number whose varint takes two bytes."""

OFFSET_DELTA_MAX: Final = 1048575
"""The largest number whose varint takes three bytes."""

BY_WORDS_BYTES_MAX: Final = 256
"""Up to here, copying eight bytes at a time is faster than making a slice."""

NULL_KEY: Final = 1
"""The length -1 as a varint."""


def write_plain_records(
    writer: BytesWriter,
    key_offsets: bytes,
    key_data: bytes,
    key_shift: i64,
    value_offsets: bytes,
    value_data: bytes,
    value_shift: i64,
    first: i64,
    row: i64,
    rows: i64,
    limit: i64,
) -> i64:
    """Writes rows from `row` on, of a batch that begins with row `first`; the first row that it did not write.

    That is `rows`, or a row with which the writer would hold more than `limit` bytes, or one that is not plain. Offsets
    are 64-bit, less `shift` they are positions in data, which has eight bytes more than it needs; an empty
    `key_offsets` is for rows without a key.
    """
    has_keys = len(key_offsets) > 0
    used: i64 = len(writer)
    key_position: i64 = read_i64_le(key_offsets, 8 * row) - key_shift if has_keys else 0
    value_position: i64 = read_i64_le(value_offsets, 8 * row) - value_shift
    while row < rows:
        key_end: i64 = key_position
        key_field: i64 = NULL_KEY
        if has_keys:
            key_end = read_i64_le(key_offsets, 8 * row + 8) - key_shift
            if key_end - key_position > WORD_KEY_BYTES_MAX:
                return row
            key_field = (key_end - key_position) << 1
        value_end: i64 = read_i64_le(value_offsets, 8 * row + 8) - value_shift
        value_length: i64 = value_end - value_position
        delta: i64 = row - first
        if value_length > TWO_BYTES_MAX or delta > OFFSET_DELTA_MAX:
            return row
        delta_bits: i64 = 8
        delta_field: i64 = delta << 1
        if delta > TWO_BYTES_MAX:
            delta_bits = 24
            delta_field = (delta & 0x3F) << 1 | 0x80 | (delta >> 6 & 0x7F | 0x80) << 8 | delta >> 13 << 16
        elif delta > 0x3F:
            delta_bits = 16
            delta_field = (delta & 0x3F) << 1 | 0x80 | delta >> 6 << 8
        value_field: i64 = value_length << 1
        value_field_bytes: i64 = 1
        if value_length > 0x3F:
            value_field_bytes = 2
            value_field = (value_length & 0x3F) << 1 | 0x80 | value_length >> 6 << 8
        # Attributes, the timestamp's delta, the key's length and the number of headers are a byte each.
        size: i64 = 4 + (delta_bits >> 3) + (key_end - key_position) + value_field_bytes + value_length
        if size > TWO_BYTES_MAX:
            return row
        size_bits: i64 = 8
        word: i64 = size << 1
        if size > 0x3F:
            size_bits = 16
            word = (size & 0x3F) << 1 | 0x80 | size >> 6 << 8
        if used + (size_bits >> 3) + size > limit:
            return row
        word |= (delta_field | key_field << delta_bits) << (size_bits + 16)
        write_i64_le(writer, word)
        used += (size_bits + 16 + delta_bits + 8) >> 3
        writer.truncate(used)
        if key_end > key_position:
            used += key_end - key_position
            while key_position < key_end:
                write_i64_le(writer, read_i64_le(key_data, key_position))
                key_position += 8
            key_position = key_end
            writer.truncate(used)
        if value_field_bytes == 1:
            writer.append(u8(value_field))
        else:
            write_i16_le(writer, i16(value_field))
        if value_length > BY_WORDS_BYTES_MAX:
            writer.write(value_data[value_position:value_end])
        else:
            while value_position < value_end:
                write_i64_le(writer, read_i64_le(value_data, value_position))
                value_position += 8
            writer.truncate(used + value_field_bytes + value_length)
        value_position = value_end
        writer.append(u8(0))
        used += value_field_bytes + value_length + 1
        row += 1
    return row
