"""One log directory: whose it is, who holds it, what lies in it, and its checkpoint files.

The order of a start is the order of the methods: `open_log_directory` takes the lock and checks the owner, `scan`
takes the clean-stop marker away, durably, before anything else is looked at (D7, KAFKA-10471), then reads the
checkpoints and the names. The order of a clean stop is the reverse: the logs are closed, the checkpoints written, then
`finish` writes the marker and gives the lock back.

The first failure takes the directory offline for good (D5): nothing is written to it any more, not even the lock's
removal. What was loaded from its checkpoints stays readable.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mainstem.protocol.varint import I64_MAX
from mainstem.storage.checkpoint import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    MalformedFileError,
    OffsetCheckpoint,
    TopicPartition,
)
from mainstem.storage.clean_shutdown import (
    NO_BROKER_EPOCH,
    UNCLEAN,
    UNCLEAN_LOGS,
    PreviousStop,
    take_marker,
    write_marker,
)
from mainstem.storage.fs import FileSystem, Lock
from mainstem.storage.meta_properties import MetaProperties, read_meta_properties
from mainstem.storage.partition_folder import COPY, FolderKind, PartitionFolder, parse_folder_name

LOCK: Final = ".lock"
CHECKPOINTS: Final = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS, CLEANER_OFFSETS)
_WITHOUT_IT: Final = {
    RECOVERY_POINTS: "remove the file, and the next start reads every log in the directory from its beginning",
    HIGH_WATERMARKS: "remove the file, and high watermarks begin at the log starts until the partitions are led",
    LOG_STARTS: "remove the file, and logs begin at their first segments, with deleted records that are still in them",
    CLEANER_OFFSETS: "remove the file, and compacted logs are compacted from their beginning again",
}
"""What to do where one of them makes no sense."""


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Everything the directory knows about a log that is to be opened."""

    folder: str
    topic: str
    partition: int
    recovery_point: int
    log_start: int
    high_watermark: int
    clean: bool
    """Whether the log was closed and synced by the last run: it needs no recovery."""
    gaps_until: int
    """Before this offset a gap between segments is compaction's; from there on it is a loss."""
    write_recovery_point: Callable[[int], None]
    """Writes a higher one down, durably, while the log is being opened. Blocks."""


class LogDirectory:
    def __init__(self, fs: FileSystem, path: str, lock: Lock, meta: MetaProperties) -> None:
        self._fs = fs
        self._lock = lock
        self._files = {name: OffsetCheckpoint(fs, path, name) for name in CHECKPOINTS}
        self._writing = threading.Lock()
        self._failure: OSError | None = None
        """Of a checkpoint file, in whichever thread; the loop may not have been told yet."""
        self._number = 0
        self._oldest_valid = dict.fromkeys(CHECKPOINTS, 0)
        self.path: Final = path
        self.meta: Final = meta
        self.offline: str | None = None
        """Why nothing is done here any more."""
        self.previous_stop = UNCLEAN
        self._unclean_logs = OffsetCheckpoint(fs, path, UNCLEAN_LOGS)
        self.unclean: dict[TopicPartition, int] = {}
        """The logs that the previous stop, though clean, could not close, with their recovery points then."""
        self.checkpoints: dict[str, dict[TopicPartition, int]] = {name: {} for name in CHECKPOINTS}
        """What the checkpoint files hold, by the name of the file."""
        self.creating: dict[TopicPartition, None] = {}
        """Partitions whose folders are being made."""
        self.folders: dict[str, PartitionFolder] = {}
        """All partition folders found by `scan`, whatever their kind, by name."""
        self.partitions: dict[TopicPartition, str] = {}
        """The partitions that live here, with their folders' paths."""

    @property
    def directory_id(self) -> bytes:
        return self.meta.directory_id

    def scan(self) -> PreviousStop:
        self.previous_stop = take_marker(self._fs, self.path)
        if self.previous_stop.clean:
            try:
                self.unclean = self._unclean_logs.read()
            except MalformedFileError:
                self.previous_stop = UNCLEAN  # of all: slower, never wrong
        for name, file in self._files.items():
            try:
                self.checkpoints[name] = file.read()
            except MalformedFileError as error:
                raise MalformedFileError(file.path, f"{error.strerror}; {_WITHOUT_IT[name]}") from error
        if not self._fs.exists(self._files[CLEANER_OFFSETS].path):
            # Empty until something is compacted, but there from the first start on, as Kafka's is.
            self._fs.open(self._files[CLEANER_OFFSETS].path, create=True).close()
        for name in self._fs.list_directory(self.path):
            folder = parse_folder_name(name)
            if folder is not None:
                self.folders[name] = folder
                if folder.kind is FolderKind.PARTITION:
                    self.partitions[folder.topic, folder.partition] = f"{self.path}/{name}"
        return self.previous_stop

    def next_number(self) -> int:
        """Numbers what is collected for checkpoint files, so that an older one never replaces a newer one."""
        self._number += 1
        return self._number

    def supersede(self) -> None:
        """Nothing that was collected before may be written any more; what is being written is waited for."""
        with self._writing:
            self._oldest_valid = dict.fromkeys(CHECKPOINTS, self.next_number())

    def drop_entries(self, keys: Sequence[TopicPartition], number: int) -> None:
        """Takes out of all checkpoint files what they say about deleted partitions of these names. Blocks.

        For a thread, before others get the names. What was collected before `number` may know the deleted ones too,
        and is not written any more.
        """
        self._renew_entries(keys, number, {})

    def begin_entries(self, keys: Sequence[TopicPartition], number: int) -> None:
        """The same for partitions that are about to be made, of which nothing is durable: that is written down, too.

        Where nothing is, nobody can tell what a power loss has taken of a log from what compaction has.
        """
        self._renew_entries(keys, number, dict.fromkeys(keys, 0))

    def _renew_entries(
        self, keys: Sequence[TopicPartition], number: int, recovery_points: Mapping[TopicPartition, int]
    ) -> None:
        gone = set(keys)
        with self._writing:
            for name, file in self._files.items():
                self._oldest_valid[name] = max(self._oldest_valid[name], number)
                known = self.checkpoints[name]
                renewed = {key: offset for key, offset in known.items() if key not in gone}
                if name == RECOVERY_POINTS:
                    renewed.update(recovery_points)
                if self.offline is None and renewed != known:
                    self._write(file, renewed)
                    self.checkpoints[name] = renewed

    def write_checkpoint(self, name: str, offsets: Mapping[TopicPartition, int], number: int) -> None:
        """Blocks, and may run in a thread; does nothing where newer offsets were written or the directory is gone."""
        with self._writing:
            if self.offline is None and number >= self._oldest_valid[name]:
                self._oldest_valid[name] = number
                self._write(self._files[name], offsets)
                self.checkpoints[name] = dict(offsets)

    def _write(self, file: OffsetCheckpoint, offsets: Mapping[TopicPartition, int]) -> None:
        """After the first failure all others fail alike: nothing is tried again on a disk that failed (D5)."""
        if self._failure is not None:
            raise self._failure
        try:
            file.write(offsets)
        except OSError as error:
            self._failure = error
            raise

    def is_copy(self, key: TopicPartition) -> bool:
        """Whether a copy has the partition's name and may not have taken its place."""
        return self._fs.exists(f"{self.partitions[key]}/{COPY}")

    def end_copy(self, key: TopicPartition) -> None:
        """What was a copy is the partition from now on, durably."""
        self._fs.remove(f"{self.partitions[key]}/{COPY}")
        self._fs.sync_directory(self.partitions[key])

    def closed_cleanly(self, key: TopicPartition) -> bool:
        """Whether the previous stop has closed and synced a log. It left a recovery point for each: what has none was
        brought here since, or the file has gone, and nothing says what is in the log."""
        return self.previous_stop.clean and key not in self.unclean and key in self.checkpoints[RECOVERY_POINTS]

    def place(self, topic: str, partition: int, folder: str, clean: bool) -> LogPlace:
        """What the checkpoint files say of a log in that folder."""
        key = (topic, partition)
        points = self.checkpoints
        recovery_point = points[RECOVERY_POINTS].get(key)
        # What was cleaned was durable. Where nothing is written down nobody can tell, and what is sound is kept.
        gaps_until = I64_MAX if recovery_point is None else max(recovery_point, points[CLEANER_OFFSETS].get(key, 0))
        return LogPlace(
            folder,
            topic,
            partition,
            recovery_point=recovery_point or 0,
            log_start=points[LOG_STARTS].get(key, 0),
            high_watermark=points[HIGH_WATERMARKS].get(key, 0),
            clean=clean,
            gaps_until=gaps_until,
            write_recovery_point=lambda offset: self._raise_recovery_point(key, offset),
        )

    def _raise_recovery_point(self, key: TopicPartition, offset: int) -> None:
        offsets = {**self.checkpoints[RECOVERY_POINTS], key: offset}
        self.write_checkpoint(RECOVERY_POINTS, offsets, self.next_number())

    def finish(self, broker_epoch: int, unclean: Mapping[TopicPartition, int]) -> None:
        """The clean end: every log was closed, but for those in `unclean`, and every checkpoint written before this."""
        assert self.offline is None, f"{self.path} is offline: {self.offline}"
        if unclean:
            self._unclean_logs.write(unclean)
        elif self._fs.exists(self._unclean_logs.path):
            self._fs.remove(self._unclean_logs.path)
        # A replica that may have lost something is none that stopped cleanly to the controller (KIP-966).
        write_marker(self._fs, self.path, NO_BROKER_EPOCH if unclean else broker_epoch)
        self.leave()

    def leave(self) -> None:
        """Gives the lock back, and leaves no trace that there was one."""
        self._fs.remove(f"{self.path}/{LOCK}")
        self._lock.release()

    def abandon(self) -> None:
        """Gives the lock back and leaves everything as it is, without a marker."""
        self._lock.release()


def open_log_directory(
    fs: FileSystem, path: str, cluster_id: str, node_id: int, setting: str = "log.dirs"
) -> LogDirectory:
    """ValueError where the directory is not ours to open; BlockingIOError where a broker has it; else OSError.

    `setting` is the one that names the directory.
    """
    if not fs.is_directory(path):
        raise FileNotFoundError(f"{setting}: {path} is not a directory")
    meta = read_meta_properties(fs, path)
    if meta is None:
        raise ValueError(f"{setting}: {path} has no meta.properties; format it first (mainstem format)")
    if meta.cluster_id != cluster_id:
        raise ValueError(f"{setting}: {path} belongs to cluster.id {meta.cluster_id}, not to {cluster_id}")
    if meta.node_id != node_id:
        raise ValueError(f"{setting}: {path} belongs to node.id {meta.node_id}, not to {node_id}")
    return LogDirectory(fs, path, fs.lock(f"{path}/{LOCK}"), meta)
