"""Runs the metadata quorum: its log on disk, what is committed, and snapshots so that a start replays little.

Rules:
- Nothing is acknowledged or published before it is durable (R2, R5). Batches are written as they come and synced in a
  thread, one sync at a time: what comes meanwhile shares the next one.
- Committed records are published in order, by one task: first to `image`, then to whoever follows it.
- A start loads the newest whole snapshot and replays what follows it in the log. Nothing below that snapshot is ever
  cut. `metadata_snapshots` says when one is taken and what goes then.
- The first failure of the metadata directory is fatal: `on_fatal` is called once, and nothing is committed any more.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Final

from mainstem.broker.clock import Clock
from mainstem.broker.config import BrokerConfig
from mainstem.broker.drivers.metadata_snapshots import Snapshots
from mainstem.broker.logfmt import if_unforeseen
from mainstem.core.controller import versions
from mainstem.core.controller.image import ClusterImage, ImageDelta
from mainstem.core.log.config import LogConfig
from mainstem.core.raft.election import ElectionState
from mainstem.core.raft.quorum import Committed, Effect, PersistElection, Quorum, VoterSet, WriteBatch, one_voter
from mainstem.protocol.batch import BatchView, iterate_batches
from mainstem.protocol.control import ControlType, parse_control_key
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.control import KRaftVersionRecord, VotersRecord
from mainstem.protocol.messages.record_framing import decode_metadata_record
from mainstem.protocol.records import iterate_records
from mainstem.protocol.schema import Message
from mainstem.protocol.uuids import METADATA_TOPIC_ID
from mainstem.storage.errors import StorageError
from mainstem.storage.flushing import FlushJob
from mainstem.storage.fs import FileSystem
from mainstem.storage.log import Log
from mainstem.storage.metadata_snapshot import (
    BOOTSTRAP,
    SnapshotId,
    find_snapshots,
    read_snapshot,
    remove_unfinished,
)
from mainstem.storage.open_files import OpenFiles
from mainstem.storage.partition_metadata import write_topic_id
from mainstem.storage.quorum_state import read_quorum_state, write_quorum_state
from mainstem.storage.recovery import open_log

log = logging.getLogger(__name__)

FOLDER: Final = "__cluster_metadata-0"
READ_BYTES: Final = 1 << 20
RECORDS_PER_BATCH: Final = 2500
"""How many records of a decision that need not be atomic go into one batch."""
STOP_SNAPSHOT_BYTES: Final = 1 << 20
"""With more than this since the last snapshot, a clean stop takes one: the next start is the faster for it."""
OPEN_FILES: Final = 64

Follow = Callable[[ClusterImage, ImageDelta, int], Awaitable[None]]
"""Told of each change of the committed metadata: the image after it, what changed, and the last offset it holds."""


@dataclass(frozen=True, slots=True)
class QuorumSettings:
    node_id: int
    directory: str
    """The log directory that holds the metadata log."""
    directory_id: bytes
    endpoints: tuple[tuple[str, str, int], ...]
    """This controller's own: name of the listener, host, port."""
    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    snapshot_bytes: int = 20_971_520
    snapshot_interval_ms: int = 3_600_000
    retention_bytes: int = 104_857_600
    retention_ms: int = 604_800_000
    delete_delay_ms: int = 60_000

    @classmethod
    def from_config(cls, config: BrokerConfig, directory_id: bytes) -> "QuorumSettings":
        endpoints = [one for one in config.advertised if one.listener in config.controller_listeners]
        if not endpoints:
            endpoints = [one for one in config.listeners if one.listener in config.controller_listeners]
        return cls(
            node_id=config.node_id,
            directory=config.metadata_dir,
            directory_id=directory_id,
            endpoints=tuple((one.listener, one.host, one.port) for one in endpoints),
            segment_bytes=config.get_int("metadata.log.segment.bytes", at_least=8 << 20),
            segment_ms=config.get_int("metadata.log.segment.ms", at_least=1),
            snapshot_bytes=config.get_int("metadata.log.max.record.bytes.between.snapshots", at_least=1),
            snapshot_interval_ms=config.get_int("metadata.log.max.snapshot.interval.ms", at_least=0),
            retention_bytes=config.get_int("metadata.max.retention.bytes"),
            retention_ms=config.get_int("metadata.max.retention.ms"),
            delete_delay_ms=config.get_int("internal.metadata.delete.delay.millis"),
        )


class _Pending:
    """Records on their way: published when committed, and then `done` is told."""

    __slots__ = ("done", "end_offset", "records", "size")

    def __init__(self, records: Sequence[Message], done: "asyncio.Future[None]") -> None:
        self.records = records
        self.done = done
        self.end_offset = -1
        self.size = 0


class MetadataQuorum:
    """`load`, then `start`, then `append` as often as one likes, then `stop`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        fs: FileSystem,
        clock: Clock,
        settings: QuorumSettings,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self.settings = settings
        self.image = ClusterImage()
        """What is committed, as far as it has been published."""
        self.published_end = 0
        """Everything before this offset is in `image`."""
        self.followed_end = 0
        """Everything before this offset has also been taken over by who follows."""
        self.loaded = ImageDelta()
        """All that `load` found, as a change from nothing: what a follower begins with."""
        self._loop = loop
        self._fs = fs
        self._clock = clock
        self._on_fatal = on_fatal
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="metadata")
        """Its own, so that metadata is committed however many threads wait for the disks of data."""
        self._folder: Final = f"{settings.directory}/{FOLDER}"
        self._files = OpenFiles(fs, OPEN_FILES)
        self._quorum: Quorum | None = None
        self._log: Log | None = None
        self._failure: RemoteError | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._publishing: asyncio.Task[None] | None = None
        self._committed: list[_Pending] = []
        self._waiting_to_catch_up: list[asyncio.Future[None]] = []
        self._unanswered: dict[asyncio.Future[None], None] = {}
        self._follow: Follow | None = None
        self._snapshots = Snapshots(loop, fs, clock, self._folder, settings)
        self._snapshots_asked: list[asyncio.Future[None]] = []
        self._last_timestamp = 0

    # -- loading ---------------------------------------------------------------------------------------------------

    def load(self, images: Sequence[ClusterImage] = ()) -> None:
        """Opens the log and replays it, also into `images`. Blocks. ValueError where the directory is not for us."""
        fs, settings = self._fs, self.settings
        now_ms = self._clock.wall_ms()
        if not fs.exists(self._folder):
            fs.make_directory(self._folder)
            write_topic_id(fs, self._folder, METADATA_TOPIC_ID)
            fs.sync_directory(settings.directory)
        remove_unfinished(fs, self._folder)
        election = read_quorum_state(fs, self._folder) or ElectionState()
        voters = VoterSet(0, VotersRecord(version=0, voters=[]), in_log=False)
        start = self._load_snapshot(images, voters)
        config = LogConfig(
            segment_bytes=settings.segment_bytes,
            segment_ms=settings.segment_ms,
            retention_ms=-1,
            retention_bytes=-1,
            file_delete_delay_ms=settings.delete_delay_ms,
        )
        opened = open_log(self._files, self._folder, config, now_ms, recovery_point=start.end_offset)
        if opened.cut is not None:
            log.warning("recovery has cut a log", extra={"partition": FOLDER, **asdict(opened.cut)})
        if opened.log_start > start.end_offset:
            raise ValueError(
                f"{self._folder}: the log begins at {opened.log_start}, and no whole snapshot reaches up to there"
            )
        self._log = opened
        self._replay(images, voters, start.end_offset)
        if voters.kraft_version == 0:
            voters.record = one_voter(settings.node_id, settings.directory_id, settings.endpoints)
        self._check_voters(voters)
        last_epoch = max(opened.epochs.latest, start.epoch, 0)
        self._quorum = Quorum(settings.node_id, election, voters, log_end=opened.log_end, last_epoch=last_epoch)

    def _load_snapshot(self, images: Sequence[ClusterImage], voters: VoterSet) -> SnapshotId:
        """Replays the newest snapshot that is whole."""
        self._snapshots.kept = find_snapshots(self._fs, self._folder)
        for each in reversed(self._snapshots.kept):
            path = f"{self._folder}/{each.file_name}"
            try:
                found = read_snapshot(self._fs, path)
            except OSError as error:
                log.warning("snapshot cannot be read, trying an older one", extra={"path": path, "reason": str(error)})
                continue
            for value in found.values:
                self._replay_record(value, images)
            if found.kraft_version is not None and found.voters is not None:
                voters.kraft_version = found.kraft_version
                voters.record = found.voters
                # What `format` wrote is where the voters come from, but they are not in the log yet.
                voters.in_log = each.end_offset > 0
            self._last_timestamp = found.last_timestamp
            return each
        return SnapshotId(0, 0)

    def _replay(self, images: Sequence[ClusterImage], voters: VoterSet, offset: int) -> None:
        for batch in self._batches(offset):
            self._snapshots.bytes_since += batch.size
            self._last_timestamp = batch.max_timestamp
            if batch.is_control:
                _take_voters(batch, voters)
                continue
            for each in iterate_records(batch):
                assert each.value is not None, f"a metadata record without a value at {each.offset}"
                self._replay_record(each.value, images)
        self.published_end = self.followed_end = self._opened.log_end

    def _replay_record(self, value: bytes, images: Sequence[ClusterImage]) -> None:
        record = decode_metadata_record(value)[0]
        self.image.replay(record, self.loaded)
        for image in images:
            image.replay(record)

    def _batches(self, offset: int) -> Iterator[BatchView]:
        """Those from `offset` on. ValueError where one is missing: nothing goes from the middle of this log."""
        opened = self._opened
        while offset < opened.log_end:
            before = offset
            found = opened.read(offset, READ_BYTES, opened.log_end)
            try:
                data = found.read()
            finally:
                found.release()
            for batch in iterate_batches(data, 0, len(data)):
                if batch.base_offset > offset:
                    break
                if batch.base_offset == offset:
                    yield batch
                offset = batch.next_offset
            if offset == before:
                raise ValueError(f"{self._folder}: the log ends at {opened.log_end}, and offset {offset} is not in it")

    def _check_voters(self, voters: VoterSet) -> None:
        mine = voters.find(self.settings.node_id)
        if mine is not None and mine.voter_directory_id not in (self.settings.directory_id, bytes(16)):
            raise ValueError(
                f"{self.settings.directory} is not the directory that node {self.settings.node_id} votes with; "
                "it was formatted anew or copied"
            )
        if mine is not None and voters.kraft_version > 0:
            wanted = one_voter(self.settings.node_id, self.settings.directory_id, self.settings.endpoints)
            if mine != wanted.voters[0]:
                # Another address since the last start: the leader tells the log (KIP-853).
                voters.record.voters[voters.record.voters.index(mine)] = wanted.voters[0]
                voters.in_log = False

    def bootstrap_records(self) -> list[Message]:
        """What `format` decided that a new cluster begins with."""
        path = f"{self.settings.directory}/{BOOTSTRAP}"
        if not self._fs.exists(path):
            raise ValueError(f"{path} is missing; format the directory with: mainstem format")
        return [decode_metadata_record(value)[0] for value in read_snapshot(self._fs, path).values]

    # -- what is known ---------------------------------------------------------------------------------------------

    @property
    def machine(self) -> Quorum:
        assert self._quorum is not None, "load first"
        return self._quorum

    @property
    def _opened(self) -> Log:
        assert self._log is not None, "load first"
        return self._log

    @property
    def next_offset(self) -> int:
        return self.machine.log_end

    @property
    def snapshots(self) -> list[SnapshotId]:
        """Those on disk, oldest first."""
        return list(self._snapshots.kept)

    def follow(self, follow: Follow) -> None:
        """Has every change from now on published to `follow`, one at a time."""
        self._follow = follow

    # -- leading ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Returns when this node leads and its first batch is committed."""
        [persist] = self.machine.start()
        assert isinstance(persist, PersistElection)
        voters = self.machine.voters
        static = voters.ids if voters.kraft_version == 0 else None
        try:
            await self._loop.run_in_executor(
                self._writer, write_quorum_state, self._fs, self._folder, persist.state, static
            )
        except OSError as error:
            self._fail(error)
            raise
        self._perform(self.machine.election_persisted(persist.state, self._clock.wall_ms()))
        await self.committed()
        log.info("metadata quorum led", extra={"epoch": self.machine.epoch, "offset": self.machine.log_end})

    def append(self, records: Sequence[Message], metadata_version: int, atomic: bool = True) -> "asyncio.Future[None]":
        """Writes records; the future is done when all of them are committed."""
        done = self._loop.create_future()
        if self._failure is not None:
            done.set_exception(self._failure)
            return done
        self._unanswered[done] = None
        size = len(records) if atomic else RECORDS_PER_BATCH
        for at in range(0, len(records), size):
            part = records[at : at + size]
            values = [versions.encode_record(record, metadata_version) for record in part]
            last = at + size >= len(records)
            pending = _Pending(part, done if last else self._loop.create_future())
            self._perform(self.machine.append(values, self._clock.wall_ms(), pending))
        return done

    def committed(self) -> "asyncio.Future[None]":
        """Done when everything appended so far is committed."""
        done = self._loop.create_future()
        if self._failure is not None:
            done.set_exception(self._failure)
            return done
        self._unanswered[done] = None
        self._perform(self.machine.wait_for_log_end(_Pending((), done)))
        return done

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case WriteBatch():
                    self._write(effect)
                case Committed():
                    self._commit(effect)
                case PersistElection():
                    raise AssertionError("an election is persisted where it is waited for")

    def _write(self, write: WriteBatch) -> None:
        if self._failure is not None:
            return
        try:
            self._opened.append_as_follower(write.data, 0, len(write.data), write.epoch, self._clock.wall_ms())
        except StorageError as error:
            self._fail(error)
            return
        self._snapshots.bytes_since += len(write.data)
        if self._flushing is None:
            self._flushing = self._loop.create_task(self._flush())

    async def _flush(self) -> None:
        opened = self._opened
        try:
            while opened.recovery_point < opened.log_end and self._failure is None:
                job: FlushJob = opened.begin_flush(self._clock.wall_ms())
                await self._loop.run_in_executor(self._writer, job.run)
                opened.finish_flush(job)
                if self._failure is not None:
                    return
                self._perform(self.machine.durable(self.settings.node_id, job.offset))
        except StorageError as error:
            self._fail(error)
        finally:
            self._flushing = None

    def _commit(self, committed: Committed) -> None:
        self._opened.update_high_watermark(committed.high_watermark)
        for ack in committed.acks:
            assert isinstance(ack, _Pending)
            ack.end_offset = committed.high_watermark
            self._committed.append(ack)
        if self._committed and self._publishing is None:
            self._publishing = self._loop.create_task(self._publish())

    # -- publishing ------------------------------------------------------------------------------------------------

    async def _publish(self) -> None:
        try:
            while self._committed or self._snapshots_asked:
                if self._snapshots_asked or self._snapshots.is_due():
                    await self._take_snapshot()
                ready, self._committed = self._committed, []
                if not ready:
                    continue
                delta = ImageDelta()
                for pending in ready:
                    self.image.replay_all(pending.records, delta)
                self.published_end = max(self.published_end, ready[-1].end_offset)
                self._last_timestamp = self._clock.wall_ms()
                for pending in ready:
                    self._unanswered.pop(pending.done, None)
                    if not pending.done.done():
                        pending.done.set_result(None)
                if self._follow is not None and any(pending.records for pending in ready):
                    await self._follow(self.image, delta, self.published_end - 1)
                self.followed_end = self.published_end
        except Exception as error:
            # An image that cannot follow the log is wrong from here on (KAFKA-14275).
            self._fail(error)
        finally:
            self._publishing = None
            waiting, self._waiting_to_catch_up = self._waiting_to_catch_up, []
            for idle in waiting:
                if not idle.done():
                    idle.set_result(None)

    async def caught_up(self) -> None:
        """Returns when who follows has taken over everything that is committed now. Not for who follows to ask."""
        if self._publishing is not None:
            idle = self._loop.create_future()
            self._waiting_to_catch_up.append(idle)
            await idle

    def directory_failed(self, error: OSError) -> None:
        """Another log's write to the same directory has failed: nothing more is written to this one either (D5)."""
        self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if self._failure is not None:
            return
        self._failure = RemoteError(ErrorCode.KAFKA_STORAGE_ERROR, "the metadata log has failed")
        log.error(
            "metadata log failed",
            exc_info=if_unforeseen(error),
            extra={"path": self._folder, "reason": str(error)},
        )
        waiting, self._unanswered = self._unanswered, {}
        for done in waiting:
            if not done.done():
                done.set_exception(self._failure)
        self._on_fatal(error)

    def snapshot(self) -> "asyncio.Future[None]":
        """Takes a snapshot of what is published, though none is due; done when it is on disk."""
        done = self._loop.create_future()
        self._snapshots_asked.append(done)
        if self._publishing is None:
            self._publishing = self._loop.create_task(self._publish())
        return done

    async def _take_snapshot(self) -> None:
        asked, self._snapshots_asked = self._snapshots_asked, []
        if self._failure is None:
            # The epoch of the last record it covers, which may be an earlier leader's.
            identity = SnapshotId(self.published_end, self._opened.epoch_for(self.published_end - 1))
            await self._snapshots.take(self.image, identity, self.machine.voters, self._last_timestamp, self._opened)
        for done in asked:
            if not done.done():
                done.set_result(None)

    async def remove_files(self) -> None:
        """Removes what was taken out of the log long enough ago."""
        try:
            for removal in self._opened.due_removals(self._clock.wall_ms()):
                await self._loop.run_in_executor(None, removal.run)
        except OSError as error:
            self._fail(error)

    # -- the end ---------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Leaves the log closed and synced. What was not committed before is not answered any more."""
        # What a flush commits is published, which may have been over by then.
        while (task := self._flushing or self._publishing) is not None:
            await task
        if self._snapshots.bytes_since > STOP_SNAPSHOT_BYTES:
            await self.snapshot()
        if self._log is not None:
            await self._loop.run_in_executor(self._writer, self._log.close, self._clock.wall_ms())
        self._writer.shutdown(wait=False)

    def drop_thread(self) -> None:
        """Without a stop: what is being written is waited for, and nothing more is."""
        self._writer.shutdown(cancel_futures=True)


def _take_voters(batch: BatchView, voters: VoterSet) -> None:
    for record in iterate_records(batch):
        match parse_control_key(record.key):
            case ControlType.KRAFT_VERSION:
                voters.kraft_version = KRaftVersionRecord.decode(record.value or b"", 0).kraft_version
            case ControlType.KRAFT_VOTERS:
                voters.record = VotersRecord.decode(record.value or b"", 0)
                voters.in_log = True
