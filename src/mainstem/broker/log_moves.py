"""Partitions on their way from one log directory to another (KIP-113), while they are served.

A move copies the log a piece at a time, what blocks in a thread, until the copy has caught up and is durable. Then, in
one go on the loop, the last records are copied and the copy takes the log's place: producers and consumers wait for a
few fsyncs, no more. The metadata is told where the partition is before the move, if it does not know, and after it;
the copy waits for it to name one of the two directories, or nobody could tell after a crash which of them to keep.
Where the old folder could not be set aside, the partition is served again when the metadata knows: until then a start
would find the old one. A log is not compacted while it moves.

A move that is interrupted by a stop is begun anew by the next start; one whose disk fails, or whose partition is
deleted, ends.
"""

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

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
_LOOK_AGAIN_S: Final = 0.1


class LogMoves:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.piece_bytes = PIECE_BYTES
        """How much is copied at a time, and how much may be left for the swap."""
        self._running: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._stopping = False

    def resume(self) -> None:
        """Begins anew what the last run did not finish."""
        dirs = self._broker.partitions.dirs
        for (topic, index), directory in dirs.interrupted_moves.items():
            partition = self._broker.partitions.get(topic, index)
            if partition is not None and directory.offline is None:
                with suppress(RemoteError):  # what failed is offline, and the broker serves the rest (seed 511114)
                    self.begin(partition, directory)
        dirs.interrupted_moves.clear()

    def begin(self, partition: Partition, target: LogDirectory) -> None:
        """Moves a partition to that directory; a move to another one ends. RemoteError where it cannot begin."""
        dirs = self._broker.partitions.dirs
        key = (partition.topic, partition.index)
        move = dirs.moves.get(key)
        if move is not None:
            if move.directory is target:
                return
            dirs.cancel_move(*key)
        if dirs.directory_of(*key) is target:
            return
        try:
            move = dirs.begin_move(*key, target)
        except StorageError as error:
            if error.path.startswith(target.path + "/"):
                self._broker.partitions.directory_failed(target, storage_cause(error))
            else:
                self._broker.partitions.log_failed(partition, error)
            raise RemoteError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        log.info("moving a partition", extra={"partition": str(partition), "to": target.path})
        begun = move
        task = self._broker.loop.create_task(self._run(partition, begun))
        self._running[key] = task
        task.add_done_callback(lambda done: self._finished(key, begun, done))

    def _finished(self, key: tuple[str, int], move: Move[Log], task: "asyncio.Task[None]") -> None:
        if self._running.get(key) is task:
            del self._running[key]
        if not task.cancelled() and task.exception() is not None:
            log.error("a move of a partition failed: %s", task.exception(), extra={"partition": f"{key[0]}-{key[1]}"})
            dirs = self._broker.partitions.dirs
            if dirs.moves.get(key) is move:
                # Or nobody could begin it again, and the log would never be compacted any more.
                dirs.cancel_move(*key)

    async def stop(self) -> None:
        """Ends all moves where they are; the next start begins them anew."""
        self._stopping = True
        for task in list(self._running.values()):
            await asyncio.wait([task])

    def _is_on(self, partition: Partition, move: Move[Log]) -> bool:
        """Whether this move was neither ended nor taken over by another."""
        moves = self._broker.partitions.dirs.moves
        return not self._stopping and moves.get((partition.topic, partition.index)) is move

    async def _run(self, partition: Partition, move: Move[Log]) -> None:
        self._broker.assignments.check(partition.topic_id, partition.index)
        try:
            await self._copy(partition, move, LogCopy(partition.log, move.log))
        finally:
            partition.release()

    async def _copy(self, partition: Partition, move: Move[Log], copy: LogCopy) -> None:
        is_durable = False
        while self._is_on(partition, move):
            try:
                if not copy.is_close(self.piece_bytes):
                    await self._copy_piece(partition, move, copy)
                elif not is_durable:
                    await self._flush(partition, move)
                    is_durable = True
                elif not self._is_named(partition, move):
                    await asyncio.sleep(_LOOK_AGAIN_S)
                elif partition.is_busy:
                    await partition.hold()
                else:
                    self._swap(partition, move, copy)
                    self._broker.assignments.check(partition.topic_id, partition.index)
                    return
            except StorageError as error:
                self._failed(partition, move, error)

    def _is_named(self, partition: Partition, move: Move[Log]) -> bool:
        """Whether the metadata names the directory that the partition leaves, or the one that it goes to."""
        home = self._broker.partitions.dirs.directory_of(partition.topic, partition.index)
        named = self._broker.assignments.named(partition.topic_id, partition.index)
        return home is not None and named in (home.directory_id, move.directory.directory_id)

    async def _copy_piece(self, partition: Partition, move: Move[Log], copy: LogCopy) -> None:
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
                return
            try:
                step = copy.source.finish_read(job)
            except RemoteError:
                return  # retention took what was looked for: the next piece begins where the log does now
        try:
            data = await broker.loop.run_in_executor(None, step.read)
        except OSError as error:
            raise StorageError(partition.log.directory, str(error), cause=error) from error
        finally:
            step.release()
        if self._is_on(partition, move):
            copy.append(data, broker.clock.wall_ms())
            if move.log.has_unflushed_roll:
                await self._flush_copy(partition, move, rolled_only=True)

    async def _flush(self, partition: Partition, move: Move[Log]) -> None:
        """Makes the bulk of both logs durable in threads, so that the swap has little left to do."""
        partition.make_durable()
        await self._flush_copy(partition, move)

    async def _flush_copy(self, partition: Partition, move: Move[Log], rolled_only: bool = False) -> None:
        job: FlushJob = move.log.begin_flush(self._broker.clock.wall_ms(), rolled_only)
        await self._broker.loop.run_in_executor(None, job.run, self._broker.clock.breathe)
        if self._is_on(partition, move):
            move.log.finish_flush(job)
        else:
            job.finish()

    def _swap(self, partition: Partition, move: Move[Log], copy: LogCopy) -> None:
        broker = self._broker
        dirs = broker.partitions.dirs
        now_ms = broker.clock.wall_ms()
        copy.complete(self.piece_bytes, now_ms)
        moved = dirs.finish_move(partition.topic, partition.index, now_ms)
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
