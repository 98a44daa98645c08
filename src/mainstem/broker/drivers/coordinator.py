"""Runs the machines of coordinators: one shard for each partition of an internal topic that is led here.

For each step of a machine (`Outcome`): its records are replayed at once, so that the next step sees them, and appended
as part of the batch that this turn of the loop collects (requests handled together share one write); replies leave
when the batch is below the high watermark, and replies that need no write leave when everything before them is (G8).

- A write that fails changes nothing: what the batch replayed is taken back, and everyone who waited for the batch gets
  the error that Kafka's coordinators give.
- A write that is not committed in time is reported as such; it may still be, and what comes after it waits for it
  all the same. Only a patient token waits longer, until it is certain.
- Where it is certain that a write will not be committed here, because the disk failed or the term is over, the shard
  has taken in what its log may never say: it serves no more, and only another one that reads the log does.
- Records of a transaction are written at once, in a batch of their own.
- A shard begins by replaying its log, in slices, and answers COORDINATOR_LOAD_IN_PROGRESS meanwhile. Loads and
  unloads follow leader epochs: a late one of an older epoch does nothing (KAFKA-10614). A log that cannot be read
  leaves a shard that answers NOT_COORDINATOR and says why in the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from mainstem.broker.clock import Clock
from mainstem.broker.partition import Partition
from mainstem.core.coordinator.effects import (
    ArmTimer,
    CancelTimer,
    CoordinatorMachine,
    LogRecord,
    Note,
    Order,
    Outcome,
    Refuse,
    Reply,
    TimerKey,
    TransactionPart,
    UnknownRecordError,
)
from mainstem.core.log.producers import Origin
from mainstem.core.log.verification import NO_GUARD
from mainstem.protocol.batch import BatchView, iterate_batches
from mainstem.protocol.builder import BatchBuilder
from mainstem.protocol.control import parse_end_marker
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.records import iterate_records
from mainstem.storage.errors import StorageError
from mainstem.storage.log import Log
from mainstem.storage.reading import ReadJob

log = logging.getLogger(__name__)

LOAD_BYTES: Final = 1 << 20
SLICE_S: Final = 0.001
RECORD_OVERHEAD: Final = 32
"""More than the varints around a key and a value take."""

M = TypeVar("M", bound=CoordinatorMachine)
CarryOut = Callable[["Shard[M]", object], None]


def _nothing_to_carry_out(shard: Shard[M], what: object) -> None:
    raise AssertionError(f"{what!r} is ordered of {shard.name}, whose driver carries out nothing")


class CoordinatorLog(Protocol):
    """A partition of an internal topic, as its coordinator uses it."""

    @property
    def log_start(self) -> int: ...

    @property
    def log_end(self) -> int: ...

    @property
    def batch_bytes_max(self) -> int: ...

    def append(self, batch: bytes, guard: int = NO_GUARD, transaction_version: int = 0) -> int:
        """Appends a batch and returns the log's end after it; RemoteError where it may not be."""

    def when_committed(self, end_offset: int, callback: Callable[[ErrorCode], None]) -> None:
        """Calls back once everything below `end_offset` is committed, or will not be; at once where it is."""

    async def read(self, offset: int, max_bytes: int) -> bytes:
        """Batches from the one that holds `offset` on, at least one whole; a torn one at the end may follow.

        RemoteError where who goes on after the last whole one would pass over some.
        """


class PartitionLog:
    """The `CoordinatorLog` of a partition that this broker leads."""

    __slots__ = ("_loop", "_partition", "_read_end")

    def __init__(self, loop: asyncio.AbstractEventLoop, partition: Partition) -> None:
        self._loop = loop
        self._partition = partition
        self._read_end: _Place | None = None
        """Where the whole batches end that were read last."""

    @property
    def log_start(self) -> int:
        return self._partition.log.log_start

    @property
    def log_end(self) -> int:
        return self._partition.log.log_end

    @property
    def batch_bytes_max(self) -> int:
        return self._partition.log.config.max_message_bytes

    def append(self, batch: bytes, guard: int = NO_GUARD, transaction_version: int = 0) -> int:
        result = self._partition.append(
            batch, 0, len(batch), origin=Origin.COORDINATOR, transaction_version=transaction_version, guard=guard
        )
        self._partition.notify()
        return result.last_offset + 1

    def when_committed(self, end_offset: int, callback: Callable[[ErrorCode], None]) -> None:
        self._partition.when_committed(end_offset, callback)

    async def read(self, offset: int, max_bytes: int) -> bytes:
        try:
            return await self._read(offset, max_bytes)
        except StorageError as error:
            self._partition.read_failed(error)
            raise

    async def _read(self, offset: int, max_bytes: int) -> bytes:
        held = self._partition.log
        log_end = held.log_end
        step = held.begin_read(offset, max_bytes, log_end)
        while isinstance(step, ReadJob):
            try:
                await self._loop.run_in_executor(None, step.run)
            except BaseException:
                step.unpin()
                raise
            # The partition may have moved to another directory meanwhile: its log of now goes on.
            held = self._partition.log
            step = held.finish_read(step)
        if step.size == 0:
            if held.log_end == log_end:
                self._check_place(offset, held.size)
            return b""
        try:
            end = _Place(held, held.bytes_before(step.segment_base) + step.position)
            self._check_place(offset, end.at)
            data = step.read_cached(0, step.size)
            if data is None:
                data = await self._loop.run_in_executor(None, step.read)
        except OSError as error:
            raise StorageError(self._partition.log.directory, str(error), cause=error) from error
        finally:
            step.release()
        for batch in iterate_batches(data, 0, len(data)):
            offset = batch.next_offset
            end.at += batch.size
        self._read_end = end
        if offset >= self._partition.log.log_end:
            self._check_place(offset, self._partition.log.size)
        return data

    def _check_place(self, offset: int, at: int) -> None:
        """What was sought by `offset` begins at byte `at`: that must be where the batches end that were read last.

        A batch whose offset is wrong, and no checksum covers that, is passed over by who seeks a later one, or leads
        who goes on after it too far.
        """
        held, last = self._partition.log, self._read_end
        if offset == held.first_base_offset:
            due = 0
        elif last is not None and last.log is held and last.generation == held.generation:
            due = last.at
        else:
            return
        if at != due:
            raise RemoteError(
                ErrorCode.CORRUPT_MESSAGE,
                f"offset {offset} is sought at byte {at} of the log, and what is before it ends at {due}",
            )


class _Place:
    """A byte of a log, counted through all of its segments. It is another's when the log's generation is another."""

    __slots__ = ("at", "generation", "log")

    def __init__(self, held: Log, at: int) -> None:
        self.log = held
        self.generation = held.generation
        self.at = at


class _Waiting:
    """Those who wait for one batch: its replies, and the tokens of the steps whose records it has."""

    __slots__ = ("builder", "done", "guard", "patient", "replies", "size", "timeout", "tokens")

    def __init__(self, builder: BatchBuilder | None, guard: int = NO_GUARD) -> None:
        self.builder = builder
        self.guard = guard
        self.size = 0
        self.replies: list[Reply | Refuse] = []
        self.tokens: list[object] = []
        self.patient: list[object] = []
        """Tokens that wait for what really becomes of the batch."""
        self.done = False
        self.timeout: asyncio.TimerHandle | None = None


class _Timer:
    __slots__ = ("due", "handle")

    def __init__(self, due: float, handle: asyncio.TimerHandle) -> None:
        self.due = due
        self.handle = handle


class Shard(Generic[M]):
    """One machine, its log, its timers and those who wait for its writes."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        name: str,
        epoch: int,
        held: CoordinatorLog,
        machine: M,
        codec: int,
        commit_timeout_s: float,
        carry_out: CarryOut[M] = _nothing_to_carry_out,
    ) -> None:
        self.name = name
        self.epoch = epoch
        self.machine = machine
        self._loop = loop
        self._clock = clock
        self._log = held
        self._codec = codec
        self._commit_timeout_s = commit_timeout_s
        self._carry_out = carry_out
        self._unavailable: ErrorCode | None = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        """Why it does not serve; None when it does."""
        self._timers: dict[TimerKey, _Timer] = {}
        self._open: _Waiting | None = None
        self._in_flight: deque[_Waiting] = deque()
        self._told: list[Callable[[M, int], Outcome]] = []
        """What happened while it was loading, in order."""
        self._loading = loop.create_task(self._load())

    # Asking

    def ask(self, action: Callable[[M, asyncio.Future[object], int], Outcome]) -> asyncio.Future[object]:
        """Runs one step; the future is its ticket. RemoteError where the shard does not serve, or the step says no."""
        if self._unavailable is not None:
            raise RemoteError(self._unavailable, f"{self.name} does not serve now")
        ticket = self._loop.create_future()
        self.take(action(self.machine, ticket, self._clock.wall_ms()))
        return ticket

    def tell(self, action: Callable[[M, int], Outcome]) -> None:
        """Runs one step that nobody waits for: now, or first of all once the log is read."""
        if self._unavailable is None:
            self.take(action(self.machine, self._clock.wall_ms()))
        elif self.is_loading:
            self._told.append(action)

    @property
    def is_loading(self) -> bool:
        return self._unavailable is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    @property
    def is_serving(self) -> bool:
        return self._unavailable is None

    def take(self, outcome: Outcome) -> None:
        """Carries out one step."""
        replies: list[Reply | Refuse] = []
        for effect in outcome.effects:
            match effect:
                case Reply() | Refuse():
                    replies.append(effect)
                case ArmTimer():
                    self._arm(effect.key, effect.delay_ms)
                case CancelTimer():
                    timer = self._timers.pop(effect.key, None)
                    if timer is not None:
                        timer.handle.cancel()
                case Note():
                    log.info(effect.message, extra=effect.fields)
                case Order():
                    self._carry_out(self, effect.what)
        if not outcome.records:
            self._after_everything_before(outcome, replies)
        elif outcome.part_of is not None:
            self._write_part(outcome, outcome.part_of, replies)
        elif outcome.atomic:
            self._note_tokens(self._collect(outcome.records, replies), outcome)
        else:
            assert not replies, "a step that may be split has nobody waiting"
            assert outcome.token is None, "a step that may be split has nothing to continue with"
            for record in outcome.records:
                self._collect([record], [])

    @staticmethod
    def _note_tokens(waiting: _Waiting, outcome: Outcome) -> None:
        if outcome.token is not None:
            (waiting.patient if outcome.patient else waiting.tokens).append(outcome.token)

    def _after_everything_before(self, outcome: Outcome, replies: list[Reply | Refuse]) -> None:
        waiting = self._open or (self._in_flight[-1] if self._in_flight else None)
        if waiting is not None:
            waiting.replies += replies
            self._note_tokens(waiting, outcome)
            return
        _release(replies, ErrorCode.NONE)
        if outcome.token is not None:
            self.take(self.machine.written(outcome.token, ErrorCode.NONE, self._clock.wall_ms()))

    # Writing

    def _write_part(self, outcome: Outcome, part: TransactionPart, replies: list[Reply | Refuse]) -> None:
        """Records of a transaction: a batch of the producer's, after everything before it."""
        if self._open is not None:
            self._flush(self._open)
        builder = BatchBuilder(
            codec=self._codec, producer_id=part.producer_id, producer_epoch=part.producer_epoch, transactional=True
        )
        waiting = self._open = _Waiting(builder, part.guard)
        now_ms = self._clock.wall_ms()
        for record in outcome.records:
            self.machine.replay(record.key, record.value, part.producer_id)
            builder.append(now_ms, record.key, record.value)
        waiting.replies += replies
        self._note_tokens(waiting, outcome)
        self._flush(waiting)

    def _collect(self, records: list[LogRecord], replies: list[Reply | Refuse]) -> _Waiting:
        size = sum(len(r.key) + len(r.value or b"") + RECORD_OVERHEAD for r in records)
        if self._open is not None and self._open.size + size > self._log.batch_bytes_max:
            self._flush(self._open)
        waiting = self._open
        if waiting is None:
            waiting = self._open = _Waiting(BatchBuilder(codec=self._codec))
            waiting.size = RECORD_OVERHEAD * 2
            self._loop.call_soon(self._flush, waiting)
        assert waiting.builder is not None
        now_ms = self._clock.wall_ms()
        for record in records:
            self.machine.replay(record.key, record.value, -1)
            waiting.builder.append(now_ms, record.key, record.value)
        waiting.size += size
        waiting.replies += replies
        return waiting

    def _flush(self, waiting: _Waiting) -> None:
        if self._open is not waiting:
            return  # Full, and written before its turn ended; or given up with the shard.
        self._open = None
        assert waiting.builder is not None
        batch = waiting.builder.build()
        waiting.builder = None
        try:
            end = self._log.append(batch, waiting.guard)
        except RemoteError as error:
            self.machine.revert()
            log.warning("a coordinator could not write: %s", error, extra={"coordinator": self.name})
            self._finish(waiting, error.code)
            return
        self.machine.keep()
        self._await_commit(waiting, end)

    def _await_commit(self, waiting: _Waiting, end: int) -> None:
        self._in_flight.append(waiting)
        self._log.when_committed(end, lambda code: self._settled(waiting, code))
        if not waiting.done:
            waiting.timeout = self._loop.call_later(self._commit_timeout_s, self._timed_out, waiting)

    def _settled(self, waiting: _Waiting, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            self._finish(waiting, code)
        elif not waiting.done:
            log.warning("a coordinator ends: what it wrote is not committed", extra={"coordinator": self.name})
            self.close()

    def _timed_out(self, waiting: _Waiting) -> None:
        """Whoever waits is told that it takes too long; those who come after still wait for what becomes of it."""
        self._tell(waiting, coordinator_error(ErrorCode.REQUEST_TIMED_OUT))

    def _finish(self, waiting: _Waiting, code: ErrorCode) -> None:
        if waiting.done:
            return
        waiting.done = True
        if waiting.timeout is not None:
            waiting.timeout.cancel()
        while self._in_flight and self._in_flight[0].done:
            self._in_flight.popleft()
        waiting.tokens += waiting.patient
        self._tell(waiting, coordinator_error(code))

    def _tell(self, waiting: _Waiting, told: ErrorCode) -> None:
        replies, waiting.replies = waiting.replies, []
        tokens, waiting.tokens = waiting.tokens, []
        _release(replies, told)
        for token in tokens:
            if self._unavailable is None:
                self.take(self.machine.written(token, told, self._clock.wall_ms()))

    # Timers

    def _arm(self, key: TimerKey, delay_ms: int) -> None:
        due = self._loop.time() + delay_ms / 1000
        timer = self._timers.get(key)
        if timer is None:
            self._timers[key] = _Timer(due, self._loop.call_at(due, self._fired, key))
        elif timer.due <= due:
            # Heartbeats move a session's end a little each time: the timer looks again when it fires.
            timer.due = due
        else:
            timer.handle.cancel()
            timer.due = due
            timer.handle = self._loop.call_at(due, self._fired, key)

    def _fired(self, key: TimerKey) -> None:
        timer = self._timers[key]
        if timer.due > self._loop.time():
            timer.handle = self._loop.call_at(timer.due, self._fired, key)
            return
        del self._timers[key]
        self.take(self.machine.timer_fired(key, self._clock.wall_ms()))

    # Loading and unloading

    async def _load(self) -> None:
        started = self._loop.time()
        start = position = self._log.log_start
        count = 0
        try:
            while position < self._log.log_end:
                data = await self._log.read(position, LOAD_BYTES)
                if not data:
                    break  # compaction has left nothing from here to the end
                before = position
                for batch in iterate_batches(data, 0, len(data)):
                    # A start after a clean stop reads no batches: nobody has looked at this one before.
                    batch.check(len(data))
                    # No checksum covers its offset. Only the log's start may lie inside of a batch.
                    least = position
                    if position == start:
                        least -= int(batch.last_offset_delta)
                    if batch.base_offset < least or batch.next_offset > self._log.log_end:
                        raise RemoteError(
                            ErrorCode.CORRUPT_MESSAGE,
                            f"a batch says {batch.base_offset} where an offset from {position} on must be",
                        )
                    count += await self._replay(batch, position)
                    position = batch.next_offset
                if position == before:
                    raise RemoteError(ErrorCode.CORRUPT_MESSAGE, f"no batch at offset {position}")
        except (RemoteError, StorageError) as error:
            log.error("cannot load a coordinator: %s", error, extra={"coordinator": self.name, "offset": position})
            self._unavailable = ErrorCode.NOT_COORDINATOR
            return
        self.machine.keep()
        self._unavailable = None
        # What was read may not be committed yet: nobody is told of it before it is.
        self._await_commit(_Waiting(None), position)
        if not self.is_serving:
            return
        log.debug(
            "loaded a coordinator",
            extra={
                "coordinator": self.name,
                "epoch": self.epoch,
                "records": count,
                "ms": round((self._loop.time() - started) * 1000),
            },
        )
        self.take(self.machine.loaded(self._clock.wall_ms()))
        told, self._told = self._told, []
        for action in told:
            self.tell(action)

    async def _replay(self, batch: BatchView, position: int) -> int:
        """Replays a batch from `position` on, giving way to others now and then."""
        if batch.is_control:
            marker = parse_end_marker(batch)
            if marker is not None:
                self.machine.replay_marker(marker.producer_id, marker.commit)
            return 0
        producer_id = batch.producer_id if batch.is_transactional else -1
        until = self._loop.time() + SLICE_S
        count = 0
        for record in iterate_records(batch):
            if record.offset < position:
                continue
            if record.key is None:
                raise RemoteError(ErrorCode.CORRUPT_MESSAGE, f"a record without a key at {record.offset}")
            try:
                self.machine.replay(record.key, record.value, producer_id)
            except UnknownRecordError as unknown:
                log.warning("left out %s", unknown, extra={"coordinator": self.name, "offset": record.offset})
            count += 1
            if count % 16 == 0 and self._loop.time() >= until:
                self.machine.keep()
                await _next_turn(self._loop)
                until = self._loop.time() + SLICE_S
        self.machine.keep()
        return count

    def append_marker(self, batch: bytes, transaction_version: int = 0) -> int:
        """Appends the end of a transaction, after what was handled before it, and takes it; the log's end after it."""
        if self._unavailable is not None:
            raise RemoteError(self._unavailable, f"{self.name} does not serve now")
        if self._open is not None:
            self._flush(self._open)
        end = self._log.append(batch, NO_GUARD, transaction_version)
        marker = parse_end_marker(BatchView(batch, 0))
        assert marker is not None, "not the end of a transaction"
        self.machine.replay_marker(marker.producer_id, marker.commit)
        self.machine.keep()
        self._await_commit(_Waiting(None), end)
        return end

    def close(self) -> None:
        """Stops serving: everyone who waits is told to look elsewhere."""
        self._loading.cancel()
        was_serving = self._unavailable is None
        self._unavailable = ErrorCode.NOT_COORDINATOR
        for timer in self._timers.values():
            timer.handle.cancel()
        self._timers.clear()
        waiting = [*self._in_flight, *([] if self._open is None else [self._open])]
        self._open = None
        for each in waiting:
            self._finish(each, ErrorCode.NOT_COORDINATOR)
        if was_serving:
            _release([Refuse(ticket, ErrorCode.NOT_COORDINATOR) for ticket in self.machine.parked()], ErrorCode.NONE)


class CoordinatorRuntime(Generic[M]):
    """The shards of one internal topic."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        topic: str,
        make_machine: Callable[[], M],
        *,
        codec: int = 0,
        commit_timeout_ms: int = 5000,
        carry_out: CarryOut[M] = _nothing_to_carry_out,
    ) -> None:
        """`carry_out` does what the machines order; it must not take long, and leaves by tasks of its own."""
        self.shards: dict[int, Shard[M]] = {}
        self._loop = loop
        self._clock = clock
        self._topic = topic
        self._make_machine = make_machine
        self._codec = codec
        self._commit_timeout_s = commit_timeout_ms / 1000
        self._carry_out = carry_out

    def elected(self, index: int, epoch: int, held: CoordinatorLog) -> None:
        """This broker leads the partition in `epoch`: others may have written before, so it is read anew."""
        shard = self.shards.get(index)
        if shard is not None:
            if shard.epoch > epoch or (shard.epoch == epoch and (shard.is_serving or shard.is_loading)):
                return
            shard.close()
        self.shards[index] = Shard(
            self._loop,
            self._clock,
            f"{self._topic}-{index}",
            epoch,
            held,
            self._make_machine(),
            self._codec,
            self._commit_timeout_s,
            self._carry_out,
        )

    def resigned(self, index: int, epoch: int | None = None) -> None:
        """Another broker leads the partition in `epoch`, or nobody does any more."""
        shard = self.shards.get(index)
        if shard is not None and (epoch is None or shard.epoch < epoch):
            shard.close()
            del self.shards[index]

    def shard(self, index: int) -> Shard[M]:
        shard = self.shards.get(index)
        if shard is None:
            raise RemoteError(ErrorCode.NOT_COORDINATOR, f"{self._topic}-{index} is not led here")
        return shard

    def close(self) -> None:
        for shard in self.shards.values():
            shard.close()
        self.shards.clear()


_TOLD_AS: Final = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def coordinator_error(code: ErrorCode) -> ErrorCode:
    """What a client is told when a coordinator's write fails with `code`."""
    return _TOLD_AS.get(code, code)


def _release(replies: list[Reply | Refuse], error: ErrorCode) -> None:
    for reply in replies:
        ticket = reply.ticket
        assert isinstance(ticket, asyncio.Future)
        if ticket.done():
            continue  # Nobody waits any more.
        if error is not ErrorCode.NONE:
            ticket.set_exception(RemoteError(error))
        elif isinstance(reply, Refuse):
            ticket.set_exception(RemoteError(reply.code))
        else:
            ticket.set_result(reply.response)


async def _next_turn(loop: asyncio.AbstractEventLoop) -> None:
    turn = loop.create_future()
    loop.call_soon(turn.set_result, None)
    await turn
