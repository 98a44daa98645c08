"""Which log is compacted next, and from where: Kafka's cleaner without its threads.

The broker asks `choose` now and then, drives the `Cleaning` that `begin` returns, and hands it back to `end`. What
`offsets` says, by partition, is the first dirty offset: what lies before it was cleaned. It is kept in the directory's
`cleaner-offset-checkpoint`; one that is too low costs work, one that is too high would leave old values behind their
tombstones. Therefore:

- `end` moves it forward, after everything was swapped in; the file may follow at leisure.
- `before_truncation` moves it back, and the file must be written before the log is cut (KAFKA-3330).
- An offset outside its log counts for nothing: everything is dirty (KAFKA-8764).

A log that cannot be cleaned (`uncleanable`, with the reason) is left alone until the broker starts again, and one whose
copy has no room (`put_off`) until there is some (`cleaning_room`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from mainstem.core.log.compaction import Cleanable, find_cleanable
from mainstem.core.log.config import LONG_MAX
from mainstem.storage.checkpoint import TopicPartition
from mainstem.storage.cleaning import Cleaning
from mainstem.storage.cleaning_map import LOAD_FACTOR
from mainstem.storage.cleaning_room import NoRoom
from mainstem.storage.errors import StorageError
from mainstem.storage.log import Log
from mainstem.storage.open_files import OpenFiles
from mainstem.storage.segment import Segment

DEFAULT_BUFFER_BYTES: Final = 128 << 20
"""`log.cleaner.dedupe.buffer.size`: what the map of a cleaning may take."""


_SEGMENTS_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Candidate:
    """A log that is due to be cleaned."""

    partition: TopicPartition
    log: Log
    cleanable: Cleanable


class Cleaner:
    def __init__(
        self,
        files: OpenFiles,
        offsets: Mapping[TopicPartition, int],
        buffer_bytes: int = DEFAULT_BUFFER_BYTES,
        load_factor: float = LOAD_FACTOR,
    ) -> None:
        """`offsets` are those of the checkpoint files of all directories."""
        self.offsets: dict[TopicPartition, int] = dict(offsets)
        self.uncleanable: dict[TopicPartition, str] = {}
        self.put_off: dict[TopicPartition, NoRoom] = {}
        self.running: dict[TopicPartition, Cleaning] = {}
        self._files = files
        self.buffer_bytes = buffer_bytes
        self.load_factor = load_factor

    def examine(self, partition: TopicPartition, log: Log, now_ms: int) -> Candidate | None:
        """The log as a candidate if it is due. Opens no segment: where lags are set `learn_ages` comes before."""
        if not self._may_clean(partition, log) or self._unknown_ages(partition, log):
            return None
        try:
            cleanable = find_cleanable(
                log.segments,
                log.log_start,
                log.log_end,
                log.decided_end,
                log.recovery_point,
                self.offsets.get(partition),
                log.config,
                now_ms,
            )
        except (StorageError, OSError) as error:
            self._cannot_read(partition, log, error)
            return None
        if cleanable.was_reset:
            self.offsets[partition] = cleanable.first_dirty
        if not cleanable.is_due(log.config.min_cleanable_dirty_ratio) or self._lacks_room(partition, log, now_ms):
            return None
        return Candidate(partition, log, cleanable)

    def learn_ages(self, partition: TopicPartition, log: Log, segments_max: int) -> bool:
        """Whether `examine` need open no segment any more to learn how old it is. Opens so many, where lags are set.

        After a start there may be thousands.
        """
        if not self._may_clean(partition, log):
            return True
        unknown = self._unknown_ages(partition, log)
        try:
            for segment in unknown[:segments_max]:
                if not log.has_sound_indexes(segment):
                    return True  # it is to be built anew before this log is cleaned
                segment.learn_age()
        except (StorageError, OSError) as error:
            self._cannot_read(partition, log, error)
        return len(unknown) <= segments_max

    def _may_clean(self, partition: TopicPartition, log: Log) -> bool:
        if not log.config.compact or log.failure is not None or log.is_closed:
            return False
        # An index that is wrong is being built anew.
        return not (partition in self.running or partition in self.uncleanable or log.damaged_indexes)

    def _lacks_room(self, partition: TopicPartition, log: Log, now_ms: int) -> bool:
        no_room = self.put_off.get(partition)
        if no_room is None or no_room.still(self._files.fs, log.directory, now_ms):
            return no_room is not None
        del self.put_off[partition]
        return False

    def _cannot_read(self, partition: TopicPartition, log: Log, error: StorageError | OSError) -> None:
        if isinstance(error, OSError):
            log.fail(error)
        else:
            self.uncleanable[partition] = str(error)

    def _unknown_ages(self, partition: TopicPartition, log: Log) -> list[Segment]:
        """What may be dirty and must be opened to tell how old it is; nothing where nobody asks."""
        if (log.config.min_compaction_lag_ms, log.config.max_compaction_lag_ms) == (0, LONG_MAX):
            return []
        segments = log.segments
        first_dirty = self.offsets.get(partition, 0)
        if not log.log_start <= first_dirty <= log.log_end:
            first_dirty = 0  # then everything is
        return [
            segment
            for at, segment in enumerate(segments[:-1])
            if segments[at + 1].base_offset > first_dirty and not segment.is_age_known
        ]

    def choose(self, logs: Mapping[TopicPartition, Log], now_ms: int) -> Candidate | None:
        """The dirtiest of the logs that are due. May block."""
        best: Candidate | None = None
        for partition, log in logs.items():
            while not self.learn_ages(partition, log, _SEGMENTS_AT_ONCE):
                pass
            found = self.examine(partition, log, now_ms)
            if found is not None and (best is None or found.cleanable.ratio > best.cleanable.ratio):
                best = found
        return best

    def begin(self, candidate: Candidate, now_ms: int) -> Cleaning:
        """One cleaning at a time for each log. `end` must follow, however it went."""
        assert candidate.partition not in self.running
        cleanable = candidate.cleanable
        cleaning = Cleaning(
            self._files,
            candidate.log,
            cleanable.first_dirty,
            cleanable.end,
            self.buffer_bytes,
            self.load_factor,
            now_ms,
        )
        self.running[candidate.partition] = cleaning
        return cleaning

    def end(self, partition: TopicPartition) -> bool:
        """Takes note of what came of it; whether the checkpoint file should be written."""
        cleaning = self.running.pop(partition)
        cleaning.abort()
        if cleaning.failure:
            self.uncleanable[partition] = cleaning.failure
        if cleaning.no_room is not None:
            self.put_off[partition] = cleaning.no_room
        if not cleaning.is_done:
            return False
        self.offsets[partition] = cleaning.cleaned_to
        return True

    def before_truncation(self, partition: TopicPartition, log: Log, offset: int) -> bool:
        """True: the checkpoint file must be on disk before the log is cut to `offset`, or to before the batch that
        holds it. A cleaning that runs will notice by itself."""
        cut = log.truncation_point(offset)
        if self.offsets.get(partition, 0) <= cut:
            return False
        self.offsets[partition] = cut
        return True

    def forget(self, partition: TopicPartition) -> None:
        """The partition was deleted or moved away; a cleaning that runs will notice that its log is closed."""
        self.offsets.pop(partition, None)
        self.uncleanable.pop(partition, None)
        self.put_off.pop(partition, None)

    def checkpoint(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """What the checkpoint file of a directory with these partitions says."""
        return {partition: self.offsets[partition] for partition in partitions if partition in self.offsets}

    def clean(self, candidate: Candidate, now_ms: int) -> Cleaning:
        """All of it at once. Blocks; for tests and tools."""
        cleaning = self.begin(candidate, now_ms)
        try:
            while cleaning.turn(now_ms):
                while cleaning.step():
                    pass
        finally:
            self.end(candidate.partition)
        return cleaning
