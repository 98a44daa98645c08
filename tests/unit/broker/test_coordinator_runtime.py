"""The runtime of coordinators: what is written when, who is told when, and what a failure leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from mainstem.broker.drivers.coordinator import CoordinatorRuntime, Shard
from mainstem.core.coordinator.effects import TransactionPart
from mainstem.core.group.config import GroupConfig
from mainstem.core.group.machine import GroupMachine
from mainstem.core.group.offsets import CommitBy, FetchedOffset, NewOffset
from mainstem.core.txn.config import TxnConfig
from mainstem.core.txn.machine import Client, InitBy, SendMarkers, TxnMachine
from mainstem.core.txn.states import Transaction
from mainstem.protocol.batch import BatchView
from mainstem.protocol.builder import BatchBuilder, empty_batch
from mainstem.protocol.control import EndMarker, build_end_marker
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.primitives import ZERO_UUID

from .coordinating import ManualClock, MemoryLog

Runtime = CoordinatorRuntime[GroupMachine]


class Story:
    def __init__(self, log: MemoryLog | None = None) -> None:
        self.log = log or MemoryLog()
        self.runtime: Runtime = CoordinatorRuntime(
            asyncio.get_running_loop(),
            ManualClock(),
            "__consumer_offsets",
            lambda: GroupMachine(GroupConfig()),
            commit_timeout_ms=50,
        )

    async def start(self, epoch: int = 0) -> None:
        self.runtime.elected(0, epoch, self.log)
        while self.runtime.shard(0).is_loading:
            await asyncio.sleep(0)

    def commit(self, group: str, offset: int) -> asyncio.Future[object]:
        by = CommitBy(group, -1, "", None, 9)
        new = [NewOffset("t", ZERO_UUID, 0, offset, -1, "")]
        return self.runtime.shard(0).ask(lambda machine, ticket, now: machine.commit_offsets(ticket, by, new, now))

    async def offset(self, group: str) -> int:
        found = await self.runtime.shard(0).ask(lambda machine, ticket, now: machine.fetch_offsets(ticket, group, None))
        assert isinstance(found, list)
        for each in found:
            assert isinstance(each, FetchedOffset)
            if each.committed is not None:
                return each.committed.offset
        return -1


def run(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 20))


async def code_of(ticket: Awaitable[object]) -> ErrorCode:
    try:
        await ticket
    except RemoteError as error:
        return error.code
    return ErrorCode.NONE


def test_requests_of_one_turn_share_one_write() -> None:
    async def story() -> None:
        s = Story()
        await s.start()
        tickets = [s.commit(f"g{number}", number) for number in range(10)]
        assert s.log.batches == []
        await asyncio.gather(*tickets)
        assert len(s.log.batches) == 1
        assert [record.offset for record in s.log.records()] == list(range(10))

    run(story)


def test_a_batch_never_outgrows_what_the_topic_takes() -> None:
    async def story() -> None:
        s = Story()
        s.log.batch_bytes_max = 400
        await s.start()
        await asyncio.gather(*(s.commit(f"g{number}", number) for number in range(20)))
        assert len(s.log.batches) > 1
        assert max(map(len, s.log.batches)) <= 400
        assert [await s.offset(f"g{number}") for number in range(20)] == list(range(20))

    run(story)


def test_nobody_is_answered_before_what_they_saw_is_committed() -> None:
    async def story() -> None:
        s = Story()
        await s.start()
        s.log.holds_commits = True
        written = s.commit("g", 5)
        await asyncio.sleep(0)
        read = asyncio.ensure_future(s.offset("g"))
        await asyncio.sleep(0.01)
        assert len(s.log.batches) == 1
        assert not written.done()
        assert not read.done(), "it would show an offset that may still be lost"
        s.log.commit()
        assert await code_of(written) is ErrorCode.NONE
        assert await read == 5

    run(story)


def test_a_write_that_fails_changes_nothing() -> None:
    expected = {
        ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
        ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
        ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    }

    async def story() -> None:
        s = Story()
        await s.start()
        await s.commit("g", 1)
        for cause, told in expected.items():
            s.log.fail_with = cause
            commits = [s.commit("g", 2), s.commit("g", 3), s.commit("new", 1)]
            assert [await code_of(each) for each in commits] == [told] * 3
            s.log.fail_with = None
            assert await s.offset("g") == 1
            assert "new" not in s.runtime.shard(0).machine.groups
        await s.commit("g", 4)
        assert await s.offset("g") == 4

    run(story)


def test_a_group_deleted_and_made_anew_in_a_write_that_fails_is_the_old_one() -> None:
    async def story() -> None:
        s = Story()
        await s.start()
        await s.commit("g", 1)
        shard = s.runtime.shard(0)
        living = shard.machine.groups["g"]
        s.log.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
        deleted = shard.ask(lambda machine, ticket, now: machine.delete_group(ticket, "g", now))
        anew = s.commit("g", 2)
        assert shard.machine.groups["g"] is not living
        assert [await code_of(each) for each in (deleted, anew)] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
        s.log.fail_with = None
        assert shard.machine.groups["g"] is living
        assert await s.offset("g") == 1

    run(story)


def test_a_write_that_is_not_committed_in_time_is_reported() -> None:
    async def story() -> None:
        s = Story()
        await s.start()
        s.log.holds_commits = True
        assert await code_of(s.commit("g", 5)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        s.log.commit()
        assert await s.offset("g") == 5, "it was written after all"

    run(story)


@pytest.mark.parametrize("part", [None, TransactionPart(77, 3, 5)])
def test_a_group_whose_first_commit_took_too_long_is_there_as_its_log_says(part: TransactionPart | None) -> None:
    async def story() -> None:
        s = Story()
        await s.start()
        shard = s.runtime.shard(0)
        s.log.holds_commits = True
        by = CommitBy("g", -1, "", None, 9, part_of=part)
        new = [NewOffset("t", ZERO_UUID, 0, 5, -1, "")]
        late = shard.ask(lambda machine, ticket, now: machine.commit_offsets(ticket, by, new, now))
        assert await code_of(late) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        s.log.holds_commits = False
        s.log.commit()
        assert list(shard.machine.groups) == ["g"]
        deleted = await shard.ask(lambda machine, ticket, now: machine.delete_group(ticket, "g", now))
        assert deleted is ErrorCode.NONE
        assert not shard.machine.store.holds("g")

    run(story)


def test_while_it_loads_it_says_so() -> None:
    async def story() -> None:
        s = Story()
        await s.start()
        await s.commit("g", 7)
        other = Story(MemoryLog(s.log.batches))
        other.runtime.elected(0, 1, other.log)
        with pytest.raises(RemoteError, match="COORDINATOR_LOAD_IN_PROGRESS"):
            other.commit("g", 8)
        await other.start(1)
        assert await other.offset("g") == 7

    run(story)


def test_offsets_go_with_a_topic_that_is_deleted_while_they_are_read() -> None:
    async def story() -> None:
        s = Story()
        await s.start()
        await s.commit("g", 5)
        again = Story(s.log)
        again.runtime.elected(0, 1, again.log)
        assert again.runtime.shard(0).is_loading
        again.runtime.shard(0).tell(lambda machine, now: machine.topics_deleted(frozenset({"t"})))
        await again.start(1)
        assert await again.offset("g") == -1
        assert s.log.records()[-1].value is None

    run(story)


def test_a_large_log_is_loaded_in_slices() -> None:
    async def story() -> None:
        s = Story()
        await s.start()
        for turn in range(20):
            await asyncio.gather(*(s.commit(f"g{number}", turn) for number in range(100)))
        other = Story(MemoryLog(s.log.batches))
        turns = 0
        other.runtime.elected(0, 0, other.log)
        while other.runtime.shard(0).is_loading:
            turns += 1
            await asyncio.sleep(0)
        assert turns > 1  # how many depends on the machine and the build
        assert await other.offset("g99") == 19

    run(story)


def test_what_was_read_is_shown_only_once_it_is_committed() -> None:
    async def story() -> None:
        s = Story()
        await s.start()
        await s.commit("g", 7)
        log = MemoryLog()
        log.holds_commits = True
        for batch in s.log.batches:
            log.append(batch)
        other = Story(log)
        await other.start()
        read = asyncio.ensure_future(other.offset("g"))
        await asyncio.sleep(0.01)
        assert not read.done()
        log.commit()
        assert await read == 7

    run(story)


def test_who_waits_is_told_when_leadership_is_lost() -> None:
    async def story() -> None:
        s = Story()
        await s.start()
        s.log.holds_commits = True
        in_flight = s.commit("g", 5)
        await asyncio.sleep(0)
        unwritten = s.commit("g", 6)
        s.runtime.resigned(0, 1)
        assert await code_of(in_flight) is ErrorCode.NOT_COORDINATOR
        assert await code_of(unwritten) is ErrorCode.NOT_COORDINATOR
        await asyncio.sleep(0.01)
        assert len(s.log.batches) == 1, "what was not written yet never is"

    run(story)


@pytest.mark.parametrize("code", [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_nobody_is_told_of_what_was_written_and_is_never_committed(code: ErrorCode) -> None:
    """A disk that failed ends the partition at once; the metadata says so, and ends the coordinator, only later."""

    async def story() -> None:
        s = Story()
        await s.start()
        await s.commit("g", 4)
        s.log.holds_commits = True
        in_flight = s.commit("g", 5)
        await asyncio.sleep(0)
        behind = asyncio.ensure_future(s.offset("g"))
        await asyncio.sleep(0)
        unwritten = s.commit("g", 6)
        s.log.commit(code)
        assert await code_of(in_flight) is ErrorCode.NOT_COORDINATOR
        assert await code_of(behind) is ErrorCode.NOT_COORDINATOR
        assert await code_of(unwritten) is ErrorCode.NOT_COORDINATOR
        assert await code_of(s.offset("g")) is ErrorCode.NOT_COORDINATOR
        s.log.holds_commits = False
        s.log.batches.pop()  # a power loss takes what was not synced
        s.log.log_end = s.log.high_watermark
        await s.start()
        assert await s.offset("g") == 4

    run(story)


def test_news_of_an_older_epoch_changes_nothing() -> None:
    """KAFKA-10614: loads and unloads may be heard of out of order."""

    async def story() -> None:
        s = Story()
        await s.start(5)
        await s.commit("g", 1)
        shard = s.runtime.shard(0)
        s.runtime.resigned(0, 4)
        s.runtime.elected(0, 4, MemoryLog())
        s.runtime.elected(0, 5, s.log)
        assert s.runtime.shard(0) is shard
        s.runtime.elected(0, 6, s.log)
        assert s.runtime.shard(0) is not shard
        await s.start(6)
        assert await s.offset("g") == 1

    run(story)


def test_records_of_a_later_version_are_left_out_and_broken_ones_stop_the_load() -> None:
    async def story() -> None:
        log = MemoryLog()
        builder = BatchBuilder()
        builder.append(1, b"\x00\x63whatever", b"\x00\x00")
        log.append(builder.build())
        s = Story(log)
        await s.start()
        assert s.runtime.shard(0).is_serving
        broken = BatchBuilder()
        broken.append(1, b"\x00\x01\x00", b"\x00\x00")
        log.append(broken.build())
        await s.start(1)
        assert not s.runtime.shard(0).is_serving
        with pytest.raises(RemoteError, match="NOT_COORDINATOR"):
            s.commit("g", 1)

    run(story)


@pytest.mark.parametrize("at", [30, -8, -1], ids=["in the header", "in the offset", "at the end"])
def test_a_batch_that_does_not_match_its_checksum_stops_the_load(at: int) -> None:
    """Who asked would be told an offset that nobody committed."""

    async def story() -> None:
        s = Story()
        await s.start()
        await s.commit("g", 1)
        await s.commit("g", 2)
        rotten = bytearray(s.log.batches[0])
        rotten[at] ^= 0x20
        s.log.batches[0] = bytes(rotten)
        await s.start(1)
        with pytest.raises(RemoteError, match="NOT_COORDINATOR"):
            await s.offset("g")

    run(story)


@pytest.mark.parametrize("bit", [61, 63, 3, 2, 0], ids=["far up", "negative", "past the end", "down", "by one"])
def test_a_batch_whose_offset_is_not_in_its_place_stops_the_load(bit: int) -> None:
    """No checksum covers it: what came after it was passed over, or it was itself, and an older offset was told."""

    async def story() -> None:
        s = Story()
        await s.start()
        for offset in range(8):
            await s.commit("g", offset)
        rotten = bytearray(s.log.batches[4])
        rotten[7 - bit // 8] ^= 1 << bit % 8
        s.log.batches[4] = bytes(rotten)
        await s.start(1)
        with pytest.raises(RemoteError, match="NOT_COORDINATOR"):
            await s.offset("g")

    run(story)


def test_a_log_that_starts_inside_of_a_batch_is_loaded_from_there() -> None:
    async def story() -> None:
        s = Story()
        await s.start()
        await asyncio.gather(*(s.commit(f"g{number}", number) for number in range(3)))
        await s.commit("g3", 3)
        assert len(s.log.batches) == 2
        s.log.log_start = 1
        await s.start(1)
        assert [await s.offset(f"g{number}") for number in range(4)] == [-1, 1, 2, 3]

    run(story)


def test_offsets_of_a_transaction_count_from_its_marker_on() -> None:
    async def story() -> None:
        s = Story()
        await s.start()
        await s.commit("g", 1)
        plain = s.log.records()[0]
        staged = BatchBuilder(producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
        value = plain.value
        assert value is not None
        staged.append(1, plain.key, value[:2] + (42).to_bytes(8, "big") + value[10:])
        s.log.append(staged.build())
        await s.start(1)
        assert await s.offset("g") == 1
        marker = build_end_marker(EndMarker(9, 0, True, 0, 0, 1))
        before = s.commit("other", 3)
        s.runtime.shard(0).append_marker(marker)
        await before
        assert await s.offset("g") == 42
        await s.start(2)
        assert await s.offset("g") == 42

    run(story)


def test_a_log_whose_markers_were_compacted_is_loaded() -> None:
    """The last marker of a producer stays as an empty batch when the data of its transaction has gone (C5)."""

    async def story() -> None:
        s = Story()
        await s.start()
        await s.commit("g", 1)
        s.log.append(empty_batch(BatchView(build_end_marker(EndMarker(9, 0, True, 0, 0, 1)), 0)))
        await s.commit("g", 2)
        await s.start(1)
        assert await s.offset("g") == 2

    run(story)


def test_a_log_whose_end_was_compacted_is_loaded() -> None:
    """It has left nothing before an active segment that is empty."""

    async def story() -> None:
        s = Story()
        await s.start()
        await s.commit("g", 5)
        s.log.log_end += 3
        s.log.commit()
        await s.start(epoch=1)
        assert await s.offset("g") == 5
        await s.commit("g", 6)
        assert await s.offset("g") == 6

    run(story)


def test_records_of_a_transaction_are_a_batch_of_its_producer() -> None:
    async def story() -> None:
        s = Story()
        await s.start()
        plain = s.commit("g", 1)
        by = CommitBy("g", -1, "", None, 9, part_of=TransactionPart(77, 3, 5))
        new = [NewOffset("t", ZERO_UUID, 0, 2, -1, "")]
        staged = s.runtime.shard(0).ask(lambda machine, ticket, now: machine.commit_offsets(ticket, by, new, now))
        await asyncio.gather(plain, staged)
        first, second = (BatchView(batch, 0) for batch in s.log.batches)
        assert (first.is_transactional, first.producer_id) == (False, -1)
        assert (second.is_transactional, second.producer_id, second.producer_epoch) == (True, 77, 3)
        assert await s.offset("g") == 1

    run(story)


def test_a_marker_follows_what_was_handled_before_it() -> None:
    """Or a write that fails after it could not be taken back: the marker is kept, and all before it."""

    async def story() -> None:
        s = Story()
        await s.start()
        shard = s.runtime.shard(0)
        plain = s.commit("g", 1)
        shard.append_marker(build_end_marker(EndMarker(77, 3, True, 0)))
        s.log.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
        told = await code_of(plain)
        s.log.fail_with = None
        assert (told, await s.offset("g")) == (ErrorCode.NONE, 1)
        assert [BatchView(batch, 0).is_control for batch in s.log.batches] == [False, True]

    run(story)


async def start_transactions(log: MemoryLog, orders: list[object], epoch: int = 0) -> Shard[TxnMachine]:
    runtime: CoordinatorRuntime[TxnMachine] = CoordinatorRuntime(
        asyncio.get_running_loop(),
        ManualClock(),
        "__transaction_state",
        lambda: TxnMachine(TxnConfig()),
        commit_timeout_ms=30,
        carry_out=lambda shard, what: orders.append(what),
    )
    runtime.elected(0, epoch, log)
    while runtime.shard(0).is_loading:
        await asyncio.sleep(0)
    return runtime.shard(0)


def test_what_waits_with_patience_learns_what_became_of_a_write_that_was_late() -> None:
    """The end of a transaction: its markers may leave only when the decision is committed, and must leave then."""

    async def story() -> None:
        log = MemoryLog()
        orders: list[object] = []
        shard = await start_transactions(log, orders)
        by = InitBy("id", 60_000, None)
        await shard.ask(lambda machine, ticket, now: machine.init_producer_id(ticket, by, now, 9))
        who = Client("id", 9, 0)
        await shard.ask(lambda machine, ticket, now: machine.add_partitions(ticket, who, (("t", 0),), now))
        log.holds_commits = True
        ended = shard.ask(lambda machine, ticket, now: machine.end(ticket, who, True, now))
        assert await code_of(ended) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert orders == []
        behind = shard.ask(lambda machine, ticket, now: machine.describe(ticket, "id"))
        await asyncio.sleep(0.01)
        assert not behind.done(), "nobody is told of what may still not be"
        log.commit()
        found = await behind
        assert isinstance(found, Transaction)
        assert orders == [SendMarkers(found)]

    run(story)


def test_whoever_takes_over_sends_no_marker_for_a_decision_that_is_not_committed() -> None:
    """Another coordinator that never heard of the decision could decide otherwise (T8)."""

    async def story() -> None:
        log = MemoryLog()
        first = await start_transactions(log, [])
        by = InitBy("id", 60_000, None)
        await first.ask(lambda machine, ticket, now: machine.init_producer_id(ticket, by, now, 9))
        who = Client("id", 9, 0)
        await first.ask(lambda machine, ticket, now: machine.add_partitions(ticket, who, (("t", 0),), now))
        log.holds_commits = True
        ended = first.ask(lambda machine, ticket, now: machine.end(ticket, who, True, now))
        await asyncio.sleep(0)
        first.close()
        assert await code_of(ended) is ErrorCode.NOT_COORDINATOR
        orders: list[object] = []
        second = await start_transactions(log, orders, 1)
        late = second.ask(lambda machine, ticket, now: machine.describe(ticket, "id"))
        assert await code_of(late) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert orders == []
        log.commit()
        found = await second.ask(lambda machine, ticket, now: machine.describe(ticket, "id"))
        assert isinstance(found, Transaction)
        assert orders == [SendMarkers(found)]

    run(story)


def test_no_leader_is_told_that_a_partition_is_part_of_a_transaction_when_that_is_not_committed() -> None:
    """It was asked again after the disk had failed, and said yes: the leader's batch hung, in no known transaction."""

    async def story() -> None:
        log = MemoryLog()
        shard = await start_transactions(log, [])
        by = InitBy("id", 60_000, None)
        await shard.ask(lambda machine, ticket, now: machine.init_producer_id(ticket, by, now, 9))
        log.holds_commits = True

        async def add() -> object:
            who = Client("id", 9, 0)
            return await shard.ask(lambda machine, ticket, now: machine.add_partitions(ticket, who, (("t", 0),), now))

        added = asyncio.ensure_future(add())
        while len(log.batches) < 2:
            await asyncio.sleep(0)
        log.commit(ErrorCode.KAFKA_STORAGE_ERROR)
        assert await code_of(added) is ErrorCode.NOT_COORDINATOR
        assert await code_of(add()) is ErrorCode.NOT_COORDINATOR

    run(story)
