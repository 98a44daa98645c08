"""All log directories of a broker, and the logs in them.

Owns which partition lives where: opens every log at start, creates, deletes and sets aside partitions, writes the
checkpoint files, and closes everything at a clean stop. Rules:

- Logs are opened one by one (`load` is an iterator), so that a start with thousands of them does not hold the event
  loop; a log closed cleanly is opened without reading its data.
- A directory whose disk fails goes offline alone, at the first error (D5), and takes its logs along; whoever noticed,
  `on_offline` hears of it. A log whose own bytes are wrong goes offline alone (D4): its neighbours are sound. Both are
  kept with the reason.
- A partition is never created anew while a directory is offline that might hold it, unless the metadata says that it
  is new (KAFKA-16157, KAFKA-16234).
- Deleting is a rename, durable before anyone is told; the bytes go later (`remove_deleted`). After a crash the rename
  is there or the partition is.
- The marker of a clean stop is written only where everything in the directory was loaded, and closed without an error
  of the disk. A log whose own bytes are wrong is named beside it: it alone is recovered by the next start.

- A partition moves to another directory as a copy under a `-future` name. It takes the partition's place by a rename,
  when it is complete and durable; then the old folder is set aside. A crash between the two leaves both, equal, and
  the one that the metadata names is kept. A copy that was not finished is begun anew (`interrupted_moves`).
- A copy has a file that says so until it has taken the partition's place. One whose directory failed just before has
  the partition's name, while the partition goes on where it was: it is never taken for it.
- A directory that fails while it is given a partition keeps a folder of it, and the partition is made in another one.
  The metadata may name neither when both are there again: what is of another topic, or was never used, is set aside.
  So is what was never used where the metadata names a directory that is offline, or names none yet while one is
  offline: the records may be there.
- A recovery point on disk is never higher than what is synced. So `lower_recovery_point` comes before a truncation,
  and a partition created under the name of a deleted one first removes what the checkpoint files say about the old
  one.
- Every log has a recovery point on disk, from before its folder is made. One without was brought here, or the file was
  removed: it is recovered whatever the stop was, and no gap in it is taken for a loss. A log that keeps a gap past it
  while it is opened has a higher one written before it is open: this start may end before all logs are.

What blocks is a job (`Creation`, `Deletion`, `CopyFolder`, `Collected.write`, `Removal.run`): made on the event loop,
run in an executor; its OSError goes to `take_offline`. A job that is out of date when it runs does nothing. `create`,
`delete`, `begin_move`, `checkpoint` and `remove_deleted` do all of it in one go.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Final, Generic, Protocol, TypeVar

from mainstem.storage.checkpoint import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    TopicPartition,
)
from mainstem.storage.clean_shutdown import NO_BROKER_EPOCH
from mainstem.storage.errors import StorageError
from mainstem.storage.fs import FileSystem
from mainstem.storage.log_directory import LogDirectory, LogPlace, open_log_directory
from mainstem.storage.partition_folder import (
    FolderKind,
    deleted_folder_name,
    folder_name,
    future_folder_name,
    stray_folder_name,
)
from mainstem.storage.partition_jobs import CopyFolder, Creation, Deletion, NewPartition, may_be_of, may_hold_records
from mainstem.storage.partition_metadata import read_topic_id

_CREATED_TOGETHER: Final = 128
"""How many partitions one job makes. Jobs run side by side: a file system syncs files that wait together in one go."""


class HasBaseOffset(Protocol):
    @property
    def base_offset(self) -> int: ...


class DirectoryLog(Protocol):
    """What is asked of a log here; `storage.log.Log` has it."""

    @property
    def recovery_point(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def log_start(self) -> int: ...
    @property
    def segments(self) -> Sequence[HasBaseOffset]: ...
    def relocate(self, directory: str) -> None: ...
    def close(self, now_ms: int) -> None: ...
    def abandon(self) -> None: ...


LogT = TypeVar("LogT", bound=DirectoryLog)


@dataclass(frozen=True, slots=True)
class Collected:
    """Offsets for one checkpoint file, taken from the logs at one moment."""

    directory: LogDirectory
    name: str
    offsets: Mapping[TopicPartition, int]
    number: int

    def write(self) -> None:
        """Blocks; OSError where the directory is to go offline. Does nothing where it is out of date by then."""
        self.directory.write_checkpoint(self.name, self.offsets, self.number)


@dataclass(frozen=True, slots=True)
class Removal:
    """A folder that was deleted and whose bytes go when it is due."""

    fs: FileSystem
    directory: LogDirectory
    folder: str
    due_ms: int

    def run(self) -> None:
        """Blocks; OSError where the directory is to go offline."""
        self._remove(self.folder)

    def _remove(self, folder: str) -> None:
        for name in self.fs.list_directory(folder):
            path = f"{folder}/{name}"
            if self.fs.is_directory(path):
                self._remove(path)
            else:
                self.fs.remove(path)
        self.fs.remove_directory(folder)


@dataclass(frozen=True, slots=True)
class Move(Generic[LogT]):
    """A partition on its way to another directory."""

    directory: LogDirectory
    folder: str
    log: LogT


@dataclass(frozen=True, slots=True)
class Moved(Generic[LogT]):
    """A partition that has just moved."""

    log: LogT
    source: LogDirectory
    old_folder: str


class LogDirs(Generic[LogT]):
    def __init__(
        self,
        fs: FileSystem,
        rng: Random,
        paths: Sequence[str],
        cluster_id: str,
        node_id: int,
        open_log: Callable[[LogPlace], LogT],
        on_offline: Callable[[LogDirectory, list[TopicPartition]], None] = lambda directory, gone: None,
    ) -> None:
        """Locks every directory. ValueError where one is not ours or none can be used.

        `on_offline` is told of each directory that fails from now on, once, with the partitions that went with it.
        """
        if not paths or len(set(paths)) != len(paths):
            raise ValueError(f"log.dirs={','.join(paths)}: it must name one or more directories, each once")
        self._fs = fs
        self._rng = rng
        self._open_log = open_log
        self.delete_delay_ms = 60_000
        """How long the folder of a deleted partition stays, by `log.segment.delete.delay.ms`."""
        self._on_offline = on_offline
        self._removals: list[Removal] = []
        self._busy_copies: set[str] = set()
        """Folders of copies in which a thread is at work."""
        self._homes: dict[TopicPartition, LogDirectory] = {}
        self._loaded = False
        self.logs: dict[TopicPartition, LogT] = {}
        self.failed_logs: dict[TopicPartition, str] = {}
        """Partitions that could not be opened or failed since, with the reason; their directory is online."""
        self._failed_points: dict[TopicPartition, int] = {}
        """The recovery points of those that failed since."""
        self.moves: dict[TopicPartition, Move[LogT]] = {}
        self.interrupted_moves: dict[TopicPartition, LogDirectory] = {}
        """Where partitions were being moved to when the last run ended."""
        self.directories: list[LogDirectory] = []
        self.cordoned: frozenset[str] = frozenset()
        """Paths of directories that take no new partitions, by `cordoned.log.dirs` (KIP-1066)."""
        self.unusable: dict[str, str] = {}
        """Directories that were offline from the start, with the reason."""
        try:
            for path in paths:
                self._take(path, cluster_id, node_id)
        except (ValueError, BlockingIOError):
            for directory in self.directories:
                directory.abandon()
            raise
        if not self.directories:
            raise ValueError(f"log.dirs: none can be used: {'; '.join(self.unusable.values())}")

    def _take(self, path: str, cluster_id: str, node_id: int) -> None:
        try:
            directory = open_log_directory(self._fs, path, cluster_id, node_id)
        except BlockingIOError:
            raise
        except OSError as error:
            self.unusable[path] = str(error)
            return
        self.directories.append(directory)
        for other in self.directories[:-1]:
            if other.directory_id == directory.directory_id:
                raise ValueError(f"log.dirs: {other.path} and {path} have the same directory.id: one is a copy")

    @property
    def online(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if directory.offline is None]

    @property
    def any_offline(self) -> bool:
        return bool(self.unusable) or len(self.online) != len(self.directories)

    @property
    def all_closed_cleanly(self) -> bool:
        """Whether no log needed a recovery at this start."""
        return all(directory.closed_cleanly(key) for directory in self.directories for key in directory.partitions)

    @property
    def previous_broker_epoch(self) -> int:
        """The epoch of the run that stopped cleanly, if all directories agree that one did (KIP-966)."""
        epochs = {directory.previous_stop.broker_epoch for directory in self.directories}
        return epochs.pop() if len(epochs) == 1 and not self.any_offline else NO_BROKER_EPOCH

    def directory_of(self, topic: str, partition: int) -> LogDirectory | None:
        return self._homes.get((topic, partition))

    # Start

    def load(
        self,
        now_ms: int,
        assigned: Callable[[str, int], bytes | None] = lambda topic, partition: None,
        owner: Callable[[str, int], bytes | None] = lambda topic, partition: None,
    ) -> Iterator[LogPlace]:
        """Opens every log; what is yielded has just been opened, or has failed and is in `failed_logs`.

        `assigned` is the directory that the metadata names for a partition, or None where the metadata cannot tell,
        and `owner` the id of the topic that has it there. ValueError where one is in two directories and these leave
        open which it is.
        """
        for directory in self.directories:
            try:
                directory.scan()
            except OSError as error:
                self.take_offline(directory, error)
        for directory in self.online:
            for key in list(directory.partitions):
                other = self._homes.setdefault(key, directory)
                if other is not directory:
                    self._settle(key, other, directory, assigned(*key), owner(*key))
            for name, folder in directory.folders.items():
                if folder.kind is FolderKind.DELETE:
                    self._removals.append(Removal(self._fs, directory, f"{directory.path}/{name}", now_ms))
                if folder.kind is FolderKind.FUTURE:
                    # At once, though the clock be set back.
                    self._removals.append(Removal(self._fs, directory, f"{directory.path}/{name}", 0))
                    self.interrupted_moves[folder.topic, folder.partition] = directory
        if self.any_offline:
            self._set_aside_what_is_offline(assigned)
        else:
            self._serve_copies()
        for directory in self.online:
            for (topic, partition), path in list(directory.partitions.items()):
                if directory.offline is None:
                    yield self._open(directory, topic, partition, path, directory.closed_cleanly((topic, partition)))
        self._loaded = True

    def _settle(
        self, key: TopicPartition, one: LogDirectory, two: LogDirectory, assigned: bytes | None, owner: bytes | None
    ) -> None:
        """Keeps one of two folders of a partition, which a move or a creation left when it was interrupted."""
        copies = [each for each in (one, two) if each.is_copy(key)]
        if len(copies) == 1 and may_be_of(self._fs, (two if copies[0] is one else one).partitions[key], owner):
            # Whatever the metadata names: it may not have heard of the move before, which ended elsewhere.
            kept, dropped = (two, one) if copies[0] is one else (one, two)
        elif assigned in (one.directory_id, two.directory_id):
            kept, dropped = (one, two) if assigned == one.directory_id else (two, one)
        elif not may_be_of(self._fs, two.partitions[key], owner):
            kept, dropped = one, two  # which may be of another topic too: then the caller sets it aside
        elif not may_be_of(self._fs, one.partitions[key], owner):
            kept, dropped = two, one
        elif len(copies) == 2 or not may_hold_records(self._fs, two.partitions[key]):
            kept, dropped = one, two  # of two copies either goes, and the other where the partition itself is found
        elif not may_hold_records(self._fs, one.partitions[key]):
            kept, dropped = two, one
        else:
            raise ValueError(f"log.dirs: {folder_name(*key)} is in both {one.path} and {two.path}")
        self._homes[key] = dropped
        with suppress(StorageError):  # the directory with the folder that nobody needs is offline then, and goes alone
            self.set_stray(*key)
        self._homes[key] = kept

    def _set_aside_what_is_offline(self, assigned: Callable[[str, int], bytes | None]) -> None:
        """An empty folder, or an old copy, of a partition that is elsewhere would be served, and then named, as it.

        A partition without a directory in the metadata, by a name that no directory has, may be elsewhere too.
        """
        online = {directory.directory_id for directory in self.online}
        for key, home in list(self._homes.items()):
            named = assigned(*key)
            if named is None:
                continue
            # The metadata may name the directory of a copy, where it has not heard of the move before.
            if home.is_copy(key) or (named not in online and not may_hold_records(self._fs, home.partitions[key])):
                with suppress(StorageError):  # its directory is offline then, and takes it along
                    self.set_stray(*key)

    def _serve_copies(self) -> None:
        """Where the partition itself is nowhere, what is written from now on must not be set aside as an old copy."""
        for key, home in list(self._homes.items()):
            try:
                if home.offline is None and home.is_copy(key):
                    home.end_copy(key)
            except OSError as error:
                self.take_offline(home, error)

    def _open(self, directory: LogDirectory, topic: str, partition: int, folder: str, clean: bool) -> LogPlace:
        key = (topic, partition)
        place = directory.place(topic, partition, folder, clean)
        try:
            self.logs[key] = self._open_log(place)
        except StorageError as error:
            if error.cause is not None:
                self.take_offline(directory, error.cause)
            else:
                self.failed_logs[key] = str(error)
        except OSError as error:
            self.take_offline(directory, error)
        return place

    def topic_id(self, topic: str, partition: int) -> bytes | None:
        """The id of the topic whose partition this folder holds. Reads a file."""
        return read_topic_id(self._fs, self._homes[topic, partition].partitions[topic, partition])

    # Partitions

    def create(
        self, topic: str, partition: int, topic_id: bytes, is_new: bool, directory_id: bytes | None = None
    ) -> LogT:
        """A fresh, empty partition, durable when this returns. Blocks. Where, and StorageError, as `begin_create`."""
        new = NewPartition(topic, partition, topic_id)
        self.check_may_create(topic, partition, is_new)
        while True:
            for creation in self.begin_create([new], directory_id):
                try:
                    creation.run()
                except OSError as error:
                    self.take_offline(creation.directory, error)
                if self.finish_create(creation, new):
                    if new.key not in self.logs:
                        raise StorageError(creation.folder(new), self.failed_logs[new.key])
                    return self.logs[new.key]

    def check_may_create(self, topic: str, partition: int, is_new: bool) -> None:
        """StorageError where a partition that the metadata does not call new may be in an offline directory."""
        if not is_new and self.any_offline:
            raise StorageError(
                folder_name(topic, partition),
                "it may be in a log directory that is offline, so it is not created elsewhere",
            )

    def begin_create(self, wanted: Sequence[NewPartition], directory_id: bytes | None = None) -> list[Creation]:
        """Jobs that make fresh, empty partitions, each where the fewest are or where it is asked for.

        Not in a cordoned directory, unless there is no other: the controller sends nothing new to such a broker, so
        what comes was here before. When a job has run, `finish_create` opens each of its logs. StorageError where no
        directory can take them.
        """
        online = [one for one in self.online if directory_id is None or one.directory_id == directory_id]
        if not online:
            raise StorageError(
                folder_name(wanted[0].topic, wanted[0].partition), "no log directory can take a new partition"
            )
        if directory_id is None:
            online = [one for one in online if one.path not in self.cordoned] or online
        counts = [len(directory.partitions) for directory in online]
        placed: list[list[NewPartition]] = [[] for _ in online]
        for new in wanted:
            assert new.key not in self._homes, f"{folder_name(new.topic, new.partition)} exists"
            at = counts.index(min(counts))
            counts[at] += 1
            placed[at].append(new)
        jobs = []
        for directory, partitions in zip(online, placed, strict=True):
            if partitions:
                number = directory.next_number()
                directory.creating.update(dict.fromkeys(new.key for new in partitions))
                for start in range(0, len(partitions), _CREATED_TOGETHER):
                    part = partitions[start : start + _CREATED_TOGETHER]
                    jobs.append(Creation(self._fs, directory, part, number))
        return jobs

    def finish_create(self, creation: Creation, new: NewPartition) -> bool:
        """Opens one log of a job that has run; False where the directory is offline: it is to be created elsewhere."""
        directory = creation.directory
        directory.creating.pop(new.key, None)
        if directory.offline is not None:
            return False
        folder = creation.folder(new)
        directory.partitions[new.key] = folder
        self._homes[new.key] = directory
        self._open(directory, new.topic, new.partition, folder, clean=True)
        if directory.offline is not None:
            self.forget(*new.key)
            return False
        return True

    def delete(self, topic: str, partition: int, now_ms: int) -> None:
        """Takes the partition out of sight, durably; its bytes go after the delay. Blocks. StorageError."""
        for deletion in self.begin_delete([(topic, partition)]):
            try:
                deletion.run()
            except OSError as error:
                self.take_offline(deletion.directory, error)
                raise StorageError(deletion.renames[0][1], str(error), cause=error) from error
            self.finish_delete(deletion, now_ms)

    def begin_delete(self, keys: Sequence[TopicPartition]) -> list[Deletion]:
        """Lets go of partitions at once, and makes the jobs that take their folders out of sight.

        After a crash before a job is done, its folders are ones that the metadata does not know. A directory that is
        offline keeps its folders.
        """
        renames: dict[str, list[tuple[str, str]]] = {}
        for key in keys:
            self.cancel_move(*key)
            directory = self._homes[key]
            if directory.offline is not None:
                self.forget(*key)
                continue
            log = self.logs.pop(key, None)
            if log is not None:
                log.abandon()
            self.failed_logs.pop(key, None)
            self._failed_points.pop(key, None)
            folder = directory.partitions.pop(key)
            del self._homes[key]
            aside = f"{directory.path}/{deleted_folder_name(*key, self._rng)}"
            renames.setdefault(directory.path, []).append((folder, aside))
        return [
            Deletion(self._fs, directory, renames[directory.path])
            for directory in self.directories
            if directory.path in renames
        ]

    def finish_delete(self, deletion: Deletion, now_ms: int) -> None:
        """What was taken out of sight goes after the delay."""
        for _, folder in deletion.renames:
            self._removals.append(Removal(self._fs, deletion.directory, folder, now_ms + self.delete_delay_ms))

    def forget(self, topic: str, partition: int) -> None:
        """Lets go of a partition whose directory is offline; its folder is still there if the disk comes back."""
        directory = self._homes.pop((topic, partition))
        assert directory.offline is not None, f"{directory.path} is online"
        for each in self.directories:
            each.partitions.pop((topic, partition), None)  # also where a move that failed has left it

    def set_stray(self, topic: str, partition: int) -> None:
        """Keeps what the metadata does not know, under a name that nothing opens."""
        key = (topic, partition)
        self.cancel_move(topic, partition)
        directory = self._homes[key]
        if directory.offline is not None:
            raise StorageError(directory.path, f"the directory is offline: {directory.offline}")
        folder = f"{directory.path}/{stray_folder_name(topic, partition, self._rng)}"
        log = self.logs.pop(key, None)
        if log is not None:
            log.abandon()
        self.failed_logs.pop(key, None)
        self._failed_points.pop(key, None)
        try:
            self._fs.rename(directory.partitions[key], folder)
            self._fs.sync_directory(directory.path)
        except OSError as error:
            self.take_offline(directory, error)
            raise StorageError(folder, str(error), cause=error) from error
        del directory.partitions[key], self._homes[key]

    # Moving

    def can_move(self, topic: str, partition: int) -> bool:
        """Whether the topic's name leaves room for that of a copy."""
        return future_folder_name(topic, partition, self._rng) is not None

    def begin_move(self, topic: str, partition: int, target: LogDirectory) -> Move[LogT]:
        """An empty log beside the partition's own, in another directory, to be filled by the caller. Blocks.

        StorageError, whose path tells which, where that directory or the partition's own has failed.
        """
        job = self.begin_copy(topic, partition, target)
        job.run()
        move = self.finish_copy(job)
        assert move is not None, "nothing happened meanwhile"
        return move

    def begin_copy(self, topic: str, partition: int, target: LogDirectory) -> CopyFolder:
        """A job that makes the folder for a copy; when it has run, `finish_copy` begins the move."""
        key = (topic, partition)
        assert key in self.logs, f"{folder_name(topic, partition)} is not open"
        assert self._homes[key] is not target, f"{folder_name(topic, partition)} is in {target.path}"
        name = future_folder_name(topic, partition, self._rng)
        assert name is not None, f"{topic} is too long a name; ask can_move first"
        source_folder = self._homes[key].partitions[key]
        return CopyFolder(self._fs, key, target, f"{target.path}/{name}", source_folder, self.logs[key])

    def finish_copy(self, job: CopyFolder) -> Move[LogT] | None:
        """Opens the copy; None where the partition has gone meanwhile, or one of the directories has. StorageError."""
        key, target = job.key, job.directory
        assert key not in self.moves, f"{folder_name(*key)} is being moved"
        if target.offline is not None or self.logs.get(key) is not job.source:
            self._discard_copy(key, target, job.folder)
            return None
        try:
            # Nothing is recovered in an empty folder.
            place = LogPlace(job.folder, *key, 0, 0, 0, True, gaps_until=0, write_recovery_point=lambda offset: None)
            log = self._open_log(place)
        except OSError as error:
            raise StorageError(job.folder, str(error), cause=error) from error
        self.moves[key] = Move(target, job.folder, log)
        return self.moves[key]

    def cancel_move(self, topic: str, partition: int) -> None:
        """Drops the copy, if there is one."""
        key = (topic, partition)
        move = self.moves.pop(key, None)
        if move is not None:
            move.log.abandon()
            if move.folder not in self._busy_copies:
                self._discard_copy(key, move.directory, move.folder)

    def begin_work(self, move: Move[LogT]) -> None:
        """A thread will be at work in the folder of the copy: nobody renames or removes that before `end_work`."""
        self._busy_copies.add(move.folder)

    def end_work(self, topic: str, partition: int, move: Move[LogT]) -> None:
        key = (topic, partition)
        self._busy_copies.discard(move.folder)
        if self.moves.get(key) is not move:
            self._discard_copy(key, move.directory, move.folder)

    def _discard_copy(self, key: TopicPartition, directory: LogDirectory, folder: str) -> None:
        """Under its name the next start would take it for the copy of a move that goes on."""
        if directory.offline is not None:
            return
        discarded = f"{directory.path}/{deleted_folder_name(*key, self._rng)}"
        try:
            self._fs.rename(folder, discarded)
        except OSError as error:
            self.take_offline(directory, error)
        else:
            self._removals.append(Removal(self._fs, directory, discarded, 0))

    def finish_move(self, topic: str, partition: int) -> Moved[LogT]:
        """The copy takes the partition's place. It must hold all of it, and both must be durable. Blocks.

        StorageError where the new directory is to go offline. The old folder is still there: `leave` sets it aside.
        """
        key = (topic, partition)
        move = self.moves[key]
        source, target = self._homes[key], move.directory
        folder = f"{target.path}/{folder_name(topic, partition)}"
        try:
            target.drop_entries([key], target.next_number())
            self._fs.rename(move.folder, folder)
            self._fs.sync_directory(target.path)
        except OSError as error:
            raise StorageError(folder, str(error), cause=error) from error
        move.log.relocate(folder)
        del self.moves[key]
        self.logs[key].abandon()
        target.partitions[key] = folder
        self._homes[key] = target
        self.logs[key] = move.log
        # What is known of the old folder is still needed: if the new directory fails before `leave`, a start takes it.
        return Moved(move.log, source, source.partitions[key])

    def leave(self, moved: Moved[LogT], topic: str, partition: int, now_ms: int) -> None:
        """Sets the old folder of a partition aside that lives elsewhere now, durably. Blocks.

        OSError where the directory that it leaves has failed, StorageError where the one it lives in has.
        """
        target = self._homes[topic, partition]
        try:
            # Until the next checkpoint a crash would bring back what DeleteRecords took, and take a gap for a lost end.
            for name in (LOG_STARTS, RECOVERY_POINTS):
                self._collect(target, name).write()
            self._take_along_what_is_cleaned((topic, partition), moved.source, target)
            target.end_copy((topic, partition))
        except OSError as error:
            raise StorageError(target.path, str(error), cause=error) from error
        del moved.source.partitions[topic, partition]
        folder = f"{moved.source.path}/{deleted_folder_name(topic, partition, self._rng)}"
        self._fs.rename(moved.old_folder, folder)
        self._fs.sync_directory(moved.source.path)
        self._removals.append(Removal(self._fs, moved.source, folder, now_ms + self.delete_delay_ms))

    def _take_along_what_is_cleaned(self, key: TopicPartition, source: LogDirectory, target: LogDirectory) -> None:
        """Or a start before the next cleaning would have all of the log cleaned again."""
        cleaned_to = source.checkpoints[CLEANER_OFFSETS].get(key)
        if cleaned_to is not None:
            offsets = self._offsets(target, CLEANER_OFFSETS) | {key: cleaned_to}
            target.write_checkpoint(CLEANER_OFFSETS, offsets, target.next_number())

    def take_removals(self, now_ms: int) -> list[Removal]:
        """What was deleted long enough ago, for the caller to run. A clock that was set back delays nothing twice."""
        latest_ms = now_ms + self.delete_delay_ms
        self._removals = [replace(each, due_ms=min(each.due_ms, latest_ms)) for each in self._removals]
        due = [each for each in self._removals if each.due_ms <= now_ms and each.directory.offline is None]
        self._removals = [each for each in self._removals if each.due_ms > now_ms]
        return due

    def remove_deleted(self, now_ms: int) -> int:
        """Runs all removals that are due; how many folders went. Blocks."""
        removed = 0
        for removal in self.take_removals(now_ms):
            try:
                removal.run()
                removed += 1
            except OSError as error:
                self.take_offline(removal.directory, error)
        return removed

    # Failure

    def take_offline(self, directory: LogDirectory, error: OSError) -> None:
        """The first error ends all use of the directory (D5)."""
        if directory.offline is not None:
            return
        directory.offline = str(error)
        for key, move in list(self.moves.items()):
            if move.directory is directory or self._homes[key] is directory:
                self.cancel_move(*key)
        gone = [key for key, home in self._homes.items() if home is directory]
        for key in gone:
            log = self.logs.pop(key, None)
            self.failed_logs.pop(key, None)
            self._failed_points.pop(key, None)
            if log is not None:
                log.abandon()
        self._on_offline(directory, gone)

    def fail_log(self, topic: str, partition: int, reason: str) -> None:
        """One log is not what was written; its directory goes on."""
        log = self.logs.pop((topic, partition))
        self.failed_logs[topic, partition] = reason
        self._failed_points[topic, partition] = log.recovery_point
        log.abandon()

    # Checkpoints

    def collect(self, name: str) -> list[Collected]:
        """What one of the checkpoint files should say now, for each directory. Does not block."""
        return [self._collect(directory, name) for directory in self.online]

    def _collect(self, directory: LogDirectory, name: str) -> Collected:
        return Collected(directory, name, self._offsets(directory, name), directory.next_number())

    def _offsets(self, directory: LogDirectory, name: str) -> dict[TopicPartition, int]:
        known = directory.checkpoints[name]
        # A partition that is being made has its recovery point in the file, or is about to: it must stay there.
        offsets = dict.fromkeys(directory.creating, 0) if name == RECOVERY_POINTS else {}
        for key in directory.partitions:
            log = self.logs.get(key)
            if log is None or name == CLEANER_OFFSETS:
                # Not loaded, or failed: what the last run knew about it must not be forgotten.
                if key in known:
                    offsets[key] = known[key]
                if name == RECOVERY_POINTS and key in self._failed_points:
                    # Damage below it is no reason for the next recovery to cut what follows (D4).
                    offsets[key] = self._failed_points[key]
            elif name == RECOVERY_POINTS:
                offsets[key] = log.recovery_point
            elif name == HIGH_WATERMARKS:
                offsets[key] = log.high_watermark
            elif name == LOG_STARTS and log.log_start > log.segments[0].base_offset:
                offsets[key] = log.log_start
        return offsets

    def checkpoint(self, name: str) -> None:
        """Collects and writes one checkpoint file in every directory. Blocks."""
        for directory in self.online:
            self._write_checkpoint(directory, name)

    def lower_recovery_point(self, topic: str, partition: int, offset: int) -> None:
        """Before a truncation to `offset`: what is written there afterwards is not durable. Blocks if need be."""
        key = (topic, partition)
        directory = self._homes[key]
        directory.supersede()
        if directory.checkpoints[RECOVERY_POINTS].get(key, 0) > offset:
            offsets = self._offsets(directory, RECOVERY_POINTS)
            offsets[key] = min(offsets[key], offset)
            try:
                directory.write_checkpoint(RECOVERY_POINTS, offsets, directory.next_number())
            except OSError as error:
                self.take_offline(directory, error)
                raise StorageError(directory.path, str(error), cause=error) from error

    def _write_checkpoint(self, directory: LogDirectory, name: str) -> None:
        try:
            self._collect(directory, name).write()
        except OSError as error:
            self.take_offline(directory, error)

    # Stop

    def close(self, broker_epoch: int, now_ms: int) -> None:
        """The clean stop: closes all logs, writes all checkpoints, and marks each directory that is whole. Blocks.

        Where not all were loaded it is none, and no more is done than the kernel would do for a process that is killed.
        """
        for move in self.moves.values():
            # Its folder stays, and tells the next run to begin anew.
            move.log.abandon()
        self.moves.clear()
        if not self._loaded:
            self._abandon()
            return
        for directory in self.directories:
            if directory.offline is not None:
                directory.abandon()
                continue
            unclean = []
            for key in directory.partitions:
                if directory.offline is None and not self._close_log(directory, key, now_ms):
                    unclean.append(key)
            for name in (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS):
                if directory.offline is None:
                    self._write_checkpoint(directory, name)
            if directory.offline is None:
                try:
                    for key in unclean:
                        self._sync_folder(directory.partitions[key])
                    points = directory.checkpoints[RECOVERY_POINTS]
                    directory.finish(broker_epoch, {key: points.get(key, 0) for key in unclean})
                    continue
                except OSError as error:
                    self.take_offline(directory, error)
            directory.abandon()
        self.logs.clear()

    def _abandon(self) -> None:
        """Not all logs are open: what was found stays as it is, and nobody has written since."""
        for log in self.logs.values():
            log.abandon()
        self.logs.clear()
        for directory in self.directories:
            directory.abandon()

    def _sync_folder(self, folder: str) -> None:
        for name in self._fs.list_directory(folder):
            if not self._fs.is_directory(f"{folder}/{name}"):
                file = self._fs.open(f"{folder}/{name}")
                try:
                    file.sync()
                finally:
                    file.close()
        self._fs.sync_directory(folder)

    def _close_log(self, directory: LogDirectory, key: TopicPartition, now_ms: int) -> bool:
        log = self.logs.get(key)
        if log is None:
            return False
        try:
            log.close(now_ms)
        except StorageError as error:
            if error.cause is not None:
                self.take_offline(directory, error.cause)
            else:
                self.fail_log(*key, str(error))
            return False
        except OSError as error:
            self.take_offline(directory, error)
            return False
        return True
