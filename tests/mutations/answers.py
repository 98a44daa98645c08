"""Bugs of what clients are told: where a partition ends for them, where a moment is, in which leader epoch, where that
ended, what is new in a session, and where a batch is that they send again."""

from collections.abc import Callable
from typing import Any

import pytest

from mainstem.broker.apis import k00_produce, k02_list_offsets
from mainstem.broker.fetch_sessions import FetchSession
from mainstem.broker.partitions import Partitions
from mainstem.core.controller.states import TopicState
from mainstem.core.log.epochs import EpochEnd, LeaderEpochs
from mainstem.core.log.producers import BatchMark, Producer, ProducerStates
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.storage.log import Log
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


def _acknowledged_at_once(
    patch: pytest.MonkeyPatch, reached: Reached, which: Callable[[Any], bool], of: int = -1
) -> None:
    original = k00_produce._fill_appended

    def fill(answer: Any, result: Any, partition: Any, acks: int, pending: Any) -> None:
        waits: list[Any] = []
        original(answer, result, partition, acks, waits)
        if waits and acks == of and which(result):
            reached()
        else:
            pending.extend(waits)

    patch.setattr(k00_produce, "_fill_appended", fill)


def batches_are_acknowledged_at_once(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: with `acks=all` a batch is acknowledged before it is below the high watermark."""
    _acknowledged_at_once(patch, reached, lambda result: True)


def retries_are_acknowledged_at_once(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: the same of a batch that is there already, and not yet durable."""
    _acknowledged_at_once(patch, reached, lambda result: result.is_duplicate)


def one_is_acknowledged_at_once(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: with `acks=1` a batch is acknowledged before it is synced, where `flush.messages` asks for that."""
    _acknowledged_at_once(patch, reached, lambda result: True, of=1)


def retries_have_no_offset(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: a batch that is there already is refused as a duplicate, and nobody is told where it is."""

    def result(self: Log, mark: BatchMark, leader_epoch: int) -> Any:
        reached()
        raise RemoteError(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, "it was appended before")

    patch.setattr(Log, "_duplicate_result", result)


def gaps_are_taken(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: of a producer a batch is appended though others are missing between it and the last one."""
    original = ProducerStates._check_sequence

    def check(self: ProducerStates, producer: Producer, epoch: int, first_sequence: int) -> None:
        if epoch == producer.epoch and 0 <= producer.last_sequence < first_sequence - 1:
            reached()
            return
        original(self, producer, epoch, first_sequence)

    patch.setattr(ProducerStates, "_check_sequence", check)


def what_is_not_committed_is_deleted(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: DeleteRecords moves the start of a log over what nobody may see yet, up to the end of the log."""
    original = Log.advance_log_start

    def advance(self: Log, offset: int) -> bool:
        if not self.high_watermark < offset <= self.log_end:
            return original(self, offset)
        reached()
        self.log_start = offset
        self.epochs.truncate_from_start(offset)
        self.producers.on_log_start(offset)
        self._update_first_unstable()
        return True

    patch.setattr(Log, "advance_log_start", advance)


def offline_partitions_are_unknown(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: partitions of a directory that has failed are taken for partitions that are not there."""
    original = Partitions._why_missing

    def why(self: Partitions, topic: TopicState | None, index: int, unknown: ErrorCode) -> RemoteError:
        error = original(self, topic, index, unknown)
        if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
            return error
        reached()
        return RemoteError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error.message)

    patch.setattr(Partitions, "_why_missing", why)
