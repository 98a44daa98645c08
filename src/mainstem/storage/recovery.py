"""Opening a log: what a clean stop left is taken as it is, what a crash left is recovered.

After a clean stop no batch is read but those after the active segment's last index entry, to learn the log end. They
must reach to the end of the file, and the log to the recovery point: a log that was cut short since it was closed is a
`StorageError`, and never written on. After any other stop every segment from the recovery point on is read whole:

- At or past the recovery point the log is cut at the first batch that is not whole, sound and next, whatever follows:
  unsynced writes reach a disk in any order (D4). Below it nothing is ever cut: that is a `StorageError`.
- Indexes, transaction index, leader epochs and producer state are written anew from the batches (D6). So are leader
  epochs whose file makes no sense, whatever the stop was.
- Of the segment before them the last entry of the time index is looked for, which is the last to become durable.
- Segments below the log start go, and before them what they say of producers goes into a durable snapshot (T1).
- Past the recovery point a gap between segments is a lost tail, and below it compaction's. Where that was in doubt (no
  recovery point is written down, or a running Kafka left the log, which compacts past its own) a gap is let be, as in
  Kafka. What says that Kafka ran is the index of the active segment. So before that is written anew, all before it is
  made durable and a recovery point behind every gap is written down: the next recovery need not be told.
- What comes out as it was is let be: there may be thousands of small logs, and most have lost nothing. What is in the
  files is made durable by the flush that moves the recovery point past it; until then the next recovery does the same
  again. Names are durable before anything is written under them, also where this recovery has changed none: whoever
  died before it may have removed some, and a segment that comes back is in the way of what was written since.
- What was cut is told (`Log.cut`).
- Doing it again changes nothing, and being interrupted loses nothing: only what is not durable is ever removed (D3).

Leftovers are finished or undone as Kafka does it: `.deleted` goes; `.cleaned` goes, with every `.swap` at or past it
(an interrupted split, KAFKA-6264); what is `.swap` then is complete, and takes the place of the segments it was made
from; an index without a log goes.
"""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from mainstem.core.log.config import LogConfig
from mainstem.core.log.epochs import LeaderEpochs
from mainstem.protocol.errors import RemoteError
from mainstem.protocol.varint import I64_MAX
from mainstem.storage import names
from mainstem.storage.checkpoint import TEMPORARY_SUFFIX, MalformedFileError
from mainstem.storage.errors import StorageError
from mainstem.storage.leader_epoch_file import format_leader_epochs, read_leader_epochs, write_leader_epochs
from mainstem.storage.log import DEFAULT_PRODUCER_EXPIRATION_MS, Jitter, Log, no_jitter
from mainstem.storage.open_files import FileRef, OpenFiles
from mainstem.storage.producer_store import ProducerStore
from mainstem.storage.recovery_cut import RecoveryCut
from mainstem.storage.replay import apply_batch, replay_producers
from mainstem.storage.scan import BatchScan, HeaderScan
from mainstem.storage.segment import Segment
from mainstem.storage.txn_index import AbortedTransaction

NEVER_COMPACTED: Final = -1
"""For `gaps_until`: whoever wrote it, a gap past the recovery point is a loss."""

_ZERO_TAIL_BYTES: Final = 4096
"""Our own indexes grow by less than that at a time: no power loss leaves so many zeros behind one."""


def nowhere(recovery_point: int) -> None:
    """Where recovery points are not written down."""


def open_log(
    files: OpenFiles,
    directory: str,
    config: LogConfig,
    now_ms: i64,
    log_start: i64 = 0,
    recovery_point: i64 = 0,
    high_watermark: i64 = 0,
    clean: bool = False,
    producer_expiration_ms: i64 = DEFAULT_PRODUCER_EXPIRATION_MS,
    jitter: Jitter = no_jitter,
    gaps_until: i64 = NEVER_COMPACTED,
    write_recovery_point: Callable[[int], None] = nowhere,
) -> Log:
    """Opens the log in `directory`, which must exist, or begins one there. Blocks.

    The offsets are those of the checkpoint files; `clean` says that the last stop was. Before `gaps_until`, as before
    the recovery point, a gap between segments is no loss. `write_recovery_point` writes a higher one down, durably,
    where a gap was kept. StorageError where the files are not what they were when they were declared durable.
    """
    loader = _Loader(
        files,
        directory,
        config,
        now_ms,
        log_start,
        recovery_point,
        gaps_until,
        producer_expiration_ms,
        jitter,
        write_recovery_point,
    )
    try:
        return loader.load(clean, high_watermark)
    except OSError as error:
        loader.close()
        raise StorageError(str(error.filename or directory), str(error), cause=error) from error
    except Exception:
        loader.close()
        raise


class _Loader:
    def __init__(
        self,
        files: OpenFiles,
        directory: str,
        config: LogConfig,
        now_ms: i64,
        log_start: i64,
        recovery_point: i64,
        gaps_until: i64,
        producer_expiration_ms: i64,
        jitter: Jitter,
        write_recovery_point: Callable[[int], None],
    ) -> None:
        self.directory = directory
        self.config = config
        self.now_ms: i64 = now_ms
        self.log_start: i64 = log_start
        self.recovery_point: i64 = recovery_point
        self.gaps_until: i64 = max(gaps_until, recovery_point)
        self._may_be_compacted = gaps_until != NEVER_COMPACTED
        self.log_end: i64 = 0
        self.segments: list[Segment] = []
        self.epochs = LeaderEpochs([])
        self.producers = ProducerStore(files.fs, directory, producer_expiration_ms)
        self._files = files
        self._fs = files.fs
        self._jitter = jitter
        self._write_recovery_point = write_recovery_point
        self._keeps_gap = False
        """Whether the log has a gap past the recovery point."""
        self._durable_to: i64 = recovery_point
        """The recovery point, or the higher one that was written down because of a gap."""
        self._cut_bytes: i64 = 0
        self._cut_segments: i64 = 0
        self._cut_reason = ""

    def load(self, clean: bool, high_watermark: i64) -> Log:
        listing = self._fs.list_directory(self.directory)
        if self._finish_leftovers(listing, clean):
            listing = self._fs.list_directory(self.directory)
        self._find_segments(listing)
        self._read_epochs(clean)
        self.producers.find_snapshots(listing)
        if self.segments:
            self.log_start = max(self.log_start, self.segments[0].base_offset)
            if clean:
                self.log_end = self.segments[-1].read_next_offset()
            else:
                if self._may_be_compacted and self._is_preallocated(self.segments[-1]):
                    self.gaps_until = I64_MAX
                self._drop_deleted()
                self._recover()
            self._drop_everything_below_log_start()
        if not self.segments:
            self._begin()
        if self.log_end < self.recovery_point:
            raise StorageError(
                self.segments[-1].log.path,
                f"the log ends at offset {self.log_end}, but up to {self.recovery_point} it was durable",
            )
        self.epochs.truncate_from_end(self.log_end)
        self.epochs.truncate_from_start(self.log_start)
        self._load_producers()
        if not clean:
            self.producers.distrust(self.recovery_point)
            # What was removed, now or by a process that died over it, must not come back beside what is written from
            # now on, nor below a log start that the next checkpoint forgets.
            self._fs.sync_directory(self.directory)
        log = Log(
            self._files,
            self.directory,
            self.config,
            self.segments,
            self.epochs,
            self.producers,
            self.log_start,
            min(self._durable_to, self.log_end),
            self.log_end,
            high_watermark,
            self.now_ms,
            self._jitter,
        )
        if self._cut_bytes > 0:
            log.cut = RecoveryCut(self.log_end, self._cut_bytes, self._cut_segments, self._cut_reason)
        return log

    def _read_epochs(self, clean: bool) -> None:
        try:
            self.epochs = read_leader_epochs(self._fs, f"{self.directory}/{names.LEADER_EPOCHS}")
            self.epochs.version = 0
        except MalformedFileError:
            # Every batch has its epoch. What is recovered below is read there.
            intact = self.segments if clean else self.segments[: max(self._first_to_recover(), 0)]
            for segment in intact:
                self._find_epochs(segment)

    def _find_epochs(self, segment: Segment) -> None:
        log = segment.log.pin()
        try:
            scan = HeaderScan(log, 0, segment.size, False)
            while scan.advance():
                if scan.header.leader_epoch > self.epochs.latest:
                    self.epochs.assign(scan.header.leader_epoch, scan.header.base_offset)
        finally:
            segment.log.unpin()

    def close(self) -> None:
        for segment in self.segments:
            segment.discard()

    # -- what is there -------------------------------------------------------------------------------------------

    def _segment(self, base_offset: i64, has_txn_index: bool) -> Segment:
        jitter_ms: i64 = 0
        if self.config.segment_jitter_ms > 0:
            jitter_ms = self._jitter(min(self.config.segment_jitter_ms, self.config.segment_ms))
        return Segment(
            self._files,
            self.directory,
            base_offset,
            self.config.index_interval_bytes,
            self.config.segment_index_bytes,
            jitter_ms,
            self.now_ms,
            has_txn_index,
        )

    def _path(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def _find_segments(self, listing: list[str]) -> None:
        present = set(listing)
        for name in listing:
            parsed = names.parse_offset_name(name)
            if parsed is None:
                continue
            base_offset, extension = parsed
            if extension in names.INDEX_EXTENSIONS and names.offset_name(base_offset, names.LOG) not in present:
                self._fs.remove(self._path(name))
            elif extension == names.LOG:
                segment = self._segment(base_offset, names.offset_name(base_offset, names.TXN_INDEX) in present)
                segment.attach(self._fs.file_size(self._path(name)))
                self.segments.append(segment)

    def _finish_leftovers(self, listing: list[str], clean: bool) -> bool:
        """Whether there were any."""
        found = False
        cleaned: list[tuple[int, str]] = []
        swaps: list[tuple[int, str]] = []
        for name in listing:
            parsed = names.parse_offset_name(name)
            if name.endswith((names.DELETED, TEMPORARY_SUFFIX)):
                self._fs.remove(self._path(name))
                found = True
            elif parsed is not None and name.endswith(names.CLEANED):
                cleaned.append((parsed[0], name))
            elif parsed is not None and name.endswith(names.SWAP):
                swaps.append((parsed[0], name))
        if cleaned:
            first = min(cleaned)[0]
            if not clean:
                # A start that died may have removed the `.swap` that these undo: alone it would pass for a whole one.
                self._fs.sync_directory(self.directory)
            undone = [name for offset, name in swaps if offset >= first]
            for name in undone:
                self._fs.remove(self._path(name))
            if undone:
                # Without its `.cleaned` half, a `.swap` that came back would pass for complete.
                self._fs.sync_directory(self.directory)
            swaps = [(offset, name) for offset, name in swaps if offset < first]
            for _, name in cleaned:
                self._fs.remove(self._path(name))
        found = found or len(cleaned) > 0 or len(swaps) > 0
        if swaps:
            self._complete_swaps(swaps)
        return found

    def _complete_swaps(self, swaps: list[tuple[int, str]]) -> None:
        """Removes the segments that the swapped ones were made from, then gives those their names."""
        # A process that died may not have come to make these names durable: with the old segments gone for good, they
        # are all there is.
        self._fs.sync_directory(self.directory)
        first: i64 = -1
        last: i64 = -1
        for offset, name in swaps:
            if name.endswith(names.LOG + names.SWAP):
                first = offset if first < 0 else min(first, offset)
                last = max(last, self._last_offset_in(name), offset)
        if first >= 0:
            for name in self._fs.list_directory(self.directory):
                parsed = names.parse_offset_name(name)
                if parsed is None or parsed[1] not in names.SEGMENT_EXTENSIONS:
                    continue
                if first <= parsed[0] <= last:
                    self._fs.remove(self._path(name))
            self._fs.sync_directory(self.directory)
        # The data first, then what belongs to it, each made durable: see `swapping`.
        for logs in (True, False):
            for _, name in swaps:
                if name.endswith(names.LOG + names.SWAP) == logs:
                    self._fs.rename(self._path(name), self._path(name.removesuffix(names.SWAP)))
            self._fs.sync_directory(self.directory)

    def _last_offset_in(self, name: str) -> i64:
        """By the batches alone: an index that is not there would be built beside it, under a name nobody knows."""
        last: i64 = -1
        file = self._fs.open(self._path(name))
        try:
            scan = HeaderScan(file, 0, file.size(), False)
            while scan.advance():
                last = scan.header.last_offset
        finally:
            file.close()
        return last

    # -- recovering ----------------------------------------------------------------------------------------------

    def _drop_deleted(self) -> None:
        """Segments that lie below the log start were deleted, or were about to be; a power cut may bring them back.

        What is left of them is no reason to cut what came after them.
        """
        count: i64 = 0
        while count + 1 < len(self.segments) and self.segments[count + 1].base_offset <= self.log_start:
            count += 1
        if count > 0:
            self._keep_producers(count)
        for segment in self.segments[:count]:
            segment.remove_files()
        self.segments = self.segments[count:]

    def _keep_producers(self, count: i64) -> None:
        """What the first segments say of producers is in a durable snapshot before they go.

        A process that died may not have come to write the one of the roll behind them, or to sync it.
        """
        states = self.producers.states
        begin: i64 = self.segments[count].base_offset
        start: i64 = self.segments[max(count, self._first_to_recover())].base_offset
        self.producers.reload(self.segments[0].base_offset, start, self.now_ms)
        if states.end_offset < begin:
            self._replay_sound(self.segments[:count])
            states.end_offset = begin
            self.producers.take_snapshot(sync=True)
        elif states.end_offset >= self.recovery_point:
            self.producers.sync_last_snapshot()
        else:
            return
        self._fs.sync_directory(self.directory)

    def _replay_sound(self, segments: list[Segment]) -> None:
        """Brings producers up to the first batch that is not whole, sound and next."""
        states = self.producers.states
        at: i64 = segments[0].base_offset
        for segment in segments:
            if segment.base_offset != at and not segment.base_offset > at < self.gaps_until:
                return
            at = segment.base_offset
            log = segment.log.pin()
            try:
                scan = BatchScan(log, 0, segment.size)
                while scan.advance():
                    batch = scan.batch
                    batch.check(batch.end)
                    if batch.base_offset != at and not batch.base_offset > at < self.gaps_until:
                        return
                    at = batch.next_offset
                    if batch.base_offset >= states.end_offset:
                        completed = apply_batch(states, batch)
                        if completed is not None:
                            states.complete(completed)
            except RemoteError:
                return
            finally:
                segment.log.unpin()
            if scan.broken:
                return

    def _first_to_recover(self) -> i64:
        first: i64 = len(self.segments) - 1
        while first > 0 and self.segments[first].base_offset > self.recovery_point:
            first -= 1
        return first

    def _recover(self) -> None:
        first: i64 = self._first_to_recover()
        if first > 0:
            self._complete_time_index(self.segments[first - 1])
        start: i64 = self.segments[first].base_offset
        self.producers.doubt(start)
        self.producers.reload(self.segments[0].base_offset, start, self.now_ms)
        replay_producers(self.segments[:first], self.producers, start, True)
        self.producers.take_snapshot(sync=False)
        self.log_end = start
        at: i64 = first
        while at < len(self.segments):
            segment = self.segments[at]
            if segment.base_offset != self.log_end and not self._may_follow(segment):
                self._cover_gaps(at, self.log_end)
                what = f"offsets {self.log_end} to {segment.base_offset - 1} are missing"
                if segment.base_offset < self.log_end:
                    what = f"offsets {segment.base_offset} to {self.log_end - 1} are there twice"
                self._remove_from(at, what)
                break
            if at + 1 == len(self.segments):
                self._cover_gaps(at, segment.base_offset)
            if self._recover_segment(segment):
                break
            if at + 1 < len(self.segments):
                self.producers.take_snapshot(sync=False)
            at += 1

    def _cover_gaps(self, count: i64, offset: i64) -> None:
        """Where a gap was kept: makes the first `count` segments durable, and writes down that they are, to `offset`.

        Before the active segment is touched: what it tells of Kafka is what kept the gap.
        """
        if not self._keeps_gap:
            return
        # The order of a flush.
        if self.epochs.version != 0:
            write_leader_epochs(self._fs, f"{self.directory}/{names.LEADER_EPOCHS}", format_leader_epochs(self.epochs))
        for snapshot in self.producers.take_unsynced():
            snapshot.make_durable()
        for segment in self.segments[:count]:
            segment.sync()
        self.producers.remove_doubted()
        self._fs.sync_directory(self.directory)
        self._write_recovery_point(offset)
        self._durable_to = offset

    def _complete_time_index(self, segment: Segment) -> None:
        """Of a segment whose batches are durable: a roll leaves the last entry of its time index to the next flush."""
        if not segment.has_last_time_entry():
            segment.rebuild_indexes()
        # A process that died may have left it unsynced: the next flush must cover it.
        segment.time_index.ref.version += 1

    def _is_preallocated(self, segment: Segment) -> bool:
        """Whether the segment's indexes have the size and the zeros that only a running Kafka gives them.

        That size is the setting of that time, under which Kafka made them.
        """
        offset_index = segment.offset_index
        configured: i64 = offset_index.max_entries * offset_index.entry_bytes
        if configured > 0 and self._ends_with_zeros(offset_index.ref, configured, offset_index.entry_bytes):
            return True
        for ref in (offset_index.ref, segment.time_index.ref):
            if self._ends_with_zeros(ref, -1, _ZERO_TAIL_BYTES):
                return True
        return False

    def _ends_with_zeros(self, ref: FileRef, size: i64, count: i64) -> bool:
        """Whether a file, of that size where it is not -1, ends with `count` zeros."""
        if not self._fs.exists(ref.path):
            return False
        found: i64 = self._fs.file_size(ref.path)
        if found < count or (size >= 0 and found != size):
            return False
        file = ref.pin()
        try:
            return not any(file.read_at(found - count, count))
        finally:
            ref.unpin()

    def _may_follow(self, segment: Segment) -> bool:
        """Whether a segment may begin past where the one before it ends.

        Compaction leaves such gaps, below the recovery point, where all is as it was. Past it nothing is compacted
        and every segment begins where the one before it ends; so a segment is missing, or the end of one, and what
        comes after is no prefix of what was written. Kafka may compact past the recovery point that it last wrote
        down, and its gaps are let be. One that begins before that end is in the way where it may be durable; past the
        recovery point it has come back from before a truncation.
        """
        if segment.base_offset < self.log_end:
            if segment.base_offset >= max(self.recovery_point, self.gaps_until):
                return False
            raise StorageError(segment.log.path, f"the segment before it goes on to offset {self.log_end}")
        if self.log_end >= self.gaps_until:
            return False
        self._keeps_gap = self._keeps_gap or self.log_end >= self.recovery_point
        return True

    def _recover_segment(self, segment: Segment) -> str:
        """Checks every batch and writes what is kept beside them anew; why the log ends in it, where it was cut."""
        segment.begin_indexes()
        segment.txn_index.reset()
        states = self.producers.states
        states.end_offset = max(states.end_offset, segment.base_offset)
        self.log_end = segment.base_offset
        broken = ""
        last_epoch: i64 = -1
        log = segment.log.pin()
        try:
            scan = BatchScan(log, 0, segment.size)
            valid: i64 = 0
            while scan.advance():
                batch = scan.batch
                try:
                    batch.check(batch.end)
                except RemoteError as error:
                    broken = error.message
                    break
                if batch.base_offset < self.log_end or not segment.can_hold(batch.last_offset):
                    broken = f"offsets {batch.base_offset} to {batch.last_offset} where {self.log_end} is next"
                    break
                if 0 <= batch.leader_epoch < last_epoch and self.log_end >= self.recovery_point:
                    # What a truncation had removed, back from the disk behind what was written over it.
                    broken = f"epoch {batch.leader_epoch} after epoch {last_epoch}"
                    break
                last_epoch = batch.leader_epoch
                segment.index_batch(batch, scan.position)
                if 0 <= batch.leader_epoch < self.epochs.epoch_for(batch.last_offset):
                    # The file is of before a truncation, or of batches that are lost.
                    self.epochs.truncate_from_end(batch.base_offset)
                if batch.leader_epoch > self.epochs.latest:
                    self.epochs.assign(batch.leader_epoch, batch.base_offset)
                completed = apply_batch(states, batch)
                if completed is not None:
                    if completed.is_aborted:
                        stable: i64 = states.last_stable_offset_after(completed)
                        segment.txn_index.append(
                            AbortedTransaction(
                                completed.producer_id, completed.first_offset, completed.last_offset, stable
                            )
                        )
                    states.complete(completed)
                self.log_end = batch.next_offset
                valid = scan.next_position
            broken = broken or scan.broken
        finally:
            segment.log.unpin()
        if broken:
            if self.log_end < self.recovery_point:
                raise StorageError(
                    segment.log.path, f"{broken}; it was durable up to offset {self.recovery_point}", valid
                )
            # What follows goes first: behind what is cut, the next recovery could take it for what compaction left.
            end: i64 = self.segments.index(segment) + 1
            if end < len(self.segments):
                self._cover_gaps(end, self.log_end)
            self._remove_from(end, broken)
            self._cut_bytes += segment.size - valid
            segment.cut_data(valid)
            # Or what was cut could come back once a new segment follows.
            segment.sync()
        segment.end_indexes()
        # A process that died left bytes that were never synced: the next flush must cover them.
        segment.log.version += 1
        return broken

    def _remove_from(self, at: i64, reason: str) -> None:
        """Removes the segments from the `at`th on, the last first, one by one: a crash between two leaves no hole."""
        gone = self.segments[at:]
        gone.reverse()
        self.segments = self.segments[:at]
        self._cut_reason = self._cut_reason or reason
        for segment in gone:
            self._cut_bytes += segment.size
            self._cut_segments += 1
            segment.remove_files()
            self._fs.sync_directory(self.directory)

    def _drop_everything_below_log_start(self) -> None:
        """A log that ends before its own start holds nothing anyone may read."""
        if self.log_end < self.log_start:
            self._remove_from(0, f"it ends at offset {self.log_end}, before its start {self.log_start}")
            self.epochs.clear()
            self.producers.start_at(self.log_start)

    def _begin(self) -> None:
        segment = self._segment(self.log_start, False)
        segment.create()
        self._fs.sync_directory(self.directory)
        self.segments = [segment]
        self.log_end = self.log_start

    def _load_producers(self) -> None:
        self.producers.remove_stray([segment.base_offset for segment in self.segments])
        # A snapshot does not say when a producer was heard of. Of those that wrote to the last segment nobody knows
        # better than its file.
        last = self.segments[-1] if self.segments[-1].size > 0 or len(self.segments) == 1 else self.segments[-2]
        heard_ms: i64 = self._fs.modified_ms(last.log.path)
        self.producers.reload(self.segments[0].base_offset, self.log_end, self.now_ms, last.base_offset, heard_ms)
        replay_producers(self.segments, self.producers, self.log_end, True)
        self.producers.forget_silent(self.now_ms)
        self.producers.take_snapshot(sync=False)
        self.producers.remove_doubted()
