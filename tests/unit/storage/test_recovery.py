"""Opening after a crash: what is cut, what is not, and what is written anew (D1 to D7)."""

from collections.abc import Callable, Iterator

import pytest

from mainstem.core.log.producers import Origin
from mainstem.sim.changes import every_survival
from mainstem.sim.disk import SimDisk
from mainstem.storage.errors import StorageError
from mainstem.storage.fs import FileSystem
from mainstem.storage.open_files import OpenFiles
from mainstem.storage.recovery import NEVER_COMPACTED, open_log
from mainstem.storage.recovery_cut import RecoveryCut
from tests.support.compaction import PARTITION, CompactedLog, records_of, table_of
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
)

SIZE = len(batch(b"00"))
SETTINGS = config(segment_bytes=SIZE * 4, index_interval_bytes=SIZE)


def name(offset: int, extension: str) -> str:
    return f"{offset:020}{extension}"


def path(offset: int, extension: str) -> str:
    return f"{DIRECTORY}/{name(offset, extension)}"


def written(count: int, flush_at: int = -1) -> SimDisk:
    """A disk with `count` batches of one record, killed without a stop."""
    disk = new_disk()
    log = open_in(disk, SETTINGS)
    for number in range(count):
        append(log, batch(b"%02d" % number), leader_epoch=number // 5)
        if number == flush_at:
            log.flush(NOW_MS)
    disk.kill()
    return disk


def flip(disk: SimDisk, at: str, byte: int) -> None:
    disk.flip_bit(at, byte * 8)


def offsets(disk: SimDisk, recovery_point: int = 0) -> list[int]:
    return [found.base_offset for found in read_all(open_in(disk, SETTINGS, recovery_point=recovery_point))]


def test_a_killed_process_loses_nothing() -> None:
    assert offsets(written(10)) == list(range(10))


def test_what_was_flushed_survives_power_loss() -> None:
    disk = new_disk()
    log = open_in(disk, SETTINGS)
    for number in range(10):
        append(log, batch(b"%02d" % number))
    log.flush(NOW_MS)
    for number in range(10, 20):
        append(log, batch(b"%02d" % number))
    disk.power_loss()
    found = offsets(disk, recovery_point=10)
    assert found[:10] == list(range(10))
    assert found == list(range(len(found)))


def test_the_log_is_cut_at_the_first_bad_batch_whatever_follows() -> None:
    disk = written(10)
    flip(disk, path(4, ".log"), SIZE + 65)
    assert offsets(disk) == [0, 1, 2, 3, 4]
    assert not disk.exists(path(8, ".log"))
    assert not disk.exists(path(8, ".snapshot"))


def test_a_torn_batch_at_the_end_is_cut() -> None:
    for cut in (1, SIZE - 61, SIZE - 1):
        disk = written(10)
        disk.cut_file(path(8, ".log"), SIZE * 2 - cut)
        assert offsets(disk) == list(range(9))
        assert disk.file_size(path(8, ".log")) == SIZE


def test_below_the_recovery_point_nothing_is_cut() -> None:
    disk = written(10)
    flip(disk, path(4, ".log"), SIZE + 65)
    before = disk.file_size(path(4, ".log"))
    with pytest.raises(StorageError, match="durable") as raised:
        open_in(disk, SETTINGS, recovery_point=7)
    assert raised.value.path == path(4, ".log")
    assert raised.value.position == SIZE
    assert disk.file_size(path(4, ".log")) == before


def test_a_log_that_ends_before_its_recovery_point_is_refused() -> None:
    disk = written(10)
    disk.cut_file(path(8, ".log"), SIZE)
    with pytest.raises(StorageError, match="ends at offset 9"):
        open_in(disk, SETTINGS, recovery_point=10)


def test_a_missing_segment_ends_the_log() -> None:
    disk = written(14)
    for extension in (".log", ".index", ".timeindex"):
        disk.remove(path(4, extension))
    assert offsets(disk) == [0, 1, 2, 3]
    assert not disk.exists(path(8, ".log"))


def test_offsets_that_do_not_rise_are_no_log() -> None:
    disk = written(3)
    file = disk.open(path(0, ".log"))
    file.write_at(SIZE * 2, [(1).to_bytes(8, "big")])
    assert offsets(disk) == [0, 1]


def test_recovering_twice_changes_nothing() -> None:
    disk = written(20)
    flip(disk, path(16, ".log"), SIZE * 2 + 65)
    log = open_in(disk, SETTINGS)
    log.flush(NOW_MS)
    disk.kill()
    once = file_contents(disk)
    log = open_in(disk, SETTINGS)
    log.flush(NOW_MS)
    disk.kill()
    assert file_contents(disk) == once
    assert name(18, ".snapshot") in once


def test_what_is_beside_the_batches_is_written_anew_as_it_was() -> None:
    disk = new_disk()
    log = open_in(disk, SETTINGS)
    for number in range(20):
        producer = number % 3
        append(log, batch(b"%02d" % number, producer_id=producer, epoch=0, sequence=number // 3), number // 5)
    log.close(NOW_MS)
    stopped = file_contents(disk)
    for entry in disk.list_directory(DIRECTORY):
        if not entry.endswith(".log"):
            disk.remove(f"{DIRECTORY}/{entry}")
    log = open_in(disk, SETTINGS)
    log.close(NOW_MS)
    assert file_contents(disk) == stopped


@pytest.mark.parametrize("extension", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["remove", "garbage", "cut"])
def test_a_bad_index_is_built_anew_also_after_a_clean_stop(extension: str, damage: str) -> None:
    disk = new_disk()
    log = open_in(disk, SETTINGS)
    for number in range(10):
        append(log, batch(b"%02d" % number, timestamp=NOW_MS + number))
    log.close(NOW_MS)
    stopped = file_contents(disk)
    for offset in (0, 4, 8):
        if damage == "remove":
            disk.remove(path(offset, extension))
        elif damage == "cut":
            disk.cut_file(path(offset, extension), 0)
        else:
            file = disk.open(path(offset, extension))
            file.write_at(file.size(), [b"\xff" * 24])
    log = open_in(disk, SETTINGS, clean=True, recovery_point=10)
    assert [found.base_offset for found in read_all(log)] == list(range(10))
    if damage != "cut":  # an empty index is a valid one; it is only slower
        found = log.offset_for_timestamp(NOW_MS + 6, 10)
        assert found is not None
        assert found.offset == 6
        while (job := log.begin_reindexing()) is not None:
            job.run()
            log.finish_reindexing(job)
        log.close(NOW_MS)
        assert file_contents(disk) == stopped


@pytest.mark.parametrize("is_kafkas", [True, False])
def test_gaps_past_the_recovery_point_are_a_loss_unless_a_running_kafka_left_them(is_kafkas: bool) -> None:
    """Kafka compacts what it has not called durable in a file yet; its active segment's index tells that it ran."""
    made = CompactedLog(segment_bytes=400)
    for number in range(40):
        made.put((b"k%d" % (number % 5), b"v%d" % number))
    made.roll()
    assert made.clean() is not None
    table = made.table()
    if is_kafkas:
        index = made.disk.open(made.log.active_segment.offset_index.ref.path)
        index.truncate(made.config.segment_index_bytes // 8 * 8)
        index.close()
    for job in made.log.due_removals(NOW_MS + (1 << 40)):
        job.run()
    made.disk.kill()
    log = open_in(made.disk, made.config, recovery_point=0)
    assert (table_of(log) == table) == is_kafkas
    assert (log.log_end == 40) == is_kafkas


def test_snapshots_that_lie_are_not_believed() -> None:
    disk = new_disk()
    log = open_in(disk, SETTINGS)
    for number in range(10):
        append(log, batch(b"%02d" % number, producer_id=1, epoch=0, sequence=number))
    log.close(NOW_MS)
    flip(disk, path(10, ".snapshot"), 20)
    log = open_in(disk, SETTINGS, clean=True, recovery_point=10)
    assert append(log, batch(b"10", producer_id=1, epoch=0, sequence=10)).base_offset == 10


def test_a_snapshot_past_the_end_goes() -> None:
    disk = written(10)
    log = open_in(disk, SETTINGS)
    log.close(NOW_MS)
    assert disk.exists(path(10, ".snapshot"))
    disk.cut_file(path(8, ".log"), SIZE)
    log = open_in(disk, SETTINGS)
    assert not disk.exists(path(10, ".snapshot"))
    assert log.producers.states.end_offset == 9


def test_transactions_are_recovered_with_what_they_hold_back() -> None:
    disk = new_disk()
    log = open_in(disk, config(segment_bytes=400))
    open_in_log = {1: 0, 2: 0}
    for turn in range(6):
        for producer in (1, 2):
            data = batch(b"x", producer_id=producer, epoch=0, sequence=open_in_log[producer], transactional=True)
            append(log, data)
            open_in_log[producer] += 1
        append(log, marker(1, 0, turn % 2 == 0), origin=Origin.COORDINATOR)
    live = [repr(found) for found in log.aborted_transactions(0, log.log_end)]
    unstable = log.first_unstable_offset
    index_files = {key: data for key, data in file_contents(disk).items() if key.endswith(".txnindex")}
    assert live
    assert index_files
    disk.kill()
    again = open_in(disk, config(segment_bytes=400))
    assert [repr(found) for found in again.aborted_transactions(0, again.log_end)] == live
    assert again.first_unstable_offset == unstable
    assert {key: data for key, data in file_contents(disk).items() if key.endswith(".txnindex")} == index_files


def test_the_log_start_is_kept() -> None:
    disk = written(10)
    log = open_in(disk, SETTINGS, log_start=6)
    assert (log.log_start, log.log_end) == (6, 10)
    assert [entry.start_offset for entry in log.epochs.entries()] == [6]
    log.abandon()
    log = open_in(disk, SETTINGS, log_start=50, recovery_point=50)
    assert (log.log_start, log.log_end) == (50, 50)
    assert append(log, batch(b"x")).base_offset == 50


def copy(fs: FileSystem, source: str, target: str) -> None:
    file = fs.open(source)
    data = file.read_at(0, file.size())
    fs.open(target, create=True).write_at(0, [data])


def leave_cleaned(disk: SimDisk) -> None:
    copy(disk, path(4, ".log"), path(0, ".log.cleaned"))
    copy(disk, path(4, ".log"), path(4, ".log.swap"))


def leave_swap(disk: SimDisk) -> None:
    """The cleaner made one segment of those at 4 and 8, keeping offsets 5 and 9, and renamed nothing of the old."""
    file = disk.open(path(4, ".log"))
    kept = file.read_at(SIZE, SIZE) + disk.open(path(8, ".log")).read_at(SIZE, SIZE)
    disk.open(path(4, ".log.swap"), create=True).write_at(0, [kept])
    disk.open(path(4, ".index.swap"), create=True)
    disk.open(path(4, ".timeindex.swap"), create=True)


def leave_swap_without_indexes(disk: SimDisk) -> None:
    """As a power cut may: Kafka syncs no name before the end of a swap."""
    leave_swap(disk)
    disk.remove(path(4, ".index.swap"))
    disk.remove(path(4, ".timeindex.swap"))


def leave_deleted(disk: SimDisk) -> None:
    copy(disk, path(0, ".log"), path(0, ".log.deleted"))
    copy(disk, path(4, ".snapshot"), path(4, ".snapshot.deleted"))
    disk.open(f"{DIRECTORY}/leader-epoch-checkpoint.tmp", create=True).write_at(0, [b"half"])
    disk.open(path(99, ".index"), create=True)


@pytest.mark.parametrize(
    ("leave", "expected"),
    [
        (leave_cleaned, list(range(14))),
        (leave_swap, [0, 1, 2, 3, 5, 9, 12, 13]),
        (leave_swap_without_indexes, [0, 1, 2, 3, 5, 9, 12, 13]),
        (leave_deleted, list(range(14))),
    ],
)
@pytest.mark.parametrize("clean", [False, True])
def test_leftovers_are_finished_or_undone(leave: Callable[[SimDisk], None], expected: list[int], clean: bool) -> None:
    disk = new_disk()
    settings = config(segment_bytes=SIZE * 4, cleanup_policy="compact")
    log = open_in(disk, settings)
    for number in range(14):
        append(log, batch(b"%02d" % number))
    log.close(NOW_MS)
    leave(disk)
    log = open_in(disk, settings, clean=clean, recovery_point=14)
    assert [found.base_offset for found in read_all(log)] == expected
    assert all(entry.rpartition(".")[2] in ("log", "index", "timeindex", "snapshot") or "." not in entry
               for entry in disk.list_directory(DIRECTORY))  # fmt: skip
    assert not disk.exists(path(99, ".index"))


def test_a_crash_at_any_change_during_recovery_loses_nothing_more() -> None:
    damaged = written(14)
    flip(damaged, path(12, ".log"), SIZE + 65)
    steps = 0
    counting = damaged.fork()

    def count(disk: SimDisk) -> None:
        nonlocal steps
        steps += 1

    counting.after_change = count
    open_in(counting, SETTINGS)
    assert steps > 5
    for stop in range(1, steps + 1):
        disk = damaged.fork()
        left = [stop]

        def crash(changed: SimDisk, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt

        disk.after_change = crash
        with pytest.raises(KeyboardInterrupt):
            open_in(disk, SETTINGS)
        disk.after_change = None
        disk.kill()
        assert offsets(disk) == list(range(13)), stop


@pytest.mark.parametrize("policy", ["compact", "delete"])
@pytest.mark.parametrize("kafka", [False, True])
def test_a_gap_past_the_recovery_point_is_a_lost_end_unless_kafka_compacted_there(kafka: bool, policy: str) -> None:
    """What was compacted keeps its gaps when the topic's policy is another one."""
    disk = new_disk()
    settings = config(segment_bytes=SIZE * 4, segment_index_bytes=800, cleanup_policy=policy)
    log = open_in(disk, settings)
    for number in range(10):
        append(log, batch(b"%02d" % number))
    disk.kill()
    disk.cut_file(path(4, ".log"), SIZE * 2)
    if kafka:  # which keeps the active segment's index at its full size while it runs
        disk.open(path(8, ".index")).truncate(800)
    metadata = disk.fork()
    log = open_in(disk, settings)
    assert [found.base_offset for found in read_all(log)] == [0, 1, 2, 3, 4, 5] + ([8, 9] if kafka else [])
    assert open_in(metadata, settings, gaps_until=NEVER_COMPACTED).log_end == 6


@pytest.mark.parametrize(
    ("extension", "size", "is_kafkas"),
    [(".index", 800, True), (".index", 10_000, True), (".timeindex", 9_996, True), (".index", 4_000, False)],
)
def test_what_a_running_kafka_has_left_is_known_by_its_zeros_whatever_its_indexes_may_take_now(
    extension: str, size: int, is_kafkas: bool
) -> None:
    """It keeps the size that it made a file with when `segment.index.bytes` is set anew."""
    disk = written(10)
    disk.cut_file(path(4, ".log"), SIZE * 2)
    index = disk.open(path(8, extension))
    index.write_at(0, [b"\x00\x00\x00\x01\x00\x00\x00\x44"])
    index.truncate(size)
    log = open_in(disk, config(segment_bytes=SIZE * 4, segment_index_bytes=800))
    assert log.log_end == (10 if is_kafkas else 6)


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_a_gap_that_may_be_compactions_is_durable_and_behind_the_recovery_point_once_the_log_is_open(
    policy: str,
) -> None:
    """Nobody is told by the next recovery what let this one keep it."""
    made = CompactedLog(segment_bytes=400)
    for number in range(40):
        made.put((b"k%d" % (number % 5), b"v%d" % number))
    made.roll()
    assert made.clean() is not None
    table = made.table()
    for number in range(40, 50):
        made.put((b"k%d" % (number % 5), b"v%d" % number))
        table[b"k%d" % (number % 5)] = b"v%d" % number
    for job in made.log.due_removals(NOW_MS + (1 << 40)):
        job.run()
    settings = config(segment_bytes=400, cleanup_policy=policy)
    cleaned_to = made.cleaner.offsets[PARTITION]
    for gaps_until in (1 << 62, cleaned_to):
        disk = made.disk.fork()
        disk.kill()
        log = open_in(disk, settings, gaps_until=gaps_until)
        assert (table_of(log), log.cut) == (table, None)
        assert (log.recovery_point, log.log_end) == (log.active_segment.base_offset, 50)
        kept = [record.offset for record in records_of(log) if record.offset < log.recovery_point]
        disk.power_loss_keeping({})
        again = open_in(disk, settings, recovery_point=log.recovery_point)
        assert [record.offset for record in records_of(again)][: len(kept)] == kept


def test_a_gap_past_what_was_cleaned_is_a_lost_end() -> None:
    disk = written(14)
    for extension in (".log", ".index", ".timeindex"):
        disk.remove(path(4, extension))
    log = open_in(disk, SETTINGS, gaps_until=4)
    assert log.log_end == 4


def test_where_no_recovery_point_is_known_a_log_is_cut_at_a_bad_batch_all_the_same() -> None:
    disk = written(10)
    flip(disk, path(4, ".log"), SIZE + 65)
    assert open_in(disk, SETTINGS, gaps_until=1 << 62).log_end == 5


def test_what_recovery_has_cut_is_told() -> None:
    torn = written(10)
    torn.cut_file(path(8, ".log"), SIZE * 2 - 1)
    bad = written(10)
    flip(bad, path(4, ".log"), SIZE + 65)
    gap = written(14)
    for extension in (".log", ".index", ".timeindex"):
        gap.remove(path(4, extension))
    short = written(3)
    told = [
        open_in(torn, SETTINGS).cut,
        open_in(bad, SETTINGS).cut,
        open_in(gap, SETTINGS).cut,
        open_in(short, SETTINGS, log_start=50).cut,
    ]
    assert told == [
        RecoveryCut(9, SIZE - 1, 0, f"a batch of {SIZE} bytes where {SIZE - 1} are left"),
        RecoveryCut(5, SIZE * 5, 1, "the batch does not match its CRC"),
        RecoveryCut(4, SIZE * 6, 2, "offsets 4 to 7 are missing"),
        RecoveryCut(50, SIZE * 3, 1, "it ends at offset 3, before its start 50"),
    ]
    for disk in (torn, bad, gap, short):
        disk.kill()
        assert open_in(disk, SETTINGS).cut is None, "there is nothing more to cut"
    assert open_in(written(10), SETTINGS).cut is None


def test_what_a_dead_process_left_unsynced_is_covered_by_the_next_flush() -> None:
    disk = written(6)
    log = open_in(disk, SETTINGS)
    log.flush(NOW_MS)
    assert log.recovery_point == 6
    disk.power_loss()
    assert offsets(disk, recovery_point=6) == list(range(6))


def test_what_recovery_cut_does_not_come_back_behind_a_new_segment() -> None:
    disk = written(6, flush_at=5)
    flip(disk, path(4, ".log"), SIZE + 65)
    log = open_in(disk, SETTINGS)
    assert log.log_end == 5
    log.roll(NOW_MS)
    disk.power_loss_keeping({})
    assert disk.file_size(path(4, ".log")) == SIZE
    log = open_in(disk, SETTINGS)
    assert log.log_end == 5


def test_a_truncation_inside_a_batch_ends_the_log_before_it_now_and_after_a_restart() -> None:
    disk = new_disk()
    log = open_in(disk, SETTINGS)
    append(log, batch(b"a", b"b"))
    append(log, batch(b"c", b"d", b"e"))
    log.flush(NOW_MS)
    assert log.truncation_point(4) == 2
    log.truncate_to(4, NOW_MS)
    assert (log.log_end, log.recovery_point) == (2, 2)
    disk.kill()
    assert open_in(disk, SETTINGS, recovery_point=2).log_end == 2


def test_what_was_truncated_does_not_come_back_behind_what_was_written_since() -> None:
    disk = new_disk()
    log = open_in(disk, SETTINGS)
    for number in range(4):
        append(log, batch(b"%02d" % number), leader_epoch=1)
    # As if the disk had lost the cut of a truncation to offset 1 and kept the batch that was written there since.
    other = open_in(new_disk(), SETTINGS)
    append(other, batch(b"xx"), leader_epoch=1)
    append(other, batch(b"yy"), leader_epoch=2)
    new = read_all(other)[1].to_bytes()
    disk.open(path(0, ".log")).write_at(SIZE, [new])
    disk.kill()
    log = open_in(disk, SETTINGS)
    assert [(found.base_offset, found.leader_epoch) for found in read_all(log)] == [(0, 1), (1, 2)]


@pytest.mark.parametrize("clean", [False, True])
def test_producers_are_known_after_all_their_records_were_deleted_and_the_broker_restarted(clean: bool) -> None:
    disk = new_disk()
    log = open_in(disk, SETTINGS)
    for number in range(6):
        append(log, batch(b"%02d" % number, producer_id=1, epoch=0, sequence=number))
    log.advance_log_start(6)
    log.roll(NOW_MS)
    assert log.delete_old_segments(NOW_MS) == 2
    if clean:
        log.close(NOW_MS)
    else:
        disk.power_loss()
    log = open_in(disk, SETTINGS, clean=clean, log_start=6, recovery_point=log.recovery_point)
    assert append(log, batch(b"05", producer_id=1, epoch=0, sequence=5)).base_offset == 5
    assert append(log, batch(b"06", producer_id=1, epoch=0, sequence=6)).base_offset == 6


@pytest.mark.parametrize("is_flushing", [False, True])
def test_a_roll_where_everything_is_durable_syncs_nothing_and_the_time_index_is_whole_after_any_power_loss(
    is_flushing: bool,
) -> None:
    """Rolls happen on the loop. The last entry of the time index is left to the flush after it; until that has come, a
    power cut may take it, and recovery begins behind the segment."""
    settings = config(segment_bytes=4 * len(batch(b"v")), index_interval_bytes=len(batch(b"v")))
    disk = new_disk()
    log = open_in(disk, settings)
    for number in range(4):
        append(log, batch(b"v", timestamp=NOW_MS + 10 * number))
    job = log.begin_flush(NOW_MS)
    job.run()
    if not is_flushing:
        log.finish_flush(job)
    synced: list[str] = []
    disk.on_operation = lambda operation, path, position, size: (
        synced.append(path) if operation in ("sync", "sync_directory") else None
    )
    append(log, batch(b"w", timestamp=NOW_MS + 40))
    disk.on_operation = None
    assert len(log.segments) == 2
    assert synced == []
    if is_flushing:
        log.finish_flush(job)
    assert log.recovery_point == 4 == log.segments[1].base_offset
    expected = disk.peek(f"{DIRECTORY}/{0:020}.timeindex")
    assert len(expected) == 24
    crashes = 0
    for kept in every_survival(disk.unsynced(), 3):
        crashed = disk.fork()
        crashed.power_loss_keeping(kept)
        again = open_in(crashed, settings, recovery_point=4)
        assert crashed.peek(f"{DIRECTORY}/{0:020}.timeindex") == expected
        found = again.offset_for_timestamp(NOW_MS + 30, again.log_end)
        assert found is not None
        assert found.offset == 3
        crashes += 1
    assert crashes > 4
    log.flush(NOW_MS)
    disk.power_loss_keeping({})
    assert disk.peek(f"{DIRECTORY}/{0:020}.timeindex") == expected


def test_what_is_left_of_deleted_segments_is_no_reason_to_cut_what_came_after_them() -> None:
    """A power cut may bring back a segment that lies below the log start, or a part of it."""
    disk = written(8)
    first = path(0, ".log")
    file = disk.open(first)
    file.truncate(file.size() - 1)
    log = open_in(disk, SETTINGS, log_start=4)
    assert (log.log_start, log.log_end) == (4, 8)
    assert [each.base_offset for each in log.segments] == [4]
    assert not disk.exists(first)


def test_a_producer_that_expired_while_the_log_was_closed_is_not_known_again() -> None:
    disk = new_disk()
    log = open_in(disk)
    append(log, batch(b"v", producer_id=1, epoch=0, sequence=0))
    append(log, batch(b"v", producer_id=2, epoch=0, sequence=0, transactional=True))
    log.close(NOW_MS)
    day_ms = 86_400_000
    for late_ms, known in ((day_ms - 1, [1, 2]), (day_ms, [2])):
        again = open_in(disk, clean=True, recovery_point=2, now_ms=NOW_MS + late_ms)
        assert [each.producer_id for each in again.producers.states.all()] == known, "an open transaction stays"
        again.abandon()


@pytest.mark.parametrize("has_producer", [False, True])
def test_after_all_records_were_deleted_a_clean_stop_leaves_a_snapshot_only_for_producers(has_producer: bool) -> None:
    """Kafka 4.3.1 was seen to leave none in either case; a producer would not be known after it."""
    disk = new_disk()
    log = open_in(disk)
    append(log, batch(b"v", producer_id=1, epoch=0, sequence=0) if has_producer else batch(b"v"))
    log.advance_log_start(1)
    log.close(NOW_MS)
    snapshots = [each for each in file_contents(disk) if each.endswith(".snapshot")]
    assert snapshots == ([name(1, ".snapshot")] if has_producer else [])


def test_a_flush_says_nothing_of_what_was_written_after_a_truncation_beside_it() -> None:
    """D4: the recovery point would call durable what took the place of what the flush had covered."""
    disk = new_disk()
    log = open_in(disk, SETTINGS)
    for number in range(3):
        append(log, batch(b"%02d" % number))
    job = log.begin_flush(NOW_MS)
    job.run()
    log.truncate_to(1, NOW_MS)
    for number in range(3):
        append(log, batch(b"%02d" % number), leader_epoch=1)
    log.finish_flush(job)
    assert log.recovery_point <= 1
    log.flush(NOW_MS)
    assert log.recovery_point == 4


def test_a_snapshot_that_an_opening_made_anew_is_durable_with_its_name_after_the_next_flush() -> None:
    """T1: it may be all that is known of a producer, once the segments go that it was made from."""
    disk = new_disk()
    log = open_in(disk)
    append(log, batch(b"v", producer_id=1, epoch=0, sequence=0))
    log.close(NOW_MS)
    disk.remove(path(1, ".snapshot"))
    disk.sync_directory(DIRECTORY)
    log = open_in(disk, clean=True, recovery_point=1)
    expected = disk.peek(path(1, ".snapshot"))
    log.flush(NOW_MS)
    disk.power_loss_keeping({})
    assert disk.peek(path(1, ".snapshot")) == expected


def test_a_transaction_index_is_durable_with_its_name_after_a_flush() -> None:
    """T5: behind the recovery point nothing writes it anew, and what was aborted would be read."""
    disk = new_disk()
    log = open_in(disk)
    append(log, batch(b"v"))
    log.flush(NOW_MS)
    append(log, batch(b"v", producer_id=1, epoch=0, sequence=0, transactional=True))
    append(log, marker(1, 0, commit=False), origin=Origin.COORDINATOR)
    expected = disk.peek(path(0, ".txnindex"))
    log.flush(NOW_MS)
    disk.power_loss_keeping({})
    assert disk.peek(path(0, ".txnindex")) == expected


def test_a_roll_hides_nothing_from_the_next_recovery_that_the_last_one_wrote_anew() -> None:
    """Where everything is durable the next recovery begins behind the segment that is rolled, and takes its indexes as
    they are."""
    disk = new_disk()
    log = open_in(disk)
    append(log, batch(b"v", producer_id=1, epoch=0, sequence=0, transactional=True))
    append(log, marker(1, 0, commit=False), origin=Origin.COORDINATOR)
    log.flush(NOW_MS)
    disk.kill()
    open_in(disk, recovery_point=2).roll(NOW_MS)
    rolled = 0
    for kept in every_survival(disk.unsynced(), 3):
        crashed = disk.fork()
        crashed.power_loss_keeping(kept)
        again = open_in(crashed, recovery_point=2)
        assert [each.first_offset for each in again.aborted_transactions(0, 2)] == [0]
        rolled += len(again.segments) == 2
    assert rolled > 0


def test_a_swap_that_was_cut_short_takes_the_place_of_a_last_segment_of_one_record_too() -> None:
    """The last of those that became one begins, and ends, at the last offset of the new one."""
    made = CompactedLog()
    made.put((b"a", b"1"))
    made.put((b"a", b"2"))
    made.roll()
    made.put((b"b", b"3"))
    made.roll()
    made.put((b"c", b"4"))
    made.log.flush(NOW_MS)
    candidate = made.cleaner.choose({PARTITION: made.log}, NOW_MS)
    assert candidate is not None
    cleaning = made.cleaner.begin(candidate, NOW_MS)
    while cleaning.turn(NOW_MS) and not cleaning.is_swapping:
        while cleaning.step():
            pass
    for each in list(made.disk.list_directory(DIRECTORY)):
        if each.endswith(".cleaned"):
            made.disk.rename(f"{DIRECTORY}/{each}", f"{DIRECTORY}/{each.removesuffix('.cleaned')}.swap")
    expected = [(record.offset, record.key, record.value) for record in made.records()]
    log = open_in(made.disk, made.config, recovery_point=made.log.log_end)
    assert [segment.base_offset for segment in log.segments] == [0, 3]
    found = [(record.offset, record.key, record.value) for record in records_of(log)]
    assert found == [each for each in expected if each[0] != 0]
    assert len({each[0] for each in found}) == len(found)


def test_recovering_a_log_that_has_lost_nothing_writes_nothing() -> None:
    """There may be thousands of them, one after the other."""
    disk = new_disk()
    log = open_in(disk, SETTINGS)
    for number in range(10):
        append(log, batch(b"%02d" % number, producer_id=1, epoch=0, sequence=number))
    log.close(NOW_MS)
    expected = file_contents(disk)
    for recovery_point in (10, 5, 0):
        disk.kill()
        disk.counts.clear()
        log = open_in(disk, SETTINGS, recovery_point=recovery_point)
        assert disk.counts.keys().isdisjoint({"sync", "write", "truncate", "remove", "rename"})
        assert disk.counts["sync_directory"] == 1
        assert disk.unsynced() == []
        assert file_contents(disk) == expected
        assert log.producers.states.end_offset == 10


def test_what_recovery_let_be_is_durable_after_the_next_flush() -> None:
    """The process that died may have written what is right, and not have synced it."""
    disk = written(10)
    open_in(disk, SETTINGS).persist_epochs()
    expected = file_contents(disk)
    disk.kill()
    log = open_in(disk, SETTINGS)
    log.flush(NOW_MS)
    disk.power_loss_keeping({})
    assert file_contents(disk) == expected


def test_a_snapshot_that_is_wrong_past_where_recovery_begins_is_written_anew() -> None:
    disk = written(10)
    open_in(disk, SETTINGS).close(NOW_MS)
    expected = file_contents(disk)
    for offset in (8, 10):
        flip(disk, path(offset, ".snapshot"), 7)
    copy(disk, path(8, ".snapshot"), path(6, ".snapshot"))
    for extension in (".index", ".timeindex"):
        flip(disk, path(4, extension), 0)
    disk.kill()
    open_in(disk, SETTINGS)
    assert file_contents(disk) == expected


def test_a_snapshot_in_doubt_is_gone_before_a_recovery_point_behind_it_is_written_down() -> None:
    """T1: the next recovery would believe it."""
    made = CompactedLog(segment_bytes=400)
    for number in range(40):
        made.put((b"k%d" % (number % 5), b"v%d" % number))
    made.roll()
    assert made.clean() is not None
    for number in range(40, 50):
        made.put((b"k%d" % (number % 5), b"v%d" % number))
    disk, folder = made.disk, made.log.directory
    stray = f"{folder}/{41:020}.snapshot"
    disk.open(stray, create=True).write_at(0, [b"of another log"])
    disk.sync_directory(folder)
    disk.kill()
    seen: list[bool] = []

    def write_down(offset: int) -> None:
        left = disk.fork()
        left.power_loss_keeping({})
        seen.append(left.exists(stray))

    settings = config(segment_bytes=400, cleanup_policy="compact")
    open_log(OpenFiles(disk, 100), folder, settings, NOW_MS, gaps_until=1 << 62, write_recovery_point=write_down)
    assert seen == [False]


def test_what_retention_took_before_a_kill_does_not_come_back_in_the_start_after_it() -> None:
    disk = written(10)
    for extension in (".log", ".index", ".timeindex"):
        disk.rename(path(0, extension), path(0, extension) + ".deleted")
    disk.kill()
    assert open_in(disk, SETTINGS).log_start == 4
    disk.power_loss_keeping({})
    assert not disk.exists(path(0, ".log"))


def test_a_transaction_that_was_cut_aborts_nothing_after_a_roll_that_no_recovery_goes_behind() -> None:
    """T5: its entry would hide records that others wrote at its offsets since."""
    disk = new_disk()
    log = open_in(disk)
    append(log, batch(b"v", producer_id=1, epoch=0, sequence=0, transactional=True))
    log.flush(NOW_MS)
    append(log, marker(1, 0, commit=False), origin=Origin.COORDINATOR)
    append(log, batch(b"v"))
    log.flush(NOW_MS)
    disk.cut_file(path(0, ".log"), len(batch(b"v")))
    disk.kill()
    log = open_in(disk, recovery_point=1)
    assert log.log_end == 1
    log.roll(NOW_MS)
    rolled = 0
    for kept in every_survival(disk.unsynced(), 3):
        crashed = disk.fork()
        crashed.power_loss_keeping(kept)
        again = open_in(crashed, recovery_point=1)
        assert again.aborted_transactions(0, 2) == []
        rolled += len(again.segments) == 2
    assert rolled > 0


def crashes_of(disk: SimDisk, work: Callable[[], object]) -> list[SimDisk]:
    """What a kill leaves after each change that `work` makes."""
    taken: list[SimDisk] = []
    disk.after_change = lambda changed: taken.append(changed.fork())
    work()
    disk.after_change = None
    for image in taken:
        image.kill()
    return taken


def survivals_of(disk: SimDisk) -> Iterator[SimDisk]:
    for kept in every_survival(disk.unsynced(), 3):
        image = disk.fork()
        image.power_loss_keeping(kept)
        yield image


def truncated(disk: SimDisk, end: int) -> list[SimDisk]:
    """A log of two segments that is cut to `end`, killed at each step; its recovery point was lowered before."""
    log = open_in(disk)
    for number in range(5):
        append(log, batch(b"old %d" % number))
        if number == 2:
            log.roll(NOW_MS)
    log.flush(NOW_MS)
    return crashes_of(disk, lambda: log.truncate_to(end, NOW_MS))


@pytest.mark.parametrize("rolls", [False, True])
def test_a_segment_that_a_truncation_removed_is_in_nobodys_way_when_it_comes_back(rolls: bool) -> None:
    """The truncation was killed before it came to sync the folder, and what was written since may be durable."""
    crashed = truncated(new_disk(), 2)
    assert len(crashed) > 3
    for disk in crashed:
        log = open_in(disk, recovery_point=2)
        end = log.log_end
        for number in range(4):
            append(log, batch(b"new %d" % number))
            if rolls and number == 0:
                log.roll(NOW_MS)
        log.active_segment.sync()  # as a flush does it, before it syncs the folder
        for image in survivals_of(disk):
            again = open_in(image, recovery_point=2)
            assert 2 <= again.log_end <= end + 4
            offsets = [each.base_offset for each in read_all(again)]
            assert offsets == list(range(len(offsets)))


def test_the_cut_end_of_a_truncation_does_not_come_back_in_front_of_a_newer_segment() -> None:
    """D1. No recovery looks behind a segment that begins at the recovery point."""
    for disk in truncated(new_disk(), 1):
        log = open_in(disk, recovery_point=1)
        if log.log_end > 1:
            continue
        log.roll(NOW_MS)
        append(log, batch(b"new"))
        for image in survivals_of(disk):
            again = open_in(image, recovery_point=1)
            assert [each.base_offset for each in read_all(again)] in ([0], [0, 1])


def test_a_roll_beside_the_flush_of_what_a_recovery_wrote_loses_no_aborted_transaction() -> None:
    """T5. The flush writes epochs first, and with them the new segment is there: no recovery looks behind it."""
    disk = new_disk()
    log = open_in(disk)
    append(log, batch(b"x", producer_id=1, epoch=0, sequence=0, transactional=True))
    append(log, marker(1, 0, commit=False), origin=Origin.COORDINATOR)
    append(log, batch(b"y"))
    log.flush(NOW_MS)
    disk.kill()
    log = open_in(disk, recovery_point=3)
    assert log.leaves_files_to_a_roll
    log.assign_epoch(1)
    job = log.begin_flush(NOW_MS)

    def work() -> None:
        log.roll(NOW_MS)
        append(log, batch(b"z"), leader_epoch=1)
        job.run()
        log.finish_flush(job)

    crashed: list[SimDisk] = []
    disk.after_change = lambda changed: crashed.append(changed.fork())
    work()
    disk.after_change = None
    for image in (left for each in crashed for left in survivals_of(each)):
        again = open_in(image, recovery_point=3)
        assert [(each.first_offset, each.last_offset) for each in again.aborted_transactions(0, 3)] == [(0, 1)]


def test_a_recovery_believes_the_batches_and_not_a_leader_epoch_that_they_contradict() -> None:
    """D6. A replica that led, cut what it had written, and was killed before a flush wrote its epochs anew: what it
    said of where an epoch ends would have others cut what is committed."""
    disk = new_disk()
    log = open_in(disk)

    def follow(offset: int, epoch: int) -> None:
        data = batch(b"v", base_offset=offset, leader_epoch=epoch)
        log.append_as_follower(data, 0, len(data), 9, NOW_MS)

    for offset in range(4):
        follow(offset, 1)
    append(log, batch(b"stale"), leader_epoch=3)
    log.flush(NOW_MS)
    log.truncate_to(4, NOW_MS)
    for offset, epoch in ((4, 1), (5, 1), (6, 4)):
        follow(offset, epoch)
    expected = log.epochs.entries()
    disk.kill()
    again = open_in(disk, recovery_point=4)
    assert again.epochs.entries() == expected
    assert [again.epoch_for(offset) for offset in range(7)] == [1, 1, 1, 1, 1, 1, 4]


def test_epochs_that_were_written_before_their_batches_are_lost_with_them() -> None:
    for disk in truncated(new_disk(), 2):
        log = open_in(disk, recovery_point=2)
        append(log, batch(b"new"), leader_epoch=3)
        taken: list[SimDisk] = []
        disk.after_change = lambda changed, taken=taken: taken.append(changed.fork())
        log.flush(NOW_MS)
        disk.after_change = None
        for image in (left for each in taken for left in survivals_of(each)):
            again = open_in(image, recovery_point=2)
            batches = {each.base_offset: each.leader_epoch for each in read_all(again)}
            assert {offset: again.epoch_for(offset) for offset in batches} == batches


def test_a_segment_that_begins_where_the_last_snapshot_is_has_a_durable_name_after_a_flush() -> None:
    """KAFKA-3968: its roll takes no snapshot, whose name would have been made durable along with it."""
    disk = new_disk()
    log = open_in(disk)
    append(log, batch(b"v"))
    log.close(NOW_MS)
    log = open_in(disk, clean=True, recovery_point=1)
    log.roll(NOW_MS)
    append(log, batch(b"w"))
    log.flush(NOW_MS)
    disk.power_loss_keeping({})
    assert open_in(disk, recovery_point=2).log_end == 2


def test_who_sends_old_records_is_known_after_a_crash_where_it_wrote_behind_the_last_snapshot() -> None:
    """T1: by its timestamps it was silent for long, and nothing tells when it was heard of; but it was."""
    disk = new_disk()
    log = open_in(disk)
    old_ms = NOW_MS - 400 * 86_400_000
    append(log, batch(b"a", producer_id=1, epoch=0, sequence=0, timestamp=old_ms))
    append(log, batch(b"a", producer_id=2, epoch=0, sequence=0, timestamp=old_ms))
    log.roll(NOW_MS)
    log.flush(NOW_MS)
    last = batch(b"b", producer_id=1, epoch=0, sequence=1, timestamp=old_ms)
    append(log, last)
    disk.kill()
    log = open_in(disk, recovery_point=2)
    assert append(log, last).is_duplicate
    assert [each.producer_id for each in log.producers.states.all()] == [1]
