"""The snapshot of a roll is captured on the loop and written by a job: whatever comes first, or comes in between."""

import pytest

from mainstem.core.log.producers import Origin
from mainstem.sim.changes import every_survival
from mainstem.sim.disk import SimDisk
from mainstem.storage.log import Log
from mainstem.storage.snapshot import decode_snapshot
from tests.support.logs import DIRECTORY, NOW_MS, append, batch, config, marker, new_disk, open_in


def snapshot(offset: int) -> str:
    return f"{DIRECTORY}/{offset:020}.snapshot"


def snapshots(disk: SimDisk) -> list[int]:
    return [int(name[:20]) for name in disk.list_directory(DIRECTORY) if name.endswith(".snapshot")]


def send(log: Log, count: int, first: int = 0) -> None:
    """One record a batch, all of producer 7."""
    for sequence in range(first, first + count):
        append(log, batch(b"v", producer_id=7, epoch=0, sequence=sequence))


def rolled(disk: SimDisk, times: int = 1, **settings: str | int) -> Log:
    """Two records in each segment, and two in the last."""
    log = open_in(disk, config(**settings))
    for number in range(times):
        send(log, 2, 2 * number)
        log.roll(NOW_MS)
    send(log, 2, 2 * times)
    return log


def test_a_roll_writes_no_snapshot_and_the_flush_after_it_writes_what_was_known_then() -> None:
    """With a million producers it takes seconds, for which the loop would stand still."""
    disk = new_disk()
    log = rolled(disk)
    assert (snapshots(disk), log.producers.snapshots()) == ([], [2])
    job = log.begin_flush(NOW_MS, rolled_only=True)
    send(log, 3, 4)
    assert snapshots(disk) == []
    breaths: list[int] = []
    job.run(lambda: breaths.append(1))
    log.finish_flush(job)
    (producer,) = decode_snapshot(disk.peek(snapshot(2)))
    assert (producer.last_sequence, producer.last_offset) == (1, 1)
    assert breaths


def test_a_snapshot_is_written_at_once_where_many_wait() -> None:
    """Each keeps a copy of what has changed since: memory must not grow with the rolls that no flush has covered."""
    disk = new_disk()
    log = rolled(disk, 20)
    assert snapshots(disk) == [2 * number for number in range(9, 21)]
    log.flush(NOW_MS)
    assert snapshots(disk) == [2 * number for number in range(1, 21)]
    for offset in snapshots(disk):
        assert decode_snapshot(disk.peek(snapshot(offset)))[0].last_offset == offset - 1
    for number in range(21, 25):
        send(log, 2, 2 * number)
        log.roll(NOW_MS)
    assert snapshots(disk) == [2 * number for number in range(1, 21)]


@pytest.mark.parametrize("runs", ["before", "after"])
def test_a_truncation_leaves_no_snapshot_past_the_end_though_a_flush_has_it(runs: str) -> None:
    """D6: what was known there is not so any more, and the next start would believe it."""
    disk = new_disk()
    log = rolled(disk, 2)
    job = log.begin_flush(NOW_MS)
    if runs == "before":
        job.run()
    log.truncate_to(3, NOW_MS)
    if runs == "after":
        job.run()
    log.finish_flush(job)
    assert snapshots(disk) == [2, 3]
    append(log, batch(b"x", producer_id=8, epoch=0, sequence=0), leader_epoch=1)
    append(log, batch(b"y", producer_id=8, epoch=0, sequence=1), leader_epoch=1)
    disk.kill()
    states = open_in(disk, config()).producers.states
    assert [(each.producer_id, each.last_offset) for each in states.all()] == [(7, 2), (8, 4)]


def test_a_truncation_goes_by_a_snapshot_that_waits_to_be_written() -> None:
    """The segments that it was made from may be gone."""
    disk = new_disk()
    log = rolled(disk, 2)
    log.advance_log_start(4)
    log.delete_old_segments(NOW_MS)
    append(log, batch(b"x"))
    log.roll(NOW_MS)
    append(log, batch(b"y"))
    assert snapshots(disk) == [4]
    log.truncate_to(7, NOW_MS)
    assert snapshots(disk) == [4, 7]
    producer = log.producers.states.get(7)
    assert producer is not None
    assert producer.last_sequence == 5


@pytest.mark.parametrize("first", ["flush", "retirement"])
def test_a_segment_that_goes_takes_a_snapshot_along_that_a_flush_has(first: str) -> None:
    """Or it would be written after its segment has gone, and stay."""
    disk = new_disk()
    log = rolled(disk, 3, file_delete_delay_ms=0)
    flush = log.begin_flush(NOW_MS)
    log.advance_log_start(6)
    retirement = log.begin_retirement(NOW_MS)
    assert retirement is not None
    for job in (flush, retirement) if first == "flush" else (retirement, flush):
        job.run()
    log.finish_flush(flush)
    log.finish_restructuring(retirement)
    for removal in log.due_removals(NOW_MS):
        removal.run()
    assert snapshots(disk) == [6]


def test_a_log_that_is_closed_or_deleted_leaves_no_snapshot_to_a_thread() -> None:
    """Its folder's name may be another topic's by then."""
    disk = new_disk()
    log = rolled(disk)
    job = log.begin_flush(NOW_MS)
    log.abandon()
    job.run()
    assert job.error is None
    assert snapshots(disk) == []


def test_a_clean_stop_writes_what_waits() -> None:
    disk = new_disk()
    rolled(disk, 2).close(NOW_MS)
    assert snapshots(disk) == [2, 4, 6]


def test_after_a_power_loss_at_any_moment_producers_are_what_the_log_says() -> None:
    """D6, T1: while snapshots wait, while they are written, and while segments go that they were made from."""
    disk = new_disk()
    log = rolled(disk, 2, file_delete_delay_ms=0)
    log.flush(NOW_MS)
    send(log, 2, 6)
    log.roll(NOW_MS)
    send(log, 2, 8)
    durable = log.recovery_point
    moments: list[tuple[SimDisk, int]] = [(disk.fork(), durable)]
    disk.after_change = lambda same: moments.append((same.fork(), durable))
    flush = log.begin_flush(NOW_MS, rolled_only=True)
    log.advance_log_start(8)
    retirement = log.begin_retirement(NOW_MS)
    assert retirement is not None
    retirement.run()
    flush.run()
    log.finish_restructuring(retirement)
    log.finish_flush(flush)
    durable = log.recovery_point
    assert durable == 8
    disk.after_change(disk)
    seen: set[int] = set()
    for moment, point in moments:
        for kept in every_survival(moment.unsynced(), 2):
            crashed = moment.fork()
            crashed.power_loss_keeping(kept)
            again = open_in(crashed, config(), recovery_point=point)
            producer = again.producers.states.get(7)
            assert producer is not None
            assert producer.last_offset == again.log_end - 1 == producer.last_sequence
            last = producer.last_sequence
            assert append(again, batch(b"v", producer_id=7, epoch=0, sequence=last)).base_offset == last
            seen.add(again.first_base_offset)
    assert seen >= {0, 8}


def test_a_log_that_is_let_go_of_keeps_what_its_segments_say_of_producers() -> None:
    """Another log of its directory fails while a retirement waits for its thread: the snapshot that was to stand for
    what goes is not written any more."""
    disk = new_disk()
    log = open_in(disk, config())
    sent = batch(b"paid", producer_id=7, epoch=0, sequence=0)
    append(log, sent)
    log.flush(NOW_MS)
    log.roll(NOW_MS)
    append(log, batch(b"x"))
    log.update_high_watermark(log.log_end)
    log.advance_log_start(1)
    retirement = log.begin_retirement(NOW_MS)
    assert retirement is not None
    log.abandon()
    retirement.run()
    log.finish_restructuring(retirement)
    disk.kill()
    again = append(open_in(disk, config()), sent)
    assert (again.base_offset, again.is_duplicate) == (0, True)


def killed_behind_its_start(disk: SimDisk) -> None:
    """All that lies below the log start is in one segment, and nobody has come to write the snapshot behind it."""
    log = open_in(disk)
    send(log, 4)
    append(log, batch(b"t", producer_id=8, epoch=0, sequence=0, transactional=True))
    log.advance_log_start(5)
    log.roll(NOW_MS)
    append(log, batch(b"v", producer_id=9, epoch=0, sequence=0))
    disk.kill()
    assert snapshots(disk) == []


def test_a_start_knows_the_producers_of_segments_below_the_log_start_whose_snapshot_nobody_wrote() -> None:
    """T1, T6: seeds 80002481 and 80002613."""
    disk = new_disk()
    killed_behind_its_start(disk)
    log = open_in(disk, log_start=5)
    assert log.first_base_offset == 5
    assert [each.producer_id for each in log.producers.states.all()] == [7, 8, 9]
    assert append(log, batch(b"v", producer_id=7, epoch=0, sequence=3)).base_offset == 3
    assert log.last_stable_offset == 5
    assert append(log, marker(8, 0, commit=False), origin=Origin.COORDINATOR).base_offset == 6
    assert log.last_stable_offset == 7


@pytest.mark.parametrize("is_written", [False, True])
def test_a_start_makes_durable_what_is_known_of_producers_before_their_segments_go(is_written: bool) -> None:
    """T1: the process that wrote the snapshot of a roll may have died before it was synced."""
    disk = new_disk()
    killed_behind_its_start(disk)
    disk.write_back(disk.rng, 1)
    if is_written:
        other = disk.fork()
        open_in(other, log_start=5)
        whole = other.peek(snapshot(5))
        file = disk.open(snapshot(5), create=True)
        file.write_at(0, [whole])
        disk.kill()
    moments: list[SimDisk] = []
    disk.after_change = lambda same: moments.append(same.fork())
    open_in(disk, log_start=5)
    assert len(moments) > 4
    for moment in moments:
        for kept in every_survival(moment.unsynced(), 2):
            crashed = moment.fork()
            crashed.power_loss_keeping(kept)
            again = open_in(crashed, log_start=5)
            assert again.log_end == 6
            assert [each.producer_id for each in again.producers.states.all()] == [7, 8, 9]


def test_of_segments_below_the_log_start_that_are_not_whole_a_start_knows_what_is_sound() -> None:
    """A power loss may take the end of what was deleted, and leave what came after it."""
    disk = new_disk()
    killed_behind_its_start(disk)
    first = f"{DIRECTORY}/{0:020}.log"
    disk.flip_bit(first, 8 * (3 * len(batch(b"v")) + 40))
    log = open_in(disk, log_start=5)
    assert (log.log_start, log.log_end) == (5, 6)
    assert [(each.producer_id, each.last_offset) for each in log.producers.states.all()] == [(7, 2), (9, 5)]


def test_where_the_snapshot_behind_deleted_segments_is_durable_a_start_reads_nothing_of_them() -> None:
    disk = new_disk()
    log = rolled(disk, 3)
    log.flush(NOW_MS)
    log.advance_log_start(4)
    disk.kill()
    touched: list[str] = []
    disk.on_operation = lambda operation, path, position, size: (
        touched.append(f"{operation} {path[-12:]}") if operation in ("read", "sync") else None
    )
    again = open_in(disk, log_start=4, recovery_point=log.recovery_point)
    disk.on_operation = None
    assert again.first_base_offset == 4
    assert not [each for each in touched if each.endswith(("000.log", "002.log")) or each.startswith("sync")]
    assert snapshots(disk) == [4, 6, 8]
