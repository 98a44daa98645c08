"""One partition as this broker serves it: its log, its term of leadership, and those who wait for it.

- What was appended is visible, and acknowledged, once the high watermark has passed it. Where the topic asks for an
  fsync first (`flush.messages`), the leader's own end counts only when that is done.
- A batch that takes long to judge is judged in a thread; those that come after it wait their turn behind it, so that
  batches are appended in the order they came.
- One flush of a log runs at a time, in a thread, when its turn has come (`flush_turns`); what was appended meanwhile is
  covered by the next. So does one job that gives its files other names; whoever renames or closes the folder waits for
  both (`settle`).
- A failure of the log is reported at once to `on_failure`, whoever meets it: it takes the partition offline, and where
  the disk failed its directory. After that the partition answers KAFKA_STORAGE_ERROR.
- An index that is wrong is no failure: it is built anew in a thread, and meanwhile reads do without it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from heapq import heappop, heappush

from mainstem.broker.clock import Clock
from mainstem.broker.flush_turns import FlushTurns
from mainstem.broker.purgatory import Watchers
from mainstem.core.log.append_result import AppendResult
from mainstem.core.log.preparation import Preparation
from mainstem.core.log.producers import Origin
from mainstem.core.log.verification import NO_GUARD
from mainstem.core.replication.leader import LeaderState
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.storage.errors import OutOfFilesError, StorageError
from mainstem.storage.flushing import FlushJob
from mainstem.storage.log import Log
from mainstem.storage.reindexing import Reindexing

logger = logging.getLogger(__name__)

Committed = Callable[[ErrorCode], None]
Appended = Callable[[AppendResult | RemoteError], None]


class _Waiting:
    """A batch that is not appended yet; `prepared` where it was or is being judged in a thread, as it is by all means
    where it `must_be_prepared`."""

    __slots__ = ("all_in_sync", "buffer", "done", "end", "guard", "must_be_prepared", "prepared", "start")

    def __init__(
        self,
        buffer: bytes,
        start: int,
        end: int,
        all_in_sync: bool,
        guard: int,
        must_be_prepared: bool,
        done: Appended,
    ) -> None:
        self.buffer = buffer
        self.start = start
        self.end = end
        self.all_in_sync = all_in_sync
        self.guard = guard
        self.must_be_prepared = must_be_prepared
        self.done = done
        self.prepared: Preparation | None = None


class Partition:
    __slots__ = (
        "_clock",
        "_committing",
        "_flush_turn",
        "_flushes_rolled_only",
        "_flushing",
        "_is_appending",
        "_is_held",
        "_judges",
        "_loop",
        "_moved",
        "_on_failure",
        "_order",
        "_reindexing",
        "_restructuring",
        "_turns",
        "index",
        "leader",
        "log",
        "topic",
        "topic_id",
        "waiting",
        "watchers",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        topic: str,
        topic_id: bytes,
        index: int,
        log: Log,
        on_failure: Callable[["Partition", StorageError], None],
        judges: Executor | None = None,
        turns: FlushTurns | None = None,
    ) -> None:
        """`judges` are the threads that open batches; they are few, because of what a batch may expand to. `turns` are
        those of all logs that share their open files."""
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leader: LeaderState | None = None
        self.watchers = Watchers()
        """Requests that wait for the high watermark or the last stable offset to move."""
        self.waiting: deque[_Waiting] = deque()
        """Batches behind one that a thread judges, which comes first."""
        self._loop = loop
        self._clock = clock
        self._on_failure = on_failure
        self._judges = judges
        self._committing: list[tuple[int, int, Committed]] = []
        self._order = 0
        self._flushing: asyncio.Future[None] | None = None
        self._turns = turns or FlushTurns(loop)
        self._flush_turn: asyncio.Future[None] | None = None
        """Done when the turn has come that was asked for: nothing works on the log for its sake yet."""
        self._flushes_rolled_only = False
        self._restructuring: asyncio.Future[object] | None = None
        self._reindexing: asyncio.Future[None] | None = None
        log.on_damaged_index = self._reindex
        self._is_appending = False
        self._is_held = False
        self._moved = False

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"

    # Leadership

    def lead(
        self, node_id: int, epoch: int, replicas: tuple[int, ...], in_sync: tuple[int, ...], min_in_sync: int
    ) -> None:
        """Begins a term. The epoch is noted before its first batch (KAFKA-7415)."""
        self.log.assign_epoch(epoch)
        self.log.doubt_open_transactions()
        self.leader = LeaderState(
            node_id,
            epoch,
            replicas,
            in_sync,
            min_in_sync=min_in_sync,
            log_end=self.log.log_end,
            high_watermark=self.log.high_watermark,
        )
        self._wrote()
        self.notify()
        if self.log.damaged_indexes:
            self._reindex()  # the cleaner may have met one before

    def resign(self, code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """Ends the term: whoever waits is told, and may look elsewhere."""
        self.leader = None
        committing, self._committing = self._committing, []
        for _, _, callback in committing:
            callback(code)
        self._moved = True
        self.notify()

    def check_leader(self, current_epoch: int = -1) -> LeaderState:
        """The term in progress; RemoteError where there is none or the client knows another epoch."""
        leader = self.leader
        if leader is None:
            raise self._no_leader()
        if current_epoch >= 0 and current_epoch != leader.epoch:
            code = ErrorCode.FENCED_LEADER_EPOCH if current_epoch < leader.epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
            raise RemoteError(code, f"{self} is led in epoch {leader.epoch}, not {current_epoch}")
        return leader

    def _no_leader(self) -> RemoteError:
        if self.log.failure is not None:
            return RemoteError(ErrorCode.KAFKA_STORAGE_ERROR, str(self.log.failure))
        return RemoteError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self} is not led here")

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        return self.log.last_stable_offset

    # Appending

    def append(
        self,
        buffer: bytes,
        start: int,
        end: int,
        *,
        all_in_sync: bool = True,
        origin: Origin = Origin.CLIENT,
        transaction_version: int = 0,
        guard: int = NO_GUARD,
    ) -> AppendResult:
        """Appends one batch. RemoteError where it may not be. `notify` is the caller's to call, once it is done."""
        leader = self._check_may_append(all_in_sync)
        try:
            result = self.log.append_as_leader(
                buffer, start, end, leader.epoch, self._clock.wall_ms(), origin, transaction_version, guard
            )
        except StorageError as error:
            raise self._failed(error) from error
        if not result.is_duplicate:
            self._wrote()
        return result

    def _check_may_append(self, all_in_sync: bool) -> LeaderState:
        leader = self.leader
        if leader is None:
            raise self._no_leader()
        if all_in_sync and not leader.has_enough_in_sync:
            raise RemoteError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self} has {len(leader.in_sync)} replicas in sync, {leader.effective_min_in_sync} are needed",
            )
        return leader

    def append_later(
        self,
        buffer: bytes,
        start: int,
        end: int,
        *,
        all_in_sync: bool,
        guard: int = NO_GUARD,
        must_be_prepared: bool = False,
        done: Appended,
    ) -> None:
        """Appends a client's batch when its turn has come and it is judged, and tells `done`.

        One that `must_be_prepared` is judged in a thread, however little it takes: what came with it took enough.
        """
        self.waiting.append(_Waiting(buffer, start, end, all_in_sync, guard, must_be_prepared, done))
        if not self._is_appending:
            self._append_waiting()

    def _append_waiting(self) -> None:
        """Appends the batches whose turn it is, up to the first that a thread must judge.

        To tell one is done may bring in the next: it joins the line, and this goes on with it.
        """
        self._is_appending = True
        waiting = self.waiting
        while waiting:
            first = waiting[0]
            try:
                now_ms = self._clock.wall_ms()
                if first.prepared is None and (
                    first.must_be_prepared or self.log.takes_long(first.buffer, first.start, first.end, now_ms)
                ):
                    first.prepared = self.log.prepare(first.buffer, first.start, first.end, now_ms)
                    judging = self._loop.run_in_executor(self._judges, first.prepared.run, self._clock.breathe)
                    judging.add_done_callback(self._judged)
                    return
                outcome: AppendResult | RemoteError = self._append_first(first)
            except RemoteError as error:
                outcome = error
            except StorageError as failure:
                outcome = self._failed(failure)
            except Exception as unexpected:
                # Our own fault. Were it not told, all that come after it would wait for ever.
                logger.exception("failed to append a batch", extra={"partition": str(self)})
                outcome = RemoteError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(unexpected).__name__}: {unexpected}")
            waiting.popleft()
            try:
                first.done(outcome)
                self.notify()
            except Exception:
                logger.exception("failed to tell what became of a batch", extra={"partition": str(self)})
        self._is_appending = False

    def _judged(self, judging: "asyncio.Future[None]") -> None:
        error = judging.exception()
        prepared = self.waiting[0].prepared
        if error is not None and prepared is not None:
            logger.error("failed to judge a batch", exc_info=error, extra={"partition": str(self)})
            prepared.error = RemoteError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(error).__name__}: {error}")
        self._append_waiting()

    def _append_first(self, first: _Waiting) -> AppendResult:
        if first.prepared is None:
            return self.append(first.buffer, first.start, first.end, all_in_sync=first.all_in_sync, guard=first.guard)
        leader = self._check_may_append(first.all_in_sync)
        try:
            result = self.log.append_prepared(first.prepared, leader.epoch, self._clock.wall_ms(), guard=first.guard)
        except StorageError as error:
            raise self._failed(error) from error
        if not result.is_duplicate:
            self._wrote()
        return result

    def begin_verification(self, producer_id: int, epoch: int, first_sequence: int, raises_epoch: bool) -> int:
        """The guard that the first batch of a transaction must bring; `NO_GUARD` where it is open already."""
        self.check_leader()
        return self.log.begin_verification(producer_id, epoch, first_sequence, raises_epoch, self._clock.wall_ms())

    def _wrote(self) -> None:
        log = self.log
        leader = self.leader
        if log.flushes_before_ack:
            self._flush()
            return
        if leader is not None and leader.wrote(log.log_end):
            self._advance(leader.high_watermark)
        if log.has_unflushed_roll:
            self._flush(rolled_only=True)

    def _advance(self, high_watermark: int) -> None:
        self.log.update_high_watermark(high_watermark)
        self._moved = True

    def notify(self) -> None:
        """Tells those who wait that the high watermark has moved, if it has."""
        if not self._moved:
            return
        self._moved = False
        committing = self._committing
        high_watermark = self.log.high_watermark
        while committing and committing[0][0] <= high_watermark:
            heappop(committing)[2](ErrorCode.NONE)
        self.watchers.wake()

    def when_committed(self, end_offset: int, callback: Committed) -> None:
        """Calls back once everything below `end_offset` is committed, or will not be; at once where it is."""
        if self.leader is None:
            callback(self._no_leader().code)
        elif self.log.high_watermark >= end_offset:
            callback(ErrorCode.NONE)
        else:
            self._order += 1
            heappush(self._committing, (end_offset, self._order, callback))

    def config_changed(self, min_in_sync: int) -> None:
        """The topic's settings are others now; the log has them already."""
        leader = self.leader
        if leader is not None and leader.set_min_in_sync(min_in_sync):
            self._advance(leader.high_watermark)
            self.notify()

    def replace_log(self, log: Log) -> None:
        """The same records in another directory. What is not in its files goes along: who may begin a transaction, who
        is fenced, and what producers sent before the log's start."""
        assert log.log_end == self.log.log_end, f"{self} ends at {self.log.log_end}, its copy at {log.log_end}"
        log.config = self.log.config
        log.verifies_transactions = self.log.verifies_transactions
        log.verifications = self.log.verifications
        log.take_producers_of(self.log)
        self.log = log
        log.on_damaged_index = self._reindex
        if self.leader is not None:
            log.assign_epoch(self.leader.epoch)

    @property
    def is_busy(self) -> bool:
        """Whether a thread works on the log's files."""
        return self._flushing is not None or self._restructuring is not None or self._reindexing is not None

    # Making durable

    def flush_if_due(self) -> None:
        """For the periodic check of `flush.ms`."""
        if self.leader is not None and self.log.needs_flush(self._clock.wall_ms()):
            self._flush()

    def make_durable(self) -> None:
        """Has a thread flush what was appended so far."""
        if self.leader is not None:
            self._flush()

    async def sync_recovered(self) -> None:
        """Has a thread sync what a recovery left, where nothing else would before the next roll."""
        if self.leader is not None and self.log.leaves_files_to_a_roll:
            self._flush()
            if self._flush_turn is not None:
                await asyncio.wait([self._flush_turn])
            if self._flushing is not None:
                await asyncio.wait([self._flushing])

    def _flush(self, rolled_only: bool = False) -> None:
        if self._flushing is not None or not self._may_flush:
            return
        if self._flush_turn is not None:
            self._flushes_rolled_only = self._flushes_rolled_only and rolled_only
            return
        self._flush_turn = self._loop.create_future()
        self._flushes_rolled_only = rolled_only
        self._turns.ask(self._begin_flush)

    @property
    def _may_flush(self) -> bool:
        return self.leader is not None and not self._is_held and self.log.failure is None

    def _begin_flush(self, files_max: int) -> FlushJob | None:
        """The turn has come. Whoever forbids it meanwhile asks for another where one is needed."""
        job: FlushJob | None = None
        if self._may_flush:
            try:
                job = self.log.begin_flush(self._clock.wall_ms(), self._flushes_rolled_only, files_max)
            except OutOfFilesError:
                raise
            except StorageError as error:
                self._failed(error)
        turn, self._flush_turn = self._flush_turn, None
        if job is not None:
            begun = job
            self._flushing = self._loop.run_in_executor(None, job.run, self._clock.breathe)
            self._flushing.add_done_callback(lambda future: self._flushed(begun))
        if turn is not None:
            turn.set_result(None)
        return job

    async def settle(self) -> None:
        """Returns when no thread works on the log any more. After `resign`: nothing new begins then."""
        while self.is_busy:
            jobs = (self._flushing, self._restructuring, self._reindexing)
            await asyncio.wait([job for job in jobs if job is not None])

    async def hold(self) -> None:
        """Returns when no thread works on the log. No flush begins before `release`: where batches come all the time
        that ask for one, there would always be one under way."""
        self._is_held = True
        await self.settle()

    def release(self) -> None:
        """Flushes what has come since `hold`."""
        if self._is_held:
            self._is_held = False
            if self.leader is not None:
                self._wrote()
                self.notify()

    # Which segments there are

    async def retire_segments(self) -> int:
        """Takes old segments out of the log; how many. RemoteError where the disk failed."""
        if not self._may_retire:
            return 0
        log = self.log
        try:
            ages = log.begin_aging(self._clock.wall_ms())
            if ages is not None:
                await self._loop.run_in_executor(None, ages.run)
                log.learn_timestamps(ages)
            if not self._may_retire or log is not self.log:
                return 0  # meanwhile
            job = log.begin_retirement(self._clock.wall_ms())
            if job is None:
                return 0
            await self.restructure(lambda: job.run(self._clock.breathe))
            log.finish_restructuring(job)
        except StorageError as error:
            raise self._failed(error) from error
        return job.count

    @property
    def _may_retire(self) -> bool:
        return self.leader is not None and not self.log.is_restructuring

    async def restructure(self, run: Callable[[], object]) -> None:
        """Runs what gives the log's files other names, in a thread."""
        assert self._restructuring is None, f"{self} is being restructured"
        running = self._restructuring = self._loop.run_in_executor(None, run)
        try:
            await running
        finally:
            self._restructuring = None

    # Indexes that are wrong

    def _reindex(self) -> None:
        """Has the indexes built anew that a reader found wrong, one after the other, in a thread."""
        log = self.log
        if self._reindexing is not None or self.leader is None or log.failure is not None:
            return
        try:
            if log.active_segment in log.damaged_indexes:
                log.roll(self._clock.wall_ms())
            job = log.begin_reindexing()
        except StorageError as error:
            self._failed(error)
            return
        if job is not None:
            logger.warning(
                "an index is built anew: %s", log.damaged_indexes[job.segment], extra={"partition": str(self)}
            )
            self._reindexing = self._loop.run_in_executor(None, job.run)
            self._reindexing.add_done_callback(lambda future: self._reindexed(log, job))

    def _reindexed(self, log: Log, job: Reindexing) -> None:
        self._reindexing = None
        try:
            log.finish_reindexing(job)
        except StorageError as error:
            self._failed(error)
        else:
            self._reindex()

    def _flushed(self, job: FlushJob) -> None:
        try:
            self._take_back(job)
        finally:
            self._turns.done(job)

    def _take_back(self, job: FlushJob) -> None:
        self._flushing = None
        log = self.log
        if log.is_closed:
            job.finish()
            return
        try:
            log.finish_flush(job)
        except StorageError as error:
            self._failed(error)
            return
        leader = self.leader
        if log.flushes_before_ack:
            # More came meanwhile: it waits for a flush of its own, what is durable now does not.
            if leader is not None and leader.wrote(log.recovery_point):
                self._advance(leader.high_watermark)
            if leader is not None:
                self._flush()
        elif leader is not None:
            self._wrote()
        self.notify()

    def read_failed(self, error: StorageError) -> None:
        """A reader met what takes the log offline, and has noticed first."""
        self._on_failure(self, error)

    def _failed(self, error: StorageError) -> RemoteError:
        self._on_failure(self, error)
        return RemoteError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
