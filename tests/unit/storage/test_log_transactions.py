"""Transactions in the log: what is stable, what was aborted, who is fenced."""

import pytest

from mainstem.core.log.producers import Origin
from mainstem.core.log.verification import NO_GUARD
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.storage.aborted import AbortedJob
from mainstem.storage.duplicates import SEGMENTS_MAX
from mainstem.storage.log import Log
from tests.support.compaction import CompactedLog
from tests.support.logs import NOW_MS, append, batch, config, marker, new_disk, open_in


class Writer:
    """A transactional producer that remembers its sequence."""

    def __init__(self, log: Log, producer_id: int, epoch: int = 0) -> None:
        self.log = log
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequence = 0

    def send(self, count: int = 1) -> int:
        data = batch(
            *([b"v"] * count),
            producer_id=self.producer_id,
            epoch=self.epoch,
            sequence=self.sequence,
            transactional=True,
        )
        self.sequence += count
        return append(self.log, data).base_offset

    def end(self, commit: bool) -> int:
        return append(self.log, marker(self.producer_id, self.epoch, commit), origin=Origin.COORDINATOR).base_offset


def aborted(log: Log, first: int, upper: int) -> list[tuple[int, int, int]]:
    return [
        (found.producer_id, found.first_offset, found.last_offset) for found in log.aborted_transactions(first, upper)
    ]


def test_readers_of_committed_records_stop_before_the_oldest_open_transaction() -> None:
    log = open_in(new_disk())
    one, two = Writer(log, 1), Writer(log, 2)
    append(log, batch(b"plain"))
    assert log.last_stable_offset == 1
    one.send()
    two.send()
    assert log.last_stable_offset == 1
    two.end(True)
    assert log.last_stable_offset == 1
    one.end(False)
    assert log.last_stable_offset == log.high_watermark == 5


def test_a_marker_counts_once_it_is_replicated() -> None:
    log = open_in(new_disk())
    one = Writer(log, 1)
    one.send()
    data = marker(1, 0, True)
    log.append_as_leader(data, 0, len(data), 0, NOW_MS, Origin.COORDINATOR)
    assert (log.last_stable_offset, log.high_watermark, log.log_end) == (0, 1, 2)
    log.update_high_watermark(2)
    assert log.last_stable_offset == 2


def test_aborted_transactions_are_listed_by_first_offset_across_segments() -> None:
    log = open_in(new_disk(), config(segment_bytes=200))
    writers = [Writer(log, number) for number in range(3)]
    for writer in writers:
        writer.send()
    for writer in reversed(writers):
        writer.send()
        writer.end(False)
    assert len(log.segments) > 3
    assert aborted(log, 0, log.log_end) == [(0, 0, 8), (1, 1, 6), (2, 2, 4)]
    assert aborted(log, 7, log.log_end) == [(0, 0, 8)]
    assert aborted(log, 0, 2) == [(0, 0, 8), (1, 1, 6)]


def test_a_slice_comes_with_the_aborted_transactions_in_it() -> None:
    log = open_in(new_disk(), config(index_interval_bytes=0))
    writer = Writer(log, 1)
    for _ in range(10):
        writer.send()
        writer.end(False)
    found = log.read(4, 200, log.last_stable_offset)
    listed = log.aborted_transactions_in(found, log.last_stable_offset)
    found.release()
    assert listed[0].first_offset == 4
    assert len(listed) < 4
    nothing = log.read(log.log_end, 200, log.last_stable_offset)
    assert log.aborted_transactions_in(nothing, log.last_stable_offset) == []


def test_a_cold_transaction_index_is_a_job_that_blocks_nobody() -> None:
    disk = new_disk()
    log = open_in(disk, config(segment_bytes=400, index_interval_bytes=0))
    writer = Writer(log, 1)
    for _ in range(10):
        writer.send()
        writer.end(False)
    found = log.read(0, 200, log.last_stable_offset)
    expected = [each.first_offset for each in log.aborted_transactions_in(found, log.last_stable_offset)]
    disk.is_cold = lambda path, position, size: True
    step = log.begin_aborted(found, log.last_stable_offset)
    asked = 0
    while isinstance(step, AbortedJob):
        assert not step.try_run()
        step.run()
        asked += 1
        # What was found is not lost when the log rolls meanwhile.
        log.roll(NOW_MS)
        step = log.finish_aborted(step)
    found.release()
    assert asked > 0
    assert [each.first_offset for each in step] == expected


def test_a_reader_asks_no_more_segments_for_aborted_transactions_than_can_have_one_of_its_own() -> None:
    """An entry says up to where no transaction was open: what lies behind it is nothing to who reads before it."""
    disk = new_disk()
    log = open_in(disk)
    writer = Writer(log, 1)
    for _ in range(20):
        writer.send()
        writer.end(False)
        log.roll(NOW_MS)
    asked: set[str] = set()
    disk.on_operation = lambda operation, path, position, size: (
        asked.add(path) if operation == "read" and path.endswith(".txnindex") else None
    )
    assert aborted(log, 0, 2) == [(1, 0, 1)]
    assert len(asked) == 1


def test_a_log_without_aborted_transactions_is_not_asked() -> None:
    disk = new_disk()
    log = open_in(disk, config())
    writer = Writer(log, 1)
    writer.send()
    writer.end(True)
    found = log.read(0, 200, log.last_stable_offset)
    disk.is_cold = lambda path, position, size: True
    assert log.begin_aborted(found, log.last_stable_offset) == []
    found.release()


def test_what_goes_while_its_aborted_transactions_are_looked_up_is_not_given_out() -> None:
    """What is known of them goes with the segments: a reader of committed records would take aborted ones for such."""
    log = open_in(new_disk(), config(segment_bytes=400, index_interval_bytes=0, retention_bytes=0))
    writer = Writer(log, 1)
    for _ in range(10):
        writer.send()
        writer.end(False)
    found = log.read(log.segments[1].base_offset, 200, log.last_stable_offset)
    step = log.begin_aborted(found, log.last_stable_offset)
    assert isinstance(step, AbortedJob)
    step.run()
    assert log.delete_old_segments(NOW_MS) > 0
    with pytest.raises(RemoteError) as caught:
        log.finish_aborted(step)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    found.release()
    assert all(segment.txn_index.ref.pins == 0 for segment in log.segments)


def test_what_is_cleaned_while_its_aborted_transactions_are_looked_up_is_read_again() -> None:
    """What took the place of a segment may say nothing of those whose records the slice still has (seed 100014665)."""
    compacted = CompactedLog(index_interval_bytes=0)
    compacted.put_as(1, (b"k", b"aborted"), transactional=True)
    compacted.end(1, commit=False)
    compacted.put((b"k", b"newer"))
    compacted.roll()
    log = compacted.log
    found = log.read(0, 1000, log.last_stable_offset)
    step = log.begin_aborted(found, log.last_stable_offset)
    assert isinstance(step, AbortedJob)
    compacted.clean_all()
    step.run()
    with pytest.raises(RemoteError) as caught:
        log.finish_aborted(step)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    found.release()


def test_committed_and_empty_transactions_leave_no_index() -> None:
    disk = new_disk()
    log = open_in(disk)
    writer = Writer(log, 1)
    writer.send()
    writer.end(True)
    writer.end(False)
    assert not [name for name in disk.list_directory(log.directory) if name.endswith(".txnindex")]


def test_a_fenced_producer_and_a_fenced_marker_change_nothing() -> None:
    log = open_in(new_disk())
    Writer(log, 1, epoch=5).send()
    for data, origin in (
        (batch(b"v", producer_id=1, epoch=4, sequence=0, transactional=True), Origin.CLIENT),
        (marker(1, 4, True), Origin.COORDINATOR),
    ):
        with pytest.raises(RemoteError) as raised:
            append(log, data, origin=origin)
        assert raised.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.log_end == 1


def test_a_coordinators_records_need_no_sequence() -> None:
    log = open_in(new_disk())
    for _ in range(2):
        data = batch(b"offset", producer_id=1, epoch=0, sequence=-1, transactional=True)
        append(log, data, origin=Origin.COORDINATOR)
    assert (log.log_end, log.first_unstable_offset) == (2, 0)


def test_a_follower_learns_of_transactions_from_what_it_fetches() -> None:
    leader = open_in(new_disk())
    one, two = Writer(leader, 1), Writer(leader, 2)
    one.send()
    two.send()
    one.end(False)
    follower = open_in(new_disk())
    found = leader.read(0, 10_000, leader.log_end)
    data = found.read()
    found.release()
    follower.append_as_follower(data, 0, len(data), 0, NOW_MS)
    assert follower.last_stable_offset == 0
    follower.update_high_watermark(3)
    assert follower.last_stable_offset == 1
    assert aborted(follower, 0, 3) == [(1, 0, 2)]


def test_cutting_a_transaction_forgets_it_and_cutting_its_marker_opens_it_again() -> None:
    log = open_in(new_disk())
    writer = Writer(log, 1)
    writer.send()
    writer.end(False)
    writer.send()
    assert log.first_unstable_offset == 2
    log.truncate_to(2, NOW_MS)
    assert log.first_unstable_offset == -1
    log.truncate_to(1, NOW_MS)
    assert log.first_unstable_offset == 0
    assert aborted(log, 0, 10) == []
    log.truncate_to(0, NOW_MS)
    assert log.first_unstable_offset == -1


def test_the_last_five_batches_are_recognized_also_after_a_restart() -> None:
    disk = new_disk()
    settings = config(segment_bytes=300, index_interval_bytes=0)
    log = open_in(disk, settings)
    sent = [batch(b"%d" % number, producer_id=1, epoch=0, sequence=number) for number in range(8)]
    for number, data in enumerate(sent):
        append(log, data)
        append(log, batch(b"noise", producer_id=2, epoch=0, sequence=number))
    log.close(NOW_MS)
    log = open_in(disk, settings, clean=True, recovery_point=16)
    producer = log.producers.states.get(1)
    assert producer is not None
    assert len(producer.batches) == 1
    assert append(log, sent[7]).base_offset == 14
    assert len(producer.batches) == 1, "nothing was read yet"
    assert [append(log, sent[number]).base_offset for number in (6, 4, 3, 5)] == [12, 8, 6, 10]
    with pytest.raises(RemoteError) as raised:
        append(log, sent[2])
    assert raised.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, batch(b"8", producer_id=1, epoch=0, sequence=8)).base_offset == 16


def test_a_batch_is_looked_for_in_so_many_segments_and_no_more() -> None:
    disk = new_disk()
    settings = config(segment_bytes=100, index_interval_bytes=0)
    log = open_in(disk, settings)
    sent = [batch(b"%d" % number, producer_id=1, epoch=0, sequence=number) for number in range(3)]
    append(log, sent[0])
    for number in range(SEGMENTS_MAX):
        append(log, batch(b"noise", producer_id=2, epoch=0, sequence=number))
    for data in sent[1:]:
        append(log, data)
    log.close(NOW_MS)
    log = open_in(disk, settings, clean=True, recovery_point=SEGMENTS_MAX + 3)
    assert len(log.segments) >= SEGMENTS_MAX + 3
    assert append(log, sent[1]).base_offset == SEGMENTS_MAX + 1
    with pytest.raises(RemoteError) as raised:
        append(log, sent[0])
    assert raised.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_idle_producers_expire() -> None:
    log = open_in(new_disk())
    append(log, batch(b"v", producer_id=1, epoch=0, sequence=0))
    assert log.expire_producers(NOW_MS + 86_400_000 - 1) == []
    assert log.expire_producers(NOW_MS + 86_400_000) == [1]
    assert append(log, batch(b"v", producer_id=1, epoch=0, sequence=77)).base_offset == 1


def test_of_batches_that_wait_together_the_one_with_the_lowest_sequence_comes_first() -> None:
    """KIP-890: a producer that nobody knows may begin anywhere, so another of its batches could be taken first."""
    log = open_in(new_disk())
    log.verifies_transactions = True
    guard = log.begin_verification(1, 0, 0, False, NOW_MS)
    assert log.begin_verification(1, 0, 3, False, NOW_MS) == guard
    later = batch(b"v", producer_id=1, epoch=0, sequence=3, transactional=True)
    with pytest.raises(RemoteError) as refused:
        append(log, later, guard=guard)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    with pytest.raises(RemoteError):
        append(log, batch(b"v", producer_id=1, epoch=0, sequence=3))
    append(log, batch(b"a", b"b", b"c", producer_id=1, epoch=0, sequence=0, transactional=True), guard=guard)
    append(log, later)
    assert log.log_end == 4


def test_version_two_begins_at_sequence_zero() -> None:
    log = open_in(new_disk())
    log.verifies_transactions = True
    guard = log.begin_verification(1, 0, 5, True, NOW_MS)
    with pytest.raises(RemoteError) as refused:
        append(log, batch(b"v", producer_id=1, epoch=0, sequence=5, transactional=True), guard=guard)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_fenced_transaction_stays_open_and_gets_nothing_more_until_its_marker() -> None:
    log = open_in(new_disk())
    writer = Writer(log, 1)
    writer.send()
    log.fence(1, 0)
    with pytest.raises(RemoteError) as refused:
        writer.send()
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert (log.log_end, log.last_stable_offset) == (1, 0)
    append(log, marker(1, 1, True), origin=Origin.COORDINATOR, transaction_version=2)
    log.fence(1, 0)
    Writer(log, 1, epoch=1).send()
    assert log.log_end == 3


def test_a_leader_that_begins_a_term_doubts_the_transactions_it_finds_open() -> None:
    log = open_in(new_disk())
    writer = Writer(log, 1)
    writer.send()
    log.verifies_transactions = True
    log.assign_epoch(7)
    log.doubt_open_transactions()
    assert not log.has_open_transaction(1, 0)
    with pytest.raises(RemoteError) as refused:
        writer.send()
    assert refused.value.code is ErrorCode.INVALID_TXN_STATE
    guard = log.begin_verification(1, 0, 1, False, NOW_MS)
    append(log, batch(b"v", producer_id=1, epoch=0, sequence=1, transactional=True), guard=guard)
    assert log.has_open_transaction(1, 0)
    assert log.begin_verification(1, 0, 2, False, NOW_MS) == NO_GUARD


def test_nobody_is_asked_about_a_batch_of_an_epoch_that_is_over() -> None:
    log = open_in(new_disk())
    Writer(log, 1, epoch=1).send()
    with pytest.raises(RemoteError) as refused:
        log.begin_verification(1, 0, 0, True, NOW_MS)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert len(log.verifications) == 0


LONG_AGO_MS = NOW_MS - 400 * 86_400_000


def test_a_producer_of_old_records_is_known_as_long_as_any_other() -> None:
    """T1: by the records' own timestamps, as in Kafka, it would be forgotten while it sends."""
    disk = new_disk()
    log = open_in(disk)
    old = batch(b"v", producer_id=1, epoch=0, sequence=0, timestamp=LONG_AGO_MS)
    assert append(log, old).base_offset == 0
    assert log.expire_producers(NOW_MS + 86_400_000 - 1) == []
    assert append(log, old).is_duplicate
    log.close(NOW_MS)
    again = open_in(disk, clean=True, recovery_point=1, now_ms=NOW_MS + 86_400_000 - 1)
    assert append(again, old).is_duplicate
    assert again.expire_producers(NOW_MS + 86_400_000) == [1]


def test_a_producer_of_old_records_that_is_not_in_the_last_segment_is_forgotten_by_a_restart() -> None:
    """Or a broker that is started anew each day would never forget one."""
    disk = new_disk()
    log = open_in(disk)
    append(log, batch(b"v", producer_id=1, epoch=0, sequence=0, timestamp=LONG_AGO_MS))
    log.roll(NOW_MS)
    append(log, batch(b"v", producer_id=2, epoch=0, sequence=0, timestamp=LONG_AGO_MS))
    log.roll(NOW_MS)
    log.close(NOW_MS)
    again = open_in(disk, clean=True, recovery_point=2)
    assert [each.producer_id for each in again.producers.states.all()] == [2]


def test_the_batches_of_a_producer_that_was_silent_for_long_before_its_last_one_are_known_after_a_crash() -> None:
    """T1: the snapshot that recovery begins with knows it as silent, and the log has more of it behind that."""
    disk = new_disk()
    log = open_in(disk)
    first = batch(b"a", producer_id=1, epoch=0, sequence=0, timestamp=NOW_MS)
    append(log, first)
    log.roll(NOW_MS)
    later_ms = NOW_MS + 80_000_000
    append(log, batch(b"b", producer_id=1, epoch=0, sequence=1, timestamp=later_ms), now_ms=later_ms)
    log.flush(later_ms)
    disk.kill()
    again = open_in(disk, recovery_point=1, now_ms=NOW_MS + 90_000_000)
    assert append(again, first).is_duplicate


def test_where_very_many_transactions_were_aborted_since_they_are_looked_through_in_a_thread() -> None:
    """Whoever reads behind one that was open for long is asked about all that ended meanwhile."""
    log = open_in(new_disk(), config(segment_bytes=1 << 20))
    old, others = Writer(log, 1), Writer(log, 2)
    old.send()
    for _ in range(5000):
        others.send()
        others.end(False)
    old.end(False)
    found = log.read(0, 100, log.last_stable_offset)
    step = log.begin_aborted(found, log.last_stable_offset)
    threads = 0
    while isinstance(step, AbortedJob):
        if not step.try_run():
            step.run()
            threads += 1
        step = log.finish_aborted(step)
    found.release()
    assert threads == 1
    assert (step[0].producer_id, step[0].first_offset, step[0].last_offset) == (1, 0, log.log_end - 1)
    listed = [each.first_offset for each in step]
    assert listed == sorted(set(listed)), "nothing is told twice"
    assert listed == [each.first_offset for each in log.aborted_transactions_in(found, log.last_stable_offset)]
