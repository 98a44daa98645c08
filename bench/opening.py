"""What opening partitions costs: `python -m bench.opening [--partitions 10000] [--batches 100] [--killed] [--json]`.

One partition is written and closed; its folder is copied under other names, and all are opened through their log
directory, as a broker does at its start, then closed again. With `--killed` as after a kill -9, so that each of them is
recovered.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from random import Random

from mainstem.build_info import build_name
from mainstem.core.log.config import LogConfig
from mainstem.protocol.builder import BatchBuilder
from mainstem.storage.checkpoint import HIGH_WATERMARKS, RECOVERY_POINTS, OffsetCheckpoint
from mainstem.storage.clean_shutdown import NAME as MARKER
from mainstem.storage.log import Log
from mainstem.storage.log_directory import LogPlace
from mainstem.storage.log_dirs import LogDirs
from mainstem.storage.meta_properties import MetaProperties, write_meta_properties
from mainstem.storage.open_files import OpenFiles
from mainstem.storage.posix import PosixFileSystem
from mainstem.storage.recovery import open_log

NOW_MS = 1_700_000_000_000


def load(folder: str) -> LogDirs[Log]:
    fs = PosixFileSystem()
    files = OpenFiles(fs, 1000)
    config = LogConfig()

    def opener(place: LogPlace) -> Log:
        starts = place.log_start, place.recovery_point, place.high_watermark
        return open_log(files, place.folder, config, NOW_MS, *starts, clean=place.clean)

    dirs: LogDirs[Log] = LogDirs(fs, Random(1), [folder], "cluster", 1, opener)
    for _ in dirs.load(NOW_MS):
        pass
    return dirs


def prepare(folder: str, partitions: int, batches: int) -> None:
    fs = PosixFileSystem()
    write_meta_properties(fs, folder, MetaProperties("cluster", 1, bytes(range(16))), NOW_MS)
    dirs = load(folder)
    log = dirs.create("topic", 0, bytes(range(16)), is_new=True)
    log.assign_epoch(1)
    for number in range(batches):
        builder = BatchBuilder(producer_id=7, producer_epoch=0, base_sequence=number)
        builder.append(NOW_MS + number, None, bytes(1000))
        data = builder.build()
        log.append_as_leader(data, 0, len(data), 1, NOW_MS)
    log.update_high_watermark(log.log_end)
    dirs.close(broker_epoch=1, now_ms=NOW_MS)
    for partition in range(1, partitions):
        shutil.copytree(f"{folder}/topic-0", f"{folder}/topic-{partition}")
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
        OffsetCheckpoint(fs, folder, name).write({("topic", partition): batches for partition in range(partitions)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--killed", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        prepare(folder, given.partitions, given.batches)
        if given.killed:
            PosixFileSystem().remove(f"{folder}/{MARKER}")
        os.sync()  # or the disk is busy with the copies meanwhile
        started, cpu = time.perf_counter(), time.process_time()
        dirs = load(folder)
        opened_s, opened_cpu_s = time.perf_counter() - started, time.process_time() - cpu
        assert all(log.log_end == given.batches for log in dirs.logs.values())
        started = time.perf_counter()
        dirs.close(broker_epoch=2, now_ms=NOW_MS)
        closed_s = time.perf_counter() - started
    figures = {"open_s": round(opened_s, 2), "open_cpu_s": round(opened_cpu_s, 2), "close_s": round(closed_s, 2)}
    asked = {"partitions": given.partitions, "batches": given.batches, "killed": given.killed}
    if given.json:
        print(json.dumps({"build": build_name(), **asked, **figures}))
    else:
        print(f"{build_name()}: {asked}: {figures}")


if __name__ == "__main__":
    main()
