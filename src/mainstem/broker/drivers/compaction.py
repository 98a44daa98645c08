"""Compacts logs in the background: the dirtiest first, one at a time, without holding up who produces or fetches.

A cleaning is made of short steps. What it does to the log (pinning files, swapping a finished group in) happens on the
loop; reading, filtering and syncing happen in a thread, a step at a time, so that requests come in between. How far a
log was cleaned is written to the directory's `cleaner-offset-checkpoint` after each cleaning.

`log.cleaner.io.max.bytes.per.second` counts what is read and what is written, of all cleanings together, as in Kafka.
"""

import asyncio
import logging

from mainstem.broker.clock import Clock
from mainstem.broker.config import BrokerConfig
from mainstem.broker.config_view import ConfigView
from mainstem.broker.partitions import Partitions
from mainstem.core.controller.image import ClusterImage, ImageDelta
from mainstem.storage.checkpoint import CLEANER_OFFSETS, RECOVERY_POINTS, TopicPartition
from mainstem.storage.cleaner import Candidate, Cleaner
from mainstem.storage.cleaning import Cleaning
from mainstem.storage.cleaning_room import NoRoom
from mainstem.storage.errors import StorageError
from mainstem.storage.log_dirs import Collected

log = logging.getLogger(__name__)

_SLICE = 64
"""How many logs are looked at before others may run."""
_SEGMENTS_AT_ONCE = 16
"""How many segments are opened before they may."""


_RATE = "log.cleaner.io.max.bytes.per.second"
_WARN_AGAIN_S = 600.0
_WAIT_MIN_S = 0.01
"""Shorter waits are put off until they add up."""


class Throttle:
    """How long to wait so that on average no more than so many bytes a second are used."""

    def __init__(self, bytes_per_s: float) -> None:
        self.bytes_per_s = bytes_per_s
        self._paid_s = 0.0
        """Until when what was used so far lasts."""

    def used(self, count: int, now_s: float) -> float:
        """Takes note of bytes that were used just now; how long to wait before the next."""
        self._paid_s = max(self._paid_s, now_s) + count / max(self.bytes_per_s, 1.0)
        return self._paid_s - now_s


class Compaction:
    """`start` once the logs are open, `stop` before they are closed."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, config: BrokerConfig, partitions: Partitions
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._partitions = partitions
        self._enabled = config.get_bool("log.cleaner.enable")
        self.backoff_s = config.get_int("log.cleaner.backoff.ms", at_least=0) / 1000
        self._buffer_bytes = config.get_int("log.cleaner.dedupe.buffer.size", at_least=1 << 10)
        self._load_factor = config.get_float("log.cleaner.io.buffer.load.factor")
        self._throttle = Throttle(config.get_float(_RATE))
        self.cleaner: Cleaner | None = None
        self._running: asyncio.Task[None] | None = None
        self._pause: asyncio.Future[None] | None = None
        self._stopping = False
        self._warned_s: dict[TopicPartition, float] = {}
        """When it was last said of a log that there is no room to compact it."""

    def start(self) -> None:
        if not self._enabled:
            return
        offsets: dict[TopicPartition, int] = {}
        for directory in self._partitions.dirs.directories:
            # A file may tell of partitions that were deleted there, and of whose names there are others elsewhere.
            known = directory.checkpoints[CLEANER_OFFSETS]
            offsets |= {key: known[key] for key in directory.partitions if key in known}
        self.cleaner = Cleaner(self._partitions.open_files, offsets, self._buffer_bytes, self._load_factor)
        self._running = self._loop.create_task(self._run())

    async def stop(self) -> None:
        """Returns when no cleaning touches a log any more; one under way ends without a trace."""
        self._stopping = True
        self._end_pause()
        if self._running is not None:
            await self._running

    def follow(self, image: ClusterImage, delta: ImageDelta) -> None:
        """Forgets how far logs were cleaned that are gone: others may come under their names."""
        if self.cleaner is not None:
            for topic in delta.removed_topics.values():
                for index in topic.partitions:
                    self.cleaner.forget((topic.name, index))
                    self._warned_s.pop((topic.name, index), None)

    def take_settings(self, view: ConfigView) -> None:
        """What was set while running. A cleaning under way goes on as it began, at the new rate."""
        self._throttle.bytes_per_s = view.get_float(_RATE)
        self.backoff_s = view.get_int("log.cleaner.backoff.ms") / 1000
        self._buffer_bytes = view.get_int("log.cleaner.dedupe.buffer.size")
        self._load_factor = view.get_float("log.cleaner.io.buffer.load.factor")
        if self.cleaner is not None:
            self.cleaner.buffer_bytes = self._buffer_bytes
            self.cleaner.load_factor = self._load_factor
        self._end_pause()

    async def _run(self) -> None:
        assert self.cleaner is not None
        while not self._stopping:
            try:
                candidate = await self._choose(self.cleaner)
                if candidate is not None and await self._clean(self.cleaner, candidate):
                    continue
            except Exception:
                log.exception("compaction failed")
            await self._rest(self.backoff_s)

    def _end_pause(self) -> None:
        if self._pause is not None and not self._pause.done():
            self._pause.set_result(None)

    async def _rest(self, seconds: float) -> None:
        """Returns after a time, or when the end has come."""
        pause: asyncio.Future[None] = self._loop.create_future()
        self._pause = pause
        timer = self._loop.call_later(seconds, lambda: None if pause.done() else pause.set_result(None))
        await pause
        timer.cancel()

    async def _choose(self, cleaner: Cleaner) -> Candidate | None:
        best: Candidate | None = None
        for count, partition in enumerate(self._partitions):
            key = (partition.topic, partition.index)
            before = len(cleaner.uncleanable)
            while not cleaner.learn_ages(key, partition.log, _SEGMENTS_AT_ONCE):
                await asyncio.sleep(0)
            if key in self._partitions.dirs.moves:
                # As in Kafka: the copy may have older values already when the tombstone goes that it has not come to.
                continue
            found = cleaner.examine(key, partition.log, self._clock.wall_ms())
            if len(cleaner.uncleanable) > before:
                log.error(
                    "a log cannot be compacted: %s", cleaner.uncleanable[key], extra={"partition": str(partition)}
                )
            if partition.log.failure is not None:
                self._partitions.log_failed(partition, partition.log.failure)
            if found is not None and (best is None or found.cleanable.ratio > best.cleanable.ratio):
                best = found
            if count % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
        return best

    async def _clean(self, cleaner: Cleaner, candidate: Candidate) -> bool:
        """Whether it came to an end; if not, the log is not to be tried again at once."""
        started = self._loop.time()
        topic, index = candidate.partition
        cleaning = cleaner.begin(candidate, self._clock.wall_ms())
        try:
            await self._write_recovery_points(topic, index)
            while self._may_go_on(topic, index) and cleaning.turn(self._clock.wall_ms()):
                await self._step(topic, index, cleaning)
        except StorageError as error:
            partition = self._partitions.get(topic, index)
            if partition is not None:
                self._partitions.log_failed(partition, error)
        finally:
            cleaned = cleaner.end(candidate.partition)
        if cleaning.failure:
            log.error("a log cannot be compacted: %s", cleaning.failure, extra={"partition": f"{topic}-{index}"})
        if cleaning.no_room is not None:
            self._warn(candidate.partition, cleaning.no_room)
        if cleaned:
            self._warned_s.pop(candidate.partition, None)
            stats = cleaning.stats
            log.info(
                "compacted a log",
                extra={
                    "partition": f"{topic}-{index}",
                    "records_read": stats.records_read,
                    "records_kept": stats.records_kept,
                    "bytes_read": stats.bytes_read,
                    "bytes_written": stats.bytes_written,
                    "ms": round((self._loop.time() - started) * 1000),
                },
            )
            await self._checkpoint(cleaner, candidate.partition)
        return cleaned

    def _warn(self, partition: TopicPartition, no_room: NoRoom) -> None:
        """Once in a while: whoever fills and empties the disk meanwhile is not to fill what we say, too."""
        now_s = self._loop.time()
        if now_s - self._warned_s.get(partition, -_WARN_AGAIN_S) >= _WARN_AGAIN_S:
            self._warned_s[partition] = now_s
            log.warning(
                "a log is not compacted until there is room for its copy",
                extra={
                    "partition": f"{partition[0]}-{partition[1]}",
                    "needed_bytes": no_room.needed_bytes,
                    "usable_bytes": no_room.usable_bytes,
                },
            )

    def _may_go_on(self, topic: str, index: int) -> bool:
        """Whether the next turn may come. A copy that was begun meanwhile has what this cleaning would take away, and
        would pass for cleaned when it takes the log's place."""
        return not self._stopping and (topic, index) not in self._partitions.dirs.moves

    async def _step(self, topic: str, index: int, cleaning: Cleaning) -> None:
        """Steps until the next turn."""
        if cleaning.is_swapping:
            partition = self._partitions.get(topic, index)
            if partition is not None and partition.log is cleaning.log:
                await partition.restructure(lambda: cleaning.step(breathe=self._clock.breathe))
            return
        more = True
        while more and not self._stopping:
            before = cleaning.stats.io_bytes
            more = await self._loop.run_in_executor(None, cleaning.step)
            wait_s = self._throttle.used(cleaning.stats.io_bytes - before, self._loop.time())
            if wait_s > _WAIT_MIN_S and not self._stopping:
                await self._rest(wait_s)

    async def _write_recovery_points(self, topic: str, index: int) -> None:
        """Compaction leaves gaps, and a gap past the recovery point that a crash finds on disk means a loss.

        What was collected may be out of date before it is written, as when a topic is created meanwhile. Then nothing
        is written, and it is collected again.
        """
        dirs, key = self._partitions.dirs, (topic, index)
        directory = dirs.directory_of(topic, index)
        wanted: int | None = None
        while directory is not None:
            collected = next((each for each in dirs.collect(RECOVERY_POINTS) if each.directory is directory), None)
            if collected is None or key not in collected.offsets:
                return  # offline, or gone
            # A truncation may have lowered it; that it has grown since matters to the next cleaning only.
            now = collected.offsets[key]
            wanted = now if wanted is None else min(wanted, now)
            if directory.checkpoints[RECOVERY_POINTS].get(key, -1) >= wanted:
                return
            try:
                await self._loop.run_in_executor(None, collected.write)
            except OSError as error:
                self._partitions.directory_failed(directory, error)
                return

    async def _checkpoint(self, cleaner: Cleaner, partition: TopicPartition) -> None:
        directory = self._partitions.dirs.directory_of(*partition)
        if directory is None or directory.offline is not None:
            return
        offsets = cleaner.checkpoint(directory.partitions)
        collected = Collected(directory, CLEANER_OFFSETS, offsets, directory.next_number())
        try:
            await self._loop.run_in_executor(None, collected.write)
        except OSError as error:
            self._partitions.directory_failed(directory, error)
