"""Power is lost at every step of a cleaning, in every way: the log means the same after it (C6).

A cleaning with a group of several segments, tombstones and an aborted transaction runs once on a simulated disk that
is copied after each change. Whatever power loss may leave of the unsynced changes of each copy is opened, and then
lost once more during its recovery. By key the log must hold what it held, its files must say what its batches say, and
no transaction may come undone.
"""

from random import Random

import pytest

from mainstem.sim.changes import every_survival
from mainstem.sim.disk import SimDisk
from mainstem.storage.cleaner import Cleaner
from mainstem.storage.log import Log
from mainstem.storage.open_files import OpenFiles
from tests.support.compaction import PARTITION, CompactedLog, records_of, table_of
from tests.support.log_files import check_folder
from tests.support.logs import DIRECTORY, NOW_MS, file_contents, open_in


def prepared() -> CompactedLog:
    made = CompactedLog(segment_bytes=900, index_interval_bytes=100, delete_retention_ms=0)
    for turn in range(4):
        made.put((b"a", b"%d" % turn), (b"b%d" % turn, b"v"))
        made.put((b"b%d" % (turn - 1), None))
        made.put_as(7, (b"a", b"aborted"), (b"c", b"%d" % turn), transactional=True)
        made.end(7, turn % 2 == 0)
        if turn % 2:
            made.log.roll(NOW_MS)
    made.put((b"d", b"1"))
    made.roll()
    # A cleaning came before: markers and tombstones have horizons, and go this time.
    assert made.clean() is not None
    made.put((b"a", b"last"))
    made.log.roll(NOW_MS)
    made.put_as(7, (b"e", b"aborted"), transactional=True)
    made.end(7, False)
    made.roll()
    for job in made.log.due_removals(NOW_MS + (1 << 40)):
        job.run()
    for folder in ("/", "/data", DIRECTORY):
        made.disk.sync_directory(folder)
    made.log.flush(NOW_MS)
    assert not made.disk.unsynced()
    return made


def moments(made: CompactedLog) -> list[SimDisk]:
    taken: list[SimDisk] = []
    segments = len(made.log.segments)
    made.disk.after_change = lambda disk: taken.append(disk.fork())
    cleaning = made.clean(NOW_MS + 10)
    made.disk.after_change = None
    assert cleaning is not None
    assert cleaning.is_done
    assert len(made.log.segments) < segments, "several segments must become one"
    return taken


def check(disk: SimDisk, made: CompactedLog, table: dict[bytes, bytes], end: int, point: int) -> None:
    files = OpenFiles(disk, 100)
    log = open_in(disk, made.config, recovery_point=point, files=files)
    assert log.log_end == end
    assert table_of(log) == table
    assert log.last_stable_offset == end
    check_folder(file_contents(disk), complete=False, from_the_start=False)
    assert not [name for name in disk.list_directory(DIRECTORY) if name.endswith((".cleaned", ".swap", ".deleted"))]


def try_crashes(share: float, seed: int = 0) -> int:
    rng = Random(seed)
    made = prepared()
    table, end, point = table_of(made.log), made.log.log_end, made.log.recovery_point
    assert table[b"a"] == b"last"
    assert b"e" not in table
    seen: set[int] = set()
    for moment in moments(made):
        for kept in every_survival(moment.unsynced()):
            if rng.random() >= share:
                continue
            crashed = moment.fork()
            crashed.power_loss_keeping(kept)
            print_of_it = crashed.fingerprint()
            if print_of_it in seen:
                continue
            seen.add(print_of_it)
            during: list[SimDisk] = []
            again = crashed.fork()
            again.after_change = lambda disk, during=during: during.append(disk.fork())
            check(again, made, table, end, point)
            for point_in_recovery in rng.sample(during, min(2, len(during))):
                point_in_recovery.power_loss(rng)
                check(point_in_recovery, made, table, end, point)
    return len(seen)


def test_a_sample_of_crashes_leaves_the_same_log() -> None:
    assert try_crashes(0.03) > 50


def interrupted_swaps(made: CompactedLog) -> list[SimDisk]:
    """The disks of a process that died while files of a cleaning had the names of a swap."""
    found: list[SimDisk] = []
    for moment in moments(made):
        if any(name.endswith(".swap") for name in moment.list_directory(DIRECTORY)):
            moment.kill()
            found.append(moment)
    return found


def test_power_lost_while_a_recovery_ends_a_swap_leaves_the_same_log() -> None:
    """A swap that was begun is undone or finished; the recovery that does so may be interrupted as well."""
    rng = Random(5)
    made = prepared()
    table, end, point = table_of(made.log), made.log.log_end, made.log.recovery_point
    seen: set[int] = set()
    for swap in interrupted_swaps(made):
        during: list[SimDisk] = []
        again = swap.fork()
        again.after_change = lambda disk, during=during: during.append(disk.fork())
        check(again, made, table, end, point)
        for moment in during:
            ways = list(every_survival(moment.unsynced(), subset_max=2))
            for kept in rng.sample(ways, min(len(ways), 6)):
                crashed = moment.fork()
                crashed.power_loss_keeping(kept)
                if crashed.fingerprint() not in seen:
                    seen.add(crashed.fingerprint())
                    check(crashed, made, table, end, point)
    assert len(seen) > 100


@pytest.mark.campaign
@pytest.mark.timeout(1800)
def test_every_crash_leaves_the_same_log() -> None:
    disks = try_crashes(1.0)
    print(f"{disks} disks")
    assert disks > 1000


def test_a_cleaner_that_starts_over_after_a_crash_comes_to_the_same_end() -> None:
    made = prepared()
    point = made.log.recovery_point
    rng = Random(3)
    taken = moments(made)
    expected = made.written()
    for moment in rng.sample(taken, 12):
        moment.power_loss(rng)
        files = OpenFiles(moment, 100)
        log = open_in(moment, made.config, recovery_point=point, files=files)
        cleaner = Cleaner(files, {})
        candidate = cleaner.choose({PARTITION: log}, NOW_MS + 10)
        assert candidate is not None
        cleaner.clean(candidate, NOW_MS + 10)
        assert {key for _, key, _ in expected} == {record.key for record in records_of(log)}


def test_a_swap_that_was_undone_stays_undone_when_the_start_that_did_it_was_killed() -> None:
    """T5. Without the `.cleaned` files beside it a `.swap` passes for a whole one, and lacks its transaction index."""

    def aborted(log: Log) -> list[tuple[int, int]]:
        return [(each.first_offset, each.last_offset) for each in log.aborted_transactions(0, log.log_end)]

    def kills_in_a_start(disk: SimDisk) -> list[SimDisk]:
        taken: list[SimDisk] = []
        disk.after_change = lambda changed: taken.append(changed.fork())
        open_in(disk, made.config, recovery_point=point)
        disk.after_change = None
        for each in taken:
            each.kill()
        return taken

    made = prepared()
    table, point = table_of(made.log), made.log.recovery_point
    tried = 0
    for moment in moments(made):
        suffixes = {name.rpartition(".")[2] for name in moment.list_directory(DIRECTORY)}
        if not {"swap", "cleaned"} <= suffixes:
            continue
        moment.kill()
        undone = moment.fork()
        expected = aborted(open_in(undone, made.config, recovery_point=point))
        for first in kills_in_a_start(moment):
            for second in kills_in_a_start(first):
                for kept in every_survival(second.unsynced(), 1):
                    crashed = second.fork()
                    crashed.power_loss_keeping(kept)
                    log = open_in(crashed, made.config, recovery_point=point)
                    assert (aborted(log), table_of(log)) == (expected, table)
                    tried += 1
    assert tried > 100
