"""Bugs that show where runs are tuned so that rare things meet (`mainstem.sim.tuning`): most were our own, and the
simulator did not find them before it was tuned so."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mainstem.broker.drivers import coordinator
from mainstem.core.group import records
from mainstem.core.group.offsets import Offsets
from mainstem.core.group.rebalance import Rebalancing
from mainstem.core.group.store import GroupStore
from mainstem.core.log import compaction as compaction_rules
from mainstem.protocol.control import parse_end_marker
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.storage import cleaner
from mainstem.storage.aborted import AbortedJob
from mainstem.storage.cleaning import Cleaning
from mainstem.storage.durable_log import DurableLog
from mainstem.storage.readable_log import ReadableLog

Reached = Callable[[], None]


def empty_marker_is_broken(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: what compaction leaves of a producer's last marker is taken for a broken log, which nobody can load."""

    def parse(batch: Any) -> Any:
        if batch.is_control and batch.record_count == 0:
            reached()
            raise RemoteError(ErrorCode.CORRUPT_MESSAGE, "a control batch without a record")
        return parse_end_marker(batch)

    patch.setattr(coordinator, "parse_end_marker", parse)


def aborts_go_with_their_segment(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: where retention takes a segment while its aborted transactions are looked up, later ones are asked."""

    def finish(self: ReadableLog, job: Any) -> Any:
        job.unpin()
        is_held = self._has(job.segment)
        self._check_came_back(job.error if is_held else None)
        if job.first_offset < self._segments.at(0).base_offset:
            reached()
        if job.generation != self._generation or not is_held:
            again = AbortedJob(job.first_offset, job.upper_offset, None, -1, self._generation)
            return self._ask_aborted(again, max(self._segments.floor(job.first_offset), 0))
        return self._ask_aborted(job, self._segments.floor(job.segment.base_offset) + 1)

    patch.setattr(ReadableLog, "finish_aborted", finish)


def staged_groups_are_forgotten(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: who takes over does not know groups that have offsets in open transactions alone."""
    original = Rebalancing.take_over

    def take_over(self: Rebalancing, now_ms: int) -> Any:
        out = original(self, now_ms)
        for group_id in self.store.stagers:
            if group_id not in self.store.metadata and group_id not in self.store.offsets:
                reached()
                self.groups.pop(group_id, None)
        return out

    patch.setattr(Rebalancing, "take_over", take_over)


def markers_decide_the_order(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Redpanda #31483: the offset of a transaction replaces a plain commit that came after it."""

    def replay_marker(self: GroupStore, producer_id: int, committed: bool) -> None:
        for place, offset in list(self.staged.get(producer_id, {}).items()):
            self._set_staged(producer_id, place, None)
            if committed:
                current = self.offsets_of(place[0]).get(place[1:])
                if current is not None and current.replayed_as > offset.replayed_as:
                    reached()
                self._set_offset(place, offset)

    patch.setattr(GroupStore, "replay_marker", replay_marker)


def staged_offsets_expire(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Redpanda #31483, the other half: an offset expires while a transaction is about to replace it."""

    def expire(self: Offsets, group: Any, now_ms: int, most: int) -> Any:
        held = self.store.offsets_of(group.group_id)
        is_staged = self.store.has_any_staged(group.group_id)
        if not self._may_expire(group):
            return [], not held and not is_staged
        expired: list[Any] = []
        for (topic, partition), committed in held.items():
            if len(expired) >= most:
                break
            if not group.is_subscribed_to(topic) and self._has_expired(group, committed, now_ms):
                if self.store.has_staged(group.group_id, topic, partition):
                    reached()
                expired.append(records.offset_tombstone(group.group_id, topic, partition))
        return expired, len(expired) == len(held) and not is_staged

    patch.setattr(Offsets, "expire", expire)


def time_since_the_commit(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own, of KIP-211: the time of an offset runs from its commit, not from when its group lost its last member."""
    has_expired = Offsets._has_expired

    def expired(self: Offsets, group: Any, committed: Any, now_ms: int) -> bool:
        is_over = bool(now_ms - committed.commit_ms >= self.config.offsets_retention_ms)
        if is_over and not has_expired(self, group, committed, now_ms):
            reached()
        return is_over

    patch.setattr(Offsets, "_has_expired", expired)


def young_records_are_cleaned(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: `min.compaction.lag.ms` counts for nothing."""
    original = compaction_rules.find_cleanable

    def find(segments: Any, *rest: Any) -> compaction_rules.Cleanable:
        *others, config, now_ms = rest
        found = original(segments, *others, replace(config, min_compaction_lag_ms=0), now_ms)  # type: ignore[call-arg]
        if found.end > original(segments, *rest).end:
            reached()
        return found

    patch.setattr(cleaner, "find_cleanable", find)


def markers_that_may_be_lost_count(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: what a transaction replaces is cleaned while a power cut can still take the marker of its commit."""
    decided_end = DurableLog.decided_end

    def stable_end(self: DurableLog) -> int:
        if decided_end.fget(self) < self.last_stable_offset:  # type: ignore[attr-defined]
            reached()
        return self.last_stable_offset

    patch.setattr(DurableLog, "decided_end", property(stable_end))


def full_map_counts_as_all(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: a cleaning whose map was full before all keys were in it says that it has cleaned all the same."""
    begin = Cleaning._begin_planning

    def begin_planning(self: Cleaning) -> None:
        if self._is_map_full:
            reached()
            self._is_map_full = False
        begin(self)

    patch.setattr(Cleaning, "_begin_planning", begin_planning)
