"""The synchronous consumer: `AsyncConsumer` on the loop that all synchronous clients of a process share.

The loop fetches, sends heartbeats and keeps the group; the application's thread decodes what is in memory, a poll at a
time, without the loop. It goes to the loop only when there is nothing to take or something else to do. A listener's
methods are called in the application's thread, from within `poll`, and may use the consumer.

A consumer is used by one thread at a time.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from queue import SimpleQueue
from re import Pattern
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from mainstem.client.commits import GroupMetadata
from mainstem.client.consumer import AsyncConsumer
from mainstem.client.errors import IllegalStateError
from mainstem.client.listeners import RebalanceListener
from mainstem.client.options import ConsumerOptions
from mainstem.client.sync import loop_thread
from mainstem.client.types import ConsumerRecord, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

ITERATION_POLL_MS: Final = 1000

_Errand = Callable[[], bool]
"""Something for the application's thread to do; whether it was the last."""


class _Core(AsyncConsumer):
    """Has listeners called by the thread that waits."""

    def __init__(self, *topics: str, **options: Any) -> None:
        super().__init__(*topics, now=time.monotonic, **options)
        self.errands: SimpleQueue[_Errand] | None = None
        self.bell = threading.Event()
        """Rung when there may be something to take or to do."""

    def _notify(self) -> None:
        super()._notify()
        self.bell.set()

    async def _call(
        self, method: Callable[[list[TopicPartition]], Awaitable[None] | None], partitions: list[TopicPartition]
    ) -> Awaitable[None] | None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Awaitable[None] | None] = loop.create_future()

        def settle(answer: Awaitable[None] | None, error: Exception | None) -> None:
            if not done.done():
                if error is None:
                    done.set_result(answer)
                else:
                    done.set_exception(error)

        def errand() -> bool:
            answer: Awaitable[None] | None = None
            error: Exception | None = None
            try:
                answer = method(partitions)
            except Exception as raised:
                error = raised  # an interrupt goes its own way, through `_run`: it would end the loop
            loop.call_soon_threadsafe(settle, answer, error)
            return False

        assert self.errands is not None, "listeners are told while somebody waits"
        self.errands.put(errand)
        return await done


class Consumer:
    """Reads records. `with Consumer("orders", group_id="g") as consumer: for record in consumer: …`

    Topics that are named are subscribed to; without a `group_id` all of their partitions are read.
    """

    def __init__(self, *topics: str, **options: Any) -> None:
        self._core = _Core(*topics, **options)
        self._thread = loop_thread()
        self._loop = self._thread.loop
        self._is_closed = False
        try:
            self._run(self._core.start())
        except BaseException:
            self.close()
            raise

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Has the loop do `work`, and does the errands that come up meanwhile."""
        if self._is_closed:
            work.close()
            raise IllegalStateError("this consumer is closed")
        if self._thread.pid != os.getpid():
            work.close()
            raise IllegalStateError("a client does not survive a fork; make one in the new process")
        if self._thread.is_current:
            work.close()
            raise IllegalStateError("a synchronous client cannot be used in a callback of its own; use the async one")
        errands: SimpleQueue[_Errand] = SimpleQueue()
        outer, self._core.errands = self._core.errands, errands
        tasks: list[asyncio.Task[T]] = []

        def begin() -> None:
            task = self._loop.create_task(work)
            tasks.append(task)
            task.add_done_callback(lambda _: errands.put(lambda: True))

        self._loop.call_soon_threadsafe(begin)
        try:
            while not errands.get()():
                pass
        except BaseException:
            # Interrupted: what was begun must not go on behind the application's back.
            self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
            while not errands.get()():
                pass
            raise
        finally:
            self._core.errands = outer
        return tasks[0].result()

    # Beginning and end

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, timeout_ms: float = 30_000) -> None:
        """Commits where that is automatic, gives the partitions back, leaves the group, and ends the connections."""
        if self._is_closed:
            return
        try:
            self._run(self._core.close(timeout_ms))
        finally:
            self._is_closed = True

    @property
    def options(self) -> ConsumerOptions:
        return self._core.options

    # What to read

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Reads these topics, or those whose names match from their beginning, shared with the rest of the group."""
        self._run(self._core.subscribe(topics, pattern=pattern, listener=listener))

    def unsubscribe(self) -> None:
        self._run(self._core.unsubscribe())

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads exactly these partitions, whoever else does."""
        self._run(self._core.assign(partitions))

    @property
    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed to."""
        return self._core.subscription

    @property
    def assignment(self) -> list[TopicPartition]:
        return self._core.assignment

    # Reading

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> list[ConsumerRecord]:
        """The next records, at most `max_records`; as soon as there are any, and none when the time is up."""
        core = self._core
        if core.has_in_hand:
            return core.rest_in_hand(max_records)
        return self._take(lambda: core.take_ready(max_records), timeout_ms)

    def _take(self, take: Callable[[], list[T]], timeout_ms: float) -> list[T]:
        """What `take` gives, as soon as it gives something. Goes to the loop where there is more to do than wait."""
        core = self._core
        deadline = 0.0
        while True:
            if core.can_take and (taken := self._keep_fetching(take)):
                return taken
            now = time.monotonic()
            deadline = deadline or now + timeout_ms / 1000
            core.bell.clear()  # before looking: what comes after the look rings it
            if now < deadline and core.is_quiet and not core.has_data and not self._thread.is_current:
                core.wait_beside(core.bell.wait, deadline - now)
                if core.can_take:
                    continue
            left_ms = (deadline - time.monotonic()) * 1000
            if self._run(core.wait_ready(max(0.0, left_ms))) and (taken := self._keep_fetching(take)):
                return taken
            if time.monotonic() >= deadline:
                return []

    def _keep_fetching(self, take: Callable[[], list[T]]) -> list[T]:
        """What `take` gives. Fetching goes on where that made room, also where it raises."""
        try:
            return take()
        finally:
            if self._core.needs_wake:
                self._loop.call_soon_threadsafe(self._core.wake)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Record after record, for ever. What is committed is what was given out, not what was fetched."""
        while not self._is_closed:
            if not self._core.has_in_hand:
                self._core.put_in_hand(self.poll(ITERATION_POLL_MS))
            yield from self._core.give_out()

    def fetch_arrow(
        self, timeout_ms: float = 0, *, columns: Iterable[str] | None = None, max_batches: int | None = None
    ) -> list[pa.RecordBatch]:
        """What has been fetched, as Arrow batches of one partition each; none when the time is up."""
        core = self._core
        if core.has_in_hand:
            raise IllegalStateError("an iteration has records left over; poll them first")
        names = None if columns is None else tuple(columns)
        return self._take(lambda: core.take_ready_arrow(names, max_batches), timeout_ms)

    # Positions

    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        """The offset of the next record that will be given out."""
        return self._run(self._core.position(partition, timeout_ms))

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Goes on from this offset."""
        self._run(self._core.seek(partition, offset))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Goes on from the first record that there is: of these partitions, or of all."""
        self._run(self._core.seek_to_beginning(*partitions))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Goes on with what is written from now on."""
        self._run(self._core.seek_to_end(*partitions))

    def pause(self, *partitions: TopicPartition) -> None:
        """Gives out nothing of these until `resume`; they stay assigned."""
        self._run(self._core.pause(*partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        self._run(self._core.resume(*partitions))

    @property
    def paused(self) -> list[TopicPartition]:
        return self._core.paused

    def lag(self, partition: TopicPartition) -> int | None:
        """How many offsets are between the position and the end of what may be read; None until a fetch said."""
        return self._core.lag(partition)

    # Offsets of the log

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset of the first record of each."""
        return self._run(self._core.beginning_offsets(partitions, timeout_ms))

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset after the last record of each that may be read."""
        return self._run(self._core.end_offsets(partitions, timeout_ms))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each that is as late as its timestamp (ms); None where there is none."""
        return self._run(self._core.offsets_for_times(timestamps, timeout_ms))

    def partitions_for(self, topic: str, timeout_ms: float | None = None) -> list[int]:
        """The partitions of a topic."""
        return self._run(self._core.partitions_for(topic, timeout_ms))

    # Commits

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        timeout_ms: float | None = None,
    ) -> None:
        """Commits these offsets, or how far every partition has been given out. Returns when it is done."""
        self._run(self._core.commit(offsets, timeout_ms))

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed for each; None where it has not."""
        return self._run(self._core.committed(partitions, timeout_ms))

    def group_metadata(self) -> GroupMetadata:
        """Who this consumer is in its group; for `send_offsets` of a transaction."""
        return self._core.group_metadata()
