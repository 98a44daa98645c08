"""Bugs of what readers are told: where a partition ends for them, where a moment is, in which leader epoch, where that
ended, and what is new in a session."""

from collections.abc import Callable
from typing import Any

import pytest

from mainstem.broker.apis import k02_list_offsets
from mainstem.broker.fetch_sessions import FetchSession
from mainstem.core.log.epochs import EpochEnd, LeaderEpochs
from mainstem.storage.readable_log import ReadableLog
from mainstem.storage.timestamps import TimestampJob

Reached = Callable[[], None]


def stable_end_is_not_asked_for(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """KAFKA-5522: ListOffsets tells readers of committed records the high watermark."""
    original = k02_list_offsets._find

    async def find(broker: Any, partition: Any, wanted: Any, request: Any, version: int) -> Any:
        if request.isolation_level and partition.last_stable_offset < partition.high_watermark:
            reached()
        request.isolation_level = 0
        return await original(broker, partition, wanted, request, version)

    patch.setattr(k02_list_offsets, "_find", find)


def latest_moment_is_in_the_last_segment(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: the largest timestamp is taken to be in the last segment, as if clocks never went back."""
    original = ReadableLog.begin_find_max

    def begin(self: ReadableLog) -> TimestampJob | None:
        job = original(self)
        last = [segment for segment in self.segments if segment.size > 0][-1:]
        if type(job) is not TimestampJob or not last or job.segment is last[0]:
            return job
        reached()
        job.unpin()
        return TimestampJob(last[0], last[0].max_timestamp, 0, self.log_end, self._generation)

    patch.setattr(ReadableLog, "begin_find_max", begin)


def sessions_tell_of_offsets_alone(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own, of KIP-227: a partition with records is not told of where its high watermark is what it was."""
    original = FetchSession.must_tell

    def must_tell(self: FetchSession, key: Any, answer: Any) -> bool:
        known = self.partitions.get(key)
        same = known is not None and (known.high_watermark, known.log_start) == (
            answer.high_watermark,
            answer.log_start_offset,
        )
        told = original(self, key, answer)
        if told and same:
            reached()
        return told and not same

    patch.setattr(FetchSession, "must_tell", must_tell)


def older_terms_end_with_the_log(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own, of KIP-320: who asks where an older leader's term ends is told the end of the log."""
    original = LeaderEpochs.end_offset_for

    def end_offset_for(self: LeaderEpochs, epoch: int, log_end: int) -> EpochEnd:
        found = original(self, epoch, log_end)
        if not 0 <= epoch < self.latest:
            return found
        reached()
        return EpochEnd(found.epoch, log_end)

    patch.setattr(LeaderEpochs, "end_offset_for", end_offset_for)


def offsets_are_of_the_term_before(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own, of KIP-320: ListOffsets tells the leader epoch before the one that an offset was written in."""
    original = k02_list_offsets._find

    async def find(broker: Any, partition: Any, wanted: Any, request: Any, version: int) -> Any:
        answer = await original(broker, partition, wanted, request, version)
        if answer.leader_epoch > 0:
            reached()
            answer.leader_epoch -= 1
        return answer

    patch.setattr(k02_list_offsets, "_find", find)
