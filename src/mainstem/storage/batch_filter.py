"""The records of a batch, as the cleaner looks at them: their keys into the map, and what the map leaves of them.

A rewritten batch is what Kafka's cleaner writes: base offset, last offset delta, producer, sequence, leader epoch,
timestamp type and codec stay; the base timestamp is that of the first record kept, or the delete horizon (KIP-534).
No object is made for a record, and a record whose timestamp delta stays is copied as it is.

A batch may hold half a million records, which is far too long for one go: both `KeyMapper` and `BatchFilter` do as
many records as they are told and go on from there. What is done in one go, decompressing and compressing, is done by
libraries that let other threads run meanwhile.

A batch whose CRC holds but whose records cannot be read, as a faulty producer may have sent it compressed, is a
RemoteError from either, before anything was changed: the cleaner keeps such a batch whole.
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
from mainstem.protocol.errors import RemoteError
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


class OpenBatch:
    """The records of one batch, uncompressed, and whether they are what the header says. Made to be left and taken up.

    A batch whose records cannot be read, though its CRC holds, raises RemoteError before anyone has acted on one.
    """

    def __init__(self, batch: BatchView) -> None:
        body, start, end = batch_body(batch, DEFAULT_LIMIT)
        self.batch = batch
        self.body = body
        self.start: i64 = start
        self.end: i64 = end
        self.count: i64 = batch.record_count
        self.is_checked = False
        self._position: i64 = start
        self._checked: i64 = 0
        if self.count < 0:
            raise invalid(f"a batch counts {self.count} records")

    @property
    def opened_bytes(self) -> i64:
        """What opening it cost: nothing where the records lie in the batch as they are."""
        return len(self.body) if self.batch.codec != 0 else 0

    def check(self, records_max: i64) -> i64:
        """Looks at up to so many more records, with whatever offsets compaction left; how many there were."""
        body = self.body
        end: i64 = self.end
        position: i64 = self._position
        index: i64 = self._checked
        stop: i64 = min(self.count, index + records_max)
        done: i64 = stop - index
        while index < stop:
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
        if index == self.count:
            if position != end:
                raise invalid(f"{end - position} bytes follow the last of {self.count} records")
            self.is_checked = True
        self._position = position
        self._checked = index
        return done


def _skip_bytes(body: bytes, position: i64, end: i64) -> i64:
    length, position = read_varint(body, position, end)
    if length > 0:
        if length > end - position:
            raise ends_early(end)
        position += length
    return position


class KeyMapper:
    """Puts the keys of one batch after another into the map, some records at a time.

    `begin`, then `step` while `is_busy`. `is_full` says that the map filled up before the batch was through: then the
    batch is not in the map as far as `latest_offset` is concerned, unless it was to be taken in part.
    """

    def __init__(self, keys: CleaningMap, first_offset: i64) -> None:
        self.is_full = False
        self._keys = keys
        self._first_offset: i64 = first_offset
        self._open: OpenBatch | None = None
        self._whole = True
        self._position: i64 = 0
        self._mapped: i64 = 0

    @property
    def is_busy(self) -> bool:
        return self._open is not None

    def begin(self, batch: BatchView, whole: bool) -> i64:
        """Opens a batch; without `whole`, as much of it as fits is taken. What opening it cost, in bytes."""
        opened = OpenBatch(batch)
        self._open = opened
        self._whole = whole
        self._position = opened.start
        self._mapped = 0
        return opened.opened_bytes

    def step(self, records_max: i64) -> i64:
        """Checks, then maps, up to so many records; how many there were. RemoteError where they cannot be read."""
        opened = self._open
        assert opened is not None
        if not opened.is_checked:
            try:
                return opened.check(records_max)
            except RemoteError:
                self._open = None
                raise
        return self._map(opened, records_max)

    def _map(self, opened: OpenBatch, records_max: i64) -> i64:
        keys = self._keys
        body = opened.body
        end: i64 = opened.end
        base_offset: i64 = opened.batch.base_offset
        first_offset: i64 = self._first_offset
        position: i64 = self._position
        index: i64 = self._mapped
        stop: i64 = min(opened.count, index + records_max)
        done: i64 = stop - index
        while index < stop:
            length, position = read_varint(body, position, end)
            record_end: i64 = position + length
            _, position = read_varlong(body, position + 1, record_end)
            delta, position = read_varint(body, position, record_end)
            length, position = read_varint(body, position, record_end)
            offset: i64 = base_offset + delta
            if length >= 0 and offset >= first_offset:
                if keys.is_full:
                    if not self._whole:
                        keys.latest_offset = max(keys.latest_offset, offset - 1)
                    self.is_full = True
                    self._open = None
                    return done
                keys.put(body[position : position + length], offset)
            position = record_end
            index += 1
        self._position = position
        self._mapped = index
        if index == opened.count:
            self._open = None
        return done


class BatchFilter:
    """Decides record by record what stays of a batch, some records at a time.

    `begin`, then `step` while `is_busy`; then `outcome` is KEPT, DROPPED or CHANGED, and `output` the batch to write
    after CHANGED.
    """

    def __init__(self, keys: CleaningMap, now_ms: i64, delete_retention_ms: i64) -> None:
        self.outcome: i64 = KEPT
        self.output = b""
        self.records_kept: i64 = 0
        self._keys = keys
        self._now_ms: i64 = now_ms
        # Java's sum would wrap for the largest retention, and the tombstone go at once.
        room: i64 = I64_MAX - now_ms
        self._new_horizon: i64 = I64_MAX if delete_retention_ms > room else now_ms + delete_retention_ms
        self._open: OpenBatch | None = None
        self._verdict: Verdict | None = None
        self._clear()

    def _clear(self) -> None:
        self._positions = vec[i64]()
        self._position: i64 = 0
        self._chosen: i64 = 0
        self._first_timestamp: i64 = NO_TIMESTAMP
        self._max_timestamp: i64 = NO_TIMESTAMP
        self._has_tombstone = False
        self._base_timestamp: i64 = NO_TIMESTAMP
        self._has_horizon = False
        self._is_rebased = False
        self._writer: BytesWriter | None = None
        self._written: i64 = 0

    @property
    def is_busy(self) -> bool:
        return self._open is not None

    def begin(self, batch: BatchView, verdict: Verdict) -> i64:
        """Opens a batch, where its records matter. What opening it cost, in bytes."""
        self.records_kept = 0
        if verdict.drops_all:
            self._without_records(batch, verdict)
            return 0
        opened = OpenBatch(batch)
        self._clear()
        self._open = opened
        self._verdict = verdict
        self._position = opened.start
        return opened.opened_bytes

    def step(self, records_max: i64) -> i64:
        """Up to so many records more; how many there were. RemoteError where they cannot be read."""
        opened = self._open
        assert opened is not None
        if not opened.is_checked:
            try:
                return opened.check(records_max)
            except RemoteError:
                self._close()
                raise
        if self._writer is None:
            done: i64 = self._choose(opened, records_max)
            if self._chosen == opened.count:
                self._chose(opened)
            return done
        done = self._rebase(opened, records_max) if self._is_rebased else self._copy(opened, records_max)
        if self._written == len(self._positions):
            self._finish(opened)
        return done

    def _close(self) -> None:
        self._open = None
        self._verdict = None
        self._clear()

    def _without_records(self, batch: BatchView, verdict: Verdict) -> None:
        self.outcome = DROPPED
        if verdict.keeps_empty:
            self.output = empty_batch(batch)
            self.outcome = CHANGED

    def _choose(self, opened: OpenBatch, records_max: i64) -> i64:
        """Finds the records that stay: where each begins, the first and the largest timestamp, any tombstone."""
        batch = opened.batch
        body = opened.body
        end: i64 = opened.end
        keys = self._keys
        latest_offset: i64 = keys.latest_offset
        base_offset: i64 = batch.base_offset
        base_timestamp: i64 = batch.base_timestamp
        append_time: i64 = batch.max_timestamp
        is_append_time: bool = batch.is_log_append_time
        is_control: bool = batch.is_control
        keeps_tombstones: bool = not batch.has_delete_horizon or self._now_ms < base_timestamp
        positions = self._positions
        first_timestamp: i64 = self._first_timestamp
        max_timestamp: i64 = self._max_timestamp
        has_tombstone = self._has_tombstone
        kept: i64 = self.records_kept
        position: i64 = self._position
        index: i64 = self._chosen
        stop: i64 = min(opened.count, index + records_max)
        done: i64 = stop - index
        while index < stop:
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
        self._position = position
        self._chosen = index
        return done

    def _chose(self, opened: OpenBatch) -> None:
        """Every record was looked at: says what becomes of the batch, or begins to write it anew."""
        batch = opened.batch
        verdict = self._verdict
        assert verdict is not None
        if self.records_kept == 0:
            self._without_records(batch, verdict)
            self._close()
            return
        has_horizon: bool = batch.has_delete_horizon
        gets_horizon: bool = (self._has_tombstone or verdict.is_spent_marker) and not has_horizon
        if self.records_kept == opened.count and not gets_horizon:
            self.outcome = KEPT
            self._close()
            return
        self._base_timestamp = self._first_timestamp
        if gets_horizon:
            self._base_timestamp = self._new_horizon
        elif has_horizon:
            self._base_timestamp = batch.base_timestamp
        self._has_horizon = gets_horizon or has_horizon
        self._is_rebased = self._base_timestamp != batch.base_timestamp or batch.is_log_append_time
        self._writer = BytesWriter()

    def _finish(self, opened: OpenBatch) -> None:
        batch = opened.batch
        writer = self._writer
        assert writer is not None
        codec: i64 = batch.attributes & CODEC_MASK
        packed = compress(codec, writer.getvalue())
        attributes: i64 = batch.attributes & (TIMESTAMP_TYPE_MASK | TRANSACTIONAL_MASK | CONTROL_MASK)
        attributes |= codec
        if self._has_horizon:
            attributes |= DELETE_HORIZON_MASK
        header = encode_header(
            packed,
            batch.base_offset,
            batch.leader_epoch,
            attributes,
            batch.last_offset_delta,
            self._base_timestamp,
            batch.max_timestamp if batch.is_log_append_time else self._max_timestamp,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            self.records_kept,
        )
        self.output = header + packed
        self.outcome = CHANGED
        self._close()

    def _copy(self, opened: OpenBatch, records_max: i64) -> i64:
        """Records as they are; neighbours in one piece."""
        body = opened.body
        end: i64 = opened.end
        writer = self._writer
        assert writer is not None
        positions = self._positions
        index: i64 = self._written
        stop: i64 = min(len(positions), index + records_max)
        done: i64 = stop - index
        run_at: i64 = -1
        run_end: i64 = -1
        while index < stop:
            at: i64 = positions[index]
            length, start = read_varint(body, at, end)
            if at != run_end:
                if run_at >= 0:
                    writer.write(body[run_at:run_end])
                run_at = at
            run_end = start + length
            index += 1
        if run_at >= 0:
            writer.write(body[run_at:run_end])
        self._written = index
        return done

    def _rebase(self, opened: OpenBatch, records_max: i64) -> i64:
        """Records with timestamp deltas that count from another base."""
        batch = opened.batch
        body = opened.body
        end: i64 = opened.end
        writer = self._writer
        assert writer is not None
        positions = self._positions
        old_base: i64 = batch.base_timestamp
        new_base: i64 = self._base_timestamp
        append_time: i64 = batch.max_timestamp
        is_append_time: bool = batch.is_log_append_time
        index: i64 = self._written
        stop: i64 = min(len(positions), index + records_max)
        done: i64 = stop - index
        while index < stop:
            length, start = read_varint(body, positions[index], end)
            record_end: i64 = start + length
            delta, rest = read_varlong(body, start + 1, record_end)
            timestamp: i64 = append_time if is_append_time else add_i64(old_base, delta)
            delta = subtract_i64(timestamp, new_base)
            write_varint(writer, 1 + varint_size(delta) + record_end - rest)
            writer.append(u8(0))
            write_varint(writer, delta)
            writer.write(body[rest:record_end])
            index += 1
        self._written = index
        return done
