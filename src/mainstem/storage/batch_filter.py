"""The records of a batch, as the cleaner looks at them: their keys into the map, and what the map leaves of them.

A rewritten batch is what Kafka's cleaner writes: base offset, last offset delta, producer, sequence, leader epoch,
timestamp type and codec stay; the base timestamp is that of the first record kept, or the delete horizon (KIP-534).
No object is made for a record, and a record whose timestamp delta stays is copied as it is.

A batch whose CRC holds but whose records cannot be read, as a faulty producer may have sent it compressed, is a
RemoteError from either function, before anything was changed: the cleaner keeps such a batch whole.
"""

from typing import Final

from librt.strings import BytesWriter
from librt.vecs import append, vec
from mypy_extensions import i64, u8

from mainstem.core.log.compaction import Verdict
from mainstem.protocol.batch import (
    CODEC_MASK,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchView,
)
from mainstem.protocol.builder import empty_batch, encode_header
from mainstem.protocol.compression import DEFAULT_LIMIT, compress
from mainstem.protocol.records import batch_body, invalid, skip_headers
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
from mainstem.storage.cleaning_map import CleaningMap

KEPT: Final = 0
CHANGED: Final = 1
DROPPED: Final = 2


def check_records(body: bytes, position: i64, end: i64, count: i64) -> None:
    """RemoteError unless `body[position:end]` is `count` records, with whatever offsets compaction left."""
    if count < 0:
        raise invalid(f"a batch counts {count} records")
    index: i64 = 0
    while index < count:
        length, position = read_varint(body, position, end)
        if length < 0 or length > end - position:
            raise invalid(f"record {index} has {length} bytes where {end - position} are left")
        record_end: i64 = position + length
        _, position = read_varlong(body, position + 1, record_end)
        _, position = read_varint(body, position, record_end)
        position = _skip_bytes(body, position, record_end)
        position = _skip_bytes(body, position, record_end)
        if position + 1 == record_end and body[position] == 0:
            position = record_end
        else:
            position = skip_headers(body, position, record_end)
        index += 1
    if position != end:
        raise invalid(f"{end - position} bytes follow the last of {count} records")


def _skip_bytes(body: bytes, position: i64, end: i64) -> i64:
    length, position = read_varint(body, position, end)
    if length > 0:
        if length > end - position:
            raise ends_early(end)
        position += length
    return position


def map_keys(batch: BatchView, keys: CleaningMap, first_offset: i64, whole: bool) -> bool:
    """Puts the key of every record from `first_offset` on into the map; False where the map filled up before.

    Then the batch is not in the map as far as `latest_offset` is concerned, unless `whole` is False: then it is up to
    the last record that fitted.
    """
    body, position, end = batch_body(batch, DEFAULT_LIMIT)
    count: i64 = batch.record_count
    check_records(body, position, end, count)
    base_offset: i64 = batch.base_offset
    index: i64 = 0
    while index < count:
        length, position = read_varint(body, position, end)
        record_end: i64 = position + length
        _, position = read_varlong(body, position + 1, record_end)
        delta, position = read_varint(body, position, record_end)
        length, position = read_varint(body, position, record_end)
        offset: i64 = base_offset + delta
        if length >= 0 and offset >= first_offset:
            if keys.is_full:
                if not whole:
                    keys.latest_offset = max(keys.latest_offset, offset - 1)
                return False
            keys.put(body[position : position + length], offset)
        position = record_end
        index += 1
    return True


class BatchFilter:
    """Decides record by record what stays of a batch. After CHANGED, `output` is the batch to write."""

    def __init__(self, keys: CleaningMap, now_ms: i64, delete_retention_ms: i64) -> None:
        self.output = b""
        self.records_kept: i64 = 0
        self._keys = keys
        self._now_ms: i64 = now_ms
        # Java's sum would wrap for the largest retention, and the tombstone go at once.
        room: i64 = I64_MAX - now_ms
        self._new_horizon: i64 = I64_MAX if delete_retention_ms > room else now_ms + delete_retention_ms
        self._positions = vec[i64]()
        self._first_timestamp: i64 = NO_TIMESTAMP
        self._max_timestamp: i64 = NO_TIMESTAMP
        self._has_tombstone = False

    def apply(self, batch: BatchView, verdict: Verdict) -> i64:
        self.records_kept = 0
        if verdict.drops_all:
            return self._without_records(batch, verdict)
        body, start, end = batch_body(batch, DEFAULT_LIMIT)
        self._choose(batch, body, start, end)
        if self.records_kept == 0:
            return self._without_records(batch, verdict)
        has_horizon: bool = batch.has_delete_horizon
        gets_horizon: bool = (self._has_tombstone or verdict.is_spent_marker) and not has_horizon
        if self.records_kept == batch.record_count and not gets_horizon:
            return KEPT
        base_timestamp: i64 = self._first_timestamp
        if gets_horizon:
            base_timestamp = self._new_horizon
        elif has_horizon:
            base_timestamp = batch.base_timestamp
        self._rewrite(batch, body, end, base_timestamp, gets_horizon or has_horizon)
        return CHANGED

    def _without_records(self, batch: BatchView, verdict: Verdict) -> i64:
        if not verdict.keeps_empty:
            return DROPPED
        self.output = empty_batch(batch)
        return CHANGED

    def _choose(self, batch: BatchView, body: bytes, position: i64, end: i64) -> None:
        """Finds the records that stay: where each begins, the first and the largest timestamp, any tombstone."""
        count: i64 = batch.record_count
        check_records(body, position, end, count)
        keys = self._keys
        latest_offset: i64 = keys.latest_offset
        base_offset: i64 = batch.base_offset
        base_timestamp: i64 = batch.base_timestamp
        append_time: i64 = batch.max_timestamp
        is_append_time: bool = batch.is_log_append_time
        is_control: bool = batch.is_control
        keeps_tombstones: bool = not batch.has_delete_horizon or self._now_ms < base_timestamp
        positions = vec[i64]()
        first_timestamp: i64 = NO_TIMESTAMP
        max_timestamp: i64 = NO_TIMESTAMP
        has_tombstone = False
        kept: i64 = 0
        index: i64 = 0
        while index < count:
            record_at: i64 = position
            length, position = read_varint(body, position, end)
            record_end: i64 = position + length
            timestamp_delta, position = read_varlong(body, position + 1, record_end)
            offset_delta, position = read_varint(body, position, record_end)
            key_length, position = read_varint(body, position, record_end)
            key_at: i64 = position
            if key_length > 0:
                position += key_length
            value_length, position = read_varint(body, position, record_end)
            offset: i64 = base_offset + offset_delta
            keep: bool = is_control or offset > latest_offset
            if not keep and key_length >= 0 and (value_length >= 0 or keeps_tombstones):
                keep = offset >= keys.get(body[key_at : key_at + key_length])
            if keep:
                timestamp: i64 = append_time if is_append_time else add_i64(base_timestamp, timestamp_delta)
                if kept == 0:
                    first_timestamp = timestamp
                    max_timestamp = timestamp
                elif timestamp > max_timestamp:
                    max_timestamp = timestamp
                if value_length < 0:
                    has_tombstone = True
                positions = append(positions, record_at)
                kept += 1
            position = record_end
            index += 1
        self._positions = positions
        self._first_timestamp = first_timestamp
        self._max_timestamp = max_timestamp
        self._has_tombstone = has_tombstone
        self.records_kept = kept

    def _rewrite(self, batch: BatchView, body: bytes, end: i64, base_timestamp: i64, has_horizon: bool) -> None:
        is_append_time: bool = batch.is_log_append_time
        if base_timestamp == batch.base_timestamp and not is_append_time:
            records = self._copy_records(body, end)
        else:
            records = self._rebase_records(batch, body, end, base_timestamp)
        codec: i64 = batch.attributes & CODEC_MASK
        packed = compress(codec, records)
        attributes: i64 = batch.attributes & (TIMESTAMP_TYPE_MASK | TRANSACTIONAL_MASK | CONTROL_MASK)
        attributes |= codec
        if has_horizon:
            attributes |= DELETE_HORIZON_MASK
        header = encode_header(
            packed,
            batch.base_offset,
            batch.leader_epoch,
            attributes,
            batch.last_offset_delta,
            base_timestamp,
            batch.max_timestamp if is_append_time else self._max_timestamp,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            self.records_kept,
        )
        self.output = header + packed

    def _copy_records(self, body: bytes, end: i64) -> bytes:
        """As they are; neighbours in one piece."""
        writer = BytesWriter()
        positions = self._positions
        run_at: i64 = -1
        run_end: i64 = -1
        index: i64 = 0
        while index < len(positions):
            at: i64 = positions[index]
            length, start = read_varint(body, at, end)
            if at != run_end:
                if run_at >= 0:
                    writer.write(body[run_at:run_end])
                run_at = at
            run_end = start + length
            index += 1
        writer.write(body[run_at:run_end])
        return writer.getvalue()

    def _rebase_records(self, batch: BatchView, body: bytes, end: i64, base_timestamp: i64) -> bytes:
        """With timestamp deltas that count from another base."""
        writer = BytesWriter()
        positions = self._positions
        old_base: i64 = batch.base_timestamp
        append_time: i64 = batch.max_timestamp
        is_append_time: bool = batch.is_log_append_time
        index: i64 = 0
        while index < len(positions):
            length, start = read_varint(body, positions[index], end)
            record_end: i64 = start + length
            delta, rest = read_varlong(body, start + 1, record_end)
            timestamp: i64 = append_time if is_append_time else add_i64(old_base, delta)
            delta = subtract_i64(timestamp, base_timestamp)
            write_varint(writer, 1 + varint_size(delta) + record_end - rest)
            writer.append(u8(0))
            write_varint(writer, delta)
            writer.write(body[rest:record_end])
            index += 1
        return writer.getvalue()
