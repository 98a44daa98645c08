"""One cleaning of one log: builds the map of newest offsets, then writes groups of segments anew and swaps them in.

The work is cut into small steps, so that it never holds up who produces or fetches:

    while cleaning.turn(now_ms):        # on the event loop, short: pins files, swaps a finished group in
        while cleaning.step():          # on the loop or in a thread: a bounded number of bytes and records
            ...

`step` touches only what `turn` pinned for it: inactive segments, which nobody writes to, and `.cleaned` files, which
nobody else knows of. Where `blocks` says so the next step waits for the disk and belongs in a thread; any other reads
what may have to come from the disk, and computes. Where `is_swapping` says so it gives files other names, and the
folder must keep its own until the next turn.

Rules:
- Nothing is swapped in that is not wholly on disk (C6, `swapping`). What was swapped in stays, whatever comes after:
  every group is sound by itself.
- A cleaning whose log was truncated, closed or deleted, or that lost a segment to retention, ends without a trace
  (`is_aborted`); one that is told to end while it swaps ends after that. A failed read or write fails the log (D5).
  Bytes that are no batch, or do not match their CRC, make the log uncleanable (`failure`) and stay as they are: writing
  them anew would hide them behind a good CRC.
- A segment whose indexes are missing or wrong is not cleaned before they were built anew (`reindexing`): the log is
  told, and this ends.
- A batch whose records cannot be read though its CRC holds is kept whole and counted (`Stats.unreadable_batches`).
- Where the file system has no room for the copy of a group, it ends before that (`no_room`, `cleaning_room`).
- Records past what fits the map stay; the next cleaning goes on from there.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from mypy_extensions import i64

from mainstem.core.log.compaction import Aborted, TransactionTracker, group_segments, judge
from mainstem.protocol.batch import BatchView
from mainstem.protocol.errors import RemoteError
from mainstem.storage import names
from mainstem.storage.aborted import AbortedJob
from mainstem.storage.batch_filter import CHANGED, DROPPED, BatchFilter, KeyMapper
from mainstem.storage.cleaning_map import CleaningMap
from mainstem.storage.cleaning_room import NoRoom, bytes_of, find_no_room
from mainstem.storage.errors import StorageError
from mainstem.storage.fs import File
from mainstem.storage.log import Log
from mainstem.storage.offset_index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from mainstem.storage.open_files import FileRef, OpenFiles
from mainstem.storage.scan import BatchScan
from mainstem.storage.segment import Segment
from mainstem.storage.swapping import Swap
from mainstem.storage.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from mainstem.storage.txn_index import BLOCK_ENTRIES, AbortedTransaction
from mainstem.storage.txn_index import ENTRY_BYTES as TXN_ENTRY_BYTES

STEP_BYTES: Final = 64 << 10
STEP_RECORDS: Final = 256
_CHUNK_BYTES: Final = 256 << 10
"""How much is read at once: less than recovery reads, which nobody waits behind."""
_BATCH_RECORDS: Final = 3
"""What a batch costs by itself, counted in records."""
_OPENED_SHARE: Final = 8
"""Of the bytes a compressed batch expands to, one in so many counts: making them lets others run, copying does not."""

_BLOCKS_A_STEP: Final = 4
"""How many blocks of transaction indexes one step reads, or writes."""
_SEGMENTS_A_TURN: Final = 4
"""How many segments' indexes one turn opens to look at them."""

_CHECKING: Final = -1
_MAPPING: Final = 0
_PLANNING: Final = 1
_CLEANING: Final = 2
_SYNCING: Final = 3
_SWAPPING: Final = 4
_OVER: Final = 5


class Stats:
    """What a cleaning did so far."""

    def __init__(self) -> None:
        self.bytes_mapped: i64 = 0
        self.bytes_read: i64 = 0
        self.bytes_written: i64 = 0
        self.records_read: i64 = 0
        self.records_kept: i64 = 0
        self.unreadable_batches: i64 = 0
        self.map_utilization: float = 0.0

    @property
    def io_bytes(self) -> i64:
        """What was read and written."""
        return self.bytes_mapped + self.bytes_read + self.bytes_written

    def __repr__(self) -> str:
        return (
            f"{self.records_kept} of {self.records_read} records kept, {self.bytes_read} bytes -> {self.bytes_written}"
        )


class Cleaning:
    """Of everything from `first_dirty` to `end`, or as much of it as fits the map: `cleaned_to` says how far."""

    def __init__(
        self,
        files: OpenFiles,
        log: Log,
        first_dirty: i64,
        end: i64,
        map_bytes: i64,
        load_factor: float,
        now_ms: i64,
    ) -> None:
        assert log.first_base_offset <= end <= log.active_segment.base_offset
        self.log = log
        self.first_dirty: i64 = first_dirty
        self.end: i64 = end
        self.cleaned_to: i64 = -1
        """Where the next cleaning begins, once this one has come to its end."""
        self.failure = ""
        """Why this log cannot be cleaned, if it cannot."""
        self.is_aborted = False
        self.no_room: NoRoom | None = None
        """Why it ended early, if that was why."""
        self.stats = Stats()
        self._files = files
        self._now_ms: i64 = now_ms
        self._truncations: i64 = log.truncations
        self._phase: i64 = _CHECKING
        self._unchecked = [segment for segment in log.segments if segment.base_offset < end]
        self._error: OSError | None = None
        self._pins: list[FileRef] = []
        segments = log.segments
        self._sources = [
            segment
            for at, segment in enumerate(segments)
            if segment.base_offset < end and segments[at + 1].base_offset > first_dirty
        ]
        self._at: i64 = -1
        self._keys = CleaningMap(map_bytes, max(0, end - first_dirty), load_factor)
        self._is_allocated = False
        self._is_map_full = False
        self._tracker = TransactionTracker()
        self._mapper = KeyMapper(self._keys, first_dirty)
        self._filter = BatchFilter(self._keys, now_ms, log.config.delete_retention_ms)
        self._batch: BatchView | None = None
        """The one that the mapper or the filter is in the middle of."""
        self._index_bytes: list[tuple[int, int]] = []
        self._groups: list[list[Segment]] = []
        self._copied_bytes: i64 = 0
        self._scan: BatchScan | None = None
        self._target: Segment | None = None
        self._to_sync: list[File] = []
        self._lookup: AbortedJob | None = None
        """Finds the aborted transactions of the segment that comes next."""
        self._kept_aborted: list[Aborted] = []
        """Those whose markers are in the new segment, to be written to its index from `_kept_at` on."""
        self._kept_at: i64 = 0
        self._kept_file: File | None = None
        self._swap: Swap | None = None
        self._buffers: list[bytes | memoryview] = []
        self._views: list[BatchView] = []

    def __repr__(self) -> str:
        return f"Cleaning({self.log!r}, {self.first_dirty}..{self.end}: {self.stats!r})"

    # -- on the loop ---------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        return self._phase == _OVER

    @property
    def is_done(self) -> bool:
        """Whether it came to its end: `cleaned_to` is then the new first dirty offset."""
        return self._phase == _OVER and not self.is_aborted and self.failure == ""

    @property
    def blocks(self) -> bool:
        """Whether the next step waits for the disk to sync."""
        return self._phase == _SYNCING or self._phase == _SWAPPING

    @property
    def is_swapping(self) -> bool:
        """Whether the next step gives a finished group its names."""
        return self._phase == _SWAPPING

    def turn(self, now_ms: i64) -> bool:
        """True where steps follow; False when it is over. StorageError where the disk failed, and with it the log."""
        if self._phase == _OVER:
            return False
        if self._lookup is None:
            self._unpin()
        if self._log_failed() or self.log.is_closed or self.log.truncations != self._truncations:
            self.abort()
            return False
        try:
            if self._error is not None:
                raise self._error
            if self.failure:
                self._end()
            elif self._lookup is not None:
                self._turn_lookup()
            elif self._phase == _CHECKING:
                self._turn_checking()
            elif self._phase == _MAPPING:
                self._turn_mapping()
            elif self._phase == _PLANNING:
                self._turn_planning()
            elif self._phase == _CLEANING:
                self._turn_cleaning()
            elif self._phase == _SYNCING:
                self._begin_swap(now_ms)
            else:
                self._finish_swap()
        except OSError as error:
            failure = self.log.fail(error)
            self.abort()
            raise failure from error
        except StorageError as damage:
            if self._log_failed():
                self.abort()
                raise
            # An index or a header that cannot be: found while a segment was looked up.
            self.failure = str(damage)
            self._end()
        return self._phase != _OVER

    def _log_failed(self) -> bool:
        """Asked anew each time: once `log.failure` was seen to be None, the compiler would take it to stay so."""
        return self.log.failure is not None

    def abort(self) -> None:
        """Ends it here, between two steps. What was swapped in stays; what was not is removed."""
        if self._phase == _OVER:
            return
        self._unpin()
        self.is_aborted = True
        swap = self._swap
        if swap is not None:
            # The log counts on it already; only a stop comes between.
            self._swap = None
            if not swap.has_run and not self._log_failed() and not self.log.is_closed:
                swap.run()
            with suppress(StorageError):  # the log has failed then, and says so from now on
                self.log.finish_restructuring(swap)
        self._end()

    def _end(self) -> None:
        self._unpin()
        self._phase = _OVER
        self._tracker = TransactionTracker()
        self._kept_aborted = []
        self.stats.map_utilization = self._keys.utilization
        self._keys = CleaningMap(0, 0)
        self._mapper = KeyMapper(self._keys, 0)
        self._filter = BatchFilter(self._keys, 0, 0)
        self._batch = None
        self._scan = None
        target = self._target
        self._target = None
        if target is None:
            return
        target.discard()
        if self.log.failure is None:
            try:
                target.remove_files()
            except OSError as error:
                self.log.fail(error)

    def _pin(self, ref: FileRef, create: bool = False) -> File:
        file = ref.pin(create)
        self._pins.append(ref)
        return file

    def _unpin(self) -> None:
        for ref in self._pins:
            ref.unpin()
        self._pins = []
        self._scan = None
        self._kept_file = None
        lookup = self._lookup
        self._lookup = None
        if lookup is not None:
            lookup.unpin()

    def _turn_checking(self) -> None:
        """Opens indexes, a few segments' at a time. One that is missing or wrong is built anew by who is told of it, in
        a thread, and the log cleaned another time."""
        following = self._unchecked[:_SEGMENTS_A_TURN]
        self._unchecked = self._unchecked[_SEGMENTS_A_TURN:]
        for segment in following:
            if not self.log.holds([segment]) or not self.log.has_sound_indexes(segment):
                self.abort()
                return
        if not self._unchecked:
            self._phase = _MAPPING
            self._turn_mapping()

    def _turn_mapping(self) -> None:
        self._at += 1
        if self._at == len(self._sources) or self._is_map_full:
            self._begin_planning()
            return
        segment = self._sources[self._at]
        if not self.log.holds([segment]):
            self.abort()
            return
        # A segment's at a time: those of all at once could hold the loop up.
        upper: i64 = self._sources[self._at + 1].base_offset if self._at + 1 < len(self._sources) else self.end
        self._lookup = self.log.seek_aborted(max(segment.base_offset, self.first_dirty), upper)
        if self._lookup is None:
            self._begin_scan()

    def _turn_lookup(self) -> None:
        """One segment's index was looked through. Their markers may be in later segments."""
        lookup = self._lookup
        assert lookup is not None
        asked = lookup.segment
        assert asked is not None
        if not self.log.holds([asked, self._sources[self._at]]):
            self.abort()
            return
        if not self.log.seek_further(lookup):
            self._lookup = None
            self._begin_scan()

    def _begin_scan(self) -> None:
        """What is known of the segment's transactions, the tracker knows: its batches are next."""
        segment = self._sources[self._at]
        start: i64 = 0
        if self._phase == _MAPPING and segment.base_offset < self.first_dirty:
            start = segment.position_before(self.first_dirty)
        if self._phase == _CLEANING:
            target = self._target
            assert target is not None
            for ref in target.refs():
                self._pin(ref)
        self._scan = BatchScan(self._pin(segment.log), start, segment.size, _CHUNK_BYTES)

    def _begin_planning(self) -> None:
        if not self._is_map_full:
            self._keys.latest_offset = self.end - 1
        self.cleaned_to = self._keys.latest_offset + 1
        self._phase = _PLANNING
        self._tracker = TransactionTracker()
        upper: i64 = min(self.cleaned_to, self.end)
        self._sources = [segment for segment in self.log.segments if segment.base_offset < upper]

    def _turn_planning(self) -> None:
        """Learns how large the indexes are, a few segments at a time, then says which segments become one."""
        sizes = self._index_bytes
        done = len(sizes)
        following = self._sources[done : done + _SEGMENTS_A_TURN]
        if not self.log.holds(following):
            self.abort()
            return
        for segment in following:
            offset_bytes: i64 = segment.offset_index.entries * OFFSET_ENTRY_BYTES
            time_bytes: i64 = segment.time_index.entries * TIME_ENTRY_BYTES
            sizes.append((offset_bytes, time_bytes))
        if len(sizes) == len(self._sources):
            self._groups = group_segments(self._sources, sizes, self.log.config, self.end)
            self._phase = _CLEANING
            self._begin_group()

    def _begin_group(self) -> None:
        if not self._groups:
            self._end()
            return
        self._sources = self._groups.pop(0)
        self._at = -1
        if not self.log.holds(self._sources):
            self.abort()
            return
        self.no_room = find_no_room(self._files.fs, self.log.directory, self._sources, self._copied_bytes, self._now_ms)
        if self.no_room is not None:
            self.abort()
            return
        config = self.log.config
        target = Segment(
            self._files,
            self.log.directory,
            self._sources[0].base_offset,
            config.index_interval_bytes,
            config.segment_index_bytes,
            0,
            self._now_ms,
            False,
            names.CLEANED,
        )
        target.create()
        self._target = target
        self._turn_cleaning()

    def _turn_cleaning(self) -> None:
        self._at += 1
        if self._at == len(self._sources):
            self._begin_syncing()
            return
        segment = self._sources[self._at]
        if not self.log.holds([segment]):
            self.abort()
            return
        self._lookup = self.log.seek_aborted(segment.base_offset, self.log.upper_offset(segment))
        if self._lookup is None:
            self._begin_scan()

    def _begin_syncing(self) -> None:
        target = self._target
        assert target is not None
        self._kept_aborted = self._tracker.take_kept()
        self._kept_at = 0
        if self._kept_aborted:
            target.txn_index.will_change()
            self._kept_file = self._pin(target.txn_index.ref, create=True)
        target.become_inactive()
        self._to_sync = [self._pin(ref) for ref in target.refs()]
        self._phase = _SYNCING

    def _begin_swap(self, now_ms: i64) -> None:
        target = self._target
        assert target is not None
        if not self.log.holds(self._sources):
            self.abort()
            return
        if self.log.is_restructuring:
            return  # retention is at it; the next turn asks again
        for ref in target.refs():
            ref.synced_version = ref.version
        self._target = None
        self._copied_bytes += bytes_of(self._files.fs, target)
        self._swap = self.log.begin_swap(self._sources, target, now_ms)
        self._phase = _SWAPPING

    def _finish_swap(self) -> None:
        swap = self._swap
        assert swap is not None
        if not swap.has_run:
            self.abort()  # its partition is on its way out
            return
        self._swap = None
        self.log.finish_restructuring(swap)
        self._phase = _CLEANING
        self._begin_group()

    # -- anywhere ------------------------------------------------------------------------------------------------

    def step(
        self,
        bytes_max: i64 = STEP_BYTES,
        records_max: i64 = STEP_RECORDS,
        breathe: Callable[[], None] | None = None,
    ) -> bool:
        """Does a little; False where `turn` is next. Failures wait for it too.

        Where files get other names, what must be durable first may be more than a little: hence `breathe`.
        """
        try:
            lookup = self._lookup
            if lookup is not None:
                return self._step_lookup(lookup)
            if self._phase == _MAPPING:
                return self._step_mapping(bytes_max, records_max)
            if self._phase == _CLEANING:
                return self._step_cleaning(bytes_max, records_max)
            if self._phase == _SYNCING:
                return self._step_syncing()
            if self._phase == _SWAPPING and self._swap is not None:
                self._swap.run(breathe)
        except StorageError as damage:
            self.failure = str(damage)
        except OSError as error:
            self._error = self.log.failed_beside = error
        return False

    def _next_batch(self, scan: BatchScan) -> BatchView | None:
        if not scan.advance():
            if scan.broken:
                raise StorageError(self._path(), scan.broken, scan.next_position)
            return None
        batch = scan.batch
        try:
            batch.check(batch.end)
        except RemoteError as error:
            raise StorageError(self._path(), error.message, scan.position) from error
        return batch

    def _path(self) -> str:
        return self._sources[self._at].log.path

    def _step_lookup(self, lookup: AbortedJob) -> bool:
        more = True
        blocks: i64 = 0
        while more and blocks < _BLOCKS_A_STEP:
            more = lookup.run_block()
            blocks += 1
        found, lookup.found = lookup.found, []
        self._tracker.add_aborted(
            [(each.first_offset, each.last_offset, each.producer_id, each.last_stable_offset) for each in found]
        )
        return more

    def _step_mapping(self, bytes_max: i64, records_max: i64) -> bool:
        if not self._is_allocated:
            self._is_allocated = not self._keys.allocate()
            return True
        scan = self._scan
        if scan is None:
            return False
        mapper = self._mapper
        size: i64 = 0
        records: i64 = 0
        while size < bytes_max and records < records_max:
            try:
                if mapper.is_busy:
                    records += mapper.step(records_max - records)
                else:
                    batch = self._next_batch(scan)
                    if batch is None:
                        return False
                    self._batch = batch
                    records += _BATCH_RECORDS
                    size += batch.size + self._begin_mapping(batch) // _OPENED_SHARE
            except RemoteError:
                pass  # kept whole when its turn comes
            if mapper.is_full:
                self._is_map_full = True
                return False
            if not mapper.is_busy:
                self._mapped()
        return True

    def _begin_mapping(self, batch: BatchView) -> i64:
        self.stats.bytes_mapped += batch.size
        if batch.is_control:
            self._tracker.is_spent_marker(batch)
            self._tracker.take_kept()  # whether it stays is decided when the batches are written
            return 0
        if self._tracker.is_aborted_data(batch):
            return 0
        # Where not even the first batch fits whole, a part of it is taken, or the cleaner would never get on.
        return self._mapper.begin(batch, self._keys.latest_offset >= self.first_dirty)

    def _mapped(self) -> None:
        batch = self._batch
        assert batch is not None
        self._batch = None
        if batch.last_offset >= self.first_dirty:
            self._keys.latest_offset = batch.last_offset

    def _step_cleaning(self, bytes_max: i64, records_max: i64) -> bool:
        scan = self._scan
        if scan is None:
            return False
        size: i64 = 0
        records: i64 = 0
        more = True
        while size < bytes_max and records < records_max:
            try:
                if self._filter.is_busy:
                    records += self._filter.step(records_max - records)
                else:
                    batch = self._next_batch(scan)
                    if batch is None:
                        more = False
                        break
                    self._batch = batch
                    records += _BATCH_RECORDS
                    size += batch.size
                    size += self._begin_filtering(batch) // _OPENED_SHARE
                if not self._filter.is_busy:
                    self._filtered()
            except RemoteError:
                self._keep_unreadable()
        self._write()
        return more

    def _begin_filtering(self, batch: BatchView) -> i64:
        self.stats.bytes_read += batch.size
        self.stats.records_read += batch.record_count
        verdict = judge(batch, self._tracker, self.log.producers.states, self.end, self._now_ms)
        return self._filter.begin(batch, verdict)

    def _filtered(self) -> None:
        batch = self._batch
        assert batch is not None
        self._batch = None
        self.stats.records_kept += self._filter.records_kept
        outcome: i64 = self._filter.outcome
        if outcome == CHANGED:
            self._keep(BatchView(self._filter.output, 0))
        elif outcome != DROPPED:
            self._keep(batch)

    def _keep_unreadable(self) -> None:
        batch = self._batch
        assert batch is not None
        self._batch = None
        self.stats.unreadable_batches += 1
        self.stats.records_kept += batch.record_count
        self._keep(batch)

    def _keep(self, batch: BatchView) -> None:
        self._views.append(batch)
        if batch.start == 0 and batch.size == len(batch.buffer):
            self._buffers.append(batch.buffer)
        else:
            self._buffers.append(memoryview(batch.buffer)[batch.start : batch.end])

    def _write(self) -> None:
        """Writes what the step kept, in one go."""
        views = self._views
        if not views:
            return
        target = self._target
        assert target is not None
        size: i64 = 0
        for view in views:
            size += view.size
            if not target.can_hold(view.last_offset):
                raise StorageError(self._path(), f"offset {view.last_offset} does not fit {target!r}")
        position: i64 = target.write(self._buffers, size)
        for view in views:
            target.index_batch(view, position)
            position += view.size
        self.stats.bytes_written += size
        self._views = []
        self._buffers = []

    def _step_syncing(self) -> bool:
        file = self._kept_file
        if file is not None:
            following = self._kept_aborted[self._kept_at : self._kept_at + _BLOCKS_A_STEP * BLOCK_ENTRIES]
            entries = [
                AbortedTransaction(producer_id, first, last, stable).to_bytes()
                for first, last, producer_id, stable in following
            ]
            file.write_at(self._kept_at * TXN_ENTRY_BYTES, [b"".join(entries)])
            self._kept_at += len(following)
            if self._kept_at == len(self._kept_aborted):
                self._kept_file = None
                self._kept_aborted = []
            return True
        if self._to_sync:
            self._to_sync.pop().sync()
            return True
        # The names, too: a `.cleaned` file that is there after a power cut undoes the swap, a missing one would not.
        self._files.fs.sync_directory(self.log.directory)
        return False
