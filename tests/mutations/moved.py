"""Bugs of partitions that move between log directories (`mainstem.sim.movers`)."""

import pytest

from mainstem.storage.errors import StorageError
from mainstem.storage.log import Log
from mainstem.storage.log_copy import LogCopy
from mainstem.storage.log_dirs import LogDirs, Moved
from mainstem.storage.partition_folder import deleted_folder_name
from tests.mutations.tuned import Reached


def swaps_before_it_has_all(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """A copy takes its log's place though it lacks what came last."""

    def complete(self: LogCopy, max_bytes: int, now_ms: int) -> None:
        source, target = self.source, self.target
        if self.lag:
            reached()
            # Nobody notices, as where offsets are not compared.
            source.log_end = target.log_end
        target.update_high_watermark(source.high_watermark)
        if target.log_start < source.log_start <= target.high_watermark:
            target.advance_log_start(source.log_start)
        source.flush(now_ms)
        target.flush(now_ms)

    patch.setattr(LogCopy, "complete", complete)


def forgets_producers(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """A copy knows the producers of its batches alone, not those whose batches retention has taken."""

    def take_producers_of(self: Log, copied: Log) -> None:
        if len(self.producers.states) < len(copied.producers.states):
            reached()

    patch.setattr(Log, "take_producers_of", take_producers_of)


def sets_the_old_aside_first(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """For a moment a partition has no folder, and a start finds none."""
    finish_move = LogDirs.finish_move

    def finish(self: LogDirs[Log], topic: str, partition: int) -> Moved[Log]:
        key = (topic, partition)
        source = self._homes[key]
        aside = f"{source.path}/{deleted_folder_name(topic, partition, self._rng)}"
        self._fs.rename(source.partitions[key], aside)
        self._fs.sync_directory(source.path)
        old, source.partitions[key] = source.partitions[key], aside
        reached()
        try:
            return finish_move(self, topic, partition)
        except StorageError:
            self._fs.rename(aside, old)
            source.partitions[key] = old
            raise

    patch.setattr(LogDirs, "finish_move", finish)
