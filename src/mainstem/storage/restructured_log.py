"""Which files a log has, and the jobs that change that: segments that retention takes out, and those that compaction
puts in the place of others. Rules:

- One such job at a time (`is_restructuring`). The log counts on its outcome from when it is begun; a thread gives the
  files their names (`restructuring`, `swapping`), and the job is taken back here.
- Whoever reads the old files goes on reading them. They are removed after `file.delete.delay.ms`, by jobs of their own.
- A flush beside it knows what the job has yet to sync, and fails where the job has failed.
"""

from mypy_extensions import i64

from mainstem.core.log.epochs import LeaderEpochs
from mainstem.protocol.varint import I64_MAX
from mainstem.storage.durable_log import FILES_AT_ONCE, DurableLog
from mainstem.storage.flushing import FlushJob, RemovalJob
from mainstem.storage.open_files import OpenFiles
from mainstem.storage.producer_store import ProducerStore
from mainstem.storage.restructuring import Restructuring
from mainstem.storage.segment import Segment
from mainstem.storage.swapping import Swap


class RestructuredLog(DurableLog):
    """`Log` says which segments are to go by its settings (`begin_retirement`)."""

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
        super().__init__(
            files,
            directory,
            segments,
            epochs,
            producers,
            log_start,
            recovery_point,
            log_end,
            high_watermark,
            now_ms,
        )
        self._removals: list[RemovalJob] = []
        self._restructuring: Restructuring | None = None
        self._delete_delay_ms: i64 = 0

    @property
    def is_restructuring(self) -> bool:
        """Whether files of this log get other names in a thread: then no second job may begin, nor a truncation."""
        return self._restructuring is not None

    def _begin_restructuring(self, job: Restructuring, gone: list[Segment]) -> None:
        assert self._restructuring is None, f"{self!r} is being restructured"
        self._restructuring = job
        flush = self._flush
        # A flush under way has taken them over and may not have come to them.
        job.unsynced = self.producers.unsynced() if flush is None else flush.snapshots + self.producers.unsynced()
        job.has_new_names = self._has_new_names or (flush is not None and flush.has_new_names)
        for segment in gone:
            segment.discard()
        self._generation += 1

    def finish_restructuring(self, job: Restructuring) -> None:
        """Takes back a job that has run; raises StorageError if it failed."""
        assert job is self._restructuring
        self._restructuring = None
        job.finish()
        if self.is_closed:
            return
        if job.error is not None:
            raise self.fail(job.error) from job.error
        self._removals.append(job.removal)

    def begin_flush(self, now_ms: i64, rolled_only: bool = False, files_max: i64 = FILES_AT_ONCE) -> FlushJob:
        """A job that makes everything up to the log end durable, or everything before the active segment."""
        job = super().begin_flush(now_ms, rolled_only, files_max)
        beside = self._restructuring
        if beside is not None:
            beside.add_unsynced(job)
        return job

    def finish_flush(self, job: FlushJob) -> None:
        """Takes back a job that has run and moves the recovery point; raises StorageError if it failed.

        Or if another thread has synced the same folder meanwhile and failed, of which nobody was told yet: after a
        failed sync the next one may succeed with nothing done.
        """
        beside = self._restructuring
        if job.error is None and beside is not None:
            job.error = beside.error
        if job.error is None:
            job.error = self.failed_beside
        super().finish_flush(job)

    # -- compaction and removal ----------------------------------------------------------------------------------

    def holds(self, segments: list[Segment]) -> bool:
        """Whether all of them are still in this log, as they were when they were taken from it."""
        for segment in segments:
            at: i64 = self._segments.floor(segment.base_offset)
            if at < 0 or self._segments.at(at) is not segment:
                return False
        return True

    def upper_offset(self, segment: Segment) -> i64:
        """The first offset that is not in a segment of this log."""
        return self._segments.upper_offset(self._segments.floor(segment.base_offset), self.log_end)

    def begin_swap(self, old: list[Segment], new: Segment, now_ms: i64) -> Swap:
        """Puts `new`, which the cleaner made of `old` and synced, in their place; the job gives it their names.

        Whoever reads the old files goes on reading them; they are removed by the jobs of `due_removals`.
        """
        self._check_alive()
        assert self.holds(old), f"{old} are not all in {self!r}"
        assert old[-1] is not self._active
        snapshots = [
            "" if segment.base_offset == new.base_offset else self.producers.forget(segment.base_offset)
            for segment in old
        ]
        job = Swap(self._fs, self.directory, old, snapshots, self._removal_due_ms(now_ms), new)
        job.pin(new)
        segments = self._segments.all()
        at: i64 = self._segments.floor(old[0].base_offset)
        segments[at : at + len(old)] = [new]
        self._segments.replace(segments)
        self._begin_restructuring(job, old)
        return job

    def _removal_due_ms(self, now_ms: i64) -> i64:
        """When the files of what goes now may be removed; a delay of hundreds of millions of years is for ever."""
        delay_ms: i64 = self._delete_delay_ms
        return I64_MAX if delay_ms > I64_MAX - now_ms else now_ms + delay_ms

    def due_removals(self, now_ms: i64) -> list[RemovalJob]:
        """The jobs whose time has come; they are the caller's to run, in a thread.

        Where the clock was set back, none waits for longer than its delay from now on.
        """
        latest_ms = self._removal_due_ms(now_ms)
        for job in self._removals:
            job.due_ms = min(job.due_ms, latest_ms)
        due = [job for job in self._removals if job.due_ms <= now_ms]
        if due:
            self._removals = [job for job in self._removals if job.due_ms > now_ms]
        return due
