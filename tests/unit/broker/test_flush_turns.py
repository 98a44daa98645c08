"""Flushes share a budget of open files: those that do not fit wait their turn, and lose nothing by it."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine

import pytest

from mainstem.broker.flush_turns import FlushTurns
from mainstem.broker.partition import Partition
from mainstem.protocol.errors import ErrorCode
from mainstem.sim.disk import SimDisk
from mainstem.sim.faults import Effect, Fault
from mainstem.storage.errors import OutOfFilesError, StorageError
from mainstem.storage.flushing import FlushJob
from mainstem.storage.open_files import OpenFiles
from tests.support.logs import NOW_MS, append, batch, config, make_directory, new_disk, open_in

from .coordinating import ManualClock


class World:
    """Partitions that are flushed before each acknowledgement, on one disk, with few files."""

    def __init__(self, partitions: int, files_max: int, **settings: str | int) -> None:
        self.loop = asyncio.get_running_loop()
        self.disk = new_disk()
        self.files = OpenFiles(self.disk, files_max)
        self.turns = FlushTurns(self.loop, self.files)
        self.failed: list[StorageError] = []
        self.acknowledged: list[int] = []
        self.most_pinned = 0
        make_directory(self.disk, "/data")
        self.partitions = [self._partition(index, settings) for index in range(partitions)]
        self.disk.on_operation = self._look

    def _partition(self, index: int, settings: dict[str, str | int]) -> Partition:
        directory = f"/data/t-{index}"
        log = open_in(self.disk, config(flush_messages=1, **settings), directory, files=self.files, high_watermark=0)
        partition = Partition(
            self.loop,
            ManualClock(),
            "t",
            bytes(16),
            index,
            log,
            lambda _, error: self.failed.append(error),
            turns=self.turns,
        )
        partition.lead(1, 0, (1,), (1,), 1)
        return partition

    def _look(self, operation: str, path: str, position: int, size: int) -> None:
        if operation == "sync":
            refs = [ref for each in self.partitions for segment in each.log.segments for ref in segment.refs()]
            self.most_pinned = max(self.most_pinned, sum(ref.pins > 0 for ref in refs))

    def write(self, index: int, value: bytes = b"v") -> None:
        partition = self.partitions[index]
        data = batch(value)
        result = partition.append(data, 0, len(data))

        def committed(code: ErrorCode) -> None:
            assert code == ErrorCode.NONE
            assert partition.log.recovery_point > result.base_offset, "acknowledged before it was durable"
            self.acknowledged.append(index)

        partition.when_committed(result.base_offset + 1, committed)
        partition.notify()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.acknowledged) < count:
                await asyncio.sleep(0.001)
            while any(each.is_busy for each in self.partitions):
                await asyncio.sleep(0.001)


def run(story: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(story())


def test_flushes_of_many_logs_hold_no_more_files_than_their_part() -> None:
    async def story() -> None:
        world = World(partitions=60, files_max=32)
        for index in range(60):
            world.write(index)
        assert world.turns.room <= 0
        await world.until(60)
        assert 0 < world.most_pinned <= 16 + 2
        # Turns come in the order in which they were asked for; of a few that have theirs at once any may be done first.
        assert all(abs(at - index) < 16 for at, index in enumerate(world.acknowledged)), world.acknowledged
        assert world.turns.room == 16
        assert not world.failed

    run(story)


def test_a_turn_that_fails_or_is_wanted_no_more_holds_up_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        world = World(partitions=3, files_max=2)
        turns, log = world.turns, world.partitions[2].log
        held = await turns.begun(lambda most: world.partitions[0].log.begin_flush(NOW_MS, False, most))
        assert held is not None

        def broken(_most: int) -> FlushJob | None:
            raise ValueError("broken")

        waiting = asyncio.ensure_future(turns.begun(broken))
        left = asyncio.ensure_future(turns.begun(lambda most: world.partitions[1].log.begin_flush(NOW_MS, False, most)))
        turns.ask(broken)
        last = asyncio.ensure_future(turns.begun(lambda most: log.begin_flush(NOW_MS, False, most)))
        await asyncio.sleep(0)
        left.cancel()
        await asyncio.sleep(0)
        held.run()
        world.partitions[0].log.finish_flush(held)
        turns.done(held)
        with pytest.raises(ValueError, match="broken"):
            await waiting
        job = await last
        assert job is not None
        job.run()
        log.finish_flush(job)
        turns.done(job)
        assert not world.partitions[1].log.is_flushing
        assert turns.room == 1
        assert "failed to begin a flush" in caplog.text

    run(story)


def test_who_writes_all_the_time_does_not_keep_others_from_their_turn() -> None:
    async def story() -> None:
        world = World(partitions=12, files_max=2)
        for index in range(12):
            world.write(index)
        while len(set(world.acknowledged)) < 12:
            world.write(0)
            await asyncio.sleep(0.001)
        first_of_others = [world.acknowledged.index(index) for index in range(1, 12)]
        assert first_of_others == sorted(first_of_others)

    run(story)


def test_what_is_written_while_a_log_waits_is_covered_by_its_turn() -> None:
    async def story() -> None:
        world = World(partitions=2, files_max=2)
        world.write(0)
        for _ in range(5):
            world.write(1)
        synced = 0

        def count(operation: str, path: str, *_: int) -> None:
            nonlocal synced
            synced += operation == "sync" and "t-1" in path and path.endswith(".log")

        world.disk.on_operation = count
        await world.until(6)
        assert synced == 1

    run(story)


def test_a_log_with_many_files_to_sync_gives_others_their_turn_in_between() -> None:
    async def story() -> None:
        world = World(partitions=2, files_max=20, segment_bytes=len(batch(b"00")))
        world.partitions[0]._is_held = True
        for number in range(50):
            world.write(0, b"%02d" % number)
        world.partitions[0].release()
        world.write(1)
        await world.until(51)
        assert world.acknowledged.index(1) < 25
        assert world.most_pinned <= 10 + 3 + 3
        assert world.partitions[0].log.recovery_point == 50

    run(story)


def test_a_system_without_files_for_a_moment_fails_no_log() -> None:
    async def story() -> None:
        world = World(partitions=3, files_max=2)
        fault = Fault(Effect.FAIL, "open", "/data/t-1", errno.EMFILE, times=7)
        world.write(0)
        world.write(1)
        world.write(2)
        for segment in world.partitions[1].log.segments:
            for ref in segment.refs():
                ref.discard()
        world.disk.faults.append(fault)
        await world.until(3)
        assert fault.times == 0
        assert not world.failed
        assert [each.log.recovery_point for each in world.partitions] == [1, 1, 1]

    run(story)


def test_who_resigned_or_is_held_when_the_turn_comes_is_passed_over() -> None:
    async def story() -> None:
        world = World(partitions=4, files_max=2)
        world.write(0)
        world.write(3)
        for index in (1, 2):
            data = batch(b"v")
            world.partitions[index].append(data, 0, len(data))
        world.partitions[1].resign()
        holding = asyncio.ensure_future(world.partitions[2].hold())
        await world.until(2)
        await holding
        assert [each.log.recovery_point for each in world.partitions] == [1, 0, 0, 1]
        world.partitions[2].release()
        await world.until(2)
        assert world.partitions[2].log.recovery_point == 1

    run(story)


def test_a_failed_disk_gives_its_files_back() -> None:
    async def story() -> None:
        world = World(partitions=3, files_max=2)
        world.disk.faults.append(Fault(Effect.FAIL_SYNC_AND_DROP, "sync", "/data/t-1"))
        for index in range(3):
            world.write(index)
        await world.until(2)
        assert world.acknowledged == [0, 2]
        assert len(world.failed) == 1
        assert world.turns.room == 1

    run(story)


def test_a_flush_that_could_not_be_begun_has_taken_nothing_from_the_next() -> None:
    """The snapshots of producers that go with it, and the epochs, are the next one's."""
    disk: SimDisk = new_disk()
    log = open_in(disk, files=OpenFiles(disk, 8))
    log.assign_epoch(3)
    append(log, batch(b"v", producer_id=7, epoch=0, sequence=0), leader_epoch=3)
    log.roll(NOW_MS)
    snapshots = len(log.producers.unsynced())
    assert snapshots > 0
    for segment in log.segments:
        for ref in segment.refs():
            ref.discard()
    disk.faults.append(Fault(Effect.FAIL, "open", "", errno.ENFILE, times=2))
    with pytest.raises(OutOfFilesError):
        log.begin_flush(NOW_MS)
    assert log.failure is None
    assert not log.is_flushing
    job: FlushJob = log.begin_flush(NOW_MS)
    assert len(job.snapshots) == snapshots
    assert job.epochs_version >= 0
    job.run()
    log.finish_flush(job)
    assert log.recovery_point == log.log_end
