"""What the driver of compaction sees to before a log gets gaps."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from mainstem.broker.drivers.compaction import Compaction
from mainstem.core.log.compaction import Cleanable, find_cleanable
from mainstem.core.log.config import LogConfig, parse_log_config
from mainstem.protocol.builder import BatchBuilder
from mainstem.protocol.records import iterate_records
from mainstem.storage.checkpoint import RECOVERY_POINTS
from mainstem.storage.cleaner import Candidate, Cleaner
from mainstem.storage.cleaning import Cleaning
from mainstem.storage.log import Log
from mainstem.storage.log_copy import LogCopy
from mainstem.storage.log_directory import LogPlace
from mainstem.storage.log_dirs import LogDirs
from mainstem.storage.meta_properties import MetaProperties, write_meta_properties
from mainstem.storage.open_files import OpenFiles
from mainstem.storage.partition_jobs import NewPartition
from mainstem.storage.recovery import open_log
from tests.support.compaction import CompactedLog
from tests.support.logs import NOW_MS, append, batch, new_disk, read_all

CONFIG: Any = SimpleNamespace(
    get_bool=lambda *_, **__: True, get_int=lambda *_, **__: 1 << 20, get_float=lambda *_, **__: 0.9
)
CLOCK: Any = SimpleNamespace(wall_ms=lambda: NOW_MS)


def new_dirs(*paths: str, settings: LogConfig | None = None) -> tuple[LogDirs[Log], OpenFiles]:
    disk = new_disk()
    for number, path in enumerate(paths):
        disk.make_directories(path)
        write_meta_properties(disk, path, MetaProperties("c", 1, bytes([number + 1] * 16)), NOW_MS)
    files = OpenFiles(disk, 50)

    def opened(place: LogPlace) -> Log:
        return open_log(files, place.folder, settings or LogConfig(), NOW_MS, place.log_start, place.recovery_point)

    dirs: LogDirs[Log] = LogDirs(disk, Random(1), paths, "c", 1, opened)
    assert list(dirs.load(NOW_MS)) == []
    return dirs, files


class Partitions(list[SimpleNamespace]):
    """All that a broker has: one."""

    def __init__(self, partition: SimpleNamespace, dirs: Any = None) -> None:
        super().__init__([partition])
        self.dirs = dirs or SimpleNamespace(moves={})


def test_a_log_is_not_compacted_while_it_moves_to_another_directory() -> None:
    """C3: the copy may have a key's older value already when the tombstone goes that it has not come to."""
    dirs, files = new_dirs("/a", "/b", settings=parse_log_config({"cleanup.policy": "compact", "segment.ms": "1"}))
    log = dirs.create("t", 0, bytes(range(16)), is_new=True)
    for number in range(4):
        append(log, batch(b"value", timestamp=NOW_MS + 10 * number))
    log.flush(NOW_MS)
    partition = SimpleNamespace(topic="t", index=0, log=log)

    async def run() -> None:
        partitions: Any = Partitions(partition, dirs)
        compaction = Compaction(asyncio.get_running_loop(), CLOCK, CONFIG, partitions)
        cleaner = Cleaner(files, {})
        assert await compaction._choose(cleaner) is not None
        target = next(each for each in dirs.directories if each is not dirs.directory_of("t", 0))
        dirs.begin_move("t", 0, target)
        assert await compaction._choose(cleaner) is None
        dirs.cancel_move("t", 0)
        assert await compaction._choose(cleaner) is not None

    asyncio.run(run())


@pytest.mark.parametrize("lag", ["min_compaction_lag_ms", "max_compaction_lag_ms"])
@pytest.mark.parametrize("checkpoint", [None, 10, 1000])
def test_others_have_their_turn_while_the_ages_of_many_segments_are_learned(lag: str, checkpoint: int | None) -> None:
    """Also where the offset in the checkpoint is past the end of the log, so that everything is dirty."""
    made = CompactedLog(**{lag: 1})
    for _ in range(50):
        made.put((b"key", b"value"))
        made.roll()
    made.reopen(clean=True)
    if checkpoint is not None:
        made.cleaner.offsets["t", 0] = checkpoint
    partition = SimpleNamespace(topic="t", index=0, log=made.log)
    partitions: Any = Partitions(partition)
    opened: set[str] = set()
    made.disk.on_operation = lambda operation, path, *_: opened.add(path) if operation == "read" else None

    async def run() -> int:
        most = 0
        compaction = Compaction(asyncio.get_running_loop(), CLOCK, CONFIG, partitions)
        choosing = asyncio.ensure_future(compaction._choose(made.cleaner))
        while not choosing.done():
            await asyncio.sleep(0)
            most = max(most, len(opened))
            opened.clear()
        return most

    assert 0 < asyncio.run(run()) <= 3 * 16, "the files of sixteen segments"


def test_a_cleaning_under_way_ends_when_its_log_begins_to_move() -> None:
    """C3: the copy has what the cleaning takes away. Were the copy taken for cleaned, a key's tombstone would go from
    it one day, and leave its older value behind."""
    settings = parse_log_config(
        {"cleanup.policy": "compact", "delete.retention.ms": "0", "internal.segment.bytes": "200"}
    )
    dirs, files = new_dirs("/a", "/b", settings=settings)
    log = dirs.create("t", 0, bytes(range(16)), is_new=True)
    for key, value in ((b"gone", b"old"), (b"a", b"1" * 50), (b"gone", None), (b"b", b"2" * 50), (b"c", b"3" * 50)):
        append(log, batch(value, key=key))
        log.roll(NOW_MS)
    log.flush(NOW_MS)
    partition = SimpleNamespace(topic="t", index=0, log=log, restructure=restructure)
    cleaner = Cleaner(files, {})
    copies: list[LogCopy] = []

    async def run() -> None:
        partitions: Any = SimpleNamespace(dirs=dirs, get=lambda topic, index: partition)
        compaction = Compaction(asyncio.get_running_loop(), CLOCK, CONFIG, partitions)
        compaction._throttle.bytes_per_s = float("inf")
        step = compaction._step

        async def step_beside_a_move(topic: str, index: int, cleaning: Cleaning) -> None:
            if not copies:
                target = next(each for each in dirs.directories if each is not dirs.directory_of("t", 0))
                copies.append(LogCopy(log, dirs.begin_move("t", 0, target).log))
                copies[0].complete(1 << 20, NOW_MS)
            await step(topic, index, cleaning)

        compaction._step = step_beside_a_move  # type: ignore[method-assign]
        candidate = cleaner.examine(("t", 0), log, NOW_MS)
        assert candidate is not None
        await compaction._clean(cleaner, candidate)

    asyncio.run(run())
    copies[0].complete(1 << 20, NOW_MS)
    moved = dirs.finish_move("t", 0).log
    for now_ms in (NOW_MS, NOW_MS + 1, NOW_MS + 2):
        append(moved, batch(b"4" * 50, key=b"d"))
        moved.roll(NOW_MS)
        moved.flush(NOW_MS)
        cleaner.clean(Candidate(("t", 0), moved, cleanable(cleaner, moved, now_ms)), now_ms)
    found = [record for each in read_all(moved) for record in iterate_records(each)]
    assert {record.key for record in found} == {b"a", b"b", b"c", b"d"}


async def restructure(run: Callable[[], object]) -> None:
    run()


def cleanable(cleaner: Cleaner, log: Log, now_ms: int) -> Cleanable:
    """All of it that may be cleaned, due or not."""
    return find_cleanable(
        log.segments,
        log.log_start,
        log.log_end,
        log.last_stable_offset,
        log.recovery_point,
        cleaner.offsets.get(("t", 0)),
        log.config,
        now_ms,
    )


def test_recovery_points_are_on_disk_before_a_cleaning_though_a_topic_is_created_meanwhile() -> None:
    """What was collected before the creation must not be written any more; it used to be left at that, and a kill in
    the cleaning then cut the log at its first gap."""
    dirs, _ = new_dirs("/a")
    log = dirs.create("t", 0, bytes(16), is_new=True)
    builder = BatchBuilder()
    builder.append(NOW_MS, b"key", b"value")
    data = builder.build()
    log.append_as_leader(data, 0, len(data), 0, NOW_MS)
    log.flush(NOW_MS)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        go_on = threading.Event()
        busy = loop.run_in_executor(None, go_on.wait, 10)
        partitions: Any = SimpleNamespace(dirs=dirs)
        compaction = Compaction(loop, CLOCK, CONFIG, partitions)
        writing = asyncio.create_task(compaction._write_recovery_points("t", 0))
        await asyncio.sleep(0)
        dirs.begin_create([NewPartition("other", 0, bytes(range(16)))])
        go_on.set()
        await writing
        await busy

    asyncio.run(run())
    assert dirs.directories[0].checkpoints[RECOVERY_POINTS]["t", 0] == log.log_end == 1


def test_that_there_is_no_room_to_compact_a_log_is_said_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    made = CompactedLog()
    made.put((b"key", b"value"))
    made.roll()
    made.disk.capacity_bytes = 1 << 20
    dirs: Any = SimpleNamespace(moves={}, directory_of=lambda topic, index: None)
    partition = SimpleNamespace(topic="orders", index=0, log=made.log)

    async def run() -> None:
        partitions: Any = SimpleNamespace(dirs=dirs, get=lambda topic, index: partition)
        compaction = Compaction(asyncio.get_running_loop(), CLOCK, CONFIG, partitions)
        compaction._throttle.bytes_per_s = float("inf")
        for _ in range(3):
            made.cleaner.put_off.clear()
            candidate = made.cleaner.examine(("orders", 0), made.log, NOW_MS)
            assert candidate is not None
            assert not await compaction._clean(made.cleaner, candidate)

    asyncio.run(run())
    [said] = [record for record in caplog.records if "room" in record.message]
    usable = made.disk.usable_bytes("/")
    assert (vars(said)["partition"], vars(said)["usable_bytes"]) == ("orders-0", usable)
    assert vars(said)["needed_bytes"] > usable
    assert made.log.failure is None
