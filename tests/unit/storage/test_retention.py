"""Deleting old segments: by age, by size, by log start, and never what is not committed."""

import pytest

from mainstem.core.log.producers import Origin
from mainstem.sim.changes import every_survival
from mainstem.sim.disk import SimDisk
from mainstem.sim.faults import Effect, Fault
from mainstem.storage.errors import StorageError
from mainstem.storage.log import Log
from tests.support.compaction import CompactedLog
from tests.support.logs import DIRECTORY, NOW_MS, append, batch, config, marker, new_disk, open_in, read_all

SIZE = len(batch(b"00"))


def filled(disk: SimDisk, count: int = 10, **settings: str | int) -> Log:
    """Two batches a segment; batch n is n seconds younger than the first."""
    log = open_in(disk, config(segment_bytes=SIZE * 2, **settings))
    for number in range(count):
        append(log, batch(b"%02d" % number, timestamp=NOW_MS + number * 1000), now_ms=NOW_MS + number * 1000)
    return log


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_a_segment_goes_when_its_newest_record_is_too_old() -> None:
    log = filled(new_disk(), retention_ms=5000)
    assert log.delete_old_segments(NOW_MS + 6000) == 0
    assert log.delete_old_segments(NOW_MS + 6001) == 1
    assert (bases(log), log.log_start) == ([2, 4, 6, 8], 2)
    assert log.delete_old_segments(NOW_MS + 10_500) == 2


def test_all_segments_may_go_and_a_new_one_begins() -> None:
    log = filled(new_disk(), retention_ms=5000)
    assert log.delete_old_segments(NOW_MS + 100_000) == 5
    assert (bases(log), log.log_start, log.log_end, log.size) == ([10], 10, 10, 0)
    assert log.delete_old_segments(NOW_MS + 200_000) == 0
    assert append(log, batch(b"10")).base_offset == 10


def test_the_loop_never_waits_for_the_disk_when_segments_go() -> None:
    disk = new_disk()
    log = filled(disk, retention_ms=5000)
    synced: list[str] = []
    disk.on_operation = lambda operation, path, position, size: synced.append(path) if "sync" in operation else None
    job = log.begin_retirement(NOW_MS + 100_000)
    assert job is not None
    assert (bases(log), synced) == ([10], [])
    # Meanwhile appends and reads go on, and a second job does not begin.
    assert append(log, batch(b"10")).base_offset == 10
    assert log.is_restructuring
    job.run()
    assert synced.count(DIRECTORY) == 1 + 5, "once for the new names, once for each segment"
    synced.clear()
    log.finish_restructuring(job)
    assert (synced, log.is_restructuring) == ([], False)


@pytest.mark.parametrize("young", [0, 2])
def test_how_old_segments_are_that_nobody_has_opened_is_found_out_in_a_thread(young: int) -> None:
    """After a start there may be thousands to go, with two indexes each."""
    disk = new_disk()
    settings = config(segment_bytes=SIZE * 2, retention_ms=5000)
    log = filled(disk, 60)
    log.close(NOW_MS)
    log = open_in(disk, settings, clean=True, recovery_point=60)
    now_ms = NOW_MS + 1000 * (59 - 2 * young) + 5001
    opened: list[str] = []
    disk.on_operation = lambda operation, path, position, size: opened.append(path) if operation == "open" else None
    ages = log.begin_aging(now_ms)
    assert ages is not None
    on_the_loop, opened = opened, []
    ages.run()
    assert len(opened) >= 28 - young
    opened = []
    log.learn_timestamps(ages)
    assert log.begin_aging(now_ms) is None
    job = log.begin_retirement(now_ms)
    assert job is not None
    on_the_loop += opened
    assert job.count == 30 - young
    assert len(on_the_loop) < 10


def test_segments_whose_age_is_known_or_does_not_matter_are_not_looked_at() -> None:
    disk = new_disk()
    assert filled(disk, retention_ms=5000).begin_aging(NOW_MS + 100_000) is None
    filled(disk).close(NOW_MS)
    for settings in ({"retention_ms": -1}, {"cleanup_policy": "compact"}):
        log = open_in(disk, config(segment_bytes=SIZE * 2, **settings), clean=True)
        assert log.begin_aging(NOW_MS + 100_000) is None


def test_a_time_index_that_is_gone_keeps_nothing_from_being_deleted() -> None:
    disk = new_disk()
    filled(disk).close(NOW_MS)
    disk.remove(f"{DIRECTORY}/{2:020}.timeindex")
    log = open_in(disk, config(segment_bytes=SIZE * 2, retention_ms=5000), clean=True, recovery_point=10)
    ages = log.begin_aging(NOW_MS + 100_000)
    assert ages is not None
    ages.run()
    log.learn_timestamps(ages)
    assert log.delete_old_segments(NOW_MS + 100_000) == 5


def test_a_snapshot_that_a_flush_has_taken_over_is_durable_before_the_segments_go_it_was_made_from() -> None:
    """Whichever of the two threads comes first, power loss must not take what is known of the producers (T1)."""
    disk = new_disk()
    log = open_in(disk, config())
    append(log, batch(b"a", producer_id=7, epoch=0, sequence=0))
    log.roll(NOW_MS)
    append(log, batch(b"b"))
    log.advance_log_start(1)
    for folder in ("/", "/data"):
        disk.sync_directory(folder)
    log.begin_flush(NOW_MS)
    job = log.begin_retirement(NOW_MS)
    assert job is not None
    job.run()
    disk.power_loss_keeping({})
    producer = open_in(disk, config()).producers.states.get(7)
    assert producer is not None
    assert producer.last_sequence == 0


def test_what_was_synced_behind_segments_that_are_about_to_go_survives_power_loss() -> None:
    """The segments still have their names: a recovery begins with them, and must not end there (D3)."""
    disk = new_disk()
    log = filled(disk, retention_ms=5000)
    for folder in ("/", "/data"):
        disk.sync_directory(folder)
    retirement = log.begin_retirement(NOW_MS + 100_000)
    assert retirement is not None
    append(log, batch(b"kept", timestamp=NOW_MS + 100_000))
    log.flush(NOW_MS + 100_000)
    assert log.recovery_point == 11
    disk.power_loss_keeping({})
    assert open_in(disk, config(segment_bytes=SIZE * 2)).log_end == 11


def test_a_flush_does_not_count_when_the_folder_could_not_be_synced_for_a_retirement() -> None:
    """After a failed sync the kernel calls clean what it never wrote, and the next sync succeeds with nothing done."""
    disk = new_disk()
    log = filled(disk, retention_ms=5000)
    retirement = log.begin_retirement(NOW_MS + 6001)
    assert retirement is not None
    disk.faults = [Fault(Effect.FAIL_SYNC_AND_DROP, "sync_directory")]
    flush = log.begin_flush(NOW_MS + 6001)
    retirement.run()
    flush.run()
    durable = log.recovery_point
    with pytest.raises(StorageError):
        log.finish_flush(flush)
    assert log.recovery_point == durable < log.log_end
    with pytest.raises(StorageError):
        log.finish_restructuring(retirement)


def test_a_flush_covers_what_is_on_its_way_out() -> None:
    """A power loss may bring it back. Were it not whole, recovery would cut the log there, and all that came later
    and was durable would go."""
    disk = new_disk()
    log = open_in(disk, config(retention_ms=5000))
    for folder in ("/", "/data", DIRECTORY):
        disk.sync_directory(folder)
    append(log, batch(b"old"))
    retirement = log.begin_retirement(NOW_MS + 100_000)
    assert retirement is not None
    append(log, batch(b"new"))
    log.flush(NOW_MS)
    durable = log.recovery_point
    disk.power_loss_keeping({})
    assert durable == 2
    assert open_in(disk, config()).log_end == durable


def test_what_a_flush_covers_of_segments_on_their_way_out_has_its_transaction_indexes() -> None:
    """T5. Where the renames do not survive, a recovery goes by the recovery point, and looks at none of them."""
    disk = new_disk()
    settings = config(retention_bytes=1)
    log = open_in(disk, settings)
    append(log, batch(b"x", producer_id=1, epoch=0, sequence=0, transactional=True))
    append(log, marker(1, 0, commit=False), origin=Origin.COORDINATOR)
    for value in (b"y", b"z"):
        log.roll(NOW_MS)
        append(log, batch(value))
    assert log.begin_retirement(NOW_MS) is not None
    log.flush(NOW_MS)
    for kept in every_survival(disk.unsynced(), 3):
        image = disk.fork()
        image.power_loss_keeping(kept)
        again = open_in(image, settings, recovery_point=log.recovery_point)
        found = again.aborted_transactions(again.log_start, again.log_end)
        assert [(each.first_offset, each.last_offset) for each in found] == [(0, 1)]


@pytest.mark.parametrize("is_beside", [False, True], ids=["flushed before", "flushed beside"])
def test_a_segment_that_comes_back_from_retention_has_its_transaction_index(is_beside: bool) -> None:
    """T5. Of renames that nobody has synced any may survive: no recovery looks at what lies below its point."""
    disk = new_disk()
    settings = config(retention_bytes=1)
    log = open_in(disk, settings)
    for sequence in range(2):
        append(log, batch(b"x", producer_id=1, epoch=0, sequence=sequence, transactional=True))
        append(log, marker(1, 0, commit=False), origin=Origin.COORDINATOR)
        log.roll(NOW_MS)
    append(log, batch(b"z"))
    if not is_beside:
        log.flush(NOW_MS)
    job = log.begin_retirement(NOW_MS)
    assert job is not None
    if is_beside:
        log.flush(NOW_MS)
    crashed: list[SimDisk] = []
    disk.after_change = lambda changed: crashed.append(changed.fork())
    job.run()
    log.finish_restructuring(job)
    for moment in crashed:
        for kept in every_survival(moment.unsynced(), 3):
            image = moment.fork()
            image.power_loss_keeping(kept)
            again = open_in(image, settings, recovery_point=log.recovery_point)
            offsets = {each.base_offset for each in read_all(again)}
            aborted = {each.first_offset for each in again.aborted_transactions(again.log_start, again.log_end)}
            assert {first for first in (0, 2) if first in offsets} <= aborted


def test_files_are_not_removed_before_they_have_left_the_log() -> None:
    disk = new_disk()
    log = filled(disk, retention_ms=5000, file_delete_delay_ms=0)
    job = log.begin_retirement(NOW_MS + 100_000)
    assert job is not None
    assert log.due_removals(NOW_MS + 100_000) == []
    job.run()
    log.finish_restructuring(job)
    for removal in log.due_removals(NOW_MS + 100_000):
        removal.run()
    assert not [name for name in disk.list_directory(DIRECTORY) if name.endswith(".deleted")]
    assert [name for name in disk.list_directory(DIRECTORY) if name.endswith(".log")] == ["00000000000000000010.log"]


def test_without_timestamps_the_files_age_counts() -> None:
    disk = new_disk()
    log = open_in(disk, config(segment_bytes=SIZE * 2, retention_ms=5000))
    for _ in range(4):
        append(log, batch(b"00", timestamp=-1))
    assert log.delete_old_segments(NOW_MS + 5000) == 0
    assert log.delete_old_segments(NOW_MS + 5001) == 2


def with_empty_segments(age_ms: int, count: int = 3) -> CompactedLog:
    """One key, whose batches have a segment each: the cleaning, at NOW_MS, leaves the newest."""
    made = CompactedLog(cleanup_policy="compact,delete", segment_bytes=SIZE, retention_ms=5000)
    for number in range(count):
        made.put((b"k", b"%02d" % number), timestamp=NOW_MS - age_ms)
    made.roll()
    made.clean_all()
    assert [segment.size > 0 for segment in made.log.segments] == [False] * (count - 1) + [True, False]
    return made


@pytest.mark.parametrize("reopened", [False, True])
def test_a_segment_without_records_keeps_none_that_are_after_it(reopened: bool) -> None:
    """Its time is that of its file, of when it was cleaned: everything after it waited until that was long ago."""
    made = with_empty_segments(age_ms=4000)
    if reopened:
        made.reopen(clean=True)
    log = made.log
    now_ms = NOW_MS + 1001
    ages = log.begin_aging(now_ms)
    assert (ages is not None) == reopened, "the age of what has records must be found out"
    if ages is not None:
        ages.run()
        log.learn_timestamps(ages)
    assert log.delete_old_segments(now_ms - 1) == 0, "nothing is due yet"
    assert log.delete_old_segments(now_ms) == 3
    assert (bases(log), log.log_start) == ([3], 3)


def test_indexes_that_are_gone_are_built_anew_behind_a_segment_without_records() -> None:
    made = with_empty_segments(age_ms=4000)
    for base in (0, 2):
        made.disk.remove(f"{DIRECTORY}/{base:020}.timeindex")
    made.reopen(clean=True)
    log = made.log
    assert log.delete_old_segments(NOW_MS + 1001) == 0, "nobody knows how old it is"
    job = log.begin_reindexing()
    assert job is not None
    job.run()
    log.finish_reindexing(job)
    assert log.begin_reindexing() is None, "one without records needs none"
    assert log.delete_old_segments(NOW_MS + 1001) == 3


def test_a_segment_without_records_goes_by_the_time_of_its_file_where_what_is_after_it_stays() -> None:
    log = with_empty_segments(age_ms=-60_000).log
    assert log.delete_old_segments(NOW_MS + 5000) == 0
    assert log.delete_old_segments(NOW_MS + 5001) == 2
    assert bases(log) == [2, 3]


def test_the_oldest_go_while_enough_is_left() -> None:
    log = filled(new_disk(), retention_ms=-1, retention_bytes=SIZE * 5)
    assert log.delete_old_segments(NOW_MS) == 2
    assert (bases(log), log.size) == ([4, 6, 8], SIZE * 6)


def test_forever_is_forever() -> None:
    log = filled(new_disk(), retention_ms=-1, retention_bytes=-1)
    assert log.delete_old_segments(NOW_MS * 2) == 0


def test_a_compacted_topic_loses_only_what_lies_before_its_start() -> None:
    log = filled(new_disk(), cleanup_policy="compact", retention_ms=1, retention_bytes=0)
    assert log.delete_old_segments(NOW_MS * 2) == 0
    log.advance_log_start(5)
    assert log.delete_old_segments(NOW_MS * 2) == 2
    assert (bases(log), log.log_start) == ([4, 6, 8], 5)
    assert [found.base_offset for found in read_all(log)] == [5, 6, 7, 8, 9]


def test_files_are_renamed_at_once_and_removed_after_their_delay() -> None:
    disk = new_disk()
    log = filled(disk, retention_ms=5000, file_delete_delay_ms=1000)
    log.flush(NOW_MS)  # a snapshot that was not written yet would go without a trace
    log.delete_old_segments(NOW_MS + 8500)
    deleted = [name for name in disk.list_directory(DIRECTORY) if name.endswith(".deleted")]
    assert deleted == [
        f"{0:020}.index.deleted",
        f"{0:020}.log.deleted",
        f"{0:020}.timeindex.deleted",
        f"{2:020}.index.deleted",
        f"{2:020}.log.deleted",
        f"{2:020}.snapshot.deleted",
        f"{2:020}.timeindex.deleted",
    ]
    assert log.due_removals(NOW_MS + 9499) == []
    for job in log.due_removals(NOW_MS + 9500):
        job.run()
    assert not [name for name in disk.list_directory(DIRECTORY) if name.endswith(".deleted")]
    assert log.due_removals(NOW_MS * 2) == []


def test_a_clock_that_is_set_back_keeps_no_file_for_longer_than_its_delay() -> None:
    disk = new_disk()
    log = filled(disk, retention_ms=5000, file_delete_delay_ms=1000)
    log.delete_old_segments(NOW_MS + 8500)
    set_back_ms = NOW_MS - 600_000
    assert log.due_removals(set_back_ms) == []
    assert log.due_removals(set_back_ms + 999) == []
    assert len(log.due_removals(set_back_ms + 1000)) == 1


def test_epochs_begin_where_the_log_does() -> None:
    log = open_in(new_disk(), config(segment_bytes=SIZE * 2, retention_bytes=SIZE * 4, retention_ms=-1))
    for number in range(10):
        append(log, batch(b"%02d" % number), leader_epoch=number // 4)
    log.delete_old_segments(NOW_MS)
    assert [(entry.epoch, entry.start_offset) for entry in log.epochs.entries()] == [(1, 6), (2, 8)]


def test_a_delay_without_end_keeps_files_for_ever() -> None:
    log = filled(new_disk(), retention_ms=5000, file_delete_delay_ms=(1 << 63) - 1)
    assert log.delete_old_segments(NOW_MS + 100_000) == 5
    assert log.due_removals(NOW_MS * 1000) == []
