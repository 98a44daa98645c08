"""A position is found where it should be, and is checked with every new leader (KIP-320)."""

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any, cast

import pytest

from mainstem.client.backoff import Backoff
from mainstem.client.cluster import Cluster
from mainstem.client.commits import Commits
from mainstem.client.errors import (
    KafkaError,
    LeaderNotAvailableError,
    LogTruncationError,
    NoOffsetForPartitionError,
    TopicAuthorizationError,
)
from mainstem.client.metadata import LeaderAndEpoch
from mainstem.client.offsets import EARLIEST, LATEST, EpochEnd, FoundOffset, OffsetFinder, timestamp_of
from mainstem.client.options import ConsumerOptions
from mainstem.client.positions import Positions
from mainstem.client.subscription import PartitionState, Subscription
from mainstem.client.types import OffsetAndMetadata, TopicPartition

TP = TopicPartition("t", 0)
NOW = 1_000_000


class FakeCluster:
    epoch = 5

    def leader(self, tp: TopicPartition) -> LeaderAndEpoch:
        return LeaderAndEpoch(1, self.epoch)

    def spawn(self, work: Any, name: str) -> Any:
        return asyncio.get_running_loop().create_task(work)

    def backoff(self) -> Backoff:
        return Backoff(1, 1, Random(0))


class FakeFinder:
    """Knows offsets by timestamp and ends by epoch; fails first where it was told to."""

    def __init__(self) -> None:
        self.offsets: dict[int, int] = {LATEST: 100, EARLIEST: 10}
        self.ends: dict[int, EpochEnd] = {}
        self.errors: list[KafkaError] = []
        self.asked: list[int] = []

    async def try_list_offsets(self, wanted: Mapping[TopicPartition, int]) -> Any:
        await asyncio.sleep(0)
        self.asked += wanted.values()
        if self.errors:
            return {}, dict.fromkeys(wanted, self.errors.pop(0))
        return {tp: FoundOffset(self.offsets.get(time, -1), 0, 0) for tp, time in wanted.items()}, {}

    async def try_epoch_ends(self, wanted: Mapping[TopicPartition, int]) -> Any:
        self.asked += wanted.values()
        await asyncio.sleep(0.01)
        return {tp: self.ends[epoch] for tp, epoch in wanted.items()}, {}


class FakeCommits:
    def __init__(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        self.offsets = offsets

    async def committed(self, partitions: Any, timeout_ms: float) -> dict[TopicPartition, OffsetAndMetadata]:
        await asyncio.sleep(0)
        return self.offsets


class World:
    def __init__(self, reset: str = "earliest", committed: OffsetAndMetadata | None = None) -> None:
        self.cluster = FakeCluster()
        self.finder = FakeFinder()
        self.subscription = Subscription()
        self.subscription.assign([TP])
        self.positions = Positions(
            cast(Cluster, self.cluster),
            self.subscription,
            cast(OffsetFinder, self.finder),
            cast(Commits, FakeCommits({TP: committed} if committed else {})),
            ConsumerOptions(auto_offset_reset=reset, group_id="g"),
            lambda: NOW,
        )

    @property
    def state(self) -> PartitionState:
        return self.subscription.partitions[TP]

    async def settle(self) -> PartitionState:
        for _ in range(1000):
            self.positions.settle()
            if self.positions.is_settled:
                return self.state
            await asyncio.sleep(0.001)
        raise AssertionError("no position was found")

    async def lead_by(self, epoch: int) -> PartitionState:
        """Has a new leader, as the fetcher notices it."""
        self.cluster.epoch = epoch
        self.state.lead_by(epoch)
        return await self.settle()


@pytest.mark.parametrize(
    ("reset", "asked", "position"),
    [("earliest", [EARLIEST], 10), ("latest", [LATEST], 100), ("by_duration:PT10S", [NOW - 10_000, LATEST], 100)],
)
def test_without_a_commit_the_policy_says_where_to_begin(reset: str, asked: list[int], position: int) -> None:
    async def story() -> None:
        world = World(reset)
        state = await world.settle()
        assert (state.position, state.fetch_offset, world.finder.asked) == (position, position, asked)

    asyncio.run(story())


def test_durations_are_iso_8601() -> None:
    assert timestamp_of("by_duration:P1DT2H3M4.5S", 200_000_000) == 200_000_000 - 93_784_500
    assert timestamp_of("by_duration:PT1H", 5) == 0


def test_a_committed_offset_comes_first() -> None:
    async def story() -> None:
        state = await World(committed=OffsetAndMetadata(42, "", 3)).settle()
        assert (state.position, state.position_epoch) == (42, 3)

    asyncio.run(story())


def test_no_policy_and_no_commit_is_an_error_until_somebody_seeks() -> None:
    async def story() -> None:
        world = World("none")
        with pytest.raises(NoOffsetForPartitionError, match="topic t, partition 0"):
            await world.settle()
        world.state.move(7)
        assert (await world.settle()).position == 7

    asyncio.run(story())


def test_what_a_retry_cures_is_tried_again_and_the_rest_is_told() -> None:
    async def story() -> None:
        world = World()
        world.finder.errors = [LeaderNotAvailableError(), LeaderNotAvailableError()]
        assert (await world.settle()).position == 10
        world = World()
        world.finder.errors = [TopicAuthorizationError()]
        with pytest.raises(TopicAuthorizationError):
            await world.settle()

    asyncio.run(story())


def test_a_seek_is_stronger_than_a_reset_that_is_under_way() -> None:
    async def story() -> None:
        world = World()
        world.positions.settle()
        await asyncio.sleep(0)
        world.state.move(77)
        assert (await world.settle()).position == 77

    asyncio.run(story())


def test_a_new_leader_that_has_what_was_read_is_read_from() -> None:
    async def story() -> None:
        world = World(committed=OffsetAndMetadata(42, "", 3))
        await world.settle()
        world.finder.ends = {3: EpochEnd(3, 50)}
        state = await world.lead_by(6)
        assert (state.position, state.checked_epoch, state.is_fetchable) == (42, 6, True)
        assert world.finder.asked == [3]

    asyncio.run(story())


@pytest.mark.parametrize("end", [EpochEnd(3, 40), EpochEnd(2, 40)])
def test_a_log_that_was_cut_is_read_from_where_it_agrees(end: EpochEnd) -> None:
    async def story() -> None:
        world = World(committed=OffsetAndMetadata(42, "", 3))
        await world.settle()
        world.finder.ends = {3: end}
        state = await world.lead_by(6)
        assert (state.position, state.position_epoch, state.is_fetchable) == (40, end.leader_epoch, True)

    asyncio.run(story())


def test_without_a_policy_a_cut_log_is_told() -> None:
    async def story() -> None:
        world = World("none", committed=OffsetAndMetadata(42, "", 3))
        await world.settle()
        world.finder.ends = {3: EpochEnd(3, 40)}
        with pytest.raises(LogTruncationError, match="the log ends at 40 in epoch 3, below the position 42") as told:
            await world.lead_by(6)
        assert told.value.divergent_offset == 40

    asyncio.run(story())


def test_a_leader_that_knows_nothing_of_the_epoch_means_a_reset() -> None:
    async def story() -> None:
        world = World(committed=OffsetAndMetadata(42, "", 3))
        await world.settle()
        world.finder.ends = {3: EpochEnd(-1, -1)}
        assert (await world.lead_by(6)).position == 10

    asyncio.run(story())


def test_a_position_of_which_no_epoch_is_known_needs_no_check() -> None:
    async def story() -> None:
        world = World()
        await world.settle()
        state = await world.lead_by(6)
        assert (state.position, state.checked_epoch) == (10, 6)

    asyncio.run(story())


def test_records_given_out_while_a_leader_is_asked_are_no_cut_log() -> None:
    """The answer is about the epoch that was asked for; what another thread gives out meanwhile is of a later one."""

    async def story() -> None:
        world = World("none", committed=OffsetAndMetadata(42, "", 3))
        await world.settle()
        world.finder.ends = {3: EpochEnd(3, 50), 4: EpochEnd(4, 90)}
        world.cluster.epoch = 6
        world.state.lead_by(6)
        world.positions.settle()
        while not world.finder.asked:
            await asyncio.sleep(0)
        world.state.position, world.state.position_epoch = 60, 4
        state = await world.settle()
        assert (state.position, state.checked_epoch, state.is_fetchable) == (60, 6, True)
        assert world.finder.asked == [3, 4]

    asyncio.run(story())
