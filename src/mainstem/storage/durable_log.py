"""What of a log is durable: the recovery point, and the flushes that move it.

Everything below the recovery point survives power loss; what lies at or past it may be lost, from any point on. Rules:

- A flush is a job (`flushing`): begun here, run in a thread, finished here. One at a time; what is appended meanwhile
  is the next one's, and so is what would take more open files than one may have.
- The recovery point moves when a flush has come back without an error, and not at all where the log was cut meanwhile.
- A segment's name is durable only after its folder was synced (KAFKA-3968), and so is that of a snapshot and of a
  transaction index: `_has_new_names` says that there are some.
- Leader epochs and producer snapshots go first: what recovery goes by must not be older than what it finds.
"""

from typing import Final

from mypy_extensions import i64

from mainstem.core.log.epochs import LeaderEpochs
from mainstem.storage import names
from mainstem.storage.errors import OutOfFilesError
from mainstem.storage.flushing import FlushJob
from mainstem.storage.leader_epoch_file import format_leader_epochs, write_leader_epochs
from mainstem.storage.open_files import OpenFiles, is_out_of_files
from mainstem.storage.producer_store import ProducerStore
from mainstem.storage.readable_log import ReadableLog
from mainstem.storage.segment import Segment
from mainstem.storage.segments import Segments

FILES_AT_ONCE: Final = 128
"""How many files one flush holds open: a log may have thousands that are not synced, as after a kill."""


class DurableLog(ReadableLog):
    """`Log` is what appends, rolls and cuts; it says here what it has done (`_unflushed_roll`, `truncations` …)."""

    def __init__(
        self,
        files: OpenFiles,
        directory: str,
        segments: list[Segment],
        epochs: LeaderEpochs,
        producers: ProducerStore,
        log_start: i64,
        recovery_point: i64,
        log_end: i64,
        high_watermark: i64,
        now_ms: i64,
    ) -> None:
        super().__init__(directory, Segments(segments), epochs, producers, log_start, log_end, high_watermark)
        self.recovery_point: i64 = recovery_point
        self.truncations: i64 = 0
        self.last_flush_ms: i64 = now_ms
        self._files = files
        self._fs = files.fs
        self._active: Segment = segments[-1]
        self._epochs_written: i64 = 0  # the loader counts from what the file says
        self._unflushed_roll = False
        self._has_new_names = False
        self._flush: FlushJob | None = None
        self.failed_beside: OSError | None = None
        """What went wrong in a cleaning's thread, before the cleaning takes it up on the loop."""
        self._flush_messages: i64 = 1
        self._flush_ms: i64 = 0
        # By first offset the marker of each transaction that began in a segment before its marker's, until durable.
        self._undurable_ends: dict[int, int] = {}

    def _check_alive(self) -> None:
        if self.failure is not None:
            raise self.failure
        assert not self.is_closed, f"{self!r} is closed"

    # -- leader epochs -----------------------------------------------------------------------------------------------

    def persist_epochs(self) -> None:
        """Writes the epochs if they changed. Blocks; a flush does it too."""
        self._check_alive()
        assert self._flush is None, f"{self!r} is being flushed"
        version: i64 = self.epochs.version
        if version != self._epochs_written:
            try:
                write_leader_epochs(self._fs, self._epochs_path(), format_leader_epochs(self.epochs))
            except OSError as error:
                raise self.fail(error) from error
            self._epochs_written = version

    def _epochs_path(self) -> str:
        return f"{self.directory}/{names.LEADER_EPOCHS}"

    # -- flushing ----------------------------------------------------------------------------------------------------

    def _note_end(self, first_offset: i64, marker_offset: i64) -> None:
        """A transaction ended. In one segment with its marker it is durable before the segment may be cleaned."""
        if first_offset < self._active.base_offset:
            self._forget_durable_ends()
            self._undurable_ends[first_offset] = marker_offset

    def _forget_durable_ends(self) -> None:
        done = [first for first, marker in self._undurable_ends.items() if marker < self.recovery_point]
        for first in done:
            del self._undurable_ends[first]

    @property
    def decided_end(self) -> i64:
        """The last stable offset, or before that where the first transaction begins whose marker is not durable: what
        it aborts may be committed yet, and what it commits aborted, where a power cut takes the marker."""
        self._forget_durable_ends()
        end: i64 = self.last_stable_offset
        for offset in self._undurable_ends:
            first: i64 = offset
            if first < end:
                end = first
        return max(end, self.log_start)

    def needs_flush(self, now_ms: i64) -> bool:
        """Whether `flush.messages` or `flush.ms` asks for one, or a rolled segment waits for its own."""
        if self._unflushed_roll:
            return True
        unflushed: i64 = self.log_end - self.recovery_point
        if unflushed >= self._flush_messages:
            return True
        # A clock that was set back delays no flush by more than that.
        self.last_flush_ms = min(self.last_flush_ms, now_ms)
        return unflushed > 0 and now_ms - self.last_flush_ms >= self._flush_ms

    @property
    def has_unflushed_roll(self) -> bool:
        """Whether a segment was rolled and waits to be made durable."""
        return self._unflushed_roll

    @property
    def flushes_before_ack(self) -> bool:
        """Whether what was appended must be flushed before it is acknowledged, by `flush.messages`."""
        return self.log_end - self.recovery_point >= self._flush_messages

    @property
    def leaves_files_to_a_roll(self) -> bool:
        """Whether a recovery left files that nobody has synced, though all batches were durable before. Where no flush
        comes to them first, the next roll must sync them, on the loop."""
        active = self._active
        return self.recovery_point >= self.log_end and active.size > 0 and active.has_unsynced(self._flush)

    @property
    def is_flushing(self) -> bool:
        return self._flush is not None

    def begin_flush(self, now_ms: i64, rolled_only: bool = False, files_max: i64 = FILES_AT_ONCE) -> FlushJob:
        """A job that makes everything up to the log end durable, or everything before the active segment.

        One at a time: what comes meanwhile is the next one's. So is what would take more than `files_max`, those of one
        segment aside, or more than the system has to give; OutOfFilesError where it has not even one.
        """
        self._check_alive()
        assert self._flush is None, f"{self!r} is being flushed"
        offset: i64 = self._active.base_offset if rolled_only else self.log_end
        job = FlushJob(self._fs, self.directory, offset, self.truncations)
        try:
            self._add_files(job, rolled_only, min(files_max, FILES_AT_ONCE))
        except OSError as error:
            job.error = error  # nothing was synced
            job.finish()
            if is_out_of_files(error):
                raise OutOfFilesError(self.directory, str(error), cause=error) from error
            raise self.fail(error) from error
        if self.epochs.version != self._epochs_written:
            job.epochs_path = self._epochs_path()
            job.epochs_data = format_leader_epochs(self.epochs)
            job.epochs_version = self.epochs.version
        job.snapshots = self.producers.take_unsynced()
        job.has_new_names = job.has_new_names or self._has_new_names or len(job.snapshots) > 0
        self._unflushed_roll = job.is_partial
        if not job.is_partial:
            self.last_flush_ms = now_ms
        self._has_new_names = False
        self._flush = job
        return job

    def _add_files(self, job: FlushJob, rolled_only: bool, files_max: i64) -> None:
        """What the job has to sync; it is partial where that is not all."""
        # One before the recovery point, too: recovery wrote its indexes anew, though its batches are durable.
        at: i64 = max(self._segments.floor(self.recovery_point - 1), 0)
        while at < len(self._segments):
            segment = self._segments.at(at)
            if job.files >= files_max:
                job.offset = segment.base_offset
                job.is_partial = True
                break
            at += 1
            if rolled_only and segment is self._active:
                continue
            try:
                for ref in segment.refs():
                    if ref.dirty:
                        job.add(ref)
                        job.has_new_names = job.has_new_names or ref is segment.txn_index.ref
            except OSError as error:
                if job.files == 0 or not is_out_of_files(error):
                    raise
                job.offset = segment.base_offset
                job.is_partial = True
                break

    def finish_flush(self, job: FlushJob) -> None:
        """Takes back a job that has run and moves the recovery point; raises StorageError if it failed."""
        assert job is self._flush
        self._flush = None
        job.finish()
        if job.error is not None:
            raise self.fail(job.error) from job.error
        if job.epochs_version >= 0:
            self._epochs_written = job.epochs_version
        if job.truncations == self.truncations and job.offset > self.recovery_point:
            self.recovery_point = job.offset

    def flush(self, now_ms: i64) -> None:
        """All at once. Blocks."""
        is_partial = True
        while is_partial:
            try:
                job = self.begin_flush(now_ms)
            except OutOfFilesError as error:
                raise self.fail(error) from error  # nobody can wait here until there are some
            job.run()
            self.finish_flush(job)
            is_partial = job.is_partial
