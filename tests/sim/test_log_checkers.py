"""What the simulator's checkers of logs let pass, and what not: batches that come twice, and beginnings that go."""

from collections import Counter
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from mainstem.build_info import build_name
from mainstem.core.controller.image import TOPIC, ClusterImage
from mainstem.core.log.config import LogConfig
from mainstem.core.log.producers import CapturedProducers
from mainstem.protocol.batch import BatchView
from mainstem.protocol.builder import BatchBuilder
from mainstem.protocol.control import EndMarker, build_end_marker
from mainstem.protocol.messages.metadata_records import ConfigRecord, TopicRecord
from mainstem.sim.checkers.appended_once import AppendedOnce
from mainstem.sim.checkers.crash_keeps import CrashKeeps
from mainstem.sim.checkers.durable_stays import CHECKPOINT, DurableStays
from mainstem.sim.checkers.metadata_replays import REACHED as START_MOVED
from mainstem.sim.checkers.metadata_replays import MetadataReplays, is_same
from mainstem.sim.checkers.moves_end import MovesEnd
from mainstem.sim.checkers.producers_outlive import ProducersOutlive
from mainstem.sim.checkers.sound_stays import CLEANED, LOG_STARTS, SoundStays
from mainstem.sim.checkers.times_are_found import NOT_FOUND, Answer, check
from mainstem.sim.checkers.what_goes_is_due import WhatGoesIsDue
from mainstem.sim.client import SimClient
from mainstem.sim.disk import SimDisk
from mainstem.sim.ledger import Ledger, Violation
from mainstem.sim.loop import EPOCH_MS, Scheduler, SimClock, make_loop
from mainstem.sim.workloads import check_got_on
from mainstem.sim.written import Written, WrittenLog
from mainstem.storage.checkpoint import write_file_durably
from mainstem.storage.open_files import OpenFiles
from mainstem.storage.partition_folder import COPY
from mainstem.storage.recovery import open_log
from mainstem.storage.snapshot import encode_snapshot

PLACE = ("log", 0)
EXPIRATION_MS = 1000


class Run:
    """What checkers ask of a run, and one log that is appended to."""

    def __init__(self) -> None:
        self.scheduler = Scheduler(Random(0))
        counts: Counter[str] = Counter()
        self.counts = counts
        self.written: Any = SimpleNamespace(batches=[], is_known=True)
        self.world: Any = SimpleNamespace(
            process=SimpleNamespace(clock=SimClock(self.scheduler), is_serving=True, broker=None),
            ledger=Ledger(lambda what: None),
            observer=SimpleNamespace(finals={}),
            written=SimpleNamespace(find=lambda place: self.written),
            count=lambda what: counts.update([what]),
            may_be_torn=lambda producer_id, epoch=0: False,
            producer_expiration_ms=EXPIRATION_MS,
        )
        self.once = AppendedOnce(self.world)
        self.end = 0

    def append(self, sequence: int, producer_id: int = 7, epoch: int = 0) -> None:
        builder = BatchBuilder(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        builder.append(EPOCH_MS + int(self.scheduler.now * 1000), None, b"value %d" % sequence)
        # The base offset comes first in a batch.
        batch = BatchView(self.end.to_bytes(8, "big") + builder.build()[8:], 0)
        self.end += 1
        self.written.batches.append(batch)
        self.once.appended(PLACE, batch)


@pytest.fixture
def run() -> Run:
    return Run()


def test_a_batch_that_is_appended_twice_is_noticed(run: Run) -> None:
    run.append(0)
    run.append(0, producer_id=8)
    run.append(1)
    with pytest.raises(Violation, match="T1 a batch is appended once"):
        run.append(0)


def test_a_batch_that_was_lost_may_be_appended_again(run: Run) -> None:
    run.append(0)
    run.append(1)
    kept, lost = run.written.batches[:1], run.written.batches[1:]
    run.once.reopened(PLACE, 1, kept, lost)
    run.end = 1
    run.append(1)
    with pytest.raises(Violation, match="T1 a batch is appended once"):
        run.append(0)


def test_a_gap_in_the_sequences_of_a_producer_is_noticed(run: Run) -> None:
    run.append(5)  # who is not known may begin anywhere
    run.append(0, producer_id=8)
    run.append(6)
    with pytest.raises(
        Violation, match="T2 a gap is refused: log-0: sequence 7 of producer 7 epoch 0 was due, and 8 is"
    ):
        run.append(8)


def test_a_new_epoch_begins_with_sequence_0_also_where_a_marker_brought_it(run: Run) -> None:
    run.append(0)
    run.append(0, epoch=1)
    marker = build_end_marker(EndMarker(7, 2, False, 0))
    run.once.appended(PLACE, BatchView(run.end.to_bytes(8, "big") + marker[8:], 0))
    run.append(0, epoch=2)
    with pytest.raises(Violation, match="T2 a gap is refused"):
        run.append(1, epoch=3)


@pytest.mark.skipif(build_name() != "interpreted", reason="compiled code takes nothing in a broker's place")
@pytest.mark.parametrize(("is_compacted", "log_start"), [(False, 0), (True, 0), (False, 2)])
def test_after_a_loss_a_producer_goes_on_behind_what_is_left(run: Run, is_compacted: bool, log_start: int) -> None:
    logs = {PLACE: SimpleNamespace(config=SimpleNamespace(compact=is_compacted), log_start=log_start)}
    run.world.process.broker = SimpleNamespace(partitions=SimpleNamespace(dirs=SimpleNamespace(logs=logs)))
    for sequence in range(3):
        run.append(sequence)
    run.once.reopened(PLACE, 2, run.written.batches[:2], run.written.batches[2:])
    run.end = 2
    if is_compacted or log_start == 2:
        run.append(3)  # what was before the loss may be gone as well
    else:
        with pytest.raises(Violation, match="T2 a gap is refused"):
            run.append(3)


def test_a_new_topic_of_the_name_knows_no_producer(run: Run) -> None:
    run.append(0)
    run.written = SimpleNamespace(batches=[])
    run.append(2)


def test_a_copy_may_be_appended_only_when_its_producer_was_silent_for_long(run: Run) -> None:
    run.append(0)
    run.append(1)
    run.scheduler.now = (EXPIRATION_MS - 1) / 1000
    assert not run.once.may_be_forgotten(PLACE, 7)
    run.scheduler.now = EXPIRATION_MS / 1000
    run.append(0)
    run.append(1)  # what is known of the producer is the copy before this one
    assert list(run.once.excused) == [b"value 0", b"value 1"]
    assert run.counts["C5 copy appended after expiry"] == 2


def test_what_comes_late_to_a_forgetful_broker_need_not_be_in_order(run: Run) -> None:
    run.append(0)
    run.scheduler.now = EXPIRATION_MS / 1000
    run.append(5)
    assert list(run.once.excused) == [b"value 5"], "what was before it is lost, and the broker cannot know"
    run.append(6)
    assert b"value 6" not in run.once.excused


def test_a_clock_that_was_ahead_for_a_moment_counts(run: Run) -> None:
    run.append(0)
    clock = run.world.process.clock
    clock.jump(EXPIRATION_MS)
    clock.jump(-EXPIRATION_MS)
    assert run.once.may_be_forgotten(PLACE, 7)
    run.append(1)
    assert not run.once.may_be_forgotten(PLACE, 7)
    assert run.counts["C5 idle producer came back"] == 1


def test_a_forgotten_producer_may_go_on_and_not_go_back(run: Run) -> None:
    run.append(0)
    run.append(1)
    run.scheduler.now = EXPIRATION_MS / 1000
    assert not run.once.may_be_out_of_order(PLACE, 7, 2), "what comes next is taken"
    assert run.once.may_be_out_of_order(PLACE, 7, 1)
    assert not run.once.may_be_out_of_order(PLACE, 8, 1), "nobody forgot that one"


def test_what_a_start_finds_on_another_disk_was_there_before_it() -> None:
    disk = SimDisk(Random(0))
    disk.make_directory("/log-0")
    log = open_log(OpenFiles(disk, 10), "/log-0", LogConfig(), EPOCH_MS)
    builder = BatchBuilder()
    builder.append(EPOCH_MS, None, b"value")
    batch = builder.build()
    log.append_as_leader(batch, 0, len(batch), 0, EPOCH_MS)
    seen: list[tuple[str, int]] = []
    written = Written(disk, lambda place: False)
    written.on_appended = lambda place, batch: seen.append(("appended", batch.base_offset))
    written.on_reopened = lambda place, end, kept, lost: seen.append(("reopened", len(kept)))
    broker: Any = SimpleNamespace(partitions=SimpleNamespace(dirs=SimpleNamespace(logs={PLACE: log})))
    written.look(broker, True)
    assert seen == [("appended", 0), ("reopened", 1)]


def test_of_a_log_that_came_back_shorter_than_its_start_the_batch_that_held_it_is_lost() -> None:
    """Seed 301968: its start, in the middle of its last batch, was known, and the batch was not synced."""
    written = WrittenLog(PLACE, b"")
    for base_offset in (18, 20):
        builder = BatchBuilder()
        builder.append(EPOCH_MS, None, b"one")
        builder.append(EPOCH_MS, None, b"two")
        written.batches.append(BatchView(base_offset.to_bytes(8, "big") + builder.build()[8:], 0))
    written.end = 22
    assert [batch.base_offset for batch in written.cut(21)] == [20]
    assert written.end == 21


class Starts(Run):
    """The same log, and where it is said to start."""

    def __init__(self, **config: Any) -> None:
        super().__init__()
        self.due = WhatGoesIsDue(self.world)
        log = SimpleNamespace(config=LogConfig(**config))
        self.partition: Any = SimpleNamespace(topic=PLACE[0], index=PLACE[1], topic_id=b"id", log=log)
        for sequence in range(4):
            self.append(sequence)
        self.batch_bytes = int(self.written.batches[0].size)

    def start_at(self, offset: int) -> None:
        self.due.moved(self.partition, offset)


def test_a_start_may_move_to_where_somebody_asked_for() -> None:
    run = Starts(retention_ms=-1)
    run.due.asked(PLACE, 2)
    run.start_at(2)
    run.start_at(1)  # after a crash
    run.start_at(2)
    with pytest.raises(Violation, match="P1 what goes was due"):
        run.start_at(3)


def test_a_start_may_move_over_what_is_old() -> None:
    run = Starts(retention_ms=1000)
    run.start_at(0)
    run.scheduler.now = 1.002
    run.start_at(3)
    assert run.counts["retention moved a start"] == 1
    run.append(4)
    run.start_at(4)
    with pytest.raises(Violation, match="P1 what goes was due"):
        run.start_at(5)


def test_a_start_may_move_while_enough_is_left() -> None:
    size = Starts().batch_bytes
    run = Starts(retention_ms=-1, retention_bytes=2 * size)
    run.start_at(2)
    with pytest.raises(Violation, match="P1 what goes was due"):
        run.start_at(3)


def test_a_start_may_go_back_after_a_crash_and_not_after_a_clean_stop() -> None:
    run = Starts(retention_ms=-1)
    run.due.asked(PLACE, 2)
    log = run.partition.log

    class Partitions(list[Any]):
        dirs = SimpleNamespace(any_offline=False)

    def come_back(how: str, start: int) -> None:
        run.due.moved(run.partition, 2)
        run.due.died(SimpleNamespace(partitions=Partitions()), how)  # type: ignore[arg-type]
        log.log_start = start
        run.due.served(SimpleNamespace(partitions=Partitions([run.partition])))  # type: ignore[arg-type]

    come_back("kill -9", 1)
    come_back("stopped", 2)
    assert run.counts["start after a clean stop checked"] == 1
    with pytest.raises(Violation, match="P1 what is deleted stays deleted"):
        come_back("stopped", 1)


def test_what_clients_are_told_of_a_start_is_judged_too() -> None:
    run = Starts(retention_ms=-1)
    run.start_at(0)
    run.world.observer.finals[PLACE] = (1, 4, [])
    broker: Any = SimpleNamespace(partitions=SimpleNamespace(get=lambda topic, index: run.partition))
    with pytest.raises(Violation, match="P1 what goes was due"):
        run.due.at_end(broker)


def test_where_a_moment_is_may_move_on_while_somebody_asks_and_not_back() -> None:
    check(PLACE, Answer(1000, found=5, before=5, after=5))
    check(PLACE, Answer(1000, found=7, before=5, after=NOT_FOUND))
    check(PLACE, Answer(1000, found=NOT_FOUND, before=NOT_FOUND, after=NOT_FOUND))
    for wrong in (Answer(1000, 6, 5, 5), Answer(1000, 4, 5, 7), Answer(1000, NOT_FOUND, 5, 5), Answer(1000, 5, -1, -1)):
        with pytest.raises(Violation, match="D6 a moment is found"):
            check(PLACE, wrong)


def test_a_damaged_log_may_be_left_alone_and_never_be_cut_below_its_recovery_point() -> None:
    run = Run()
    disk = run.world.disk = SimDisk(Random(0))
    run.world.written.recovered = {}
    disk.make_directory("/data")
    file = disk.open(f"/data{CHECKPOINT}", create=True)
    file.write_at(0, [b"0\n2\nlog 0 7\nlog 1 9\n"])
    durable = DurableStays(run.world)
    durable.starting()
    run.world.ledger.damage(PLACE)
    broker: Any = None
    run.world.written.recovered[PLACE] = 7
    durable.served(broker)
    run.world.written.recovered[PLACE] = 6
    with pytest.raises(Violation, match="D4 what was durable is never cut"):
        durable.served(broker)
    del run.world.written.recovered[PLACE]
    durable.served(broker)
    assert run.counts["damaged log left alone"] == 1
    file.truncate(0)  # whoever forgets the recovery point is no better off for it
    durable.starting()
    run.world.written.recovered[PLACE] = 6
    with pytest.raises(Violation, match="D4 what was durable is never cut"):
        durable.served(broker)


class OnDisk(Run):
    """The files of one log, as a power loss has left them, and what a start makes of them."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = self.world.disk = SimDisk(Random(0))
        self.disk.make_directories("/data/log-0")
        self._write("partition.metadata", b"topic")
        self.world.process.life = 2
        self.written = SimpleNamespace(topic=b"topic")
        self.world.written.recovered = {}
        self.checker = SoundStays(self.world)

    def _write(self, name: str, data: bytes) -> None:
        self.disk.open(f"/data/log-0/{name}", create=True).write_at(0, [data])

    def segment(self, base: int, *offsets: int, tail: bytes = b"") -> None:
        batches = []
        for offset in offsets:
            builder = BatchBuilder(base_offset=offset)
            builder.append(EPOCH_MS, None, b"x")
            batches.append(builder.build())
        self._write(f"{base:020}.log", b"".join(batches) + tail)

    def point(self, offset: int) -> None:
        self.disk.open(f"/data{CHECKPOINT}", create=True).write_at(0, [b"0\n1\nlog 0 %d\n" % offset])

    def comes_back(self, end: int) -> None:
        broker: Any = None
        self.checker.starting()
        self.world.written.recovered[PLACE] = end
        self.checker.served(broker)

    def needs(self, end: int) -> None:
        self.comes_back(end)
        with pytest.raises(Violation, match="D3 what is sound on the disk stays"):
            self.comes_back(end - 1)


def test_what_a_power_loss_has_left_sound_stays() -> None:
    run = OnDisk()
    run.segment(0, 0, 1)
    run.segment(2, 2, 3, tail=b"\0" * 100)
    run.needs(4)
    run.segment(4, 4)  # behind what is torn
    run.needs(4)
    assert run.counts["end compared with the disk"] == 2


def test_a_start_keeps_no_batch_that_does_not_match_its_checksum() -> None:
    run = OnDisk()
    run.segment(0, 0, 1)
    path = "/data/log-0/00000000000000000000.log"
    size = run.disk.file_size(path)
    run.disk.open(path).write_at(size - 1, [b"y"])
    run.needs(1)
    segment = SimpleNamespace(log=SimpleNamespace(path=path), size=size)
    logs = {PLACE: SimpleNamespace(segments=[segment])}
    broker: Any = SimpleNamespace(partitions=SimpleNamespace(dirs=SimpleNamespace(logs=logs)))
    run.checker.starting()
    run.world.written.recovered[PLACE] = 2
    with pytest.raises(Violation, match="D4 what is not sound is cut"):
        run.checker.served(broker)


@pytest.mark.parametrize("covered", [0, 2, 3, 4])
def test_what_a_power_loss_took_below_the_start_of_a_log_does_not_count_unless_a_snapshot_has_it(covered: int) -> None:
    """Seed 80002481: the end of what DeleteRecords had taken was not synced, nor the snapshot behind it."""
    run = OnDisk()
    run.written = WrittenLog(PLACE, b"topic")
    for offset in range(6):
        builder = BatchBuilder(base_offset=offset)
        builder.append(EPOCH_MS, None, b"x")
        run.written.batches.append(BatchView(builder.build(), 0))
    run.segment(0, 0, 1, tail=b"\0" * 100)
    run.segment(4, 4, 5)
    for offset in (covered,) if covered else ():
        run._write(f"{offset:020}.snapshot", b"".join(encode_snapshot(CapturedProducers([], 1, offset))))
    run._write(f"{4:020}.snapshot.tmp", b"")
    run.checker.starting()
    assert not run.written.lost, "the log does not begin behind what is torn"
    run.disk.open(f"/data{LOG_STARTS}", create=True).write_at(0, [b"0\n1\nlog 0 5\n"])
    for _ in range(2):
        run.checker.starting()
        assert [batch.base_offset for batch in run.written.lost] == list(range(max(covered, 2), 4))
        assert [batch.base_offset for batch in run.written.batches] == [*range(max(covered, 2)), 4, 5]
    assert run.written.cut(6) == run.written.lost
    assert run.written.cut(6) == []


def test_what_comes_after_a_gap_is_no_prefix_but_where_compaction_may_have_left_the_gap() -> None:
    run = OnDisk()
    run.segment(0, 0, 1)
    run.segment(5, 5, 7)
    run.needs(8)  # as nothing is written down
    run.point(0)
    run.needs(2)
    run.point(8)
    run.needs(8)
    run.point(1)
    run.disk.open(f"/data{CLEANED}", create=True).write_at(0, [b"0\n1\nlog 0 5\n"])
    run.needs(6)


def test_of_a_log_amid_a_swap_or_of_another_topic_nothing_is_asked() -> None:
    run = OnDisk()
    run.segment(0, 0, 1)
    run.written.topic = b"another"
    run.comes_back(0)
    run.written.topic = b"topic"
    run.world.ledger.damage(PLACE)
    run.comes_back(0)
    run.world.ledger.damaged.clear()
    run.disk.rename("/data/log-0/00000000000000000000.log", "/data/log-0/00000000000000000000.log.swap")
    run.segment(2, 2)
    run.comes_back(0)


class Copied(Run):
    """One log whose machine comes back with a copy of its disk: synced up to 4, and with 16 records."""

    def __init__(self) -> None:
        super().__init__()
        self.world.process.is_serving = False
        self.world.process.life = 3
        self.world.written.recovered = {}
        self.crash_keeps = CrashKeeps(self.world)
        self.crash_keeps.expect(self.crash_keeps.ends(self._broker(16)))

    def _broker(self, end: int) -> Any:
        log = SimpleNamespace(recovery_point=4, log_end=end)
        partition = SimpleNamespace(topic=PLACE[0], index=PLACE[1], topic_id=b"id", log=log)

        class Partitions(list[Any]):
            dirs = SimpleNamespace(any_offline=False)

        image = SimpleNamespace(topics_by_id={})
        return SimpleNamespace(partitions=Partitions([partition]), image=image)

    def die_starting_with_a_failed_directory(self) -> None:
        broker = self._broker(16)
        broker.partitions.clear()
        broker.partitions.dirs = SimpleNamespace(any_offline=True)
        self.crash_keeps.died(broker, "fatal: /data")

    def die_starting(self, how: str) -> None:
        self.crash_keeps.died(None, how)

    def come_back(self, end: int) -> None:
        self.crash_keeps.served(self._broker(end))


SNAPSHOT = "00000000000000000010.snapshot"


class Started(Run):
    """One partition on a disk, with these files, and starts of a broker with it."""

    def __init__(self, *files: str) -> None:
        super().__init__()
        self.disk = self.world.disk = SimDisk(Random(0))
        self.world.had_disk_error = False
        self.world.producers_expire = False
        self.world.may_trim = lambda topic: True
        self.disk.make_directories("/data/short-0")
        for name in files:
            self.disk.open(f"/data/short-0/{name}", create=True)
        self.outlive = ProducersOutlive(self.world)

    def write(self, snapshot: bytes) -> None:
        self.disk.open(f"/data/short-0/{SNAPSHOT}", create=True).write_at(0, [snapshot])

    def start(self, writes: bytes = b"") -> None:
        self.outlive.starting()
        if writes:
            self.write(writes)
        self.outlive.served(SimpleNamespace(partitions=[]))  # type: ignore[arg-type]

    def needs_a_snapshot(self) -> None:
        with pytest.raises(Violation, match="T1 a snapshot is there for what is gone"):
            self.start()


@pytest.mark.skipif(build_name() != "interpreted", reason="compiled code takes nothing in a partition's place")
def test_of_a_copied_disk_a_power_loss_may_take_what_was_not_synced_when_it_was_copied() -> None:
    """Seed 7214: the first start with the copy ended in a power loss."""
    run = Copied()
    run.die_starting("power loss")
    run.come_back(4)
    run = Copied()
    run.die_starting("power loss")
    with pytest.raises(Violation, match="D3 a crash loses only what was not synced"):
        run.come_back(3)
    run = Copied()
    run.die_starting("kill -9")
    with pytest.raises(Violation, match="D3 a crash loses only what was not synced"):
        run.come_back(15)


@pytest.mark.skipif(build_name() != "interpreted", reason="compiled code takes nothing in a partition's place")
def test_a_coordinator_may_have_written_in_a_start_to_a_log_whose_directory_failed_then() -> None:
    """Seed 30019328: its partition was gone when the broker died, and could not be asked where its log ended."""
    run = Copied()
    run.die_starting_with_a_failed_directory()
    run.come_back(19)
    run = Copied()
    run.die_starting_with_a_failed_directory()
    with pytest.raises(Violation, match="D3 a crash loses only what was not synced"):
        run.come_back(15)


def test_a_snapshot_in_a_copy_that_has_not_taken_its_place_stands_for_nothing() -> None:
    """Seeds 300056, 301381: a kill while what is known of producers was written beside the copy."""
    run = Started(COPY, "00000000000000000010.log", SNAPSHOT)
    run.start()
    run.start()
    run.disk.remove(f"/data/short-0/{COPY}")
    run.needs_a_snapshot()


@pytest.mark.parametrize("is_by_start", [True, False])
def test_of_a_copied_disk_too_a_snapshot_that_a_start_wrote_may_be_lost(is_by_start: bool) -> None:
    """Seed 30017644: it was only cached when the disk was copied, and a power loss came when it was back."""
    run = Started("00000000000000000010.log", *(() if is_by_start else (SNAPSHOT,)))
    snapshot = b"".join(encode_snapshot(CapturedProducers([], 1, 10)))
    if not is_by_start:
        run.write(snapshot)
    run.start(snapshot if is_by_start else b"")
    by_start = run.outlive.by_start
    run.outlive.forget()
    run.outlive.expect(by_start)
    run.start()
    run.disk.cut_file(f"/data/short-0/{SNAPSHOT}", 0)
    if is_by_start:
        run.start()
    else:
        run.needs_a_snapshot()


@pytest.mark.parametrize("is_removed", [True, False])
def test_a_copy_that_a_power_loss_brought_back_has_time_to_go(is_removed: bool) -> None:
    """Seed 302052: its removal was not synced, and nobody waited for the next one."""
    run = Run()
    disk = run.world.disk = SimDisk(Random(0))
    disk.make_directories("/data/log-0.1-future")
    disk.open("/data/log-0.1-future/copy", create=True)
    broker: Any = SimpleNamespace(partitions=SimpleNamespace(dirs=SimpleNamespace(moves={})))
    run.world.process.broker = broker
    moves = MovesEnd(run.world, CrashKeeps(run.world))
    moves.is_settled = True
    if is_removed:
        run.scheduler.later(1.0, lambda: disk.remove("/data/log-0.1-future/copy"))
    waiting = make_loop(run.scheduler, Random(0), "observer").create_task(moves.wait_until_over())
    assert run.scheduler.run_until(waiting.done, 60)
    if is_removed:
        moves.at_end(broker)
    else:
        with pytest.raises(Violation, match="D8 a move ends"):
            moves.at_end(broker)


def test_a_fetch_that_brings_nothing_though_there_is_something_is_noticed() -> None:
    client = SimClient(make_loop(Scheduler(Random(0)), Random(0), "reader"), "reader", ("broker", 9092))
    check_got_on(client, PLACE, 5, 5)
    with pytest.raises(Violation, match="P12 a fetch gets on"):
        check_got_on(client, PLACE, 5, 6)
    check_got_on(client, ("txnkeyed", 0), 38, 40)  # seed 380: compacted away, and the end had been set back


def _image(**settings: str) -> ClusterImage:
    image = ClusterImage()
    image.replay(TopicRecord(name="log", topic_id=bytes(15) + b"\x01"))
    for name, value in settings.items():
        image.replay(ConfigRecord(resource_type=TOPIC, resource_name="log", name=name, value=value))
    return image


def test_images_are_the_same_by_what_is_in_them_not_by_the_order_it_came_in() -> None:
    assert is_same(_image(first="1", second="2"), _image(second="2", first="1"))
    assert not is_same(_image(first="1"), _image(first="2"))
    assert not is_same(_image(first="1", second="2"), _image(first="1"))


@pytest.mark.skipif(build_name() != "interpreted", reason="compiled code takes nothing in a quorum's place")
def test_a_start_of_the_metadata_log_past_its_snapshots_is_noticed_when_it_moves() -> None:
    disk = SimDisk(Random(0))
    disk.make_directories("/data/__cluster_metadata-0")
    write_file_durably(disk, "/data/__cluster_metadata-0/00000000000000000010-0000000001.checkpoint", b"snapshot")
    counts: Counter[str] = Counter()
    checker: Any = MetadataReplays(SimpleNamespace(disk=disk, count=lambda what: counts.update([what])))
    log = SimpleNamespace(log_start=0, high_watermark=20, recovery_point=20)
    broker: Any = SimpleNamespace(_quorum=SimpleNamespace(published_end=-1, _log=log))
    checker.after_step(broker)
    log.log_start = 10
    checker.after_step(broker)
    assert counts == {START_MOVED[0]: 1}
    log.log_start = 11
    with pytest.raises(Violation, match="R8 a snapshot covers what is gone"):
        checker.after_step(broker)


@pytest.mark.skipif(build_name() != "interpreted", reason="compiled code takes nothing in a quorum's place")
def test_metadata_that_is_committed_before_it_is_synced_is_noticed() -> None:
    checker: Any = MetadataReplays(SimpleNamespace(disk=SimDisk(Random(0))))
    log = SimpleNamespace(log_start=-1, high_watermark=7, recovery_point=7)
    broker: Any = SimpleNamespace(_quorum=SimpleNamespace(published_end=-1, _log=log))
    checker.after_step(broker)
    log.high_watermark = 8
    with pytest.raises(
        Violation, match="R5 committed metadata is durable: it is committed up to 8, and synced up to 7"
    ):
        checker.after_step(broker)
