"""Which partition a key belongs to: Java's murmur2, so that every client agrees.

A record without a key goes where the queue is short; that needs the queues and is in `accumulator` (KIP-480, KIP-794).
"""

from typing import Final

from librt.strings import BytesWriter, read_i32_le, write_i32_le
from mypy_extensions import i32, i64

from mainstem.protocol.columns import ByteColumn

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> i64:
    """Java's 32-bit murmur2 of `data`, without a sign."""
    return _murmur2(data, 0, len(data))


def _murmur2(data: bytes, start: i64, length: i64) -> i64:
    whole: i64 = start + length - length % 4
    h: i64 = (_SEED ^ length) & _MASK
    at: i64 = start
    while at < whole:
        k: i64 = ((i64(read_i32_le(data, at)) & _MASK) * _M) & _MASK
        k ^= k >> 24
        k = (k * _M) & _MASK
        h = ((h * _M) & _MASK) ^ k
        at += 4
    left: i64 = start + length - whole
    if left > 0:
        if left == 3:
            h ^= i64(data[whole + 2]) << 16
        if left >= 2:
            h ^= i64(data[whole + 1]) << 8
        h ^= i64(data[whole])
        h = (h * _M) & _MASK
    h ^= h >> 13
    h = (h * _M) & _MASK
    return h ^ (h >> 15)


def partition_for_key(key: bytes, partitions: i64) -> i64:
    """The partition that Java's default partitioner gives a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def partitions_for_keys(keys: ByteColumn, partitions: i64, without_key: i64) -> bytes:
    """The partition of each row as 32-bit integers; rows whose key is null get `without_key`."""
    writer = BytesWriter()
    data = keys.data
    row: i64 = 0
    rows: i64 = keys.rows
    while row < rows:
        length: i64 = keys.length(row)
        partition: i64 = without_key
        if length >= 0:
            partition = (_murmur2(data, keys.start(row), length) & 0x7FFFFFFF) % partitions
        write_i32_le(writer, i32(partition))
        row += 1
    return writer.getvalue()
