"""A machine with one log on a simulated disk, beside a model that knows what the log must hold.

Operations are plain tuples whose numbers are taken modulo what is possible at that moment, so that any list of them
can be run, shortened and run again: failures shrink (`shrink`), and a shrunk list is a regression test. The same world
serves the property test, which draws operations at random, and the crash test, which loses power at every step of a
short list.

What the model allows after power loss (D3): the log is a prefix of a log that existed since the last time everything
was durable, and holds all that was durable. After kill -9 it is exactly what it was.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from mainstem.core.log.config import LogConfig
from mainstem.core.log.producers import Origin
from mainstem.protocol.batch import iterate_batches
from mainstem.protocol.builder import BatchBuilder
from mainstem.protocol.control import EndMarker, build_end_marker
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.sim.disk import SimDisk
from mainstem.storage.checkpoint import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from mainstem.storage.leader_epoch_file import format_leader_epochs
from mainstem.storage.log import Log
from mainstem.storage.log_directory import LogPlace
from mainstem.storage.log_dirs import LogDirs
from mainstem.storage.meta_properties import MetaProperties, write_meta_properties
from mainstem.storage.open_files import OpenFiles
from mainstem.storage.recovery import open_log
from tests.support.log_files import check_folder

Operation = tuple[str | int, ...]

ROOT = "/data"
TOPIC, PARTITION = "t", 0
FOLDER = f"{ROOT}/{TOPIC}-{PARTITION}"
CLUSTER = "cluster"
START_MS = 1_300_000_000_000
PRODUCERS = 3

CONFIG = LogConfig(
    internal_segment_bytes=1500,
    index_interval_bytes=150,
    segment_index_bytes=400,
    retention_bytes=6000,
    retention_ms=100_000,
    file_delete_delay_ms=1000,
    segment_ms=60_000,
)


@dataclass(frozen=True, slots=True)
class Written:
    """One batch as the model has it."""

    base_offset: int
    next_offset: int
    epoch: int
    sent: bytes
    """As the producer sent it."""
    data: bytes
    """As it is stored: base offset and leader epoch stamped."""
    timestamps: tuple[int, ...]
    producer: int
    producer_epoch: int
    sequence: int
    transactional: bool
    control: str


@dataclass
class ModelProducer:
    epoch: int = 0
    next_sequence: int = 0
    open: bool = False
    recent: list[Written] = field(default_factory=list)
    """The last batches of this epoch, at most five."""


@dataclass
class Expected:
    """What may be found on the disk after power loss."""

    histories: list[list[Written]] = field(default_factory=lambda: [[]])
    """Every log that power loss may bring back, whole or cut; the last is the one now."""
    empty_end: int = 0
    """Where a log without batches ends."""
    durable_end: int = 0
    start_min: int = 0
    start_max: int = 0
    epochs_from: int = 0
    """The largest log start there was: epochs below it may be forgotten, even if that log start is."""

    def copy(self) -> "Expected":
        return replace(self, histories=list(self.histories))

    def check(self, disk: SimDisk, log: Log) -> list[Written]:
        """D3, D4 and D6: the log is a legal one, and its files say what its batches do. Returns its batches."""
        check_order(log)
        files = files_on(disk)
        # The epochs' file may be older than the log until the next flush; recovery makes up for it. It may also have
        # been written after the log start moved, and the log start be lost: then the first epochs are not known.
        files["leader-epoch-checkpoint"] = format_leader_epochs(log.epochs)
        epochs_from = max(log.log_start, self.epochs_from)
        found = check_folder(files, complete=False, from_the_start=False, log_start=epochs_from)
        assert log.log_end >= self.durable_end, f"{log}: offsets below {self.durable_end} were durable"
        assert self.start_min <= log.log_start <= max(self.start_max, self.start_min), (
            f"{log}: it started between {self.start_min} and {self.start_max}"
        )
        stored = b"".join(files[name] for name in sorted(files) if name.endswith(".log"))
        for history in reversed(self.histories):
            kept = [each for each in history if each.next_offset <= log.log_end]
            if not found:
                return kept
            tail = [each for each in kept if each.base_offset >= found[0].base_offset]
            if tail and tail[-1].next_offset == log.log_end and b"".join(each.data for each in tail) == stored:
                return kept
        offsets = [(each.base_offset, each.leader_epoch) for each in found]
        raise AssertionError(f"{log}: {offsets} is no log there was")


def check_order(log: Log) -> None:
    """D2."""
    assert log.log_start <= log.last_stable_offset <= log.high_watermark <= log.log_end, log
    assert log.recovery_point <= log.log_end, log
    assert log.segments[0].base_offset <= log.log_start, log


def files_on(disk: SimDisk) -> dict[str, bytes]:
    """The files of the log's folder."""
    prefix = FOLDER + "/"
    found = disk.contents().items()
    return {path.removeprefix(prefix): data for path, data in found if path.startswith(prefix) and data is not None}


def open_directories(disk: SimDisk, config: LogConfig, now_ms: int) -> LogDirs[Log]:
    files = OpenFiles(disk, 10)

    def opener(place: LogPlace) -> Log:
        starts = place.log_start, place.recovery_point, place.high_watermark
        return open_log(files, place.folder, config, now_ms, *starts, clean=place.clean, gaps_until=place.gaps_until)

    dirs: LogDirs[Log] = LogDirs(disk, Random(1), [ROOT], CLUSTER, 1, opener)
    for _ in dirs.load(now_ms):
        pass
    assert not dirs.failed_logs, dirs.failed_logs
    assert not dirs.any_offline, dirs.directories[0].offline
    return dirs


class World:
    def __init__(self, seed: int = 0, config: LogConfig = CONFIG) -> None:
        self.rng = Random(seed)
        self.config = config
        self.now_ms = START_MS
        self.leader_epoch = 0
        self.expected = Expected()
        self.was_rebuilt = False
        """Whether producer state was worked out from the batches, of which those below the log start tell nothing."""
        self.counts: dict[str, int] = {}
        self.disk = SimDisk(self.rng, lambda: self.now_ms)
        self.disk.make_directories(ROOT)
        write_meta_properties(self.disk, ROOT, MetaProperties(CLUSTER, 1, bytes(range(16))), self.now_ms)
        self.dirs = open_directories(self.disk, config, self.now_ms)
        self.dirs.create(TOPIC, PARTITION, bytes(range(16)), is_new=True)
        self._lead()

    @property
    def log(self) -> Log:
        return self.dirs.logs[TOPIC, PARTITION]

    @property
    def batches(self) -> list[Written]:
        return self.expected.histories[-1]

    def _lead(self) -> None:
        self.leader_epoch += 1
        self.log.assign_epoch(self.leader_epoch)

    # Operations

    def run(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            self.step(operation)

    def step(self, operation: Operation) -> None:
        name, *numbers = operation
        self.counts[str(name)] = self.counts.get(str(name), 0) + 1
        action: Callable[..., None] = getattr(self, f"do_{name}")
        action(*numbers)
        self.expected.epochs_from = max(self.expected.epochs_from, self.expected.start_max)
        check_order(self.log)

    def do_append(self, records: int, size: int, time_step: int) -> None:
        self._append(self._build(records, size, time_step, -1, -1, -1, False), -1)

    def do_produce(self, producer: int, records: int, size: int) -> None:
        """An idempotent batch; a transactional one where the producer has a transaction open."""
        producer %= PRODUCERS
        state = self.producer(producer)
        if not self.is_known(producer):
            return
        self._append(
            self._build(records, size, 10, producer, state.epoch, state.next_sequence, state.open), producer, state.open
        )

    def do_begin(self, producer: int, records: int, size: int) -> None:
        """The first batch of a transaction, or another one."""
        producer %= PRODUCERS
        state = self.producer(producer)
        if not self.is_known(producer):
            return
        self._append(self._build(records, size, 10, producer, state.epoch, state.next_sequence, True), producer, True)

    def do_end(self, producer: int, commit: int) -> None:
        """A marker, with or without a transaction that is open."""
        producer %= PRODUCERS
        state = self.producer(producer)
        if not self.is_known(producer):
            return
        marker = EndMarker(producer, state.epoch, commit % 2 == 1, 7, 0, self.now_ms)
        self._append(build_end_marker(marker), producer, True, "commit" if commit % 2 else "abort")

    def do_retry(self, producer: int, back: int) -> None:
        """One of the last five batches comes again: it gets its old offset and nothing is written."""
        state = self.producer(producer % PRODUCERS)
        known = [each for each in state.recent if each.base_offset >= self.log.log_start]
        if not known:
            return
        again = known[-1 - back % len(known)]
        end = self.log.log_end
        result = self.log.append_as_leader(again.sent, 0, len(again.sent), self.leader_epoch, self.now_ms)
        assert result.is_duplicate, f"{again} was taken for new"
        assert (result.base_offset, result.last_offset) == (again.base_offset, again.next_offset - 1)
        assert self.log.log_end == end

    def do_gap(self, producer: int, by: int) -> None:
        """A batch is missing before this one: it must be refused, and nothing changes."""
        producer %= PRODUCERS
        state = self.producer(producer)
        if state.next_sequence == 0 or not self.is_known(producer):
            return
        sequence = state.next_sequence + 1 + by % 1000
        data = self._build(1, 10, 0, producer, state.epoch, sequence, False)
        self._refused(data, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)

    def do_fenced(self, producer: int) -> None:
        producer %= PRODUCERS
        state = self.producer(producer)
        if state.epoch > 0 and self.is_known(producer):
            data = self._build(1, 10, 0, producer, state.epoch - 1, state.next_sequence, False)
            self._refused(data, ErrorCode.INVALID_PRODUCER_EPOCH)

    def do_bump(self, producer: int, records: int) -> None:
        """The producer starts over with a higher epoch."""
        producer %= PRODUCERS
        state = self.producer(producer)
        if state.open or state.next_sequence == 0 or not self.is_known(producer):
            return
        self._append(self._build(records, 20, 10, producer, state.epoch + 1, 0, False), producer)

    def do_corrupt(self, size: int, bit: int) -> None:
        data = bytearray(self._build(2, size, 0, -1, -1, -1, False))
        bit = 17 * 8 + bit % ((len(data) - 17) * 8)
        data[bit >> 3] ^= 1 << (bit & 7)
        self._refused(bytes(data), ErrorCode.CORRUPT_MESSAGE)

    def do_epoch(self) -> None:
        self._lead()
        self.log.persist_epochs()

    def do_roll(self) -> None:
        self.log.roll(self.now_ms)

    def do_flush(self) -> None:
        self.log.flush(self.now_ms)
        self.expected.histories, self.expected.durable_end = [self.batches], self.log.log_end

    def do_flush_rolled(self) -> None:
        job = self.log.begin_flush(self.now_ms, rolled_only=True)
        job.run()
        self.log.finish_flush(job)
        self.expected.durable_end = max(self.expected.durable_end, self.log.recovery_point)

    def do_checkpoint(self, which: int) -> None:
        name = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS)[which % 3]
        start = self.log.log_start
        self.dirs.checkpoint(name)
        if name == LOG_STARTS and start > self.log.segments[0].base_offset:
            self.expected.start_min = max(self.expected.start_min, start)

    def do_high_watermark(self, offset: int) -> None:
        bounds = [each.next_offset for each in self.batches if each.next_offset > self.log.high_watermark]
        bounds.append(self.log.high_watermark)
        self.log.update_high_watermark(bounds[offset % len(bounds)])

    def do_delete_records(self, offset: int) -> None:
        span = self.log.high_watermark - self.log.log_start
        start = self.log.log_start + offset % (span + 1)
        self.expected.start_max = max(self.expected.start_max, start)
        self.log.advance_log_start(start)
        assert self.log.log_start == start

    def do_retention(self, time_step: int) -> None:
        self.now_ms += time_step
        self.expected.start_max = max(self.expected.start_max, self.log.high_watermark)
        before = self.log.log_start
        self.log.delete_old_segments(self.now_ms)
        assert before <= self.log.log_start <= self.log.high_watermark
        self.expected.start_max = self.log.log_start

    def do_slow_retention(self, time_step: int, records: int, size: int) -> None:
        """The same while others write and flush: the thread that renames comes last."""
        self.now_ms += time_step
        before = self.log.log_start
        self.expected.start_max = max(self.expected.start_max, self.log.high_watermark)
        job = self.log.begin_retirement(self.now_ms)
        assert before <= self.log.log_start <= self.log.high_watermark
        self.do_append(records, size, 1)
        flush = self.log.begin_flush(self.now_ms)
        if job is not None:
            job.run()
        flush.run()
        self.log.finish_flush(flush)
        # With very many segments that are not synced it is a part of the flush.
        self.expected.durable_end = max(self.expected.durable_end, flush.offset)
        if not flush.is_partial:
            self.expected.histories = [self.batches]
        if job is not None:
            self.log.finish_restructuring(job)
        self.expected.start_max = self.log.log_start

    def do_remove_files(self, time_step: int) -> None:
        self.now_ms += time_step
        for job in self.log.due_removals(self.now_ms):
            job.run()

    def do_truncate(self, offset: int) -> None:
        """To the start of a batch at or past the log start, as a follower does, or to the end."""
        if self.log.log_end == self.log.log_start:
            return
        bounds = [each.base_offset for each in self.batches if each.base_offset >= self.log.log_start]
        bounds.append(self.log.log_end)
        to = bounds[offset % len(bounds)]
        self.expected.histories.append([each for each in self.batches if each.next_offset <= to])
        self.expected.empty_end = to
        self.expected.durable_end = min(self.expected.durable_end, to)
        self.was_rebuilt = True
        self.dirs.lower_recovery_point(TOPIC, PARTITION, to)
        self.log.truncate_to(to, self.now_ms)
        assert self.log.log_end == to
        self.leader_epoch += 1
        self.log.assign_epoch(self.leader_epoch)

    def do_read(self, offset: int, max_bytes: int) -> None:
        log = self.log
        span = log.log_end - log.log_start
        at = log.log_start + offset % (span + 1)
        upper = log.high_watermark if offset % 2 else log.log_end
        if upper not in [each.next_offset for each in self.batches]:
            # A checkpointed high watermark may be older than what was lost and written anew, and lie inside a batch.
            upper = log.log_end
        found = log.read(at, 1 + max_bytes, upper)
        data = found.read()
        found.release()
        visible = [each for each in self.batches if each.next_offset > at and each.base_offset < upper]
        whole = b"".join(each.data for each in visible)
        assert whole.startswith(data), f"read of {at} below {upper}: {len(data)} bytes that are not the log's"
        if visible:
            assert len(data) >= len(visible[0].data), f"read of {at}: no whole batch"
        else:
            assert data == b""

    def do_lookup(self, back_ms: int) -> None:
        timestamp = self.now_ms - back_ms % (self.now_ms - START_MS + 100)
        found = self.log.offset_for_timestamp(timestamp, self.log.log_end)
        expected = None
        for batch in self.batches:
            for delta, each in enumerate(batch.timestamps):
                if expected is None and each >= timestamp and batch.base_offset + delta >= self.log.log_start:
                    expected = (batch.base_offset + delta, each)
        assert (found and (found.offset, found.timestamp)) == expected, f"lookup of {timestamp}"

    def do_time(self, step: int) -> None:
        self.now_ms += step

    def do_write_back(self, share: int) -> None:
        """The kernel flushes some files by itself."""
        self.disk.write_back(self.rng, (share % 10) / 10)

    def do_clean_restart(self) -> None:
        self.expected.start_min = self.log.log_start
        high_watermark, end = self.log.high_watermark, self.log.log_end
        self.dirs.close(broker_epoch=1, now_ms=self.now_ms)
        self.expected.histories, self.expected.durable_end = [self.batches], end
        check_folder(files_on(self.disk), from_the_start=self.is_whole, log_start=self.expected.epochs_from)
        self.recover()
        assert self.log.high_watermark == high_watermark

    def do_kill(self) -> None:
        end = self.log.log_end
        self.disk.kill()
        self.was_rebuilt = True
        self.recover()
        assert self.log.log_end == end, f"{self.log}: it ended at {end} before the kill"

    def do_power_loss(self, seed: int) -> None:
        self.disk.power_loss(Random(seed))
        self.was_rebuilt = True
        self.recover()
        self.expected.durable_end = self.log.log_end
        self.expected.start_min = self.expected.start_max = self.log.log_start

    # Appending

    def producer(self, producer: int) -> ModelProducer:
        """What follows from the batches the log has."""
        state = ModelProducer()
        for batch in self.batches:
            if batch.producer != producer:
                continue
            if batch.producer_epoch != state.epoch:
                state = ModelProducer(batch.producer_epoch, open=state.open)
            if batch.control:
                state.open = False
            else:
                state.open = state.open or batch.transactional
                state.next_sequence = batch.sequence + len(batch.timestamps)
                state.recent = [*state.recent, batch][-5:]
        return state

    def is_known(self, producer: int) -> bool:
        """Whether the log must know the producer: all its batches are there, or no state was ever rebuilt."""
        mine = [each for each in self.batches if each.producer == producer]
        return not self.was_rebuilt or all(each.base_offset >= self.log.log_start for each in mine)

    def _build(
        self, records: int, size: int, time_step: int, producer: int, epoch: int, sequence: int, transactional: bool
    ) -> bytes:
        self.now_ms += time_step % 1000
        builder = BatchBuilder(
            producer_id=producer, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
        )
        for number in range(1 + records % 4):
            value = bytes([self.rng.randrange(256)]) * (size % 300)
            builder.append(self.now_ms - (number * 7) % 20, None, value)
        return builder.build()

    def _append(self, data: bytes, producer: int, transactional: bool = False, control: str = "") -> None:
        base = self.log.log_end
        (view,) = iterate_batches(data, 0, len(data))
        stored = view.stamp(base, self.leader_epoch) + data[16:]
        timestamps = tuple(
            view.base_timestamp - (number * 7) % 20 for number in range(0 if control else view.record_count)
        )
        batch = Written(
            base,
            base + view.last_offset_delta + 1,
            self.leader_epoch,
            data,
            stored,
            timestamps or (view.max_timestamp,),
            producer,
            view.producer_epoch,
            view.base_sequence,
            transactional,
            control,
        )
        # Known to the model first: power may be lost in the middle of it.
        self.expected.histories[-1] = [*self.batches, batch]
        origin = Origin.COORDINATOR if control else Origin.CLIENT
        result = self.log.append_as_leader(data, 0, len(data), self.leader_epoch, self.now_ms, origin)
        assert not result.is_duplicate
        assert (result.base_offset, result.last_offset + 1) == (base, batch.next_offset)
        assert self.log.log_end == batch.next_offset

    def _refused(self, data: bytes, code: ErrorCode) -> None:
        end = self.log.log_end
        with pytest.raises(RemoteError) as refused:
            self.log.append_as_leader(data, 0, len(data), self.leader_epoch, self.now_ms)
        assert refused.value.code is code
        assert self.log.log_end == end

    # Checking

    @property
    def is_whole(self) -> bool:
        """Whether nothing was removed from the front, so that all state follows from the batches there."""
        return self.expected.start_max == 0

    def recover(self) -> None:
        """Opens what is on the disk and takes it for the truth, if it is one of those allowed."""
        self.dirs = open_directories(self.disk, self.config, self.now_ms)
        self.expected.histories = [self.expected.check(self.disk, self.log)]
        self.expected.empty_end = self.log.log_end
        self._lead()


def random_operations(seed: int, count: int) -> list[Operation]:
    """A list of operations, with their numbers, that depends on nothing but the seed."""
    rng = Random(seed)
    weights = dict(WEIGHTS)
    # Some runs leave some kinds out altogether: rare combinations come up more often (swarm testing).
    for name in list(weights):
        if rng.random() < 0.25:
            weights[name] = 0
    weights["append"] += 1
    names = list(weights)
    chosen = rng.choices(names, [weights[name] for name in names], k=count)
    return [(name, *(rng.randrange(limit) for limit in NUMBERS[name])) for name in chosen]


WEIGHTS = {
    "append": 12,
    "produce": 12,
    "begin": 6,
    "end": 6,
    "retry": 6,
    "gap": 1,
    "fenced": 1,
    "bump": 1,
    "corrupt": 1,
    "epoch": 1,
    "roll": 2,
    "flush": 3,
    "flush_rolled": 2,
    "checkpoint": 4,
    "high_watermark": 10,
    "delete_records": 2,
    "retention": 2,
    "slow_retention": 1,
    "remove_files": 1,
    "truncate": 2,
    "read": 12,
    "lookup": 4,
    "time": 1,
    "write_back": 1,
    "clean_restart": 1,
    "kill": 1,
    "power_loss": 2,
}
NUMBERS: dict[str, tuple[int, ...]] = {
    "append": (4, 300, 1000),
    "produce": (PRODUCERS, 4, 300),
    "begin": (PRODUCERS, 4, 300),
    "end": (PRODUCERS, 2),
    "retry": (PRODUCERS, 5),
    "gap": (PRODUCERS, 1000),
    "fenced": (PRODUCERS,),
    "bump": (PRODUCERS, 4),
    "corrupt": (100, 10_000),
    "epoch": (),
    "roll": (),
    "flush": (),
    "flush_rolled": (),
    "checkpoint": (3,),
    "high_watermark": (1000,),
    "delete_records": (1000,),
    "retention": (200_000,),
    "slow_retention": (200_000, 4, 300),
    "remove_files": (3000,),
    "truncate": (1000,),
    "read": (1000, 5000),
    "lookup": (100_000,),
    "time": (50_000,),
    "write_back": (10,),
    "clean_restart": (),
    "kill": (),
    "power_loss": (1_000_000,),
}


def shrink(operations: list[Operation], fails: Callable[[list[Operation]], bool]) -> list[Operation]:
    """A shorter list that still fails: pieces are left out, large ones first."""
    size = len(operations) // 2
    while size:
        at = 0
        while at < len(operations):
            shorter = operations[:at] + operations[at + size :]
            if shorter and fails(shorter):
                operations = shorter
            else:
                at += size
        size //= 2
    return operations
