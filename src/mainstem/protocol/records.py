"""The records inside a batch: walking them, and reading them one by one.

    length          varint   of what follows          key length    varint, negative for null; then the key
    attributes      i8       unused                   value length  varint, negative for null; then the value
    timestamp delta varlong  from the base timestamp  header count  varint; for each a key length and key, then
    offset delta    varint   from the base offset                   a value length (negative for null) and value

`walk_records` is the broker's check of what a producer sent, one pass and no object per record. `iterate_records`
makes a `Record` of each and serves batches of any origin, so it takes what compaction leaves: offsets with gaps.
`RecordScan` is what it goes by, for who wants less than a `Record`.

What Kafka 4.3 refuses with INVALID_RECORD, found by sending it such batches: a length that is negative, that leaves
the batch, or that is not used up exactly; a varint of more than five bytes (ten for a varlong); a key, value or
header that leaves its record; a negative number of headers, or more headers than bytes; a negative header key length;
fewer or more records than the header counts. Any negative key or value length is null, and attributes are not looked
at. All of that is so here. Stricter here, and INVALID_RECORD always:

- Kafka lets a wrong length pass in a compressed batch, where it skips keys and values without looking.
- Kafka takes an uncompressed batch whose offset deltas do not run 0, 1, 2 … and stores it, and answers
  UNKNOWN_SERVER_ERROR if it is compressed. Nothing corrects them later, so neither is taken here.
- Kafka answers UNKNOWN_SERVER_ERROR to an overlong varint in front of an uncompressed record.

Timestamps: with LogAppendTime every record has the batch's max timestamp. A batch with a delete horizon (KIP-534) has
the horizon as its base timestamp, and its deltas count from there: nothing to do when reading. Sums wrap as in Java.
"""

from collections.abc import Callable, Iterator
from typing import Final

from mypy_extensions import i64

from mainstem.protocol.batch import RECORDS_AT, BatchView
from mainstem.protocol.compression import DEFAULT_LIMIT, NONE, decompress
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.varint import add_i64, ends_early, read_varint, read_varlong

HEADER_KEY_ERRORS: Final = "surrogateescape"
"""Header keys are UTF-8; bytes that are not survive a round trip instead of being replaced."""

BREATH_RECORDS: Final = 4096
"""How many records are walked between two breaths: about a tenth of a millisecond, compiled."""


class Record:
    """One record; `offset` and `timestamp` are absolute. A header's value may be null, its key may not."""

    __slots__ = ("headers", "key", "offset", "timestamp", "value")

    def __init__(
        self,
        offset: i64,
        timestamp: i64,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes | None]],
    ) -> None:
        self.offset: i64 = offset
        self.timestamp: i64 = timestamp
        self.key = key
        self.value = value
        self.headers = headers

    def __repr__(self) -> str:
        return f"Record({self.offset}, {self.timestamp}, {self.key!r}, {self.value!r}, {self.headers!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return False
        return (
            self.offset == other.offset
            and self.timestamp == other.timestamp
            and self.key == other.key
            and self.value == other.value
            and self.headers == other.headers
        )


class RecordsSummary:
    """What a walk found so far."""

    __slots__ = ("has_null_key", "has_null_value", "max_timestamp", "max_timestamp_at", "min_timestamp")

    def __init__(self) -> None:
        self.min_timestamp: i64 = 0
        self.max_timestamp: i64 = 0
        self.max_timestamp_at: i64 = 0
        """The offset delta of the first record with the largest timestamp."""
        self.has_null_key = False
        self.has_null_value = False


def invalid(message: str) -> RemoteError:
    return RemoteError(ErrorCode.INVALID_RECORD, message)


def walk_records(
    buffer: bytes,
    start: i64,
    end: i64,
    count: i64,
    base_timestamp: i64 = 0,
    breathe: Callable[[], None] | None = None,
) -> RecordsSummary:
    """Checks `count` uncompressed records in `buffer[start:end]`, to the last byte; RemoteError if one is wrong.

    Timestamps count from `base_timestamp`. It is sums that are compared: where one wraps, the largest timestamp is not
    the one with the largest delta.
    `breathe` is called every few thousand records: a thread gives others their turn there.
    """
    if start < 0 or end > len(buffer) or start > end:
        raise invalid(f"records from {start} to {end} of {len(buffer)} bytes")
    if count < 0:
        raise invalid(f"a batch counts {count} records")
    summary = RecordsSummary()
    position: i64 = start
    if breathe is None:
        position = _walk(buffer, start, end, 0, count, base_timestamp, summary)
    else:
        index: i64 = 0
        while index < count:
            stop: i64 = min(count, index + BREATH_RECORDS)
            position = _walk(buffer, position, end, index, stop, base_timestamp, summary)
            index = stop
            breathe()
    if position != end:
        raise invalid(f"{end - position} bytes follow the last of {count} records")
    return summary


def _walk(
    buffer: bytes, position: i64, end: i64, index: i64, stop: i64, base_timestamp: i64, summary: RecordsSummary
) -> i64:
    """Checks the records from the `index`th up to the one at `stop`; the position after them."""
    min_timestamp: i64 = summary.min_timestamp
    max_timestamp: i64 = summary.max_timestamp
    max_at: i64 = summary.max_timestamp_at
    null_key = summary.has_null_key
    null_value = summary.has_null_value
    while index < stop:
        length, position = read_varint(buffer, position, end)
        if length < 0 or length > end - position:
            raise invalid(f"record {index} has {length} bytes where {end - position} are left")
        record_end: i64 = position + length
        # The attributes: one byte, unused, checked by nobody.
        delta, position = read_varlong(buffer, position + 1, record_end)
        timestamp: i64 = add_i64(base_timestamp, delta)
        if index == 0:
            min_timestamp = timestamp
            max_timestamp = timestamp
        elif timestamp > max_timestamp:
            max_timestamp = timestamp
            max_at = index
        elif timestamp < min_timestamp:
            min_timestamp = timestamp
        offset_delta, position = read_varint(buffer, position, record_end)
        if offset_delta != index:
            raise invalid(f"record {index} of a batch has offset delta {offset_delta}")
        length, position = read_varint(buffer, position, record_end)
        if length < 0:
            null_key = True
        elif length > record_end - position:
            raise ends_early(record_end)
        else:
            position += length
        length, position = read_varint(buffer, position, record_end)
        if length < 0:
            null_value = True
        elif length > record_end - position:
            raise ends_early(record_end)
        else:
            position += length
        # No headers is one zero byte at the very end, and what nearly every record has.
        if position + 1 == record_end and buffer[position] == 0:
            position = record_end
        else:
            position = skip_headers(buffer, position, record_end)
        index += 1
    summary.min_timestamp = min_timestamp
    summary.max_timestamp = max_timestamp
    summary.max_timestamp_at = max_at
    summary.has_null_key = null_key
    summary.has_null_value = null_value
    return position


def skip_headers(buffer: bytes, position: i64, record_end: i64) -> i64:
    """Checks the headers of one record, up to its very end."""
    count, position = read_varint(buffer, position, record_end)
    if count < 0 or count > record_end - position:
        raise invalid(f"a record of {record_end - position} bytes left claims {count} headers")
    index: i64 = 0
    while index < count:
        length, position = read_varint(buffer, position, record_end)
        if length < 0 or length > record_end - position:
            raise invalid(f"a header key has {length} bytes where {record_end - position} are left")
        length, position = read_varint(buffer, position + length, record_end)
        if length > 0:
            if length > record_end - position:
                raise ends_early(record_end)
            position += length
        index += 1
    if position != record_end:
        raise invalid(f"{record_end - position} bytes follow the headers of a record")
    return position


def batch_body(batch: BatchView, limit: i64 = DEFAULT_LIMIT) -> tuple[bytes, i64, i64]:
    """The uncompressed records of a batch: a buffer, and where in it they start and end. Copies nothing if it can."""
    start: i64 = batch.start + RECORDS_AT
    end: i64 = batch.end
    if end < start or end > len(batch.buffer):
        raise RemoteError(ErrorCode.CORRUPT_MESSAGE, f"batch of {batch.size} bytes at {batch.start}")
    codec: i64 = batch.codec
    if codec == NONE:
        return batch.buffer, start, end
    if batch.record_count == 0 and start == end:
        return b"", 0, 0
    body = decompress(codec, batch.buffer[start:end], limit)
    return body, 0, len(body)


class RecordScan:
    """The records of a batch, one after the other, by where they lie: nothing is made of one that nobody asks for.

    Raises RemoteError at the first record whose length is wrong, after those before it. `limit` bounds what compressed
    records may expand to.
    """

    def __init__(self, batch: BatchView, limit: i64 = DEFAULT_LIMIT) -> None:
        body, start, end = batch_body(batch, limit)
        self._body = body
        self._start: i64 = start
        self._record_end: i64 = start
        self._end: i64 = end
        self._left: i64 = batch.record_count
        if self._left < 0:
            raise invalid(f"a batch counts {self._left} records")
        self._count: i64 = self._left
        self._base_offset: i64 = batch.base_offset
        self._base_timestamp: i64 = batch.base_timestamp
        self._max_timestamp: i64 = batch.max_timestamp
        self._is_log_append_time = batch.is_log_append_time

    def advance(self) -> bool:
        """On to the next record; false behind the last."""
        end: i64 = self._end
        if self._left == 0:
            if self._record_end != end:
                raise invalid(f"{end - self._record_end} bytes follow the last of {self._count} records")
            return False
        length, position = read_varint(self._body, self._record_end, end)
        if length < 0 or length > end - position:
            raise invalid(f"record {self._count - self._left} has {length} bytes where {end - position} are left")
        self._left -= 1
        self._start = position
        self._record_end = position + length
        return True

    def place(self) -> tuple[i64, i64]:
        """The offset and the timestamp of the record, of which no more is looked at."""
        delta, position = read_varlong(self._body, self._start + 1, self._record_end)
        offset_delta, position = read_varint(self._body, position, self._record_end)
        timestamp: i64 = self._max_timestamp if self._is_log_append_time else add_i64(self._base_timestamp, delta)
        return add_i64(self._base_offset, offset_delta), timestamp

    def record(self) -> Record:
        """All of the record. Raises RemoteError where it is malformed."""
        record = read_record(self._body, self._start, self._record_end, self._base_offset, self._base_timestamp)
        if self._is_log_append_time:
            record.timestamp = self._max_timestamp
        return record


def iterate_records(batch: BatchView, limit: i64 = DEFAULT_LIMIT) -> Iterator[Record]:
    """The records of a batch in order. `limit` bounds what compressed ones may expand to.

    Raises RemoteError at the first malformed record, after those before it.
    """
    scan = RecordScan(batch, limit)
    while scan.advance():
        yield scan.record()


def read_record(buffer: bytes, position: i64, end: i64, base_offset: i64, base_timestamp: i64) -> Record:
    """The record in `buffer[position:end]`, which is what follows its length."""
    delta, position = read_varlong(buffer, position + 1, end)
    offset_delta, position = read_varint(buffer, position, end)
    key: bytes | None = None
    length, position = read_varint(buffer, position, end)
    if length >= 0:
        if length > end - position:
            raise ends_early(end)
        key = buffer[position : position + length]
        position += length
    value: bytes | None = None
    length, position = read_varint(buffer, position, end)
    if length >= 0:
        if length > end - position:
            raise ends_early(end)
        value = buffer[position : position + length]
        position += length
    headers: list[tuple[str, bytes | None]] = []
    count, position = read_varint(buffer, position, end)
    if count != 0:
        if count < 0 or count > end - position:
            raise invalid(f"a record of {end - position} bytes left claims {count} headers")
        while count > 0:
            length, position = read_varint(buffer, position, end)
            if length < 0 or length > end - position:
                raise invalid(f"a header key has {length} bytes where {end - position} are left")
            name = buffer[position : position + length].decode("utf-8", HEADER_KEY_ERRORS)
            length, position = read_varint(buffer, position + length, end)
            if length < 0:
                headers.append((name, None))
            else:
                if length > end - position:
                    raise ends_early(end)
                headers.append((name, buffer[position : position + length]))
                position += length
            count -= 1
    if position != end:
        raise invalid(f"{end - position} bytes follow the headers of a record")
    return Record(add_i64(base_offset, offset_delta), add_i64(base_timestamp, delta), key, value, headers)
