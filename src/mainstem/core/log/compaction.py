"""What compaction decides: which part of a log may be cleaned, into what, and what becomes of each batch.

Rules, Kafka's LogCleaner's unless said otherwise:
- Only whole inactive segments are cleaned, none that reaches past the last stable offset, and so none past the high
  watermark (C2, KAFKA-13194), and none younger than `min.compaction.lag.ms`. Stricter than Kafka: none that is not
  durable, or has a transaction whose marker is not. A value must not go for the sake of a newer one that a power cut
  can still take, or have aborted.
- What lies before the first dirty offset was cleaned before. Where that offset is outside the log (a truncation, a
  log start that moved), everything is dirty again (C6, KAFKA-8764).
- A log is due when more than `min.cleanable.dirty.ratio` of it is dirty, or when its oldest dirty segment is older
  than `max.compaction.lag.ms` (KIP-354).
- A tombstone, and a marker whose transaction has no batch left, get a delete horizon when they are first met, and go
  when it has passed (KIP-534, KAFKA-4529). A marker never goes before the last batch of its transaction (C4).
- The last batch of a live producer stays, without records if need be (C5, KAFKA-5490), and so does the last batch
  of what is cleaned, because it says where the log goes on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, Protocol, TypeVar

from mypy_extensions import i64

from mainstem.core.log.config import LONG_MAX, LogConfig
from mainstem.core.log.producers import ProducerStates
from mainstem.protocol.batch import BatchView
from mainstem.protocol.control import parse_end_marker
from mainstem.protocol.errors import RemoteError

RELATIVE_MAX: Final = 0x7FFFFFFF
"""How far the offsets of a segment may lie from its base."""

Aborted = tuple[int, int, int, int]
"""First offset, last offset (the marker's), producer id, and the last stable offset that the index records."""


class SizedSegment(Protocol):
    """What is asked of a segment here; `storage.segment.Segment` has it."""

    @property
    def base_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def first_timestamp(self) -> int: ...
    def largest_timestamp(self) -> int: ...


SegmentT = TypeVar("SegmentT", bound=SizedSegment)


# -- what is cleanable -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cleanable:
    """How much of a log could be cleaned now, and how much it needs it."""

    first_dirty: int
    end: int
    """The base of the first segment that must stay as it is."""
    clean_bytes: int
    dirty_bytes: int
    overdue_ms: int
    """By how much the oldest dirty record is later than `max.compaction.lag.ms` allows; 0 where it is not."""
    was_reset: bool
    """Whether the checkpointed offset was outside the log."""

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, min_ratio: float) -> bool:
        return self.dirty_bytes > 0 and (self.overdue_ms > 0 or self.ratio > min_ratio)


def find_cleanable(
    segments: Sequence[SizedSegment],
    log_start: int,
    log_end: int,
    stable_end: int,
    durable_end: int,
    checkpoint: int | None,
    config: LogConfig,
    now_ms: int,
) -> Cleanable:
    """`segments` are all of the log's, the last active; `checkpoint` is the first dirty offset as last noted."""
    was_reset = checkpoint is not None and not log_start <= checkpoint <= log_end
    first_dirty = log_start if checkpoint is None or was_reset else checkpoint
    dirty = segments[_floor(segments, first_dirty) : -1]
    limit = min(stable_end, durable_end, segments[-1].base_offset)
    if config.min_compaction_lag_ms > 0:
        for segment in dirty:
            # One that a cleaning has left empty has nothing that is young, whatever the time of its file.
            if segment.size > 0 and segment.largest_timestamp() > now_ms - config.min_compaction_lag_ms:
                limit = min(limit, segment.base_offset)
                break
    limit = max(first_dirty, limit)
    # A segment that holds the limit must stay whole; one that begins there, too.
    end = segments[_floor(segments, limit)].base_offset
    dirty_bytes = 0
    if first_dirty < end:
        dirty_bytes = sum(segment.size for segment in dirty if segment.base_offset < end)
    clean_bytes = sum(segment.size for segment in segments if segment.base_offset < first_dirty)
    overdue_ms = _overdue_ms(dirty, config, now_ms)
    return Cleanable(first_dirty, end, clean_bytes, dirty_bytes, overdue_ms, was_reset)


def _floor(segments: Sequence[SizedSegment], offset: int) -> int:
    """The index of the last segment that begins at or before `offset`; the first where none does."""
    at = 0
    while at + 1 < len(segments) and segments[at + 1].base_offset <= offset:
        at += 1
    return at


def _overdue_ms(dirty: Sequence[SizedSegment], config: LogConfig, now_ms: int) -> int:
    if config.max_compaction_lag_ms == LONG_MAX:
        return 0  # and no segment is opened to learn its first timestamp
    limit_ms = now_ms - config.max_compaction_lag_ms
    earliest_ms = min((segment.first_timestamp for segment in dirty if segment.first_timestamp > 0), default=limit_ms)
    return max(0, limit_ms - earliest_ms)


def group_segments(
    segments: Sequence[SegmentT], index_bytes: Sequence[tuple[int, int]], config: LogConfig, end: int
) -> list[list[SegmentT]]:
    """Neighbours that fit one segment together, so that segments do not become ever smaller.

    `index_bytes` are the sizes of each segment's offset and time index; nothing past `end` is in the last segment.
    Sizes before cleaning bound those after it, and the offsets must fit the base of the first (KAFKA-6264).
    """
    groups: list[list[SegmentT]] = []
    size = offsets = times = 0
    for at, segment in enumerate(segments):
        upper = segments[at + 1].base_offset if at + 1 < len(segments) else end
        offset_bytes, time_bytes = index_bytes[at]
        fits = (
            groups
            and size + segment.size <= config.roll_bytes
            and offsets + offset_bytes <= config.segment_index_bytes
            and times + time_bytes <= config.segment_index_bytes
            and (segment.size == 0 or upper - 1 - groups[-1][0].base_offset <= RELATIVE_MAX)
        )
        if not fits:
            groups.append([])
            size = offsets = times = 0
        groups[-1].append(segment)
        size += segment.size
        offsets += offset_bytes
        times += time_bytes
    return groups


# -- what becomes of a batch -------------------------------------------------------------------------------------------


class _OngoingAbort:
    __slots__ = ("has_batches", "transaction")

    def __init__(self, transaction: Aborted) -> None:
        self.transaction = transaction
        self.has_batches = False


class TransactionTracker:
    """Follows the transactions of a log from its start, and knows which data was aborted and which marker is spent.

    One tracker sees all segments of a cleaning, because transactions span them (KAFKA-8351). It must be told of the
    aborted transactions of a whole segment before the segment's first batch, also where only a part of the segment
    is being cleaned (KAFKA-13727). `kept` collects those whose markers stay: the new segment's transaction index.
    """

    __slots__ = ("_aborted", "_committed", "_waiting", "kept")

    def __init__(self) -> None:
        self.kept: list[Aborted] = []
        self._waiting: list[Aborted] = []
        self._aborted: dict[int, _OngoingAbort] = {}
        self._committed: set[int] = set()

    def add_aborted(self, transactions: list[Aborted]) -> None:
        for transaction in transactions:
            heappush(self._waiting, transaction)

    def take_kept(self) -> list[Aborted]:
        kept = self.kept
        self.kept = []
        return kept

    def is_aborted_data(self, batch: BatchView) -> bool:
        """Takes note of a batch of data; whether it belongs to an aborted transaction."""
        self._begin_up_to(batch.last_offset)
        if not batch.is_transactional:
            return False
        producer_id: i64 = batch.producer_id
        ongoing = self._aborted.get(producer_id)
        if ongoing is not None:
            ongoing.has_batches = True
            return True
        self._committed.add(producer_id)
        return False

    def is_spent_marker(self, batch: BatchView) -> bool:
        """Takes note of a control batch; whether no batch of its transaction was met before it."""
        self._begin_up_to(batch.last_offset)
        if batch.record_count == 0:
            return True
        try:
            marker = parse_end_marker(batch)
        except RemoteError:
            return False
        if marker is None:
            return False
        producer_id: i64 = batch.producer_id
        if marker.commit:
            if producer_id in self._committed:
                self._committed.discard(producer_id)
                return False
            return True
        ongoing = self._aborted.pop(producer_id, None)
        if ongoing is not None and ongoing.has_batches:
            self.kept.append(ongoing.transaction)
            return False
        return True

    def _begin_up_to(self, offset: i64) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= offset:
            transaction = heappop(waiting)
            if transaction[2] not in self._aborted:
                self._aborted[transaction[2]] = _OngoingAbort(transaction)


class Verdict:
    """What becomes of a batch before its records are looked at."""

    __slots__ = ("drops_all", "is_spent_marker", "keeps_empty")

    def __init__(self, drops_all: bool, keeps_empty: bool, is_spent_marker: bool) -> None:
        self.drops_all = drops_all
        """No record stays."""
        self.keeps_empty = keeps_empty
        """The header stays even without a record."""
        self.is_spent_marker = is_spent_marker
        """A marker that may go once its delete horizon has passed; it gets one now if it has none."""


def judge(batch: BatchView, tracker: TransactionTracker, states: ProducerStates, end: i64, now_ms: i64) -> Verdict:
    """`end` is where this cleaning ends; `states` are the producers as they are now."""
    is_spent_marker = False
    if batch.is_control:
        is_spent_marker = tracker.is_spent_marker(batch)
        drops_all = is_spent_marker and batch.has_delete_horizon and batch.base_timestamp <= now_ms
    else:
        drops_all = tracker.is_aborted_data(batch)
    keeps_empty = batch.next_offset == end or is_last_of_producer(batch, states)
    return Verdict(drops_all, keeps_empty, is_spent_marker)


def is_last_of_producer(batch: BatchView, states: ProducerStates) -> bool:
    """Whether what is known of a live producer stands in this batch: its last sequence, or its epoch in a marker."""
    producer_id: i64 = batch.producer_id
    if producer_id < 0:
        return False
    producer = states.get(producer_id)
    if producer is None:
        return False
    batches = producer.batches
    if batches:
        last: i64 = batches[-1].last_offset
        return batch.last_offset == last
    return batch.is_control and batch.producer_epoch == producer.epoch
