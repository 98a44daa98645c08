"""Making record batches: from records, and from other batches.

`BatchBuilder` writes what Java's MemoryRecordsBuilder writes for the same input, byte for byte when uncompressed. The
rest makes a batch out of a batch: `rewrite_header` for what a broker decides about timestamps, `recompress` for a
topic with a codec of its own, `empty_batch` for the log cleaner (`storage.batch_filter` makes what keeps records): a
batch that keeps none may stay as a bare header, so that its producer's last sequence survives (KAFKA-5490).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from librt.strings import BytesWriter, write_i16_be, write_i32_be, write_i64_be
from mypy_extensions import i64, u8

from mainstem.protocol.batch import (
    CODEC_MASK,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    RECORDS_AT,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchView,
)
from mainstem.protocol.checksum import crc32c
from mainstem.protocol.compression import DEFAULT_LIMIT, NONE, compress
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.records import HEADER_KEY_ERRORS, Record, batch_body, iterate_records
from mainstem.protocol.varint import read_varint, read_varlong, subtract_i64, varint_size, write_varint

Headers = Sequence[tuple[str, bytes | None]]

NO_LEADER_EPOCH: Final = -1
NO_LIMIT: Final = 0x7FFFFFFF
I32_MAX: Final = 0x7FFFFFFF

_BREATH_RECORDS: Final = 512
"""Records that are made one by one take longer than those that are walked."""

_KNOWN_MASK: Final = TIMESTAMP_TYPE_MASK | TRANSACTIONAL_MASK | CONTROL_MASK | DELETE_HORIZON_MASK


def encode_header(
    body: bytes | memoryview,
    base_offset: i64,
    leader_epoch: i64,
    attributes: i64,
    last_offset_delta: i64,
    base_timestamp: i64,
    max_timestamp: i64,
    producer_id: i64,
    producer_epoch: i64,
    base_sequence: i64,
    record_count: i64,
) -> bytes:
    """The 61 bytes in front of `body`, with its length and the CRC of both."""
    tail = BytesWriter()
    write_i16_be(tail, attributes)  # type: ignore[arg-type]
    write_i32_be(tail, last_offset_delta)  # type: ignore[arg-type]
    write_i64_be(tail, base_timestamp)
    write_i64_be(tail, max_timestamp)
    write_i64_be(tail, producer_id)
    write_i16_be(tail, producer_epoch)  # type: ignore[arg-type]
    write_i32_be(tail, base_sequence)  # type: ignore[arg-type]
    write_i32_be(tail, record_count)  # type: ignore[arg-type]
    checked = tail.getvalue()
    crc: i64 = crc32c(body, crc32c(checked))
    head = BytesWriter()
    write_i64_be(head, base_offset)
    write_i32_be(head, len(body) + HEADER_BYTES - LENGTH_OVERHEAD)
    write_i32_be(head, leader_epoch)  # type: ignore[arg-type]
    head.append(u8(2))
    write_i32_be(head, crc - 0x100000000 if crc > I32_MAX else crc)  # type: ignore[arg-type]
    head.write(checked)
    return head.getvalue()


class BatchBuilder:
    """Collects records into one batch.

    Offsets run from `base_offset`, or are given one by one with `append_at`. The base timestamp is that of the first
    record unless given; `log_append_time` makes every record carry that time; `delete_horizon` is when tombstones of
    the batch may go, and takes the place of the base timestamp (KIP-534). `max_bytes` bounds the batch before
    compression: a record that does not fit is not taken, except the first.
    """

    __slots__ = (
        "_base_timestamp",
        "_delete_horizon",
        "_has_base_timestamp",
        "_last_delta",
        "_log_append_time",
        "_max_timestamp",
        "_writer",
        "base_offset",
        "base_sequence",
        "codec",
        "control",
        "leader_epoch",
        "level",
        "max_bytes",
        "producer_epoch",
        "producer_id",
        "record_count",
        "transactional",
    )

    def __init__(
        self,
        codec: i64 = NONE,
        base_offset: i64 = 0,
        base_timestamp: int | None = None,
        producer_id: i64 = NO_PRODUCER_ID,
        producer_epoch: i64 = -1,
        base_sequence: i64 = NO_SEQUENCE,
        transactional: bool = False,
        control: bool = False,
        leader_epoch: i64 = NO_LEADER_EPOCH,
        log_append_time: int | None = None,
        delete_horizon: int | None = None,
        max_bytes: i64 = NO_LIMIT,
        level: int | None = None,
    ) -> None:
        self.codec: i64 = codec
        self.base_offset: i64 = base_offset
        self.producer_id: i64 = producer_id
        self.producer_epoch: i64 = producer_epoch
        self.base_sequence: i64 = base_sequence
        self.transactional = transactional
        self.control = control
        self.leader_epoch: i64 = leader_epoch
        self.max_bytes: i64 = max_bytes
        self.level = level
        self.record_count: i64 = 0
        self._delete_horizon = delete_horizon
        self._log_append_time = log_append_time
        first = base_timestamp if delete_horizon is None else delete_horizon
        self._has_base_timestamp = first is not None
        self._base_timestamp: i64 = NO_TIMESTAMP if first is None else first
        self._max_timestamp: i64 = NO_TIMESTAMP
        self._last_delta: i64 = -1
        self._writer = BytesWriter()

    @property
    def size_estimate(self) -> i64:
        """The size of the batch so far, before compression."""
        return HEADER_BYTES + len(self._writer)

    @property
    def next_offset(self) -> i64:
        return self.base_offset + self._last_delta + 1

    def append(self, timestamp: i64, key: bytes | None, value: bytes | None, headers: Headers = ()) -> bool:
        """Adds a record at the next offset. False if the batch has no room for it."""
        return self.append_at(self.base_offset + self._last_delta + 1, timestamp, key, value, headers)

    def append_at(
        self, offset: i64, timestamp: i64, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> bool:
        """Adds a record at an offset past the last one. False if the batch has no room for it."""
        offset_delta: i64 = offset - self.base_offset
        if offset_delta <= self._last_delta or offset_delta > I32_MAX:
            raise ValueError(f"offset {offset} in a batch at {self.base_offset}: must be past {self.next_offset - 1}")
        if not self._has_base_timestamp:
            self._has_base_timestamp = True
            self._base_timestamp = timestamp
        delta: i64 = subtract_i64(timestamp, self._base_timestamp)
        # Most records have no headers, and then are spared a call through the sequence protocol.
        tail = encode_headers(headers) if headers else b"\x00"
        size: i64 = 1 + varint_size(delta) + varint_size(offset_delta) + len(tail)
        size += 1 if key is None else varint_size(len(key)) + len(key)
        size += 1 if value is None else varint_size(len(value)) + len(value)
        writer = self._writer
        if self.record_count > 0 and HEADER_BYTES + len(writer) + varint_size(size) + size > self.max_bytes:
            return False
        write_varint(writer, size)
        writer.append(u8(0))
        write_varint(writer, delta)
        write_varint(writer, offset_delta)
        _write_nullable(writer, key)
        _write_nullable(writer, value)
        writer.write(tail)
        if self.record_count == 0 or timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        self._last_delta = offset_delta
        self.record_count += 1
        return True

    def build(self, last_offset: int | None = None) -> bytes:
        """The batch. `last_offset` is for a cleaned batch that ends past the last record it kept."""
        last_delta: i64 = self._last_delta
        if last_offset is not None:
            if last_offset < self.base_offset + last_delta:
                raise ValueError(f"last offset {last_offset}: there is a record at {self.base_offset + last_delta}")
            last_delta = last_offset - self.base_offset
        elif last_delta < 0:
            raise ValueError("a batch with neither a record nor a last offset")
        attributes: i64 = self.codec
        max_timestamp: i64 = self._max_timestamp
        if self._log_append_time is not None:
            attributes |= TIMESTAMP_TYPE_MASK
            max_timestamp = self._log_append_time
        if self.transactional:
            attributes |= TRANSACTIONAL_MASK
        if self.control:
            attributes |= CONTROL_MASK
        if self._delete_horizon is not None:
            attributes |= DELETE_HORIZON_MASK
        body = compress(self.codec, self._writer.getvalue(), self.level)
        header = encode_header(
            body,
            self.base_offset,
            self.leader_epoch,
            attributes,
            last_delta,
            self._base_timestamp,
            max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        )
        return header + body


def encode_headers(headers: Headers) -> bytes:
    """The end of a record: how many headers, and each."""
    writer = BytesWriter()
    write_varint(writer, len(headers))
    for key, value in headers:
        _write_nullable(writer, key.encode("utf-8", HEADER_KEY_ERRORS))
        _write_nullable(writer, value)
    return writer.getvalue()


def _write_nullable(writer: BytesWriter, data: bytes | None) -> None:
    if data is None:
        writer.append(u8(1))
    else:
        write_varint(writer, len(data))
        writer.write(data)


def rewrite_header(
    batch: BatchView,
    base_offset: int | None = None,
    leader_epoch: int | None = None,
    log_append_time: int | None = None,
    max_timestamp: int | None = None,
) -> bytes:
    """The 61 bytes of this batch's header with what is given changed and the CRC made anew.

    The records stay where they are: write this, then `batch.buffer[batch.start + HEADER_BYTES : batch.end]`.
    `log_append_time` makes it a LogAppendTime batch of that time; `max_timestamp` makes it a CreateTime batch.
    Either clears bits of the attributes that mean nothing yet, as Kafka does. A delete horizon is not
    for this: it moves the base that the records count from.
    """
    attributes: i64 = batch.attributes
    timestamp: i64 = batch.max_timestamp
    if log_append_time is not None or max_timestamp is not None:
        attributes &= CODEC_MASK | _KNOWN_MASK
    if log_append_time is not None:
        assert max_timestamp is None, "a batch has one timestamp type"
        attributes |= TIMESTAMP_TYPE_MASK
        timestamp = log_append_time
    elif max_timestamp is not None:
        attributes &= ~TIMESTAMP_TYPE_MASK
        timestamp = max_timestamp
    return encode_header(
        memoryview(batch.buffer)[batch.start + RECORDS_AT : batch.end],
        batch.base_offset if base_offset is None else base_offset,
        batch.leader_epoch if leader_epoch is None else leader_epoch,
        attributes,
        batch.last_offset_delta,
        batch.base_timestamp,
        timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.record_count,
    )


def recompress(
    batch: BatchView,
    codec: i64,
    level: int | None = None,
    limit: i64 = DEFAULT_LIMIT,
    breathe: Callable[[], None] | None = None,
) -> bytes:
    """The batch with its records in another codec, or at another level, as Kafka makes it.

    The records stay as they are, byte for byte, if their deltas count from the first record's timestamp, as they do in
    what nearly every client writes. Kafka makes them so; so where they do not, they are written anew. A delete horizon
    is the cleaner's to set: what a producer made look like one is none in what is made of its batch.
    """
    buffer, start, end = batch_body(batch, limit)
    if batch.record_count > 0:
        _, position = read_varint(buffer, start, end)
        first_delta, _ = read_varlong(buffer, position + 1, end)
        if first_delta != 0 or batch.is_log_append_time:
            return _rebuild(batch, iterate_records(batch, limit), codec, level, breathe)
    body = compress(codec, buffer[start:end], level)
    header = encode_header(
        body,
        batch.base_offset,
        batch.leader_epoch,
        (batch.attributes & _KNOWN_MASK & ~DELETE_HORIZON_MASK) | codec,
        batch.last_offset_delta,
        batch.base_timestamp,
        batch.max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.record_count,
    )
    return header + body


def _rebuild(
    batch: BatchView,
    records: Iterable[Record],
    codec: i64,
    level: int | None,
    breathe: Callable[[], None] | None,
) -> bytes:
    """These records, with everything else as `batch` has it."""
    builder = BatchBuilder(
        codec=codec,
        base_offset=batch.base_offset,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        transactional=batch.is_transactional,
        control=batch.is_control,
        leader_epoch=batch.leader_epoch,
        log_append_time=batch.max_timestamp if batch.is_log_append_time else None,
        level=level,
    )
    try:
        for record in records:
            builder.append_at(record.offset, record.timestamp, record.key, record.value, record.headers)
            if breathe is not None and builder.record_count % _BREATH_RECORDS == 0:
                breathe()
        return builder.build(batch.last_offset)
    except ValueError as error:
        # Offsets that do not go up, or go past the last one, came with the batch.
        raise RemoteError(ErrorCode.INVALID_RECORD, str(error)) from None


def empty_batch(batch: BatchView) -> bytes:
    """What remains of a batch without records: the header, for the sake of its offsets and its producer's sequence."""
    return encode_header(
        b"",
        batch.base_offset,
        batch.leader_epoch,
        batch.attributes & (TIMESTAMP_TYPE_MASK | TRANSACTIONAL_MASK | CONTROL_MASK),
        batch.last_offset_delta,
        NO_TIMESTAMP,
        batch.max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        0,
    )
