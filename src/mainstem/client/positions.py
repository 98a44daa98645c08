"""Where to read on: a position for every assigned partition, found and kept sound in the background.

A partition that is new starts from what its group committed, and where nothing is, or the committed offset is no more,
from what `auto_offset_reset` says. When a partition gets a new leader, the position is checked with it (KIP-320): if
the epoch of the last record read ended on that leader before our position, the log was cut, and what we have read is
no longer what is there. Then the consumer goes on from where the logs agree, or raises LogTruncationError where nothing
says to reset.

One task at a time does all that, so a partition without a leader keeps no other from being read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from mainstem.client.cluster import Cluster
from mainstem.client.commits import Commits
from mainstem.client.errors import KafkaError, LogTruncationError, NoOffsetForPartitionError
from mainstem.client.offsets import OffsetFinder, timestamp_of
from mainstem.client.options import ConsumerOptions
from mainstem.client.subscription import NO_EPOCH, PartitionState, Subscription
from mainstem.client.types import TopicPartition

log = logging.getLogger(__name__)


class Positions:
    def __init__(
        self,
        cluster: Cluster,
        subscription: Subscription,
        finder: OffsetFinder,
        commits: Commits | None,
        options: ConsumerOptions,
        clock: Callable[[], int],
    ) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._finder = finder
        self._commits = commits
        self._options = options
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._pauses = cluster.backoff()
        self._failure: KafkaError | None = None
        self._failed_versions: dict[TopicPartition, int] = {}
        """The partitions that were without a sound position at the failure, as often as each had been moved by then."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when partitions got a position, or there is something to raise."""

    @property
    def is_settled(self) -> bool:
        """Whether `settle` has nothing to do."""
        return self._task is None and self._failure is None and not self._unsettled()

    def settle(self) -> None:
        """Starts to find what is missing. Raises what went wrong since the last call and no retry cures.

        A seek may have cured it: whoever assigns and then seeks needs neither a committed offset nor a policy.
        """
        failure, self._failure = self._failure, None
        if failure is not None and self._still_stands(failure):
            raise failure
        self.start()

    def _still_stands(self, failure: KafkaError) -> bool:
        missing = {state.tp for state in self._unsettled() if self._failed_versions.get(state.tp) == state.version}
        if failure.topic is None or failure.partition is None:
            return bool(missing)
        return TopicPartition(failure.topic, failure.partition) in missing

    def start(self) -> None:
        if self._task is None and self._failure is None and self._unsettled():
            self._task = self._cluster.spawn(self._run(), "positions")

    def _unsettled(self) -> list[PartitionState]:
        return [
            state
            for state in self._subscription.partitions.values()
            if (state.position is None or state.reset is not None or state.needs_check) and not state.is_going
        ]

    async def _run(self) -> None:
        try:
            while self._unsettled():
                if await self._try():
                    self._pauses.reset()
                else:
                    await asyncio.sleep(self._pauses.next_s())
        except KafkaError as error:
            self._failure = error
            self._failed_versions = {state.tp: state.version for state in self._unsettled()}
        finally:
            self._task = None
            self.on_change()

    async def _try(self) -> bool:
        """One try for everything that is missing; whether nothing has to be tried again."""
        try:
            return await self._once()
        except KafkaError as error:
            if not error.retriable:
                raise
            log.debug("no positions yet: %s", error)
            return False

    async def _once(self) -> bool:
        await self._start_from_committed()
        states = self._unsettled()
        fine = await self._reset([state for state in states if state.reset is not None])
        checked = await self._check([state for state in states if state.needs_check and state.reset is None])
        self.on_change()
        return fine and checked

    async def _start_from_committed(self) -> None:
        fresh = [state for state in self._unsettled() if state.position is None and state.reset is None]
        if not fresh:
            return
        committed = {}
        if self._commits is not None:
            noted = {state: state.version for state in fresh}
            committed = await self._commits.committed(
                [state.tp for state in fresh], self._options.default_api_timeout_ms
            )
            fresh = [state for state in fresh if state.version == noted[state] and state.position is None]
        for state in fresh:
            found = committed.get(state.tp)
            if found is not None:
                state.move(found.offset, found.leader_epoch)
            elif self._options.auto_offset_reset == "none":
                raise NoOffsetForPartitionError(
                    "there is no committed offset, and auto_offset_reset is 'none'",
                    topic=state.tp.topic,
                    partition=state.tp.partition,
                )
            else:
                state.ask_reset(self._options.auto_offset_reset)

    async def _reset(self, states: list[PartitionState]) -> bool:
        if not states:
            return True
        versions = {state.tp: (state, state.version, state.reset) for state in states}
        now_ms = self._clock()
        found, errors = await self._finder.try_list_offsets(
            {state.tp: timestamp_of(state.reset or "", now_ms) for state in states}
        )
        latest = [tp for tp, each in found.items() if each.offset < 0]
        if latest:
            # Nothing is that late: read what comes from now on.
            more, late_errors = await self._finder.try_list_offsets(
                {tp: timestamp_of("latest", now_ms) for tp in latest}
            )
            found.update(more)
            errors.update(late_errors)
            found = {tp: each for tp, each in found.items() if each.offset >= 0}
        for tp, each in found.items():
            state, version, strategy = versions[tp]
            if state.version == version and state.reset == strategy:
                log.info("reset %s-%d to offset %d (%s)", tp.topic, tp.partition, each.offset, strategy)
                state.move(each.offset, NO_EPOCH)
        return self._all_fine(errors.values())

    async def _check(self, states: list[PartitionState]) -> bool:
        if not states:
            return True
        asked = {state.tp: (state, state.version, state.position_epoch, self._epoch(state)) for state in states}
        found, errors = await self._finder.try_epoch_ends({tp: each[2] for tp, each in asked.items()})
        for tp, end in found.items():
            state, version, epoch, leader_epoch = asked[tp]
            if state.version != version or not state.needs_check:
                continue
            if state.position_epoch != epoch:
                continue  # records of a later epoch were given out meanwhile: the position is past the end of this one
            assert state.position is not None
            if end.end_offset < 0 or end.leader_epoch < 0:
                self._truncated(state, -1, "the leader knows nothing of what was read before")
            elif end.end_offset < state.position:
                self._truncated(state, end.end_offset, f"the log ends at {end.end_offset} in epoch {end.leader_epoch}")
                if state.reset is None:
                    state.move(end.end_offset, end.leader_epoch)
                    state.checked_epoch = leader_epoch
            else:
                state.needs_check = False
                state.checked_epoch = leader_epoch
        return self._all_fine(errors.values())

    def _truncated(self, state: PartitionState, end_offset: int, what: str) -> None:
        """A log was cut below the position: without a policy somebody has to decide."""
        tp, strategy = state.tp, self._options.auto_offset_reset
        if strategy == "none":
            raise LogTruncationError(
                f"{what}, below the position {state.position}; seek to go on",
                topic=tp.topic,
                partition=tp.partition,
                divergent_offset=end_offset,
            )
        log.warning("%s-%d was cut: %s, below the position %s", tp.topic, tp.partition, what, state.position)
        if end_offset < 0:
            state.ask_reset(strategy)

    def _epoch(self, state: PartitionState) -> int:
        leader = self._cluster.leader(state.tp)
        return NO_EPOCH if leader is None else leader.epoch

    def _all_fine(self, errors: Iterable[KafkaError]) -> bool:
        fine = True
        for error in errors:
            if not error.retriable:
                raise error
            fine = False
        return fine
