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
from mainstem.storage.log_dirs import LogDirs, LogPlace
from mainstem.storage.meta_properties import MetaProperties, write_meta_properties
from mainstem.storage.open_files import OpenFiles
from mainstem.storage.posix import PosixFileSystem
from mainstem.storage.recovery import open_log

NOW_MS = 1_700_000_000_000
CONFIG = LogConfig(internal_segment_bytes=20_000, index_interval_bytes=1000)


def open_directory(fs: FileSystem, path: str, capacity: int = 50) -> LogDirs[Log]:
    files = OpenFiles(fs, capacity)

    def opener(place: LogPlace) -> Log:
        starts = place.log_start, place.recovery_point, place.high_watermark
        return open_log(files, place.folder, CONFIG, NOW_MS, *starts, clean=place.clean)

    dirs: LogDirs[Log] = LogDirs(fs, Random(1), [path], "cluster", 1, opener)
    for _ in dirs.load(NOW_MS):
        pass
    return dirs


def fill(dirs: LogDirs[Log], partition: int, batches: int) -> Log:
    log = dirs.create("t", partition, bytes(range(16)), is_new=True)
    log.assign_epoch(1)
    for number in range(batches):
        builder = BatchBuilder()
        builder.append(NOW_MS + number, None, bytes(200))
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
