"""Bugs of what a start goes by, and of what it makes anew: leader epochs, the marker of a clean stop, snapshots of
producers. Each is the bug as it was, and no more: a start has to be interrupted, or to find what a power loss left."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mainstem.broker.drivers.metadata_snapshots import Snapshots
from mainstem.broker.drivers.quorum import MetadataQuorum
from mainstem.core.log.epochs import LeaderEpochs
from mainstem.protocol.batch import BatchView
from mainstem.storage import checkpoint, log_directory, names
from mainstem.storage.clean_shutdown import NAME, UNCLEAN, parse_marker, take_marker
from mainstem.storage.errors import StorageError
from mainstem.storage.log import Log
from mainstem.storage.log_dirs import LogDirs
from mainstem.storage.recovery import _Loader
from mainstem.storage.snapshot import SnapshotFile
from mainstem.storage.swapping import Swap

Reached = Callable[[], None]


def checksums_are_not_looked_at(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: recovery takes each batch that has its length, whatever is in it."""
    recover = _Loader._recover_segment
    computed = BatchView.computed_crc

    def computed_crc(self: BatchView) -> int:
        if computed(self) != self.crc:
            reached()
        return self.crc

    def recover_segment(self: _Loader, segment: Any) -> str:
        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(BatchView, "computed_crc", computed_crc)
            return recover(self, segment)

    patch.setattr(_Loader, "_recover_segment", recover_segment)


def epoch_zero_is_not_recovered(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """KAFKA-10432: recovery builds the leader epochs of every segment anew from its batches, and leaves out epoch 0."""
    recover = _Loader._recover_segment
    assign = LeaderEpochs.assign

    def assign_above_zero(self: LeaderEpochs, epoch: int, start_offset: int) -> bool:
        if epoch == 0:
            reached()
            return False
        return assign(self, epoch, start_offset)

    def recover_segment(self: _Loader, segment: Any) -> str:
        self.epochs.truncate_from_end(segment.base_offset)
        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(LeaderEpochs, "assign", assign_above_zero)
            return recover(self, segment)

    patch.setattr(_Loader, "_recover_segment", recover_segment)


def marker_outlives_the_loading(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """KAFKA-10471: the marker of a clean stop goes when all logs are loaded: a crash before that looks clean."""
    load = LogDirs.load

    def take(fs: Any, folder: str) -> Any:
        path = f"{folder}/{NAME}"
        if not fs.exists(path):
            return UNCLEAN
        reached()
        return parse_marker(checkpoint.read_file(fs, path))

    def load_first(self: LogDirs[Any], *given: Any, **named: Any) -> Iterator[Any]:
        yield from load(self, *given, **named)
        for directory in self.online:
            take_marker(directory._fs, directory.path)

    patch.setattr(log_directory, "take_marker", take)
    patch.setattr(LogDirs, "load", load_first)


def marker_comes_back(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """The marker of a clean stop is removed, and the removal not synced: a power loss brings it back."""

    def take(fs: Any, folder: str) -> Any:
        path = f"{folder}/{NAME}"
        if not fs.exists(path):
            return UNCLEAN
        reached()
        data = checkpoint.read_file(fs, path)
        fs.remove(path)
        return parse_marker(data)

    patch.setattr(log_directory, "take_marker", take)


def snapshots_are_not_synced(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """KAFKA-9892: snapshots of producers are left to the kernel, and are all that is left where retention has been."""

    def leave(self: SnapshotFile, breathe: Any = None) -> None:
        reached()
        self.write(breathe)

    patch.setattr(SnapshotFile, "make_durable", leave)


def torn_segments_go(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: where the end of a segment is torn, recovery cuts all of it, down to the recovery point."""
    recover = _Loader._recover_segment

    def recover_segment(self: _Loader, segment: Any) -> str:
        cut = recover(self, segment)
        if cut and segment.size and segment.base_offset >= self.recovery_point:
            reached()
            segment.cut_data(0)
            self.producers.reload(self.segments[0].base_offset, segment.base_offset, self.now_ms)
            recover(self, segment)
        return cut

    patch.setattr(_Loader, "_recover_segment", recover_segment)


def metadata_goes_past_its_snapshots(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """KAFKA-14238: retention takes the metadata log as any other, also what came after the newest snapshot."""
    original = Snapshots._clean

    async def clean(self: Snapshots, opened: Log) -> None:
        count = len(self.kept)
        await original(self, opened)
        now_ms = self._clock.wall_ms()
        if len(self.kept) == count or opened.high_watermark <= self.kept[-1].end_offset:
            return
        reached()
        opened.roll(now_ms)
        opened.advance_log_start(opened.high_watermark)
        job = opened.begin_retirement(now_ms)
        if job is not None:
            job.run()
            opened.finish_restructuring(job)

    patch.setattr(Snapshots, "_clean", clean)


def metadata_is_committed_unsynced(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: what came to the metadata log while the batches before it were synced is committed with them."""

    async def flush(self: MetadataQuorum) -> None:
        opened = self._opened
        try:
            while opened.recovery_point < opened.log_end and self._failure is None:
                job = opened.begin_flush(self._clock.wall_ms())
                await self._loop.run_in_executor(self._writer, job.run)
                opened.finish_flush(job)
                if self._failure is not None:
                    return
                if opened.log_end > job.offset:
                    reached()
                self._perform(self.machine.durable(self.settings.node_id, opened.log_end))
        except StorageError as error:
            self._fail(error)
        finally:
            self._flushing = None

    patch.setattr(MetadataQuorum, "_flush", flush)


def swaps_are_not_synced(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: a cleaned segment takes the place of others, and the folder is not synced between the renames."""

    def rename(self: Swap) -> None:
        reached()
        new = self._new
        new.change_suffix(names.CLEANED, names.SWAP)
        for segment, snapshot in zip(self._gone, self._snapshots_gone, strict=True):
            self._mark_deleted(segment, snapshot)
        for ref in [new.log, *(each for each in new.refs() if each is not new.log)]:
            ref.rename(self._fs, ref.path.removesuffix(names.SWAP))

    patch.setattr(Swap, "_rename", rename)
