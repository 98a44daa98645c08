"""Bugs of batches that wait, of groups, of what has to go, of terms and of transactions: what nobody saw before
somebody looked for it."""

from collections.abc import Callable
from typing import Any

import pytest

from mainstem.broker.apis import k21_delete_records
from mainstem.broker.apis.k01_fetch import _Fetch
from mainstem.broker.drivers import coordinator
from mainstem.broker.partition import Partition
from mainstem.broker.purgatory import Watchers
from mainstem.core.coordinator.effects import Outcome
from mainstem.core.group import offsets as group_offsets
from mainstem.core.group.classic import EMPTY, ClassicGroup
from mainstem.core.group.machine import GroupMachine
from mainstem.core.group.offsets import Offsets
from mainstem.core.group.rebalance import Rebalancing
from mainstem.core.group.store import CommittedOffset
from mainstem.core.log import compaction as compaction_rules
from mainstem.core.txn.states import Transaction
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.storage import log as storage_log
from mainstem.storage.durable_log import DurableLog
from mainstem.storage.log import Log
from mainstem.storage.segment import Segment

Reached = Callable[[], None]


# Batches


def small_batches_do_not_wait(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: what is judged at once is appended at once, though a thread judges what came before it."""
    original = Partition.append_later

    def append_later(self: Partition, buffer: bytes, start: int, end: int, *, done: Any, **how: Any) -> None:
        takes_long = how.get("must_be_prepared") or self.log.takes_long(buffer, start, end, self._clock.wall_ms())
        if not self.waiting or takes_long:
            original(self, buffer, start, end, done=done, **how)
            return
        reached()
        how.pop("must_be_prepared", None)
        try:
            done(self.append(buffer, start, end, **how))
        except RemoteError as error:
            done(error)
        self.notify()

    patch.setattr(Partition, "append_later", append_later)


# Groups


def parts_are_empty(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: members are told that they have nothing to read."""
    original = Rebalancing._assigned

    def assigned(self: Rebalancing, group: Any, member: Any) -> Any:
        answer = original(self, group, member)
        if answer.assignment:
            reached()
        answer.assignment = b""
        return answer

    patch.setattr(Rebalancing, "_assigned", assigned)


def _commits_judged(patch: pytest.MonkeyPatch, judge: Callable[[Any, Any, bool, Callable[[], None]], None]) -> None:
    original = group_offsets.validate_commit

    def validate(group: ClassicGroup, by: Any, is_transactional: bool = False) -> None:
        judge(group, by, is_transactional, lambda: original(group, by, is_transactional))

    patch.setattr(group_offsets, "validate_commit", validate)


def members_are_refused(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: from its second generation on a group takes no commit of its own members."""

    def judge(group: Any, by: Any, is_transactional: bool, usual: Callable[[], None]) -> None:
        if by.generation == group.generation > 1:
            reached()
            raise RemoteError(ErrorCode.ILLEGAL_GENERATION, f"generation {by.generation}")
        usual()

    _commits_judged(patch, judge)


def replaced_members_commit(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own, of KIP-345: whoever had an instance id before is not fenced."""
    original = Offsets.commit

    def commit(self: Offsets, ticket: Any, by: Any, offsets: Any, now_ms: int) -> Any:
        group = self.members.groups.get(by.group_id)
        current = None if group is None else group.static_members.get(by.instance_id or "")
        if current is not None and current != by.member_id:
            reached()
            by = by._replace(member_id=current)
        return original(self, ticket, by, offsets, now_ms)

    patch.setattr(Offsets, "commit", commit)


def generations_do_not_count_in_transactions(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own, of KIP-447: who commits in a transaction is not asked which generation it is of."""

    def judge(group: Any, by: Any, is_transactional: bool, usual: Callable[[], None]) -> None:
        if is_transactional:
            if by.generation >= 0 and by.generation != group.generation:
                reached()
            return
        usual()

    _commits_judged(patch, judge)


def replacement_is_not_logged(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """KAFKA-10284: the new id of a static member is not written down."""
    original = Rebalancing._replace_static

    def replace_static(self: Rebalancing, out: Any, group: Any, *rest: Any) -> None:
        before = len(out.records)
        original(self, out, group, *rest)
        if len(out.records) > before:
            reached()
            del out.records[before:]

    patch.setattr(Rebalancing, "_replace_static", replace_static)


def members_are_forgotten(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: who takes over does not know what the members of a group were given."""
    original = Rebalancing.take_over

    def take_over(self: Rebalancing, now_ms: int) -> Any:
        out = original(self, now_ms)
        for group in self.groups.values():
            for member in group.members.values():
                if member.assignment:
                    reached()
                member.assignment = b""
        return out

    patch.setattr(Rebalancing, "take_over", take_over)


def leader_epochs_are_lost(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Redpanda #17260: the leader epoch that was committed with an offset is not replayed."""
    original = CommittedOffset.__init__

    def init(self: CommittedOffset, value: Any, replayed_as: int) -> None:
        original(self, value, replayed_as)
        if self.leader_epoch >= 0:
            reached()
        self.leader_epoch = -1

    patch.setattr(CommittedOffset, "__init__", init)


def another_partition_is_told(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: who asks where a group is, and it is nowhere yet, is told of another partition."""
    original = Offsets.fetch

    def fetch(self: Offsets, group_id: str, wanted: Any, require_stable: bool) -> Any:
        held = list(self.store.offsets_of(group_id).values())
        found = original(self, group_id, wanted, require_stable)
        for at, each in enumerate(found):
            if held and each.committed is None and each.error is ErrorCode.NONE:
                reached()
                found[at] = each._replace(committed=held[0])
        return found

    patch.setattr(Offsets, "fetch", fetch)


def groups_with_members_are_deleted(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: a group is deleted while it has members."""
    original = GroupMachine.delete_group

    def delete(self: GroupMachine, ticket: Any, group_id: str, now_ms: int) -> Any:
        group = self.groups.get(group_id)
        if group is None or group.state is EMPTY:
            return original(self, ticket, group_id, now_ms)
        reached()
        out = Outcome()
        out.records += self.offsets.tombstones(group_id)
        return out.reply(ticket, ErrorCode.NONE)

    patch.setattr(GroupMachine, "delete_group", delete)


def offsets_are_not_deleted(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own, of KIP-496: OffsetDelete says yes, and nothing is written."""
    original = Offsets.delete

    def delete(self: Offsets, ticket: Any, group_id: str, places: Any) -> Any:
        out = original(self, ticket, group_id, places)
        if out.records:
            reached()
        out.records.clear()
        return out

    patch.setattr(Offsets, "delete", delete)


def offsets_outlive_their_topic(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: a topic is deleted, and groups begin its successor where they were in it."""

    def topics_deleted(self: Offsets, topics: frozenset[str]) -> Outcome:
        if any(topic in topics for held in self.store.offsets.values() for topic, _ in held):
            reached()
        return Outcome()

    patch.setattr(Offsets, "topics_deleted", topics_deleted)


def staged_offsets_outlive_their_topic(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: a topic is deleted, and what open transactions have staged for it is committed with them."""
    original = Offsets.topics_deleted

    def topics_deleted(self: Offsets, topics: frozenset[str]) -> Outcome:
        stagers, self.store.stagers = self.store.stagers, {}
        out = original(self, topics)
        self.store.stagers = stagers
        if any(topic in topics for held in stagers.values() for topic, _ in held):
            reached()
        return out

    patch.setattr(Offsets, "topics_deleted", topics_deleted)


def answers_do_not_wait(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: an answer that writes nothing does not wait until what it tells of is committed."""

    def after_everything_before(self: coordinator.Shard[Any], outcome: Outcome, replies: list[Any]) -> None:
        if self._open is not None:
            self._open.replies += replies
            self._note_tokens(self._open, outcome)
            return
        if self._in_flight:
            reached()
        coordinator._release(replies, ErrorCode.NONE)
        if outcome.token is not None:
            self.take(self.machine.written(outcome.token, ErrorCode.NONE, self._clock.wall_ms()))

    patch.setattr(coordinator.Shard, "_after_everything_before", after_everything_before)


def heartbeats_count_for_nothing(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: a heartbeat is answered, and the session of its member ends all the same."""
    original = Rebalancing._heartbeat

    def heartbeat(self: Rebalancing, out: Outcome, request: Any) -> ErrorCode:
        before = len(out.effects)
        code = original(self, out, request)
        if len(out.effects) > before:
            reached()
            del out.effects[before:]
        return code

    patch.setattr(Rebalancing, "_heartbeat", heartbeat)


def late_parts_are_given(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: what a leader has named for the generation before is taken for that of the one in force."""
    original = Rebalancing.sync

    def sync(self: Rebalancing, ticket: Any, request: Any, now_ms: int) -> Outcome:
        group = self.groups.get(request.group_id)
        if group is not None and request.generation_id != group.generation:
            reached()
            request.generation_id = group.generation
        return original(self, ticket, request, now_ms)

    patch.setattr(Rebalancing, "sync", sync)


# What has to go


def _counts_nothing(name: str) -> Callable[[pytest.MonkeyPatch, Reached], None]:
    def put_back(patch: pytest.MonkeyPatch, reached: Reached) -> None:
        original = getattr(storage_log, name)

        def count(segments: Any, *rest: Any) -> int:
            if original(segments, *rest):
                reached()
            return 0

        patch.setattr(storage_log, name, count)

    return put_back


old_segments_stay = _counts_nothing("count_expired")
"""Our own: `retention.ms` counts for nothing."""
surplus_segments_stay = _counts_nothing("count_over")
"""Our own: `retention.bytes` counts for nothing."""


def removed_files_stay(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: the files of what went keep their other names for ever."""

    def due_removals(self: Log, now_ms: int) -> list[Any]:
        if self._removals:
            reached()
        return []

    patch.setattr(Log, "due_removals", due_removals)


def deletion_does_nothing(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: DeleteRecords says yes, and the log begins where it did."""

    def advance(broker: Any, topic: str, index: int, offset: int) -> int:
        start: int = broker.partitions.find(topic, index).log.log_start
        if start < offset:
            reached()
        return start

    patch.setattr(k21_delete_records, "_advance", advance)


def old_values_are_not_cleaned(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: however much of a log is dirty, and for however long, nobody cleans it."""
    original = compaction_rules.Cleanable.is_due

    def is_due(self: compaction_rules.Cleanable, min_ratio: float) -> bool:
        if original(self, min_ratio):
            reached()
        return False

    patch.setattr(compaction_rules.Cleanable, "is_due", is_due)


def segments_do_not_age(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: `segment.ms` counts for nothing."""
    original = Segment.should_roll

    def should_roll(self: Segment, bytes_max: int, age_max_ms: int, *rest: Any) -> bool:
        rolls = original(self, bytes_max, 1 << 50, *rest)
        if not rolls and original(self, bytes_max, age_max_ms, *rest):
            reached()
        return rolls

    patch.setattr(Segment, "should_roll", should_roll)


def stops_are_not_synced(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: a clean stop calls everything durable, and syncs nothing."""

    def flush(self: DurableLog, now_ms: int) -> None:
        reached()
        self.recovery_point = self.log_end

    patch.setattr(DurableLog, "flush", flush)


# Terms, readers, transactions


def terms_without_batches_are_not_known(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """KAFKA-7415: the epoch of a leader is noted with its first batch, not when its term begins."""

    def assign_epoch(self: Log, epoch: int) -> None:
        reached()

    patch.setattr(Log, "assign_epoch", assign_epoch)


def any_term_will_do(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own, of KIP-320: who names another epoch than the leader's is answered all the same."""
    original = Partition.check_leader

    def check(self: Partition, current_epoch: int = -1) -> Any:
        if self.leader is not None and current_epoch not in (-1, self.leader.epoch):
            reached()
        return original(self)

    patch.setattr(Partition, "check_leader", check)


def nobody_is_woken(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: a fetch that waits is answered when its time is up, whatever was appended meanwhile."""

    def wake(self: Watchers) -> None:
        if len(self):
            reached()

    patch.setattr(Watchers, "wake", wake)


def nobody_is_woken_by_a_commit(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: who waits for committed records is answered when its time is up, whatever is committed."""
    original = _Fetch._has_enough

    def has_enough(self: _Fetch) -> bool:
        if self._is_committed and original(self):
            reached()
            return False
        return not self._is_committed and original(self)

    patch.setattr(_Fetch, "_has_enough", has_enough)


def transactions_have_no_time(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: a transaction is aborted the next time that somebody looks at time-outs."""
    original = Transaction.is_late

    def is_late(self: Transaction, now_ms: int) -> bool:
        if not original(self, now_ms):
            reached()
        return True

    patch.setattr(Transaction, "is_late", is_late)
