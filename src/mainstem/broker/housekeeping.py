"""What a broker does by itself, now and then: retention, removals, checkpoints, overdue flushes, forgotten producers.

Each job runs by Kafka's own interval. What was deleted goes from the disk a few seconds after its time has come
(`file.delete.delay.ms`, and `log.segment.delete.delay.ms` for whole partitions), however seldom retention looks. What
blocks runs in a thread; the logs themselves are touched on the loop, a few at a time. A job that is still running when
its time comes again is left alone.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from mainstem.broker.clock import Clock
from mainstem.broker.config import BrokerConfig
from mainstem.broker.drivers.quorum import MetadataQuorum
from mainstem.broker.partitions import Partitions
from mainstem.protocol.errors import RemoteError
from mainstem.storage.checkpoint import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from mainstem.storage.errors import StorageError

log = logging.getLogger(__name__)

_FIRST_DELAY_MS = 30_000
_REMOVALS_MS = 5_000
_RECOVERED = "recovered indexes"
_RECOVERED_MS = 60_000
_SLICE = 64
"""How many partitions a job looks at before others may run."""
_PRODUCERS_AT_ONCE = 5000
"""How many producers of one partition it does."""


class Housekeeping:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        config: BrokerConfig,
        partitions: Partitions,
        metadata: MetadataQuorum,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._partitions = partitions
        self._metadata = metadata
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._written: dict[str, object] = {}
        get = config.get_int
        self._jobs: dict[str, tuple[int, Callable[[], Coroutine[Any, Any, None]]]] = {
            "retention": (get("log.retention.check.interval.ms", at_least=1), self._retain),
            "removals": (min(get("log.retention.check.interval.ms"), _REMOVALS_MS), self._remove),
            "recovery points": (get("log.flush.offset.checkpoint.interval.ms"), self._checkpoint(RECOVERY_POINTS)),
            "high watermarks": (
                get("replica.high.watermark.checkpoint.interval.ms"),
                self._checkpoint(HIGH_WATERMARKS),
            ),
            "log starts": (get("log.flush.start.offset.checkpoint.interval.ms"), self._checkpoint(LOG_STARTS)),
            "flush": (min(get("log.flush.scheduler.interval.ms"), 1000), self._flush),
            _RECOVERED: (_RECOVERED_MS, self._sync_recovered),
            "producers": (get("producer.id.expiration.check.interval.ms", at_least=1), self._expire_producers),
        }

    def start(self) -> None:
        for name, (interval_ms, _) in self._jobs.items():
            self._schedule(name, 0 if name == _RECOVERED else min(_FIRST_DELAY_MS, interval_ms))

    async def stop(self) -> None:
        """No job begins any more; those that run are waited for."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for task in list(self._running.values()):
            await task

    def _schedule(self, name: str, delay_ms: int) -> None:
        self._timers[name] = self._loop.call_later(delay_ms / 1000, self._begin, name)

    def _begin(self, name: str) -> None:
        task = self._loop.create_task(self._run(name))
        self._running[name] = task

    async def _run(self, name: str) -> None:
        interval_ms, job = self._jobs[name]
        try:
            await job()
        except Exception:
            log.exception("a periodic job failed", extra={"job": name})
        self._running.pop(name, None)
        if name in self._timers:
            self._schedule(name, interval_ms)

    # The jobs

    async def _retain(self) -> None:
        """Takes old segments out of the logs."""
        for count, partition in enumerate(self._partitions):
            try:
                deleted = await partition.retire_segments()
            except RemoteError:
                continue  # its directory is offline now
            if deleted:
                log.info(
                    "deleted old segments",
                    extra={"partition": str(partition), "segments": deleted, "log_start": partition.log.log_start},
                )
            if count % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)

    async def _remove(self) -> None:
        """Removes what was taken out of logs, of the metadata too, and deleted partitions, long enough ago."""
        for count, partition in enumerate(self._partitions):
            for job in partition.log.due_removals(self._clock.wall_ms()):
                try:
                    await self._loop.run_in_executor(None, job.run)
                except OSError as error:
                    failure = StorageError(partition.log.directory, str(error), cause=error)
                    self._partitions.log_failed(partition, failure)
                    break
            if count % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
        await self._metadata.remove_files()
        for removal in self._partitions.dirs.take_removals(self._clock.wall_ms()):
            try:
                await self._loop.run_in_executor(None, removal.run)
            except OSError as error:
                self._partitions.directory_failed(removal.directory, error)

    def _checkpoint(self, name: str) -> Callable[[], Coroutine[Any, Any, None]]:
        async def write() -> None:
            for collected in self._partitions.dirs.collect(name):
                if collected.directory.checkpoints[name] == collected.offsets:
                    continue
                try:
                    await self._loop.run_in_executor(None, collected.write)
                except OSError as error:
                    self._partitions.directory_failed(collected.directory, error)

        return write

    async def _flush(self) -> None:
        for count, partition in enumerate(self._partitions):
            partition.flush_if_due()
            if count % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)

    async def _sync_recovered(self) -> None:
        """After an unclean stop, one log at a time: there may be ten thousand, and nobody waits for it."""
        for count, partition in enumerate(self._partitions):
            await partition.sync_recovered()
            if count % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)

    async def _expire_producers(self) -> None:
        """A partition may have had a million, all of them silent since the same day."""
        for count, partition in enumerate(self._partitions):
            partition.log.expire_verifications(self._clock.wall_ms())
            ids = partition.log.producers.states.ids()
            for at in range(0, len(ids), _PRODUCERS_AT_ONCE):
                if at > 0:
                    await asyncio.sleep(0)
                partition.log.expire_producers(self._clock.wall_ms(), ids[at : at + _PRODUCERS_AT_ONCE])
            if count % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
