"""The partitions this broker has, kept as the committed metadata says.

- A change of metadata arrives as an `ImageDelta`; partitions are created, led, reconfigured and deleted from it.
- A folder that the metadata does not know, or knows under another topic id, is set aside as stray before anything
  of the same name is created (KAFKA-12257).
- A directory that fails, whoever notices it, takes its partitions offline: they answer KAFKA_STORAGE_ERROR, and
  `on_directory_failure` is told.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from random import Random

from mainstem.broker.clock import Clock
from mainstem.broker.config_view import ConfigView
from mainstem.broker.flush_turns import FlushTurns
from mainstem.broker.partition import Partition
from mainstem.core.controller.image import BROKER, TOPIC, ClusterImage, ImageDelta
from mainstem.core.controller.states import MIGRATING_DIRECTORY, PartitionState, TopicState
from mainstem.core.log.config import LogConfig, parse_log_config, server_defaults
from mainstem.core.log.epochs import UNDEFINED_EPOCH
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.storage.checkpoint import RECOVERY_POINTS, MalformedFileError
from mainstem.storage.errors import StorageError
from mainstem.storage.flushing import FlushJob
from mainstem.storage.fs import FileSystem
from mainstem.storage.log import Log
from mainstem.storage.log_directory import LogDirectory, LogPlace
from mainstem.storage.log_dirs import LogDirs
from mainstem.storage.open_files import OpenFiles
from mainstem.storage.partition_jobs import NewPartition
from mainstem.storage.recovery import open_log

log = logging.getLogger(__name__)

Key = tuple[str, int]

_APPLIED_TOGETHER = 64
"""How many partitions a change of metadata brings in line before others may run."""
_SLICE = 8
"""How many logs are opened before others may run."""

_BREATH_S = 0.05
"""How long logs are opened for before others may run, though they be few: one may have to be recovered."""

_DELETED_TOGETHER = 256

_FLUSHED_TOGETHER = 64
"""How many logs are flushed at a time at the stop."""

_NAMED_MAX = 3

JUDGES = 4
"""How many batches are opened at a time on their way in: each may take twice the 32 MB that it may expand to."""


def _named(keys: list[Key]) -> str:
    """The first few, for a log line: one line tells of thousands."""
    names = [f"{topic}-{index}" for topic, index in keys[:_NAMED_MAX]]
    return ",".join(names) + (",…" if len(keys) > _NAMED_MAX else "")


class StartInterruptedError(Exception):
    """A start was told to end before all logs were open."""


class Partitions:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        fs: FileSystem,
        clock: Clock,
        rng: Random,
        *,
        node_id: int,
        cluster_id: str,
        log_dirs: tuple[str, ...],
        settings: Mapping[str, str],
        open_files_max: int,
        producer_expiration_ms: int,
        on_directory_failure: Callable[[LogDirectory], None] = lambda directory: None,
    ) -> None:
        self.image = ClusterImage()
        """The metadata that the partitions have been brought in line with."""
        self._loop = loop
        self._clock = clock
        self._rng = rng
        self._node_id = node_id
        self.open_files = OpenFiles(fs, open_files_max)
        self.flush_turns = FlushTurns(loop, self.open_files)
        self.judges = ThreadPoolExecutor(JUDGES, thread_name_prefix="judge")
        self._settings = settings
        self._log_dirs = log_dirs
        self._defaults = server_defaults(settings)
        self._configs: dict[str, LogConfig] = {}
        """One for all partitions of a topic; it goes when one of its settings changes, or the topic does."""
        self._producer_expiration_ms = producer_expiration_ms
        self._verifies_transactions = True
        self._on_directory_failure = on_directory_failure
        self._is_interrupted = False
        self.by_place: dict[Key, Partition] = {}
        """For who looks often and changes nothing; `find` says why one is not here."""
        self._by_id: dict[tuple[bytes, int], Partition] = {}
        self.dirs: LogDirs[Log] = LogDirs(
            fs, rng, log_dirs, cluster_id, node_id, self._open, on_offline=self._went_offline
        )

    def __len__(self) -> int:
        return len(self.by_place)

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self.by_place.values()))

    # Finding

    def get(self, topic: str, index: int) -> Partition | None:
        return self.by_place.get((topic, index))

    def get_by_id(self, topic_id: bytes, index: int) -> Partition | None:
        return self._by_id.get((topic_id, index))

    def find(self, topic: str, index: int) -> Partition:
        """The partition, or a RemoteError that says why it is not here."""
        partition = self.by_place.get((topic, index))
        if partition is None:
            raise self._why_missing(self.image.topics.get(topic), index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partition

    def find_by_id(self, topic_id: bytes, index: int) -> Partition:
        partition = self._by_id.get((topic_id, index))
        if partition is None:
            raise self._why_missing(self.image.topics_by_id.get(topic_id), index, ErrorCode.UNKNOWN_TOPIC_ID)
        return partition

    def _why_missing(self, topic: TopicState | None, index: int, unknown: ErrorCode) -> RemoteError:
        if topic is None:
            return RemoteError(unknown, "there is no such topic")
        state = topic.partitions.get(index)
        if state is None:
            return RemoteError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name} has no partition {index}")
        if self._node_id not in state.replicas:
            return RemoteError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic.name}-{index} is on another broker")
        if (topic.name, index) in self.dirs.failed_logs or self.dirs.any_offline:
            return RemoteError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {topic.name}-{index} is offline")
        return RemoteError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic.name}-{index} is being opened")

    # Settings

    def log_config(self, topic: str) -> LogConfig:
        config = self._configs.get(topic)
        if config is None:
            config = self._configs[topic] = parse_log_config(self.image.config(TOPIC, topic), self._defaults)
        return config

    def _take_broker_settings(self) -> None:
        """What was set for this broker while running gives topics their defaults, as its file does."""
        view = ConfigView(self._settings, self.image, self._node_id)
        cordoned = [part.strip() for part in (view.get("cordoned.log.dirs") or "").split(",") if part.strip()]
        self.dirs.cordoned = frozenset(self._log_dirs if cordoned == ["*"] else cordoned)
        try:
            self._defaults = server_defaults(view.settings)
            self.dirs.delete_delay_ms = self._defaults.file_delete_delay_ms
            verifies = view.settings.get("transaction.partition.verification.enable", "true")
            self._verifies_transactions = verifies == "true"
            self._producer_expiration_ms = view.get_int("producer.id.expiration.ms")
        except ValueError as error:
            log.error("the settings of logs stay as they are: %s", error)
        self._configs.clear()

    def _open(self, place: LogPlace) -> Log:
        opened = open_log(
            self.open_files,
            place.folder,
            self.log_config(place.topic),
            self._clock.wall_ms(),
            place.log_start,
            place.recovery_point,
            place.high_watermark,
            place.clean,
            self._producer_expiration_ms,
            self._rng.randrange,
            place.gaps_until,
            place.write_recovery_point,
        )
        if opened.cut is not None:
            name = f"{place.topic}-{place.partition}"
            log.warning("recovery has cut a log", extra={"partition": name, **asdict(opened.cut)})
        if opened.log_end < place.high_watermark:
            # After a power cut this is what was acknowledged from memory; after anything else it should not be.
            log.error(
                "a log ends before its last known high watermark: records were lost",
                extra={
                    "partition": f"{place.topic}-{place.partition}",
                    "log_end": opened.log_end,
                    "high_watermark": place.high_watermark,
                },
            )
        opened.verifies_transactions = self._verifies_transactions
        return opened

    # Start

    async def load(self, image: ClusterImage) -> None:
        """Opens every log that is there, in slices, and sets aside what the metadata does not know."""
        self.image = image
        self._take_broker_settings()
        opening = self.dirs.load(self._clock.wall_ms(), self._assigned_directory, self._owner)
        breathed = self._loop.time()
        for count, _ in enumerate(opening):
            if count % 16 == 15 or self._loop.time() - breathed > _BREATH_S:
                await asyncio.sleep(0)
                breathed = self._loop.time()
            self._check_interrupted()
        strays: list[Key] = []
        for topic, index in list(self.dirs.logs):
            if (topic, index) not in self.dirs.logs:
                continue  # The directory has failed since.
            state = image.topics.get(topic)
            if state is None or index not in state.partitions or not self._is_of_topic(topic, index, state.topic_id):
                try:
                    self.dirs.set_stray(topic, index)
                except StorageError:
                    continue  # its directory is offline now, and goes alone
                strays.append((topic, index))
        if strays:
            log.warning(
                "set aside folders that the metadata does not know",
                extra={"count": len(strays), "partitions": _named(strays)},
            )
        for (topic, index), reason in self.dirs.failed_logs.items():
            log.error("a log is offline: %s", reason, extra={"partition": f"{topic}-{index}"})
        if not self.dirs.all_closed_cleanly:
            await self._settle_compacted()

    def interrupt(self) -> None:
        """Has `load` end after the log that it is at, with StartInterruptedError: hours of recovery may be left."""
        self._is_interrupted = True

    def _check_interrupted(self) -> None:
        if self._is_interrupted:
            raise StartInterruptedError

    def _is_of_topic(self, topic: str, index: int, topic_id: bytes) -> bool:
        """True also where that cannot be read: what may be the partition's own goes offline, and is not set aside."""
        directory = self.dirs.directory_of(topic, index)
        assert directory is not None, f"{topic}-{index} has a log and no directory"
        try:
            return self.dirs.topic_id(topic, index) == topic_id
        except MalformedFileError as malformed:
            self.dirs.fail_log(topic, index, f"{malformed.filename}: {malformed.strerror}")
        except OSError as error:
            self.dirs.take_offline(directory, error)
        return True

    async def _settle_compacted(self) -> None:
        """After an unclean stop, makes compacted logs durable and writes that down before they are served.

        Of a transaction that has ended nobody knows any more whether its marker is durable, and compaction waits for
        that. And gaps that recovery has let be lie below a recovery point from then on, which the next one must find
        written down: what this one could tell by that they are no loss, it may have taken away.
        """
        for partition, opened in list(self.dirs.logs.items()):
            self._check_interrupted()
            # The failure of one log closes the others of its directory.
            if opened.config.compact and not opened.is_closed and opened.recovery_point < opened.log_end:
                try:
                    while await self._flush(opened):
                        pass
                except StorageError as error:
                    directory = self.dirs.directory_of(*partition)
                    if directory is not None:
                        self.directory_failed(directory, storage_cause(error))
        for collected in self.dirs.collect(RECOVERY_POINTS):
            try:
                await self._loop.run_in_executor(None, collected.write)
            except OSError as cause:
                self.directory_failed(collected.directory, cause)

    def _assigned_directory(self, topic: str, index: int) -> bytes | None:
        state = self.image.partition(topic, index)
        if state is None or self._node_id not in state.replicas:
            return None
        named = state.directory_of(self._node_id)
        return None if named == MIGRATING_DIRECTORY else named  # before KIP-858 none has a name: that says nothing

    def _owner(self, topic: str, index: int) -> bytes | None:
        state = self.image.topics.get(topic)
        return state.topic_id if state is not None and index in state.partitions else None

    # Following the metadata

    async def apply(self, image: ClusterImage, delta: ImageDelta) -> None:
        """Brings the partitions in line with `image`, of which `delta` says what changed."""
        self.image = image
        changed = self._take_settings(delta)
        await self._delete(self._no_longer_here(delta))
        here: list[tuple[TopicState, int]] = []
        for topic_id, index in delta.partitions:
            found = image.topics_by_id.get(topic_id)
            if found is not None and index in found.partitions and self._node_id in found.partitions[index].replicas:
                here.append((found, index))
        await self._create(here)
        for count, (topic, index) in enumerate(here):
            self._apply_partition(topic, index, topic.partitions[index])
            if count % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
        for name in changed:
            self._reconfigure(name)

    def _take_settings(self, delta: ImageDelta) -> list[str]:
        """Forgets the settings that are others now, before a log is opened by them; the topics that have others."""
        if (BROKER, "") in delta.configs or (BROKER, str(self._node_id)) in delta.configs:
            self._take_broker_settings()
            return list(self.image.topics)
        changed = [name for resource_type, name in delta.configs if resource_type == TOPIC]
        for name in [*changed, *(topic.name for topic in delta.removed_topics.values())]:
            self._configs.pop(name, None)
        return changed

    def _apply_partition(self, topic: TopicState, index: int, state: PartitionState) -> None:
        key = (topic.name, index)
        partition = self.by_place.get(key)
        if partition is None:
            opened = self.dirs.logs.get(key)
            if opened is None:
                return
            partition = Partition(
                self._loop,
                self._clock,
                topic.name,
                topic.topic_id,
                index,
                opened,
                self.log_failed,
                self.judges,
                self.flush_turns,
            )
            self.by_place[key] = partition
            self._by_id[topic.topic_id, index] = partition
        if state.leader != self._node_id:
            if partition.leader is not None:
                partition.resign()
        elif partition.leader is None or partition.leader.epoch != state.leader_epoch:
            partition.lead(
                self._node_id,
                state.leader_epoch,
                state.replicas,
                state.isr,
                self.log_config(topic.name).min_insync_replicas,
            )

    async def _create(self, here: list[tuple[TopicState, int]]) -> None:
        """Makes the logs that should be here and are nowhere, all together; what blocks is done in threads."""
        wanted: list[NewPartition] = []
        refused: list[Key] = []
        for topic, index in here:
            if self.dirs.directory_of(topic.name, index) is None:
                state = topic.partitions[index]
                try:
                    self.dirs.check_may_create(topic.name, index, state.partition_epoch == 0)
                except StorageError:
                    refused.append((topic.name, index))
                else:
                    leader_epoch = state.leader_epoch if state.leader == self._node_id else UNDEFINED_EPOCH
                    wanted.append(NewPartition(topic.name, index, topic.topic_id, leader_epoch))
        if refused:
            log.error(
                "partitions may be in a log directory that is offline, and are not created elsewhere",
                extra={"count": len(refused), "partitions": _named(refused)},
            )
        created = [new.key for new in wanted]
        while wanted:
            try:
                jobs = self.dirs.begin_create(wanted)
            except StorageError as error:
                names = _named([new.key for new in wanted])
                log.error("cannot keep partitions: %s", error, extra={"count": len(wanted), "partitions": names})
                return
            wanted = []
            running = [(job, self._loop.run_in_executor(None, job.run)) for job in jobs]
            for creation, done in running:
                try:
                    await done
                except OSError as cause:
                    self.directory_failed(creation.directory, cause)
                for count, new in enumerate(creation.partitions):
                    if not self.dirs.finish_create(creation, new):
                        wanted.append(new)
                    if count % _SLICE == _SLICE - 1:
                        await asyncio.sleep(0)
        if created:
            log.info("created partitions", extra={"count": len(created), "partitions": _named(created)})

    def _no_longer_here(self, delta: ImageDelta) -> list[tuple[str, bytes, int]]:
        gone = [
            (topic.name, topic.topic_id, index) for topic in delta.removed_topics.values() for index in topic.partitions
        ]
        for topic_id, index in delta.partitions:
            found = self.image.topics_by_id.get(topic_id)
            state = None if found is None else found.partitions.get(index)
            if found is None or state is None or self._node_id in state.replicas:
                continue
            if (found.name, index) in self.by_place:
                gone.append((found.name, topic_id, index))
        return gone

    async def _delete(self, gone: list[tuple[str, bytes, int]]) -> None:
        """Takes partitions out of sight, all together; what blocks is done in threads."""
        keys: list[Key] = []
        leaving: list[Partition] = []
        for topic, topic_id, index in gone:
            partition = self.by_place.pop((topic, index), None)
            self._by_id.pop((topic_id, index), None)
            if partition is not None:
                partition.resign(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                leaving.append(partition)
        # A thread that writes or renames by path must not meet the folder of another topic under this name.
        for partition in leaving:
            await partition.settle()
        for topic, _, index in gone:
            if self.dirs.directory_of(topic, index) is not None:
                keys.append((topic, index))
        for at in range(0, len(keys), _DELETED_TOGETHER):
            for deletion in self.dirs.begin_delete(keys[at : at + _DELETED_TOGETHER]):
                try:
                    await self._loop.run_in_executor(None, deletion.run)
                except OSError as error:
                    self.directory_failed(deletion.directory, error)
                else:
                    self.dirs.finish_delete(deletion, self._clock.wall_ms())
        if keys:
            log.info("deleted partitions", extra={"count": len(keys), "partitions": _named(keys)})

    def _reconfigure(self, topic: str) -> None:
        state = self.image.topics.get(topic)
        if state is None:
            return
        config = self.log_config(topic)
        for index in state.partitions:
            partition = self.by_place.get((topic, index))
            if partition is not None:
                partition.log.config = config
                partition.log.verifies_transactions = self._verifies_transactions
                partition.log.producers.expiration_ms = self._producer_expiration_ms
                partition.config_changed(config.min_insync_replicas)

    # Failing

    def log_failed(self, partition: Partition, error: StorageError) -> None:
        """The disk under a partition failed: its whole directory goes (D5).

        Where the disk did what it was asked, and the bytes are not what was written, or we made a mistake, that is
        nobody's concern but the partition's (D4): it goes offline alone, as one does that a start finds so.
        """
        directory = self.dirs.directory_of(partition.topic, partition.index)
        if directory is None or directory.offline is not None:
            return
        if error.cause is not None:
            self.directory_failed(directory, error.cause)
        elif (partition.topic, partition.index) in self.dirs.logs:
            self._log_damaged(partition, error)

    def _log_damaged(self, partition: Partition, error: StorageError) -> None:
        log.error("a log is offline: %s", error, exc_info=error.mistake, extra={"partition": str(partition)})
        self.by_place.pop((partition.topic, partition.index), None)
        self._by_id.pop((partition.topic_id, partition.index), None)
        self.dirs.fail_log(partition.topic, partition.index, str(error))
        partition.resign(ErrorCode.KAFKA_STORAGE_ERROR)

    def directory_failed(self, directory: LogDirectory, error: OSError) -> None:
        """Nothing more is read from or written to the directory, and everyone on it learns."""
        self.dirs.take_offline(directory, error)

    def _went_offline(self, directory: LogDirectory, keys: list[Key]) -> None:
        log.error(
            "a log directory is offline: %s",
            directory.offline,
            extra={"directory": directory.path, "partitions": len(keys)},
        )
        gone = [partition for key in keys if (partition := self.by_place.pop(key, None)) is not None]
        # All are out of sight before anybody is told: a client may have its next request, for any of them, ready.
        for partition in gone:
            self._by_id.pop((partition.topic_id, partition.index), None)
            partition.leader = None
        for partition in gone:
            partition.resign(ErrorCode.KAFKA_STORAGE_ERROR)
        self._on_directory_failure(directory)

    # Stop

    async def close(self, broker_epoch: int) -> None:
        """The clean stop. Blocks once every thread has let go of the logs."""
        closing = list(self)
        for partition in closing:
            partition.resign()
        for partition in closing:
            await partition.settle()
        for at in range(0, len(closing), _FLUSHED_TOGETHER):
            await self._flush_together(closing[at : at + _FLUSHED_TOGETHER])
        self.by_place.clear()
        self._by_id.clear()
        self.judges.shutdown(wait=False)
        self.dirs.close(broker_epoch, self._clock.wall_ms())

    async def _flush_together(self, closing: list[Partition]) -> None:
        """Leaves little to sync for the close itself, which takes one log after the other: a file system syncs many
        files that are waiting together in the time of a few."""

        async def flush(partition: Partition) -> None:
            try:
                await self._flush(partition.log)
            except StorageError as error:
                self.log_failed(partition, error)

        await asyncio.gather(*(flush(partition) for partition in closing))

    async def _flush(self, opened: Log) -> bool:
        """Flushes a log that nobody leads, when its turn has come; whether there is more to flush."""

        def begin(files_max: int) -> FlushJob | None:
            if opened.failure is not None or opened.is_closed or opened.is_flushing:
                return None
            return opened.begin_flush(self._clock.wall_ms(), False, files_max)

        job = await self.flush_turns.begun(begin)
        if job is None:
            return False
        try:
            await self._loop.run_in_executor(None, job.run, self._clock.breathe)
            if opened.is_closed:
                job.finish()
                return False
            opened.finish_flush(job)
        finally:
            self.flush_turns.done(job)
        return job.is_partial


def storage_cause(error: StorageError) -> OSError:
    return error.cause if error.cause is not None else OSError(str(error))
