"""Batches that a thread judges and those behind them; a log that moves."""

from __future__ import annotations

import asyncio

import pytest

from mainstem.broker.partition import Partition
from mainstem.core.log.append_result import AppendResult
from mainstem.core.log.producers import Origin
from mainstem.protocol.builder import BatchBuilder
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.sim.faults import Effect, Fault
from mainstem.storage.errors import StorageError
from mainstem.storage.log_copy import LogCopy
from tests.support.logs import NOW_MS, append, batch, config, marker, new_disk, open_in

from .coordinating import ManualClock


def never_fails(partition: Partition, error: StorageError) -> None:
    raise AssertionError(error)


def large(count: int) -> bytes:
    builder = BatchBuilder()
    for number in range(count):
        builder.append(NOW_MS, None, b"%06d" % number)
    return builder.build()


def test_a_large_batch_that_comes_while_another_is_being_told_done_waits_its_turn() -> None:
    """The answer to one makes room for the next request of a connection, which is handled at once."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        failed: list[object] = []
        loop.set_exception_handler(lambda loop, context: failed.append(context))
        log = open_in(new_disk(), config(compression_type="zstd"), high_watermark=0)
        partition = Partition(loop, ManualClock(), "t", bytes(16), 0, log, never_fails)
        partition.lead(1, 0, (1,), (1,), 1)
        offsets: list[int] = []
        finished = loop.create_future()

        def done(outcome: AppendResult | RemoteError) -> None:
            assert isinstance(outcome, AppendResult), outcome
            offsets.append(outcome.base_offset)
            if len(offsets) == 4:
                finished.set_result(None)
            else:
                data = large(3000 + len(offsets))
                partition.append_later(data, 0, len(data), all_in_sync=True, done=done)

        data = large(3000)
        partition.append_later(data, 0, len(data), all_in_sync=True, done=done)
        await asyncio.wait_for(finished, 20)
        assert offsets == [0, 3000, 6001, 9003]
        assert not partition.waiting
        assert not failed

    asyncio.run(story())


def test_an_index_that_was_missed_before_a_term_is_built_when_it_begins() -> None:
    async def story() -> None:
        disk = new_disk()
        log = open_in(disk)
        append(log, batch(b"v"))
        log.roll(NOW_MS)
        log.close(NOW_MS)
        path = log.segments[0].offset_index.ref.path
        disk.remove(path)
        log = open_in(disk, clean=True, recovery_point=1)
        partition = Partition(asyncio.get_running_loop(), ManualClock(), "t", bytes(16), 0, log, never_fails)
        assert not log.has_sound_indexes(log.segments[0])
        assert not partition.is_busy
        partition.lead(1, 0, (1,), (1,), 1)
        await asyncio.wait_for(partition.settle(), 20)
        assert disk.exists(path)
        assert not log.damaged_indexes

    asyncio.run(story())


def test_who_is_fenced_stays_fenced_when_a_partition_moves_to_another_directory() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        sent = [batch(b"v", producer_id=1, epoch=0, sequence=number, transactional=True) for number in range(2)]
        logs = [open_in(new_disk()) for _ in range(2)]
        for each in logs:
            append(each, sent[0])
        partition = Partition(loop, ManualClock(), "t", bytes(16), 0, logs[0], never_fails)
        partition.lead(1, 0, (1,), (1,), 1)
        logs[0].verifies_transactions = True
        guard = partition.begin_verification(2, 0, 0, True)
        logs[0].fence(1, 0)
        partition.replace_log(logs[1])
        with pytest.raises(RemoteError) as refused:
            partition.append(sent[1], 0, len(sent[1]))
        assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
        other = batch(b"v", producer_id=2, epoch=0, sequence=0, transactional=True)
        assert partition.append(other, 0, len(other), guard=guard).base_offset == 1

    asyncio.run(story())


def test_a_producer_goes_on_when_its_records_are_deleted_and_the_partition_moves_to_another_directory() -> None:
    """The marker that is left would tell of a producer that has sent nothing yet."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        disk = new_disk()
        source, target = open_in(disk), open_in(disk, directory="/other/t-0")
        sent = [batch(b"v", producer_id=1, epoch=0, sequence=number, transactional=True) for number in range(3)]
        append(source, sent[0])
        append(source, sent[1])
        append(source, marker(1, 0, commit=True), origin=Origin.COORDINATOR)
        source.advance_log_start(2)
        partition = Partition(loop, ManualClock(), "t", bytes(16), 0, source, never_fails)
        partition.lead(1, 0, (1,), (1,), 1)
        LogCopy(source, target).complete(1000, 0)
        partition.replace_log(target)
        again = partition.append(sent[1], 0, len(sent[1]))
        assert (again.is_duplicate, again.base_offset) == (True, 1)
        assert partition.append(sent[2], 0, len(sent[2])).base_offset == 3
        assert partition.last_stable_offset == 3

    asyncio.run(story())


def test_what_moved_along_is_there_after_a_stop_though_the_copy_had_a_snapshot() -> None:
    async def story() -> None:
        disk = new_disk()
        source, target = open_in(disk), open_in(disk, directory="/other/t-0")
        append(source, batch(b"v", producer_id=1, epoch=0, sequence=0, transactional=True))
        append(source, batch(b"v"))
        source.advance_log_start(1)
        partition = Partition(asyncio.get_running_loop(), ManualClock(), "t", bytes(16), 0, source, never_fails)
        LogCopy(source, target).complete(1000, NOW_MS)
        target.roll(NOW_MS)
        partition.replace_log(target)
        target.close(NOW_MS)
        again = open_in(disk, directory="/other/t-0", clean=True, log_start=1, recovery_point=2)
        producer = again.producers.states.get(1)
        assert producer is not None
        assert (producer.last_sequence, producer.txn_first_offset) == (0, 0)

    asyncio.run(story())


class FailingClock(ManualClock):
    """Stands for anything that fails without being expected to."""

    fails_in = -1

    def wall_ms(self) -> int:
        self.fails_in -= 1
        if self.fails_in == 0:
            raise ValueError("not thought of")
        return super().wall_ms()


@pytest.mark.parametrize("fails_in", [1, 2], ids=["before it is judged", "after"])
def test_a_batch_that_fails_by_our_own_fault_is_told_and_holds_up_nobody(fails_in: int) -> None:
    """All that came to the partition after it used to wait for ever."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        clock = FailingClock()
        log = open_in(new_disk(), config(compression_type="zstd"), high_watermark=0)
        partition = Partition(loop, clock, "t", bytes(16), 0, log, never_fails)
        partition.lead(1, 0, (1,), (1,), 1)
        outcomes: list[AppendResult | RemoteError] = []
        finished = loop.create_future()

        def done(outcome: AppendResult | RemoteError) -> None:
            outcomes.append(outcome)
            if len(outcomes) == 3:
                finished.set_result(None)
            if len(outcomes) == 2:
                raise ValueError("whoever is told fails, too")

        clock.fails_in = fails_in
        data = large(3000)
        for _ in range(3):
            partition.append_later(data, 0, len(data), all_in_sync=True, done=done)
        await asyncio.wait_for(finished, 20)
        assert isinstance(outcomes[0], RemoteError)
        assert outcomes[0].code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert [each.base_offset for each in outcomes[1:] if isinstance(each, AppendResult)] == [0, 3000]

    asyncio.run(story())


def test_a_disk_that_fails_while_a_retry_is_looked_for_takes_the_log_offline() -> None:
    async def story() -> None:
        disk = new_disk()
        log = open_in(disk)
        for number in range(3):
            append(log, batch(b"v", producer_id=1, epoch=0, sequence=number))
            log.roll(NOW_MS)
        log.close(NOW_MS)
        log = open_in(disk, clean=True, recovery_point=3)
        failures: list[StorageError] = []
        loop = asyncio.get_running_loop()
        partition = Partition(
            loop, ManualClock(), "t", bytes(16), 0, log, lambda partition, error: failures.append(error)
        )
        partition.lead(1, 0, (1,), (1,), 1)
        disk.faults.append(Fault(Effect.FAIL, "open", path=lambda path: path.endswith(".index")))
        told = loop.create_future()
        retry = batch(b"v", producer_id=1, epoch=0, sequence=1)
        partition.append_later(retry, 0, len(retry), all_in_sync=True, done=told.set_result)
        outcome = await asyncio.wait_for(told, 20)
        assert isinstance(outcome, RemoteError)
        assert outcome.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert failures == [log.failure]

    asyncio.run(story())
