"""Records to Arrow columns and back, without a Python object per record (but for headers, when encoding).

Decoding: one compiled pass notes where each key and value lies; Arrow then gathers them. Values are not contiguous in
a batch, but starts and ends interleaved are the offsets of an array "value, gap, value, gap …", and taking every other
element copies the values out in C++. Only the columns that are asked for are built. Their types are those that Spark
takes: `binary`, not `large_binary` or `binary_view`; headers as `list<struct<key: string, value: binary>>`.

Encoding: offsets and data of the Arrow arrays are read where they lie; a record's bytes are written straight into the
batch. Batches end before the record that would not fit.

pyarrow and numpy are imported here only, and only when a function is called: the broker does without them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from librt.vecs import append, vec
from mypy_extensions import i32, i64, u8

from mainstem.protocol.batch import HEADER_BYTES, TRANSACTIONAL_MASK, BatchView, iterate_batches
from mainstem.protocol.builder import encode_header
from mainstem.protocol.compression import NONE, compress
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.plain_records import write_plain_records
from mainstem.protocol.records import batch_body, invalid
from mainstem.protocol.varint import (
    I64_MAX,
    add_i64,
    ends_early,
    read_varint,
    read_varlong,
    subtract_i64,
    varint_size,
    write_varint,
)

if TYPE_CHECKING:
    import pyarrow as pa

FIELDS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
"""Named and ordered as Spark's Kafka source has them."""

MAX_BODY_BYTES: Final = 0x7FFFFFF0
"""Arrow's `binary` has 32-bit offsets."""

SMALLEST_RECORD_BYTES: Final = 7
"""A length, attributes, two deltas, two lengths and a header count, a byte each."""

COPY_BY_WORDS_BYTES: Final = 256
"""Up to here, copying eight bytes at a time is faster than making a slice."""

SPARE_WRITER_BYTES: Final = 4 << 20
"""A writer that held no more than this is kept for the next call: growing a new one costs half as much as encoding
does, in page faults."""

_spare_writers: list[BytesWriter] = []

SAME_VALUES: Final = 16
SAME_ROWS: Final = 1 << 16
"""Of how many topics and partitions the column is kept for the next batch, and of how many rows."""

_same_in_all: dict[str | int, Any] = {}

NO_WORD: Final = -1
"""Stands for a word that would reach past its buffer: every varint in it is longer than we look."""

PADDING: Final = bytes(8)
"""Behind data that is copied by words, so that the last word can be read whole."""


class Columns:
    """Where the fields of `count` records lie in `buffer`. Made by `decode_columns`."""

    __slots__ = (
        "_header_ends",
        "_header_rows",
        "_header_starts",
        "_key_bounds",
        "_key_valid",
        "_null_keys",
        "_null_values",
        "_offsets",
        "_timestamps",
        "_types",
        "_value_bounds",
        "_value_valid",
        "buffer",
        "count",
        "next_offset",
    )

    def __init__(self, capacity: i64) -> None:
        self.buffer = b""
        self.count: i64 = 0
        self.next_offset: i64 = -1
        """The offset to read on from: past all batches seen, also those that gave no row. -1 if there were none."""
        # An empty vec has no memory at all, which Arrow cannot make a buffer of.
        capacity = max(capacity, 1)
        self._offsets = vec[i64]([0] * capacity)
        self._timestamps = vec[i64]([0] * capacity)
        self._key_bounds = vec[i32]([0] * (2 * capacity))
        self._value_bounds = vec[i32]([0] * (2 * capacity))
        self._key_valid = vec[u8]([1] * capacity)
        self._value_valid = vec[u8]([1] * capacity)
        self._null_keys: i64 = 0
        self._null_values: i64 = 0
        self._header_rows = vec[i64]()
        self._header_starts = vec[i64]()
        self._header_ends = vec[i64]()
        self._types: list[tuple[int, int]] = []  # the timestamp type, and the first row that has it

    def decode(
        self, batch: BatchView, body: bytes, start: i64, end: i64, shift: i64, from_offset: i64, to_offset: i64
    ) -> None:
        """Adds the records of one batch that lie in `body[start:end]`, and in `buffer` at `shift` bytes further on."""
        count: i64 = batch.record_count
        base_offset: i64 = batch.base_offset
        base_timestamp: i64 = batch.base_timestamp
        max_timestamp: i64 = batch.max_timestamp
        log_append_time = batch.is_log_append_time
        kind = 1 if log_append_time else 0
        row: i64 = self.count
        if not self._types or self._types[-1][1] != kind:
            self._types.append((row, kind))
        offsets = self._offsets
        timestamps = self._timestamps
        key_bounds = self._key_bounds
        value_bounds = self._value_bounds
        # Varints of up to three bytes are taken out of one word each, here: calls would cost more than all the rest.
        # A word may reach past its record but not past the buffer; that the fields do not is checked after the last.
        last_word: i64 = len(body) - 8
        position: i64 = start
        index: i64 = 0
        while index < count:
            index += 1
            word: i64 = NO_WORD
            if position <= last_word:
                word = read_i64_le(body, position)
            if word & 0x8080 == 0x0080:
                length: i64 = ((word & 0x7F) >> 1 | (word & 0x7F00) >> 2) ^ -(word & 1)
                position += 2
            else:
                length, position = read_varint(body, position, end)
            if length < 0 or length > end - position:
                raise invalid(f"record {index - 1} has {length} bytes where {end - position} are left")
            record_end: i64 = position + length
            # Attributes, which nobody reads, and the timestamp.
            word = NO_WORD
            if position <= last_word:
                word = read_i64_le(body, position) >> 8
            if word & 0x80 == 0:
                delta: i64 = (word & 0x7F) >> 1 ^ -(word & 1)
                position += 2
            else:
                delta, position = read_varlong(body, position + 1, record_end)
            word = NO_WORD
            if position <= last_word:
                word = read_i64_le(body, position)
            if word & 0x80 == 0:
                offset_delta: i64 = (word & 0x7F) >> 1 ^ -(word & 1)
                position += 1
            elif word & 0x8000 == 0:
                offset_delta = ((word & 0x7F) >> 1 | (word & 0x7F00) >> 2) ^ -(word & 1)
                position += 2
            elif word & 0x800000 == 0:
                offset_delta = ((word & 0x7F) >> 1 | (word & 0x7F00) >> 2 | (word & 0x7F0000) >> 3) ^ -(word & 1)
                position += 3
            else:
                offset_delta, position = read_varint(body, position, record_end)
            word = NO_WORD
            if position <= last_word:
                word = read_i64_le(body, position)
            if word & 0x80 == 0:
                key_length: i64 = (word & 0x7F) >> 1 ^ -(word & 1)
                position += 1
            else:
                key_length, position = read_varint(body, position, record_end)
            key_at: i64 = position
            if key_length > 0:
                if key_length > record_end - position:
                    raise ends_early(record_end)
                position += key_length
            word = NO_WORD
            if position <= last_word:
                word = read_i64_le(body, position)
            if word & 0x80 == 0:
                value_length: i64 = (word & 0x7F) >> 1 ^ -(word & 1)
                position += 1
            elif word & 0x8000 == 0:
                value_length = ((word & 0x7F) >> 1 | (word & 0x7F00) >> 2) ^ -(word & 1)
                position += 2
            else:
                value_length, position = read_varint(body, position, record_end)
            value_at: i64 = position
            if value_length > 0:
                if value_length > record_end - position:
                    raise ends_early(record_end)
                position += value_length
            header_at: i64 = position
            if position >= record_end:
                raise ends_early(record_end)
            has_headers = body[position] != 0
            if not has_headers and position + 1 != record_end:
                raise invalid(f"{record_end - position} bytes follow the headers of a record")
            # Headers are read when they are asked for.
            position = record_end
            offset: i64 = add_i64(base_offset, offset_delta)
            if offset < from_offset or offset >= to_offset:
                continue
            offsets[row] = offset
            timestamps[row] = max_timestamp if log_append_time else add_i64(base_timestamp, delta)
            key_bounds[2 * row] = i32(key_at + shift)
            if key_length >= 0:
                key_at += key_length
            else:
                self._key_valid[row] = 0
                self._null_keys += 1
            key_bounds[2 * row + 1] = i32(key_at + shift)
            value_bounds[2 * row] = i32(value_at + shift)
            if value_length >= 0:
                value_at += value_length
            else:
                self._value_valid[row] = 0
                self._null_values += 1
            value_bounds[2 * row + 1] = i32(value_at + shift)
            if has_headers:
                self._header_rows = append(self._header_rows, row)
                self._header_starts = append(self._header_starts, header_at + shift)
                self._header_ends = append(self._header_ends, record_end + shift)
            row += 1
        if position != end:
            raise invalid(f"{end - position} bytes follow the last of {count} records")
        self.count = row

    def to_arrow(
        self,
        fields: Sequence[str] = FIELDS,
        topic: str | None = None,
        partition: int | None = None,
        timestamp_unit: str = "us",
    ) -> pa.RecordBatch:
        """The columns named in `fields`, in that order.

        Timestamps are in UTC, in microseconds as Spark has them or in "ms"; those that microseconds cannot hold become
        the nearest that they can. A record without headers has null for them, as in Spark.
        """
        import numpy as np
        import pyarrow as pa

        rows = int(self.count)
        arrays: list[Any] = []
        for field in fields:
            match field:
                case "key":
                    arrays.append(_gather(self.buffer, rows, self._key_bounds, self._key_valid, int(self._null_keys)))
                case "value":
                    arrays.append(
                        _gather(self.buffer, rows, self._value_bounds, self._value_valid, int(self._null_values))
                    )
                case "offset":
                    arrays.append(pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(self._offsets)]))
                case "timestamp":
                    arrays.append(_timestamps(self._timestamps, rows, timestamp_unit))
                case "timestampType":
                    starts = [start for start, _ in self._types] + [rows]
                    kinds = np.array([kind for _, kind in self._types], np.int32)
                    arrays.append(pa.array(np.repeat(kinds, np.diff(starts))))
                case "topic":
                    if topic is None:
                        raise ValueError("to_arrow: the column topic needs the topic's name")
                    arrays.append(_repeated(topic, rows))
                case "partition":
                    if partition is None:
                        raise ValueError("to_arrow: the column partition needs the partition's number")
                    arrays.append(_repeated(partition, rows))
                case "headers":
                    arrays.append(self._headers(rows))
                case _:
                    raise ValueError(f"to_arrow: no column {field!r}; there are {', '.join(FIELDS)}")
        return pa.RecordBatch.from_arrays(arrays, names=list(fields))

    def _headers(self, rows: int) -> Any:
        import numpy as np
        import pyarrow as pa

        if len(self._header_rows) == 0:
            return pa.nulls(rows, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
        counts = vec[i32]([0] * rows)
        key_bounds = vec[i32]()
        value_bounds = vec[i32]()
        valid = vec[u8]()
        nulls: i64 = 0
        buffer = self.buffer
        for nth in range(len(self._header_rows)):
            end: i64 = self._header_ends[nth]
            count, position = read_varint(buffer, self._header_starts[nth], end)
            if count < 0 or count > end - position:
                raise invalid(f"a record of {end - position} bytes left claims {count} headers")
            counts[self._header_rows[nth]] = i32(count)
            while count > 0:
                count -= 1
                length, position = read_varint(buffer, position, end)
                if length < 0 or length > end - position:
                    raise invalid(f"a header key has {length} bytes where {end - position} are left")
                key_bounds = append(key_bounds, i32(position))
                position += length
                key_bounds = append(key_bounds, i32(position))
                length, position = read_varint(buffer, position, end)
                value_bounds = append(value_bounds, i32(position))
                if length < 0:
                    nulls += 1
                    valid = append(valid, 0)
                else:
                    if length > end - position:
                        raise ends_early(end)
                    position += length
                    valid = append(valid, 1)
                value_bounds = append(value_bounds, i32(position))
            if position != end:
                raise invalid(f"{end - position} bytes follow the headers of a record")
        per_row = np.frombuffer(memoryview(counts), np.int32) if rows else np.zeros(0, np.int32)
        starts = np.zeros(rows + 1, np.int32)
        np.cumsum(per_row, out=starts[1:])
        total = len(valid)
        structs = pa.StructArray.from_arrays(
            [
                _strings(_gather(buffer, total, key_bounds, valid, 0)),
                _gather(buffer, total, value_bounds, valid, int(nulls)),
            ],
            names=["key", "value"],
        )
        return pa.ListArray.from_arrays(pa.array(starts), structs, mask=pa.array(per_row == 0))


def decode_columns(
    buffer: bytes,
    start: i64 = 0,
    end: i64 = -1,
    from_offset: i64 = 0,
    to_offset: i64 = I64_MAX,
    skip: Callable[[BatchView], bool] | None = None,
    check_crcs: bool = True,
    limit: i64 = MAX_BODY_BYTES,
) -> Columns:
    """The records in `buffer[start:end]`, whole batches as a fetch returns them, with offsets in the half-open range.

    `skip` sees every batch in order, control batches too, and says which to leave out: so it can follow aborted
    transactions. Control batches give no rows either way. Compressed batches are decompressed up to `limit` bytes in
    all; the rest is left for the next call, from `next_offset`. RemoteError if anything is malformed, or if the first
    batch alone is more than the limit.
    """
    if end < 0:
        end = len(buffer)
    if end > len(buffer) or start > end or start < 0:
        raise ValueError(f"no bytes {start} to {end} in a buffer of {len(buffer)}")
    limit = min(limit, MAX_BODY_BYTES)
    if len(buffer) > MAX_BODY_BYTES:
        raise ValueError(f"a buffer of {len(buffer)} bytes: columns hold at most {MAX_BODY_BYTES}")
    next_offset: i64 = -1
    batches: list[BatchView] = []
    bodies: list[bytes] = []
    bounds: list[tuple[i64, i64]] = []
    compressed = False
    capacity: i64 = 0
    total: i64 = 0
    for batch in iterate_batches(buffer, start, end):
        if batch.base_offset >= to_offset:
            break
        if batch.magic != 2 or check_crcs:
            batch.check(end)
        if (
            (skip is not None and skip(batch))
            or batch.is_control
            or (batch.record_count == 0 and batch.size == HEADER_BYTES)
            or batch.next_offset <= from_offset
        ):
            next_offset = batch.next_offset
            continue
        if batch.record_count < 0:
            raise invalid(f"a batch counts {batch.record_count} records")
        try:
            body, body_start, body_end = batch_body(batch, limit - total)
        except RemoteError as error:
            if error.code == ErrorCode.MESSAGE_TOO_LARGE and batches:
                break
            raise
        size: i64 = body_end - body_start
        if total + size > limit:
            if batches:
                break
            raise RemoteError(ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {size} bytes, more than {limit}")
        compressed = compressed or batch.codec != NONE
        capacity += min(batch.record_count, size // SMALLEST_RECORD_BYTES)
        total += size
        next_offset = batch.next_offset
        batches.append(batch)
        bodies.append(body)
        bounds.append((body_start, body_end))
    columns = Columns(capacity)
    columns.next_offset = next_offset
    written: i64 = 0
    for nth in range(len(batches)):
        body_start, body_end = bounds[nth]
        # Without compression everything stays where it is; otherwise bodies are laid one behind the other.
        shift: i64 = written - body_start if compressed else 0
        columns.decode(batches[nth], bodies[nth], body_start, body_end, shift, from_offset, to_offset)
        written += body_end - body_start
        if compressed and batches[nth].codec == NONE:
            bodies[nth] = bodies[nth][body_start:body_end]
    columns.buffer = b"".join(bodies) if compressed else buffer
    return columns


def _gather(buffer: bytes, rows: int, bounds: Any, valid: Any, nulls: int) -> Any:
    """An array of the `rows` pieces of `buffer` between starts and ends that alternate in `bounds`."""
    import numpy as np
    import pyarrow as pa

    if nulls == rows:
        return pa.nulls(rows, pa.binary())
    pieces_and_gaps = pa.Array.from_buffers(
        pa.binary(), 2 * rows - 1, [None, pa.py_buffer(bounds), pa.py_buffer(buffer)]
    )
    pieces = pieces_and_gaps.take(pa.array(np.arange(0, 2 * rows, 2, dtype=np.int32)))
    if nulls == 0:
        return pieces
    bitmap = np.packbits(np.frombuffer(memoryview(valid), np.uint8, rows), bitorder="little")
    _, offsets, data = pieces.buffers()
    return pa.Array.from_buffers(pa.binary(), rows, [pa.py_buffer(bitmap), offsets, data], nulls)


def _repeated(value: str | int, rows: int) -> Any:
    """An array that says the same in every row: a slice of one that was made before, where there is one."""
    made = _same_in_all.get(value)
    if made is None or len(made) < rows:
        import pyarrow as pa

        made = pa.repeat(pa.scalar(value, pa.string() if isinstance(value, str) else pa.int32()), rows)
        if rows <= SAME_ROWS:
            if len(_same_in_all) >= SAME_VALUES:
                _same_in_all.clear()
            _same_in_all[value] = made
    return made.slice(0, rows)


def _timestamps(column: Any, rows: int, unit: str) -> Any:
    import numpy as np
    import pyarrow as pa

    if unit == "ms":
        return pa.Array.from_buffers(pa.timestamp("ms", "UTC"), rows, [None, pa.py_buffer(column)])
    if unit != "us":
        raise ValueError(f"to_arrow: timestamp unit {unit!r}: must be us or ms")
    most = I64_MAX // 1000
    values = np.frombuffer(memoryview(column), np.int64, rows) if rows else np.zeros(0, np.int64)
    return pa.array(np.clip(values, -most, most) * 1000).view(pa.timestamp("us", "UTC"))


def _strings(array: Any) -> Any:
    """Binary as strings; what is not UTF-8 gets replacement characters, as in Java."""
    import pyarrow as pa

    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([item.decode("utf-8", "replace") for item in array.to_pylist()], pa.string())


class ByteColumn:
    """One Arrow column of bytes, as three plain buffers: 64-bit offsets, data with padding, one byte a row if null."""

    __slots__ = ("data", "offsets", "rows", "shift", "valid")

    def __init__(self, rows: i64, offsets: bytes, data: bytes, shift: i64, valid: bytes) -> None:
        self.rows: i64 = rows
        self.offsets = offsets
        self.data = data
        self.shift: i64 = shift
        self.valid = valid
        """1 for a value, 0 for null; empty when nothing is null."""

    def start(self, row: i64) -> i64:
        return read_i64_le(self.offsets, 8 * row) - self.shift

    def length(self, row: i64) -> i64:
        return _length(self.offsets, self.valid, row)


def _length(offsets: bytes, valid: bytes, row: i64) -> i64:
    """-1 for null."""
    if len(valid) > 0 and valid[row] == 0:
        return -1
    return read_i64_le(offsets, 8 * row + 8) - read_i64_le(offsets, 8 * row)


def byte_column(array: Any) -> ByteColumn:
    """An Arrow array of bytes or strings, chunked or not, as plain buffers."""
    import pyarrow as pa

    array = _one_chunk(array.cast(pa.large_binary()))
    rows = len(array)
    if rows == 0:
        return ByteColumn(0, bytes(8), PADDING, 0, b"")
    _, offsets, data = array.buffers()
    offset_bytes = offsets.slice(8 * array.offset, 8 * (rows + 1)).to_pybytes()
    first: i64 = read_i64_le(offset_bytes, 0)
    last: i64 = read_i64_le(offset_bytes, 8 * rows)
    content = b"" if data is None else data.slice(first, last - first)
    return ByteColumn(rows, offset_bytes, b"".join([content, PADDING]), first, _valid_bytes(array))


def _one_chunk(array: Any) -> Any:
    import pyarrow as pa

    if isinstance(array, pa.ChunkedArray):
        return array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
    return array


def _valid_bytes(array: Any) -> bytes:
    import pyarrow as pa

    if array.null_count == 0:
        return b""
    valid = array.is_valid().cast(pa.uint8())
    return bytes(valid.buffers()[1].slice(valid.offset, len(array)).to_pybytes())


class HeaderColumn:
    """A list column of key and value structs: where each row's list starts among the keys and values."""

    __slots__ = ("keys", "starts", "valid", "values")

    def __init__(self, starts: bytes, valid: bytes, keys: ByteColumn, values: ByteColumn) -> None:
        self.starts = starts
        self.valid = valid
        self.keys = keys
        self.values = values

    def encode(self, row: i64) -> bytes:
        """The end of the record: how many headers, and each."""
        if len(self.valid) > 0 and self.valid[row] == 0:
            return b"\x00"
        first: i64 = read_i64_le(self.starts, 8 * row)
        last: i64 = read_i64_le(self.starts, 8 * row + 8)
        if first == last:
            return b"\x00"
        writer = BytesWriter()
        write_varint(writer, last - first)
        while first < last:
            if self.keys.length(first) < 0:
                raise ValueError(f"headers: a key is null in row {row}")
            _write_field(writer, self.keys, first)
            _write_field(writer, self.values, first)
            first += 1
        return writer.getvalue()


def _header_column(array: Any) -> HeaderColumn:
    import pyarrow as pa

    array = _one_chunk(array)
    starts = array.offsets.cast(pa.int64())
    keys, values = array.values.flatten()
    if not pa.types.is_map(array.type) and array.values.type.field(0).name == "value":
        keys, values = values, keys  # a struct's fields have names, and no order that would say anything
    start_bytes = starts.buffers()[1].slice(8 * starts.offset, 8 * len(starts)).to_pybytes()
    return HeaderColumn(start_bytes, _valid_bytes(array), byte_column(keys), byte_column(values))


def _write_field(writer: BytesWriter, column: ByteColumn, row: i64) -> None:
    length: i64 = column.length(row)
    write_varint(writer, length)
    if length > 0:
        _copy(writer, column.data, column.start(row), length)


def _copy(writer: BytesWriter, data: bytes, position: i64, length: i64) -> None:
    if length > COPY_BY_WORDS_BYTES:
        writer.write(data[position : position + length])
        return
    size: i64 = len(writer) + length
    end: i64 = position + length
    while position < end:
        write_i64_le(writer, read_i64_le(data, position))
        position += 8
    writer.truncate(size)


def _timestamp_bytes(array: Any, default: int) -> bytes:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("ms", array.type.tz), safe=False)
    array = _one_chunk(pc.fill_null(array.cast(pa.int64()), default))
    return bytes(array.buffers()[1].slice(8 * array.offset, 8 * len(array)).to_pybytes()) if len(array) else b""


def _take_writer() -> BytesWriter:
    """The spare one if it is there; another thread may have it."""
    try:
        writer = _spare_writers.pop()
    except IndexError:
        return BytesWriter()
    writer.truncate(0)
    return writer


def encode_columns(
    key: Any,
    value: Any,
    timestamps: Any = None,
    headers: Any = None,
    *,
    timestamp: i64 = -1,
    codec: i64 = NONE,
    level: int | None = None,
    producer_id: i64 = -1,
    producer_epoch: i64 = -1,
    base_sequence: i64 = -1,
    transactional: bool = False,
    max_batch_bytes: i64 = 1_000_000,
) -> list[bytes]:
    """Batches of one record a row, as a producer sends them: offsets from 0 in each, sequences that go on.

    `key` and `value` are Arrow arrays, chunked or not, of bytes or strings, or None for null in every row.
    `timestamps` are milliseconds or Arrow timestamps; `timestamp` stands in where there is none. `headers` are
    `list<struct<key, value>>`. A batch is at most `max_batch_bytes` before compression, unless one record is more.
    """
    if key is None and value is None:
        raise ValueError("encode_columns: neither keys nor values are given")
    key_column = ByteColumn(-1, b"", b"", 0, b"") if key is None else byte_column(key)
    value_column = ByteColumn(-1, b"", b"", 0, b"") if value is None else byte_column(value)
    rows: i64 = max(key_column.rows, value_column.rows)
    for name, array in (("key", key), ("value", value), ("timestamps", timestamps), ("headers", headers)):
        if array is not None and len(array) != rows:
            raise ValueError(f"encode_columns: {name} has {len(array)} rows where another column has {rows}")
    times = b"" if timestamps is None else _timestamp_bytes(timestamps, timestamp)
    # The loop below runs once a row: what it needs is taken out of its objects here.
    has_keys = key is not None
    has_values = value is not None
    has_times = len(times) > 0
    key_offsets = key_column.offsets
    key_data = key_column.data
    key_valid = key_column.valid
    key_shift: i64 = key_column.shift
    value_offsets = value_column.offsets
    value_data = value_column.data
    value_valid = value_column.valid
    value_shift: i64 = value_column.shift
    header_column = None if headers is None else _header_column(headers)
    attributes: i64 = codec | (TRANSACTIONAL_MASK if transactional else 0)

    batches: list[bytes] = []
    writer = _take_writer()
    # An uncompressed batch is finished where it is written, with its header put in front at the end.
    room = bytes(HEADER_BYTES) if codec == NONE else b""
    fixed: i64 = HEADER_BYTES - len(room)
    writer.write(room)
    largest: i64 = 0
    first: i64 = 0
    base_timestamp: i64 = timestamp
    max_timestamp: i64 = timestamp
    header_bytes = b"\x00"
    row: i64 = 0
    are_plain = has_values and not has_times and headers is None and not key_valid and not value_valid
    while row <= rows:
        if are_plain and row < rows:
            row = write_plain_records(
                writer,
                key_offsets,
                key_data,
                key_shift,
                value_offsets,
                value_data,
                value_shift,
                first,
                row,
                rows,
                max_batch_bytes - fixed,
            )
        size: i64 = 0
        delta: i64 = 0
        key_length: i64 = -1
        value_length: i64 = -1
        if row < rows:
            if has_times:
                timestamp = read_i64_le(times, 8 * row)
            if row == first:
                base_timestamp = timestamp
                max_timestamp = timestamp
            delta = subtract_i64(timestamp, base_timestamp)
            if has_keys:
                key_length = _length(key_offsets, key_valid, row)
            if has_values:
                value_length = _length(value_offsets, value_valid, row)
            if header_column is not None:
                header_bytes = header_column.encode(row)
            size = 1 + varint_size(delta) + varint_size(row - first) + len(header_bytes)
            size += varint_size(key_length) + varint_size(value_length)
            if key_length > 0:
                size += key_length
            if value_length > 0:
                size += value_length
        if row > first and (row == rows or fixed + len(writer) + varint_size(size) + size > max_batch_bytes):
            largest = max(largest, len(writer))
            count: i64 = row - first
            body: bytes | memoryview
            if codec == NONE:
                body = memoryview(writer.getvalue())[HEADER_BYTES:]
            else:
                body = compress(codec, writer.getvalue(), level)
            head = encode_header(
                body,
                0,
                -1,
                attributes,
                count - 1,
                base_timestamp,
                max_timestamp,
                producer_id,
                producer_epoch,
                base_sequence,
                count,
            )
            if codec == NONE:
                # Let go of the first copy before the second is made: two at a time are two times the page faults.
                body = b""
                for index in range(HEADER_BYTES):
                    writer[index] = u8(head[index])
                batches.append(writer.getvalue())
            else:
                batches.append(head + body)
            if base_sequence >= 0:
                base_sequence = (base_sequence + count) & 0x7FFFFFFF
            writer.truncate(len(room))
            first = row
            if row < rows:
                # This row again, as the first of the next batch.
                continue
        if row < rows:
            write_varint(writer, size)
            writer.append(u8(0))
            write_varint(writer, delta)
            write_varint(writer, row - first)
            write_varint(writer, key_length)
            if key_length > 0:
                _copy(writer, key_data, read_i64_le(key_offsets, 8 * row) - key_shift, key_length)
            write_varint(writer, value_length)
            if value_length > 0:
                _copy(writer, value_data, read_i64_le(value_offsets, 8 * row) - value_shift, value_length)
            if header_column is None:
                writer.append(u8(0))
            else:
                writer.write(header_bytes)
            if timestamp > max_timestamp:
                max_timestamp = timestamp
        row += 1
    if not _spare_writers and largest <= SPARE_WRITER_BYTES:
        _spare_writers.append(writer)
    return batches
