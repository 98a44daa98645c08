"""Which files make up a log, changed by jobs: old segments leave it, cleaned ones take the place of what they were
made from (`swapping`).

The log changes what it knows on the event loop, when it makes the job: from then on nobody looks for the segments that
go, and readers that have their files open go on reading. The job then renames files and syncs the directory between the
renames, in a thread, and the log takes the outcome back. A crash before the job is done leaves the segments where they
were, which is what would be there had nobody asked. Rules:

- One job of a log at a time, because jobs name files; and none is left to run beside a folder that was renamed.
- Snapshots of producers are durable before the segments go that they could be made from again, and so are the names of
  new segments.
- What is durable behind segments that go stays so: until their names are gone, and durably, a recovery begins with them
  and ends where their records do. So whoever syncs the log meanwhile syncs them, too (`add_unsynced`).
- A failure is kept, never retried, and raised when the log takes the outcome back (D5).
- Where the log is let go of before the job has come to the names, it leaves them: snapshots that it was to make durable
  are not written any more, and what they stand for would go with the segments.
"""

from collections.abc import Callable

from mypy_extensions import i64

from mainstem.storage import names
from mainstem.storage.flushing import FlushJob, RemovalJob, as_disk_error
from mainstem.storage.fs import FileSystem
from mainstem.storage.open_files import FileRef
from mainstem.storage.segment import Segment
from mainstem.storage.snapshot import SnapshotFile


class Restructuring:
    """`removal` is the job that takes the files off the disk, some time after this one has run."""

    def __init__(
        self, fs: FileSystem, directory: str, gone: list[Segment], snapshots_gone: list[str], due_ms: i64
    ) -> None:
        """On the loop, while the files that go still have their names."""
        self.error: OSError | None = None
        self.has_run = False
        self.unsynced: list[SnapshotFile] = []
        """Snapshots to make durable first."""
        self.has_new_names = False
        self._is_called_off = False
        self._fs = fs
        self._directory = directory
        self._gone = gone
        self._snapshots_gone = snapshots_gone
        """Of each segment that goes: the path of its snapshot, or "" where there is none."""
        self._pins: list[FileRef] = []
        paths: list[str] = []
        for segment, snapshot in zip(gone, snapshots_gone, strict=True):
            paths += [ref.path + names.DELETED for ref in segment.refs()]
            if snapshot:
                paths.append(snapshot + names.DELETED)
        self.removal = RemovalJob(fs, paths, due_ms)

    def pin(self, segment: Segment) -> None:
        """On the loop: keeps the files of a segment open, because their names change while it is read."""
        for ref in segment.refs():
            ref.pin()
            self._pins.append(ref)

    def run(self, breathe: Callable[[], None] | None = None) -> None:
        """Blocks; for a thread. `breathe` is called now and then where much is computed, to give others their turn."""
        self.has_run = True
        try:
            for snapshot in self.unsynced:
                snapshot.make_durable(breathe)
            if self.unsynced or self.has_new_names:
                self._fs.sync_directory(self._directory)
            if not self._is_called_off:
                self._rename()
        except Exception as error:
            self.error = as_disk_error(error, self._directory)

    def call_off(self) -> None:
        """On the loop: the log is let go of, and its snapshots are about to be."""
        self._is_called_off = True

    def finish(self) -> None:
        """On the loop: gives the pins back."""
        for ref in self._pins:
            ref.unpin()
        self._pins = []

    def add_unsynced(self, flush: FlushJob) -> None:
        """On the loop: has a flush that begins beside this job sync what goes."""

    def _rename(self) -> None:
        raise NotImplementedError

    def _mark_deleted(self, segment: Segment, snapshot: str) -> None:
        segment.add_suffix(names.DELETED)
        if snapshot and self._fs.exists(snapshot):
            self._fs.rename(snapshot, snapshot + names.DELETED)


class Retirement(Restructuring):
    """Takes the oldest segments of a log out of it."""

    def __init__(
        self, fs: FileSystem, directory: str, gone: list[Segment], snapshots_gone: list[str], due_ms: i64
    ) -> None:
        super().__init__(fs, directory, gone, snapshots_gone, due_ms)
        self.count: i64 = len(gone)
        self._txn_indexes: list[FileRef] = []
        for segment in gone:
            # Indexes of offsets and times are built anew where they are wrong; nobody sees what these lack.
            index = segment.txn_index
            for ref in [segment.log, index.ref] if index.exists else [segment.log]:
                if ref.dirty:
                    ref.pin()
                    self._pins.append(ref)
            if index.exists and index.ref.dirty:
                self._txn_indexes.append(index.ref)

    def add_unsynced(self, flush: FlushJob) -> None:
        for ref in self._pins:
            if ref.dirty:
                flush.add(ref)
                flush.has_new_names = flush.has_new_names or ref in self._txn_indexes

    def _rename(self) -> None:
        for segment, snapshot in zip(self._gone, self._snapshots_gone, strict=True):
            # Its batches first: they must not come back without their transaction index. An index alone goes anyway.
            segment.log.rename(self._fs, segment.log.path + names.DELETED)
            # Or the next one's renaming could survive a power cut that this one's does not: a hole.
            self._fs.sync_directory(self._directory)
            self._mark_deleted(segment, snapshot)
