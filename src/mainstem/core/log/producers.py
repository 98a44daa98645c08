"""What a partition knows of its producers: sequences, epochs, open transactions.

Rules, Kafka's:
- A producer's batches follow each other by sequence; after 2^31 - 1 comes 0 (KAFKA-7692). A gap is
  OUT_OF_ORDER_SEQUENCE_NUMBER. A producer that is not known here may start anywhere: its state may have expired.
- The last five batches of a producer are remembered. One that comes again with the same epoch and sequences is
  answered with the offsets it got the first time.
- A lower epoch than the last one seen is INVALID_PRODUCER_EPOCH, for data and markers; a higher one starts at 0. Of
  one that is not known here, that is -1. Who writes with -1 has no epoch, and may go on anywhere.
- A transaction begins with its first batch and ends with a marker. `first_unstable_offset` is the first offset of the
  oldest transaction that is open, or whose marker is not yet below the high watermark (T6).
- A producer that was silent for long is forgotten. Not Kafka's rule: silence is by the broker's clock as well. Who
  sends records of last year would be forgotten while it sends, and its retries be written twice (T1).

Nothing here changes in a check: `find_duplicate`, `check_data` and `check_marker` come before a write,
`apply_data` and `apply_marker` after it succeeded, and cannot fail (T3, KAFKA-6683). What came by replication was
checked by the leader and is only applied.
"""

from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Final

from mypy_extensions import i64

from mainstem.protocol.batch import NO_SEQUENCE, NO_TIMESTAMP
from mainstem.protocol.errors import ErrorCode, RemoteError

BATCHES_MAX: Final = 5
NO_EPOCH: Final = -1
EPOCH_MAX: Final = 0x7FFF
NO_OFFSET: Final = -1
SEQUENCE_MASK: Final = 0x7FFFFFFF
BUCKET_SLOTS: Final = 1024
"""How many slots of the hash map are put in order at a time."""
_BREATH_PRODUCERS: Final = 8192


class Origin(IntEnum):
    """Who appends, which decides what is checked."""

    CLIENT = 0
    """A producer: everything is checked."""
    COORDINATOR = 1
    """A group or transaction coordinator: records without sequences, and markers."""
    RAFT = 2
    """The metadata quorum's leader: nothing about producers."""
    REPLICATION = 3
    """A leader that has checked it all."""


class BatchMark:
    """One appended batch: enough to recognize it again and to answer with its offsets."""

    __slots__ = ("last_offset", "last_sequence", "offset_delta", "timestamp")

    def __init__(self, last_sequence: i64, last_offset: i64, offset_delta: i64, timestamp: i64) -> None:
        self.last_sequence: i64 = last_sequence
        self.last_offset: i64 = last_offset
        self.offset_delta: i64 = offset_delta
        self.timestamp: i64 = timestamp

    @property
    def first_sequence(self) -> i64:
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MASK

    @property
    def first_offset(self) -> i64:
        return self.last_offset - self.offset_delta


class Producer:
    """One producer id. `batches` holds up to five, oldest first.

    `older_unread` is set where the state came from a snapshot, which keeps one batch: up to four more may be in the
    log, and are looked for only when a retry of one of them comes.
    """

    __slots__ = (
        "batches",
        "captures",
        "coordinator_epoch",
        "epoch",
        "heard_ms",
        "last_timestamp",
        "older_unread",
        "producer_id",
        "txn_first_offset",
    )

    def __init__(self, producer_id: i64) -> None:
        self.producer_id: i64 = producer_id
        self.epoch: i64 = NO_EPOCH
        self.coordinator_epoch: i64 = -1
        self.last_timestamp: i64 = NO_TIMESTAMP
        self.heard_ms: i64 = NO_TIMESTAMP
        """By the broker's clock, where it is known."""
        self.txn_first_offset: i64 = NO_OFFSET
        self.batches: list[BatchMark] = []
        self.older_unread = False
        self.captures: i64 = 0
        """How many captures there had been when this was made: a later one may hold it."""

    def copy(self) -> "Producer":
        copied = Producer(self.producer_id)
        copied.epoch = self.epoch
        copied.coordinator_epoch = self.coordinator_epoch
        copied.last_timestamp = self.last_timestamp
        copied.heard_ms = self.heard_ms
        copied.txn_first_offset = self.txn_first_offset
        copied.batches = list(self.batches)
        copied.older_unread = self.older_unread
        return copied

    @property
    def last_sequence(self) -> i64:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> i64:
        """The last data offset, or -1: after markers alone there is none."""
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    @property
    def last_offset_delta(self) -> i64:
        return self.batches[-1].offset_delta if self.batches else 0

    def is_silent(self, now_ms: i64, expiration_ms: i64) -> bool:
        """Whether nothing came of it for so long, and no transaction of it is open."""
        return self.txn_first_offset < 0 and now_ms - max(self.last_timestamp, self.heard_ms) >= expiration_ms

    def find(self, first_sequence: i64, last_sequence: i64) -> BatchMark | None:
        for mark in self.batches:
            if mark.last_sequence == last_sequence and mark.first_sequence == first_sequence:
                return mark
        return None


class CompletedTransaction:
    __slots__ = ("first_offset", "is_aborted", "last_offset", "producer_id")

    def __init__(self, producer_id: i64, first_offset: i64, last_offset: i64, is_aborted: bool) -> None:
        self.producer_id: i64 = producer_id
        self.first_offset: i64 = first_offset
        self.last_offset: i64 = last_offset
        self.is_aborted = is_aborted


class CapturedProducers:
    """All producers of a partition as they were at `end_offset`: nobody changes them any more, so any thread may look.

    In the order in which they came, with the size that Java's HashMap would have.
    """

    __slots__ = ("end_offset", "hash_slots", "producers")

    def __init__(self, producers: list[Producer], hash_slots: i64, end_offset: i64) -> None:
        self.producers = producers
        self.hash_slots: i64 = hash_slots
        self.end_offset: i64 = end_offset

    def __len__(self) -> int:
        return len(self.producers)

    def in_snapshot_order(self, breathe: Callable[[], None] | None = None) -> Iterator[list[Producer]]:
        """The producers in the order in which Kafka writes them, which is that of Java's HashMap, some at a time.

        There may be a million, and compiled code lets nobody else run by itself: `breathe` does.
        """
        for bucket in self._in_buckets(breathe):
            if bucket:
                yield _in_slot_order(bucket, self.hash_slots)
                if breathe is not None:
                    breathe()

    def _in_buckets(self, breathe: Callable[[], None] | None) -> list[list[Producer]]:
        slots: i64 = self.hash_slots
        buckets: list[list[Producer]] = [[] for _ in range((slots + BUCKET_SLOTS - 1) // BUCKET_SLOTS)]
        for taken, producer in enumerate(self.producers):
            buckets[_slot(producer, slots) // BUCKET_SLOTS].append(producer)
            if breathe is not None and taken % _BREATH_PRODUCERS == 0:
                breathe()
        return buckets


def _slot(producer: Producer, slots: i64) -> i64:
    producer_id: i64 = producer.producer_id
    folded: i64 = (producer_id ^ (producer_id >> 32)) & 0xFFFFFFFF
    return (folded ^ (folded >> 16)) & (slots - 1)


def _in_slot_order(producers: list[Producer], slots: i64) -> list[Producer]:
    """What is sorted is slots, not producers. Those of one slot stay in the order in which they came."""
    first: dict[int, Producer] = {}
    behind: dict[int, list[Producer]] = {}
    for producer in producers:
        slot: i64 = _slot(producer, slots)
        if slot not in first:
            first[slot] = producer
        elif slot in behind:
            behind[slot].append(producer)
        else:
            behind[slot] = [producer]
    ordered: list[Producer] = []
    for each in sorted(first):
        ordered.append(first[each])
        if each in behind:
            ordered += behind[each]
    return ordered


class ProducerStates:
    """All producers of one partition, up to (not including) `end_offset`."""

    def __init__(self) -> None:
        self.end_offset: i64 = 0
        self.now_ms: i64 = NO_TIMESTAMP
        """The broker's clock, told before what is appended now; not before what is read back."""
        self._producers: dict[int, Producer] = {}
        # Both by first offset; open ones to the producer's id, finished ones to the offset of their marker.
        self._open: dict[int, int] = {}
        self._unreplicated: dict[int, int] = {}
        self._hash_slots: i64 = 16
        self._captures: i64 = 0

    def __len__(self) -> int:
        return len(self._producers)

    @property
    def is_empty(self) -> bool:
        return not self._producers and not self._unreplicated

    def get(self, producer_id: i64) -> Producer | None:
        return self._producers.get(producer_id)

    def all(self) -> list[Producer]:
        return list(self._producers.values())

    def clear(self) -> None:
        """Forgets everything but where it was."""
        self._producers.clear()
        self._open.clear()
        self._unreplicated.clear()

    # -- checks: before the write, changing nothing ---------------------------------------------------------------

    def find_duplicate(self, producer_id: i64, epoch: i64, first_sequence: i64, last_sequence: i64) -> BatchMark | None:
        producer = self._producers.get(producer_id)
        if producer is None or producer.epoch != epoch:
            return None
        return producer.find(first_sequence, last_sequence)

    def may_be_older_duplicate(self, producer_id: i64, epoch: i64, last_sequence: i64) -> bool:
        """Whether the batch could be one that the snapshot did not keep: then the log must be looked through."""
        producer = self._producers.get(producer_id)
        if producer is None or not producer.older_unread or producer.epoch != epoch or not producer.batches:
            return False
        behind: i64 = (producer.batches[0].first_sequence - last_sequence - 1) & SEQUENCE_MASK
        # Half the circle of sequences lies behind the oldest known batch, the other half ahead of it.
        return behind < SEQUENCE_MASK // 2

    def add_older(self, producer_id: i64, marks: list[BatchMark]) -> None:
        """Takes what the log had of a producer before its oldest known batch, oldest first."""
        producer = self._producer(producer_id)
        producer.older_unread = False
        room = BATCHES_MAX - len(producer.batches)
        if room > 0:
            producer.batches = marks[-room:] + producer.batches

    def check_data(
        self,
        origin: Origin,
        producer_id: i64,
        epoch: i64,
        first_sequence: i64,
        is_transactional: bool,
    ) -> None:
        """Raises RemoteError where this producer may not append this batch next."""
        if origin == Origin.REPLICATION:
            return
        producer = self._producers.get(producer_id)
        seen: i64 = NO_EPOCH if producer is None else producer.epoch
        if epoch < seen:
            raise RemoteError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} has epoch {epoch}; {seen} was seen already",
            )
        if producer is None:
            return
        if origin == Origin.CLIENT:
            self._check_sequence(producer, epoch, first_sequence)
        if producer.txn_first_offset >= 0 and not is_transactional:
            raise RemoteError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer_id} has an open transaction and sent a batch outside it",
            )

    def _check_sequence(self, producer: Producer, epoch: i64, first_sequence: i64) -> None:
        if producer.epoch == NO_EPOCH:
            return
        if epoch != producer.epoch:
            if first_sequence != 0:
                raise RemoteError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {producer.producer_id} starts epoch {epoch} with sequence {first_sequence}",
                )
            return
        last: i64 = producer.last_sequence
        if first_sequence == last + 1 or (first_sequence == 0 and last == SEQUENCE_MASK):
            return
        raise RemoteError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {producer.producer_id} sent sequence {first_sequence} after {last}",
        )

    def check_marker(
        self, producer_id: i64, epoch: i64, coordinator_epoch: i64, transaction_version: i64, origin: Origin
    ) -> None:
        """Raises RemoteError where a marker may not be appended.

        Under transaction version 2 a marker's epoch is one higher than its transaction's (KIP-890); an equal one is
        a late marker, unless no transaction is open, when it is a retry and is written again (KAFKA-19999). There is
        nothing higher than the highest epoch (KAFKA-20090).
        """
        if origin == Origin.REPLICATION:
            return
        producer = self._producers.get(producer_id)
        if producer is None:
            return
        stale: bool = epoch < producer.epoch
        if transaction_version >= 2 and epoch == producer.epoch:
            stale = producer.txn_first_offset >= 0 and epoch != EPOCH_MAX
        if stale:
            raise RemoteError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"marker of epoch {epoch} for producer {producer_id}, which is at {producer.epoch}",
            )
        if producer.coordinator_epoch > coordinator_epoch:
            raise RemoteError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"marker of coordinator epoch {coordinator_epoch}; {producer.coordinator_epoch} was seen already",
            )

    def has_open_transaction(self, producer_id: i64, epoch: i64) -> bool:
        producer = self._producers.get(producer_id)
        return producer is not None and producer.epoch == epoch and producer.txn_first_offset >= 0

    def open_producers(self) -> list[int]:
        return list(self._open.values())

    # -- after the write -----------------------------------------------------------------------------------------

    def apply_data(
        self,
        producer_id: i64,
        epoch: i64,
        last_sequence: i64,
        first_offset: i64,
        last_offset: i64,
        timestamp: i64,
        is_transactional: bool,
    ) -> None:
        producer = self._producer(producer_id)
        if producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches = []
            producer.older_unread = False
        batches = producer.batches
        if len(batches) >= BATCHES_MAX:
            del batches[0]
        batches.append(BatchMark(last_sequence, last_offset, last_offset - first_offset, timestamp))
        producer.last_timestamp = timestamp
        producer.heard_ms = self.now_ms
        if is_transactional and producer.txn_first_offset < 0:
            producer.txn_first_offset = first_offset
            self._open[first_offset] = producer_id

    def apply_marker(
        self, producer_id: i64, epoch: i64, coordinator_epoch: i64, is_aborted: bool, offset: i64, timestamp: i64
    ) -> CompletedTransaction | None:
        """What the marker ended, or None where nothing was open. `complete` must follow."""
        producer = self._producer(producer_id)
        if producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches = []
            producer.older_unread = False
        first: i64 = producer.txn_first_offset
        producer.txn_first_offset = NO_OFFSET
        producer.coordinator_epoch = coordinator_epoch
        producer.last_timestamp = timestamp
        producer.heard_ms = self.now_ms
        if first < 0:
            return None
        return CompletedTransaction(producer_id, first, offset, is_aborted)

    def last_stable_offset_after(self, completed: CompletedTransaction) -> i64:
        """What the transaction index records: the first open offset once `completed` is gone."""
        for first_offset, producer_id in self._open.items():
            if producer_id != completed.producer_id:
                return first_offset
        return completed.last_offset + 1

    def complete(self, completed: CompletedTransaction) -> None:
        self._open.pop(completed.first_offset, None)
        self._unreplicated[completed.first_offset] = completed.last_offset

    # -- what moves with the log ----------------------------------------------------------------------------------

    @property
    def first_unstable_offset(self) -> i64:
        """Where the oldest transaction begins that is open or not yet replicated, or -1."""
        first: i64 = NO_OFFSET
        for offset in self._open:
            first = offset
            break
        for offset in self._unreplicated:
            if first < 0 or offset < first:
                first = offset
        return first

    def on_high_watermark(self, high_watermark: i64) -> None:
        """Transactions whose marker is now below the high watermark are stable."""
        if self._unreplicated:
            done = [first for first, last in self._unreplicated.items() if last < high_watermark]
            for first in done:
                del self._unreplicated[first]

    def on_log_start(self, log_start: i64) -> None:
        self.on_high_watermark(log_start)
        if self.end_offset < log_start:
            self.end_offset = log_start

    def ids(self) -> list[int]:
        return list(self._producers)

    def expire(self, now_ms: i64, expiration_ms: i64, among: list[int] | None = None) -> list[int]:
        """Forgets the producers that were silent for so long and have no open transaction, of all or of `among`;
        returns their ids."""
        gone: list[int] = []
        for producer_id in self.ids() if among is None else among:
            producer = self._producers.get(producer_id)
            if producer is not None and producer.is_silent(now_ms, expiration_ms):
                del self._producers[producer_id]
                gone.append(producer_id)
        return gone

    def forget(self, producer_id: i64) -> None:
        del self._producers[producer_id]

    # -- snapshots -----------------------------------------------------------------------------------------------

    def restore(self, producer: Producer) -> None:
        """Takes one producer of a snapshot. Call `restored` after the last."""
        self._insert(producer)
        if producer.txn_first_offset >= 0:
            self._open[producer.txn_first_offset] = producer.producer_id

    def restored(self, end_offset: i64) -> None:
        self._open = dict(sorted(self._open.items()))
        self.end_offset = end_offset

    def capture(self) -> CapturedProducers:
        """What a snapshot made now has to hold. Whatever changes from now on changes a copy."""
        self._captures += 1
        return CapturedProducers(list(self._producers.values()), self._hash_slots, self.end_offset)

    def _producer(self, producer_id: i64) -> Producer:
        """The one to change."""
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = Producer(producer_id)
            producer.captures = self._captures
            self._insert(producer)
        elif producer.captures != self._captures:
            producer = producer.copy()
            producer.captures = self._captures
            self._producers[producer_id] = producer  # where it was in the order, too
        return producer

    def _insert(self, producer: Producer) -> None:
        self._producers[producer.producer_id] = producer
        # A HashMap doubles when it is more than three quarters full, and never shrinks.
        while len(self._producers) * 4 > self._hash_slots * 3:
            self._hash_slots *= 2
