"""Fetched batches to records: what one partition brought in one fetch, taken out piece by piece.

A chunk is a slice of the frame it came in; nothing is copied until a record is made. Batches are checked (CRC) and
decompressed when the first of their records is asked for, so a caller that takes a few records pays for a few.

- A fetch returns whole batches: records before the offset that was asked for are passed over, and a batch that was cut
  off at the end is left to the next fetch.
- Control batches give no records. With `read_committed` neither do the transactions that were aborted: the response
  lists them by producer and first offset, and a marker ends each (KIP-98). Batches of one producer that lie between
  are left out.
- Offsets may have gaps where the log was compacted, so the position moves to the end of a batch, not past its last
  record.
- A chunk that turns out to be corrupt gives the records before that, and raises from then on.
"""

from collections.abc import Callable
from typing import Any, Final

from mypy_extensions import i64

from mainstem.client.types import CREATE_TIME, LOG_APPEND_TIME, ConsumerRecord, Headers
from mainstem.protocol.batch import HEADER_BYTES, BatchView
from mainstem.protocol.control import ControlType, parse_control_key
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.fetch import AbortedTransaction
from mainstem.protocol.records import HEADER_KEY_ERRORS, batch_body, invalid, iterate_records
from mainstem.protocol.varint import add_i64, ends_early, read_varint, read_varlong

Deserializer = Callable[[bytes], Any]

BODY_LIMIT: Final = 0x7FFFFFF0


class AbortedFilter:
    """Says which batches belong to aborted transactions. Sees every batch of a fetch, in order."""

    __slots__ = ("_at", "_open", "_transactions")

    def __init__(self, transactions: list[AbortedTransaction]) -> None:
        # Brokers owe us this order; not all keep to it.
        self._transactions = sorted(transactions, key=_first_offset)
        self._at: i64 = 0
        self._open: set[int] = set()

    def skips(self, batch: BatchView) -> bool:
        last_offset: i64 = batch.last_offset
        while self._at < len(self._transactions):
            transaction = self._transactions[self._at]
            if transaction.first_offset > last_offset:
                break
            self._open.add(int(transaction.producer_id))
            self._at += 1
        if not batch.is_transactional or not self._open:
            return False
        producer_id = int(batch.producer_id)
        if batch.is_control:
            if producer_id in self._open and _is_abort(batch):
                self._open.discard(producer_id)
            return True
        return producer_id in self._open


def _first_offset(transaction: AbortedTransaction) -> int:
    return int(transaction.first_offset)


def _is_abort(batch: BatchView) -> bool:
    for record in iterate_records(batch):
        return parse_control_key(record.key) == ControlType.ABORT
    return False


class FetchedChunk:
    """What one fetch brought of one partition, and how far it has been taken."""

    __slots__ = (
        "_aborted",
        "_batch",
        "_body",
        "_body_at",
        "_body_end",
        "_filter",
        "_index",
        "_key_deserializer",
        "_next_batch",
        "_value_deserializer",
        "check_crcs",
        "end",
        "end_offset",
        "fetch_offset",
        "frame",
        "is_over",
        "last_epoch",
        "partition",
        "position",
        "position_epoch",
        "size",
        "start",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        partition: i64,
        frame: bytes,
        start: i64,
        size: i64,
        fetch_offset: i64,
        aborted: list[AbortedTransaction] | None,
        check_crcs: bool,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
    ) -> None:
        self.topic = topic
        self.partition: i64 = partition
        self.frame = frame
        self.start: i64 = start
        self.size: i64 = size
        self.fetch_offset: i64 = fetch_offset
        self.position: i64 = fetch_offset
        """The offset to go on from: everything before it was taken, or gives no record."""
        self.position_epoch: i64 = -1
        """The leader epoch of the batch before the position; -1 until there is one."""
        self.end: i64 = start
        """Where the last whole batch ends."""
        self.end_offset: i64 = fetch_offset
        """The offset to fetch next, after this chunk."""
        self.last_epoch: i64 = -1
        """The leader epoch of its last batch."""
        self.is_over = False
        self.check_crcs = check_crcs
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
        self._aborted = aborted
        self._filter = self.fresh_filter()
        self._next_batch: i64 = start
        self._batch: BatchView | None = None
        self._body = b""
        self._body_at: i64 = 0
        self._body_end: i64 = 0
        self._index: i64 = 0
        self._find_end(start + size)

    def fresh_filter(self) -> AbortedFilter | None:
        """What tells the batches to leave out, from the beginning of the chunk on; None where all are wanted."""
        return None if self._aborted is None else AbortedFilter(self._aborted)

    def _find_end(self, limit: i64) -> None:
        """Walks the headers only: the next fetch is to go out before anything here is decoded."""
        at: i64 = self.start
        while at + HEADER_BYTES <= limit:
            batch = BatchView(self.frame, at)
            size: i64 = batch.size
            if size < HEADER_BYTES:
                raise RemoteError(ErrorCode.CORRUPT_MESSAGE, f"a batch of {size} bytes at {at}")
            if at + size > limit:
                break
            at += size
            if batch.next_offset > self.end_offset:
                self.end_offset = batch.next_offset
            self.last_epoch = batch.leader_epoch
        self.end = at
        if at == self.start:
            self.is_over = True

    def take(self, wanted: i64, records: list[ConsumerRecord]) -> i64:
        """Appends up to `wanted` records; how many there were. RemoteError where what was fetched is corrupt."""
        taken: i64 = 0
        while taken < wanted and not self.is_over:
            batch = self._batch
            if batch is None:
                if not self._enter():
                    self._finish()
                    break
                batch = self._batch
                assert batch is not None
            before: i64 = len(records)
            try:
                self._decode(batch, wanted - taken, records)
            finally:
                taken += len(records) - before
            if self._index >= batch.record_count:
                if self._body_at != self._body_end:
                    raise invalid(f"{self._body_end - self._body_at} bytes follow the last record of a batch")
                self._leave(batch)
        if self._batch is None and self._next_batch >= self.end:
            self._finish()
        return taken

    def _enter(self) -> bool:
        """Opens the next batch that has records for us; False if there is none left."""
        while self._next_batch < self.end:
            batch = BatchView(self.frame, self._next_batch)
            if batch.magic != 2 or self.check_crcs:
                batch.check(self.end)
            chosen = not (self._filter is not None and self._filter.skips(batch))
            if chosen and not batch.is_control and batch.next_offset > self.position and batch.record_count != 0:
                if batch.record_count < 0:
                    raise invalid(f"a batch counts {batch.record_count} records")
                self._body, self._body_at, self._body_end = batch_body(batch, BODY_LIMIT)
                self._index = 0
                self._batch = batch
                return True
            self._leave(batch)
        return False

    def _leave(self, batch: BatchView) -> None:
        self._next_batch = batch.end
        if batch.next_offset > self.position:
            self.position = batch.next_offset
            self.position_epoch = batch.leader_epoch
        self._batch = None
        self._body = b""

    def _finish(self) -> None:
        self.is_over = True
        self.frame = b""

    def _decode(self, batch: BatchView, wanted: i64, records: list[ConsumerRecord]) -> None:
        """Records of the batch that is open, as many as are wanted or there are."""
        topic = self.topic
        partition: i64 = self.partition
        from_offset: i64 = self.position
        body = self._body
        end: i64 = self._body_end
        at: i64 = self._body_at
        index: i64 = self._index
        count: i64 = batch.record_count
        base_offset: i64 = batch.base_offset
        base_timestamp: i64 = batch.base_timestamp
        timestamp_type: i64 = CREATE_TIME
        max_timestamp: i64 = 0
        if batch.is_log_append_time:
            timestamp_type = LOG_APPEND_TIME
            max_timestamp = batch.max_timestamp
        epoch: i64 = batch.leader_epoch
        plain = self._key_deserializer is None and self._value_deserializer is None
        while index < count and wanted > 0:
            length, at = read_varint(body, at, end)
            if length < 0 or length > end - at:
                raise invalid(f"record {index} has {length} bytes where {end - at} are left")
            record_end: i64 = at + length
            delta, at = read_varlong(body, at + 1, record_end)
            offset_delta, at = read_varint(body, at, record_end)
            offset: i64 = add_i64(base_offset, offset_delta)
            if offset < from_offset:
                at = record_end
                index += 1
                continue
            key: bytes | None = None
            length, at = read_varint(body, at, record_end)
            if length >= 0:
                if length > record_end - at:
                    raise ends_early(record_end)
                key = body[at : at + length]
                at += length
            value: bytes | None = None
            length, at = read_varint(body, at, record_end)
            if length >= 0:
                if length > record_end - at:
                    raise ends_early(record_end)
                value = body[at : at + length]
                at += length
            headers: Headers | None = None
            if at + 1 != record_end or body[at] != 0:
                headers = read_headers(body, at, record_end)
            at = record_end
            timestamp: i64 = max_timestamp
            if timestamp_type == CREATE_TIME:
                timestamp = add_i64(base_timestamp, delta)
            if plain:
                record = ConsumerRecord(topic, partition, offset, timestamp, timestamp_type, key, value, headers, epoch)
            else:
                record = self._deserialized(
                    ConsumerRecord(topic, partition, offset, timestamp, timestamp_type, key, value, headers, epoch)
                )
            records.append(record)
            wanted -= 1
            index += 1
            # Told at once, so that a record which cannot be read is met again, and those before it are not.
            self._body_at = at
            self._index = index
            self.position = offset + 1
            self.position_epoch = epoch
        self._body_at = at
        self._index = index

    def _deserialized(self, record: ConsumerRecord) -> ConsumerRecord:
        if self._key_deserializer is not None and record.key is not None:
            record.key = self._key_deserializer(record.key)
        if self._value_deserializer is not None and record.value is not None:
            record.value = self._value_deserializer(record.value)
        return record


def read_headers(body: bytes, at: i64, end: i64) -> Headers:
    """The headers in `body[at:end]`, the last of a record."""
    headers: Headers = []
    count, at = read_varint(body, at, end)
    if count < 0 or count > end - at:
        raise invalid(f"a record of {end - at} bytes left claims {count} headers")
    while count > 0:
        length, at = read_varint(body, at, end)
        if length < 0 or length > end - at:
            raise invalid(f"a header key has {length} bytes where {end - at} are left")
        name = body[at : at + length].decode("utf-8", HEADER_KEY_ERRORS)
        length, at = read_varint(body, at + length, end)
        if length < 0:
            headers.append((name, None))
        else:
            if length > end - at:
                raise ends_early(end)
            headers.append((name, body[at : at + length]))
            at += length
        count -= 1
    if at != end:
        raise invalid(f"{end - at} bytes follow the headers of a record")
    return headers
