"""Opening a log: what a clean stop left is taken as it is, what a crash left is recovered.

After a clean stop no batch is read but those after the active segment's last index entry, to learn the log end. They
must reach to the end of the file, and the log to the recovery point: a log that was cut short since it was closed is a
`StorageError`, and never written on. After any other stop every segment from the recovery point on is read whole:

- At or past the recovery point the log is cut at the first batch that is not whole, sound and next, whatever follows:
  unsynced writes reach a disk in any order (D4). Below it nothing is ever cut: that is a `StorageError`.
- Indexes, transaction index, leader epochs and producer state are written anew from the batches (D6). So are leader
  epochs whose file makes no sense, whatever the stop was.
- Of the segment before them the last entry of the time index is looked for, which is the last to become durable.
- Doing it again changes nothing, and being interrupted loses nothing: only what is not durable is ever removed (D3).

Leftovers are finished or undone as Kafka does it: `.deleted` goes; `.cleaned` goes, with every `.swap` at or past it
(an interrupted split, KAFKA-6264); what is `.swap` then is complete, and takes the place of the segments it was made
from; an index without a log goes.
"""

from mypy_extensions import i64

from mainstem.core.log.config import LogConfig
from mainstem.core.log.epochs import LeaderEpochs
from mainstem.protocol.errors import RemoteError
from mainstem.storage import names
from mainstem.storage.checkpoint import TEMPORARY_SUFFIX, MalformedFileError
from mainstem.storage.errors import StorageError
from mainstem.storage.leader_epoch_file import read_leader_epochs
from mainstem.storage.log import DEFAULT_PRODUCER_EXPIRATION_MS, Jitter, Log, no_jitter
from mainstem.storage.open_files import OpenFiles
from mainstem.storage.producer_store import ProducerStore
from mainstem.storage.replay import apply_batch, replay_producers
from mainstem.storage.scan import BatchScan, HeaderScan
from mainstem.storage.segment import Segment
from mainstem.storage.txn_index import AbortedTransaction


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
) -> Log:
    """Opens the log in `directory`, which must exist, or begins one there. Blocks.

    The offsets are those of the checkpoint files; `clean` says that the last stop was. StorageError where the files
    are not what they were when they were declared durable.
    """
    loader = _Loader(files, directory, config, now_ms, log_start, recovery_point, producer_expiration_ms, jitter)
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
        producer_expiration_ms: i64,
        jitter: Jitter,
    ) -> None:
        self.directory = directory
        self.config = config
        self.now_ms: i64 = now_ms
        self.log_start: i64 = log_start
        self.recovery_point: i64 = recovery_point
        self.log_end: i64 = 0
        self.segments: list[Segment] = []
        self.epochs = LeaderEpochs([])
        self.producers = ProducerStore(files.fs, directory, producer_expiration_ms)
        self._files = files
        self._fs = files.fs
        self._jitter = jitter
        self._kafka_left = False

    def load(self, clean: bool, high_watermark: i64) -> Log:
        listing = self._fs.list_directory(self.directory)
        if self._finish_leftovers(listing):
            listing = self._fs.list_directory(self.directory)
        self._find_segments(listing)
        self._read_epochs(clean)
        self.producers.find_snapshots(listing)
        if self.segments:
            self.log_start = max(self.log_start, self.segments[0].base_offset)
            if clean:
                self.log_end = self.segments[-1].read_next_offset()
            else:
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
            # What was removed must not come back beside what is written from now on.
            self._fs.sync_directory(self.directory)
        return Log(
            self._files,
            self.directory,
            self.config,
            self.segments,
            self.epochs,
            self.producers,
            self.log_start,
            min(self.recovery_point, self.log_end),
            self.log_end,
            high_watermark,
            self.now_ms,
            self._jitter,
        )

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

    def _finish_leftovers(self, listing: list[str]) -> bool:
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
        for segment in self.segments[:count]:
            segment.remove_files()
        self.segments = self.segments[count:]

    def _first_to_recover(self) -> i64:
        first: i64 = len(self.segments) - 1
        while first > 0 and self.segments[first].base_offset > self.recovery_point:
            first -= 1
        return first

    def _recover(self) -> None:
        self._kafka_left = self._is_preallocated(self.segments[-1])
        first: i64 = self._first_to_recover()
        if first > 0:
            self._complete_time_index(self.segments[first - 1])
        start: i64 = self.segments[first].base_offset
        self.producers.reload(self.segments[0].base_offset, start, self.now_ms)
        replay_producers(self.segments[:first], self.producers, start, True)
        self.producers.take_snapshot(sync=False)
        self.log_end = start
        at: i64 = first
        while at < len(self.segments):
            segment = self.segments[at]
            if segment.base_offset != self.log_end and not self._may_follow(segment):
                self._remove_from(at)
                break
            cut = self._recover_segment(segment)
            if at + 1 < len(self.segments):
                self.producers.take_snapshot(sync=False)
            at += 1
            if cut:
                self._remove_from(at)
                break

    def _complete_time_index(self, segment: Segment) -> None:
        """Of a segment whose batches are durable: a roll leaves the last entry of its time index to the next flush."""
        if not segment.has_last_time_entry():
            segment.rebuild_indexes()
        # A process that died may have left it unsynced: the next flush must cover it.
        segment.time_index.ref.version += 1

    def _is_preallocated(self, segment: Segment) -> bool:
        """Whether the segment's index has the size and the zeros that only a running Kafka gives it."""
        index = segment.offset_index
        path = index.ref.path
        size: i64 = index.max_entries * index.entry_bytes
        if size == 0 or not self._fs.exists(path) or self._fs.file_size(path) != size:
            return False
        file = index.ref.pin()
        try:
            return not any(file.read_at(size - index.entry_bytes, index.entry_bytes))
        finally:
            index.ref.unpin()

    def _may_follow(self, segment: Segment) -> bool:
        """Whether a segment may begin past where the one before it ends.

        Compaction leaves such gaps, below the recovery point, where all is as it was. Past it nothing is compacted
        and every segment begins where the one before it ends; so a segment is missing, or the end of one, and what
        comes after is no prefix of what was written. Kafka may compact past the recovery point that it last wrote
        down, and its gaps are let be.
        """
        if segment.base_offset < self.log_end:
            raise StorageError(segment.log.path, f"the segment before it goes on to offset {self.log_end}")
        return self.log_end < self.recovery_point or (self.config.compact and self._kafka_left)

    def _recover_segment(self, segment: Segment) -> bool:
        """Checks every batch and writes what is kept beside them anew; whether the segment was cut."""
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
            segment.cut_data(valid)
            # Or what was cut could come back once a new segment follows.
            segment.sync()
        segment.end_indexes()
        # A process that died left bytes that were never synced: the next flush must cover them.
        segment.log.version += 1
        return broken != ""

    def _remove_from(self, at: i64) -> None:
        """Removes the segments from the `at`th on, the last first, one by one: a crash between two leaves no hole."""
        gone = self.segments[at:]
        gone.reverse()
        self.segments = self.segments[:at]
        for segment in gone:
            segment.remove_files()
            self._fs.sync_directory(self.directory)

    def _drop_everything_below_log_start(self) -> None:
        """A log that ends before its own start holds nothing anyone may read."""
        if self.log_end < self.log_start:
            self._remove_from(0)
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
