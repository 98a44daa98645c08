"""The header of a RecordBatch v2, as a view over the bytes it came in.

A batch is the same on the wire, on disk and between replicas; nothing re-encodes it on the way. On the data path a
batch is opaque behind its 61-byte header, and a frame is immutable: what the leader assigns (base offset, leader
epoch) lies in the first 16 bytes, before the range of the CRC, so that `stamp` makes 16 fresh bytes and the rest
is written from where it is.

    0 base offset       i64     21 attributes         i16    51 producer epoch  i16
    8 batch length      i32     23 last offset delta  i32    53 base sequence   i32
   12 leader epoch      i32     27 base timestamp     i64    57 record count    i32
   16 magic (2)         i8      35 max timestamp      i64    61 records
   17 CRC-32C of 21…    u32     43 producer id        i64

Offsets and positions are half-open everywhere: `end` is the first byte after the batch, `next_offset` the first
offset after it.
"""

from collections.abc import Iterator
from typing import Final

from librt.strings import BytesWriter, read_i16_be, read_i32_be, read_i64_be, write_i32_be, write_i64_be
from mypy_extensions import i64

from mainstem.protocol.checksum import crc32c
from mainstem.protocol.errors import ErrorCode, RemoteError

LENGTH_AT: Final = 8
MAGIC_AT: Final = 16
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
MAX_TIMESTAMP_AT: Final = 35
RECORDS_AT: Final = 61
HEADER_BYTES: Final = 61
STAMP_BYTES: Final = 16
"""What `stamp` replaces: base offset, length and leader epoch, all before the CRC's range."""
LENGTH_OVERHEAD: Final = 12
"""The batch length counts what follows it, so the whole batch is this much longer."""

CODEC_MASK: Final = 0x07
TIMESTAMP_TYPE_MASK: Final = 0x08
TRANSACTIONAL_MASK: Final = 0x10
CONTROL_MASK: Final = 0x20
DELETE_HORIZON_MASK: Final = 0x40

NO_PRODUCER_ID: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1


class BatchView:
    """One batch at `start` in `buffer`. Reads fields where they lie and copies nothing.

    Making one checks nothing but that the header is inside the buffer; `check` judges what a peer sent.
    """

    __slots__ = ("buffer", "start")

    def __init__(self, buffer: bytes, start: i64) -> None:
        if start < 0 or start + HEADER_BYTES > len(buffer):
            raise RemoteError(ErrorCode.CORRUPT_MESSAGE, f"no room for a batch header at {start} of {len(buffer)}")
        self.buffer = buffer
        self.start: i64 = start

    @property
    def base_offset(self) -> i64:
        return read_i64_be(self.buffer, self.start)

    @property
    def size(self) -> i64:
        """The whole batch in bytes, its first twelve included."""
        return i64(read_i32_be(self.buffer, self.start + LENGTH_AT)) + LENGTH_OVERHEAD

    @property
    def end(self) -> i64:
        return self.start + self.size

    @property
    def leader_epoch(self) -> i64:
        return i64(read_i32_be(self.buffer, self.start + 12))

    @property
    def magic(self) -> i64:
        return i64(self.buffer[self.start + MAGIC_AT])

    @property
    def crc(self) -> i64:
        return i64(read_i32_be(self.buffer, self.start + CRC_AT)) & 0xFFFFFFFF

    @property
    def attributes(self) -> i64:
        return i64(read_i16_be(self.buffer, self.start + ATTRIBUTES_AT))

    @property
    def last_offset_delta(self) -> i64:
        return i64(read_i32_be(self.buffer, self.start + 23))

    @property
    def last_offset(self) -> i64:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> i64:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def base_timestamp(self) -> i64:
        return read_i64_be(self.buffer, self.start + 27)

    @property
    def max_timestamp(self) -> i64:
        return read_i64_be(self.buffer, self.start + MAX_TIMESTAMP_AT)

    @property
    def producer_id(self) -> i64:
        return read_i64_be(self.buffer, self.start + 43)

    @property
    def producer_epoch(self) -> i64:
        return i64(read_i16_be(self.buffer, self.start + 51))

    @property
    def base_sequence(self) -> i64:
        return i64(read_i32_be(self.buffer, self.start + 53))

    @property
    def last_sequence(self) -> i64:
        """Sequences run to 2^31 - 1 and then start at 0 again (KAFKA-7692)."""
        base: i64 = self.base_sequence
        if base < 0:
            return NO_SEQUENCE
        return (base + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def record_count(self) -> i64:
        return i64(read_i32_be(self.buffer, self.start + 57))

    @property
    def codec(self) -> i64:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & TIMESTAMP_TYPE_MASK != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_MASK != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_MASK != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Whether `base_timestamp` holds the time at which tombstones here may go (KIP-534)."""
        return self.attributes & DELETE_HORIZON_MASK != 0

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id >= 0

    def check(self, limit: i64) -> None:
        """Raises RemoteError unless a whole, sound batch of v2 lies before `limit`."""
        size: i64 = self.size
        if size < HEADER_BYTES or self.start + size > limit:
            raise RemoteError(ErrorCode.CORRUPT_MESSAGE, f"batch of {size} bytes where {limit - self.start} are left")
        if self.magic != 2:
            # As Kafka 4 answers: formats that were dropped are invalid, ones that never were are corruption.
            code = ErrorCode.INVALID_RECORD if self.magic < 2 else ErrorCode.CORRUPT_MESSAGE
            raise RemoteError(code, f"record format v{self.magic}; v2 is the only one supported")
        if self.computed_crc() != self.crc:
            raise RemoteError(ErrorCode.CORRUPT_MESSAGE, "the batch does not match its CRC")

    def computed_crc(self) -> i64:
        return i64(crc32c(memoryview(self.buffer)[self.start + ATTRIBUTES_AT : self.end]))

    def stamp(self, base_offset: i64, leader_epoch: i64) -> bytes:
        """The first 16 bytes of this batch as the leader writes them."""
        writer = BytesWriter()
        write_i64_be(writer, base_offset)
        write_i32_be(writer, read_i32_be(self.buffer, self.start + LENGTH_AT))
        write_i32_be(writer, leader_epoch)  # type: ignore[arg-type]
        return writer.getvalue()

    def to_bytes(self) -> bytes:
        """A copy of the whole batch."""
        return self.buffer[self.start : self.end]


def iterate_batches(buffer: bytes, start: i64, end: i64) -> Iterator[BatchView]:
    """The whole batches in `buffer[start:end]`; a torn one at the end, as a fetch may return it, is left out.

    A length that no batch can have raises RemoteError; nothing else is checked.
    """
    position: i64 = start
    while position + HEADER_BYTES <= end:
        batch = BatchView(buffer, position)
        size: i64 = batch.size
        if size < HEADER_BYTES:
            raise RemoteError(ErrorCode.CORRUPT_MESSAGE, f"batch of {size} bytes at {position}")
        if position + size > end:
            return
        yield batch
        position += size
