"""When a snapshot of the metadata is taken, how, and what goes because of it.

A snapshot is due after so many bytes of records, or so much time with any. The image must stand still while it is
encoded, which the publisher sees to; that is done in slices of under a millisecond, so that nobody else waits for it,
and the file is made and written in a thread. Then old snapshots go, while there is a newer one, and the segments that
the oldest one kept covers (R8, KAFKA-14238). Their files go from the disk when housekeeping next looks. A segment ends
with each snapshot, so that what it covers can go, and so that recovery after a crash reads only what came after it.
"""

import asyncio
from typing import Final, Protocol

from mainstem.broker.clock import Clock
from mainstem.core.controller.image import ClusterImage
from mainstem.core.raft.quorum import VoterSet
from mainstem.storage.fs import FileSystem
from mainstem.storage.log import Log
from mainstem.storage.metadata_snapshot import Snapshot, SnapshotId, encode_snapshot, write_snapshot

RECORDS_PER_SLICE: Final = 64


class SnapshotSettings(Protocol):
    @property
    def snapshot_bytes(self) -> int: ...
    @property
    def snapshot_interval_ms(self) -> int: ...
    @property
    def retention_bytes(self) -> int: ...
    @property
    def retention_ms(self) -> int: ...


class Snapshots:
    """`kept` are those on disk, oldest first."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, fs: FileSystem, clock: Clock, folder: str, settings: SnapshotSettings
    ) -> None:
        self.kept: list[SnapshotId] = []
        self.bytes_since = 0
        """Bytes of the log that no snapshot covers."""
        self._loop = loop
        self._fs = fs
        self._clock = clock
        self._folder = folder
        self._settings = settings
        self._taken_at_ms = clock.wall_ms()

    def is_due(self) -> bool:
        settings = self._settings
        if self.bytes_since >= settings.snapshot_bytes:
            return True
        waited_ms = self._clock.wall_ms() - self._taken_at_ms
        return 0 < settings.snapshot_interval_ms <= waited_ms and self.bytes_since > 0

    async def take(
        self, image: ClusterImage, identity: SnapshotId, voters: VoterSet, last_timestamp: int, opened: Log
    ) -> None:
        """Writes a snapshot of `image`, which must not change meanwhile. OSError or StorageError are fatal."""
        newest = self.kept[-1].end_offset if self.kept else 0
        if identity.end_offset <= newest or image.in_transaction:
            return
        values: list[bytes] = []
        for value in image.encoded_records():
            values.append(value)
            if len(values) % RECORDS_PER_SLICE == 0:
                await self._let_others_run()
        self._taken_at_ms = self._clock.wall_ms()
        self.bytes_since = 0
        opened.roll(self._taken_at_ms)
        in_log = voters.kraft_version > 0
        snapshot = Snapshot(
            values, last_timestamp, voters.kraft_version if in_log else None, voters.record if in_log else None
        )
        await self._loop.run_in_executor(None, self._write, snapshot, identity, self._taken_at_ms)
        self.kept.append(identity)
        await self._clean(opened)

    def _write(self, snapshot: Snapshot, identity: SnapshotId, now_ms: int) -> None:
        write_snapshot(self._fs, self._path(identity), encode_snapshot(snapshot, identity.epoch, now_ms))

    def _path(self, identity: SnapshotId) -> str:
        return f"{self._folder}/{identity.file_name}"

    async def _let_others_run(self) -> None:
        turn: asyncio.Future[None] = self._loop.create_future()
        self._loop.call_soon(turn.set_result, None)
        await turn

    async def _clean(self, opened: Log) -> None:
        now_ms, settings = self._clock.wall_ms(), self._settings
        while len(self.kept) > 1:
            oldest, following = self.kept[0], self.kept[1]
            used_bytes = opened.size + sum(self._fs.file_size(self._path(one)) for one in self.kept)
            too_large = 0 <= settings.retention_bytes < used_bytes
            too_old = 0 <= settings.retention_ms < now_ms - self._fs.modified_ms(self._path(oldest))
            if not too_large and not too_old:
                return
            opened.advance_log_start(following.end_offset)
            job = opened.begin_retirement(now_ms)
            if job is not None:
                await self._loop.run_in_executor(None, job.run)
                opened.finish_restructuring(job)
            await self._loop.run_in_executor(None, self._fs.remove, self._path(oldest))
            del self.kept[0]
