"""A group coordinator on a real partition: what it appends is in the log's files and is read back from them."""

from __future__ import annotations

import asyncio

import pytest

from mainstem.broker.drivers.coordinator import CoordinatorRuntime, PartitionLog
from mainstem.broker.partition import Partition
from mainstem.core.group.config import GroupConfig
from mainstem.core.group.machine import GroupMachine
from mainstem.core.group.offsets import CommitBy, NewOffset
from mainstem.protocol.batch import iterate_batches
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.primitives import ZERO_UUID
from mainstem.protocol.records import iterate_records
from mainstem.sim.disk import SimDisk
from mainstem.sim.faults import Effect, Fault
from mainstem.storage.errors import StorageError
from mainstem.storage.log import Log
from tests.support.logs import NOW_MS, append, batch, config, new_disk, open_in

from .coordinating import ManualClock


def never_fails(partition: Partition, error: StorageError) -> None:
    raise AssertionError(error)


def test_a_disk_that_cannot_be_read_ends_the_loading_and_takes_the_log_offline() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        disk = new_disk()
        log = open_in(disk)
        append(log, batch(b"v"))
        failed: list[StorageError] = []
        partition = Partition(
            loop, ManualClock(), "__consumer_offsets", bytes(16), 0, log, lambda _, error: failed.append(error)
        )
        partition.lead(1, 0, (1,), (1,), 1)
        disk.faults.append(Fault(Effect.FAIL, "read", log.active_segment.log.path, times=-1))
        with pytest.raises(StorageError):
            await PartitionLog(loop, partition).read(0, 1 << 20)
        assert [type(error.cause) for error in failed] == [OSError]

    asyncio.run(story())


def flip(disk: SimDisk, log: Log, offset: int, bit: int) -> None:
    """Changes a bit of the offset of the batch of one record that is at `offset`, on the disk alone."""
    segment = max((each for each in log.segments if each.base_offset <= offset), key=lambda each: each.base_offset)
    data = disk.peek(segment.log.path)[: segment.size]
    [found] = [each for each in iterate_batches(data, 0, len(data)) if each.base_offset == offset]
    disk.flip_bit(segment.log.path, (found.start + 7 - bit // 8) * 8 + bit % 8)


@pytest.mark.parametrize("max_bytes", [1, 200, 300, 1 << 20])
def test_nothing_is_passed_over_between_two_reads(max_bytes: int) -> None:
    """Whichever bit of whichever batch's offset has changed: it is noticed, or every batch is read."""

    async def read_all(partition: Partition) -> list[bytes]:
        held = PartitionLog(asyncio.get_running_loop(), partition)
        found: list[bytes] = []
        position = held.log_start
        while position < held.log_end:
            data = await held.read(position, max_bytes)
            for each in iterate_batches(data, 0, len(data)):
                if not position <= each.base_offset < held.log_end:
                    raise RemoteError(ErrorCode.CORRUPT_MESSAGE)
                found += [record.value or b"" for record in iterate_records(each)]
                position = each.next_offset
        return found

    async def story() -> None:
        loop = asyncio.get_running_loop()
        values = [b"%02d" % number for number in range(11)]
        settings = config(segment_bytes=3 * len(batch(b"00")), index_interval_bytes=100)
        noticed = 0
        for offset in range(len(values)):
            for bit in (0, 1, 2, 3, 4, 40, 63):
                disk = new_disk()
                log = open_in(disk, settings)
                for value in values:
                    append(log, batch(value))
                log.close(NOW_MS)
                log = open_in(disk, settings, clean=True, recovery_point=len(values))
                partition = Partition(loop, ManualClock(), "__consumer_offsets", bytes(16), 0, log, lambda *_: None)
                partition.lead(1, 0, (1,), (1,), 1)
                assert await read_all(partition) == values
                flip(disk, log, offset, bit)
                try:
                    assert await read_all(partition) == values
                except (RemoteError, StorageError):
                    noticed += 1
        assert noticed == 7 * len(values), "there are no gaps in which a wrong offset could be right"

    asyncio.run(story())


def test_offsets_are_written_to_the_partition_and_loaded_from_it() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        clock = ManualClock()
        log = open_in(new_disk(), config(segment_bytes=2000, cleanup_policy="compact"), high_watermark=0)
        partition = Partition(loop, clock, "__consumer_offsets", bytes(16), 0, log, never_fails)

        def commit(runtime: CoordinatorRuntime[GroupMachine], group: str, offset: int) -> asyncio.Future[object]:
            by = CommitBy(group, -1, "", None, 9)
            new = [NewOffset("t", ZERO_UUID, 0, offset, -1, "")]
            return runtime.shard(0).ask(lambda machine, ticket, now: machine.commit_offsets(ticket, by, new, now))

        async def lead(epoch: int) -> CoordinatorRuntime[GroupMachine]:
            partition.lead(1, epoch, (1,), (1,), 1)
            runtime: CoordinatorRuntime[GroupMachine] = CoordinatorRuntime(
                loop, clock, "__consumer_offsets", lambda: GroupMachine(GroupConfig())
            )
            runtime.elected(0, epoch, PartitionLog(loop, partition))
            while runtime.shard(0).is_loading:
                await asyncio.sleep(0.001)
            return runtime

        first = await lead(0)
        for number in range(50):
            assert await commit(first, f"g{number % 7}", number) == [ErrorCode.NONE]
        assert log.log_end == log.high_watermark == 50
        assert len(log.segments) > 1
        partition.resign()
        refused = commit(first, "g0", 99)
        code = None
        try:
            await refused
        except RemoteError as error:
            code = error.code
        assert code is ErrorCode.NOT_COORDINATOR
        first.close()
        second = await lead(1)
        store = second.shard(0).machine.store
        assert {group: held["t", 0].offset for group, held in store.offsets.items()} == {
            f"g{number % 7}": number for number in range(43, 50)
        }
        second.close()

    asyncio.run(asyncio.wait_for(story(), 20))
