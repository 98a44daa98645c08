"""What blocks when partitions come and go: one job for many of them, so that one sync of a directory serves all.

Jobs are made and finished on the event loop by `LogDirs`, and run in an executor in between.

A new folder is complete before its name is durable: the empty files of the first segment, then `partition.metadata`,
which names the topic. After a crash a folder may be there without it; it is then no partition that the metadata knows,
is set aside as stray, and is made anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from mainstem.storage import names
from mainstem.storage.checkpoint import TopicPartition
from mainstem.storage.fs import FileSystem
from mainstem.storage.log_directory import LogDirectory
from mainstem.storage.partition_folder import folder_name
from mainstem.storage.partition_metadata import write_topic_id


@dataclass(frozen=True, slots=True)
class NewPartition:
    """A partition that is to be created."""

    topic: str
    partition: int
    topic_id: bytes

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
        self.directory.drop_entries([new.key for new in self.partitions], self.number)
        for new in self.partitions:
            folder = self.folder(new)
            self.fs.make_directory(folder)
            for extension in (names.LOG, names.OFFSET_INDEX, names.TIME_INDEX):
                self.fs.open(f"{folder}/{names.offset_name(0, extension)}", create=True).close()
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


def was_used(fs: FileSystem, folder: str) -> bool:
    """Whether there is more in a partition's folder than its creation puts there. OSError where it cannot be read."""
    for name in fs.list_directory(folder):
        parsed = names.parse_offset_name(name)
        if parsed is not None:
            offset, extension = parsed
            if offset > 0 or (extension.startswith(names.LOG) and fs.file_size(f"{folder}/{name}") > 0):
                return True
    return False
