"""The consumer on asyncio: what an application calls, put together from the modules that do the work.

`poll` drives everything that the application may notice: group membership, automatic commits, positions, and handing
out records. Between two polls only fetching goes on, and heartbeats. Like Kafka's, a consumer is used by one task at a
time.

`take_ready` gives out what is in memory without waiting for anything and without the loop: the synchronous face calls
it from the application's thread.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

from mainstem.client.cluster import Cluster
from mainstem.client.commits import Commits, Coordinator, GroupMetadata
from mainstem.client.errors import IllegalStateError, InvalidOptionError, KafkaError, KafkaTimeoutError
from mainstem.client.fetcher import READ_COMMITTED, Fetcher
from mainstem.client.lanes import Lane
from mainstem.client.listeners import RebalanceListener
from mainstem.client.membership import Membership
from mainstem.client.offsets import EARLIEST, LATEST, OffsetFinder
from mainstem.client.options import INT64_MAX, ConsumerOptions
from mainstem.client.positions import Positions
from mainstem.client.subscription import Mode, PartitionState, Subscription
from mainstem.client.types import ConsumerRecord, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


class AsyncConsumer:
    """Reads records. `async with AsyncConsumer("orders", group_id="g") as consumer: async for record in consumer: …`"""

    def __init__(
        self,
        *topics: str,
        rng: random.Random | None = None,
        clock: Callable[[], int] = wall_ms,
        now: Callable[[], float] | None = None,
        **options: Any,
    ) -> None:
        self.options = ConsumerOptions.from_kwargs(options)
        self._first_topics = topics
        self._rng = rng or random.Random()
        self._clock = clock
        self._now = now
        self._listener: RebalanceListener | None = None
        self._subscription = Subscription()
        self._is_started = False
        self._is_closing = False
        self._is_closed = False
        self._in_hand: list[ConsumerRecord] = []
        """What an iteration has taken and not given out yet, and how far it is."""
        self._in_hand_at = 0
        self._next_commit_s = 0.0
        self._committing: asyncio.Task[None] | None = None
        if topics and self.options.group_id is None:
            # Without a group there is nobody to share with: all partitions are read, from start().
            self._reads_all = True
        else:
            self._reads_all = False
        if self.options.group_protocol != "classic":
            raise InvalidOptionError("group_protocol is 'consumer'; this client knows 'classic' only")

    # Beginning and end

    async def start(self) -> Self:
        """Makes it ready. `async with` does it, too."""
        if self._is_started:
            return self
        if self._is_closed:
            raise IllegalStateError("this consumer is closed")
        self._is_started = True
        self._loop = asyncio.get_running_loop()
        self._now = self._now or self._loop.time
        options = self.options
        self._signal = asyncio.Event()
        self._cluster = Cluster(options, self._rng, allow_auto_create=options.allow_auto_create_topics)
        self._fetcher = Fetcher(self._cluster, self._subscription, options, self._rng)
        self._fetcher.on_data = self._notify
        isolation = READ_COMMITTED if options.isolation_level == "read_committed" else 0
        self._finder = OffsetFinder(self._cluster, isolation)
        self._membership: Membership | None = None
        self._commits: Commits | None = None
        if options.group_id is not None:
            self._lane = Lane(self._cluster, "group", self._rng)
            coordinator = Coordinator(self._cluster, self._lane, options.group_id)
            self._membership = Membership(self._cluster, coordinator, self._subscription, options, self._now)
            self._membership.on_change = self._notify
            self._membership.tell = self._tell
            self._membership.before_revoking = self._commit_before_revoking
            self._commits = Commits(coordinator, self.group_metadata)
            self._commits.on_fenced = self._membership.fenced
        self._positions = Positions(
            self._cluster, self._subscription, self._finder, self._commits, options, self._clock
        )
        self._positions.on_change = self._positions_changed
        self._fetcher.on_unsettled = self._positions.start
        self._subscription.on_change = self._fetcher.wake
        self._cluster.on_update(self._notify)
        self._next_commit_s = self._time() + options.auto_commit_interval_ms / 1000
        if self._reads_all:
            found = await self._cluster.metadata(self._first_topics, options.default_api_timeout_ms)
            self._subscription.assign(
                TopicPartition(topic, number) for topic, info in found.items() for number in info.partitions
            )
            self._cluster.on_update(self._follow_partitions)
        elif self._first_topics:
            await self.subscribe(self._first_topics)
        return self

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self, timeout_ms: float = 30_000) -> None:
        """Commits where that is automatic, gives the partitions back, leaves the group, and ends the connections."""
        if self._is_closing:
            return
        self._is_closing = True
        if not self._is_started:
            self._is_closed = True
            return
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                if self._membership is not None and self._subscription.is_by_group:
                    await self._membership.give_up("the consumer was closed")
                elif self._subscription.mode is Mode.ASSIGNED:
                    await self._commit_before_revoking()
                await self._fetcher.close()
        except TimeoutError:
            log.warning("closing took longer than %g ms: the rest is left undone", timeout_ms)
        finally:
            self._is_closed = True
            self._fetcher.stop()
            self._subscription.unsubscribe()
            if self._membership is not None:
                self._lane.close()
            await self._cluster.close()

    def _check(self) -> None:
        if self._is_closed:
            raise IllegalStateError("this consumer is closed")
        if not self._is_started:
            raise IllegalStateError("this consumer is not started; await start() or use 'async with'")

    # What to read

    async def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Reads these topics, or those whose names match from their beginning, shared with the rest of the group."""
        self._check()
        if self._membership is None:
            raise IllegalStateError("subscribing needs a group_id; assign partitions without one")
        if isinstance(topics, str):
            raise IllegalStateError(f"topics is {topics!r}; it is a list of names")
        wanted = list(topics)
        if bool(wanted) == (pattern is not None):
            raise IllegalStateError("subscribe to topics or to a pattern: one of them, and not both")
        if pattern is not None:
            self._subscription.subscribe_pattern(re.compile(pattern))
            self._cluster.wants_all_topics = True
            self._cluster.request_update(now=True)
        else:
            self._subscription.subscribe(wanted)
            self._cluster.want(wanted)
        self._listener = listener

    async def unsubscribe(self) -> None:
        self._check()
        if self._membership is not None and self._subscription.is_by_group:
            await self._membership.give_up("the consumer unsubscribed")
        self._drop_in_hand(self._subscription.partitions)
        self._subscription.unsubscribe()
        self._cluster.wants_all_topics = False

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads exactly these partitions, whoever else does."""
        self._check()
        self._reads_all = False
        wanted = [TopicPartition(*each) for each in partitions]
        self._commit_when_due()  # as in Java: no later poll commits for those that go
        self._subscription.assign(wanted)
        self._drop_in_hand([tp for tp in {(r.topic, r.partition) for r in self._in_hand} if tp not in wanted])
        self._cluster.want({tp.topic for tp in wanted})
        self._positions.start()

    @property
    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed to."""
        return self._subscription.topics if self._subscription.is_by_group else frozenset()

    @property
    def assignment(self) -> list[TopicPartition]:
        return list(self._subscription.partitions)

    # Reading

    async def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> list[ConsumerRecord]:
        """The next records, at most `max_records`; as soon as there are any, and none when the time is up."""
        self._check()
        if self.has_in_hand:
            return self.rest_in_hand(max_records)
        records: list[ConsumerRecord] = []
        wanted = max_records or self.options.max_poll_records

        def take() -> bool:
            self._fetcher.take(wanted, records)
            return bool(records)

        await self._drive(take, timeout_ms)
        return records

    async def _drive(self, take: Callable[[], bool], timeout_ms: float) -> bool:
        """Does what has to be done until `take` says it got something, or the time is up."""
        if self._subscription.mode is Mode.NOTHING:
            raise IllegalStateError("this consumer reads nothing yet; subscribe or assign first")
        deadline = self._loop.time() + timeout_ms / 1000
        membership = self._membership if self._subscription.is_by_group else None
        if membership is not None:
            membership.entered_poll()
        try:
            while True:
                self._signal.clear()
                if membership is not None:
                    await membership.step()
                self._commit_when_due()
                self._fetcher.needs_settling = False
                self._positions.settle()
                if take():
                    return True
                if self._fetcher.has_room_again:
                    self._fetcher.wake()
                if self._fetcher.needs_settling:
                    continue
                left_s = deadline - self._loop.time()
                if left_s <= 0:
                    if timeout_ms <= 0:
                        await asyncio.sleep(0)  # so that a loop of empty polls keeps nobody else from running
                    return False
                try:
                    async with asyncio.timeout(min(left_s, self._until_commit_s())):
                        await self._signal.wait()
                except TimeoutError:
                    continue
        finally:
            if membership is not None:
                membership.left_poll()
            if self._fetcher.has_room_again:
                self._fetcher.wake()

    async def wait_ready(self, timeout_ms: float) -> bool:
        """Does what `poll` does, but takes nothing: whether there is something to take."""
        self._check()
        return await self._drive(lambda: self._fetcher.has_takeable, timeout_ms)

    @property
    def can_take(self) -> bool:
        """Whether `take_ready` may be called: nothing else has to be done in this poll. Any thread may ask."""
        if self._is_closed or not self._fetcher.has_data or self._fetcher.needs_settling or self.has_in_hand:
            return False
        if self._membership is not None and self._subscription.is_by_group:
            if not self._membership.is_settled:
                return False
            self._membership.left_poll()
        return not (self.options.enable_auto_commit and self._until_commit_s() <= 0)

    @property
    def is_quiet(self) -> bool:
        """Whether there is nothing to do but to wait until `_notify`. Any thread may ask."""
        if self._is_closed or self._subscription.mode is Mode.NOTHING or self._fetcher.needs_settling:
            return False
        if self._membership is not None and self._subscription.is_by_group and not self._membership.is_settled:
            return False
        return self._until_commit_s() > 0 and self._positions.is_settled

    def wait_beside(self, wait: Callable[[float], object], seconds: float) -> None:
        """Has another thread wait, at most so long, while this counts as being in a poll."""
        membership = self._membership
        if membership is not None:
            membership.entered_poll()
        try:
            wait(min(seconds, self._until_commit_s()))
        finally:
            if membership is not None:
                membership.left_poll()

    @property
    def has_data(self) -> bool:
        return self._fetcher.has_data

    def take_ready(self, max_records: int | None = None) -> list[ConsumerRecord]:
        """What is in memory, at most so many. Afterwards `needs_wake` may be true."""
        records: list[ConsumerRecord] = []
        self._fetcher.take(max_records or self.options.max_poll_records, records)
        return records

    @property
    def needs_wake(self) -> bool:
        return self._fetcher.has_room_again

    def wake(self) -> None:
        """Lets fetching go on; on the loop."""
        self._fetcher.wake()

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Record after record, for ever. What is committed is what was given out, not what was fetched."""
        while not self._is_closed:
            if not self.has_in_hand:
                self.put_in_hand(await self.poll(1000))
            for record in self.give_out():
                yield record

    # What an iteration has taken and not given out yet

    @property
    def has_in_hand(self) -> bool:
        return self._in_hand_at < len(self._in_hand)

    def put_in_hand(self, records: list[ConsumerRecord]) -> None:
        self._in_hand, self._in_hand_at = records, 0

    def give_out(self) -> Iterator[ConsumerRecord]:
        while self._in_hand_at < len(self._in_hand):
            record = self._in_hand[self._in_hand_at]
            self._in_hand_at += 1
            yield record

    def rest_in_hand(self, max_records: int | None) -> list[ConsumerRecord]:
        """What an iteration left over, for those who poll afterwards."""
        end = self._in_hand_at + (max_records or self.options.max_poll_records)
        records = self._in_hand[self._in_hand_at : end]
        self._in_hand_at = end
        return records

    def _drop_in_hand(self, partitions: Iterable[tuple[str, int]]) -> None:
        if self._in_hand:
            gone = set(partitions)
            rest = self._in_hand[self._in_hand_at :]
            self._in_hand = [each for each in rest if (each.topic, each.partition) not in gone]
            self._in_hand_at = 0

    def take_ready_arrow(self, columns: Iterable[str] | None, max_batches: int | None) -> list[pa.RecordBatch]:
        """What is in memory, as Arrow batches of one partition each. As `take_ready`."""
        from mainstem.client.arrow_read import COLUMNS, check_columns, to_arrow

        names = check_columns(COLUMNS if columns is None else columns)
        batches: list[pa.RecordBatch] = []
        # What comes while these are decoded is for the next call: or one call could go on to the end of the topic.
        for _ in range(self._fetcher.ready_count):
            if max_batches is not None and len(batches) >= max_batches:
                break
            try:
                made = self._fetcher.take_chunk(lambda chunk: to_arrow(chunk, names))
            except KafkaError:
                if batches:
                    break  # told when it is met again, after those before it were given out
                raise
            if made is None:
                break
            batches.extend(made)
        return batches

    async def fetch_arrow(
        self,
        timeout_ms: float = 0,
        *,
        columns: Iterable[str] | None = None,
        max_batches: int | None = None,
    ) -> list[pa.RecordBatch]:
        """What has been fetched, as Arrow batches of one partition each; none when the time is up."""
        self._check()
        if self.has_in_hand:
            raise IllegalStateError("an iteration has records left over; poll them first")
        batches: list[pa.RecordBatch] = []

        def take() -> bool:
            batches.extend(self.take_ready_arrow(columns, max_batches))
            return bool(batches)

        await self._drive(take, timeout_ms)
        return batches

    # Positions

    async def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        """The offset of the next record that will be given out."""
        self._check()
        tp = TopicPartition(*partition)
        state = self._subscription.state(tp)
        if state.position is None or state.reset is not None:
            limit_ms = self.options.default_api_timeout_ms if timeout_ms is None else timeout_ms
            deadline = self._loop.time() + limit_ms / 1000
            while state.position is None or state.reset is not None:
                self._signal.clear()
                self._positions.settle()
                try:
                    async with asyncio.timeout_at(deadline):
                        await self._signal.wait()
                except TimeoutError:
                    raise KafkaTimeoutError(
                        f"no position within {limit_ms:g} ms", topic=tp.topic, partition=tp.partition
                    ) from None
        return self._given_out(state)

    def _given_out(self, state: PartitionState) -> int:
        """The position, but for what an iteration has in hand."""
        assert state.position is not None
        for record in self._in_hand[self._in_hand_at :]:
            if record.partition == state.tp.partition and record.topic == state.tp.topic:
                return int(record.offset)
        return int(state.position)

    async def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Goes on from this offset."""
        self._check()
        where = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        tp = TopicPartition(*partition)
        if not 0 <= where.offset <= INT64_MAX:
            raise IllegalStateError(f"offset {where.offset}: there is none", topic=tp.topic, partition=tp.partition)
        state = self._subscription.state(tp)
        state.move(where.offset, where.leader_epoch)
        self._drop_in_hand([tp])
        self._fetcher.wake_for(state)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Goes on from the first record that there is: of these partitions, or of all."""
        self._ask_reset(partitions, "earliest")

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Goes on with what is written from now on."""
        self._ask_reset(partitions, "latest")

    def _ask_reset(self, partitions: Iterable[TopicPartition], strategy: str) -> None:
        self._check()
        wanted = [TopicPartition(*each) for each in partitions] or self.assignment
        for tp in wanted:
            self._subscription.state(tp).ask_reset(strategy)
        self._drop_in_hand(wanted)
        self._positions.start()

    async def pause(self, *partitions: TopicPartition) -> None:
        """Gives out nothing of these until `resume`; they stay assigned."""
        self._check()
        for each in partitions:
            self._subscription.state(TopicPartition(*each)).is_paused = True
        self._fetcher.wake()  # what they have fetched keeps no others from being fetched any more

    async def resume(self, *partitions: TopicPartition) -> None:
        self._check()
        for each in partitions:
            self._subscription.state(TopicPartition(*each)).is_paused = False
        self._fetcher.wake()

    @property
    def paused(self) -> list[TopicPartition]:
        return [tp for tp, state in self._subscription.partitions.items() if state.is_paused]

    def lag(self, partition: TopicPartition) -> int | None:
        """How many offsets are between the position and the end of what may be read; None until a fetch said."""
        state = self._subscription.state(TopicPartition(*partition))
        end = state.last_stable_offset if self.options.isolation_level == "read_committed" else state.high_watermark
        return None if state.position is None or end < 0 else max(0, end - self._given_out(state))

    # Offsets of the log

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset of the first record of each."""
        return await self._ends(partitions, EARLIEST, timeout_ms)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset after the last record of each that may be read."""
        return await self._ends(partitions, LATEST, timeout_ms)

    async def _ends(
        self, partitions: Iterable[TopicPartition], which: int, timeout_ms: float | None
    ) -> dict[TopicPartition, int]:
        self._check()
        limit_ms = self.options.default_api_timeout_ms if timeout_ms is None else timeout_ms
        found = await self._finder.list_offsets({TopicPartition(*each): which for each in partitions}, limit_ms)
        return {tp: each.offset for tp, each in found.items()}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each that is as late as its timestamp (ms); None where there is none."""
        self._check()
        for tp, timestamp in timestamps.items():
            if timestamp < 0:
                raise IllegalStateError(f"timestamp {timestamp}: it is 0 or more", topic=tp[0], partition=tp[1])
        limit_ms = self.options.default_api_timeout_ms if timeout_ms is None else timeout_ms
        wanted = {TopicPartition(*tp): timestamp for tp, timestamp in timestamps.items()}
        found = await self._finder.list_offsets(wanted, limit_ms)
        return {
            tp: OffsetAndTimestamp(each.offset, each.timestamp, each.leader_epoch) if each.offset >= 0 else None
            for tp, each in found.items()
        }

    async def partitions_for(self, topic: str, timeout_ms: float | None = None) -> list[int]:
        """The partitions of a topic."""
        self._check()
        limit_ms = self.options.default_api_timeout_ms if timeout_ms is None else timeout_ms
        return list((await self._cluster.metadata([topic], limit_ms))[topic].partitions)

    # Commits

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        timeout_ms: float | None = None,
    ) -> None:
        """Commits these offsets, or how far every partition has been given out. Returns when it is done."""
        self._check()
        limit_ms = self.options.default_api_timeout_ms if timeout_ms is None else timeout_ms
        commits = self._need_commits()
        self._supersede_automatic_commit()
        await commits.commit(self._to_commit(offsets), limit_ms)

    def _to_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        if offsets is None:
            return self._consumed()
        return {
            TopicPartition(*tp): each if isinstance(each, OffsetAndMetadata) else OffsetAndMetadata(each)
            for tp, each in offsets.items()
        }

    def _consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {
            tp: OffsetAndMetadata(self._given_out(state), "", state.position_epoch)
            for tp, state in self._subscription.partitions.items()
            if state.position is not None and state.reset is None
        }

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed for each; None where it has not."""
        self._check()
        wanted = [TopicPartition(*each) for each in partitions]
        limit_ms = self.options.default_api_timeout_ms if timeout_ms is None else timeout_ms
        found = await self._need_commits().committed(wanted, limit_ms)
        return {tp: found.get(tp) for tp in wanted}

    def _need_commits(self) -> Commits:
        if self._commits is None:
            raise IllegalStateError("there is no group_id, so there is nobody to keep offsets for")
        return self._commits

    def group_metadata(self) -> GroupMetadata:
        """Who this consumer is in its group; for `send_offsets` of a transaction."""
        if self._membership is None:
            raise IllegalStateError("there is no group_id")
        if self._subscription.is_by_group:
            return self._membership.who
        return GroupMetadata(self._membership.who.group_id)

    def _until_commit_s(self) -> float:
        if not self.options.enable_auto_commit or self._committing is not None:
            return 3600.0
        return max(0.0, self._next_commit_s - self._time())

    def _commit_when_due(self) -> None:
        """Automatic commits go on beside poll, of what earlier polls gave out."""
        if not self.options.enable_auto_commit or self._commits is None or self._committing is not None:
            return
        if self._time() < self._next_commit_s:
            return
        self._next_commit_s = self._time() + self.options.auto_commit_interval_ms / 1000
        offsets = self._consumed()
        if offsets:
            self._committing = self._cluster.spawn(self._commit_beside(offsets), "automatic commit")

    async def _commit_beside(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """One try, as in Java: a later one is of the positions of then, never of these."""
        try:
            await self._need_commits().commit(offsets, self.options.default_api_timeout_ms, retries=0)
        except KafkaError as error:
            log.warning("automatic commit: %s", error)
            if error.retriable:
                self._next_commit_s = self._time() + self.options.retry_backoff_ms / 1000
        finally:
            if self._committing is asyncio.current_task():
                self._committing = None

    def _supersede_automatic_commit(self) -> None:
        """Before another commit: one that is under way and came after it would set the group back."""
        if self._committing is not None:
            self._committing.cancel()
            self._committing = None
            self._next_commit_s = self._time()  # what it may have left undone

    async def _commit_before_revoking(self) -> None:
        if not self.options.enable_auto_commit or self._commits is None:
            return
        self._supersede_automatic_commit()
        try:
            await self._commits.commit(self._consumed(), self.options.default_api_timeout_ms)
        except KafkaError as error:
            log.warning("automatic commit before partitions are given back: %s", error)

    # Inside

    def _time(self) -> float:
        assert self._now is not None
        return self._now()

    def _notify(self) -> None:
        """Something has come that a poll waits for."""
        self._signal.set()

    def _follow_partitions(self) -> None:
        """Reads partitions that were added to the topics since the start, too: all of them, for all of it is new."""
        if self._subscription.mode is not Mode.ASSIGNED or not self._reads_all:
            return
        had = self._subscription.partitions
        known = self._cluster.cache.topics
        added = [
            TopicPartition(topic, number)
            for topic in self._first_topics
            if topic in known
            for number in known[topic].partitions
            if (topic, number) not in had
        ]
        if added:
            self._subscription.assign([*had, *added])
            for tp in added:
                self._subscription.state(tp).ask_reset("earliest")
            self._positions.start()

    def _positions_changed(self) -> None:
        self._notify()
        self._fetcher.wake()

    async def _tell(self, what: str, partitions: list[TopicPartition]) -> None:
        if what != "on_partitions_assigned":
            self._drop_in_hand(partitions)
        if self._listener is not None:
            answer = await self._call(getattr(self._listener, what), partitions)
            if inspect.isawaitable(answer):
                await answer

    async def _call(
        self, method: Callable[[list[TopicPartition]], Awaitable[None] | None], partitions: list[TopicPartition]
    ) -> Awaitable[None] | None:
        """Calls the application; the synchronous face does it in the application's thread."""
        return method(partitions)
