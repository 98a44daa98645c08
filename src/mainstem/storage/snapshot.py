"""Producer snapshots (`.snapshot`): what is known of a partition's producers up to an offset, which is the file's name.

Version (int16, 1), CRC-32C of all that follows (uint32), number of producers (int32), then 46 bytes each, big-endian:
producer id (int64), epoch (int16), last sequence (int32), last offset (int64), offset delta of the last batch (int32),
timestamp (int64), coordinator epoch (int32), first offset of the open transaction (int64, -1 where none is open).

A snapshot that does not match its CRC or has another version is ValueError: the caller removes it and goes on with an
older one, since the log has it all (KAFKA-9892).
"""

from typing import Final

from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    read_i64_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i64

from mainstem.core.log.producers import BatchMark, Producer, ProducerStates
from mainstem.protocol.checksum import crc32c

VERSION: Final = 1
HEADER_BYTES: Final = 10
ENTRY_BYTES: Final = 46


def encode_snapshot(states: ProducerStates) -> bytes:
    body = BytesWriter()
    producers = states.in_snapshot_order()
    write_i32_be(body, len(producers))
    for producer in producers:
        write_i64_be(body, producer.producer_id)
        write_i16_be(body, producer.epoch)  # type: ignore[arg-type]
        write_i32_be(body, producer.last_sequence)  # type: ignore[arg-type]
        write_i64_be(body, producer.last_offset)
        write_i32_be(body, producer.last_offset_delta)  # type: ignore[arg-type]
        write_i64_be(body, producer.last_timestamp)
        write_i32_be(body, producer.coordinator_epoch)  # type: ignore[arg-type]
        write_i64_be(body, producer.txn_first_offset)
    data = body.getvalue()
    checksum: i64 = crc32c(data)
    header = BytesWriter()
    write_i16_be(header, VERSION)
    # The CRC is unsigned, the writer's integers are signed.
    write_i32_be(header, checksum - (1 << 32) if checksum >= 1 << 31 else checksum)  # type: ignore[arg-type]
    return header.getvalue() + data


def decode_snapshot(data: bytes) -> list[Producer]:
    if len(data) < HEADER_BYTES:
        raise ValueError(f"{len(data)} bytes are no snapshot")
    version: i64 = i64(read_i16_be(data, 0))
    if version != VERSION:
        raise ValueError(f"snapshot version {version} is not known")
    if i64(read_i32_be(data, 2)) & 0xFFFFFFFF != i64(crc32c(memoryview(data)[6:])):
        raise ValueError("the snapshot does not match its CRC")
    count: i64 = i64(read_i32_be(data, 6))
    if count < 0 or HEADER_BYTES + count * ENTRY_BYTES != len(data):
        raise ValueError(f"{count} producers do not take {len(data)} bytes")
    producers: list[Producer] = []
    at: i64 = HEADER_BYTES
    while at < len(data):
        producer = Producer(read_i64_be(data, at))
        producer.epoch = i64(read_i16_be(data, at + 8))
        last_sequence: i64 = i64(read_i32_be(data, at + 10))
        last_offset: i64 = read_i64_be(data, at + 14)
        timestamp: i64 = read_i64_be(data, at + 26)
        producer.last_timestamp = timestamp
        producer.coordinator_epoch = i64(read_i32_be(data, at + 34))
        producer.txn_first_offset = read_i64_be(data, at + 38)
        if last_offset >= 0:
            delta: i64 = i64(read_i32_be(data, at + 22))
            producer.batches.append(BatchMark(last_sequence, last_offset, delta, timestamp))
            producer.older_unread = last_sequence >= 0
        producers.append(producer)
        at += ENTRY_BYTES
    return producers
