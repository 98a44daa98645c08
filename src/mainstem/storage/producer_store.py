"""The producer state of one partition and the snapshot files it is kept in.

Which snapshots are there is as visible as any other file, so the rules are Kafka's to the letter:
- One is written at each roll, named after the new segment's base, and one at a clean close, at the log end; none
  where the state has not moved since the last one.
- One goes with its segment. After a load, what belongs to no segment goes too, except the newest, if it lies past the
  last segment's base.
- One past the log end or before the first segment is removed unread. Kafka also removes those at or before the log
  start, and writes none there, and so forgets every producer when all records are deleted before a restart (T1), and
  what it recovers depends on how often it does (D3): these we keep, until their segments go.
- One that cannot be read is removed and an older one taken; the rest of the state comes from the batches after it.

That of a roll is only captured on the event loop: the job that makes the roll durable writes it, and so does whatever
else would take away what it could be made from again. Until then a crash finds the one before it, and the batches.
"""

from typing import Final

from mypy_extensions import i64

from mainstem.core.log.producers import Producer, ProducerStates
from mainstem.protocol.batch import NO_TIMESTAMP
from mainstem.protocol.varint import I64_MAX
from mainstem.storage import names
from mainstem.storage.checkpoint import read_file
from mainstem.storage.fs import FileSystem
from mainstem.storage.snapshot import SnapshotFile, decode_snapshot

_WAITING_MAX: Final = 8
"""How many snapshots may wait to be written, each of which keeps a copy of what has changed since."""


class ProducerStore:
    def __init__(self, fs: FileSystem, directory: str, expiration_ms: i64) -> None:
        self.states = ProducerStates()
        self.expiration_ms: i64 = expiration_ms
        self.is_ahead = False
        """Whether producers are known, from elsewhere, of which nothing is in the log's files."""
        self._silent: dict[int, int] = {}
        """Those that were silent for too long when the snapshot was taken, and where they had written last."""
        self._fs = fs
        self._directory = directory
        self._last_snapshot: i64 = 0
        self._snapshots: list[int] = []
        self._doubted: list[int] = []
        """Those whose files are there, and are not to be read."""
        self._unsynced: list[SnapshotFile] = []
        self._waiting: dict[int, SnapshotFile] = {}
        """By offset those that were captured, and were not written when anybody last looked."""

    def snapshots(self) -> list[int]:
        """The offsets of the snapshots that are there, or will be written, rising."""
        return list(self._snapshots)

    def path_of(self, offset: i64) -> str:
        return f"{self._directory}/{names.offset_name(offset, names.SNAPSHOT)}"

    def find_snapshots(self, directory_names: list[str]) -> None:
        found: list[int] = []
        for name in directory_names:
            parsed = names.parse_offset_name(name)
            if parsed is not None and parsed[1] == names.SNAPSHOT:
                found.append(parsed[0])
        self._snapshots = sorted(found)

    def doubt(self, offset: i64) -> None:
        """Those past `offset` are to be worked out again: what is there is let be where it comes out the same, and goes
        with `remove_doubted` where nothing does."""
        self._doubted = [snapshot for snapshot in self._snapshots if snapshot > offset]
        self._snapshots = [snapshot for snapshot in self._snapshots if snapshot <= offset]

    def remove_doubted(self) -> None:
        for snapshot in self._doubted:
            self._fs.remove(self.path_of(snapshot))
        self._doubted = []

    def remove_stray(self, segment_bases: list[int]) -> None:
        bases = set(segment_bases)
        strays = [offset for offset in self._snapshots if offset not in bases]
        if strays and (not segment_bases or strays[-1] > segment_bases[-1]):
            strays.pop()
        for offset in strays:
            self.remove(offset)

    def take_snapshot(self, sync: bool) -> None:
        """Writes the state at its end, unless that is where the last snapshot is. Blocks."""
        file = self._capture()
        if file is not None:
            file.write()
            if sync:
                file.make_durable()
            else:
                self._unsynced.append(file)

    def sync_last_snapshot(self) -> None:
        """The one that was loaded, which a process that died may not have synced. Blocks."""
        SnapshotFile(self._fs, self.path_of(self._last_snapshot), None).make_durable()

    def begin_snapshot(self) -> None:
        """The same, left to whoever takes what is unsynced; written at once where too many wait for that."""
        for offset in [offset for offset, file in self._waiting.items() if file.is_written]:
            del self._waiting[offset]
        file = self._capture()
        if file is not None:
            if len(self._waiting) < _WAITING_MAX:
                self._waiting[self._last_snapshot] = file
            else:
                file.write()
            self._unsynced.append(file)

    def _capture(self) -> SnapshotFile | None:
        offset: i64 = self.states.end_offset
        if offset <= self._last_snapshot:
            return None
        self._last_snapshot = offset
        if offset in self._doubted:
            self._doubted.remove(offset)
        if offset in self._snapshots:
            self._drop(offset)
        else:
            self._snapshots.append(offset)
            self._snapshots.sort()
        return SnapshotFile(self._fs, self.path_of(offset), self.states.capture())

    def take_unsynced(self) -> list[SnapshotFile]:
        """The snapshots that are not durable yet; they become the caller's to write and sync."""
        unsynced = self._unsynced
        self._unsynced = []
        return unsynced

    def distrust(self, offset: i64) -> None:
        """A process that died wrote those from `offset` on, and may not have synced them: the next flush does."""
        known = [file.path for file in self._unsynced]
        for snapshot in self._snapshots:
            path = self.path_of(snapshot)
            if snapshot >= offset and path not in known:
                self._unsynced.append(SnapshotFile(self._fs, path, None))

    def unsynced(self) -> list[SnapshotFile]:
        """The same, which stay this store's."""
        return list(self._unsynced)

    def _drop(self, offset: i64) -> None:
        """What is on its way to the disk, in whichever job, is not written any more."""
        waiting = self._waiting.pop(offset, None)
        if waiting is not None:
            waiting.drop()
        path = self.path_of(offset)
        self._unsynced = [file for file in self._unsynced if file.path != path]

    def relocate(self, directory: str) -> None:
        """The log's folder is called `directory` now. All that was captured must be written."""
        assert not self._unsynced, f"{self._unsynced[0].path} is not durable"
        self._waiting = {}
        self._directory = directory

    def abandon(self) -> None:
        """The log is let go of: its folder may have another name soon."""
        for file in self._waiting.values():
            file.drop()
        self._waiting = {}
        self._unsynced = []

    def remove(self, offset: i64) -> None:
        if offset in self._snapshots:
            self._snapshots.remove(offset)
        self._drop(offset)
        path = self.path_of(offset)
        if self._fs.exists(path):
            self._fs.remove(path)

    def forget(self, offset: i64) -> str:
        """Lets go of a snapshot that goes with its segment; its path, or "" where there is none."""
        if offset not in self._snapshots:
            return ""
        self._snapshots.remove(offset)
        self._drop(offset)
        return self.path_of(offset)

    def forget_silent(self, now_ms: i64) -> None:
        """Of those that were silent in the snapshot, all of which nothing was found behind it."""
        for producer_id, last_offset in self._silent.items():
            producer = self.states.get(producer_id)
            if (
                producer is not None
                and producer.last_offset == last_offset
                and producer.is_silent(now_ms, self.expiration_ms)
            ):
                self.states.forget(producer_id)
        self._silent = {}

    def reload(
        self, first_offset: i64, log_end: i64, now_ms: i64, heard_from: i64 = I64_MAX, heard_ms: i64 = NO_TIMESTAMP
    ) -> None:
        """Goes back to the newest snapshot up to `log_end`, or to nothing known before `first_offset`.

        The caller applies the batches from `states.end_offset` on, also those below the log start that are there, and
        then calls `forget_silent`: one that was silent when the snapshot was taken may have been heard of since. What
        lies at `heard_from` or after it may be as new as `heard_ms`, whatever its timestamps say.
        """
        for offset in list(self._snapshots):
            if offset > log_end or offset < first_offset:
                self.remove(offset)
        if log_end == self.states.end_offset:
            return
        for file in self._waiting.values():
            file.write()
        self.states.clear()
        self._silent = {}
        while self._snapshots:
            newest = self._snapshots[-1]
            try:
                producers = decode_snapshot(read_file(self._fs, self.path_of(newest)))
            except (ValueError, FileNotFoundError):
                self.remove(newest)
                continue
            for producer in producers:
                if producer.last_offset >= heard_from:
                    producer.heard_ms = heard_ms
                if producer.is_silent(now_ms, self.expiration_ms):
                    self._silent[producer.producer_id] = producer.last_offset
                self.states.restore(producer)
            self.states.restored(newest)
            self._last_snapshot = newest
            return
        self.states.restored(first_offset)
        self._last_snapshot = first_offset

    def take_over(self, other: "ProducerStore") -> None:
        """Knows what the other does from now on, at the same offset; a snapshot that is there already knows less."""
        self.is_ahead = any(self._knows_less(producer) for producer in other.states.all())
        self.states = other.states
        if len(self.states) > 0:
            self._last_snapshot = min(self._last_snapshot, self.states.end_offset - 1)

    def _knows_less(self, producer: Producer) -> bool:
        """Also where a marker is left of it, which has no sequence, or a batch, which has no coordinator's epoch."""
        known = self.states.get(producer.producer_id)
        return (
            known is None
            or known.epoch != producer.epoch
            or known.last_sequence != producer.last_sequence
            or known.coordinator_epoch != producer.coordinator_epoch
            or known.txn_first_offset != producer.txn_first_offset
        )

    def start_at(self, offset: i64) -> None:
        """Forgets every producer and every snapshot; the log begins anew at `offset`."""
        self.states.clear()
        for snapshot in list(self._snapshots):
            self.remove(snapshot)
        self.states.restored(offset)
        self._last_snapshot = 0

    def on_log_start(self, log_start: i64) -> None:
        self.states.on_log_start(log_start)
        # Kafka takes a snapshot at the log start for granted; where there are producers to keep, it must be written.
        known: i64 = log_start if len(self.states) == 0 else log_start - 1
        self._last_snapshot = self._snapshots[-1] if self._snapshots else known
