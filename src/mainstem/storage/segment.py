"""One segment of a log: a `.log` file of batches, its three indexes, and what is remembered about them.

Rules, all of them Kafka's:
- The name is the base offset; every offset inside lies less than 2^31 after it.
- A batch gets index entries when more than `index.interval.bytes` were appended since the last one; the count starts
  anew when a segment is opened.
- The largest timestamp and the last offset of the batch that brought it go into the time index with every index
  entry, and once more when the segment is rolled or closed.
- Age, for rolling, counts from the first batch's largest timestamp; without one, from when the segment was made.

`size` counts the bytes that were written; it moves only after they are (D1), and nothing past it is ever read. The
last few batches are remembered, because that is where consumers and followers read: finding them touches no file.
"""

from collections.abc import Sequence
from typing import Final

from mypy_extensions import i64

from mainstem.core.log.compaction import RELATIVE_MAX
from mainstem.protocol.batch import NO_TIMESTAMP, BatchView
from mainstem.protocol.varint import I64_MAX
from mainstem.storage import names
from mainstem.storage.errors import StorageError
from mainstem.storage.flushing import FlushJob
from mainstem.storage.fs import File
from mainstem.storage.offset_index import OffsetIndex
from mainstem.storage.open_files import FileRef, OpenFiles
from mainstem.storage.scan import HeaderScan, find_batch
from mainstem.storage.time_index import TimeIndex
from mainstem.storage.txn_index import TxnIndex

UNKNOWN_TIMESTAMP: Final = -2
"""Only the batches tell it."""

_RECENT_MAX: Final = 64


class Found:
    """Where a batch lies in its segment."""

    __slots__ = ("base_offset", "position", "size")

    def __init__(self, base_offset: i64, position: i64, size: i64) -> None:
        self.base_offset: i64 = base_offset
        self.position: i64 = position
        self.size: i64 = size


class Segment:
    def __init__(
        self,
        files: OpenFiles,
        directory: str,
        base_offset: i64,
        index_interval_bytes: i64,
        index_max_bytes: i64,
        jitter_ms: i64,
        now_ms: i64,
        has_txn_index: bool,
        suffix: str = "",
    ) -> None:
        def path(extension: str) -> str:
            return f"{directory}/{names.offset_name(base_offset, extension)}{suffix}"

        self.base_offset: i64 = base_offset
        self.size: i64 = 0
        self.created_ms: i64 = now_ms
        self.jitter_ms: i64 = jitter_ms
        self.log: FileRef = files.ref(path(names.LOG))
        self.offset_index = OffsetIndex(files.ref(path(names.OFFSET_INDEX)), base_offset, index_max_bytes)
        self.time_index = TimeIndex(files.ref(path(names.TIME_INDEX)), base_offset, index_max_bytes)
        self.txn_index = TxnIndex(files.ref(path(names.TXN_INDEX)), base_offset, files.fs, has_txn_index)
        self._fs = files.fs
        self._index_interval_bytes: i64 = index_interval_bytes
        self._bytes_since_index_entry: i64 = 0
        self._first_timestamp: i64 = NO_TIMESTAMP
        self._first_timestamp_known = False
        self._max_timestamp: i64 = NO_TIMESTAMP
        self._max_timestamp_offset: i64 = base_offset
        self._max_timestamp_known = False
        self._indexes_checked = False
        self.reindexed: i64 = 0
        """How often its indexes were built anew: what a reader says of older ones is out of date."""
        self._recent_last_offsets: list[int] = []
        self._recent_base_offsets: list[int] = []
        self._recent_positions: list[int] = []

    def __repr__(self) -> str:
        return f"Segment({self.base_offset}, {self.size} bytes)"

    # -- making and opening --------------------------------------------------------------------------------------

    def create(self) -> None:
        """Makes the three files, empty. Their names are durable after the directory was synced."""
        file = self.log.pin(create=True)
        try:
            if file.size() > 0:
                file.truncate(0)
        finally:
            self.log.unpin()
        # A new file has a size and a name to sync, though it has no bytes.
        self.log.version += 1
        self.offset_index.create()
        self.time_index.create()
        self._indexes_checked = True
        self._max_timestamp_known = True

    def attach(self, size: i64) -> None:
        """Takes over a file of `size` bytes that is there."""
        self.size = size

    def index_damage(self) -> str:
        """Loads both indexes, the first time; why they cannot be those of this segment, or nothing where they can."""
        if self._indexes_checked:
            return ""
        try:
            self.offset_index.check(self.size)
            self.time_index.check(self.size)
        except (FileNotFoundError, StorageError) as error:
            return str(error)
        self._indexes_checked = True
        return ""

    def check_indexes(self) -> None:
        """Loads both indexes, the first time; one that is missing or cannot be right is built anew. May block."""
        if self.index_damage():
            self.rebuild_indexes()

    def has_last_time_entry(self) -> bool:
        """Whether the time index ends with the largest timestamp, as a roll leaves it. May block."""
        if self.index_damage():
            return False
        largest: i64 = NO_TIMESTAMP
        largest_at: i64 = self.base_offset
        index, log = self.offset_index.ref.pin(), self.log.pin()
        try:
            # Every entry of the offset index came with one of the time index, if that was due.
            scan = self.scan_in(index, log, self.size, self.offset_index.last_offset, False)
            while scan.advance():
                if scan.header.max_timestamp > largest:
                    largest = scan.header.max_timestamp
                    largest_at = scan.header.last_offset
        except StorageError:
            return False
        finally:
            self.log.unpin()
            self.offset_index.ref.unpin()
        last: i64 = self.time_index.last_timestamp
        # An earlier batch may have had the same timestamp.
        return largest < last or (largest == last and self.time_index.last_offset <= largest_at)

    def rebuild_indexes(self) -> None:
        """Writes both indexes from the batches, as an append of each of them would have. Blocks."""
        file = self.log.pin()
        try:
            self.begin_indexes()
            scan = HeaderScan(file, 0, self.size, False)
            next_offset: i64 = self.base_offset
            while scan.advance():
                self.check_follows(scan.header, next_offset, scan.position)
                self.index_batch(scan.header, scan.position)
                next_offset = scan.header.next_offset
        finally:
            self.log.unpin()
            self.end_indexes()
        # Below the recovery point nothing else would make them durable.
        self._sync([self.offset_index.ref, self.time_index.ref])

    def check_follows(self, batch: BatchView, next_offset: i64, position: i64) -> None:
        """StorageError where a batch's offsets cannot be those that come next here: no checksum covers them."""
        if batch.base_offset < next_offset or not self.can_hold(batch.last_offset):
            what = f"a batch with offsets {batch.base_offset} to {batch.last_offset} where {next_offset} is next"
            raise StorageError(self.log.path, what, position)

    def indexes_rebuilt(self, max_timestamp: i64, max_timestamp_offset: i64) -> None:
        """Both were written anew in a thread (`reindexing`), and this was seen on the way."""
        self._indexes_checked = True
        self.reindexed += 1
        self.learn_max_timestamp(max_timestamp, max_timestamp_offset)

    @property
    def index_interval_bytes(self) -> i64:
        return self._index_interval_bytes

    def begin_indexes(self) -> None:
        """Works both indexes out again; `index_batch` for every batch and `end_indexes` must follow."""
        self.offset_index.begin_anew()
        self.time_index.begin_anew()
        self._indexes_checked = True
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = self.base_offset
        self._max_timestamp_known = True
        self._bytes_since_index_entry = 0
        self._forget_recent()

    def end_indexes(self) -> None:
        self._bytes_since_index_entry = 0
        self.time_index.append_if_later(self._max_timestamp, self._max_timestamp_offset)
        self.offset_index.end_anew()
        self.time_index.end_anew()

    # -- writing -------------------------------------------------------------------------------------------------

    def can_hold(self, offset: i64) -> bool:
        """Whether `offset` can be kept relative to the base (KAFKA-4451, KAFKA-6264)."""
        relative: i64 = offset - self.base_offset
        return 0 <= relative <= RELATIVE_MAX

    def should_roll(
        self,
        bytes_max: i64,
        age_max_ms: i64,
        incoming_bytes: i64,
        incoming_timestamp: i64,
        last_offset: i64,
        now_ms: i64,
    ) -> bool:
        """Whether a new segment must begin before batches of `incoming_bytes` that end at `last_offset`."""
        if self.size > bytes_max - incoming_bytes:
            return True
        if not self.can_hold(last_offset):
            return True
        self.check_indexes()
        if self.offset_index.is_full or self.time_index.is_full:
            return True
        return self.size > 0 and self.waited_ms(now_ms, incoming_timestamp) > age_max_ms - self.jitter_ms

    def waited_ms(self, now_ms: i64, timestamp: i64) -> i64:
        """How long this segment has been taking batches, by their timestamps where they have one."""
        first: i64 = self.first_timestamp
        if first >= 0:
            return timestamp - first
        return now_ms - self.created_ms

    @property
    def first_timestamp(self) -> i64:
        """The first batch's largest timestamp, or -1."""
        if not self._first_timestamp_known and self.size > 0:
            file = self.log.pin()
            try:
                scan = HeaderScan(file, 0, self.size, False)
                if scan.advance():
                    self._first_timestamp = scan.header.max_timestamp
            finally:
                self.log.unpin()
            self._first_timestamp_known = True
        return self._first_timestamp

    def write(self, buffers: Sequence[bytes | memoryview], size: i64) -> i64:
        """Writes at the end and returns the position. The caller indexes what it wrote."""
        position: i64 = self.size
        file = self.log.pin()
        try:
            self.log.version += 1
            file.write_at(position, buffers)
        finally:
            self.log.unpin()
        self.size = position + size
        return position

    def index_written(self, base_offset: i64, last_offset: i64, max_timestamp: i64, position: i64, size: i64) -> None:
        """Takes note of one batch that was written at `position`."""
        if position == 0:
            self._first_timestamp = max_timestamp
            self._first_timestamp_known = True
        self._load_max_timestamp()
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._max_timestamp_offset = last_offset
        if self._bytes_since_index_entry > self._index_interval_bytes:
            if self._is_built_anew(last_offset, position):
                return  # this batch was among those that were read for it
            self.offset_index.append(last_offset, position)
            self.time_index.append_if_later(self._max_timestamp, self._max_timestamp_offset)
            self._bytes_since_index_entry = 0
        self._bytes_since_index_entry += size
        self._remember(base_offset, last_offset, position)

    def index_batch(self, batch: BatchView, position: i64) -> None:
        self.index_written(batch.base_offset, batch.last_offset, batch.max_timestamp, position, batch.size)

    def become_inactive(self) -> None:
        """What Kafka does to a segment that is rolled or closed: the last time index entry, and no tails."""
        if self._max_timestamp_known and not self._is_built_anew():
            self.time_index.append_if_later(self._max_timestamp, self._max_timestamp_offset)
        if self.offset_index.loaded:
            self.offset_index.trim()
        if self.time_index.loaded:
            self.time_index.trim()
        self._forget_recent()

    def _is_built_anew(self, offset: i64 = I64_MAX, position: i64 = I64_MAX) -> bool:
        """Before an entry is added: whether that takes new indexes, which have it already. May block.

        The last entry that was read may be past all batches, which only shows when a later one comes. That of the
        offset index, where one is to be added, is of the batch that ends with `offset` at `position`.
        """
        self.check_indexes()
        is_sound: bool = not self.time_index.is_ahead_of(self._max_timestamp, self._max_timestamp_offset)
        if is_sound and not self.offset_index.is_ahead_of(offset, position):
            return False
        self.rebuild_indexes()
        return True

    def truncate_to(self, offset: i64, now_ms: i64) -> None:
        """Removes every batch that ends at or past `offset`, and what the indexes say about them."""
        self.check_indexes()
        found = self.locate(offset)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        if found is not None:
            self.cut_data(found.position)
        if self.size == 0:
            self.created_ms = now_ms
            self._first_timestamp = NO_TIMESTAMP
            self._first_timestamp_known = False
        self._bytes_since_index_entry = 0
        self._scan_max_timestamp()

    def sync(self) -> None:
        """Makes the files durable. Blocks."""
        self._sync(self.refs())

    def has_unsynced(self, flush: FlushJob | None) -> bool:
        """Whether something was written to the files that no flush has made durable, nor `flush`, under way, will."""
        return any(ref.dirty and not (flush is not None and flush.covers(ref)) for ref in self.refs())

    def _sync(self, refs: list[FileRef]) -> None:
        for ref in refs:
            if ref.dirty:
                file = ref.pin()
                try:
                    version: i64 = ref.version
                    file.sync()
                    ref.synced_version = version
                finally:
                    ref.unpin()

    def cut_data(self, size: i64) -> None:
        """Cuts the file only; the indexes are the caller's."""
        file = self.log.pin()
        try:
            self.log.version += 1
            file.truncate(size)
        finally:
            self.log.unpin()
        self.size = size
        self._forget_recent()

    # -- reading -------------------------------------------------------------------------------------------------

    def locate_recent(self, offset: i64) -> Found | None:
        """The batch that holds `offset`, or comes first after it, if it was among the last appended."""
        lasts = self._recent_last_offsets
        count: i64 = len(lasts)
        if count == 0 or i64(lasts[count - 1]) < offset or i64(self._recent_base_offsets[0]) > offset:
            return None
        low: i64 = 0
        high: i64 = count - 1
        while low < high:
            middle: i64 = (low + high) // 2
            if i64(lasts[middle]) < offset:
                low = middle + 1
            else:
                high = middle
        position: i64 = self._recent_positions[low]
        end: i64 = self._recent_positions[low + 1] if low + 1 < count else self.size
        return Found(self._recent_base_offsets[low], position, end - position)

    def locate(self, offset: i64) -> Found | None:
        """The first batch that ends at or after `offset`; None where this segment ends before it. May block."""
        found = self.locate_recent(offset)
        if found is not None:
            return found
        log = self.log.pin()
        try:
            return _found(self._scan_for(log, offset), offset)
        finally:
            self.log.unpin()

    def locate_in(self, index: File, log: File, end: i64, offset: i64, cached: bool) -> Found | None:
        """The same by the files alone, which the caller has pinned: this is what a thread may do.

        StorageError where the index or the batches are not what was written. `locate_without_index` tells which.
        """
        return _found(self.scan_in(index, log, end, offset, cached), offset)

    def locate_without_index(self, log: File, end: i64, offset: i64) -> Found | None:
        """The same from the first batch on: slow, and never wrong about which batch it is. Blocks."""
        return _found(HeaderScan(log, 0, end, False), offset)

    def scan_in(self, index: File, log: File, end: i64, offset: i64, cached: bool) -> HeaderScan:
        """From a batch at or before `offset` on, by the index. StorageError where there is none at its place.

        An entry is believed only as far as the batch it names bears it out: one changed bit of it would otherwise
        make a reader pass over records, or take the middle of a batch for its beginning.
        """
        position: i64 = self.offset_index.lookup(index, offset, cached)
        if position != 0 and not 0 < position < end:
            raise StorageError(self.offset_index.ref.path, f"an entry says {position}; the segment has {end} bytes")
        scan = HeaderScan(log, position, end, cached)
        if position != 0:
            found: i64 = scan.peek().base_offset
            if found < self.base_offset or found > offset:
                raise StorageError(
                    self.offset_index.ref.path, f"offset {offset} is sought at byte {position}, where {found} begins"
                )
        return scan

    def bound_in(self, index: File, log: File, end: i64, position: i64, cached: bool) -> i64:
        """An offset at or past all that ends at `position`, by the index; -1 where it has none, or is wrong."""
        try:
            offset: i64 = self.offset_index.offset_at_or_after(index, position, cached)
            if offset >= 0 and self.scan_in(index, log, end, offset, cached).position >= position:
                return offset
        except StorageError:
            return -1
        return -1

    def _scan_for(self, log: File, offset: i64) -> HeaderScan:
        """The same; an index that is wrong is built anew. May block."""
        self.check_indexes()
        index = self.offset_index.ref.pin()
        try:
            return self.scan_in(index, log, self.size, offset, False)
        except StorageError:
            self.rebuild_indexes()
            return self.scan_in(index, log, self.size, offset, False)
        finally:
            self.offset_index.ref.unpin()

    def position_before(self, offset: i64) -> i64:
        """Where a batch begins that is not past `offset`: by the index, or 0 where that does not bear it out."""
        index, log = self.offset_index.ref.pin(), self.log.pin()
        try:
            return self.scan_in(index, log, self.size, offset, False).position
        except StorageError:
            return 0
        finally:
            self.log.unpin()
            self.offset_index.ref.unpin()

    def end_before(self, offset: i64) -> i64:
        """Where the last batch ends that ends before `offset`: the log end, were the rest cut. May block."""
        end: i64 = self.base_offset
        log = self.log.pin()
        try:
            scan = self._scan_for(log, offset - 1)
            while scan.advance() and scan.header.last_offset < offset:
                end = scan.header.next_offset
        finally:
            self.log.unpin()
        return end

    def read_next_offset(self) -> i64:
        """The offset after the last batch, found from the last index entry on; the base where there is none.

        StorageError where the file does not end with a whole batch, as it does when it is closed. May block.
        """
        if self.size == 0:
            # Most of ten thousand partitions are empty or idle: no file of theirs is opened before it is used.
            return self.base_offset
        next_offset: i64 = self.base_offset
        log = self.log.pin()
        try:
            self.check_indexes()
            scan = self._scan_for(log, self.offset_index.last_offset)
            while scan.advance():
                next_offset = scan.header.next_offset
                if not self._first_timestamp_known and scan.position == 0:
                    self._first_timestamp = scan.header.max_timestamp
                    self._first_timestamp_known = True
        finally:
            self.log.unpin()
        return next_offset

    @property
    def max_timestamp(self) -> i64:
        """The largest timestamp in this segment, or -1."""
        self._load_max_timestamp()
        return self._max_timestamp

    @property
    def max_timestamp_offset(self) -> i64:
        """The last offset of the batch that brought it."""
        self._load_max_timestamp()
        return self._max_timestamp_offset

    def sound_max_timestamp(self) -> i64:
        """The same, or `UNKNOWN_TIMESTAMP` where the indexes are missing or wrong. Builds nothing."""
        if not self._max_timestamp_known and self.index_damage():
            return UNKNOWN_TIMESTAMP
        return self.max_timestamp

    @property
    def is_max_timestamp_known(self) -> bool:
        """Whether it takes no file to tell it."""
        return self._max_timestamp_known

    @property
    def is_age_known(self) -> bool:
        """Whether it takes no file to tell its first timestamp and its largest."""
        return self._indexes_checked and self._max_timestamp_known and (self._first_timestamp_known or self.size == 0)

    def learn_age(self) -> None:
        """Opens its files, where it must."""
        self._load_max_timestamp()
        _ = self.first_timestamp

    def learn_max_timestamp(self, timestamp: i64, offset: i64) -> None:
        """It was found in the files, unless it became known since."""
        if not self._max_timestamp_known:
            self._max_timestamp = timestamp
            self._max_timestamp_offset = offset
            self._max_timestamp_known = True

    def largest_timestamp(self) -> i64:
        """What retention goes by: the largest timestamp, or when the file was last written to."""
        timestamp: i64 = self.max_timestamp if self.size > 0 else NO_TIMESTAMP
        return timestamp if timestamp >= 0 else self._fs.modified_ms(self.log.path)

    def _load_max_timestamp(self) -> None:
        """From the time index, whose last entry a roll, a clean close and a recovery all leave there."""
        if self._max_timestamp_known:
            return
        self.check_indexes()
        self._max_timestamp = self.time_index.last_timestamp
        self._max_timestamp_offset = self.time_index.last_offset
        self._max_timestamp_known = True

    def _scan_max_timestamp(self) -> None:
        """After a cut, when batches past the last entry may be later than it."""
        self._max_timestamp = self.time_index.last_timestamp
        self._max_timestamp_offset = self.time_index.last_offset
        self._max_timestamp_known = True
        log = self.log.pin()
        try:
            scan = self._scan_for(log, self._max_timestamp_offset)
            while scan.advance():
                if scan.header.max_timestamp > self._max_timestamp:
                    self._max_timestamp = scan.header.max_timestamp
                    self._max_timestamp_offset = scan.header.last_offset
        finally:
            self.log.unpin()

    def _remember(self, base_offset: i64, last_offset: i64, position: i64) -> None:
        positions = self._recent_positions
        if len(positions) >= _RECENT_MAX:
            half = _RECENT_MAX // 2
            del positions[:half]
            del self._recent_base_offsets[:half]
            del self._recent_last_offsets[:half]
        positions.append(position)
        self._recent_base_offsets.append(base_offset)
        self._recent_last_offsets.append(last_offset)

    def _forget_recent(self) -> None:
        self._recent_positions.clear()
        self._recent_base_offsets.clear()
        self._recent_last_offsets.clear()

    # -- the files -----------------------------------------------------------------------------------------------

    def open_apart(self, ref: FileRef) -> File:
        """One of its files in a handle of its own, which a thread may open and must close. Blocks."""
        return self._fs.open(ref.path)

    def refs(self) -> list[FileRef]:
        refs = [self.log, self.offset_index.ref, self.time_index.ref]
        if self.txn_index.exists:
            refs.append(self.txn_index.ref)
        return refs

    def add_suffix(self, suffix: str) -> None:
        """Renames the files that are there and have it not, in Kafka's order."""
        for ref in self.refs():
            if not ref.path.endswith(suffix) and self._fs.exists(ref.path):
                ref.rename(self._fs, ref.path + suffix)

    def change_suffix(self, old: str, new: str) -> None:
        for ref in self.refs():
            ref.rename(self._fs, ref.path.removesuffix(old) + new)

    def remove_suffix(self, suffix: str) -> None:
        for ref in self.refs():
            if self._fs.exists(ref.path):
                ref.rename(self._fs, ref.path.removesuffix(suffix))

    def relocate(self, directory: str) -> None:
        """Its folder is called `directory` now."""
        for ref in (self.log, self.offset_index.ref, self.time_index.ref, self.txn_index.ref):
            ref.relocate(f"{directory}/{ref.path.rpartition('/')[2]}")

    def discard(self) -> None:
        """Closes the files once nobody reads them."""
        for ref in self.refs():
            ref.discard()

    def remove_files(self) -> None:
        """Removes the files; readers that hold one keep it until they let go."""
        for ref in self.refs():
            ref.discard()
            if self._fs.exists(ref.path):
                self._fs.remove(ref.path)


def _found(scan: HeaderScan, offset: i64) -> Found | None:
    if not find_batch(scan, offset):
        return None
    return Found(scan.header.base_offset, scan.position, scan.size)
