"""Bugs that others had, put back into our code: each replaces one safeguard, and the simulator must notice.

Interpreted only: a compiled module takes no notice of a replaced function, so each mutation also says that it was
reached.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from mainstem.broker.drivers import compaction
from mainstem.broker.drivers.markers import MarkerSender
from mainstem.broker.partition import Partition
from mainstem.core.group import machine, records
from mainstem.core.group.classic import COMPLETING_REBALANCE, PREPARING_REBALANCE
from mainstem.core.group.machine import GroupMachine
from mainstem.core.group.offsets import Offsets
from mainstem.core.group.rebalance import Rebalancing
from mainstem.core.group.store import GroupStore
from mainstem.core.log import compaction as compaction_rules
from mainstem.core.log.producers import ProducerStates
from mainstem.core.log.validation import ValidBatch
from mainstem.core.log.verification import Verifications
from mainstem.core.txn import machine as txn_machine
from mainstem.core.txn.machine import Client, TxnMachine
from mainstem.core.txn.states import EPOCH_MAX, NO_TIMEOUT, TV1, Transaction
from mainstem.protocol.batch import NO_TIMESTAMP
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.records import iterate_records
from mainstem.sim.loop import ProcessDied
from mainstem.sim.world import TRANSACTIONAL_EVERY
from mainstem.storage import batch_filter, checkpoint, cleaner, cleaning, recovery
from mainstem.storage.errors import StorageError
from mainstem.storage.flushing import FlushJob
from mainstem.storage.log import Log
from mainstem.storage.readable_log import ReadableLog
from mainstem.storage.reading import ReadJob
from mainstem.storage.retention import count_over
from mainstem.storage.segment import Segment
from mainstem.storage.txn_index import TxnIndex
from tests.mutations import (
    answers,
    clients,
    completions,
    identities,
    moved,
    rotten,
    starts,
    topic_settings,
    tuned,
    unnoticed,
    watched,
)
from tests.mutations.tuned import Reached

Patch = Callable[[pytest.MonkeyPatch, Reached], None]


@dataclass(frozen=True, slots=True)
class Mutation:
    bug: str
    what: str
    patch: Patch
    invariants: tuple[str, ...]
    """The promises that may be found broken, by how they begin."""
    seeds_max: int
    first_seed: int = 0
    every: int = 1
    """Of the seeds from the first on, which are tried."""

    @property
    def name(self) -> str:
        """What `make test-mutations BUG=` takes."""
        return self.bug.replace(" ", "-").replace("#", "")


def _state_before_write(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """KAFKA-6683: what the producer did is noted before it is written, and before a roll takes a snapshot."""

    roll_if_needed = Log._roll_if_needed
    now: dict[Log, int] = {}

    def roll_later(self: Log, size: int, max_timestamp: int, last_offset: int, now_ms: int) -> None:
        now[self] = now_ms

    def append(self: Log, valid: Any, marker: Any, base_offset: int, last_offset: int, leader_epoch: int) -> None:
        reached()
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        self._apply_producer(valid.batch, marker, base_offset, last_offset, valid.max_timestamp)
        roll_if_needed(self, valid.size, valid.max_timestamp, last_offset, now.pop(self))
        segment = self._active
        position = segment.write(valid.buffers(base_offset, leader_epoch), valid.size)
        self._segments.grew(valid.size)
        self.log_end = last_offset + 1
        self.producers.states.end_offset = self.log_end
        segment.index_written(base_offset, last_offset, valid.max_timestamp, position, valid.size)

    patch.setattr(Log, "_roll_if_needed", roll_later)
    patch.setattr(Log, "_append_valid", append)


def _appends_after_error(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """KAFKA-10778: a failed write is reported, and the next one is tried as if nothing had been."""

    def fail(self: ReadableLog, error: Exception) -> StorageError:
        reached()
        return error if isinstance(error, StorageError) else StorageError(self.directory, str(error))

    def failed(self: Partition, error: StorageError) -> RemoteError:
        return RemoteError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    patch.setattr(ReadableLog, "fail", fail)
    patch.setattr(Partition, "_failed", failed)


def _end_moves_after_index(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """KAFKA-7866: the log end moves only after the index was written; where that fails an offset is given twice."""

    def append(self: Log, valid: Any, marker: Any, base_offset: int, last_offset: int, leader_epoch: int) -> None:
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        segment = self._active
        position = segment.write(valid.buffers(base_offset, leader_epoch), valid.size)
        self._segments.grew(valid.size)
        try:
            segment.index_written(base_offset, last_offset, valid.max_timestamp, position, valid.size)
        except ProcessDied:
            reached()
            raise
        except OSError as error:
            reached()
            raise RemoteError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self.log_end = last_offset + 1
        self._apply_producer(valid.batch, marker, base_offset, last_offset, valid.max_timestamp)

    patch.setattr(Log, "_append_valid", append)


def _checkpoint_not_synced(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """KAFKA-16541: a checkpoint is renamed into place before its bytes are on disk."""

    def write(fs: Any, path: str, data: bytes) -> None:
        reached()
        file = fs.open(path + checkpoint.TEMPORARY_SUFFIX, create=True)
        file.truncate(0)
        file.write_at(0, [data])
        file.close()
        fs.rename(path + checkpoint.TEMPORARY_SUFFIX, path)
        fs.sync_directory(checkpoint.parent_of(path))

    patch.setattr(checkpoint, "write_file_durably", write)


def _directory_not_synced(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """KAFKA-3968: a flush syncs the new segment and not its name, so that a power loss takes the whole file."""
    original = FlushJob.run

    def run(self: FlushJob, *given: Any) -> None:
        if self.has_new_names:
            reached()
        self.has_new_names = False
        original(self, *given)

    patch.setattr(FlushJob, "run", run)


def _recovery_point_not_written(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: the recovery point on disk is older than what was compacted, and the gap is taken for a loss."""

    async def write(self: compaction.Compaction, topic: str, index: int) -> None:
        reached()

    patch.setattr(compaction.Compaction, "_write_recovery_points", write)


def _strict_replay(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """KAFKA-17306: a tombstone for what is not there is taken for a broken log."""
    original = GroupStore.replay

    def replay(self: GroupStore, raw_key: bytes, raw_value: bytes | None, producer_id: int = -1) -> None:
        if raw_value is None:
            before = (dict(self.metadata), {group: dict(each) for group, each in self.offsets.items()})
            original(self, raw_key, raw_value, producer_id)
            if before == (self.metadata, self.offsets):
                reached()
                raise RemoteError(ErrorCode.CORRUPT_MESSAGE, "a tombstone for nothing")
            return
        original(self, raw_key, raw_value, producer_id)

    patch.setattr(GroupStore, "replay", replay)


def _no_sync_timer(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """KAFKA-12890: who joined and sends heartbeats, and never asks for its part, is waited for without end."""

    def sync_time_is_up(self: Rebalancing, out: Any, group: Any) -> None:
        reached()

    patch.setattr(Rebalancing, "_sync_time_is_up", sync_time_is_up)


def _no_dedupe(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Redpanda #3039: a batch that comes again is not recognized."""

    def find(self: ProducerStates, producer_id: int, epoch: int, first: int, last: int) -> None:
        reached()

    patch.setattr(ProducerStates, "find_duplicate", find)
    patch.setattr(ProducerStates, "may_be_older_duplicate", lambda self, producer_id, epoch, last: False)


def _dedupe_by_overwriting(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """A batch that comes again is appended again: neither recognized nor refused."""
    _no_dedupe(patch, lambda: None)

    def check(self: ProducerStates, producer: Any, epoch: int, first_sequence: int) -> None:
        reached()

    patch.setattr(ProducerStates, "_check_sequence", check)


def _deletion_forgotten(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Redpanda #4900: the deletion of a group is not written down."""
    original = GroupMachine.delete_group

    def delete(self: GroupMachine, ticket: Any, group_id: str, now_ms: int) -> Any:
        out = original(self, ticket, group_id, now_ms)
        if out.records:
            reached()
            for record in out.records:
                self.replay(record.key, None)
            self.keep()
            out.records.clear()
        return out

    patch.setattr(machine.GroupMachine, "delete_group", delete)


def _ack_with_the_flush_before(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """What came while others were synced is acknowledged with them."""
    flushed = Partition._flushed

    def finish(self: Partition, job: FlushJob) -> None:
        flushed(self, job)
        log, leader = self.log, self.leader
        if leader is not None and log.flushes_before_ack and not log.is_closed and log.log_end > log.recovery_point:
            reached()
            if leader.wrote(log.log_end):
                self._advance(leader.high_watermark)

    patch.setattr(Partition, "_flushed", finish)


def _first_time_is_indexed(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """The time of a batch's first record is taken for the latest."""
    append = Log._append_valid

    def append_valid(self: Log, valid: ValidBatch, *given: Any) -> None:
        if valid.max_timestamp != valid.batch.base_timestamp:
            reached()
            valid.max_timestamp = valid.batch.base_timestamp
        append(self, valid, *given)

    patch.setattr(Log, "_append_valid", append_valid)


def _ack_before_sync(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """NATS 2.12.1: acknowledged at once, synced later, whatever the setting says."""

    def wrote(self: Partition) -> None:
        reached()
        log, leader = self.log, self.leader
        if leader is not None and leader.wrote(log.log_end):
            self._advance(leader.high_watermark)

    patch.setattr(Partition, "_wrote", wrote)


def _cleans_what_is_not_stable(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """KAFKA-13194: everything but the active segment is cleaned, also what is not yet stable."""
    original = compaction_rules.find_cleanable

    def find(
        segments: Any, log_start: int, log_end: int, stable_end: int, durable_end: int, *rest: Any
    ) -> compaction_rules.Cleanable:
        if min(stable_end, durable_end) < segments[-1].base_offset:
            reached()
        return original(segments, log_start, log_end, log_end, log_end, *rest)

    patch.setattr(cleaner, "find_cleanable", find)


def _tombstones_go_at_once(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """KAFKA-4529: how long a tombstone stays is reckoned from its own time, so that the first cleaning may take it."""
    original = batch_filter.BatchFilter._choose

    def choose(self: batch_filter.BatchFilter, opened: Any, records_max: int) -> int:
        done = original(self, opened, records_max)
        goes_ms = opened.batch.base_timestamp + self._new_horizon - self._now_ms
        if self._chosen == opened.count and self._has_tombstone and self.records_kept == 1 and goes_ms <= self._now_ms:
            reached()
            self.records_kept = 0
        return done

    patch.setattr(batch_filter.BatchFilter, "_choose", choose)


def _gap_at_the_end(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """KAFKA-8764: what was cleaned ends at the last record found, so that a gap behind it is dirty for ever."""

    def begin(self: cleaning.Cleaning) -> None:
        if not self._is_map_full and self._keys.latest_offset != self.end - 1:
            reached()
        self.cleaned_to = self._keys.latest_offset + 1
        self._phase = cleaning._PLANNING
        self._tracker = compaction_rules.TransactionTracker()
        upper = min(self.cleaned_to, self.end)
        self._sources = [segment for segment in self.log.segments if segment.base_offset < upper]

    patch.setattr(cleaning.Cleaning, "_begin_planning", begin)


def _offsets_expire_in_a_rebalance(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """KAFKA-13636: a group in the middle of a rebalance counts as subscribed to nothing, and loses its offsets."""
    original = Offsets.expire

    def expire(self: Offsets, group: Any, now_ms: int, most: int) -> Any:
        if group.state not in (PREPARING_REBALANCE, COMPLETING_REBALANCE):
            return original(self, group, now_ms, most)
        expired = [
            records.offset_tombstone(group.group_id, topic, partition)
            for (topic, partition), committed in self.store.offsets_of(group.group_id).items()
            if self._has_expired(group, committed, now_ms)
        ]
        if expired:
            reached()
        return expired, False

    patch.setattr(Offsets, "expire", expire)


def _late_batch_begins_a_transaction(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """KAFKA-14884: the coordinator was asked, but nobody looks again when the batch is appended."""

    def check(self: Verifications, producer_id: int, guard: int) -> None:
        reached()

    patch.setattr(Verifications, "check", check)


def _late_end_is_taken(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """KIP-890, part 2: an EndTxn of an epoch that is over ends whatever is open now."""
    original = TxnMachine.end

    def end(self: TxnMachine, ticket: Any, client: Client, commit: bool, now_ms: int, fresh_id: int = -1) -> Any:
        txn = self.store.get(client.transactional_id)
        if txn is not None and client.producer_id == txn.producer_id and client.epoch < txn.producer_epoch:
            reached()
            client = client._replace(epoch=txn.producer_epoch)
        return original(self, ticket, client, commit, now_ms, fresh_id)

    patch.setattr(TxnMachine, "end", end)


def _time_out_keeps_the_epoch(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """KAFKA-6119: a transaction whose time is up is aborted, and its client goes on as if nothing had been."""

    def abort(self: TxnMachine, txn: Transaction, now_ms: int, fresh_id: int) -> Any:
        reached()
        return self._prepare(txn, txn.prepared(False, TV1, -1, now_ms))

    patch.setattr(TxnMachine, "_abort", abort)


def _client_chooses_epoch(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """KAFKA-9600: an end with a higher epoch is taken."""
    original = txn_machine._check_client

    def check(txn: Transaction, client: Client) -> None:
        if client.epoch > txn.client_epoch:
            reached()
            return
        original(txn, client)

    patch.setattr(txn_machine, "_check_client", check)


def _markers_are_compacted(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """KAFKA-14055: a marker goes like a record where a newer record has the marker's key."""

    def begin(self: cleaning.Cleaning, batch: Any) -> int:
        self.stats.bytes_read += batch.size
        self.stats.records_read += batch.record_count
        verdict = compaction_rules.judge(batch, self._tracker, self.log.producers.states, self.end, self._now_ms)
        if batch.is_control and not verdict.is_spent_marker:
            key = next(iter(iterate_records(batch))).key
            if key is not None and self._keys.get(bytes(key)) > batch.base_offset:
                reached()
                verdict.drops_all = True
        return self._filter.begin(batch, verdict)

    patch.setattr(cleaning.Cleaning, "_begin_filtering", begin)


def _begin_is_forgotten(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Redpanda #6018: whoever takes over does not know of the transactions that are open."""
    original = TxnMachine.loaded

    def loaded(self: TxnMachine, now_ms: int) -> Any:
        for transactional_id in list(self.store.ongoing):
            reached()
            del self.store.all[transactional_id]
        self.store.ongoing.clear()
        return original(self, now_ms)

    patch.setattr(TxnMachine, "loaded", loaded)


def _highest_epoch_is_given(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """KAFKA-20090: a client is given the highest epoch, and none is left for the end of its transaction."""

    def is_exhausted(epoch: int) -> bool:
        if epoch == EPOCH_MAX - 1:
            reached()
        return epoch >= EPOCH_MAX

    patch.setattr(txn_machine, "is_exhausted", is_exhausted)


def _completes_with_one_marker(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: a transaction is complete though only the first of its partitions has the marker."""
    original = MarkerSender._send_to

    async def send(self: MarkerSender, node_id: int, places: list[Any], *rest: Any) -> list[Any]:
        if len(places) > 1:
            reached()
        return places if await original(self, node_id, places[:1], *rest) else []

    patch.setattr(MarkerSender, "_send_to", send)


def _marker_is_no_sign_of_life(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """KAFKA-9144: a marker of a higher epoch resets when its producer was last heard of: it expires at once, and the
    epoch of the coordinator with it."""
    original = ProducerStates.apply_marker

    def apply(self: ProducerStates, producer_id: int, epoch: int, *rest: Any) -> Any:
        before = self.get(producer_id)
        is_raised = before is not None and before.epoch < epoch
        ended = original(self, producer_id, epoch, *rest)
        producer = self.get(producer_id)
        if is_raised and producer is not None:
            reached()
            producer.last_timestamp = producer.heard_ms = NO_TIMESTAMP
        return ended

    patch.setattr(ProducerStates, "apply_marker", apply)


def _producers_expire_early(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: what is known of a producer goes while it is still needed."""

    def expire(self: ProducerStates, now_ms: int, expiration_ms: int, among: list[int] | None = None) -> list[int]:
        gone = list(self._producers)
        if gone:
            reached()
        self._producers.clear()
        return gone

    patch.setattr(ProducerStates, "expire", expire)


def _prepared_times_out(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own, of KIP-939: a prepared transaction has a time-out after all."""
    original = Transaction.is_late

    def is_late(self: Transaction, now_ms: int) -> bool:
        if self.timeout_ms != NO_TIMEOUT:
            return original(self, now_ms)
        reached()
        return self.start_ms + 700 < now_ms

    patch.setattr(Transaction, "is_late", is_late)


def _ids_expire_early(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: an id that is used now and then is forgotten, and with it who is fenced."""
    original = TxnMachine._expire

    def expire(self: TxnMachine, now_ms: int) -> Any:
        out = original(self, now_ms + self.config.expiration_ms // 2)
        if out.records:
            reached()
        return out

    patch.setattr(TxnMachine, "_expire", expire)


def _fence_is_forgotten(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own, of KIP-939: a leader that is started anew believes whoever goes on with an open transaction."""

    def doubt(self: Verifications, producer_ids: Any) -> None:
        if producer_ids:
            reached()

    patch.setattr(Verifications, "doubt", doubt)


def _stable_offset_off_by_one(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Redpanda #3036: the last stable offset is one too far."""

    def last_stable_offset(self: ReadableLog) -> int:
        first = self._first_unstable
        if 0 <= first < self.high_watermark:
            reached()
            return first + 1
        return self.high_watermark

    patch.setattr(ReadableLog, "last_stable_offset", property(last_stable_offset))


def _stable_offset_is_high_watermark(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """nisshi #689: readers of committed records are given everything."""

    def last_stable_offset(self: ReadableLog) -> int:
        if self._first_unstable >= 0:
            reached()
        return self.high_watermark

    patch.setattr(ReadableLog, "last_stable_offset", property(last_stable_offset))


def _idle_producer_is_refused(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Redpanda #22670: who comes back when its state has expired is told that nobody knows it."""
    original_expire, original_check = ProducerStates.expire, ProducerStates.check_data
    gone: dict[ProducerStates, set[int]] = {}

    def expire(self: ProducerStates, now_ms: int, expiration_ms: int, among: list[int] | None = None) -> list[int]:
        expired = original_expire(self, now_ms, expiration_ms, among)
        gone.setdefault(self, set()).update(expired)
        return expired

    def check(self: ProducerStates, origin: Any, producer_id: int, epoch: int, first_sequence: int, *rest: Any) -> None:
        if self.get(producer_id) is None and producer_id in gone.get(self, ()) and first_sequence != 0:
            reached()
            raise RemoteError(ErrorCode.UNKNOWN_PRODUCER_ID, f"producer {producer_id} is not known")
        original_check(self, origin, producer_id, epoch, first_sequence, *rest)

    patch.setattr(ProducerStates, "expire", expire)
    patch.setattr(ProducerStates, "check_data", check)


def _retention_takes_one_more(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: retention by size takes the segment without which the log has less than it should."""

    def count(segments: Any, retention_bytes: int, high_watermark: int, log_end: int) -> int:
        found = count_over(segments, retention_bytes, high_watermark, log_end)
        if found and found + 1 < len(segments) and high_watermark >= segments.upper_offset(found, log_end):
            reached()
            return found + 1
        return found

    patch.setattr("mainstem.storage.log.count_over", count)


def _aborted_values_count(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: compaction takes an aborted record for a newer value of its key, and a committed one goes."""
    begin_mapping = cleaning.Cleaning._begin_mapping

    def begin(self: cleaning.Cleaning, batch: Any) -> int:
        if not batch.is_control and self._tracker.is_aborted_data(batch):
            reached()
            return int(self._mapper.begin(batch, self._keys.latest_offset >= self.first_dirty))
        return begin_mapping(self, batch)

    patch.setattr(cleaning.Cleaning, "_begin_mapping", begin)


def _all_aborts_are_listed(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: a fetch lists aborted transactions that were over before it; readers leave out what came after them."""
    collect_from = TxnIndex.collect_from

    def collect(
        self: TxnIndex, file: Any, position: int, size: int, first: int, upper: int, found: list[Any], cached: bool
    ) -> int:
        reached()
        return int(collect_from(self, file, position, size, 0, upper, found, cached))

    patch.setattr(TxnIndex, "position_before", lambda self, file, size, first, cached: 0)
    patch.setattr(TxnIndex, "collect_from", collect)


def _offsets_are_never_unstable(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: who asks for stable offsets is told what was before the transaction, while it is open (KIP-447)."""
    fetch_offsets = Offsets.fetch

    def fetch(self: Offsets, group_id: str, wanted: Any, require_stable: bool) -> Any:
        reached()
        return fetch_offsets(self, group_id, wanted, False)

    patch.setattr(Offsets, "fetch", fetch)


def _later_record_of_a_moment(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: of records with one timestamp the time index points at the last, not at the first."""
    index_written = Segment.index_written

    def index(self: Segment, base_offset: int, last_offset: int, max_timestamp: int, position: int, size: int) -> None:
        if self._max_timestamp_known and max_timestamp == self._max_timestamp:
            reached()
            self._max_timestamp_offset = last_offset
        index_written(self, base_offset, last_offset, max_timestamp, position, size)

    patch.setattr(Segment, "index_written", index)


def _cuts_what_was_durable(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: recovery cuts a log at the first bad batch wherever it lies, and makes a shorter log of it."""
    recover_segment = recovery._Loader._recover_segment

    def recover(self: Any, segment: Segment) -> bool:
        durable, self.recovery_point = self.recovery_point, -1
        is_cut = recover_segment(self, segment)
        if is_cut and self.log_end < durable:
            reached()
            durable = self.log_end
        self.recovery_point = durable
        return bool(is_cut)

    patch.setattr(recovery._Loader, "_recover_segment", recover)


def _cold_reads_go_too_far(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: what a thread has looked up ends where the segment ends, not where readers may read (KAFKA-9835)."""
    run_job = ReadJob._run

    def run(self: ReadJob, cached: bool) -> None:
        if not cached and not self._end_known:
            reached()
            self.end = self.segment.size
            self._end_known = True
        run_job(self, cached)

    patch.setattr(ReadJob, "_run", run)


def _small_fetch_brings_nothing(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: a fetch for fewer bytes than the first batch has brings nothing, for ever (KIP-74)."""
    begin_read = ReadableLog.begin_read

    def begin(self: ReadableLog, offset: int, max_bytes: int, upper_bound: int, min_one: bool = True) -> Any:
        reached()
        return begin_read(self, offset, max_bytes, upper_bound, False)

    patch.setattr(ReadableLog, "begin_read", begin)


def _of_transactions(bug: str, what: str, patch: Patch, invariants: tuple[str, ...], seeds_max: int) -> Mutation:
    """Looked for in the seeds that have transactions."""
    return Mutation(bug, what, patch, invariants, seeds_max, TRANSACTIONAL_EVERY - 1, TRANSACTIONAL_EVERY)


TRANSACTIONS = (
    "C4",
    "T4",
    "T5",
    "T6",
    "T7",
    "T8",
    "T9",
    "T12",
    "G9",
    "G1a",
    "T1",
    "D6",
    "D2",
    "duplicate",
    "lost",
    "P12",
    "nonmonotonic",
)

MUTATIONS = (
    Mutation("KAFKA-6683", "producer state changes before the write", _state_before_write, ("D6", "T1", "lost"), 30),
    Mutation(
        "KAFKA-7866",
        "the end moves after the index",
        _end_moves_after_index,
        (
            "D1",
            "D3",
            "D5",
            "D6",
            "C1",
            "T1",
            "P1",
            "inconsistent",
            "duplicate",
            "lost",
            "nonmonotonic",
            "nothing fails",
        ),
        400,
    ),
    Mutation("KAFKA-10778", "appends after a failed write", _appends_after_error, ("D5", "poll-skip"), 100),
    Mutation("KAFKA-10432", "epoch 0 is left out", starts.epoch_zero_is_not_recovered, ("P9", "D6"), 30),
    Mutation("KAFKA-10471", "a crash looks like a clean stop", starts.marker_outlives_the_loading, ("D7",), 200),
    Mutation("KAFKA-9892", "snapshots are not synced", starts.snapshots_are_not_synced, ("T1",), 60),
    Mutation(
        "KAFKA-16541", "checkpoints are not synced", _checkpoint_not_synced, ("D7", "the broker starts", "D3", "P1"), 60
    ),
    Mutation("KAFKA-3968", "directories are not synced", _directory_not_synced, ("D3", "P1", "lost", "D6"), 60),
    Mutation(
        "KAFKA-17306", "replay expects what compaction removed", _strict_replay, ("G9", "G4", "nothing fails"), 60
    ),
    Mutation("KAFKA-12890", "stuck in CompletingRebalance", _no_sync_timer, ("G9",), 30),
    Mutation("Redpanda #3039", "no memory of batches", _no_dedupe, ("T1",), 30),
    Mutation("duplicates", "batches are appended again", _dedupe_by_overwriting, ("duplicate", "T1"), 30),
    Mutation("Redpanda #4900", "a deleted group comes back", _deletion_forgotten, ("G4", "G6"), 200),
    Mutation("KAFKA-13194", "what is not stable is cleaned", _cleans_what_is_not_stable, ("C2",), 100),
    Mutation("KAFKA-4529", "tombstones go too early", _tombstones_go_at_once, ("C3",), 30),
    Mutation("KAFKA-8764", "a gap is cleaned without end", _gap_at_the_end, ("C6",), 600),
    Mutation("KAFKA-13636", "offsets expire in a rebalance", _offsets_expire_in_a_rebalance, ("G7",), 200),
    Mutation("NATS 2.12.1", "acknowledged before it is synced", _ack_before_sync, ("P1", "D3", "G4", "lost"), 60),
    Mutation("early acks", "acknowledged with those before", _ack_with_the_flush_before, ("P1 what is shown",), 30),
    Mutation("hasty acks", "acknowledged at once", answers.batches_are_acknowledged_at_once, ("P1 what is ack",), 30),
    Mutation(
        "hasty retries", "retries acked at once", answers.retries_are_acknowledged_at_once, ("P1 what is ack",), 200
    ),
    Mutation("acks of one", "acks=1 before the sync", answers.one_is_acknowledged_at_once, ("P1 what is ack",), 30),
    Mutation("sequence gaps", "gaps are taken", answers.gaps_are_taken, ("T2 a gap",), 60),
    Mutation(
        "far deletions", "what is not committed goes", answers.what_is_not_committed_is_deleted, ("D2", "P1 only"), 100
    ),
    Mutation("early metadata", "committed unsynced", starts.metadata_is_committed_unsynced, ("R5 committed meta",), 30),
    Mutation("first times", "a batch is as old as its first record", _first_time_is_indexed, ("D6", "P12"), 30),
    Mutation("KAFKA-14238", "retention passes snapshots", starts.metadata_goes_past_its_snapshots, ("R8",), 30),
    Mutation("marker back", "a marker's removal is not synced", starts.marker_comes_back, ("D7", "D3"), 600),
    _of_transactions(
        "KAFKA-14884", "nobody looks again at the append", _late_batch_begins_a_transaction, TRANSACTIONS, 100
    ),
    _of_transactions("KIP-890 part 2", "a late end ends the next", _late_end_is_taken, TRANSACTIONS, 30),
    _of_transactions(
        "late markers", "a marker ends the next", identities.late_markers_end_the_next, ("T8 a marker",), 30
    ),
    _of_transactions("old identities", "any old epoch will do", identities.any_old_epoch_will_do, ("T4",), 30),
    _of_transactions("foreign identities", "any producer id", identities.any_producer_id_will_do, ("T4", "T12 a"), 30),
    _of_transactions(
        "Redpanda #9571", "a commit is told as an error", identities.commits_are_told_as_errors, ("T8 who has",), 20
    ),
    _of_transactions("refused owners", "an owner is fenced", identities.owners_are_refused, ("T4 who has",), 30),
    _of_transactions(
        "idle aborts", "an idle abort keeps the epoch", identities.aborts_of_nothing_keep_the_epoch, TRANSACTIONS, 60
    ),
    _of_transactions("KAFKA-6119", "a time-out keeps the epoch", _time_out_keeps_the_epoch, TRANSACTIONS, 60),
    _of_transactions("KAFKA-9600", "a client chooses its epoch", _client_chooses_epoch, ("T4", "T5", "T9"), 20),
    _of_transactions("KAFKA-14055", "markers are compacted by key", _markers_are_compacted, ("C4", "T5"), 30),
    _of_transactions("Redpanda #6018", "a begin is forgotten", _begin_is_forgotten, ("T10",), 30),
    _of_transactions("KAFKA-20090", "the highest epoch is given", _highest_epoch_is_given, ("T11",), 30),
    _of_transactions("markers left out", "complete without its markers", _completes_with_one_marker, ("T7",), 20),
    _of_transactions("KAFKA-9144", "a marker is no sign of life", _marker_is_no_sign_of_life, ("T4",), 20),
    _of_transactions("early expiry", "producers expire early", _producers_expire_early, TRANSACTIONS, 20),
    _of_transactions("prepared", "a prepared transaction times out", _prepared_times_out, ("T8", "T12 a"), 60),
    _of_transactions("id expiry", "ids expire early", _ids_expire_early, ("T4",), 30),
    _of_transactions("fence", "a restart forgets who is fenced", _fence_is_forgotten, ("T4",), 90),
    _of_transactions("Redpanda #3036", "stable offset off by one", _stable_offset_off_by_one, TRANSACTIONS, 30),
    _of_transactions("nisshi #689", "no stable offset", _stable_offset_is_high_watermark, TRANSACTIONS, 30),
    Mutation("Redpanda #22670", "an idle producer is refused", _idle_producer_is_refused, ("T1",), 100),
    _of_transactions("aborted values", "an aborted value counts", _aborted_values_count, ("C1", "T9"), 20),
    _of_transactions("aborts listed", "aborts before a fetch are listed", _all_aborts_are_listed, ("poll-skip",), 20),
    _of_transactions("unstable offsets", "no offset is unstable", _offsets_are_never_unstable, ("T9",), 20),
    _of_transactions(
        "cold reads", "a cold read goes too far", _cold_reads_go_too_far, (*TRANSACTIONS, "int-", "P10"), 60
    ),
    Mutation("rot", "what was durable is cut", _cuts_what_was_durable, ("D4",), 100),
    Mutation("moments", "a moment's last record is found", _later_record_of_a_moment, ("D6 a moment",), 30),
    Mutation(
        "latest moment",
        "the latest moment is in the last segment",
        answers.latest_moment_is_in_the_last_segment,
        ("D6 a moment",),
        30,
    ),
    _of_transactions("KAFKA-5522", "no stable end is told", answers.stable_end_is_not_asked_for, ("T6 committed",), 60),
    Mutation(
        "fetch sessions", "a session leaves out records", answers.sessions_tell_of_offsets_alone, ("P12 a session",), 30
    ),
    Mutation("small fetches", "a small fetch brings nothing", _small_fetch_brings_nothing, ("P12 a fetch",), 5),
    Mutation("retention", "retention takes one segment more", _retention_takes_one_more, ("P1 what goes",), 30),
    _of_transactions(
        "empty markers", "an empty marker is broken", tuned.empty_marker_is_broken, ("G9", "T12", "P12"), 100
    ),
    _of_transactions("aborts gone", "aborts go with their segment", tuned.aborts_go_with_their_segment, ("G1a",), 600),
    _of_transactions("staged groups", "a staged group is forgotten", tuned.staged_groups_are_forgotten, ("G4",), 100),
    _of_transactions("Redpanda #31483", "markers decide the order", tuned.markers_decide_the_order, ("G6",), 30),
    _of_transactions("staged expiry", "a staged offset expires", tuned.staged_offsets_expire, ("G7",), 60),
    _of_transactions(
        "lost markers", "markers count that may be lost", tuned.markers_that_may_be_lost_count, ("C2 only",), 60
    ),
    Mutation("empty groups", "time runs from the commit", tuned.time_since_the_commit, ("G7",), 300),
    Mutation("young records", "young records are cleaned", tuned.young_records_are_cleaned, ("C2 what is young",), 30),
    Mutation(
        "early swap", "a copy without the end takes over", moved.swaps_before_it_has_all, ("D8", "D3", "P1", "T1"), 100
    ),
    Mutation("moved producers", "a copy forgets producers", moved.forgets_producers, ("D8", "T1"), 100),
    Mutation("renames", "the old folder goes first", moved.sets_the_old_aside_first, ("D3", "P1", "D8"), 600),
    Mutation("compaction and recovery", "a gap is taken for a loss", _recovery_point_not_written, ("D3", "P1"), 300),
    Mutation("empty parts", "members get nothing", watched.parts_are_empty, ("G2",), 30),
    Mutation("refused members", "members are refused", watched.members_are_refused, ("G5 a member",), 60),
    Mutation("replaced members", "who was replaced commits", watched.replaced_members_commit, ("G5 who was",), 100),
    Mutation("KAFKA-10284", "a replacement is not logged", watched.replacement_is_not_logged, ("G4 a group",), 100),
    Mutation("forgotten members", "a take-over forgets parts", watched.members_are_forgotten, ("G4 a group", "G2"), 60),
    Mutation("Redpanda #17260", "leader epochs are lost", watched.leader_epochs_are_lost, ("G4 an offset",), 30),
    Mutation(
        "other positions",
        "another partition is told",
        watched.another_partition_is_told,
        ("G4", "G6", "poll-skip"),
        100,
    ),
    Mutation("busy groups", "members lose their group", watched.groups_with_members_are_deleted, ("G7", "G4"), 300),
    Mutation("offset deletions", "an offset is not deleted", watched.offsets_are_not_deleted, ("G4",), 100),
    Mutation("old positions", "offsets outlive a topic", watched.offsets_outlive_their_topic, ("P10 a new",), 100),
    Mutation("hasty answers", "answers do not wait", watched.answers_do_not_wait, ("G8 what is told",), 30),
    Mutation("idle heartbeats", "sessions end", watched.heartbeats_count_for_nothing, ("G9 a living",), 60),
    Mutation("late parts", "late parts are given", watched.late_parts_are_given, ("G2", "G4 a group"), 60),
    Mutation("old segments", "retention.ms is ignored", watched.old_segments_stay, ("P12 what is due",), 30),
    Mutation("surplus segments", "retention.bytes is ignored", watched.surplus_segments_stay, ("P12 what is due",), 30),
    Mutation("removed files", "files are never removed", watched.removed_files_stay, ("P12 what is due", "D8"), 30),
    Mutation("idle deletions", "DeleteRecords does nothing", watched.deletion_does_nothing, ("P1 what is to go",), 30),
    Mutation("dirty logs", "nothing is ever cleaned", watched.old_values_are_not_cleaned, ("P12 what is due",), 60),
    Mutation(
        "unsynced stops", "a clean stop syncs nothing", watched.stops_are_not_synced, ("D3", "D6", "D7", "P1", "G4"), 60
    ),
    Mutation(
        "unchecked sums", "recovery without checksums", starts.checksums_are_not_looked_at, ("D4 what is", "D3 a"), 100
    ),
    Mutation("torn segments", "a torn segment is cut whole", starts.torn_segments_go, ("D3 what is sound",), 60),
    Mutation(
        "unsynced swaps",
        "a swap is not synced",
        starts.swaps_are_not_synced,
        ("C", "D", "G6", "P", "T", "lost"),
        300,
    ),
    _of_transactions(
        "staged positions", "staged offsets stay", watched.staged_offsets_outlive_their_topic, ("P10 a new",), 60
    ),
    Mutation("own flushes", "flush.messages", topic_settings.is_ignored("flush.messages"), ("P1", "D3"), 60),
    Mutation("flushes in time", "flush.ms", topic_settings.is_ignored("flush.ms"), ("P1 flush.ms",), 30),
    Mutation("new settings", "set in vain", topic_settings.new_settings_wait_for_a_start, ("R11 a setting",), 30),
    Mutation("append times", "no LogAppendTime", topic_settings.is_ignored("message.timestamp.type"), ("P10 a",), 60),
    Mutation("own codecs", "compression.type", topic_settings.is_ignored("compression.type"), ("P10 a record",), 30),
    Mutation("lost headers", "headers are lost", topic_settings.headers_are_lost, ("P10 a record",), 100),
    Mutation("segment ages", "segment.ms is ignored", watched.segments_do_not_age, ("P1 a segment",), 30),
    Mutation("KAFKA-7415", "empty terms", watched.terms_without_batches_are_not_known, ("P9 a term",), 30),
    Mutation("other terms", "any epoch will do", watched.any_term_will_do, ("P11",), 30),
    Mutation("old ends", "old terms end with the log", answers.older_terms_end_with_the_log, ("P9 a term ends",), 30),
    Mutation("told terms", "another epoch is told", answers.offsets_are_of_the_term_before, ("P9 an offset",), 30),
    Mutation("unknown offsets", "duplicates", answers.retries_have_no_offset, ("T1 a retry",), 30),
    Mutation("long polls", "nobody is woken", watched.nobody_is_woken, ("P12 who waits",), 30),
    _of_transactions("waits for commits", "no commit wakes", watched.nobody_is_woken_by_a_commit, ("P12 who",), 30),
    _of_transactions("early aborts", "no time-out", watched.transactions_have_no_time, ("T12 a transaction",), 20),
    _of_transactions(
        "stale generations", "any generation", watched.generations_do_not_count_in_transactions, ("G5 a stale",), 60
    ),
    Mutation("skipping starts", "starts past commits", clients.starts_skip, ("poll-skip",), 100),
    Mutation("late starts", "starts at the end", clients.starts_are_at_the_end, ("poll-skip",), 100),
    Mutation("new coordinators", "no sessions", clients.takeover_expects_nobody, ("G9",), 200),
    Mutation("endless sessions", "no session ends", clients.sessions_do_not_end, ("G9", "G"), 60),
    Mutation("restless leaders", "leaders are not heard", clients.leaders_are_not_heard, ("G9 a leader",), 60),
    _of_transactions("KAFKA-9777", "completed twice", completions.completed_twice, ("T7", "T8", "T9", "T10"), 60),
    Mutation("full maps", "a full map is taken for all", tuned.full_map_counts_as_all, ("P12 what is due", "C"), 200),
    Mutation("believed entries", "a wrong last entry", rotten.last_entry_believed, ("nothing fails", "T1"), 400),
    Mutation("noted twice", "a batch is noted twice", rotten.remembered_twice, ("P12 a fetch", "P12 what", "P10"), 300),
    Mutation("jumped lines", "small batches do not wait", watched.small_batches_do_not_wait, ("T2 batches",), 30),
    _of_transactions("lone positions", "offsets alone", clients.positions_go_alone, ("T9 a position",), 60),
    Mutation("failed handlers", "a handler fails", unnoticed.handlers_fail_once, ("nothing fails",), 5),
    Mutation("lone failures", "a log fails alone", unnoticed.logs_fail_alone, ("D5 a failed disk",), 200),
    Mutation(
        "unknown partitions", "no storage error", answers.offline_partitions_are_unknown, ("D5 a failed dir",), 60
    ),
    Mutation("failed jobs", "a periodic job fails", unnoticed.jobs_fail, ("nothing fails",), 30),
)
