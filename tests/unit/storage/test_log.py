"""The log as a whole: appending, reading, rolling, truncating, closing and opening again."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from mainstem.core.log.producers import Origin
from mainstem.protocol.control import build_control_batch
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.sim.faults import Effect, Fault
from mainstem.storage.errors import StorageError
from mainstem.storage.log import Log
from mainstem.storage.open_files import OpenFiles
from mainstem.storage.reading import ReadJob, Slice
from mainstem.storage.recovery import open_log
from mainstem.storage.timestamps import TimestampedOffset
from mainstem.testing.files import MortalFileSystem
from tests.support.logs import (
    DIRECTORY,
    NOW_MS,
    append,
    batch,
    config,
    file_contents,
    new_disk,
    open_in,
    read_all,
    read_batches,
)

SIZE = len(batch(b"00"))


def test_what_was_appended_is_read_back_with_its_offsets_and_epoch() -> None:
    log = open_in(new_disk())
    first = append(log, batch(b"a", b"b"), leader_epoch=3)
    second = append(log, batch(b"c"), leader_epoch=4)
    assert (first.base_offset, first.last_offset, second.base_offset) == (0, 1, 2)
    read = read_all(log)
    assert [(found.base_offset, found.last_offset, found.leader_epoch) for found in read] == [(0, 1, 3), (2, 2, 4)]
    assert all(found.computed_crc() == found.crc for found in read)
    assert [(entry.epoch, entry.start_offset) for entry in log.epochs.entries()] == [(3, 0), (4, 2)]


def test_a_batch_is_taken_from_the_middle_of_a_frame() -> None:
    log = open_in(new_disk())
    data = batch(b"a")
    log.append_as_leader(b"front" + data + b"back", 5, 5 + len(data), 0, NOW_MS)
    assert read_all(log)[0].to_bytes()[16:] == data[16:]


def test_a_read_inside_a_batch_begins_with_the_whole_batch() -> None:
    log = open_in(new_disk())
    append(log, batch(b"a", b"b", b"c"))
    append(log, batch(b"d"))
    assert read_batches(log, 2)[0].base_offset == 0


def test_an_offset_outside_the_log_is_out_of_range() -> None:
    log = open_in(new_disk())
    append(log, batch(b"a"))
    for offset in (-1, 2):
        with pytest.raises(RemoteError) as raised:
            log.read(offset, 100, log.log_end)
        assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(1, 100, log.log_end).size == 0


@pytest.mark.parametrize("reopen", [False, True])
def test_a_read_honours_its_limits(reopen: bool) -> None:
    disk = new_disk()
    log = open_in(disk, config(segment_bytes=SIZE * 40, index_interval_bytes=SIZE * 3))
    for number in range(100):
        append(log, batch(b"%02d" % number))
    if reopen:  # nothing is remembered then, so the indexes are used
        log.close(NOW_MS)
        log = open_in(disk, log.config, clean=True, recovery_point=100)
    for offset in (0, 1, 39, 40, 41, 79, 80, 99):
        segment_end = (offset // 40 + 1) * 40
        found = log.read(offset, SIZE * 5, 100)
        assert (found.base_offset, found.size) == (offset, SIZE * min(5, segment_end - offset, 100 - offset))
        assert found.first_batch_bytes == SIZE
        found.release()
        found = log.read(offset, 1, 100)
        assert found.size == SIZE, "one whole batch at least"
        found.release()
        assert log.read(offset, 1, 100, min_one=False).size == 0
        assert log.read(offset, SIZE * 5, offset).size == 0
        for bound in (offset + 1, offset + 3):
            found = log.read(offset, SIZE * 5, min(bound, 100))
            assert found.size == SIZE * (min(bound, 100, segment_end) - offset)
            found.release()


def test_a_cold_read_is_a_job_that_blocks_nobody() -> None:
    disk = new_disk()
    log = open_in(disk, config(index_interval_bytes=SIZE))
    for number in range(100):
        append(log, batch(b"%02d" % number))
    warm = log.begin_read(99, 1000, 100)
    assert isinstance(warm, Slice), "the last batches are remembered"
    warm.release()
    disk.is_cold = lambda path, position, size: True
    job = log.begin_read(10, 1000, 100)
    assert isinstance(job, ReadJob)
    assert not job.try_run()
    job.run()
    append(log, batch(b"while it ran"))
    found = log.finish_read(job)
    assert isinstance(found, Slice)
    assert found.base_offset == 10
    found.release()


def test_a_cold_read_starts_over_when_the_log_was_cut_meanwhile() -> None:
    log = open_in(new_disk(), config(index_interval_bytes=SIZE))
    for number in range(100):
        append(log, batch(b"%02d" % number))
    job = log.begin_read(10, 1000, 100)
    assert isinstance(job, ReadJob)
    job.run()
    log.truncate_to(5, NOW_MS)
    with pytest.raises(RemoteError):
        log.finish_read(job)


def test_a_slice_outlives_the_segment_it_came_from() -> None:
    disk = new_disk()
    log = open_in(disk, config(segment_bytes=SIZE * 2, retention_ms=1000, file_delete_delay_ms=0))
    for number in range(6):
        append(log, batch(b"%02d" % number))
    found = log.read(0, 1000, 6)
    assert log.delete_old_segments(NOW_MS + 5000) == 3
    for job in log.due_removals(NOW_MS + 5000):
        job.run()
    assert len(found.read()) == SIZE * 2
    found.release()
    found.release()


def test_segments_are_rolled_by_size() -> None:
    log = open_in(new_disk(), config(segment_bytes=SIZE * 3))
    for number in range(7):
        append(log, batch(b"%02d" % number))
    assert [(segment.base_offset, segment.size) for segment in log.segments] == [
        (0, SIZE * 3),
        (3, SIZE * 3),
        (6, SIZE),
    ]
    assert log.size == SIZE * 7


def test_segments_are_rolled_by_the_age_of_their_first_batch() -> None:
    log = open_in(new_disk(), config(segment_ms=1000, message_timestamp_before_max_ms=1 << 60))
    for timestamp in (NOW_MS, NOW_MS + 1000, NOW_MS + 1001, NOW_MS + 5000, NOW_MS + 10):
        append(log, batch(b"a", timestamp=timestamp))
    assert [segment.base_offset for segment in log.segments] == [0, 2, 3]


def test_without_timestamps_age_counts_from_when_the_segment_was_made() -> None:
    log = open_in(new_disk(), config(segment_ms=1000))
    append(log, batch(b"a", timestamp=-1), now_ms=NOW_MS)
    append(log, batch(b"a", timestamp=-1), now_ms=NOW_MS + 1000)
    append(log, batch(b"a", timestamp=-1), now_ms=NOW_MS + 1001)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


@pytest.mark.parametrize("sequence", [0, 7])
def test_a_batch_that_is_refused_where_a_segment_is_full_leaves_a_new_segment_as_in_kafka(sequence: int) -> None:
    """Kafka rolls before it looks at the producer: a duplicate, or one out of order, still begins a segment."""
    disk = new_disk()
    one = batch(b"00", producer_id=5, epoch=0, sequence=0)
    log = open_in(disk, config(segment_bytes=len(one)))
    append(log, one)
    again = batch(b"00", producer_id=5, epoch=0, sequence=sequence)
    for _ in range(2):
        if sequence == 0:
            assert append(log, again).is_duplicate
        else:
            with pytest.raises(RemoteError) as raised:
                append(log, again)
            assert raised.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert [segment.base_offset for segment in log.segments] == [0, 1]
    assert log.log_end == 1
    append(log, batch(b"01", producer_id=5, epoch=0, sequence=1))
    log.close(NOW_MS)
    assert [found.base_offset for found in read_all(open_in(disk, clean=True, recovery_point=2))] == [0, 1]


def test_jitter_rolls_early() -> None:
    disk = new_disk()
    disk.make_directory("/d")
    settings = config(segment_ms=1000, segment_jitter_ms=500)
    log = open_log(OpenFiles(disk, 100), "/d", settings, NOW_MS, jitter=lambda bound: bound - 100)
    append(log, batch(b"a", timestamp=NOW_MS))
    append(log, batch(b"a", timestamp=NOW_MS + 600))
    append(log, batch(b"a", timestamp=NOW_MS + 601))
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    log = open_in(new_disk(), config(segment_bytes=100))
    with pytest.raises(RemoteError) as raised:
        append(log, batch(b"x" * 100))
    assert raised.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.log_end == 0


def test_a_refused_batch_changes_nothing() -> None:
    disk = new_disk()
    log = open_in(disk)
    append(log, batch(b"a", producer_id=1, epoch=0, sequence=0))
    before = file_contents(disk)
    for bad in (
        batch(b"a", producer_id=1, epoch=0, sequence=5),
        batch(b"a")[:-1] + b"?",
        batch(b"a", timestamp=NOW_MS * 2),
    ):
        with pytest.raises(RemoteError):
            append(log, bad, leader_epoch=9)
    assert file_contents(disk) == before
    assert (log.log_end, log.epochs.latest) == (1, 0)


def test_a_retry_gets_the_offsets_it_got_before() -> None:
    log = open_in(new_disk())
    sent = batch(b"a", b"b", producer_id=1, epoch=0, sequence=0)
    append(log, batch(b"first"))
    original = append(log, sent)
    again = append(log, sent)
    assert again.is_duplicate
    assert (again.base_offset, again.last_offset) == (original.base_offset, original.last_offset) == (1, 2)
    assert log.log_end == 3


def numbered(sequence: int) -> bytes:
    return batch(b"%02d" % sequence, producer_id=1, epoch=0, sequence=sequence)


def after_a_restart() -> Log:
    """Five batches of one producer in a log of five segments, with others between them, and a clean stop."""
    disk = new_disk()
    settings = config(segment_bytes=SIZE * 4, index_interval_bytes=0)
    log = open_in(disk, settings)
    for sequence in range(5):
        append(log, numbered(sequence))
        for _ in range(3):
            append(log, batch(b"00"))
    log.close(NOW_MS)
    return open_in(disk, settings, clean=True, recovery_point=20)


@pytest.mark.parametrize("sequence", range(4))
def test_a_retry_of_an_older_batch_after_a_restart_is_looked_for_in_a_thread(sequence: int) -> None:
    log = after_a_restart()
    sent = numbered(sequence)
    assert log.takes_long(sent, 0, len(sent), NOW_MS)
    prepared = log.prepare(sent, 0, len(sent), NOW_MS)
    prepared.run(lambda: None)
    assert log.producers.states.may_be_older_duplicate(1, 0, sequence), "nothing changes off the loop"
    result = log.append_prepared(prepared, 0, NOW_MS)
    assert result.is_duplicate
    assert result.base_offset == sequence * 4
    assert not log.takes_long(sent, 0, len(sent), NOW_MS), "once a producer"
    assert append(log, sent).base_offset == sequence * 4
    following = numbered(5)
    assert not log.takes_long(following, 0, len(following), NOW_MS)
    assert append(log, following).base_offset == 20


def test_what_was_found_off_the_loop_is_not_taken_where_the_producer_has_gone_on() -> None:
    log = after_a_restart()
    sent = numbered(1)
    prepared = log.prepare(sent, 0, len(sent), NOW_MS)
    append(log, numbered(5))
    prepared.run(lambda: None)
    assert log.append_prepared(prepared, 0, NOW_MS).base_offset == 4


def test_a_retry_is_not_taken_for_a_batch_of_an_earlier_epoch_with_the_same_sequence() -> None:
    disk = new_disk()
    log = open_in(disk)
    for epoch, sequence in ((0, 0), (0, 1), (1, 0), (1, 1)):
        append(log, batch(b"v", producer_id=1, epoch=epoch, sequence=sequence))
    log.close(NOW_MS)
    log = open_in(disk, clean=True, recovery_point=4)
    again = append(log, batch(b"v", producer_id=1, epoch=1, sequence=0))
    assert (again.is_duplicate, again.base_offset, log.log_end) == (True, 2, 4)


def test_a_file_that_is_renamed_under_the_search_for_a_retry_does_no_harm() -> None:
    log = after_a_restart()
    sent = numbered(1)
    prepared = log.prepare(sent, 0, len(sent), NOW_MS)
    segment = log.segments[1]
    segment.add_suffix(".deleted")
    prepared.run(lambda: None)
    segment.remove_suffix(".deleted")
    assert log.append_prepared(prepared, 0, NOW_MS).base_offset == 4


@pytest.mark.parametrize("is_recent", [True, False])
def test_a_read_that_cannot_open_its_file_again_takes_the_log_offline(is_recent: bool) -> None:
    """Handles go when others need the room. A bare OSError would leave whoever reads without an answer."""
    disk = new_disk()
    log = open_in(disk, config(segment_bytes=SIZE * 4))
    for number in range(10):
        append(log, batch(b"%02d" % number))
    segment = log.segments[-1 if is_recent else 0]
    job = log.begin_read(0, 1 << 20, log.log_end)
    assert isinstance(job, ReadJob)
    job.run()
    segment.log.discard()
    disk.faults.append(Fault(Effect.FAIL, "open", segment.log.path))
    read = partial(log.begin_read, 9, 1 << 20, log.log_end) if is_recent else partial(log.finish_read, job)
    with pytest.raises(StorageError):
        read()
    assert log.failure is not None


def test_a_follower_keeps_offsets_and_epochs_as_they_come() -> None:
    leader = open_in(new_disk(), config(segment_bytes=SIZE * 4))
    for number in range(10):
        append(leader, batch(b"%02d" % number), leader_epoch=number // 4)
    disk = new_disk()
    follower = open_in(disk, config(segment_bytes=SIZE * 4))
    while follower.log_end < leader.log_end:
        found = leader.read(follower.log_end, SIZE * 3 + 20, leader.log_end)
        data = found.read()
        found.release()
        follower.append_as_follower(data, 0, len(data), 2, NOW_MS)
    assert [(b.base_offset, b.leader_epoch, b.crc) for b in read_all(follower)] == [
        (b.base_offset, b.leader_epoch, b.crc) for b in read_all(leader)
    ]
    assert follower.epochs.entries() == leader.epochs.entries()


def test_a_follower_goes_on_past_what_its_leader_has_cleaned_away() -> None:
    log = open_in(new_disk(), config(segment_bytes=SIZE * 2))
    for offset in (5, 9, 40, 41, 100):
        data = batch(b"00", base_offset=offset, leader_epoch=0)
        log.append_as_follower(data, 0, len(data), 0, NOW_MS)
    assert [b.base_offset for b in read_all(log)] == [5, 9, 40, 41, 100]
    assert [b.base_offset for b in read_batches(log, 6)] == [9]
    assert [b.base_offset for b in read_batches(log, 42)] == [100]
    assert log.log_end == 101


def test_the_high_watermark_stays_inside_the_log() -> None:
    log = open_in(new_disk(), high_watermark=0)
    log.append_as_leader(batch(b"a"), 0, len(batch(b"a")), 0, NOW_MS)
    assert log.high_watermark == 0
    log.update_high_watermark(5)
    assert log.high_watermark == 1
    with pytest.raises(RemoteError):
        log.advance_log_start(2)
    assert log.advance_log_start(1)
    assert not log.advance_log_start(0)
    assert (log.log_start, log.recovery_point) == (1, 0), "moving the start makes nothing durable"


def test_truncating_removes_everything_from_the_offset_on() -> None:
    disk = new_disk()
    log = open_in(disk, config(segment_bytes=SIZE * 3, index_interval_bytes=0))
    for number in range(10):
        append(log, batch(b"%02d" % number), leader_epoch=number)
    log.flush(NOW_MS)
    assert log.recovery_point == 10
    assert log.truncate_to(4, NOW_MS)
    assert (log.log_end, log.high_watermark, log.recovery_point) == (4, 4, 4)
    assert [b.base_offset for b in read_all(log)] == [0, 1, 2, 3]
    assert log.epochs.latest == 3
    assert [name for name in file_contents(disk) if name.endswith(".log")] == [
        "00000000000000000000.log",
        "00000000000000000003.log",
    ]
    assert append(log, batch(b"04"), leader_epoch=11).base_offset == 4
    assert not log.truncate_to(99, NOW_MS)
    log.close(NOW_MS)
    again = open_in(disk, log.config, clean=True, recovery_point=5)
    assert [b.leader_epoch for b in read_all(again)] == [0, 1, 2, 3, 11]


def test_what_is_appended_after_a_cut_is_read_where_it_lies_now() -> None:
    """The last batches are remembered, so that finding them reads nothing: those that were cut must be forgotten."""
    log = open_in(new_disk())
    for number in range(6):
        append(log, batch(b"x" * (10 + number * 37)))
    log.truncate_to(2, NOW_MS)
    for number in range(6):
        append(log, batch(b"y" * (200 + number * 11)))
    for offset in range(8):
        assert read_batches(log, offset, max_bytes=1)[0].base_offset == offset


def test_truncating_inside_a_batch_removes_the_whole_batch() -> None:
    log = open_in(new_disk())
    append(log, batch(b"a", b"b"))
    append(log, batch(b"c", b"d"))
    log.truncate_to(3, NOW_MS)
    assert [b.base_offset for b in read_all(log)] == [0]


def test_starting_over_elsewhere_leaves_one_empty_segment() -> None:
    disk = new_disk()
    log = open_in(disk, config(segment_bytes=SIZE * 3))
    for number in range(10):
        append(log, batch(b"%02d" % number, producer_id=1, epoch=0, sequence=number))
    log.truncate_fully_and_start_at(50, NOW_MS)
    assert (log.log_start, log.high_watermark, log.log_end, log.size) == (50, 50, 50, 0)
    assert len(log.producers.states) == 0
    assert sorted(file_contents(disk)) == [
        f"{50:020}.index",
        f"{50:020}.log",
        f"{50:020}.timeindex",
    ]
    assert append(log, batch(b"x", producer_id=1, epoch=0, sequence=10)).base_offset == 50


def test_offsets_by_timestamp() -> None:
    log = open_in(new_disk(), config(segment_bytes=400, index_interval_bytes=0))
    for start in (100, 50, 200, 200, 150, 300):
        append(log, batch(b"a", b"b", timestamp=start))

    def find(timestamp: int, upper: int = 12) -> tuple[int, int] | None:
        found = log.offset_for_timestamp(timestamp, upper)
        return None if found is None else (found.offset, found.timestamp)

    assert find(0) == (0, 100)
    assert find(101) == (1, 101)
    assert find(102) == (4, 200)
    assert find(201) == (5, 201)
    assert find(250) == (10, 300)
    assert find(302) is None
    assert find(300, upper=10) is None
    largest = log.max_timestamp()
    assert largest is not None
    assert (largest.offset, largest.timestamp, largest.leader_epoch) == (11, 301, 0)
    log.advance_log_start(3)
    assert find(0) == (3, 51)


@pytest.mark.parametrize("timestamp", [0, 1])
def test_a_log_of_the_earliest_timestamps_finds_them_after_a_restart_too(timestamp: int) -> None:
    """The one entry of such a time index is twelve zero bytes, as are the slots that Kafka preallocates."""
    disk = new_disk()
    log = open_in(disk)
    for _ in range(3):
        append(log, batch(b"v", timestamp=timestamp))
    log.roll(NOW_MS)
    append(log, batch(b"v"))
    log.close(NOW_MS)
    name = "00000000000000000000.timeindex"
    entry = file_contents(disk)[name]
    assert len(entry) == 12
    again = open_in(disk, clean=True, recovery_point=4)
    found = again.offset_for_timestamp(0, 4)
    assert found is not None
    assert (found.offset, found.timestamp) == (0, timestamp)
    job = again.begin_aging(NOW_MS)
    assert job is not None
    job.run()
    again.learn_timestamps(job)
    assert again.segments[0].largest_timestamp() == timestamp
    again.close(NOW_MS)
    assert file_contents(disk)[name] == entry


def test_a_search_by_timestamp_reads_from_where_the_indexes_say() -> None:
    disk = new_disk()
    log = open_in(disk, config(index_interval_bytes=500))
    for number in range(500):
        append(log, batch(bytes(100), timestamp=NOW_MS + number))
    assert len(log.segments) == 1
    read = 0

    def count(operation: str, path: str, position: int, size: int) -> None:
        nonlocal read
        if operation == "read" and path.endswith(".log"):
            read += size

    disk.on_operation = count
    found = log.offset_for_timestamp(NOW_MS + 490, 500)
    assert found is not None
    assert found.offset == 490
    size = log.segments[0].size
    assert 0 < read < size // 5, f"{read} bytes of {size} were read for one of the last batches"


@pytest.mark.parametrize("closes", [False, True])
def test_what_kafka_preallocated_of_an_index_goes_when_its_segment_is_rolled_or_closed(closes: bool) -> None:
    disk = new_disk()
    settings = config(index_interval_bytes=500, segment_index_bytes=2400)
    log = open_in(disk, settings)
    for number in range(50):
        append(log, batch(bytes(100), timestamp=NOW_MS + number))
    log.close(NOW_MS)
    indexes = {name: data for name, data in file_contents(disk).items() if name.endswith("index")}
    assert all(indexes.values())
    for name in indexes:
        file = disk.open(f"{DIRECTORY}/{name}")
        file.truncate(2400)
        file.close()
    again = open_in(disk, settings, clean=True, recovery_point=50)
    assert again.log_end == 50
    if closes:
        again.close(NOW_MS)
    else:
        again.roll(NOW_MS)
    after = file_contents(disk)
    assert {name: after[name] for name in indexes} == indexes


def test_a_search_in_a_batch_of_many_records_lets_others_run() -> None:
    log = open_in(new_disk(), config())
    append(log, batch(*[b""] * 5000, timestamp=100))
    job = log.begin_find(100 + 4999, 5000)
    assert job is not None
    breaths: list[int] = []
    job.run(lambda: breaths.append(1))
    found = log.finish_find(job)
    assert isinstance(found, TimestampedOffset)
    assert found.offset == 4999
    assert len(breaths) >= 5


def test_an_empty_log_has_no_timestamps() -> None:
    log = open_in(new_disk())
    assert log.offset_for_timestamp(0, 0) is None
    assert log.max_timestamp() is None


def test_where_no_record_has_a_timestamp_the_largest_is_that_of_the_first_as_in_kafka() -> None:
    log = open_in(new_disk(), config())
    for _ in range(3):
        append(log, batch(b"x", timestamp=-1))
    largest = log.max_timestamp()
    assert largest is not None
    assert (largest.offset, largest.timestamp, largest.leader_epoch) == (0, -1, 0)


def test_flushing_is_asked_for_by_count_and_by_time() -> None:
    log = open_in(new_disk(), config(flush_messages=3, flush_ms=1000))
    append(log, batch(b"a", b"b"))
    assert not log.needs_flush(NOW_MS + 999)
    assert log.needs_flush(NOW_MS + 1000)
    append(log, batch(b"c"))
    assert log.flushes_before_ack
    assert log.needs_flush(NOW_MS)
    job = log.begin_flush(NOW_MS)
    append(log, batch(b"d"))
    job.run()
    log.finish_flush(job)
    assert (log.recovery_point, log.log_end) == (3, 4)


def test_a_clock_that_was_set_back_delays_no_flush_by_more_than_its_time() -> None:
    log = open_in(new_disk(), config(flush_ms=1000))
    append(log, batch(b"a"))
    earlier_ms = NOW_MS - 3_600_000
    assert not log.needs_flush(earlier_ms)
    assert not log.needs_flush(earlier_ms + 999)
    assert log.needs_flush(earlier_ms + 1000)


def test_a_rolled_segment_waits_for_its_flush() -> None:
    log = open_in(new_disk(), config(segment_bytes=SIZE * 2))
    for number in range(3):
        append(log, batch(b"%02d" % number))
    assert log.needs_flush(NOW_MS)
    job = log.begin_flush(NOW_MS, rolled_only=True)
    job.run()
    log.finish_flush(job)
    assert log.recovery_point == 2
    assert not log.needs_flush(NOW_MS)


def test_a_closed_log_opens_with_the_same_batches_and_goes_on() -> None:
    disk = new_disk()
    settings = config(segment_bytes=300)
    log = open_in(disk, settings)
    for number in range(20):
        append(log, batch(b"%d" % number))
    log.close(NOW_MS)
    again = open_in(disk, settings, clean=True, recovery_point=20)
    assert [found.base_offset for found in read_all(again)] == list(range(20))
    assert append(again, batch(b"next")).base_offset == 20


def test_opening_after_a_clean_stop_reads_hardly_any_data() -> None:
    disk = new_disk()
    settings = config(segment_bytes=200_000, index_interval_bytes=4096)
    log = open_in(disk, settings)
    for number in range(1000):
        append(log, batch(b"x" * 1000, producer_id=number % 7, epoch=0, sequence=number // 7))
    log.close(NOW_MS)
    read = {"bytes": 0}

    def count(operation: str, path: str, position: int, size: int) -> None:
        if operation == "read" and path.endswith(".log"):
            read["bytes"] += size

    disk.on_operation = count
    again = open_in(disk, settings, clean=True, recovery_point=1000)
    assert again.log_end == 1000
    assert read["bytes"] <= 4096 + 2 * 1100


def test_a_log_of_many_segments_keeps_few_files_open() -> None:
    disk = new_disk()
    files = OpenFiles(disk, 20)
    log = open_in(disk, config(segment_bytes=SIZE * 2, index_interval_bytes=0), files=files)
    for number in range(100):
        append(log, batch(b"%02d" % number))
    assert len(read_all(log)) == 100
    assert len(files) <= 20
    log.flush(NOW_MS)
    log.close(NOW_MS)
    assert len(files) == 0


def test_a_flush_that_cannot_open_a_file_fails_its_log_and_counts_nothing_as_synced() -> None:
    """It once took files that it had opened before for synced; the next flush left them out (D5, D3)."""
    disk = new_disk()
    files = OpenFiles(disk, 8)
    log = open_in(disk, config(segment_bytes=SIZE * 2), files=files)
    for number in range(40):
        append(log, batch(b"%02d" % number))
    dirty = [segment for segment in log.segments if segment.log.dirty]
    disk.faults.append(Fault(Effect.FAIL, "open", dirty[-2].log.path))
    with pytest.raises(StorageError):
        log.flush(NOW_MS)
    assert log.failure is not None
    assert [segment for segment in log.segments if segment.log.dirty] == dirty
    assert log.recovery_point == 0


def test_a_flush_holds_few_files_open_however_many_segments_are_not_synced() -> None:
    """After a kill within a minute of 335 rolls a broker that may open 1,024 files ended, at every start again."""
    disk = new_disk()
    log = open_in(disk, config(segment_bytes=SIZE, flush_ms=1000), files=OpenFiles(disk, 8))
    for number in range(700):
        append(log, batch(b"%02d" % (number % 100)))
    points = [0]
    while log.needs_flush(NOW_MS):
        job = log.begin_flush(NOW_MS)
        assert job.files <= 128 + 4
        job.run()
        log.finish_flush(job)
        points.append(log.recovery_point)
    assert points == sorted(set(points))
    assert len(points) > 700 * 2 // 132
    assert log.recovery_point == log.log_end == 700
    assert not any(ref.dirty for segment in log.segments for ref in segment.refs())


def test_all_of_a_log_is_flushed_at_once_where_that_is_asked_for() -> None:
    disk = new_disk()
    log = open_in(disk, config(segment_bytes=SIZE), files=OpenFiles(disk, 8))
    for number in range(300):
        append(log, batch(b"%02d" % (number % 100)))
    log.flush(NOW_MS)
    assert log.recovery_point == 300
    disk.power_loss()
    assert len(read_all(open_in(disk, config(segment_bytes=SIZE), recovery_point=300))) == 300


def test_the_settings_of_a_log_can_change_while_it_runs() -> None:
    log = open_in(new_disk(), config(segment_bytes=SIZE * 100))
    append(log, batch(b"00"))
    log.config = config(segment_bytes=SIZE, max_message_bytes=SIZE)
    append(log, batch(b"01"))
    assert len(log.segments) == 2
    with pytest.raises(RemoteError):
        append(log, batch(b"too long"))


def test_the_quorum_appends_control_batches_of_its_own() -> None:
    log = open_in(new_disk())
    data = build_control_batch([(2, b"\0\0")], 0, NOW_MS, 1)
    assert append(log, data, leader_epoch=1, origin=Origin.RAFT).base_offset == 0
    assert read_all(log)[0].is_control


def test_new_files_are_named_after_their_offsets() -> None:
    disk = new_disk()
    open_in(disk, log_start=8775)
    assert disk.list_directory(DIRECTORY) == [
        "00000000000000008775.index",
        "00000000000000008775.log",
        "00000000000000008775.timeindex",
    ]


class OddFiles(MortalFileSystem):
    """Fails as no file system is known to."""

    is_odd = False

    def sync_directory(self, path: str) -> None:
        if self.is_odd:
            raise ValueError("nobody expects this")
        super().sync_directory(path)


@pytest.mark.parametrize("retires", [False, True])
def test_a_job_that_did_not_come_to_its_end_does_not_pass_for_done(tmp_path: Path, retires: bool) -> None:
    files = OddFiles()
    log = open_in(files, config(retention_bytes=0), directory=str(tmp_path / "orders-0"))
    append(log, batch(b"a"))
    log.roll(NOW_MS)
    files.is_odd = True
    work = log.delete_old_segments if retires else log.flush
    with pytest.raises(StorageError, match="nobody expects this"):
        work(NOW_MS)
    assert log.recovery_point == 0
    assert log.failure is not None


def a_mistake_at(suffix: str) -> Callable[[str, str, int, int], None]:
    """A disk that has an error of ours come up at the next write to such a file: no error of a disk."""
    left = [AssertionError("nobody has thought of this")]

    def fail(operation: str, path: str, position: int, size: int) -> None:
        if operation == "write" and path.endswith(suffix) and left:
            raise left.pop()

    return fail


@pytest.mark.parametrize("is_leader", [True, False])
def test_a_batch_whose_append_a_mistake_of_ours_ends_half_way_is_never_appended_again(is_leader: bool) -> None:
    """Between its bytes and its producer's state: what is known of the log is not used, and a start reads it anew."""

    def take(log: Log, sequence: int) -> int:
        value = b"%02d" % sequence
        if is_leader:
            return append(log, batch(value, producer_id=7, epoch=0, sequence=sequence)).base_offset
        data = batch(value, producer_id=7, epoch=0, sequence=sequence, base_offset=sequence, leader_epoch=0)
        return log.append_as_follower(data, 0, len(data), 0, NOW_MS).base_offset

    disk = new_disk()
    log = open_in(disk, config(index_interval_bytes=0))
    assert [take(log, 0), take(log, 1)] == [0, 1]
    disk.on_operation = a_mistake_at(".index")
    with pytest.raises(StorageError) as failed:
        take(log, 2)
    assert isinstance(failed.value.mistake, AssertionError)
    assert failed.value.cause is None, "the disk has not failed"
    with pytest.raises(StorageError) as again:
        take(log, 2)
    assert again.value is failed.value
    log.close(NOW_MS)
    for clean in (True, False):
        back = open_in(disk.fork(), config(index_interval_bytes=0), clean=clean, recovery_point=2)
        assert [found.base_offset for found in read_all(back)] == [0, 1, 2]
        retry = batch(b"02", producer_id=7, epoch=0, sequence=2)
        assert append(back, retry).is_duplicate
