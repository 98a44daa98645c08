"""What blocks, as jobs: a `FlushJob` makes a log durable, a `RemovalJob` takes deleted files off the disk.

The log prepares a job on the event loop, a thread runs it, and the log takes the outcome back on the loop. A job
touches only what it was given, so the log may go on appending meanwhile; what comes later is not covered.
A failure is kept, never retried, and raised when the log takes the outcome back (D5).
"""

import errno
from collections.abc import Callable

from mypy_extensions import i64

from mainstem.storage.fs import File, FileSystem
from mainstem.storage.leader_epoch_file import write_leader_epochs
from mainstem.storage.open_files import FileRef
from mainstem.storage.snapshot import SnapshotFile


class FlushJob:
    """Order matters: epochs and snapshots first, then data and indexes, then names. After it, everything below
    `offset` survives power loss."""

    def __init__(self, fs: FileSystem, directory: str, offset: i64, truncations: i64) -> None:
        self.offset: i64 = offset
        self.is_partial = False
        """Whether there was more to flush than one job may hold open: another one has to follow."""
        self.truncations: i64 = truncations
        self.error: OSError | None = None
        self.epochs_path = ""
        self.epochs_data = b""
        self.epochs_version: i64 = -1
        self.snapshots: list[SnapshotFile] = []
        self.has_new_names = False
        self._fs = fs
        self._directory = directory
        self._refs: list[FileRef] = []
        self._files: list[File] = []
        self._versions: list[int] = []

    def add(self, ref: FileRef) -> None:
        """On the loop: pins the file and remembers how far this job will cover it."""
        file = ref.pin()
        self._refs.append(ref)
        self._files.append(file)
        self._versions.append(ref.version)

    @property
    def files(self) -> i64:
        return len(self._files)

    def covers(self, ref: FileRef) -> bool:
        """On the loop: whether all that was written to the file so far is durable once this is done."""
        for other, version in zip(self._refs, self._versions, strict=True):
            if other is ref:
                return version == ref.version
        return False

    def run(self, breathe: Callable[[], None] | None = None) -> None:
        """Blocks; for a thread. `breathe` is called now and then where much is computed, to give others their turn."""
        try:
            if self.epochs_version >= 0:
                write_leader_epochs(self._fs, self.epochs_path, self.epochs_data)
            for snapshot in self.snapshots:
                snapshot.make_durable(breathe)
            for file in self._files:
                file.sync()
            if self.has_new_names:
                self._fs.sync_directory(self._directory)
        except Exception as error:
            self.error = as_disk_error(error, self._directory)

    def finish(self) -> None:
        """On the loop: gives the pins back."""
        for ref, version in zip(self._refs, self._versions, strict=True):
            if self.error is None and version > ref.synced_version:
                ref.synced_version = version
            ref.unpin()
        self._refs = []
        self._files = []
        self._versions = []


def as_disk_error(error: Exception, path: str) -> OSError:
    """What a job keeps of whatever ended it: one that did not come to its end must not pass for done."""
    return error if isinstance(error, OSError) else OSError(errno.EIO, f"{type(error).__name__}: {error}", path)


class RemovalJob:
    """Files that left the log and have served their `file.delete.delay.ms`."""

    def __init__(self, fs: FileSystem, paths: list[str], due_ms: i64) -> None:
        self.paths = paths
        self.due_ms: i64 = due_ms
        self._fs = fs

    def run(self) -> None:
        for path in self.paths:
            try:
                self._fs.remove(path)
            except FileNotFoundError:
                continue  # never there, or gone with its folder meanwhile
