"""Compaction keeps the newest value of each key, disturbs nobody, and says what it could not do."""

import errno
from random import Random

import pytest

from mainstem.core.log.config import LogConfig
from mainstem.protocol.builder import encode_header
from mainstem.protocol.compression import CODEC_NAMES
from mainstem.protocol.records import iterate_records
from mainstem.sim.disk import SimDisk
from mainstem.sim.faults import Effect, Fault
from mainstem.storage.cleaner import Cleaner
from mainstem.storage.cleaning_room import AGAIN_MS, SPARE_BYTES, find_no_room
from mainstem.storage.errors import StorageError
from mainstem.storage.open_files import OpenFiles
from mainstem.storage.reading import ReadJob
from tests.support.compaction import DAY_MS, PARTITION, CompactedLog, compacted
from tests.support.log_files import check_folder
from tests.support.logs import (
    DIRECTORY,
    NOW_MS,
    append,
    batch,
    file_contents,
    new_disk,
    open_in,
    read_all,
    read_batches,
)


def filled(count: int = 40, keys: int = 5, segment_bytes: int = 400, **settings: str | int) -> CompactedLog:
    made = CompactedLog(**{"segment_bytes": segment_bytes, **settings})
    for number in range(count):
        made.put((b"k%d" % (number % keys), b"v%d" % number))
    made.roll()
    return made


# What stays


def test_the_newest_record_of_each_key_stays_where_it_was() -> None:
    made = filled()
    cleaning = made.clean()
    assert cleaning is not None
    assert made.written() == [(offset, b"k%d" % (offset % 5), b"v%d" % offset) for offset in range(35, 40)]
    assert (cleaning.cleaned_to, made.cleaner.offsets[PARTITION]) == (40, 40)
    assert (cleaning.stats.records_read, cleaning.stats.records_kept) == (40, 5)
    assert made.clean() is None


def test_order_and_timestamps_of_a_batch_survive_the_loss_of_its_first_record() -> None:
    made = CompactedLog()
    made.put((b"a", b"1"))
    made.put((b"a", b"2"), (b"b", b"3"), (b"c", b"4"), timestamp=NOW_MS + 9)
    made.put((b"a", b"5"), (b"c", b"6"))
    made.roll_and_clean()
    assert made.written() == [(2, b"b", b"3"), (4, b"a", b"5"), (5, b"c", b"6")]
    first = read_all(made.log)[0]
    assert (first.base_offset, first.last_offset, first.record_count) == (1, 3, 1)
    assert (first.base_timestamp, first.max_timestamp) == (NOW_MS + 9, NOW_MS + 9)
    first.check(first.end)


def test_a_record_without_a_key_has_no_place_in_a_compacted_log() -> None:
    made = CompactedLog(cleanup_policy="delete")
    made.put((None, b"1"), (b"a", b"2"))
    made.config = made.log.config = compacted()
    made.roll_and_clean()
    assert made.written() == [(1, b"a", b"2")]


@pytest.mark.parametrize("codec", range(5), ids=CODEC_NAMES)
def test_a_batch_keeps_its_codec(codec: int) -> None:
    made = CompactedLog()
    made.put(*[(b"k%d" % number, b"v" * 50) for number in range(20)], codec=codec)
    made.put((b"k3", b"new"), (b"k0", b"new"), codec=codec)
    made.roll_and_clean()
    first = read_all(made.log)[0]
    assert first.codec == codec
    first.check(first.end)
    kept = [record.key for record in iterate_records(first)]
    assert kept == [b"k%d" % number for number in range(20) if number not in (0, 3)]


def test_append_time_stays_that_of_the_batch() -> None:
    made = CompactedLog(message_timestamp_type="LogAppendTime")
    made.put((b"a", b"1"), (b"b", b"2"), timestamp=NOW_MS - 100)
    made.put((b"a", None), timestamp=NOW_MS - 50)
    made.roll_and_clean()
    assert {record.timestamp for record in made.records()} == {NOW_MS}
    assert all(batch.is_log_append_time for batch in read_all(made.log))


# Tombstones


def test_a_tombstone_hides_older_values_and_goes_when_its_horizon_has_passed() -> None:
    made = CompactedLog(delete_retention_ms=1000)
    made.put((b"a", b"1"), (b"b", b"2"))
    made.put((b"a", None))
    made.roll_and_clean()
    assert made.written() == [(1, b"b", b"2"), (2, b"a", None)]
    tombstone = read_all(made.log)[1]
    assert tombstone.has_delete_horizon
    assert tombstone.base_timestamp == NOW_MS + 1000
    assert next(iterate_records(tombstone)).timestamp == NOW_MS
    made.roll_and_clean(NOW_MS + 999)
    assert made.written() == [(1, b"b", b"2"), (2, b"a", None)]
    assert read_all(made.log)[1].base_timestamp == NOW_MS + 1000
    made.roll_and_clean(NOW_MS + 1000)
    assert made.written() == [(1, b"b", b"2")]


def test_a_batch_that_is_rewritten_again_keeps_the_horizon_of_its_tombstone() -> None:
    """Or a tombstone beside values that change again and again would never go."""
    made = CompactedLog(delete_retention_ms=1000)
    made.put((b"a", None), (b"b", b"1"), (b"c", b"2"))
    made.roll_and_clean()
    made.put((b"b", b"3"))
    made.roll_and_clean(NOW_MS + 400)
    made.put((b"c", b"4"))
    made.roll_and_clean(NOW_MS + 800)
    first = read_all(made.log)[0]
    assert [record.key for record in iterate_records(first)] == [b"a"]
    assert (first.has_delete_horizon, first.base_timestamp) == (True, NOW_MS + 1000)
    made.roll_and_clean(NOW_MS + 1000)
    assert [(key, value) for _, key, value in made.written()] == [(b"b", b"3"), (b"c", b"4")]


def test_a_batch_that_keeps_no_record_has_no_horizon_either() -> None:
    """Its base timestamp would be read as one."""
    made = CompactedLog(delete_retention_ms=1000)
    made.put_as(7, (b"a", None))
    made.put((b"b", b"1"))
    made.roll_and_clean()
    assert read_all(made.log)[0].has_delete_horizon
    made.roll_and_clean(NOW_MS + 1000)
    first = read_all(made.log)[0]
    assert (first.record_count, first.producer_id, first.base_sequence) == (0, 7, 0)
    assert (first.has_delete_horizon, first.base_timestamp, first.max_timestamp) == (False, -1, NOW_MS)


def test_the_longest_retention_does_not_wrap_around() -> None:
    made = CompactedLog(delete_retention_ms=(1 << 63) - 1)
    made.put((b"a", None))
    made.roll_and_clean()
    made.roll_and_clean(NOW_MS + 1000 * DAY_MS)
    assert made.written() == [(0, b"a", None)]


def test_a_value_after_a_tombstone_wins() -> None:
    made = CompactedLog()
    made.put((b"a", None), (b"a", b"1"))
    made.roll_and_clean()
    assert made.written() == [(1, b"a", b"1")]


# Which log, and how far


@pytest.mark.parametrize("commit", [True, False])
def test_what_a_transaction_replaces_stays_until_its_marker_is_durable(commit: bool) -> None:
    """A power cut could take the marker, and the transaction be ended otherwise."""
    made = CompactedLog()
    made.put((b"k", b"old"))
    made.put_as(7, (b"k", b"new"), transactional=True)
    made.roll()
    made.end(7, commit)
    assert made.log.last_stable_offset == made.log.log_end
    made.clean_all()
    assert made.written() == [(0, b"k", b"old"), (1, b"k", b"new")]
    made.log.flush(NOW_MS)
    made.clean_all()
    assert made.written() == ([(1, b"k", b"new")] if commit else [(0, b"k", b"old")])


def test_a_topic_that_only_deletes_is_never_compacted() -> None:
    made = CompactedLog(cleanup_policy="delete", segment_bytes=400)
    for _ in range(20):
        made.put((b"k", b"v"))
    made.roll()
    assert made.clean() is None


def test_the_dirtiest_log_comes_first() -> None:
    disk = new_disk()
    files = OpenFiles(disk, 100)
    logs = {}
    for number, dirty in enumerate((2, 5, 3)):
        log = open_in(disk, compacted(), directory=f"/data/t-{number}", files=files)
        for _ in range(6):
            append(log, batch(b"%d" % number))
            log.roll(NOW_MS)
        log.flush(NOW_MS)
        logs["t", number] = (log, 6 - dirty)
    cleaner = Cleaner(files, {partition: offset for partition, (_, offset) in logs.items()})
    chosen = cleaner.choose({partition: log for partition, (log, _) in logs.items()}, NOW_MS)
    assert chosen is not None
    assert chosen.partition == ("t", 1)
    cleaner.begin(chosen, NOW_MS)
    chosen = cleaner.choose({partition: log for partition, (log, _) in logs.items()}, NOW_MS)
    assert chosen is not None
    assert chosen.partition == ("t", 2)


def test_small_segments_are_merged_up_to_the_segment_size() -> None:
    made = CompactedLog()
    for number in range(10):
        made.put((b"k%d" % number, b"v"))
        made.log.roll(NOW_MS)
    made.log.flush(NOW_MS)
    made.clean()
    assert [segment.base_offset for segment in made.log.segments] == [0, 10]
    assert len(made.written()) == 10


def test_a_map_that_is_too_small_takes_several_cleanings() -> None:
    made = CompactedLog(buffer_bytes=24 * 8)
    for number in range(60):
        made.put((b"k%d" % (number % 20), b"v%d" % number), (b"k%d" % ((number + 7) % 20), b"w%d" % number))
        if number % 9 == 0:
            made.log.roll(NOW_MS)
    made.roll()
    before = made.table()
    cleanings = made.clean_all()
    assert len(cleanings) > 3
    assert made.table() == before
    assert len(made.written()) == 20


def test_one_batch_with_more_keys_than_the_map_holds_is_cleaned_in_parts() -> None:
    made = CompactedLog(buffer_bytes=24 * 4)
    made.put(*[(b"k%d" % number, b"old") for number in range(50)])
    made.put(*[(b"k%d" % number, b"new") for number in range(50)])
    made.roll()
    assert len(made.clean_all()) > 10
    assert made.written() == [(50 + number, b"k%d" % number, b"new") for number in range(50)]


def test_cleaning_a_clean_log_again_changes_nothing() -> None:
    made = filled()
    made.clean()
    before = made.written()
    made.cleaner.offsets.clear()
    made.clean()
    assert made.written() == before


def test_compact_and_delete_together_also_delete_old_segments() -> None:
    made = CompactedLog(cleanup_policy="compact,delete", retention_ms=DAY_MS)
    made.put((b"a", b"1"), timestamp=NOW_MS - 2 * DAY_MS)
    made.log.roll(NOW_MS)
    made.put((b"b", b"1"), (b"b", b"2"))
    made.roll()
    assert made.log.delete_old_segments(NOW_MS) == 1
    made.clean()
    assert made.written() == [(2, b"b", b"2")]
    assert made.log.log_start == 1


def test_compaction_without_delete_ignores_retention() -> None:
    made = filled(retention_ms=1, retention_bytes=1)
    assert made.log.delete_old_segments(NOW_MS + 10 * DAY_MS) == 0


# The files


def test_the_files_of_a_cleaned_log_say_what_its_batches_say() -> None:
    made = CompactedLog(segment_bytes=2000, index_interval_bytes=100)
    for number in range(200):
        made.put((b"k%d" % (number * number % 23), b"v" * (number % 90)), (b"x", b"y"), timestamp=NOW_MS + number)
    made.roll()
    made.clean()
    for job in made.log.due_removals(NOW_MS + DAY_MS):
        job.run()
    made.log.close(NOW_MS)
    check_folder(file_contents(made.disk), log_start=0)
    assert not [
        name for name in made.disk.list_directory(DIRECTORY) if name.endswith((".swap", ".cleaned", ".deleted"))
    ]


def test_snapshots_of_segments_that_are_no_more_go_with_them() -> None:
    made = CompactedLog()
    for number in range(4):
        made.put_as(5, (b"k%d" % number, b"v"))
        made.log.roll(NOW_MS)
    made.log.flush(NOW_MS)
    assert made.log.producers.snapshots() == [1, 2, 3, 4]
    made.clean()
    assert made.log.producers.snapshots() == [4]
    for job in made.log.due_removals(NOW_MS + DAY_MS):
        job.run()
    assert [name for name in made.disk.list_directory(DIRECTORY) if ".snapshot" in name] == [
        "00000000000000000004.snapshot"
    ]


def test_the_snapshot_of_a_segment_that_another_took_the_name_of_stays() -> None:
    """As in Kafka. It may know producers whose batches were deleted before it."""
    made = CompactedLog(cleanup_policy="compact,delete")
    for number in range(4):
        made.put_as(5, (b"k", b"%d" % number))
        made.log.roll(NOW_MS)
    made.log.flush(NOW_MS)
    made.log.advance_log_start(1)
    assert made.log.delete_old_segments(NOW_MS) == 1
    assert made.log.producers.snapshots() == [1, 2, 3, 4]
    made.clean()
    assert [segment.base_offset for segment in made.log.segments] == [1, 4]
    assert made.log.producers.snapshots() == [1, 4]
    assert made.disk.exists(f"{DIRECTORY}/{1:020}.snapshot")


def test_a_cleaned_log_is_found_again_after_a_restart() -> None:
    for clean in (True, False):
        made = filled()
        made.clean()
        before = made.written(), made.log.log_end, len(made.log.segments)
        made.reopen(clean=clean)
        assert (made.written(), made.log.log_end, len(made.log.segments)) == before


# Not disturbing anyone


def test_a_reader_of_a_replaced_segment_goes_on_reading_it() -> None:
    made = filled()
    found = made.log.read(0, 1 << 20, made.log.log_end)
    before = found.read()
    made.clean()
    for job in made.log.due_removals(NOW_MS + DAY_MS):
        job.run()
    assert found.read() == before
    found.release()
    # The same offset, read anew, begins with the first record that is left after it.
    assert read_batches(made.log, 0)[0].base_offset == 35


def test_a_lookup_under_way_is_done_again_in_the_new_segments() -> None:
    made = CompactedLog()
    for number in range(6):
        made.put((b"k%d" % number, b"v"))
        made.log.roll(NOW_MS)
    made.log.flush(NOW_MS)
    job = made.log.begin_read(2, 1 << 20, made.log.log_end)
    made.clean()
    step = job
    while isinstance(step, ReadJob):
        step.run()
        step = made.log.finish_read(step)
    assert step.base_offset == 2
    step.release()


def test_appends_and_rolls_go_on_between_the_steps() -> None:
    made = filled()
    candidate = made.cleaner.choose({PARTITION: made.log}, NOW_MS)
    assert candidate is not None
    cleaning = made.cleaner.begin(candidate, NOW_MS)
    number = 1000
    while cleaning.turn(NOW_MS):
        while cleaning.step(records_max=1):
            made.put((b"k%d" % (number % 5), b"v%d" % number))
            number += 1
    made.cleaner.end(PARTITION)
    assert cleaning.is_done
    assert made.cleaner.offsets[PARTITION] == 40
    assert len([offset for offset, _, _ in made.written() if offset < 40]) == 5
    assert made.log.log_end == 40 + number - 1000


def test_a_step_is_bounded() -> None:
    made = filled(200, segment_bytes=100_000)
    candidate = made.cleaner.choose({PARTITION: made.log}, NOW_MS)
    assert candidate is not None
    cleaning = made.cleaner.begin(candidate, NOW_MS)
    read: list[int] = []
    while cleaning.turn(NOW_MS):
        before = cleaning.stats.records_read
        while True:
            more = cleaning.step(records_max=16)
            read.append(cleaning.stats.records_read - before)
            before = cleaning.stats.records_read
            if not more:
                break
    assert max(read) <= 16
    assert sum(read) == 200
    made.cleaner.end(PARTITION)


def cleaned_in_steps(made: CompactedLog, records_max: int) -> int:
    """How many steps it took."""
    candidate = made.cleaner.choose({PARTITION: made.log}, NOW_MS)
    assert candidate is not None
    cleaning = made.cleaner.begin(candidate, NOW_MS)
    steps = 0
    while cleaning.turn(NOW_MS):
        while cleaning.step(records_max=records_max):
            steps += 1
    assert made.cleaner.end(PARTITION)
    return steps


@pytest.mark.parametrize("codec", [0, 1, 4])
@pytest.mark.parametrize("tombstones", [False, True])
def test_a_step_stops_inside_a_batch_and_the_next_goes_on_there(codec: int, tombstones: bool) -> None:
    """Half a million records in one batch would otherwise hold up everyone else for as long as they take."""
    files: list[dict[str, bytes]] = []
    steps: list[int] = []
    for records_max in (10_000, 7):
        made = CompactedLog()
        # Every third key is written again later, so the batch is copied in pieces; tombstones make it count anew.
        made.put(
            *[(b"k%d" % n, None if tombstones and n % 100 == 1 else b"old") for n in range(700)], codec=codec
        )  # fmt: skip
        made.put(*[(b"k%d" % n, b"new") for n in range(0, 700, 3)])
        made.roll()
        steps.append(cleaned_in_steps(made, records_max))
        assert len(made.written()) == 700
        files.append(file_contents(made.disk))
    assert files[0] == files[1]
    # Checked and mapped, checked again, chosen and copied.
    assert steps[1] > (4 * 700 + 466) / 7
    assert steps[0] < 20


def test_no_turn_waits_for_the_disk_and_readers_go_on_while_files_are_renamed() -> None:
    made = filled()
    candidate = made.cleaner.choose({PARTITION: made.log}, NOW_MS)
    assert candidate is not None
    cleaning = made.cleaner.begin(candidate, NOW_MS)
    synced: list[str] = []
    made.disk.on_operation = lambda operation, path, position, size: (
        synced.append(path) if "sync" in operation else None
    )
    table = made.table()
    swaps = 0
    while cleaning.turn(NOW_MS):
        assert synced == []
        if cleaning.is_swapping:
            swaps += 1
            # The cleaned segment serves already, under whatever name; a second job must wait.
            assert made.table() == table
            assert made.log.is_restructuring
        while cleaning.step():
            pass
        synced.clear()
    assert made.cleaner.end(PARTITION)
    assert swaps > 0
    assert made.table() == table


@pytest.mark.parametrize("extension", ["index", "timeindex"])
@pytest.mark.parametrize("lag_ms", [0, 1])
def test_a_missing_index_is_not_built_on_the_loop_for_the_cleaners_sake(extension: str, lag_ms: int) -> None:
    """Whoever serves the log is told, builds it in a thread, and the log is cleaned after that."""
    made = filled(min_compaction_lag_ms=lag_ms)
    made.log.close(NOW_MS)
    path = f"{made.log.directory}/{0:020}.{extension}"
    made.disk.remove(path)
    made.log = open_in(made.disk, made.config, clean=True, recovery_point=40)
    now_ms = NOW_MS + 1000
    told: list[int] = []
    made.log.on_damaged_index = lambda: told.append(1)
    cleaning = made.clean(now_ms)
    assert cleaning is None or cleaning.is_aborted
    assert told == [1]
    assert not made.disk.exists(path)
    assert made.clean(now_ms) is None, "nor does it keep others waiting"
    job = made.log.begin_reindexing()
    assert job is not None
    job.run()
    made.log.finish_reindexing(job)
    assert made.clean(now_ms) is not None
    assert made.written() == [(offset, b"k%d" % (offset % 5), b"v%d" % offset) for offset in range(35, 40)]


@pytest.mark.parametrize("lag", ["min_compaction_lag_ms", "max_compaction_lag_ms"])
def test_ages_are_learned_from_a_few_segments_at_a_time(lag: str) -> None:
    """After a start nobody has opened an index yet, and whether a log is due is asked on the loop."""
    made = filled(**{lag: 1})
    made.reopen(clean=True)
    segments = len(made.log.segments) - 1
    read: set[str] = set()
    made.disk.on_operation = lambda operation, path, position, size: (
        read.add(path.partition(".")[0]) if operation == "read" else None
    )
    turns = [False]
    while not made.cleaner.learn_ages(PARTITION, made.log, 3):
        assert len(read) <= 3
        read.clear()
        turns.append(False)
    assert len(turns) == -(-segments // 3)
    assert segments > 3
    read.clear()
    assert made.cleaner.examine(PARTITION, made.log, NOW_MS + 1000) is not None
    assert not read


def test_no_step_reads_the_transaction_indexes_of_more_than_one_segment_and_no_turn_any() -> None:
    """A turn is on the loop: what it reads must not grow with how much is dirty."""
    made = CompactedLog()
    for number in range(30):
        made.put_as(7, (b"k%d" % (number % 3), b"v"), transactional=True)
        made.end(7, number % 5 == 0)
        if number % 5 == 4:
            made.log.roll(NOW_MS)
    made.roll()
    expected = made.table()
    candidate = made.cleaner.choose({PARTITION: made.log}, NOW_MS)
    assert candidate is not None
    cleaning = made.cleaner.begin(candidate, NOW_MS)
    read: set[str] = set()
    made.disk.on_operation = lambda operation, path, position, size: (
        read.add(path) if operation == "read" and path.endswith(".txnindex") else None
    )
    most = 0
    while cleaning.turn(NOW_MS):
        assert not read
        while cleaning.step():
            pass
        most = max(most, len(read))
        read.clear()
    assert made.cleaner.end(PARTITION)
    assert most == 1
    assert made.table() == expected


def test_a_cleaning_that_is_stopped_before_it_swaps_leaves_a_sound_log() -> None:
    made = filled()
    candidate = made.cleaner.choose({PARTITION: made.log}, NOW_MS)
    assert candidate is not None
    cleaning = made.cleaner.begin(candidate, NOW_MS)
    table = made.table()
    while cleaning.turn(NOW_MS) and not cleaning.is_swapping:
        while cleaning.step():
            pass
    assert cleaning.is_swapping
    assert not made.cleaner.end(PARTITION)
    assert not made.log.is_restructuring
    assert made.table() == table
    made.reopen()
    assert made.table() == table
    assert leftovers(made) == []


# When something comes in between


def begun(made: CompactedLog, steps: int = 4) -> None:
    candidate = made.cleaner.choose({PARTITION: made.log}, NOW_MS)
    assert candidate is not None
    cleaning = made.cleaner.begin(candidate, NOW_MS)
    while cleaning.turn(NOW_MS):
        while cleaning.step():
            pass
        steps -= 1
        if steps <= 0 and not made.log.is_restructuring:
            return


def leftovers(made: CompactedLog) -> list[str]:
    return [name for name in made.disk.list_directory(DIRECTORY) if name.endswith((".cleaned", ".swap"))]


@pytest.mark.parametrize("turns", range(1, 20))
def test_a_cleaning_can_be_ended_at_any_turn(turns: int) -> None:
    made = filled()
    before = made.table()
    begun(made, turns)
    assert not made.cleaner.end(PARTITION)
    assert made.table() == before
    assert not leftovers(made)
    assert PARTITION not in made.cleaner.offsets
    made.clean_all()
    assert len(made.written()) == 5


@pytest.mark.parametrize("turns", range(1, 20, 3))
def test_a_truncation_ends_the_cleaning(turns: int) -> None:
    made = filled()
    begun(made, turns)
    made.cleaner.before_truncation(PARTITION, made.log, 20)
    made.log.truncate_to(20, NOW_MS)
    cleaning = made.cleaner.running[PARTITION]
    assert not cleaning.turn(NOW_MS)
    assert cleaning.is_aborted
    assert not made.cleaner.end(PARTITION)
    assert not leftovers(made)
    assert made.log.log_end == 20


def test_retention_that_takes_a_segment_ends_the_cleaning() -> None:
    made = filled(cleanup_policy="compact,delete", retention_ms=DAY_MS)
    begun(made, 12)
    assert made.log.delete_old_segments(NOW_MS + 2 * DAY_MS) > 0
    cleaning = made.cleaner.running[PARTITION]
    while cleaning.turn(NOW_MS):
        while cleaning.step():
            pass
    assert cleaning.is_aborted
    made.cleaner.end(PARTITION)
    assert not leftovers(made)


def test_a_log_that_is_closed_ends_the_cleaning() -> None:
    made = filled()
    begun(made)
    made.log.close(NOW_MS)
    assert not made.cleaner.running[PARTITION].turn(NOW_MS)
    assert not made.cleaner.end(PARTITION)


@pytest.mark.parametrize("operation", ["write", "sync", "rename", "sync_directory", "read"])
def test_a_failing_disk_fails_the_log(operation: str) -> None:
    made = filled()
    made.disk.faults.append(Fault(Effect.FAIL, operation))
    candidate = made.cleaner.choose({PARTITION: made.log}, NOW_MS)
    assert candidate is not None
    with pytest.raises(StorageError):
        made.cleaner.clean(candidate, NOW_MS)
    assert made.log.failure is not None
    assert not made.cleaner.running


# What cannot be cleaned


def test_a_flush_does_not_count_when_the_folder_could_not_be_synced_for_a_cleaning() -> None:
    """After a failed sync the next one succeeds with nothing done."""
    made = filled()
    made.roll()
    candidate = made.cleaner.choose({PARTITION: made.log}, NOW_MS)
    assert candidate is not None
    cleaning = made.cleaner.begin(candidate, NOW_MS)
    made.disk.faults = [Fault(Effect.FAIL_SYNC_AND_DROP, "sync_directory")]
    while made.disk.faults[0].times and cleaning.turn(NOW_MS):
        while cleaning.step():
            pass
    made.put((b"k", b"v"))
    flush = made.log.begin_flush(NOW_MS)
    flush.run()
    with pytest.raises(StorageError):
        made.log.finish_flush(flush)
    assert made.log.recovery_point < made.log.log_end
    assert not cleaning.turn(NOW_MS)
    made.cleaner.end(PARTITION)


def test_a_damaged_batch_makes_the_log_uncleanable_and_stays() -> None:
    made = filled()
    path = made.log.segments[3].log.path
    made.disk.flip_bit(path, 8 * 65)
    damaged = file_contents(made.disk)["00000000000000000015.log"]
    assert made.clean() is not None
    assert "CRC" in made.cleaner.uncleanable[PARTITION]
    assert made.clean() is None
    assert file_contents(made.disk)["00000000000000000015.log"] == damaged
    assert not leftovers(made)
    assert made.log.failure is None


def garbage(base_offset: int, leader_epoch: int = 0) -> bytes:
    """A batch that claims zstd, with a good CRC over what is no zstd."""
    body = b"\x28\xb5\x2f\xfd this is not a frame"
    return encode_header(body, base_offset, leader_epoch, 4, 2, NOW_MS, NOW_MS, -1, -1, -1, 3) + body


def test_a_batch_full_of_garbage_is_kept_and_does_not_stop_the_cleaner() -> None:
    made = CompactedLog()
    made.put((b"a", b"1"))
    data = garbage(1)
    made.log.append_as_follower(data, 0, len(data), 0, NOW_MS)
    made.log.update_high_watermark(made.log.log_end)
    made.put((b"a", b"2"))
    made.roll()
    cleaning = made.clean()
    assert cleaning is not None
    assert cleaning.is_done
    assert cleaning.stats.unreadable_batches == 1
    batches = read_all(made.log)
    assert [batch.base_offset for batch in batches] == [1, 4]
    assert batches[0].to_bytes() == data


def test_a_compacted_config_is_asked_for_each_time() -> None:
    made = filled()
    made.log.config = LogConfig()
    assert made.clean() is None


def test_the_checkpoint_lists_what_a_directory_holds() -> None:
    cleaner = Cleaner(OpenFiles(new_disk(), 10), {("a", 0): 5, ("b", 1): 7})
    assert cleaner.checkpoint([("b", 1), ("c", 0)]) == {("b", 1): 7}
    cleaner.forget(("b", 1))
    assert cleaner.checkpoint([("b", 1)]) == {}


# Transactions


def test_however_many_transactions_were_aborted_the_loop_neither_reads_nor_writes_their_index() -> None:
    """A segment may have hundreds of thousands, and a call for each of them holds everybody up."""
    made = CompactedLog()
    count = 2500
    for number in range(count):
        made.put_as(number % 7, (b"k%d" % number, b"v"), transactional=True)
        made.end(number % 7, commit=False)
    made.roll()
    before = [repr(each) for each in made.log.aborted_transactions(0, made.log.log_end)]
    assert len(before) == count
    candidate = made.cleaner.examine(PARTITION, made.log, NOW_MS)
    assert candidate is not None
    cleaning = made.cleaner.begin(candidate, NOW_MS)
    moved = 0

    def count_bytes(operation: str, path: str, position: int, size: int) -> None:
        nonlocal moved
        if operation in ("read", "write") and ".txnindex" in path:
            moved += size

    made.disk.on_operation = count_bytes
    total = 0
    while cleaning.turn(NOW_MS):
        assert moved == 0
        while cleaning.step():
            assert moved <= 5 * 256 * 34, "a step does a little"
            total, moved = total + moved, 0
        total, moved = total + moved, 0
    made.disk.on_operation = None
    made.cleaner.end(PARTITION)
    assert cleaning.is_done
    assert total >= 3 * count * 34
    assert [repr(each) for each in made.log.aborted_transactions(0, made.log.log_end)] == before


@pytest.mark.parametrize("is_torn", [False, True])
def test_a_cleaning_that_ends_while_it_looks_for_aborted_transactions_lets_go_of_everything(is_torn: bool) -> None:
    made = CompactedLog()
    for number in range(1500):
        made.put_as(7, (b"k", b"v%d" % number), transactional=True)
        made.end(7, commit=False)
    made.roll()
    if is_torn:
        file = made.disk.open(f"{DIRECTORY}/00000000000000000000.txnindex")
        file.write_at(1200 * 34, [b"\xff" * 34])
    candidate = made.cleaner.examine(PARTITION, made.log, NOW_MS)
    assert candidate is not None
    cleaning = made.cleaner.begin(candidate, NOW_MS)
    assert cleaning.turn(NOW_MS)
    assert cleaning.step()
    if is_torn:
        while cleaning.step():
            pass
        with pytest.raises(StorageError):
            cleaning.turn(NOW_MS)
    else:
        cleaning.abort()
    made.cleaner.end(PARTITION)
    assert cleaning.is_aborted
    assert [ref.pins for segment in made.log.segments for ref in segment.refs()] == [0] * 7


# Room for the copy


def fill(made: CompactedLog, segments: int, records: int) -> None:
    """Segments in which every key is another one, so that nothing goes."""
    for number in range(segments):
        for record in range(records):
            made.put((b"%03d-%03d" % (number, record), b"v" * 1000))
        made.roll()


def leave_room(made: CompactedLog, size: int) -> None:
    made.disk.capacity_bytes = made.disk.capacity_bytes - made.disk.usable_bytes("/") + size


def test_a_cleaning_whose_copy_does_not_fit_is_put_off() -> None:
    """It used to find the disk full, which took its directory offline, and the broker with its only one: at each start
    again."""
    made = CompactedLog()
    fill(made, segments=3, records=10)
    before = made.table()
    room = sum(segment.size for segment in made.log.segments[:-1]) // 2 + SPARE_BYTES
    leave_room(made, room)
    cleaning = made.clean()
    assert cleaning is not None
    assert cleaning.is_aborted
    assert cleaning.no_room is not None
    assert cleaning.no_room.usable_bytes == room < cleaning.no_room.needed_bytes
    assert made.log.failure is None
    assert not [name for name in made.disk.list_directory(made.log.directory) if ".cleaned" in name]
    assert made.clean() is None, "not before there is room"
    leave_room(made, cleaning.no_room.needed_bytes - 1)
    assert made.clean() is None
    leave_room(made, cleaning.no_room.needed_bytes)
    found = made.clean()
    assert found is not None
    assert found.is_done
    assert made.table() == before
    assert made.disk.usable_bytes("/") >= SPARE_BYTES, "it was an upper bound"


def test_what_was_cleaned_before_the_room_ended_stays_and_counts_for_the_next() -> None:
    """Its copies are made again, and take room again: to begin when but the next one fits would be to no end."""
    made = CompactedLog(segment_bytes=12_000, file_delete_delay_ms=1000)
    fill(made, segments=4, records=10)
    before = made.table()
    size = made.log.segments[0].size
    leave_room(made, 2 * size + 5000 + SPARE_BYTES)
    cleaning = made.clean()
    assert cleaning is not None
    assert cleaning.no_room is not None
    assert cleaning.stats.bytes_written == 2 * size
    assert cleaning.no_room.needed_bytes > 3 * size + SPARE_BYTES
    assert made.table() == before
    assert made.clean() is None
    for job in made.log.due_removals(NOW_MS + 1000):
        job.run()
    assert made.clean(NOW_MS + 1000) is None, "there is room for two again, and they are done"
    leave_room(made, cleaning.no_room.needed_bytes)
    found = made.clean(NOW_MS + 1000)
    assert found is not None
    assert found.stats.bytes_written >= 3 * size


def test_a_cleaning_that_was_put_off_is_tried_again_after_a_while_whatever_the_clock_does() -> None:
    """What it would take may be less by then: retention and deletions take segments, too."""
    made = CompactedLog()
    fill(made, segments=1, records=10)
    leave_room(made, 0)
    assert made.clean() is not None
    assert made.clean(NOW_MS + AGAIN_MS - 1) is None
    assert made.clean(NOW_MS + AGAIN_MS) is not None
    assert made.clean(NOW_MS + AGAIN_MS) is None
    assert made.clean(NOW_MS) is not None, "the clock was set back"


def test_a_file_system_that_does_not_tell_how_much_room_it_has_keeps_nothing_from_being_cleaned() -> None:
    silent = SimDisk(Random(0))
    silent.capacity_bytes = 0
    made = CompactedLog()
    fill(made, segments=1, records=10)
    segment = made.log.segments[0]
    assert find_no_room(silent, made.log.directory, [segment], 0, NOW_MS) is None
    leave_room(made, 0)
    assert find_no_room(made.disk, made.log.directory, [segment], 0, NOW_MS) is not None


def test_a_disk_that_is_full_in_the_middle_of_a_copy_has_failed() -> None:
    """D5: somebody else may take the room that there was."""
    made = CompactedLog()
    fill(made, segments=3, records=10)

    def take(operation: str, path: str, *_: int) -> None:
        if operation == "open" and path.endswith(".log.cleaned"):
            leave_room(made, 100)

    made.disk.on_operation = take
    with pytest.raises(StorageError) as raised:
        made.clean()
    assert raised.value.cause is not None
    assert raised.value.cause.errno == errno.ENOSPC
