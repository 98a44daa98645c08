"""Reading a log without moving its bytes: a read answers with a slice of a file, for `sendfile` or `pread`.

A `ReadJob` finds the slice in one segment. `try_run` does it if everything it needs is in memory, and says None if
not; `run` does it in any case and may block, so the event loop hands it to a thread. Whatever happens in a thread
happens on files that were pinned for it; pins are taken and given back on the loop, where `Log.finish_read` also
checks that the log was not cut meanwhile.

An index that is missing or wrong costs time and nothing else: the job reads without it, in a thread, and says so.

A slice begins with the whole batch that holds the offset, even if that is larger than was asked for (`min_one`), and
may end inside a batch, which clients leave out. It keeps its file open until `release`.
"""

from mypy_extensions import i64

from mainstem.storage.errors import WOULD_BLOCK, StorageError, WouldBlock
from mainstem.storage.fs import File
from mainstem.storage.open_files import FileRef
from mainstem.storage.segment import Found, Segment


class Slice:
    """`size` bytes at `position` of `file`. The first batch starts at `base_offset`; empty slices hold no file.

    `segment_base` and `position` name a place in the log, as Kafka's offset metadata does.
    """

    __slots__ = ("_ref", "base_offset", "file", "first_batch_bytes", "position", "segment_base", "size")

    def __init__(
        self,
        ref: FileRef | None,
        file: File | None,
        segment_base: i64,
        base_offset: i64,
        position: i64,
        size: i64,
        first_batch_bytes: i64,
    ) -> None:
        self._ref = ref
        self.file = file
        self.segment_base: i64 = segment_base
        self.base_offset: i64 = base_offset
        self.position: i64 = position
        self.size: i64 = size
        self.first_batch_bytes: i64 = first_batch_bytes

    def descriptor(self) -> int:
        """What `sendfile` takes, or -1."""
        file = self.file
        return -1 if file is None else file.descriptor()

    def read(self, at: i64 = 0, size: i64 = -1) -> bytes:
        """A copy of `size` bytes from `at` within the slice, or of all that follow. May block."""
        file = self.file
        wanted: i64 = self.size - at if size < 0 else size
        return b"" if file is None or wanted <= 0 else file.read_at(self.position + at, wanted)

    def read_cached(self, at: i64, size: i64) -> bytes | None:
        """The same, or None where it would block."""
        file = self.file
        return b"" if file is None or size <= 0 else file.read_cached(self.position + at, size)

    def release(self) -> None:
        """Lets the file go. Safe to call twice."""
        ref = self._ref
        if ref is not None:
            self._ref = None
            self.file = None
            ref.unpin()


def empty_slice(offset: i64) -> Slice:
    return Slice(None, None, -1, offset, -1, 0, 0)


class ReadJob:
    """Finds `offset` in `segment`, and where `upper_bound` cuts what may be read. `generation` is the log's."""

    def __init__(
        self,
        segment: Segment,
        offset: i64,
        upper_bound: i64,
        upper_known: bool,
        max_bytes: i64,
        min_one: bool,
        generation: i64,
    ) -> None:
        self.segment = segment
        self.offset: i64 = offset
        self.upper_bound: i64 = upper_bound
        self.max_bytes: i64 = max_bytes
        self.min_one = min_one
        self.generation: i64 = generation
        self.found: Found | None = None
        self.error: Exception | None = None
        self.reindexed: i64 = segment.reindexed
        self.index_damage = ""
        """What is wrong with the segment's index, where something is."""
        self.end: i64 = segment.size
        self._end_known = upper_known
        self._pinned = False
        self._index: File | None = None
        self._log: File | None = None
        self.found = segment.locate_recent(offset)
        if not upper_known:
            bound = segment.locate_recent(upper_bound)
            if bound is not None:
                self.end = bound.position
                self._end_known = True

    @property
    def is_done(self) -> bool:
        return self.found is not None and self._end_known

    def pin(self) -> None:
        """On the loop, before `try_run` and `run`."""
        if not self._pinned:
            self.index_damage = self.segment.index_damage()
            if not self.index_damage:
                self._index = self.segment.offset_index.ref.pin()
            self._log = self.segment.log.pin()
            self._pinned = True

    def unpin(self) -> None:
        if self._pinned:
            self._pinned = False
            self._log = None
            self.segment.log.unpin()
            if self._index is not None:
                self._index = None
                self.segment.offset_index.ref.unpin()

    def try_run(self) -> bool:
        """True when done; False when something would have to be read from disk."""
        try:
            self._run(True)
        except WouldBlock:
            return False
        except (OSError, StorageError) as error:
            self.error = error
        return True

    def run(self) -> None:
        """May block; for a thread. A failure is kept for `Log.finish_read`."""
        try:
            self._run(False)
        except (OSError, StorageError) as error:
            self.error = error

    def _run(self, cached: bool) -> None:
        if self.found is None:
            self.found = self._locate(self.offset, cached)
        if not self._end_known:
            bound = self._locate(self.upper_bound, cached)
            if bound is not None:
                self.end = bound.position
            self._end_known = True

    def _locate(self, offset: i64, cached: bool) -> Found | None:
        segment, index, log = self.segment, self._index, self._log
        assert log is not None, "pin first"
        size: i64 = segment.size
        if index is not None and not self.index_damage:
            try:
                return segment.locate_in(index, log, size, offset, cached)
            except StorageError as error:
                if not cached:
                    self.index_damage = str(error)
        if cached:
            raise WOULD_BLOCK  # without the index it may take long
        return segment.locate_without_index(log, size, offset)

    def slice(self) -> Slice | None:
        """The result, with its own pin; None where this segment has nothing at or past the offset."""
        found = self.found
        if found is None:
            return None
        available: i64 = self.end - found.position
        if available <= 0:
            return Slice(None, None, self.segment.base_offset, self.offset, found.position, 0, found.size)
        size: i64 = min(available, self.max_bytes)
        if size < found.size:
            # Kafka, too, answers with nothing rather than with a part of a batch.
            size = found.size if self.min_one else 0
        if size == 0:
            return Slice(None, None, self.segment.base_offset, self.offset, found.position, 0, found.size)
        ref = self.segment.log
        file = ref.pin()
        return Slice(ref, file, self.segment.base_offset, found.base_offset, found.position, size, found.size)
