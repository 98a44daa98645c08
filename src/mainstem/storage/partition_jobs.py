"""What blocks when partitions come and go: one job for many of them, so that one sync of a directory serves all.

Jobs are made and finished on the event loop by `LogDirs`, and run in an executor in between.

A new folder is complete before its name is durable: the empty files of the first segment, the leader epoch where it is
led here, then `partition.metadata`, which names the topic. After a crash a folder may be there without it; it is then
no partition that the metadata knows, is set aside as stray, and is made anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from mainstem.core.log.epochs import UNDEFINED_EPOCH
from mainstem.storage import names
from mainstem.storage.checkpoint import MalformedFileError, TopicPartition
from mainstem.storage.errors import StorageError
from mainstem.storage.fs import FileSystem
from mainstem.storage.leader_epoch_file import create_leader_epochs
from mainstem.storage.log_directory import LogDirectory
from mainstem.storage.partition_folder import COPY, folder_name
from mainstem.storage.partition_metadata import read_topic_id, write_topic_id


@dataclass(frozen=True, slots=True)
class NewPartition:
    """A partition that is to be created; `leader_epoch` is that of the term which begins here with it, or -1."""

    topic: str
    partition: int
    topic_id: bytes
    leader_epoch: int = UNDEFINED_EPOCH

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition


@dataclass(frozen=True, slots=True)
class Creation:
    """New partitions in one directory."""

    fs: FileSystem
    directory: LogDirectory
    partitions: Sequence[NewPartition]
    number: int
    """What was collected for checkpoint files before it may know deleted partitions of these names."""

    def folder(self, new: NewPartition) -> str:
        return f"{self.directory.path}/{folder_name(new.topic, new.partition)}"

    def run(self) -> None:
        """Blocks; OSError where the directory is to go offline."""
        # The old recovery point of a deleted partition would call the unsynced tail of the new one damaged (D4).
        self.directory.begin_entries([new.key for new in self.partitions], self.number)
        for new in self.partitions:
            folder = self.folder(new)
            _make_folder(self.fs, folder)
            if new.leader_epoch != UNDEFINED_EPOCH:
                create_leader_epochs(self.fs, f"{folder}/{names.LEADER_EPOCHS}", new.leader_epoch)
            # Syncs the folder too.
            write_topic_id(self.fs, folder, new.topic_id)
        self.fs.sync_directory(self.directory.path)


@dataclass(frozen=True, slots=True)
class Deletion:
    """Partitions of one directory that get the names of deleted ones, durably."""

    fs: FileSystem
    directory: LogDirectory
    renames: Sequence[tuple[str, str]]

    def run(self) -> None:
        """Blocks; OSError where the directory is to go offline."""
        for old, new in self.renames:
            self.fs.rename(old, new)
        self.fs.sync_directory(self.directory.path)


@dataclass(frozen=True, slots=True)
class CopyFolder:
    """The folder that a partition is to be copied into, in another directory."""

    fs: FileSystem
    key: TopicPartition
    directory: LogDirectory
    folder: str
    source_folder: str
    source: object
    """The log that is to be copied."""

    def run(self) -> None:
        """Blocks; StorageError, whose path tells which, where a directory has failed or the partition is damaged."""
        try:
            topic_id = read_topic_id(self.fs, self.source_folder)
        except OSError as error:
            cause = None if isinstance(error, MalformedFileError) else error
            raise StorageError(self.source_folder, str(error), cause=cause) from error
        try:
            _make_folder(self.fs, self.folder)
            self.fs.open(f"{self.folder}/{COPY}", create=True).close()
            if topic_id is None:
                self.fs.sync_directory(self.folder)
            else:
                write_topic_id(self.fs, self.folder, topic_id)
            self.fs.sync_directory(self.directory.path)
        except OSError as error:
            raise StorageError(self.folder, str(error), cause=error) from error


def _make_folder(fs: FileSystem, folder: str) -> None:
    """With the empty files of the first segment, so that whoever opens the log has none to make."""
    fs.make_directory(folder)
    for extension in (names.LOG, names.OFFSET_INDEX, names.TIME_INDEX):
        fs.open(f"{folder}/{names.offset_name(0, extension)}", create=True).close()


def may_be_of(fs: FileSystem, folder: str, topic_id: bytes | None) -> bool:
    """Whether a folder is of this topic, or nobody can tell."""
    try:
        return topic_id is not None and read_topic_id(fs, folder) == topic_id
    except OSError:
        return True


def may_hold_records(fs: FileSystem, folder: str) -> bool:
    try:
        return was_used(fs, folder)
    except OSError:
        return True


def was_used(fs: FileSystem, folder: str) -> bool:
    """Whether there is more in a partition's folder than its creation puts there. OSError where it cannot be read."""
    for name in fs.list_directory(folder):
        parsed = names.parse_offset_name(name)
        if parsed is not None:
            offset, extension = parsed
            if offset > 0 or (extension.startswith(names.LOG) and fs.file_size(f"{folder}/{name}") > 0):
                return True
    return False
