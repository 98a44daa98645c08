"""Opening logs through their directory: what it costs after a clean stop, and on a real file system."""

from pathlib import Path
from random import Random

import pytest

from mainstem.core.log.config import LogConfig
from mainstem.protocol.builder import BatchBuilder
from mainstem.sim.disk import SimDisk
from mainstem.sim.faults import Effect, Fault
from mainstem.storage.fs import FileSystem
from mainstem.storage.log import Log
from mainstem.storage.log_directory import LogPlace
from mainstem.storage.log_dirs import LogDirs
from mainstem.storage.meta_properties import MetaProperties, write_meta_properties
from mainstem.storage.open_files import OpenFiles
from mainstem.storage.posix import PosixFileSystem
from mainstem.storage.recovery import open_log
from tests.support.logs import read_all

NOW_MS = 1_700_000_000_000
CONFIG = LogConfig(internal_segment_bytes=20_000, index_interval_bytes=1000)


def begin_to_open(fs: FileSystem, path: str, capacity: int = 50) -> LogDirs[Log]:
    files = OpenFiles(fs, capacity)

    def opener(place: LogPlace) -> Log:
        return open_log(
            files,
            place.folder,
            CONFIG,
            NOW_MS,
            place.log_start,
            place.recovery_point,
            place.high_watermark,
            clean=place.clean,
            gaps_until=place.gaps_until,
            write_recovery_point=place.write_recovery_point,
        )

    return LogDirs(fs, Random(1), [path], "cluster", 1, opener)


def open_directory(fs: FileSystem, path: str, capacity: int = 50) -> LogDirs[Log]:
    dirs = begin_to_open(fs, path, capacity)
    for _ in dirs.load(NOW_MS):
        pass
    return dirs


def fill(dirs: LogDirs[Log], partition: int, batches: int, value_bytes: int = 200) -> Log:
    log = dirs.create("t", partition, bytes(range(16)), is_new=True)
    log.assign_epoch(1)
    for number in range(batches):
        builder = BatchBuilder()
        builder.append(NOW_MS + number, None, bytes(value_bytes))
        data = builder.build()
        log.append_as_leader(data, 0, len(data), 1, NOW_MS)
    log.update_high_watermark(log.log_end)
    return log


def test_opening_after_a_clean_stop_reads_no_more_of_a_long_log_than_of_a_short_one() -> None:
    read: list[int] = []
    for batches in (10, 1000):
        disk = SimDisk(Random(1))
        disk.make_directories("/d")
        write_meta_properties(disk, "/d", MetaProperties("cluster", 1, bytes(range(16))), NOW_MS)
        dirs = open_directory(disk, "/d")
        fill(dirs, 0, batches)
        dirs.close(1, NOW_MS)
        total = 0

        def count(operation: str, path: str, position: int, size: int) -> None:
            nonlocal total
            if operation == "read" and path.endswith(".log"):
                total += size

        disk.on_operation = count
        again = open_directory(disk, "/d")
        assert again.logs["t", 0].log_end == batches
        read.append(total)
    assert max(read) < 10_000, f"{read} bytes of batches read"


def test_logs_survive_a_clean_stop_on_a_real_disk_with_few_files_open(tmp_path: Path) -> None:
    fs = PosixFileSystem()
    path = str(tmp_path)
    write_meta_properties(fs, path, MetaProperties("cluster", 1, bytes(range(16))), NOW_MS)
    dirs = open_directory(fs, path, capacity=8)
    for partition in range(20):
        fill(dirs, partition, partition * 10)
    dirs.close(broker_epoch=4, now_ms=NOW_MS)
    again = open_directory(fs, path, capacity=8)
    assert again.previous_broker_epoch == 4
    assert {key: log.log_end for key, log in again.logs.items()} == {("t", n): n * 10 for n in range(20)}
    assert all(log.high_watermark == log.log_end for log in again.logs.values())
    again.close(broker_epoch=5, now_ms=NOW_MS)


@pytest.mark.parametrize("moment", ["open", "close"])
def test_a_disk_that_fails_under_a_log_takes_the_directory_offline_and_says_what_it_said(moment: str) -> None:
    disk = SimDisk(Random(1))
    disk.make_directories("/d")
    write_meta_properties(disk, "/d", MetaProperties("cluster", 1, bytes(16)), NOW_MS)
    dirs = open_directory(disk, "/d")
    fill(dirs, 0, 10)
    if moment == "open":
        disk.kill()
        disk.faults.append(Fault(Effect.FAIL, "read", ".log"))
        dirs = open_directory(disk, "/d")
    else:
        disk.faults.append(Fault(Effect.FAIL, "sync", ".log"))
        dirs.close(1, NOW_MS)
    assert (dirs.directories[0].offline or "").startswith("[Errno 5] simulated failure")
    assert not dirs.failed_logs


POINTS = "/d/recovery-point-offset-checkpoint"


def left_by_kafka(is_bad: bool = False) -> SimDisk:
    """Durable, with nothing written down of that: two logs, one of them with a gap that compaction left, and the index
    of its active segment as a running Kafka keeps it; or with a bad batch behind the gap."""
    disk = SimDisk(Random(1))
    disk.make_directories("/d")
    write_meta_properties(disk, "/d", MetaProperties("cluster", 1, bytes(range(16))), NOW_MS)
    dirs = open_directory(disk, "/d")
    log = fill(dirs, 0, 40, value_bytes=2000)
    log.flush(NOW_MS)
    fill(dirs, 1, 10).flush(NOW_MS)
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) > 4
    batch_bytes = log.segments[0].size // bases[1]
    disk.kill()
    with_gap = disk.open(f"/d/t-0/{bases[1]:020}.log")
    with_gap.truncate(batch_bytes * 3)
    with_gap.sync()
    index = disk.open(f"/d/t-0/{bases[-1]:020}.index")
    index.truncate(8192)
    index.sync()
    if is_bad:
        bad = disk.open(f"/d/t-0/{bases[2]:020}.log")
        bad.write_at(batch_bytes * 3 - 1, [b"bad"])
        bad.sync()
    assert disk.peek(POINTS) == b"0\n2\nt 0 0\nt 1 0\n"
    return disk


def offsets_of(dirs: LogDirs[Log]) -> list[int]:
    return [batch.base_offset for batch in read_all(dirs.logs["t", 0])]


@pytest.mark.parametrize("is_bad", [False, True])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_start_that_ends_at_any_change_takes_no_gap_from_the_next_one(is_bad: bool, is_known: bool) -> None:
    """What told the first one that compaction left it, Kafka's index or a missing line, may be gone for the next."""
    disk = left_by_kafka(is_bad)
    if not is_known:
        disk.remove(POINTS)
        disk.sync_directory("/d")
    whole = disk.fork()
    expected = offsets_of(open_directory(whole, "/d"))
    assert len(expected) > 10
    assert expected != list(range(len(expected)))
    moments: list[SimDisk] = []
    disk.after_change = lambda changed: moments.append(changed.fork())
    open_directory(disk, "/d")
    assert len(moments) > 20
    for number, moment in enumerate(moments):
        moment.after_change = None
        for is_power in (False, True):
            again = moment.fork()
            for _ in range(2):
                if is_power:
                    again.power_loss_keeping({})
                else:
                    again.kill()
                assert offsets_of(open_directory(again, "/d")) == expected, (number, is_power)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_start_that_is_interrupted_takes_no_gap_from_the_next_one(is_known: bool) -> None:
    disk = left_by_kafka()
    if not is_known:
        disk.remove(POINTS)
    expected = offsets_of(open_directory(disk.fork(), "/d"))
    dirs = begin_to_open(disk, "/d")
    for place in dirs.load(NOW_MS):
        if place.partition == 0:
            break
    dirs.close(1, NOW_MS)
    assert offsets_of(open_directory(disk, "/d")) == expected
