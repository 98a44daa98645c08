"""A disk that changed bytes by itself: what a damaged index costs, and what damaged batches cost (D4)."""

import pytest

from mainstem.core.log.producers import Origin
from mainstem.sim.disk import SimDisk
from mainstem.storage.checkpoint import read_file
from mainstem.storage.errors import StorageError
from mainstem.storage.log import Log
from mainstem.storage.reading import ReadJob
from mainstem.storage.timestamps import TimestampedOffset, TimestampJob
from tests.support.logs import (
    DIRECTORY,
    NOW_MS,
    append,
    batch,
    config,
    file_contents,
    marker,
    new_disk,
    open_in,
    read_all,
    read_batches,
)

SIZE = len(batch(b"00"))
SETTINGS = config(segment_bytes=SIZE * 8, index_interval_bytes=0)
COUNT = 20
INDEX = f"{DIRECTORY}/{0:020}.index"
TIME_INDEX = f"{DIRECTORY}/{0:020}.timeindex"
LOG = f"{DIRECTORY}/{0:020}.log"
LAST_LOG = f"{DIRECTORY}/{16:020}.log"


def closed(count: int = COUNT) -> SimDisk:
    """A disk with a log of so many batches, eight a segment, closed cleanly."""
    disk = new_disk()
    log = open_in(disk, SETTINGS)
    for number in range(count):
        append(log, batch(b"%02d" % number, timestamp=NOW_MS + number), leader_epoch=number // 5)
    log.close(NOW_MS)
    return disk


def reopened(disk: SimDisk) -> Log:
    return open_in(disk, SETTINGS, clean=True, recovery_point=COUNT)


def first_offset_read(log: Log, offset: int) -> int:
    return read_batches(log, offset, max_bytes=1)[0].base_offset


def reindex(log: Log) -> int:
    count = 0
    while (job := log.begin_reindexing()) is not None:
        job.run()
        log.finish_reindexing(job)
        count += 1
    return count


@pytest.mark.parametrize("bit", range(64))
def test_no_bit_of_an_index_entry_keeps_a_record_from_its_reader(bit: int) -> None:
    disk = closed()
    sound = disk.peek(INDEX)
    disk.flip_bit(INDEX, 3 * 64 + bit)
    log = reopened(disk)
    assert [first_offset_read(log, offset) for offset in range(COUNT)] == list(range(COUNT))
    assert log.failure is None
    noticed = len(log.damaged_indexes)
    assert reindex(log) == noticed
    assert (disk.peek(INDEX) == sound) == (noticed == 1), "what led nobody astray may stay"
    assert [first_offset_read(log, offset) for offset in range(COUNT)] == list(range(COUNT))


@pytest.mark.parametrize("path", [INDEX, TIME_INDEX])
def test_a_missing_index_is_built_anew_off_the_loop_and_reads_do_not_wait_for_it(path: str) -> None:
    disk = closed()
    sound = disk.peek(path)
    disk.remove(path)
    log = reopened(disk)
    job = log.begin_read(3, 1 << 20, log.high_watermark)
    assert isinstance(job, ReadJob)
    assert not job.try_run(), "the loop must not walk through a segment"
    assert not disk.exists(path)
    job.run()
    found = log.finish_read(job)
    assert not isinstance(found, ReadJob)
    assert found.base_offset == 3
    found.release()
    assert reindex(log) == 1
    assert disk.peek(path) == sound


def test_an_index_entry_that_is_wrong_is_built_anew_as_it_was() -> None:
    disk = closed()
    sound = disk.peek(INDEX)
    told: list[int] = []
    disk.flip_bit(INDEX, 3 * 64 + 63 - 3)  # the position of the fourth entry
    log = reopened(disk)
    log.on_damaged_index = lambda: told.append(1)
    assert first_offset_read(log, 4) == 4
    assert first_offset_read(log, 4) == 4
    assert told == [1], "once a segment"
    assert reindex(log) == 1
    assert disk.peek(INDEX) == sound
    assert log.damaged_indexes == {}


@pytest.mark.parametrize("bit", [2, 20])
def test_an_index_that_is_built_anew_says_so_where_it_meets_an_offset_that_its_segment_cannot_have(bit: int) -> None:
    """Seed 511517: the job ended in an error that nobody took."""
    disk = closed()
    disk.remove(INDEX)
    disk.flip_bit(LOG, 4 * SIZE * 8 + bit)
    log = reopened(disk)
    assert first_offset_read(log, 1) == 1
    job = log.begin_reindexing()
    assert job is not None
    job.run()
    with pytest.raises(StorageError, match="where 4 is next"):
        log.finish_reindexing(job)


@pytest.mark.parametrize("bit", [2, 20, 63 - 1])
def test_a_start_that_builds_an_index_anew_says_so_where_it_meets_such_an_offset(bit: int) -> None:
    """Seed 60005970: an assertion was the end of the start, for one partition's damage."""
    disk = closed()
    disk.remove(f"{DIRECTORY}/{8:020}.timeindex")
    disk.flip_bit(f"{DIRECTORY}/{8:020}.log", 4 * SIZE * 8 + bit)
    with pytest.raises(StorageError, match="is next"):
        open_in(disk, SETTINGS, clean=False, recovery_point=16)


def test_a_search_by_time_finds_its_record_though_an_index_is_wrong() -> None:
    disk = closed()
    disk.flip_bit(INDEX, 3 * 64 + 63 - 3)
    log = reopened(disk)
    found = log.offset_for_timestamp(NOW_MS + 4, COUNT)
    assert found is not None
    assert found.offset == 4


@pytest.mark.parametrize("largest", [False, True])
def test_the_first_search_by_time_opens_the_indexes_of_a_log_off_the_loop(largest: bool) -> None:
    """A log may have thousands of segments. On the loop one of them is opened; the job opens the rest, and no more than
    it needs."""
    disk = new_disk()
    settings = config(segment_bytes=SIZE * 2)
    log = open_in(disk, settings)
    for number in range(200):
        append(log, batch(b"%02d" % (number % 100), timestamp=NOW_MS + number))
    log.close(NOW_MS)
    log = open_in(disk, settings, clean=True, recovery_point=200)
    opened: list[str] = []
    disk.on_operation = lambda operation, path, position, size: opened.append(path) if operation == "open" else None
    step: TimestampJob | TimestampedOffset | None = (
        log.begin_find_max() if largest else log.begin_find(NOW_MS + 100, 200)
    )
    in_thread = 0
    while isinstance(step, TimestampJob):
        before = len(opened)
        step.run()
        in_thread += len(opened) - before
        step = log.finish_find(step)
    assert step is not None
    assert step.offset == (199 if largest else 100)
    assert in_thread >= (99 if largest else 50)
    assert in_thread <= (100 if largest else 51)
    assert len(opened) - in_thread <= 6


def test_a_segment_that_is_compacted_under_a_search_by_time_does_no_harm() -> None:
    disk = closed()
    log = reopened(disk)
    job = log.begin_find_max()
    assert job is not None
    gone = [log.segments[1].log.path, log.segments[1].time_index.ref.path]
    for path in gone:
        disk.rename(path, path + ".deleted")
    job.run()
    for path in gone:
        disk.rename(path + ".deleted", path)
    assert isinstance(job.error, FileNotFoundError)
    log._generation += 1  # as the swap did that renamed it
    step: TimestampJob | TimestampedOffset | None = log.finish_find(job)
    while isinstance(step, TimestampJob):
        step.run()
        step = log.finish_find(step)
    assert step is not None
    assert (step.offset, log.failure) == (COUNT - 1, None)


@pytest.mark.parametrize("path", [INDEX, TIME_INDEX])
def test_a_search_by_time_builds_no_index_on_the_loop(path: str) -> None:
    """What walks through a segment is the job's `run`, which is for a thread."""
    disk = closed()
    sound = disk.peek(path)
    disk.remove(path)
    for largest in (False, True):
        log = reopened(disk)
        step: TimestampJob | TimestampedOffset | None = log.begin_find(NOW_MS + 4, COUNT)
        if largest:
            step = log.begin_find_max()
        jobs = 0
        while isinstance(step, TimestampJob):
            assert not disk.exists(path)
            step.run()
            step = log.finish_find(step)
            jobs += 1
        assert step is not None
        assert (step.offset, jobs) == (COUNT - 1 if largest else 4, 2)
        assert list(log.damaged_indexes) == [log.segments[0]]
    assert reindex(log) == 1
    assert disk.peek(path) == sound
    assert log.max_timestamp() is not None


def test_retention_builds_no_index_on_the_loop_and_goes_on_once_it_is_there() -> None:
    disk = closed()
    disk.remove(TIME_INDEX)
    log = reopened(disk)
    log.config = config(segment_bytes=SIZE * 8, index_interval_bytes=0, retention_ms=1000)
    later_ms = NOW_MS + 100_000
    assert log.begin_retirement(later_ms) is None
    assert not disk.exists(TIME_INDEX)
    assert reindex(log) == 1
    assert log.delete_old_segments(later_ms) == 3
    assert log.log_start == COUNT


def test_a_damaged_batch_fails_its_log_and_is_no_failure_of_the_disk() -> None:
    disk = closed()
    disk.flip_bit(LOG, (2 * SIZE + 16) * 8 + 3)
    log = reopened(disk)
    with pytest.raises(StorageError) as raised:
        log.read(2, 1, COUNT)
    assert raised.value.cause is None
    assert log.failure is raised.value


def test_a_damaged_transaction_index_fails_its_log_and_is_no_failure_of_the_disk() -> None:
    disk = new_disk()
    log = open_in(disk, SETTINGS)
    append(log, batch(b"a", producer_id=1, epoch=0, sequence=0, transactional=True))
    append(log, marker(1, 0, commit=False), origin=Origin.COORDINATOR)
    log.close(NOW_MS)
    disk.flip_bit(f"{DIRECTORY}/{0:020}.txnindex", 3)
    log = open_in(disk, SETTINGS, clean=True, recovery_point=2)
    found = log.read(0, 1 << 20, 2)
    with pytest.raises(StorageError) as raised:
        log.aborted_transactions_in(found, 2)
    found.release()
    assert raised.value.cause is None
    assert log.failure is raised.value


def test_a_segment_that_ends_inside_a_batch_fails_its_log_where_it_would_pass_over_records() -> None:
    disk = closed()
    disk.cut_file(LOG, 8 * SIZE - 10)
    log = reopened(disk)
    with pytest.raises(StorageError, match="are left"):
        log.read(7, 1, COUNT)


@pytest.mark.parametrize("missing", [1, SIZE - 1, SIZE, 2 * SIZE, 4 * SIZE])
def test_a_log_that_was_cut_short_after_a_clean_stop_is_not_written_on(missing: int) -> None:
    disk = closed()
    disk.cut_file(LAST_LOG, 4 * SIZE - missing)
    before = file_contents(disk)[LAST_LOG.rpartition("/")[2]]
    for _ in range(2):
        with pytest.raises(StorageError):
            reopened(disk)
    assert read_file(disk, LAST_LOG) == before


def test_a_log_whose_last_segment_is_gone_after_a_clean_stop_is_not_written_on() -> None:
    disk = closed()
    disk.remove(LAST_LOG)
    with pytest.raises(StorageError, match="up to 20 it was durable"):
        reopened(disk)


def test_bytes_behind_the_last_batch_after_a_clean_stop_are_not_taken_for_the_end_of_the_log() -> None:
    disk = closed()
    file = disk.open(LAST_LOG)
    file.write_at(4 * SIZE, [bytes(77)])
    file.close()
    with pytest.raises(StorageError):
        reopened(disk)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("text", [b"\xff\xfe", b"0\n1\n", b"7\n0\n", b"0\n1\n1 x\n"])
def test_leader_epochs_whose_file_makes_no_sense_are_found_in_the_batches(text: bytes, clean: bool) -> None:
    disk = closed()
    sound = disk.peek(f"{DIRECTORY}/leader-epoch-checkpoint")
    file = disk.open(f"{DIRECTORY}/leader-epoch-checkpoint")
    file.truncate(0)
    file.write_at(0, [text])
    file.close()
    log = open_in(disk, SETTINGS, clean=clean, recovery_point=COUNT - 1)
    assert [(entry.epoch, entry.start_offset) for entry in log.epochs.entries()] == [(0, 0), (1, 5), (2, 10), (3, 15)]
    assert [found.base_offset for found in read_all(log)] == list(range(COUNT))
    log.close(NOW_MS)
    assert disk.peek(f"{DIRECTORY}/leader-epoch-checkpoint") == sound


def test_a_reader_that_began_before_an_index_was_built_anew_does_not_have_it_built_again() -> None:
    disk = closed()
    disk.remove(INDEX)
    log = reopened(disk)
    early, late = log.begin_read(3, 1, COUNT), log.begin_read(4, 1, COUNT)
    for number, job in enumerate((early, late)):
        assert isinstance(job, ReadJob)
        job.run()
        found = log.finish_read(job)
        assert not isinstance(found, ReadJob)
        found.release()
        assert reindex(log) == (1 if number == 0 else 0)


def test_retention_knows_the_newest_record_of_a_segment_whose_indexes_were_built_anew_by_the_run_before() -> None:
    """The last entry of the time index is all that a start reads of it: without it a segment goes before its time."""
    disk = new_disk()
    settings = config(retention_ms=1000, segment_bytes=100_000, index_interval_bytes=100)
    log = open_in(disk, settings)
    for number in range(3):
        append(log, batch(b"x" * 150, timestamp=NOW_MS - 5000 + number))
    append(log, batch(b"y", timestamp=NOW_MS - 4000))
    append(log, batch(b"newest", timestamp=NOW_MS))
    log.roll(NOW_MS)
    for _ in range(3):
        append(log, batch(b"z"))
        log.roll(NOW_MS)
    log.flush(NOW_MS)
    end = log.log_end
    index = disk.open(INDEX)
    index.truncate(0)
    index.write_at(0, [b"\xff" * 16])
    index.sync()
    log = open_in(disk, settings, recovery_point=end)
    assert not log.has_sound_indexes(log.segments[0])
    assert reindex(log) == 1
    log = open_in(disk, settings, recovery_point=end)
    assert log.delete_old_segments(NOW_MS + 10) == 0
    assert log.delete_old_segments(NOW_MS + 1001) > 0


@pytest.mark.parametrize("more", [1, 2])
def test_a_log_closes_though_its_time_index_names_an_offset_that_is_not_there(more: int) -> None:
    """The assertion that entries come in order ended the broker's stop (seed 1004225)."""
    disk = closed()
    index = disk.open(f"{DIRECTORY}/{16:020}.timeindex")
    index.write_at(index.size() - 4, [(1 << 20).to_bytes(4, "big")])
    log = reopened(disk)
    for number in range(COUNT, COUNT + more):
        append(log, batch(b"%02d" % number, timestamp=NOW_MS + number), leader_epoch=number // 5)
    log.close(NOW_MS)
    expected = file_contents(closed(COUNT + more))
    assert {name: data for name, data in file_contents(disk).items() if not name.endswith(".snapshot")} == {
        name: data for name, data in expected.items() if not name.endswith(".snapshot")
    }, "as if it had never been closed, nor damaged"


@pytest.mark.parametrize(("extension", "bits"), [("index", 64), ("timeindex", 96)])
def test_a_log_takes_what_comes_whichever_bit_of_its_last_index_entry_is_wrong(extension: str, bits: int) -> None:
    """That entries come in order was asserted when the batch was written, which had no answer then (seed 80010732)."""
    for bit in range(bits):
        disk = closed()
        path = f"{DIRECTORY}/{16:020}.{extension}"
        disk.flip_bit(path, (len(disk.peek(path)) - bits // 8) * 8 + bit)
        log = reopened(disk)
        for number in range(COUNT, COUNT + 3):
            appended = append(log, batch(b"%02d" % number, timestamp=NOW_MS + number), leader_epoch=number // 5)
            assert appended.base_offset == number
        assert [first_offset_read(log, offset) for offset in range(COUNT + 3)] == list(range(COUNT + 3)), bit
        log.close(NOW_MS)
