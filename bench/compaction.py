"""What compaction costs: `python -m bench.compaction [--records 1000000] [--json]`.

A log of small and of large batches, half of its records superseded, is compacted step by step on a real disk. Counted
are records and bytes a second, what the map alone takes for a key, and how long single steps and turns take: those
that sync, which belong in a thread, apart from all others, which may run on the event loop. Times are those of the
processor: on a shared machine a clock on the wall would count whoever else ran meanwhile. Throughput is by that clock.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from random import Random

from mainstem.build_info import build_name
from mainstem.core.log.config import LogConfig
from mainstem.protocol.builder import BatchBuilder
from mainstem.protocol.compression import CODEC_NAMES
from mainstem.storage.cleaner import Cleaner
from mainstem.storage.cleaning_map import CleaningMap
from mainstem.storage.open_files import OpenFiles
from mainstem.storage.posix import PosixFileSystem
from mainstem.storage.recovery import open_log

NOW_MS = 1_700_000_000_000
VALUE = Random(1).randbytes(100)
PARTITION = ("topic", 0)


def measure_map(keys: int) -> dict[str, float]:
    names = [b"key-%012d" % number for number in range(keys)]
    table = CleaningMap(24 * int(keys / 0.9 + 2), keys)
    begun = time.thread_time()
    while table.allocate():
        pass
    allocated = time.thread_time()
    for offset, name in enumerate(names):
        table.put(name, offset)
    put = time.thread_time()
    for name in names:
        table.get(name)
    got = time.thread_time()
    return {
        "map_allocate_ms": (allocated - begun) * 1e3,
        "map_put_ns": (put - allocated) / keys * 1e9,
        "map_get_ns": (got - put) / keys * 1e9,
    }


def percentile(times: list[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(len(times) * share))] * 1e3 if times else 0.0


def measure(records: int, batch_records: int, codec: int) -> dict[str, float | str]:
    folder = tempfile.mkdtemp()
    try:
        files = OpenFiles(PosixFileSystem(), 1000)
        config = LogConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0, segment_bytes=64 << 20)
        log = open_log(files, folder, config, NOW_MS)
        rng = Random(2)
        for _ in range(records // batch_records):
            builder = BatchBuilder(codec=codec)
            for _ in range(batch_records):
                builder.append(NOW_MS, b"key-%012d" % rng.randrange(records // 2), VALUE)
            data = builder.build()
            log.append_as_leader(data, 0, len(data), 0, NOW_MS)
        log.update_high_watermark(log.log_end)
        log.roll(NOW_MS)
        log.flush(NOW_MS)
        size = int(log.size)
        cleaner = Cleaner(files, {})
        candidate = cleaner.choose({PARTITION: log}, NOW_MS)
        assert candidate is not None
        steps: list[float] = []
        turns: list[float] = []
        syncs: list[float] = []
        begun = time.perf_counter()
        cleaning = cleaner.begin(candidate, NOW_MS)
        while True:
            at = time.thread_time()
            more = cleaning.turn(NOW_MS)
            turns.append(time.thread_time() - at)
            if not more:
                break
            while True:
                at, wall = time.thread_time(), time.perf_counter()
                blocks = cleaning.blocks
                more = cleaning.step()
                if blocks:
                    syncs.append(time.perf_counter() - wall)
                else:
                    steps.append(time.thread_time() - at)
                if not more:
                    break
        took = time.perf_counter() - begun
        cleaner.end(PARTITION)
        assert cleaning.is_done, cleaning.failure
        return {
            "codec": CODEC_NAMES[codec],
            "batch_records": batch_records,
            "records_per_s": records / took,
            "cpu_ns_per_record": (sum(steps) + sum(turns)) / records * 1e9,
            "mb_per_s": size / took / 1e6,
            "kept_share": int(cleaning.stats.records_kept) / records,
            "step_p50_ms": percentile(steps, 0.5),
            "step_p99_ms": percentile(steps, 0.99),
            "step_max_ms": percentile(steps, 1.0),
            "turn_p50_ms": percentile(turns, 0.5),
            "turn_max_ms": percentile(turns, 1.0),
            "sync_max_ms": percentile(syncs, 1.0),
        }
    finally:
        shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures: list[dict[str, float | str]] = [dict(measure_map(options.records))]
    for batch_records, codec in ((1, 0), (100, 0), (1000, 0), (100, 3), (100, 4)):
        figures.append(measure(options.records // (10 if batch_records == 1 else 1), batch_records, codec))
    if options.json:
        print(json.dumps({"build": build_name(), "compaction": figures}))
        return
    print(build_name())
    for each in figures:
        print(
            "  ".join(
                f"{name} {value if isinstance(value, str) else format(value, '.3g')}" for name, value in each.items()
            )
        )


if __name__ == "__main__":
    main()
