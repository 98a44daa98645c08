"""One partition's log, as Kafka keeps it on disk.

    log_start <= last stable offset <= high watermark <= log_end, and recovery_point <= log_end (D2)

Rules:
- `log_end` moves only after the bytes are written, and at once then, before anything else can fail: an index that
  cannot be written never leads to an offset given twice (D1, KAFKA-7866).
- Producer state changes only after the batch is written (T3, KAFKA-6683).
- The first failed write or fsync fails the log for good: every later call raises the same `StorageError` (D5). So does
  whatever fails between the write of a batch and its producer's state, or a retry would be appended again (T1).
- Calls are made by one owner, the event loop. What may take long is a job: prepared here, run in a thread, finished
  here (`flushing`, `reading`, `restructuring`).
- Nothing is deleted past the high watermark (KAFKA-5634).

Reading is `readable_log`'s, what is durable of it `durable_log`'s, and what changes its files for others
`restructured_log`'s. Opening, and what happens after a crash, is `recovery`'s.
"""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from mainstem.core.log.append_result import AppendResult
from mainstem.core.log.config import LogConfig
from mainstem.core.log.epochs import LeaderEpochs
from mainstem.core.log.preparation import Preparation
from mainstem.core.log.producers import BatchMark, CompletedTransaction, Origin
from mainstem.core.log.validation import BatchRules, LoopShare, ValidBatch, replicated_batches, takes_long, validate
from mainstem.core.log.verification import NO_GUARD, Verifications
from mainstem.protocol.batch import NO_TIMESTAMP, BatchView
from mainstem.protocol.control import EndMarker, parse_end_marker
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.storage import names
from mainstem.storage.duplicates import OlderSearch, begin_older_search, find_older_batches, may_be_older
from mainstem.storage.open_files import OpenFiles
from mainstem.storage.producer_store import ProducerStore
from mainstem.storage.recovery_cut import RecoveryCut
from mainstem.storage.replay import replay_producers
from mainstem.storage.restructured_log import RestructuredLog
from mainstem.storage.restructuring import Retirement
from mainstem.storage.retention import count_below, count_expired, count_over, untimed_oldest
from mainstem.storage.segment import Segment
from mainstem.storage.timestamps import LargestTimestampsJob
from mainstem.storage.txn_index import AbortedTransaction

DEFAULT_PRODUCER_EXPIRATION_MS: Final = 86_400_000

Jitter = Callable[[int], int]
"""Given a bound, a random number below it: where the jitter of a new segment's age comes from."""


def no_jitter(bound: int) -> int:
    return 0


class Log(RestructuredLog):
    """Made by `recovery.open_log`, with every part already consistent."""

    def __init__(
        self,
        files: OpenFiles,
        directory: str,
        config: LogConfig,
        segments: list[Segment],
        epochs: LeaderEpochs,
        producers: ProducerStore,
        log_start: i64,
        recovery_point: i64,
        log_end: i64,
        high_watermark: i64,
        now_ms: i64,
        jitter: Jitter,
    ) -> None:
        super().__init__(
            files,
            directory,
            segments,
            epochs,
            producers,
            log_start,
            recovery_point,
            log_end,
            high_watermark,
            now_ms,
        )
        self.verifies_transactions = False
        """Whether the first batch of a transaction must bring the guard of `begin_verification`."""
        self.verifications = Verifications()
        self.cut: RecoveryCut | None = None
        """What the recovery that opened it has removed."""
        self._jitter = jitter
        self._older_search: OlderSearch | None = None
        self.producers.states.on_high_watermark(self.high_watermark)
        self._update_first_unstable()
        self._set_config(config)
        self._check_order()

    def __repr__(self) -> str:
        return f"Log({self.directory}, {self.log_start}..{self.log_end})"

    # -- settings and sizes --------------------------------------------------------------------------------------

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._set_config(config)

    def _set_config(self, config: LogConfig) -> None:
        self._config = config
        self._rules = BatchRules(config)
        self._roll_bytes: i64 = config.roll_bytes
        self._roll_ms: i64 = config.roll_ms
        self._flush_messages = config.flush_messages
        self._flush_ms = config.flush_ms
        self._delete_delay_ms = config.file_delete_delay_ms

    def _check_order(self) -> None:
        assert self.log_start <= self.last_stable_offset <= self.high_watermark <= self.log_end, repr(self)
        assert self.recovery_point <= self.log_end, repr(self)

    # -- appending -----------------------------------------------------------------------------------------------

    def begin_verification(
        self, producer_id: i64, epoch: i64, first_sequence: i64, raises_epoch: bool, now_ms: i64
    ) -> int:
        """The guard for the first batch of a transaction; `NO_GUARD` where the transaction is open already."""
        producer = self.producers.states.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            raise RemoteError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} has epoch {epoch}; {producer.epoch} was seen already",
            )
        if self.has_open_transaction(producer_id, epoch):
            return NO_GUARD
        return self.verifications.begin(producer_id, first_sequence, epoch, raises_epoch, now_ms)

    def fence(self, producer_id: i64, epoch: i64) -> None:
        """Takes nothing more of a producer's open transaction; late, when it has ended, this does nothing."""
        producer = self.producers.states.get(producer_id)
        if producer is None or producer.epoch <= epoch:
            self.verifications.fence(producer_id, epoch)

    def has_open_transaction(self, producer_id: i64, epoch: i64) -> bool:
        """Whether the producer may go on with a transaction, nobody else being asked."""
        is_open = self.producers.states.has_open_transaction(producer_id, epoch)
        return is_open and not self.verifications.is_doubted(producer_id)

    def append_as_leader(
        self,
        buffer: bytes,
        start: i64,
        end: i64,
        leader_epoch: i64,
        now_ms: i64,
        origin: Origin = Origin.CLIENT,
        transaction_version: i64 = 0,
        guard: int = NO_GUARD,
    ) -> AppendResult:
        """Appends the one batch in `buffer[start:end]`; RemoteError where it may not be, with no record changed."""
        self._check_alive()
        valid = validate(buffer, start, end, self._rules, now_ms, origin)
        return self._append_checked(valid, leader_epoch, now_ms, origin, transaction_version, guard)

    def takes_long(self, buffer: bytes, start: i64, end: i64, now_ms: i64) -> bool:
        """Whether a client's batch is better judged in a thread (`prepare`)."""
        if takes_long(buffer, start, end, self._rules, now_ms):
            return True
        return may_be_older(self.producers.states, buffer, start, end)

    def count_in(self, share: LoopShare, buffer: bytes, start: i64, end: i64, now_ms: i64) -> None:
        """A client's batch is judged on the event loop: it takes its part of what others that came with it may."""
        share.count(buffer, start, end, self._rules, now_ms)

    def prepare(self, buffer: bytes, start: i64, end: i64, now_ms: i64) -> Preparation:
        """A job that judges a client's batch by the rules of now; `append_prepared` follows."""
        prepared = Preparation(buffer, start, end, self._rules, now_ms)
        try:
            search = begin_older_search(self._fs, self._segments.all(), self.producers.states, buffer, start, end)
        except OSError as error:
            raise self.fail(error) from error
        if search is not None:
            prepared.beforehand = search.run
            self._older_search = search
        return prepared

    def append_prepared(
        self, prepared: Preparation, leader_epoch: i64, now_ms: i64, transaction_version: i64 = 0, guard: int = NO_GUARD
    ) -> AppendResult:
        """`append_as_leader` of a batch that was judged."""
        self._check_alive()
        search, self._older_search = self._older_search, None
        if search is not None:
            search.give_to(self.producers.states)
        return self._append_checked(prepared.result(), leader_epoch, now_ms, Origin.CLIENT, transaction_version, guard)

    def _append_checked(
        self, valid: ValidBatch, leader_epoch: i64, now_ms: i64, origin: Origin, transaction_version: i64, guard: int
    ) -> AppendResult:
        batch = valid.batch
        self.producers.states.now_ms = now_ms
        if valid.size > self._roll_bytes:
            raise RemoteError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"a batch of {valid.size} bytes; a segment of this log has {self._roll_bytes}",
            )
        base_offset: i64 = self.log_end
        last_offset: i64 = base_offset + batch.last_offset_delta
        try:
            # Before the producer is looked at, as in Kafka: the files are the same though the batch is refused.
            self._roll_if_needed(valid.size, valid.max_timestamp, last_offset, now_ms)
        except OSError as error:
            raise self.fail(error) from error
        marker: EndMarker | None = None
        if batch.producer_id >= 0 and origin != Origin.RAFT:
            if batch.is_control:
                marker = parse_end_marker(batch)
            duplicate = self._check_producer(batch, marker, origin, transaction_version, guard)
            if duplicate is not None:
                return self._duplicate_result(duplicate, leader_epoch)
        try:
            self._append_valid(valid, marker, base_offset, last_offset, leader_epoch)
        except OSError as error:
            raise self.fail(error) from error
        return AppendResult(
            base_offset,
            last_offset,
            valid.log_append_time,
            self.log_start,
            leader_epoch,
            batch.record_count,
            False,
        )

    def _append_valid(
        self,
        valid: ValidBatch,
        marker: EndMarker | None,
        base_offset: i64,
        last_offset: i64,
        leader_epoch: i64,
    ) -> None:
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        segment = self._active
        position: i64 = segment.write(valid.buffers(base_offset, leader_epoch), valid.size)
        self._segments.grew(valid.size)
        self.log_end = last_offset + 1
        try:
            segment.index_written(base_offset, last_offset, valid.max_timestamp, position, valid.size)
            self._apply_producer(valid.batch, marker, base_offset, last_offset, valid.max_timestamp)
        except Exception as error:
            raise self.fail(error) from error

    def append_as_follower(self, buffer: bytes, start: i64, end: i64, leader_epoch: i64, now_ms: i64) -> AppendResult:
        """Appends what `replicated_batches` takes of what a leader sent, with the offsets and epochs it has."""
        self._check_alive()
        batches = replicated_batches(buffer, start, end, self.log_end, leader_epoch)
        if not batches:
            return AppendResult(self.log_end, self.log_end - 1, NO_TIMESTAMP, self.log_start, leader_epoch, 0, False)
        first = batches[0]
        last = batches[-1]
        records: i64 = 0
        for batch in batches:
            records += batch.record_count
        try:
            if last.end - first.start <= self._roll_bytes and last.last_offset - first.base_offset <= 0x7FFFFFFF:
                self._append_replicated(batches, now_ms)
            else:
                for batch in batches:
                    self._append_replicated([batch], now_ms)
        except OSError as error:
            raise self.fail(error) from error
        return AppendResult(
            first.base_offset, last.last_offset, NO_TIMESTAMP, self.log_start, leader_epoch, records, False
        )

    def _append_replicated(self, batches: list[BatchView], now_ms: i64) -> None:
        first = batches[0]
        last = batches[-1]
        self.producers.states.now_ms = now_ms
        size: i64 = last.end - first.start
        max_timestamp: i64 = NO_TIMESTAMP
        markers: list[EndMarker | None] = []
        for batch in batches:
            max_timestamp = max(max_timestamp, batch.max_timestamp)
            is_marker = batch.is_control and batch.producer_id >= 0
            markers.append(parse_end_marker(batch) if is_marker else None)
            if batch.leader_epoch > self.epochs.latest:
                self.epochs.assign(batch.leader_epoch, batch.base_offset)
        self._roll_if_needed(size, max_timestamp, last.last_offset, now_ms)
        segment = self._active
        position: i64 = segment.write([memoryview(first.buffer)[first.start : last.end]], size)
        self._segments.grew(size)
        self.log_end = last.next_offset
        try:
            for batch, marker in zip(batches, markers, strict=True):
                segment.index_batch(batch, position)
                position += batch.size
                if batch.producer_id >= 0 and (marker is not None or not batch.is_control):
                    self._apply_producer(batch, marker, batch.base_offset, batch.last_offset, batch.max_timestamp)
        except Exception as error:
            raise self.fail(error) from error
        self.producers.states.end_offset = self.log_end

    def _check_producer(
        self, batch: BatchView, marker: EndMarker | None, origin: Origin, transaction_version: i64, guard: int
    ) -> BatchMark | None:
        """Raises where this producer may not append this; the mark of the batch where it was appended before."""
        states = self.producers.states
        producer_id: i64 = batch.producer_id
        epoch: i64 = batch.producer_epoch
        if batch.is_control:
            if marker is not None:
                states.check_marker(producer_id, epoch, marker.coordinator_epoch, transaction_version, origin)
            return None
        if origin == Origin.CLIENT:
            first: i64 = batch.base_sequence
            last: i64 = batch.last_sequence
            duplicate = states.find_duplicate(producer_id, epoch, first, last)
            if duplicate is None and states.may_be_older_duplicate(producer_id, epoch, last):
                states.add_older(producer_id, find_older_batches(self._segments.all(), states.get(producer_id)))
                duplicate = states.find_duplicate(producer_id, epoch, first, last)
            if duplicate is not None:
                return duplicate
        self.verifications.check_fence(producer_id, epoch)
        begins = batch.is_transactional and not self.has_open_transaction(producer_id, epoch)
        if begins and self.verifies_transactions:
            self._check_verified(producer_id, epoch, guard)
        if origin == Origin.CLIENT and (begins or not batch.is_transactional):
            known = states.get(producer_id)
            is_known = known is not None and len(known.batches) > 0
            self.verifications.check_sequence(producer_id, batch.base_sequence, is_known)
        states.check_data(origin, producer_id, epoch, batch.base_sequence, batch.is_transactional)
        return None

    def _check_verified(self, producer_id: i64, epoch: i64, guard: int) -> None:
        """A lower epoch is told first: it says more."""
        producer = self.producers.states.get(producer_id)
        if producer is None or epoch >= producer.epoch:
            self.verifications.check(producer_id, guard)

    def _apply_producer(
        self, batch: BatchView, marker: EndMarker | None, base_offset: i64, last_offset: i64, timestamp: i64
    ) -> None:
        states = self.producers.states
        producer_id: i64 = batch.producer_id
        if producer_id >= 0:
            epoch: i64 = batch.producer_epoch
            if marker is not None:
                completed = states.apply_marker(
                    producer_id, epoch, marker.coordinator_epoch, not marker.commit, base_offset, timestamp
                )
                if completed is not None:
                    self._complete(completed)
                self.verifications.appended(producer_id, epoch, True)
            elif not batch.is_control:
                is_transactional = batch.is_transactional
                states.apply_data(
                    producer_id, epoch, batch.last_sequence, base_offset, last_offset, timestamp, is_transactional
                )
                if is_transactional:
                    self._update_first_unstable()
                    self.verifications.appended(producer_id, epoch, False)
        states.end_offset = self.log_end

    def _complete(self, completed: CompletedTransaction) -> None:
        states = self.producers.states
        if completed.is_aborted:
            stable: i64 = states.last_stable_offset_after(completed)
            self._active.txn_index.append(
                AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable)
            )
        states.complete(completed)
        self._note_end(completed.first_offset, completed.last_offset)
        self._update_first_unstable()

    def _duplicate_result(self, mark: BatchMark, leader_epoch: i64) -> AppendResult:
        # Kafka gives the batch's time here, also where the topic keeps the producers' own.
        return AppendResult(
            mark.first_offset,
            mark.last_offset,
            mark.timestamp,
            self.log_start,
            leader_epoch,
            mark.offset_delta + 1,
            True,
        )

    # -- rolling -------------------------------------------------------------------------------------------------

    def _roll_if_needed(self, size: i64, max_timestamp: i64, last_offset: i64, now_ms: i64) -> None:
        segment = self._active
        if segment.should_roll(self._roll_bytes, self._roll_ms, size, max_timestamp, last_offset, now_ms):
            base: i64 = self.log_end
            if last_offset - base > 0x7FFFFFFF:
                # A follower of a compacted log may have to skip more offsets than a segment can span.
                base = last_offset - 0x7FFFFFFF
            self._roll_to(base, now_ms)

    def roll(self, now_ms: i64) -> None:
        """Begins a new segment at the log end."""
        self._check_alive()
        try:
            self._roll_to(self.log_end, now_ms)
        except OSError as error:
            raise self.fail(error) from error

    def _roll_to(self, base_offset: i64, now_ms: i64) -> None:
        old = self._active
        if old.base_offset == base_offset:
            # An empty segment is replaced by itself, e.g. when `segment.index.bytes` leaves no room (KAFKA-6388).
            assert old.size == 0, f"{old!r} cannot be rolled onto itself"
            old.create()
            return
        assert base_offset > old.base_offset
        # Where the recovery point is past this segment, no recovery will look at it: what the last one wrote anew, or
        # found cut, and no flush has come to, must be durable now, the name of a transaction index included. A flush
        # that is under way may be too late for that. The last entry of the time index, which comes now, is left to the
        # next flush: recovery makes sure of it.
        flush = None if self.recovery_point >= base_offset else self._flush
        is_behind = old.has_unsynced(flush) and self._will_be_passed_over(base_offset)
        old.become_inactive()
        if is_behind:
            has_new_names = old.txn_index.exists and old.txn_index.ref.dirty
            old.sync()
            if has_new_names or self._has_new_names or (self._flush is not None and self._flush.has_new_names):
                self._fs.sync_directory(self.directory)
        self._add_segment(base_offset, now_ms)
        # The state may end before the segment begins, where offsets were skipped.
        self.producers.states.end_offset = max(self.producers.states.end_offset, base_offset)
        self.producers.begin_snapshot()
        self._unflushed_roll = True

    def _will_be_passed_over(self, base_offset: i64) -> bool:
        """Whether a recovery will begin at `base_offset` or later, though nothing else is flushed before it."""
        flush = self._flush
        return self.recovery_point >= base_offset or (flush is not None and flush.offset >= base_offset)

    def _add_segment(self, base_offset: i64, now_ms: i64) -> None:
        """Makes an empty segment the active one; leftovers of its name are emptied (KAFKA-6388)."""
        config = self._config
        jitter_ms: i64 = 0
        if config.segment_jitter_ms > 0:
            jitter_ms = self._jitter(min(config.segment_jitter_ms, config.segment_ms))
        segment = Segment(
            self._files,
            self.directory,
            base_offset,
            config.index_interval_bytes,
            config.segment_index_bytes,
            jitter_ms,
            now_ms,
            False,
        )
        stale = f"{self.directory}/{names.offset_name(base_offset, names.TXN_INDEX)}"
        if self._fs.exists(stale):
            self._fs.remove(stale)
        segment.create()
        # A segment whose name is lost in a power cut takes everything after it with it (KAFKA-3968): nothing in it
        # is durable before a flush has synced the directory too.
        self._has_new_names = True
        self._segments.add(segment)
        self._active = segment

    # -- epochs, high watermark, log start -----------------------------------------------------------------------

    def assign_epoch(self, epoch: i64) -> None:
        """A leader of `epoch` begins here: noted before its first batch (KAFKA-7415). `persist_epochs` may follow."""
        self._check_alive()
        if epoch > self.epochs.latest:
            self.epochs.assign(epoch, self.log_end)

    def doubt_open_transactions(self) -> None:
        """A leader begins a term, and does not know who was fenced before: the next batch of each is verified."""
        self.verifications.doubt(self.producers.states.open_producers())

    def take_producers_of(self, copied: "Log") -> None:
        """Of the log that this one is a copy of, which knows more: also of batches that are deleted by now."""
        self.producers.take_over(copied.producers)
        self._update_first_unstable()

    def relocate(self, directory: str) -> None:
        """Its folder is called `directory` now. All of it must be durable, and nobody at work in it."""
        self.directory = directory
        self.producers.relocate(directory)
        for segment in self._segments.all():
            segment.relocate(directory)

    def keep_producers(self, now_ms: i64) -> None:
        """Makes durable what `take_producers_of` told that is not in the files. Blocks.

        A recovery goes by the snapshot where a segment begins, so one has to begin here.
        """
        if self.producers.is_ahead:
            self.producers.is_ahead = False
            if self._active.size > 0:
                self.roll(now_ms)
            else:
                self.producers.take_snapshot(sync=False)
            self.flush(now_ms)

    def update_high_watermark(self, offset: i64) -> None:
        """Moves the high watermark, within the log. Only a truncation may move it back; the caller keeps it rising."""
        self.high_watermark = max(self.log_start, min(offset, self.log_end))
        self.producers.states.on_high_watermark(self.high_watermark)
        self._update_first_unstable()

    def advance_log_start(self, offset: i64) -> bool:
        """Moves the log start forward (DeleteRecords, a leader's log start); False where it is there already.

        Segments below it go with the next `begin_retirement`.
        """
        self._check_alive()
        if offset > self.high_watermark:
            raise RemoteError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"log start {offset} past the high watermark {self.high_watermark}"
            )
        if offset <= self.log_start:
            return False
        # Kafka moves the recovery point along; but what lies below is no more durable for it (D4).
        self.log_start = offset
        self.epochs.truncate_from_start(offset)
        self.producers.on_log_start(offset)
        self._update_first_unstable()
        self._check_order()
        return True

    # -- truncating ----------------------------------------------------------------------------------------------

    def truncation_point(self, offset: i64) -> i64:
        """Where the log would end after `truncate_to(offset)`: before the batch that holds it, which goes whole."""
        at: i64 = self._segments.floor(offset)
        if offset >= self.log_end or at < 0:
            return min(offset, self.log_end)
        return self._segments.at(at).end_before(offset)

    def truncate_to(self, offset: i64, now_ms: i64) -> bool:
        """Removes every batch that ends at or past `offset`; False where there is none. Blocks.

        A checkpointed recovery point past `truncation_point` must be lowered on disk first: after a power cut it
        would call durable what was written here since.
        """
        self._check_alive()
        assert offset >= 0
        assert self._restructuring is None, f"{self!r} is being restructured"
        if offset >= self.log_end:
            # A leader that wrote nothing in its epoch may have left an entry at the end (KAFKA-10706).
            self.epochs.truncate_from_end(self.log_end)
            return False
        if offset < self._segments.first.base_offset:
            self.truncate_fully_and_start_at(offset, now_ms)
            return True
        try:
            self._truncate(self.truncation_point(offset), now_ms)
        except OSError as error:
            raise self.fail(error) from error
        self._check_order()
        return True

    def _truncate(self, offset: i64, now_ms: i64) -> None:
        self._generation += 1
        self.truncations += 1
        kept = [segment for segment in self._segments.all() if segment.base_offset <= offset]
        gone = [segment for segment in self._segments.all() if segment.base_offset > offset]
        for segment in gone:
            self.producers.remove(segment.base_offset)
        # From the end and one by one, so that a crash between two leaves no hole.
        gone.reverse()
        for segment in gone:
            segment.remove_files()
            self._fs.sync_directory(self.directory)
        self._active = kept[-1]
        self._active.truncate_to(offset, now_ms)
        # Or the old batches could come back behind the new ones.
        self._active.sync()
        self._segments.replace(kept)
        self.log_end = offset
        self.recovery_point = min(self.recovery_point, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self.log_start = min(self.log_start, offset)
        self.epochs.truncate_from_end(offset)
        self.producers.reload(kept[0].base_offset, offset, now_ms)
        replay_producers(self._segments.all(), self.producers, offset, True)
        self.producers.forget_silent(now_ms)
        self.producers.take_snapshot(sync=False)
        self.producers.states.on_high_watermark(self.high_watermark)
        self._update_first_unstable()
        self._fs.sync_directory(self.directory)

    def truncate_fully_and_start_at(self, offset: i64, now_ms: i64, log_start: i64 = -1) -> None:
        """Empties the log; the next batch gets `offset`, and the log starts there or at `log_start`. Blocks."""
        self._check_alive()
        assert self._restructuring is None, f"{self!r} is being restructured"
        try:
            self._generation += 1
            self.truncations += 1
            gone = self._segments.all()
            gone.reverse()
            for segment in gone:
                segment.remove_files()
            self._segments.replace([])
            self.log_end = offset
            self.log_start = log_start if log_start >= 0 else offset
            self.recovery_point = min(self.recovery_point, offset)
            self.high_watermark = offset
            self.epochs.clear()
            self.producers.start_at(offset)
            self._add_segment(offset, now_ms)
            self._fs.sync_directory(self.directory)
            self._update_first_unstable()
        except OSError as error:
            raise self.fail(error) from error
        self._check_order()

    def skip_to(self, offset: i64, now_ms: i64) -> None:
        """Goes on at `offset`, as the log it is a copy of does: compaction has left nothing before that. Blocks."""
        if self.size == 0:
            self.truncate_fully_and_start_at(offset, now_ms)
            return
        self._check_alive()
        try:
            self._roll_to(offset, now_ms)
        except OSError as error:
            raise self.fail(error) from error
        self.log_end = offset

    # -- retention -----------------------------------------------------------------------------------------------

    def begin_aging(self, now_ms: i64) -> LargestTimestampsJob | None:
        """A job that finds out how old the oldest segments are, where only their files tell, up to the first that is
        not old enough to go; None where it is known. `learn_timestamps` takes it back, `begin_retirement` follows.

        After a start nobody has opened an index yet, and there may be thousands to go.
        """
        self._check_alive()
        retention_ms: i64 = self._config.retention_ms
        if not self._config.delete or retention_ms < 0:
            return None
        oldest_ms: i64 = now_ms - retention_ms
        try:
            unknown = untimed_oldest(self._segments, oldest_ms, self.high_watermark, self.log_end)
            if not unknown:
                return None
            return LargestTimestampsJob(unknown, oldest_ms, self.log_end, self._generation)
        except OSError as error:
            raise self.fail(error) from error

    def begin_retirement(self, now_ms: i64) -> Retirement | None:
        """Takes segments out of the log that the settings or the log start say are old; None where there are none.

        The job renames their files; those of `due_removals` remove them later.
        """
        self._check_alive()
        try:
            segments, config = self._segments, self._config
            gone = self._take_first(count_below(segments, self.log_start, self.high_watermark, self.log_end), now_ms)
            if config.delete:
                count: i64 = count_over(segments, config.retention_bytes, self.high_watermark, self.log_end)
                gone += self._take_first(count, now_ms)
                count = count_expired(segments, config.retention_ms, now_ms, self.high_watermark, self.log_end)
                gone += self._take_first(count, now_ms)
                self._check_age_known(config.retention_ms)
            if not gone:
                return None
            snapshots = [self.producers.forget(segment.base_offset) for segment in gone]
            job = Retirement(self._fs, self.directory, gone, snapshots, self._removal_due_ms(now_ms))
            self._begin_restructuring(job, gone)
            self.advance_log_start(segments.first.base_offset)
        except OSError as error:
            raise self.fail(error) from error
        return job

    def _check_age_known(self, retention_ms: i64) -> None:
        """Has the indexes built anew where retention stopped for want of them: it goes on the next time."""
        if retention_ms < 0:
            return
        at: i64 = 0
        while at < len(self._segments):
            segment = self._segments.at(at)
            if segment.size > 0:
                self.has_sound_indexes(segment)
                return
            at += 1

    def _take_first(self, count: i64, now_ms: i64) -> list[Segment]:
        if count > 0 and count == len(self._segments):
            self._roll_to(self.log_end, now_ms)
        return self._segments.take_first(count)

    def delete_old_segments(self, now_ms: i64) -> i64:
        """All at once; how many went. Blocks."""
        job = self.begin_retirement(now_ms)
        if job is None:
            return 0
        job.run()
        self.finish_restructuring(job)
        return job.count

    def expire_producers(self, now_ms: i64, among: list[int] | None = None) -> list[int]:
        """Forgets those that were silent for too long; of very many, `among` is a part."""
        return self.producers.states.expire(now_ms, self.producers.expiration_ms, among)

    def expire_verifications(self, now_ms: i64) -> None:
        self.verifications.expire(now_ms, self.producers.expiration_ms)

    # -- the end -------------------------------------------------------------------------------------------------

    def close(self, now_ms: i64) -> None:
        """Leaves the files as Kafka does after a clean stop: flushed, indexes cut, a snapshot at the end. Blocks."""
        if self.is_closed:
            return
        if self.failure is not None:
            self.abandon()
            return
        try:
            self.producers.take_snapshot(sync=True)
            for segment in self._segments.all():
                segment.become_inactive()
            self.persist_epochs()
            self.flush(now_ms)
        except OSError as error:
            raise self.fail(error) from error
        self.abandon()

    def abandon(self) -> None:
        """Closes the files as they are, without a write: after a failure, or before the folder is deleted."""
        self.is_closed = True
        if self._restructuring is not None:
            self._restructuring.call_off()
        self.producers.abandon()
        for segment in self._segments.all():
            segment.discard()
