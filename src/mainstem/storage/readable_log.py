"""What a log holds, and how it is read: by offset, by timestamp, by transaction, by epoch.

Reading moves no bytes and changes nothing but which files are open. Whatever could block is a job (`reading`,
`timestamps`): begun here, run in a thread, finished here; `read` and `offset_for_timestamp` do it all at once.

`log_start <= last stable offset <= high watermark <= log_end` (D2); `Log` is what moves them.
"""

from collections.abc import Callable

from mypy_extensions import i64

from mainstem.core.log.epochs import EpochEnd, LeaderEpochs
from mainstem.protocol.batch import NO_TIMESTAMP
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.varint import I64_MAX
from mainstem.storage.aborted import AbortedJob
from mainstem.storage.errors import StorageError
from mainstem.storage.producer_store import ProducerStore
from mainstem.storage.reading import ReadJob, Slice, empty_slice
from mainstem.storage.reindexing import Reindexing
from mainstem.storage.segment import Segment
from mainstem.storage.segments import Segments
from mainstem.storage.timestamps import LargestTimestampsJob, TimestampedOffset, TimestampJob
from mainstem.storage.txn_index import AbortedTransaction


def _nobody_asks() -> None:
    pass


class ReadableLog:
    """The offsets, segments, epochs and producers of one partition. `failure` is why it is offline, if it is."""

    def __init__(
        self,
        directory: str,
        segments: Segments,
        epochs: LeaderEpochs,
        producers: ProducerStore,
        log_start: i64,
        log_end: i64,
        high_watermark: i64,
    ) -> None:
        self.directory = directory
        self.log_start: i64 = log_start
        self.log_end: i64 = log_end
        self.high_watermark: i64 = max(log_start, min(high_watermark, log_end))
        self.epochs = epochs
        self.producers = producers
        self.failure: StorageError | None = None
        self.is_closed = False
        self._segments = segments
        self._first_unstable: i64 = -1
        # Counts what may make a position that was found before wrong: truncations, deletions, compaction.
        self._generation: i64 = 0
        self.damaged_indexes: dict[Segment, str] = {}
        """The segments whose indexes must be built anew (`begin_reindexing`), with what is wrong with them."""
        self.on_damaged_index: Callable[[], None] = _nobody_asks

    @property
    def size(self) -> i64:
        """The bytes of all segments."""
        return self._segments.size

    @property
    def first_base_offset(self) -> i64:
        """Where the files begin, which may be before the log start."""
        return self._segments.first.base_offset

    @property
    def generation(self) -> i64:
        """Another one when something was taken out of the log or written anew: places in its files are others then."""
        return self._generation

    def bytes_before(self, segment_base: i64) -> i64:
        """How much the segments have that come before the one that begins there."""
        size: i64 = 0
        for segment in self._segments.all():
            if segment.base_offset < segment_base:
                size += segment.size
        return size

    @property
    def segments(self) -> list[Segment]:
        return self._segments.all()

    @property
    def active_segment(self) -> Segment:
        return self._segments.active

    @property
    def last_stable_offset(self) -> i64:
        """Where a reader of committed records must stop."""
        first: i64 = self._first_unstable
        if first >= 0 and first < self.high_watermark:
            return first
        return self.high_watermark

    @property
    def first_unstable_offset(self) -> i64:
        """The start of the oldest transaction that is open or not yet replicated, or -1."""
        return self._first_unstable

    def _update_first_unstable(self) -> None:
        first: i64 = self.producers.states.first_unstable_offset
        # DeleteRecords may have passed the start of an open transaction (KAFKA-9105).
        self._first_unstable = max(first, self.log_start) if first >= 0 else -1

    def fail(self, error: Exception) -> StorageError:
        """Takes the log offline; every later call that would write raises this."""
        if self.failure is None:
            if isinstance(error, StorageError):
                self.failure = error
            else:
                path = getattr(error, "filename", None) or self.directory
                if isinstance(error, OSError):
                    self.failure = StorageError(str(path), str(error), cause=error)
                else:
                    self.failure = StorageError(str(path), f"{type(error).__name__}: {error}", mistake=error)
        return self.failure

    def _check_readable(self) -> None:
        """Raises where the log has failed, or was closed: its files may have other names by now, or be others'."""
        if self.failure is not None:
            raise self.failure
        if self.is_closed:
            raise RemoteError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.directory} was deleted, or moved elsewhere")

    def _check_came_back(self, error: Exception | None) -> None:
        """Raises where a job has failed, or the log has while it ran."""
        self._check_readable()
        if error is not None:
            raise self.fail(error) from error

    def _has(self, segment: Segment) -> bool:
        """Whether a segment is this log's. One is not that went meanwhile, or is of the log whose place this took."""
        at: i64 = self._segments.floor(segment.base_offset)
        return at >= 0 and self._segments.at(at) is segment

    # -- indexes -------------------------------------------------------------------------------------------------

    def has_sound_indexes(self, segment: Segment) -> bool:
        """Whether a segment's indexes are there and can be right; if not, they are to be built anew. Opens both."""
        why = segment.index_damage()
        if why:
            self._index_damaged(segment, why)
        return not why

    def _index_damaged(self, segment: Segment, why: str) -> None:
        if segment not in self.damaged_indexes:
            self.damaged_indexes[segment] = why
            self.on_damaged_index()

    def begin_reindexing(self) -> Reindexing | None:
        """A job that builds the indexes of a damaged segment anew; None where there is none but the active one."""
        for segment in list(self.damaged_indexes):
            if not self._has(segment):
                del self.damaged_indexes[segment]  # it was taken out of the log
            elif segment is not self._segments.active:
                try:
                    return Reindexing(segment, self._generation)
                except OSError as error:
                    raise self.fail(error) from error
        return None

    def finish_reindexing(self, job: Reindexing) -> None:
        """Takes back a job that has run; raises StorageError where the batches are damaged too."""
        self.damaged_indexes.pop(job.segment, None)
        if job.error is None and job.generation == self._generation:
            job.finish()
        else:
            job.unpin()
        self._check_came_back(job.error)

    # -- reading -------------------------------------------------------------------------------------------------

    def begin_read(self, offset: i64, max_bytes: i64, upper_bound: i64, min_one: bool = True) -> ReadJob | Slice:
        """Looks for the batch that holds `offset`; a `Slice` where that takes no file, else a job.

        `upper_bound` is the high watermark or last stable offset: nothing at or past it is in the slice.
        RemoteError OFFSET_OUT_OF_RANGE outside `[log_start, log_end]`.
        """
        self._check_readable()
        if offset < self.log_start or offset > self.log_end:
            raise RemoteError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset}; the log has {self.log_start} to {self.log_end}"
            )
        if offset >= upper_bound:
            return empty_slice(offset)
        return self._read_from(self._segments.floor(offset), offset, max_bytes, upper_bound, min_one)

    def _read_from(self, at: i64, offset: i64, max_bytes: i64, upper_bound: i64, min_one: bool) -> ReadJob | Slice:
        if at >= len(self._segments):
            return empty_slice(offset)
        segment = self._segments.at(at)
        whole: bool = upper_bound >= self._segments.upper_offset(at, self.log_end)
        job = ReadJob(segment, offset, upper_bound, whole, max_bytes, min_one, self._generation)
        if job.is_done:
            found = self._sliced(job)
            if found is not None:
                return found
        try:
            job.pin()
        except OSError as error:
            raise self.fail(error) from error
        return job

    def _sliced(self, job: ReadJob) -> Slice | None:
        """What a job that is done has found. That may have to open the file again."""
        try:
            return job.slice()
        except OSError as error:
            raise self.fail(error) from error

    def finish_read(self, job: ReadJob) -> ReadJob | Slice:
        """Takes back a job that has run: the slice, or the next job where the segment ended before the offset."""
        job.unpin()
        if not self._has(job.segment):
            # What went wrong with it, if anything did, is not this log's.
            return self.begin_read(job.offset, job.max_bytes, job.upper_bound, job.min_one)
        self._check_came_back(job.error)
        if job.index_damage and job.reindexed == job.segment.reindexed:
            self._index_damaged(job.segment, job.index_damage)
        if job.generation != self._generation:
            return self.begin_read(job.offset, job.max_bytes, job.upper_bound, job.min_one)
        found = self._sliced(job)
        if found is not None:
            return found
        at: i64 = self._segments.floor(job.segment.base_offset) + 1
        return self._read_from(at, job.offset, job.max_bytes, job.upper_bound, job.min_one)

    def read(self, offset: i64, max_bytes: i64, upper_bound: i64, min_one: bool = True) -> Slice:
        """`begin_read` and all that follows, blocking where it must."""
        step = self.begin_read(offset, max_bytes, upper_bound, min_one)
        while isinstance(step, ReadJob):
            step.run()
            step = self.finish_read(step)
        return step

    def begin_aborted(self, found: Slice, upper_bound: i64) -> AbortedJob | list[AbortedTransaction]:
        """Looks for the aborted transactions that a reader of this slice must know of, by first offset.

        A list where that takes no file, else a job. `upper_bound` is that of the slice.
        """
        if found.size == 0:
            return []
        at: i64 = max(self._segments.floor(found.base_offset), 0)
        segment = self._segments.at(at)
        upper: i64 = min(upper_bound, self._segments.upper_offset(at, self.log_end))
        sliced = segment if segment.base_offset == found.segment_base else None
        job = AbortedJob(found.base_offset, upper, sliced, found.position + found.size, self._generation)
        return self._ask_aborted(job, at)

    def _ask_aborted(self, job: AbortedJob, at: i64) -> AbortedJob | list[AbortedTransaction]:
        if self._pin_aborted(job, at):
            return job
        job.found.sort(key=_first_offset)
        return job.found

    def _pin_aborted(self, job: AbortedJob, at: i64) -> bool:
        """Prepares the job for the first segment from the `at`th on that was ever told of one; False: there is none."""
        if not job.is_over:
            while at < len(self._segments):
                segment = self._segments.at(at)
                if segment.txn_index.exists:
                    try:
                        job.pin(segment)
                    except (OSError, StorageError) as error:
                        raise self.fail(error) from error
                    return True
                at += 1
        return False

    def finish_aborted(self, job: AbortedJob) -> AbortedJob | list[AbortedTransaction]:
        """Takes back a job that has run: what it found, or the job again where another segment must be asked."""
        job.unpin()
        segment = job.segment
        assert segment is not None
        is_held = self._has(segment)
        self._check_came_back(job.error if is_held else None)
        if job.first_offset < self._segments.at(0).base_offset:
            # What is known of the transactions in the slice may have gone with the segment.
            raise RemoteError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {job.first_offset} was deleted while it was being read"
            )
        if job.generation != self._generation or not is_held:
            # What took the place of the slice's segments may know less: of what compaction has taken, which is in it.
            raise RemoteError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"offset {job.first_offset} was moved while it was read",
            )
        return self._ask_aborted(job, self._segments.floor(segment.base_offset) + 1)

    def seek_aborted(self, first_offset: i64, upper_offset: i64) -> AbortedJob | None:
        """A job that finds those that overlap `[first_offset, upper_offset)`, for whoever takes them out of it as they
        are found, in any order; `seek_further` is next. None where there are none."""
        job = AbortedJob(first_offset, upper_offset, None, -1, self._generation)
        return job if self._pin_aborted(job, max(self._segments.floor(first_offset), 0)) else None

    def seek_further(self, job: AbortedJob) -> bool:
        """Takes back a job that has run; whether it has another segment to ask, which is prepared."""
        job.unpin()
        self._check_came_back(job.error)
        segment = job.segment
        assert segment is not None
        return self._pin_aborted(job, self._segments.floor(segment.base_offset) + 1)

    def aborted_transactions(self, first_offset: i64, upper_offset: i64) -> list[AbortedTransaction]:
        """Those that overlap `[first_offset, upper_offset)`, by first offset, as clients need them. May block."""
        job = AbortedJob(first_offset, upper_offset, None, -1, self._generation)
        return self._run_aborted(self._ask_aborted(job, max(self._segments.floor(first_offset), 0)))

    def aborted_transactions_in(self, found: Slice, upper_bound: i64) -> list[AbortedTransaction]:
        """`begin_aborted` and all that follows, blocking where it must."""
        return self._run_aborted(self.begin_aborted(found, upper_bound))

    def _run_aborted(self, step: AbortedJob | list[AbortedTransaction]) -> list[AbortedTransaction]:
        while isinstance(step, AbortedJob):
            step.run()
            step = self.finish_aborted(step)
        return step

    def offset_for_timestamp(self, timestamp: i64, upper_bound: i64) -> TimestampedOffset | None:
        """`begin_find` and all that follows, blocking where it must."""
        return self._run_find(self.begin_find(timestamp, upper_bound))

    def max_timestamp(self) -> TimestampedOffset | None:
        """`begin_find_max` and all that follows, blocking where it must."""
        return self._run_find(self.begin_find_max())

    def _run_find(self, job: TimestampJob | None) -> TimestampedOffset | None:
        step: TimestampJob | TimestampedOffset | None = job
        while isinstance(step, TimestampJob):
            step.run()
            step = self.finish_find(step)
        return step

    def begin_find(self, timestamp: i64, upper_bound: i64) -> TimestampJob | None:
        """Looks for the first record at or after `timestamp` below `upper_bound`; None where there is none."""
        self._check_readable()
        return self._find_from(0, timestamp, upper_bound)

    def begin_find_max(self) -> TimestampJob | None:
        """Looks for the first record with the largest timestamp; None where there are no records.

        Where none has a timestamp that is the first of all, as in Kafka.
        """
        self._check_readable()
        best: Segment | None = None
        largest: i64 = NO_TIMESTAMP - 1
        try:
            unknown = self._untimed(0, self.log_end)
            if unknown:
                return LargestTimestampsJob(unknown, I64_MAX, self.log_end, self._generation)
            for segment in self._segments.all():
                timestamp: i64 = segment.max_timestamp if segment.size > 0 else NO_TIMESTAMP
                if timestamp > largest:
                    best = segment
                    largest = timestamp
            return None if best is None else TimestampJob(best, largest, 0, self.log_end, self._generation)
        except (OSError, StorageError) as error:
            raise self.fail(error) from error

    def _untimed(self, at: i64, upper_bound: i64) -> list[Segment]:
        """The segments from the `at`th on whose files must be asked for their largest timestamp."""
        found: list[Segment] = []
        while at < len(self._segments) and self._segments.at(at).base_offset < upper_bound:
            segment = self._segments.at(at)
            if segment.size > 0 and not segment.is_max_timestamp_known:
                found.append(segment)
            at += 1
        return found

    def _find_from(self, at: i64, timestamp: i64, upper_bound: i64) -> TimestampJob | None:
        try:
            while at < len(self._segments) and self._segments.at(at).base_offset < upper_bound:
                segment = self._segments.at(at)
                if segment.size > 0 and not segment.is_max_timestamp_known:
                    unknown = self._untimed(at, upper_bound)
                    return LargestTimestampsJob(unknown, timestamp, upper_bound, self._generation)
                if segment.size > 0 and segment.max_timestamp >= timestamp:
                    return TimestampJob(segment, timestamp, self.log_start, upper_bound, self._generation)
                at += 1
        except (OSError, StorageError) as error:
            raise self.fail(error) from error
        return None

    def finish_find(self, job: TimestampJob) -> TimestampJob | TimestampedOffset | None:
        """Takes back a job that has run: what it found, or the next job where its segment had nothing."""
        if isinstance(job, LargestTimestampsJob):
            self.learn_timestamps(job)
            return self.begin_find_max() if job.is_for_largest else self.begin_find(job.timestamp, job.upper_bound)
        self._take_back(job)
        if job.generation != self._generation or not self._has(job.segment):
            return self.begin_find(job.timestamp, job.upper_bound)
        found = job.found
        if found is not None:
            return found if found.offset < job.upper_bound else None
        at: i64 = self._segments.floor(job.segment.base_offset) + 1
        return self._find_from(at, job.timestamp, job.upper_bound)

    def learn_timestamps(self, job: LargestTimestampsJob) -> None:
        """Takes back a job that has run, and what it has learned."""
        self._take_back(job)
        if job.generation == self._generation:
            for segment, largest, offset in job.learned:
                if self._has(segment):
                    segment.learn_max_timestamp(largest, offset)

    def _take_back(self, job: TimestampJob) -> None:
        job.unpin()
        is_held = self._has(job.segment)
        is_out_of_date = not is_held or (
            job.generation != self._generation and isinstance(job.error, FileNotFoundError)
        )
        self._check_came_back(None if is_out_of_date else job.error)
        if is_held and job.index_damage and job.reindexed == job.segment.reindexed:
            self._index_damaged(job.segment, job.index_damage)

    def epoch_for(self, offset: i64) -> i64:
        return self.epochs.epoch_for(offset)

    def end_offset_for(self, epoch: i64) -> EpochEnd:
        return self.epochs.end_offset_for(epoch, self.log_end)


def _first_offset(aborted: AbortedTransaction) -> int:
    return aborted.first_offset
