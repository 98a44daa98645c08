"""A partition that moves to another directory: what the copy holds, and what a crash at any step leaves."""

from random import Random

import pytest

from mainstem.core.log.producers import Origin
from mainstem.protocol.batch import BatchView
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.sim.disk import SimDisk
from mainstem.sim.faults import Effect, Fault
from mainstem.storage import names
from mainstem.storage.checkpoint import CLEANER_OFFSETS, RECOVERY_POINTS
from mainstem.storage.errors import StorageError
from mainstem.storage.log import Log
from mainstem.storage.log_copy import LogCopy
from mainstem.storage.log_directory import LogPlace
from mainstem.storage.log_dirs import LogDirs
from mainstem.storage.meta_properties import MetaProperties, write_meta_properties
from mainstem.storage.open_files import OpenFiles
from mainstem.storage.reading import ReadJob
from mainstem.storage.recovery import open_log
from mainstem.storage.timestamps import TimestampedOffset, TimestampJob
from tests.support import logs
from tests.support.logs import NOW_MS, append, batch, open_in, read_all, read_batches

CLUSTER = "cluster"
TOPIC_ID = bytes(range(16))
SOURCE_ID, TARGET_ID = b"a" * 16, b"b" * 16
PIECE = 300


def bytes_of(batches: list[BatchView]) -> bytes:
    return b"".join(bytes(each.buffer[each.start : each.end]) for each in batches)


def new_pair(segment_bytes: int = 500, **settings: int) -> tuple[SimDisk, Log, Log]:
    disk = logs.new_disk()
    config = logs.config(segment_bytes=segment_bytes, **settings)
    return disk, open_in(disk, config), open_in(disk, config, directory="/other/orders-0")


def copy_all(copy: LogCopy) -> None:
    """A piece at a time, as the broker does it."""
    for _ in range(1000):
        if not copy.lag:
            return
        step = copy.begin_read(PIECE, NOW_MS)
        while isinstance(step, ReadJob):
            step.run()
            step = copy.source.finish_read(step)
        data = step.read()
        step.release()
        copy.append(step, data, NOW_MS)
    pytest.fail("the copy does not catch up")


def test_a_copy_holds_the_same_bytes_offsets_epochs_and_producers() -> None:
    _, source, target = new_pair()
    for number in range(20):
        append(source, batch(b"x" * 50, producer_id=7, epoch=0, sequence=number), leader_epoch=number // 7)
    copy = LogCopy(source, target)
    copy_all(copy)
    assert bytes_of(read_all(target)) == bytes_of(read_all(source))
    assert (target.log_start, target.log_end, target.high_watermark) == (0, 20, 20)
    assert [target.epoch_for(offset) for offset in range(20)] == [source.epoch_for(offset) for offset in range(20)]
    producer = target.producers.states.get(7)
    assert producer is not None
    assert producer.last_sequence == 19


def after_a_power_loss(disk: SimDisk, moved: Log, source: Log) -> Log:
    """The copy once it has taken the place of its source, and the machine has lost its power."""
    moved.take_producers_of(source)
    moved.keep_producers(NOW_MS)
    for folder in ("/", "/other"):
        disk.sync_directory(folder)
    disk.power_loss_keeping({})
    return open_in(
        disk,
        moved.config,
        directory="/other/orders-0",
        recovery_point=moved.recovery_point,
        log_start=moved.log_start,
    )


def test_a_producer_whose_batches_are_gone_is_known_of_a_copy_after_a_crash() -> None:
    """T1: the batches that are left tell nothing of it; the snapshots of the log that was copied did."""
    disk, source, target = new_pair()
    append(source, batch(b"gone", producer_id=1, epoch=3, sequence=0))
    source.roll(NOW_MS)
    append(source, batch(b"left"))
    source.advance_log_start(1)
    assert source.delete_old_segments(NOW_MS) == 1
    LogCopy(source, target).complete(PIECE, NOW_MS)
    again = after_a_power_loss(disk, target, source)
    producer = again.producers.states.get(1)
    assert producer is not None
    assert (producer.epoch, producer.last_sequence, again.log_end) == (3, 0, 2)


def test_a_producer_of_which_a_marker_alone_is_left_goes_on_after_a_move_and_a_crash() -> None:
    """T1: a marker has no sequence. The next batch of a transaction that follows would be out of order."""
    disk, source, target = new_pair()
    append(source, batch(b"one", b"two", producer_id=2, epoch=0, sequence=0, transactional=True))
    append(source, logs.marker(2, 0, True), origin=Origin.COORDINATOR)
    source.roll(NOW_MS)
    append(source, batch(b"left"))
    source.advance_log_start(2)
    LogCopy(source, target).complete(PIECE, NOW_MS)
    again = after_a_power_loss(disk, target, source)
    producer = again.producers.states.get(2)
    assert producer is not None
    assert producer.last_sequence == 1
    append(again, batch(b"three", producer_id=2, epoch=0, sequence=2, transactional=True))


@pytest.mark.parametrize("seed", range(60))
def test_a_copy_knows_after_a_crash_what_its_log_knew_of_its_producers(seed: int) -> None:
    rng = Random(seed)
    disk, log, target = new_pair()
    next_sequences: dict[int, int] = {}
    writing: set[int] = set()
    for _ in range(rng.randint(5, 40)):
        match rng.choice(("batch", "batch", "batch", "marker", "roll", "log start", "retention", "flush")):
            case "batch":
                producer_id = rng.randint(1, 4)
                transactional = producer_id % 2 == 0
                sequence, values = next_sequences.get(producer_id, 0), [b"x" * rng.randint(1, 60)] * rng.randint(1, 3)
                append(
                    log,
                    batch(*values, producer_id=producer_id, epoch=0, sequence=sequence, transactional=transactional),
                )
                next_sequences[producer_id] = sequence + len(values)
                if transactional:
                    writing.add(producer_id)
            case "marker" if writing:
                ended = rng.choice(sorted(writing))
                writing.discard(ended)
                append(log, logs.marker(ended, 0, rng.random() < 0.5), origin=Origin.COORDINATOR)
            case "roll" if log.active_segment.size:
                log.roll(NOW_MS)
            case "log start":
                log.advance_log_start(min(log.high_watermark, rng.randint(log.log_start, log.log_end)))
            case "retention":
                log.delete_old_segments(NOW_MS)
            case _:
                log.flush(NOW_MS)
    LogCopy(log, target).complete(PIECE, NOW_MS)

    def known(of: Log) -> dict[int, tuple[int, int, int, bool]]:
        return {
            each.producer_id: (each.epoch, each.last_sequence, each.coordinator_epoch, each.txn_first_offset >= 0)
            for each in of.producers.states.all()
        }

    expected = known(log)
    assert known(after_a_power_loss(disk, target, log)) == expected


@pytest.mark.parametrize("piece_bytes", [PIECE, 1 << 20], ids=["pieces", "segments"])
@pytest.mark.parametrize(
    ("at", "offset"),
    [(6, 6 + 512), (6, 12), (3, 4), (4, 4 + 8), (7, 4), (19, 19 + 64)],
    ids=["past the log", "in another segment", "the next one's", "ahead in its own", "back", "of the last batch"],
)
def test_a_log_in_which_an_offset_is_wrong_is_not_copied_with_holes(at: int, offset: int, piece_bytes: int) -> None:
    """Seed 200003565: no checksum covers it. The copy went past the log's end, and was begun anew for ever, or it
    passed over sound batches."""
    disk, source, target = new_pair()
    for _ in range(20):
        append(source, batch(b"x" * 100))
    segment = next(each for each in reversed(source.segments) if each.base_offset <= at)
    place = (at - segment.base_offset) * (source.size // 20)
    disk.open(segment.log.path).write_at(place, [offset.to_bytes(8, "big")])
    copy = LogCopy(source, target)
    with pytest.raises(RemoteError) as refused:
        copy.complete(piece_bytes, NOW_MS)
    assert refused.value.code == ErrorCode.CORRUPT_MESSAGE
    assert target.log_end <= source.log_end


def test_a_large_piece_is_appended_in_steps_between_which_others_are_served() -> None:
    _, source, target = new_pair(segment_bytes=1 << 20)
    for number in range(600):
        append(source, batch(b"%d" % number))
    copy = LogCopy(source, target)
    found = copy.begin_read(1 << 20, NOW_MS)
    while isinstance(found, ReadJob):
        found.run()
        found = source.finish_read(found)
    ends = [target.log_end for _ in copy.append_in_steps(found, found.read(), NOW_MS)]
    found.release()
    assert ends == [256, 512]
    assert bytes_of(read_all(target)) == bytes_of(read_all(source))


def test_what_is_appended_meanwhile_is_copied_too() -> None:
    _, source, target = new_pair()
    copy = LogCopy(source, target)
    for number in range(10):
        append(source, batch(b"x" * 50, b"y"))
        if number % 3 == 0:
            copy_all(copy)
    append(source, batch(b"last"))
    copy.complete(PIECE, NOW_MS)
    assert copy.lag == 0
    assert bytes_of(read_all(target)) == bytes_of(read_all(source))
    assert source.recovery_point == target.recovery_point == 21


def test_a_log_start_inside_a_batch_is_kept() -> None:
    _, source, target = new_pair()
    append(source, batch(b"0", b"1"))
    append(source, batch(b"2", b"3", b"4", b"5"))
    source.advance_log_start(4)
    copy = LogCopy(source, target)
    copy_all(copy)
    copy.complete(PIECE, NOW_MS)
    assert (target.log_start, target.log_end) == (4, 6)
    assert [each.base_offset for each in read_all(target)] == [2]


def test_a_copy_begins_anew_where_retention_has_passed_it() -> None:
    _, source, target = new_pair()
    for _ in range(10):
        append(source, batch(b"x" * 50))
    copy = LogCopy(source, target)
    found = source.read(0, PIECE, source.log_end)
    copy.append(found, found.read(), NOW_MS)
    found.release()
    assert target.log_end < 8
    source.advance_log_start(8)
    copy_all(copy)
    assert (target.log_start, target.log_end) == (8, 10)
    source.advance_log_start(10)
    append(source, batch(b"more"))
    copy_all(copy)
    assert target.log_end == 11


def test_a_copy_begins_anew_where_the_log_was_cut() -> None:
    _, source, target = new_pair()
    for _ in range(10):
        append(source, batch(b"old"), leader_epoch=1)
    copy = LogCopy(source, target)
    copy_all(copy)
    source.truncate_to(5, NOW_MS)
    for _ in range(7):
        append(source, batch(b"new"), leader_epoch=2)
    copy_all(copy)
    assert bytes_of(read_all(target)) == bytes_of(read_all(source))


def test_a_copy_of_a_log_that_has_forgotten_its_epochs_gets_on() -> None:
    """Its file may be gone, or tell of the newest alone. The copy, which has them from the batches, began for ever."""
    _, source, target = new_pair()
    for number in range(10):
        append(source, batch(b"x" * 50), leader_epoch=number // 5)
    source.epochs.clear()
    copy_all(LogCopy(source, target))
    assert bytes_of(read_all(target)) == bytes_of(read_all(source))
    assert target.epoch_for(0) == 0


def test_a_log_that_was_cut_and_grew_to_the_same_end_is_copied_anew() -> None:
    _, source, target = new_pair()
    for _ in range(10):
        append(source, batch(b"old"), leader_epoch=1)
    copy = LogCopy(source, target)
    copy_all(copy)
    source.truncate_to(5, NOW_MS)
    for _ in range(5):
        append(source, batch(b"new"), leader_epoch=1)
    copy.complete(PIECE, NOW_MS)
    assert bytes_of(read_all(target)) == bytes_of(read_all(source))


def test_a_log_that_goes_on_past_its_last_batch_is_copied_whole() -> None:
    """Where compaction has left nothing at the end of a segment, and the active one is empty."""
    disk, source, target = new_pair()
    for _ in range(5):
        append(source, batch(b"x"))
    source.close(NOW_MS)
    disk.open(f"{logs.DIRECTORY}/{names.offset_name(8, names.LOG)}", create=True).close()
    source = open_in(disk, source.config, clean=True, recovery_point=5)
    assert source.log_end == 8
    LogCopy(source, target).complete(PIECE, NOW_MS)
    assert (target.log_start, target.log_end, target.high_watermark) == (0, 8, 8)
    assert bytes_of(read_all(target)) == bytes_of(read_all(source)) != b""
    again = open_in(disk, source.config, directory="/other/orders-0", recovery_point=target.recovery_point)
    assert (again.log_end, bytes_of(read_all(again))) == (8, bytes_of(read_all(source)))
    assert append(again, batch(b"y")).base_offset == 8


@pytest.mark.parametrize("start", [0, 100])
def test_an_empty_log_is_copied(start: int) -> None:
    _, source, target = new_pair()
    if start:
        source.truncate_fully_and_start_at(start, NOW_MS)
    copy = LogCopy(source, target)
    copy_all(copy)
    copy.complete(PIECE, NOW_MS)
    assert (target.log_start, target.log_end) == (start, start)


def test_what_comes_while_nothing_is_read_is_copied() -> None:
    """A log whose records were all deleted is read in a thread, too."""
    _, source, target = new_pair()
    source.truncate_fully_and_start_at(100, NOW_MS)
    copy = LogCopy(source, target)
    step = copy.begin_read(PIECE, NOW_MS)
    assert not isinstance(step, ReadJob)
    data = step.read()
    step.release()
    append(source, batch(b"meanwhile"))
    copy.append(step, data, NOW_MS)
    copy.complete(PIECE, NOW_MS)
    assert (target.log_start, target.log_end) == (100, 101)
    assert bytes_of(read_all(target)) == bytes_of(read_all(source)) != b""


# Moves


def new_disk() -> SimDisk:
    disk = SimDisk(Random(1), lambda: NOW_MS)
    for path, directory_id in (("/a", SOURCE_ID), ("/b", TARGET_ID)):
        disk.make_directories(path)
        write_meta_properties(disk, path, MetaProperties(CLUSTER, 1, directory_id), now_ms=0)
    return disk


def new_dirs(disk: SimDisk, assigned: bytes = SOURCE_ID) -> LogDirs[Log]:
    files = OpenFiles(disk, 1000)
    config = logs.config(segment_bytes=500)

    def opened(place: LogPlace) -> Log:
        return open_log(
            files,
            place.folder,
            config,
            NOW_MS,
            place.log_start,
            place.recovery_point,
            place.high_watermark,
            place.clean,
        )

    dirs: LogDirs[Log] = LogDirs(disk, Random(2), ["/a", "/b"], CLUSTER, 1, opened)
    for _ in dirs.load(NOW_MS, lambda topic, partition: assigned, lambda topic, partition: TOPIC_ID):
        pass
    return dirs


def filled(dirs: LogDirs[Log]) -> Log:
    log = dirs.create("t", 0, TOPIC_ID, is_new=True, directory_id=SOURCE_ID)
    for number in range(12):
        append(log, batch(b"x" * 40, b"%d" % number))
    log.flush(NOW_MS)
    return log


def move(dirs: LogDirs[Log]) -> Log:
    begun = dirs.begin_move("t", 0, dirs.directories[1])
    copy = LogCopy(dirs.logs["t", 0], begun.log)
    copy_all(copy)
    copy.complete(PIECE, NOW_MS)
    moved = dirs.finish_move("t", 0)
    dirs.leave(moved, "t", 0, NOW_MS)
    return moved.log


def test_a_moved_partition_lives_in_its_new_directory_alone() -> None:
    disk = new_disk()
    dirs = new_dirs(disk)
    log = filled(dirs)
    log.advance_log_start(3)
    expected = bytes_of(read_all(log))
    new = move(dirs)
    home = dirs.directory_of("t", 0)
    assert home is not None
    assert home.path == "/b"
    assert dirs.logs["t", 0] is new
    assert new.directory == "/b/t-0"
    assert (bytes_of(read_all(new)), new.log_start) == (expected, 3)
    assert dirs.topic_id("t", 0) == TOPIC_ID
    append(new, batch(b"after"))
    assert dirs.remove_deleted(NOW_MS + 60_000) == 1
    assert not [name for name in disk.list_directory("/a") if name.startswith("t-")]
    disk.power_loss_keeping({})
    again = new_dirs(disk).logs["t", 0]
    assert (again.log_start, again.log_end >= 24) == (3, True)


def test_how_far_a_log_was_cleaned_goes_along_when_it_moves() -> None:
    """Or the next start would have all of it cleaned again; and what was said there of another log is forgotten."""
    disk = new_disk()
    dirs = new_dirs(disk)
    filled(dirs)
    source, target = dirs.directories
    source.write_checkpoint(CLEANER_OFFSETS, {("t", 0): 9}, source.next_number())
    target.write_checkpoint(CLEANER_OFFSETS, {("t", 0): 77}, target.next_number())
    move(dirs)
    disk.power_loss_keeping({})
    assert new_dirs(disk, TARGET_ID).directories[1].checkpoints[CLEANER_OFFSETS] == {("t", 0): 9}


def test_a_log_that_was_never_cleaned_takes_over_nothing_where_it_moves_to() -> None:
    disk = new_disk()
    dirs = new_dirs(disk)
    filled(dirs)
    target = dirs.directories[1]
    target.write_checkpoint(CLEANER_OFFSETS, {("t", 0): 77}, target.next_number())
    move(dirs)
    disk.power_loss_keeping({})
    assert new_dirs(disk, TARGET_ID).directories[1].checkpoints[CLEANER_OFFSETS] == {}


def test_who_reads_while_a_partition_moves_goes_on_in_its_new_place() -> None:
    """The thread comes back to another log than it was sent by, whose segments are others; the old files have gone."""
    dirs = new_dirs(new_disk())
    log = filled(dirs)
    expected = bytes_of(read_all(log))
    reading = log.begin_read(0, 1 << 20, log.log_end)
    searching = log.begin_find(NOW_MS, log.log_end)
    largest = log.begin_find_max()
    assert isinstance(reading, ReadJob)
    assert searching is not None
    assert largest is not None
    for job in (reading, searching, largest):
        job.run()
    # What the old disk could not read says nothing about the new one.
    searching.error = OSError(5, "Input/output error")
    new = move(dirs)
    found = new.finish_read(reading)
    while isinstance(found, ReadJob):
        found.run()
        found = new.finish_read(found)
    data = found.read()
    found.release()
    assert data
    assert expected.startswith(data)
    assert [finished(new, job) for job in (searching, largest)] == [0, 1]
    assert new.failure is None


def finished(log: Log, job: TimestampJob) -> int:
    step: TimestampJob | TimestampedOffset | None = log.finish_find(job)
    while isinstance(step, TimestampJob):
        step.run()
        step = log.finish_find(step)
    assert step is not None
    return step.offset


def test_who_reads_a_partition_that_is_deleted_is_sent_away_and_no_disk_is_blamed() -> None:
    dirs = new_dirs(new_disk())
    log = filled(dirs)
    reading = log.begin_read(0, 1 << 20, log.log_end)
    searching = log.begin_find(NOW_MS, log.log_end)
    assert isinstance(reading, ReadJob)
    assert searching is not None
    for job in (reading, searching):
        job.run()
    dirs.delete("t", 0, NOW_MS)
    for finish in (
        lambda: log.finish_read(reading),
        lambda: log.finish_find(searching),
        lambda: log.begin_find_max(),
        lambda: log.begin_read(0, 1, log.log_end),
    ):
        with pytest.raises(RemoteError) as refused:
            finish()
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert log.failure is None


def test_a_move_that_fails_at_its_end_names_the_directory_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    dirs = new_dirs(new_disk())
    filled(dirs)

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(dirs.directories[1], "write_checkpoint", fail)
    with pytest.raises(StorageError) as caught:
        move(dirs)
    assert caught.value.path == "/b"


def test_a_crash_at_any_step_of_a_move_loses_nothing() -> None:
    disk = new_disk()
    dirs = new_dirs(disk)
    expected = bytes_of(read_all(filled(dirs)))
    images: list[SimDisk] = []

    def fork(operation: str, path: str, position: int, size: int) -> None:
        if operation not in ("read", "open", "list"):
            images.append(disk.fork())

    disk.on_operation = fork
    move(dirs)
    disk.on_operation = None
    images.append(disk.fork())
    assert len(images) > 40
    rng = Random(3)
    for image in images:
        for attempt in range(3):
            crashed = image.fork()
            if attempt == 0:
                crashed.kill()
            elif attempt == 1:
                crashed.power_loss_keeping({})
            else:
                crashed.power_loss(rng)
            again = new_dirs(crashed)
            assert not again.failed_logs
            assert bytes_of(read_all(again.logs["t", 0])) == expected
            folders = [name for path in ("/a", "/b") for name in crashed.list_directory(path) if name == "t-0"]
            assert folders == ["t-0"]


@pytest.mark.parametrize("assigned", [SOURCE_ID, TARGET_ID])
def test_of_two_folders_of_a_partition_the_one_that_the_metadata_names_is_kept(assigned: bytes) -> None:
    """The other is set aside, not deleted: nobody has looked into it."""
    disk = new_disk()
    dirs = new_dirs(disk)
    filled(dirs)
    move(dirs)
    append(dirs.logs["t", 0], batch(b"in the new place alone"))
    dirs.close(broker_epoch=1, now_ms=NOW_MS)
    old = next(name for name in disk.list_directory("/a") if name.endswith("-delete"))
    disk.rename(f"/a/{old}", "/a/t-0")
    again = new_dirs(disk, assigned)
    home = again.directory_of("t", 0)
    assert home is not None
    assert home.directory_id == assigned
    assert again.logs["t", 0].log_end == (24 if assigned == SOURCE_ID else 25)
    kept, other = ("/a", "/b") if assigned == SOURCE_ID else ("/b", "/a")
    assert [name for name in disk.list_directory(kept) if name.startswith("t-")] == ["t-0"]
    (stray,) = (name for name in disk.list_directory(other) if name.startswith("t-"))
    assert stray.endswith("-stray")


def failed_copy() -> tuple[SimDisk, int]:
    """A partition that went on where it was when its move had failed after the rename; and where it ends."""
    disk = new_disk()
    dirs = new_dirs(disk)
    log = filled(dirs)
    begun = dirs.begin_move("t", 0, dirs.directories[1])
    LogCopy(log, begun.log).complete(PIECE, NOW_MS)
    disk.faults = [Fault(Effect.FAIL, "sync_directory", "/b")]
    with pytest.raises(StorageError):
        dirs.finish_move("t", 0)
    append(log, batch(b"in the old place alone"))
    log.flush(NOW_MS)
    assert disk.exists("/b/t-0")
    return disk, log.log_end


def test_a_compacted_log_is_whole_after_the_directory_failed_that_it_moved_to() -> None:
    """Its old folder is the partition again, and its recovery point still known: or what follows the first gap, which
    compaction has left, would be taken for what a crash did not write (seed 3011569)."""
    disk = new_disk()
    dirs = new_dirs(disk)
    log = filled(dirs)
    log.skip_to(log.log_end + 5, NOW_MS)
    append(log, batch(b"after a gap"))
    log.flush(NOW_MS)
    dirs.checkpoint(RECOVERY_POINTS)
    begun = dirs.begin_move("t", 0, dirs.directories[1])
    LogCopy(log, begun.log).complete(PIECE, NOW_MS)
    moved = dirs.finish_move("t", 0)
    disk.faults = [Fault(Effect.FAIL, "write", "/b/" + RECOVERY_POINTS)]
    with pytest.raises(StorageError):
        dirs.leave(moved, "t", 0, NOW_MS)
    dirs.take_offline(dirs.directories[1], OSError("failed"))
    dirs.checkpoint(RECOVERY_POINTS)
    disk.kill()
    again = new_dirs(disk)
    assert (again.logs["t", 0].log_start, again.logs["t", 0].log_end) == (0, log.log_end)
    home = again.directory_of("t", 0)
    assert home is not None
    assert home.path == "/a"


@pytest.mark.parametrize("assigned", [SOURCE_ID, b"c" * 16])
def test_a_copy_that_failed_at_its_last_step_is_never_taken_for_the_partition(assigned: bytes) -> None:
    """Nor does the broker refuse to start where the metadata names a directory in which it is no more."""
    disk, log_end = failed_copy()
    disk.kill()
    again = new_dirs(disk, assigned)
    home = again.directory_of("t", 0)
    assert home is not None
    assert (home.path, again.logs["t", 0].log_end) == ("/a", log_end)


def test_a_copy_that_failed_at_its_last_step_is_not_served_while_the_partition_is_offline() -> None:
    """It lacks what was acknowledged since, and the metadata would go on to name it."""
    disk, _ = failed_copy()
    disk.kill()
    disk.faults = [Fault(Effect.FAIL, "list", "/a", times=-1)]
    again = new_dirs(disk)
    assert again.any_offline
    assert ("t", 0) not in again.logs
    assert not disk.exists("/b/t-0")


def test_an_interrupted_move_is_remembered_and_its_copy_removed() -> None:
    disk = new_disk()
    dirs = new_dirs(disk)
    filled(dirs)
    dirs.begin_move("t", 0, dirs.directories[1])
    dirs.close(broker_epoch=1, now_ms=NOW_MS)
    again = new_dirs(disk)
    assert again.interrupted_moves == {("t", 0): again.directories[1]}
    assert again.logs["t", 0].log_end == 24
    assert again.remove_deleted(NOW_MS - 1000) == 1, "though the clock was set back"
    assert not [name for name in disk.list_directory("/b") if name.startswith("t-")]


def test_a_move_ends_with_its_partition_and_with_its_disk() -> None:
    disk = new_disk()
    dirs = new_dirs(disk)
    filled(dirs)
    dirs.begin_move("t", 0, dirs.directories[1])
    dirs.delete("t", 0, NOW_MS)
    assert not dirs.moves
    filled(dirs)
    dirs.begin_move("t", 0, dirs.directories[1])
    dirs.take_offline(dirs.directories[1], OSError("gone"))
    assert not dirs.moves
    assert dirs.logs["t", 0].log_end == 24


def test_a_failing_target_leaves_the_partition_where_it_is() -> None:
    disk = new_disk()
    dirs = new_dirs(disk)
    log = filled(dirs)
    disk.faults.append(Fault(Effect.FAIL, "rename", "/b"))
    with pytest.raises(StorageError):
        move(dirs)
    dirs.take_offline(dirs.directories[1], OSError("gone"))
    assert dirs.logs["t", 0] is log
    append(log, batch(b"still served"))


@pytest.mark.parametrize(("contents", "is_disk"), [(b"garbage", False), (None, True)])
def test_a_partition_whose_own_folder_cannot_be_read_does_not_move(contents: bytes | None, is_disk: bool) -> None:
    """The directory that it is in is to blame, or the partition alone; the one that it was to move to is not."""
    disk = new_disk()
    dirs = new_dirs(disk)
    filled(dirs)
    if contents is None:
        disk.faults.append(Fault(Effect.FAIL, "read", "/a/t-0/partition.metadata"))
    else:
        file = disk.open("/a/t-0/partition.metadata")
        file.truncate(0)
        file.write_at(0, [contents])
    with pytest.raises(StorageError) as caught:
        dirs.begin_move("t", 0, dirs.directories[1])
    assert caught.value.path == "/a/t-0"
    assert (caught.value.cause is not None) == is_disk
    assert not dirs.moves


def test_a_name_too_long_for_a_copy_cannot_move() -> None:
    dirs = new_dirs(new_disk())
    assert dirs.can_move("t" * 213, 0)
    assert not dirs.can_move("t" * 214, 0)


def test_a_log_that_begins_with_a_gap_still_begins_there_when_it_has_moved() -> None:
    """Compaction leaves such gaps. Whoever reads from inside one gets what follows it, and must not be told that what
    it asks for was deleted."""
    _, source, target = new_pair()
    first = batch(b"a", base_offset=57, leader_epoch=0)
    source.append_as_follower(first, 0, len(first), 0, NOW_MS)
    source.update_high_watermark(58)
    copy = LogCopy(source, target)
    copy_all(copy)
    copy.complete(PIECE, NOW_MS)
    assert (target.log_start, target.log_end) == (source.log_start, source.log_end) == (0, 58)
    assert [each.base_offset for each in read_batches(target, 10)] == [57]


def test_a_log_that_ends_with_a_gap_loses_nothing_to_a_move() -> None:
    """Other brokers may compact the end of a log away, down to an empty last segment."""
    disk, source, target = new_pair()
    append(source, batch(b"a"))
    append(source, batch(b"b"))
    source.close(NOW_MS)
    cut = disk.open(f"{source.directory}/{0:020}.log")
    cut.truncate(len(batch(b"a")))
    for extension in (".log", ".index", ".timeindex"):
        disk.open(f"{source.directory}/{2:020}{extension}", create=True)
    source = open_in(disk, source.config, clean=True, recovery_point=2)
    assert (source.log_end, len(read_all(source))) == (2, 1)
    copy = LogCopy(source, target)
    copy_all(copy)
    append(source, batch(b"c"))
    copy_all(copy)
    assert bytes_of(read_all(target)) == bytes_of(read_all(source))
    assert target.log_end == 3


def test_a_crash_after_a_move_takes_no_gap_of_the_moved_log_for_a_lost_end() -> None:
    """More offsets are missing than one segment can span, so there is a gap between two: below a recovery point that
    is written down it is compaction's, past it what follows would be cut."""
    disk = new_disk()
    dirs = new_dirs(disk)
    log = filled(dirs)
    far = batch(b"far", base_offset=1 << 32, leader_epoch=0)
    log.append_as_follower(far, 0, len(far), 0, NOW_MS)
    log.update_high_watermark(log.log_end)
    expected = bytes_of(read_all(log))
    move(dirs)
    disk.kill()
    again = new_dirs(disk, TARGET_ID).logs["t", 0]
    assert bytes_of(read_all(again)) == expected
