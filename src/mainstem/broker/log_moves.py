"""Partitions on their way from one log directory to another (KIP-113), while they are served.

A move copies the log a piece at a time, what blocks in a thread, until the copy has caught up and is durable. Then, in
one go on the loop, the last records are copied and the copy takes the log's place: nothing may be appended in between,
and whoever appends does not wait for threads. So everybody waits for the few fsyncs of one partition, a look at each
of its producers, and no more: swaps come one at a time, and after each the loop is everybody's for as long as it took.
At most `num.replica.alter.log.dirs.threads` partitions are copied at a time; the others wait, with an empty copy.

The metadata is told where the partition is before the move, if it does not know, and after it; the copy waits for it to
name one of the two directories, or nobody could tell after a crash which of them to keep. Where the old folder could
not be set aside, the partition is served again when the metadata knows: until then a start would find the old one. A
log is not compacted while it moves.

A move that is interrupted by a stop is begun anew by the next start; one whose disk fails, or whose partition is
deleted, ends.
"""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from mainstem.broker.logfmt import if_unforeseen
from mainstem.broker.partition import Partition
from mainstem.broker.partitions import storage_cause
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.storage.errors import StorageError
from mainstem.storage.flushing import FlushJob
from mainstem.storage.log import Log
from mainstem.storage.log_copy import LogCopy
from mainstem.storage.log_directory import LogDirectory
from mainstem.storage.log_dirs import Move
from mainstem.storage.reading import ReadJob

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

log = logging.getLogger(__name__)

PIECE_BYTES: Final = 1 << 20
SWAP_BYTES: Final = 128 << 10
UNSYNCED_BYTES: Final = 16 << 20
"""How much of a copy the swap may have to sync. Not less: where much is written, more comes while a thread syncs."""
_LOOK_AGAIN_S: Final = 0.1


class LogMoves:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.piece_bytes = PIECE_BYTES
        """How much is copied at a time."""
        config = broker.config
        key = "num.replica.alter.log.dirs.threads"
        copied_at_once = config.get_int(key, at_least=1) if config.get(key) is not None else len(config.log_dirs)
        self._slots = asyncio.Semaphore(copied_at_once)
        self._beginning = asyncio.Lock()
        self._swapping = asyncio.Lock()
        self._running: set[asyncio.Task[None]] = set()
        self._holders: dict[tuple[str, int], Move[Log]] = {}
        """For which move a partition flushes nothing: one that was taken over may end later than the next begins."""
        self._stopping = False

    @property
    def swap_bytes(self) -> int:
        """How much may be left for the swap."""
        return min(self.piece_bytes, SWAP_BYTES)

    def resume(self) -> None:
        """Begins anew what the last run did not finish."""
        self._start(self._resume())

    async def _resume(self) -> None:
        dirs = self._broker.partitions.dirs
        while dirs.interrupted_moves:
            key, directory = next(iter(dirs.interrupted_moves.items()))
            partition = self._broker.partitions.get(*key)
            if partition is not None and directory.offline is None:
                with suppress(RemoteError):  # what failed is offline, and the broker serves the rest (seed 511114)
                    await self._begin(partition, directory, is_resumed=True)
            dirs.interrupted_moves.pop(key, None)

    async def begin(self, partition: Partition, target: LogDirectory) -> None:
        """Moves a partition to that directory; a move to another one ends. RemoteError where it cannot begin."""
        self._broker.partitions.dirs.interrupted_moves.pop((partition.topic, partition.index), None)
        # Whoever asked may not wait for the answer: what was begun is finished all the same, and its error looked at.
        beginning = self._start(self._begin(partition, target))
        beginning.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(beginning)

    async def _begin(self, partition: Partition, target: LogDirectory, is_resumed: bool = False) -> None:
        async with self._beginning:
            partitions = self._broker.partitions
            dirs = partitions.dirs
            key = (partition.topic, partition.index)
            if is_resumed and key not in dirs.interrupted_moves:
                return  # it was asked to go elsewhere since
            if self._stopping:
                raise RemoteError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker stops")
            self._check_there(partition)
            if target.offline is not None:
                raise RemoteError(ErrorCode.KAFKA_STORAGE_ERROR, f"{target.path} is offline: {target.offline}")
            move = dirs.moves.get(key)
            if move is not None:
                if move.directory is target:
                    return
                dirs.cancel_move(*key)
            if dirs.directory_of(*key) is target:
                return
            try:
                job = dirs.begin_copy(*key, target)
                await self._broker.loop.run_in_executor(None, job.run)
                move = dirs.finish_copy(job)
            except StorageError as error:
                if error.path.startswith(target.path + "/"):
                    partitions.directory_failed(target, storage_cause(error))
                else:
                    partitions.log_failed(partition, error)
                raise RemoteError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
            if move is None:
                self._check_there(partition)
                raise RemoteError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition} cannot move to {target.path} any more")
            log.info("moving a partition", extra={"partition": str(partition), "to": target.path})
            begun = move
            task = self._start(self._run(partition, begun))
            task.add_done_callback(lambda done: self._finished(key, begun, done))

    def _check_there(self, partition: Partition) -> None:
        """RemoteError where it has gone, though another topic may have its name by now."""
        if self._broker.partitions.find(partition.topic, partition.index) is not partition:
            raise RemoteError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} was deleted")

    def _start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = self._broker.loop.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def _finished(self, key: tuple[str, int], move: Move[Log], task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and task.exception() is not None:
            log.error(
                "a move of a partition failed: %s",
                task.exception(),
                exc_info=if_unforeseen(task.exception()),
                extra={"partition": f"{key[0]}-{key[1]}"},
            )
            dirs = self._broker.partitions.dirs
            if dirs.moves.get(key) is move:
                # Or nobody could begin it again, and the log would never be compacted any more.
                dirs.cancel_move(*key)

    async def stop(self) -> None:
        """Ends all moves where they are; the next start begins them anew."""
        self._stopping = True
        while self._running:
            await asyncio.wait(list(self._running))

    def _is_on(self, partition: Partition, move: Move[Log]) -> bool:
        """Whether this move was neither ended nor taken over by another."""
        moves = self._broker.partitions.dirs.moves
        return not self._stopping and moves.get((partition.topic, partition.index)) is move

    async def _run(self, partition: Partition, move: Move[Log]) -> None:
        self._broker.assignments.check(partition.topic_id, partition.index)
        async with self._slots:
            try:
                await self._copy(partition, move, LogCopy(partition.log, move.log))
            finally:
                self._release(partition, move)

    def _release(self, partition: Partition, move: Move[Log]) -> None:
        key = (partition.topic, partition.index)
        if self._holders.get(key) is move:
            del self._holders[key]
            partition.release()

    async def _copy(self, partition: Partition, move: Move[Log], copy: LogCopy) -> None:
        is_flushed, unsynced_bytes = False, 0
        while self._is_on(partition, move):
            try:
                if not copy.is_close(self.swap_bytes):
                    unsynced_bytes += await self._copy_piece(partition, move, copy)
                elif not is_flushed or unsynced_bytes > UNSYNCED_BYTES:
                    await self._flush(partition, move)
                    is_flushed, unsynced_bytes = True, 0
                elif not self._is_named(partition, move):
                    await self._look_again()
                else:
                    await self._swap_in_turn(partition, move, copy)
            except StorageError as error:
                self._failed(partition, move, error)

    async def _look_again(self) -> None:
        """Pauses, and lets another be copied meanwhile."""
        self._slots.release()
        try:
            await asyncio.sleep(_LOOK_AGAIN_S)
        finally:
            await self._slots.acquire()

    async def _swap_in_turn(self, partition: Partition, move: Move[Log], copy: LogCopy) -> None:
        """Swaps when no other partition does, unless what it takes is not so any more by then."""
        async with self._swapping:
            if partition.is_busy:
                self._holders[partition.topic, partition.index] = move
                await partition.hold()
            is_ready = copy.is_close(self.swap_bytes) and self._is_named(partition, move)
            if partition.is_busy or not is_ready or not self._is_on(partition, move):
                return
            loop = self._broker.loop
            began = loop.time()
            self._swap(partition, move, copy)
            self._broker.assignments.check(partition.topic_id, partition.index)
            self._release(partition, move)
            await asyncio.sleep(loop.time() - began)

    def _is_named(self, partition: Partition, move: Move[Log]) -> bool:
        """Whether the metadata names the directory that the partition leaves, or the one that it goes to."""
        home = self._broker.partitions.dirs.directory_of(partition.topic, partition.index)
        named = self._broker.assignments.named(partition.topic_id, partition.index)
        return home is not None and named in (home.directory_id, move.directory.directory_id)

    async def _copy_piece(self, partition: Partition, move: Move[Log], copy: LogCopy) -> int:
        """How many bytes were copied."""
        broker = self._broker
        step = copy.begin_read(self.piece_bytes, broker.clock.wall_ms())
        while isinstance(step, ReadJob):
            job = step
            try:
                await broker.loop.run_in_executor(None, job.run)
            except OSError as error:
                job.unpin()
                raise StorageError(partition.log.directory, str(error), cause=error) from error
            if not self._is_on(partition, move):
                job.unpin()
                return 0
            try:
                step = copy.source.finish_read(job)
            except RemoteError:
                return 0  # retention took what was looked for: the next piece begins where the log does now
        try:
            data = await broker.loop.run_in_executor(None, step.read)
        except OSError as error:
            raise StorageError(partition.log.directory, str(error), cause=error) from error
        finally:
            step.release()
        if not self._is_on(partition, move):
            return 0
        for _ in copy.append_in_steps(step, data, broker.clock.wall_ms()):
            await asyncio.sleep(0)
            if not self._is_on(partition, move):
                return 0
        if move.log.has_unflushed_roll:
            await self._flush_copy(partition, move, rolled_only=True)
        return len(data)

    async def _flush(self, partition: Partition, move: Move[Log]) -> None:
        """Makes the bulk of both logs durable in threads, so that the swap has little left to do."""
        partition.make_durable()
        while await self._flush_copy(partition, move):
            pass

    async def _flush_copy(self, partition: Partition, move: Move[Log], rolled_only: bool = False) -> bool:
        """Whether there is more to flush."""
        dirs, turns = self._broker.partitions.dirs, self._broker.partitions.flush_turns

        def begin(files_max: int) -> FlushJob | None:
            if not self._is_on(partition, move):
                return None
            job: FlushJob = move.log.begin_flush(self._broker.clock.wall_ms(), rolled_only, files_max)
            dirs.begin_work(move)
            return job

        job = await turns.begun(begin)
        if job is None:
            return False
        try:
            try:
                await self._broker.loop.run_in_executor(None, job.run, self._broker.clock.breathe)
            finally:
                dirs.end_work(partition.topic, partition.index, move)
            if self._is_on(partition, move):
                move.log.finish_flush(job)
                return job.is_partial
            job.finish()
        finally:
            turns.done(job)
        return False

    def _swap(self, partition: Partition, move: Move[Log], copy: LogCopy) -> None:
        broker = self._broker
        dirs = broker.partitions.dirs
        now_ms = broker.clock.wall_ms()
        copy.complete(self.piece_bytes, now_ms)
        moved = dirs.finish_move(partition.topic, partition.index)
        partition.replace_log(moved.log)
        try:
            moved.log.keep_producers(now_ms)
            dirs.leave(moved, partition.topic, partition.index, now_ms)
        except StorageError as failure:
            broker.partitions.directory_failed(move.directory, storage_cause(failure))
            return
        except OSError as error:
            if broker.assignments.is_wrong(partition.topic_id, partition.index):
                # The old folder is still there, and the metadata names it: a start would take it for the partition.
                # So nothing is taken here before the metadata names the new one; that change begins a new term.
                partition.resign()
            broker.partitions.directory_failed(moved.source, error)
        log.info("moved a partition", extra={"partition": str(partition), "to": move.directory.path})

    def _failed(self, partition: Partition, move: Move[Log], error: StorageError) -> None:
        """The disk that failed goes offline, and the move ends with it."""
        partitions = self._broker.partitions
        if error.path.startswith(move.directory.path + "/"):
            partitions.directory_failed(move.directory, storage_cause(error))
        else:
            partitions.log_failed(partition, error)
        partitions.dirs.cancel_move(partition.topic, partition.index)
