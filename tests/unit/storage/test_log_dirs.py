"""Several log directories: what is opened, where new partitions go, and what survives a crash at any step."""

import errno
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest

from mainstem.sim.changes import every_survival
from mainstem.sim.disk import SimDisk
from mainstem.sim.faults import Effect, Fault
from mainstem.storage.checkpoint import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    write_file_durably,
)
from mainstem.storage.errors import StorageError
from mainstem.storage.log_directory import LogPlace
from mainstem.storage.log_dirs import LogDirs
from mainstem.storage.meta_properties import MetaProperties, write_meta_properties
from mainstem.storage.partition_folder import (
    FolderKind,
    PartitionFolder,
    deleted_folder_name,
    parse_folder_name,
    stray_folder_name,
)
from mainstem.storage.partition_jobs import NewPartition
from mainstem.storage.partition_metadata import write_topic_id

CLUSTER = "cluster"
TOPIC_ID = bytes(range(16))


@dataclass
class FakeSegment:
    base_offset: int


@dataclass
class FakeLog:
    """Stands in for a log where only the directory's own doings are tested."""

    place: LogPlace
    recovery_point: int = 0
    high_watermark: int = 0
    log_start: int = 0
    segments: list[FakeSegment] = field(default_factory=lambda: [FakeSegment(0)])
    closed: str = ""
    fail_close: Exception | None = None

    def relocate(self, directory: str) -> None:
        self.place = replace(self.place, folder=directory)

    def close(self, now_ms: int) -> None:
        if self.fail_close is not None:
            raise self.fail_close
        self.closed = "closed"

    def abandon(self) -> None:
        self.closed = "abandoned"


def open_fake(place: LogPlace) -> FakeLog:
    return FakeLog(place, place.recovery_point, place.high_watermark, place.log_start)


Dirs = LogDirs[FakeLog]


def new_disk(*paths: str) -> SimDisk:
    disk = SimDisk(Random(1))
    for number, path in enumerate(paths):
        disk.make_directories(path)
        write_meta_properties(disk, path, MetaProperties(CLUSTER, 1, bytes([number]) * 16), now_ms=0)
    return disk


def new_dirs(disk: SimDisk, *paths: str, opener: Callable[[LogPlace], FakeLog] = open_fake) -> Dirs:
    dirs = LogDirs(disk, Random(2), paths or ("/a", "/b"), CLUSTER, 1, opener)
    for _ in dirs.load(now_ms=0):
        pass
    return dirs


def test_folder_names_are_kafkas() -> None:
    rng = Random(1)
    assert parse_folder_name("orders-3") == PartitionFolder(FolderKind.PARTITION, "orders", 3)
    assert parse_folder_name("a.b-c-0") == PartitionFolder(FolderKind.PARTITION, "a.b-c", 0)
    assert parse_folder_name("x-delete-0") == PartitionFolder(FolderKind.PARTITION, "x-delete", 0)
    for kind in FolderKind:
        if kind is not FolderKind.PARTITION:
            name = f"a.b-c-7.{'0123456789abcdef' * 2}-{kind.value}"
            assert parse_folder_name(name) == PartitionFolder(kind, "a.b-c", 7)
    for name in ("__cluster_metadata-0", "lost+found", "orders", "orders-", "-1", "orders-x", "a-01", "a-2147483648"):
        assert parse_folder_name(name) is None, name
    for long in (deleted_folder_name("t" * 249, 12, rng), stray_folder_name("t" * 249, 12, rng)):
        assert len(long) == 255
        parsed = parse_folder_name(long)
        assert parsed is not None
        assert parsed.partition == 12


def test_an_empty_directory_opens_and_stops_cleanly() -> None:
    disk = new_disk("/a", "/b")
    dirs = new_dirs(disk)
    assert dirs.previous_broker_epoch == -1
    dirs.close(broker_epoch=7, now_ms=0)
    assert disk.list_directory("/a") == [
        ".kafka_cleanshutdown",
        "cleaner-offset-checkpoint",
        "log-start-offset-checkpoint",
        "meta.properties",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
    ]
    disk.power_loss_keeping({})
    again = new_dirs(disk)
    assert again.previous_broker_epoch == 7
    assert not disk.exists("/a/.kafka_cleanshutdown")


def test_new_partitions_go_where_the_fewest_are_and_survive() -> None:
    disk = new_disk("/a", "/b")
    dirs = new_dirs(disk)
    for partition in range(5):
        dirs.create("t", partition, TOPIC_ID, is_new=True)
    dirs.create("u", 0, TOPIC_ID, is_new=True, directory_id=bytes([0]) * 16)
    assert sorted(len(directory.partitions) for directory in dirs.directories) == [2, 4]
    disk.power_loss_keeping({})
    again = new_dirs(disk)
    assert sorted(again.logs) == [("t", 0), ("t", 1), ("t", 2), ("t", 3), ("t", 4), ("u", 0)]
    assert again.topic_id("t", 4) == TOPIC_ID
    home = again.directory_of("u", 0)
    assert home is not None
    assert home.path == "/a"


def test_offsets_are_checkpointed_and_handed_to_the_logs() -> None:
    disk = new_disk("/a", "/b")
    dirs = new_dirs(disk)
    for partition in range(2):
        log = dirs.create("t", partition, TOPIC_ID, is_new=True)
        log.recovery_point, log.high_watermark, log.log_start = 10 + partition, 8, 5 * partition
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS):
        for job in dirs.collect(name):
            job.write()
    disk.power_loss_keeping({})
    again = new_dirs(disk)
    places = {key: log.place for key, log in again.logs.items()}
    assert [places["t", n].recovery_point for n in range(2)] == [10, 11]
    assert [places["t", n].high_watermark for n in range(2)] == [8, 8]
    assert [places["t", n].log_start for n in range(2)] == [0, 5]
    assert not places["t", 0].clean
    again.close(broker_epoch=1, now_ms=0)
    assert all(log.place.clean for log in new_dirs(disk).logs.values())


def test_only_starts_past_the_first_segment_are_listed() -> None:
    disk = new_disk("/a")
    dirs = new_dirs(disk, "/a")
    for partition, (start, base) in enumerate(((0, 0), (7, 7), (9, 7))):
        log = dirs.create("t", partition, TOPIC_ID, is_new=True)
        log.log_start, log.segments = start, [FakeSegment(base)]
    dirs.checkpoint(LOG_STARTS)
    assert dirs.directories[0].checkpoints[LOG_STARTS] == {("t", 2): 9}


def test_a_crash_while_loading_does_not_look_clean() -> None:
    disk = new_disk("/a")
    dirs = new_dirs(disk, "/a")
    for partition in range(3):
        dirs.create("t", partition, TOPIC_ID, is_new=True)
    dirs.close(broker_epoch=1, now_ms=0)
    loading = LogDirs(disk, Random(1), ["/a"], CLUSTER, 1, open_fake).load(now_ms=0)
    assert next(loading).clean
    for kept in every_survival(disk.unsynced()):
        image = disk.fork()
        image.power_loss_keeping(kept)
        assert not any(log.place.clean for log in new_dirs(image, "/a").logs.values())


def test_a_stop_while_loading_leaves_no_marker() -> None:
    disk = new_disk("/a")
    dirs = new_dirs(disk, "/a")
    for partition in range(3):
        dirs.create("t", partition, TOPIC_ID, is_new=True).recovery_point = 5
    dirs.close(broker_epoch=1, now_ms=0)
    half = LogDirs(disk, Random(1), ["/a"], CLUSTER, 1, open_fake)
    next(half.load(now_ms=0))
    half.close(broker_epoch=2, now_ms=0)
    again = new_dirs(disk, "/a")
    assert not any(log.place.clean for log in again.logs.values())
    assert [log.recovery_point for log in again.logs.values()] == [5, 5, 5]


def test_a_clock_that_is_set_back_keeps_no_folder_for_longer_than_its_delay() -> None:
    dirs = new_dirs(new_disk("/a"), "/a")
    dirs.create("t", 0, TOPIC_ID, is_new=True)
    dirs.delete("t", 0, now_ms=10**9)
    assert dirs.remove_deleted(now_ms=1000) == 0
    assert dirs.remove_deleted(now_ms=60_999) == 0
    assert dirs.remove_deleted(now_ms=61_000) == 1


def test_a_deleted_partition_is_gone_at_once_and_its_bytes_later() -> None:
    disk = new_disk("/a")
    dirs = new_dirs(disk, "/a")
    log = dirs.create("t", 0, TOPIC_ID, is_new=True)
    dirs.delete("t", 0, now_ms=1000)
    assert log.closed == "abandoned"
    assert dirs.remove_deleted(now_ms=60_999) == 0
    (name,) = [name for name in disk.list_directory("/a") if name.endswith("-delete")]
    assert name.startswith("t-0.")
    disk.power_loss_keeping({})
    again = new_dirs(disk, "/a")
    assert again.logs == {}
    again.create("t", 0, bytes(16), is_new=True)
    assert again.remove_deleted(now_ms=0) == 1
    assert not disk.exists(f"/a/{name}")
    assert list(again.logs) == [("t", 0)]


def test_a_recreated_partition_does_not_inherit_the_recovery_point_of_the_deleted_one() -> None:
    disk = new_disk("/a")
    dirs = new_dirs(disk, "/a")
    dirs.create("t", 0, TOPIC_ID, is_new=True).recovery_point = 1000
    dirs.create("t", 1, TOPIC_ID, is_new=True).recovery_point = 77
    dirs.checkpoint(RECOVERY_POINTS)
    dirs.delete("t", 0, now_ms=0)
    dirs.create("t", 0, bytes(range(1, 17)), is_new=True)
    disk.power_loss_keeping({})
    places = {key: log.place.recovery_point for key, log in new_dirs(disk, "/a").logs.items()}
    assert places == {("t", 0): 0, ("t", 1): 77}


def test_a_partition_has_a_recovery_point_on_disk_before_its_folder_is_there() -> None:
    """Or nobody could tell what a power loss has taken of it from what compaction has."""
    disk = new_disk("/a")
    dirs = new_dirs(disk, "/a")
    moments: list[SimDisk] = []
    disk.after_change = lambda changed: moments.append(changed.fork())
    dirs.create("t", 0, TOPIC_ID, is_new=True)
    disk.after_change = None
    for moment in moments:
        for kept in every_survival(moment.unsynced(), subset_max=2):
            crashed = moment.fork()
            crashed.power_loss_keeping(kept)
            found = new_dirs(crashed, "/a").logs
            assert [log.place.gaps_until for log in found.values()] in ([], [0])
    assert moments


def test_a_checkpoint_that_is_collected_while_a_partition_is_made_leaves_it_its_recovery_point() -> None:
    disk = new_disk("/a")
    dirs = new_dirs(disk, "/a")
    new = NewPartition("t", 0, TOPIC_ID)
    (creation,) = dirs.begin_create([new])
    (collected,) = dirs.collect(RECOVERY_POINTS)
    creation.run()
    collected.write()
    assert dirs.directories[0].checkpoints[RECOVERY_POINTS] == {("t", 0): 0}
    assert dirs.finish_create(creation, new)
    dirs.logs["t", 0].recovery_point = 5
    dirs.checkpoint(RECOVERY_POINTS)
    assert dirs.directories[0].checkpoints[RECOVERY_POINTS] == {("t", 0): 5}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("gone", ["the file", "an entry"])
def test_a_log_without_a_recovery_point_is_recovered_and_none_of_its_gaps_is_a_loss(gone: str, clean: bool) -> None:
    disk = new_disk("/a")
    dirs = new_dirs(disk, "/a")
    for partition in range(2):
        dirs.create("t", partition, TOPIC_ID, is_new=True).recovery_point = 9
    if clean:
        dirs.close(broker_epoch=1, now_ms=0)
    else:
        dirs.checkpoint(RECOVERY_POINTS)
        disk.kill()
    path = f"/a/{RECOVERY_POINTS}"
    if gone == "the file":
        disk.remove(path)
    else:
        write_file_durably(disk, path, b"0\n1\nt 1 9\n")
    dirs = new_dirs(disk, "/a")
    unknown, other = dirs.logs["t", 0].place, dirs.logs["t", 1].place
    assert (unknown.clean, unknown.recovery_point, unknown.gaps_until > 1 << 60) == (False, 0, True)
    assert (other.clean, other.gaps_until) == ((clean, 9) if gone == "an entry" else (False, unknown.gaps_until))
    assert not dirs.all_closed_cleanly


def test_what_was_cleaned_may_have_gaps_though_the_recovery_point_on_disk_is_older() -> None:
    disk = new_disk("/a")
    dirs = new_dirs(disk, "/a")
    dirs.create("t", 0, TOPIC_ID, is_new=True).recovery_point = 5
    dirs.checkpoint(RECOVERY_POINTS)
    for cleaned_to, gaps_until in ((3, 5), (8, 8)):
        write_file_durably(disk, f"/a/{CLEANER_OFFSETS}", b"0\n1\nt 0 %d\n" % cleaned_to)
        disk.kill()
        place = new_dirs(disk, "/a").logs["t", 0].place
        assert (place.recovery_point, place.gaps_until) == (5, gaps_until)


def test_offsets_collected_before_a_partition_was_recreated_or_cut_are_not_written_after_it() -> None:
    disk = new_disk("/a")
    dirs = new_dirs(disk, "/a")
    dirs.create("t", 0, TOPIC_ID, is_new=True).recovery_point = 1000
    late = dirs.collect(RECOVERY_POINTS)
    dirs.delete("t", 0, now_ms=0)
    log = dirs.create("t", 0, TOPIC_ID, is_new=True)
    late[0].write()
    assert dirs.directories[0].checkpoints[RECOVERY_POINTS] == {("t", 0): 0}
    log.recovery_point = 50
    late = dirs.collect(RECOVERY_POINTS)
    dirs.lower_recovery_point("t", 0, 20)
    log.recovery_point = 20
    late[0].write()
    dirs.checkpoint(RECOVERY_POINTS)
    assert dirs.directories[0].checkpoints[RECOVERY_POINTS] == {("t", 0): 20}


def test_whoever_makes_a_partition_does_not_wait_for_a_checkpoint_that_is_being_written() -> None:
    """On the event loop, where everybody would wait; the job that makes it does, in its thread."""
    disk = new_disk("/a")
    dirs = new_dirs(disk, "/a")
    dirs.create("t", 0, TOPIC_ID, is_new=True).recovery_point = 1000
    (late,) = dirs.collect(RECOVERY_POINTS)
    dirs.delete("t", 0, now_ms=0)
    is_writing, go_on = threading.Event(), threading.Event()

    def see(operation: str, path: str, position: int, size: int) -> None:
        if operation == "sync" and RECOVERY_POINTS in path and not is_writing.is_set():
            is_writing.set()
            go_on.wait(10)

    disk.on_operation = see
    writing = threading.Thread(target=late.write)
    writing.start()
    assert is_writing.wait(10)
    new = NewPartition("t", 0, TOPIC_ID)
    (creation,) = dirs.begin_create([new])
    assert writing.is_alive()
    go_on.set()
    creation.run()
    writing.join()
    assert dirs.finish_create(creation, new)
    assert dirs.directories[0].checkpoints[RECOVERY_POINTS] == {("t", 0): 0}


def test_of_two_checkpoints_the_newer_stays_whatever_order_they_are_written_in() -> None:
    disk = new_disk("/a")
    dirs = new_dirs(disk, "/a")
    log = dirs.create("t", 0, TOPIC_ID, is_new=True)
    log.recovery_point = 5
    (older,) = dirs.collect(RECOVERY_POINTS)
    log.recovery_point = 9
    (newer,) = dirs.collect(RECOVERY_POINTS)
    newer.write()
    older.write()
    assert dirs.directories[0].checkpoints[RECOVERY_POINTS] == {("t", 0): 9}


def test_a_checkpoint_fails_as_the_one_before_it_did_whose_failure_nobody_was_told_yet() -> None:
    """D5: each is written in a thread of its own."""
    disk = new_disk("/a")
    dirs = new_dirs(disk, "/a")
    dirs.create("t", 0, TOPIC_ID, is_new=True)
    (first,) = dirs.collect(RECOVERY_POINTS)
    (second,) = dirs.collect(HIGH_WATERMARKS)
    disk.faults = [Fault(Effect.FAIL_SYNC_AND_DROP, "sync")]
    with pytest.raises(OSError, match="simulated failed sync"):
        first.write()
    operations: list[str] = []
    disk.on_operation = lambda operation, path, position, size: operations.append(operation)
    with pytest.raises(OSError, match="simulated failed sync"):
        second.write()
    assert operations == []


def test_a_recovery_point_is_lowered_on_disk_before_a_truncation() -> None:
    disk = new_disk("/a")
    dirs = new_dirs(disk, "/a")
    dirs.create("t", 0, TOPIC_ID, is_new=True).recovery_point = 100
    dirs.create("t", 1, TOPIC_ID, is_new=True).recovery_point = 77
    dirs.checkpoint(RECOVERY_POINTS)
    dirs.lower_recovery_point("t", 0, 40)
    disk.power_loss_keeping({})
    places = {key: log.place.recovery_point for key, log in new_dirs(disk, "/a").logs.items()}
    assert places == {("t", 0): 40, ("t", 1): 77}


def test_strays_are_kept_and_not_opened() -> None:
    disk = new_disk("/a")
    dirs = new_dirs(disk, "/a")
    dirs.create("t", 0, TOPIC_ID, is_new=True)
    dirs.set_stray("t", 0)
    disk.power_loss_keeping({})
    again = new_dirs(disk, "/a")
    assert again.logs == {}
    assert again.remove_deleted(now_ms=10**12) == 0
    assert [folder.kind for folder in again.directories[0].folders.values()] == [FolderKind.STRAY]


def test_what_is_no_partition_is_left_alone() -> None:
    disk = new_disk("/a")
    for name in ("__cluster_metadata-0", "lost+found", "remote-log-index-cache"):
        disk.make_directories(f"/a/{name}")
    dirs = new_dirs(disk, "/a")
    assert dirs.logs == {}
    dirs.close(broker_epoch=1, now_ms=0)
    assert disk.is_directory("/a/__cluster_metadata-0")


def test_the_first_error_takes_a_directory_offline_and_nothing_is_written_there_again() -> None:
    disk = new_disk("/a", "/b")
    dirs = new_dirs(disk)
    for partition in range(4):
        dirs.create("t", partition, TOPIC_ID, is_new=True)
    there = [key for key in dirs.logs if dirs.directory_of(*key) is dirs.directories[0]]
    disk.faults.append(Fault(Effect.FAIL, "sync", "/a/"))
    dirs.checkpoint(RECOVERY_POINTS)
    assert dirs.directories[0].offline is not None
    assert not set(there) & set(dirs.logs)
    assert len(dirs.logs) == 2
    touched: list[str] = []
    disk.on_operation = lambda operation, path, position, size: touched.append(path)
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS):
        dirs.checkpoint(name)
    dirs.delete(*there[0], now_ms=0)
    assert dirs.directory_of(*there[0]) is None
    dirs.create("t", 9, TOPIC_ID, is_new=True)
    dirs.close(broker_epoch=3, now_ms=0)
    assert not [path for path in touched if path.startswith("/a")]
    assert disk.exists("/b/.kafka_cleanshutdown")
    assert not disk.exists("/a/.kafka_cleanshutdown")


def test_a_partition_that_may_be_offline_is_not_created_elsewhere() -> None:
    disk = new_disk("/a", "/b")
    dirs = new_dirs(disk)
    dirs.take_offline(dirs.directories[0], OSError(errno.EIO, "gone"))
    with pytest.raises(StorageError, match="may be in a log directory that is offline"):
        dirs.create("t", 0, TOPIC_ID, is_new=False)
    dirs.create("t", 0, TOPIC_ID, is_new=True)


def test_creation_moves_on_to_the_next_directory() -> None:
    disk = new_disk("/a", "/b")
    dirs = new_dirs(disk)
    disk.faults.append(Fault(Effect.FAIL, "make_directory", "/a/"))
    dirs.create("t", 0, TOPIC_ID, is_new=True)
    home = dirs.directory_of("t", 0)
    assert home is not None
    assert home.path == "/b"
    disk.faults.append(Fault(Effect.FAIL, "sync_directory", "/b"))
    with pytest.raises(StorageError, match="no log directory"):
        dirs.create("t", 1, TOPIC_ID, is_new=True)


def test_a_damaged_log_goes_offline_alone_and_its_recovery_point_is_kept() -> None:
    disk = new_disk("/a")
    dirs = new_dirs(disk, "/a")
    for partition in range(3):
        dirs.create("t", partition, TOPIC_ID, is_new=True).recovery_point = 40 + partition
    dirs.close(broker_epoch=1, now_ms=0)

    def open_or_fail(place: LogPlace) -> FakeLog:
        if place.partition == 1:
            raise StorageError(place.folder, "bad bytes below the recovery point")
        return open_fake(place)

    again = new_dirs(disk, "/a", opener=open_or_fail)
    assert sorted(again.logs) == [("t", 0), ("t", 2)]
    assert "bad bytes" in again.failed_logs["t", 1]
    again.close(broker_epoch=2, now_ms=0)
    assert new_dirs(disk, "/a").logs["t", 1].recovery_point == 41


@pytest.mark.parametrize("when", ["opening", "running", "closing"])
def test_a_damaged_log_is_recovered_by_the_next_start_and_its_neighbours_are_not(when: str) -> None:
    """One bad sector would otherwise have each start read the last segments of ten thousand logs."""
    disk = new_disk("/a", "/b")
    dirs = new_dirs(disk)
    for partition in range(4):
        dirs.create("t", partition, TOPIC_ID, is_new=True).recovery_point = 40 + partition
    dirs.close(broker_epoch=1, now_ms=0)
    damage = StorageError("/a/t-2", "bad bytes below the recovery point")

    def open_or_fail(place: LogPlace) -> FakeLog:
        if place.partition == 2 and when == "opening":
            raise damage
        return open_fake(place)

    again = new_dirs(disk, opener=open_or_fail)
    if when == "running":
        again.fail_log("t", 2, str(damage))
    if when == "closing":
        again.logs["t", 2].fail_close = damage
    again.close(broker_epoch=2, now_ms=0)
    for kept in every_survival(disk.unsynced()):
        image = disk.fork()
        image.power_loss_keeping(kept)
        found = new_dirs(image)
        assert {key: log.place.clean for key, log in found.logs.items()} == {
            ("t", 0): True, ("t", 1): True, ("t", 2): False, ("t", 3): True,
        }  # fmt: skip
        assert found.logs["t", 2].recovery_point == 42
        assert not found.all_closed_cleanly
        assert found.previous_broker_epoch == -1
        # Once it is sound, nothing is left of it.
        found.close(broker_epoch=3, now_ms=0)
        healed = new_dirs(image)
        assert healed.all_closed_cleanly
        assert healed.previous_broker_epoch == 3
        assert not image.exists("/a/unclean-log-checkpoint")


def test_a_list_of_unclean_logs_that_makes_no_sense_has_all_of_them_recovered() -> None:
    disk = new_disk("/a")
    dirs = new_dirs(disk, "/a")
    dirs.create("t", 0, TOPIC_ID, is_new=True)
    dirs.close(broker_epoch=1, now_ms=0)
    disk.open("/a/unclean-log-checkpoint", create=True).write_at(0, [b"what"])
    again = new_dirs(disk, "/a")
    assert not again.logs["t", 0].place.clean
    assert again.directories[0].offline is None


def test_what_a_damaged_log_has_written_is_synced_before_the_marker() -> None:
    """A Kafka that starts on the directory would believe the marker, and take its end as it is."""
    disk = new_disk("/a")
    dirs = new_dirs(disk, "/a")
    dirs.create("t", 0, TOPIC_ID, is_new=True)
    file = disk.open("/a/t-0/00000000000000000000.log")
    file.write_at(0, [b"unsynced"])
    dirs.fail_log("t", 0, "bad bytes")
    dirs.close(broker_epoch=1, now_ms=0)
    disk.power_loss_keeping({})
    assert disk.exists("/a/.kafka_cleanshutdown")
    assert disk.peek("/a/t-0/00000000000000000000.log") == b"unsynced"


def test_a_crash_at_any_moment_of_a_stop_with_a_damaged_log_never_calls_it_clean() -> None:
    disk = new_disk("/a")
    dirs = new_dirs(disk, "/a")
    for partition in range(2):
        dirs.create("t", partition, TOPIC_ID, is_new=True)
    dirs.close(broker_epoch=1, now_ms=0)
    dirs = new_dirs(disk, "/a")
    dirs.fail_log("t", 0, "bad bytes")
    moments: list[SimDisk] = []
    disk.after_change = lambda same: moments.append(same.fork())
    dirs.close(broker_epoch=2, now_ms=0)
    outcomes = set()
    for moment in moments:
        for kept in every_survival(moment.unsynced()):
            image = moment.fork()
            image.power_loss_keeping(kept)
            found = new_dirs(image, "/a")
            outcomes.add(tuple(found.logs["t", partition].place.clean for partition in range(2)))
    assert outcomes == {(False, False), (False, True)}


def test_a_disk_error_while_opening_takes_the_directory_offline() -> None:
    disk = new_disk("/a", "/b")
    dirs = new_dirs(disk)
    for partition in range(4):
        dirs.create("t", partition, TOPIC_ID, is_new=True)
    disk.kill()

    def open_or_fail(place: LogPlace) -> FakeLog:
        if place.folder == "/a/t-2":
            raise OSError(errno.EIO, "unreadable")
        return open_fake(place)

    again = new_dirs(disk, opener=open_or_fail)
    assert [directory.offline is None for directory in again.directories] == [False, True]
    assert sorted(again.logs) == [("t", 1), ("t", 3)]


def test_a_log_that_does_not_close_leaves_no_marker() -> None:
    disk = new_disk("/a")
    dirs = new_dirs(disk, "/a")
    dirs.create("t", 0, TOPIC_ID, is_new=True).fail_close = OSError(errno.EIO, "no")
    dirs.close(broker_epoch=1, now_ms=0)
    assert not disk.exists("/a/.kafka_cleanshutdown")
    assert dirs.directories[0].offline is not None


@pytest.mark.parametrize("name", [RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS])
def test_a_malformed_checkpoint_takes_its_directory_offline(name: str) -> None:
    disk = new_disk("/a", "/b")
    disk.open(f"/a/{name}", create=True).write_at(0, [b"99\n0\n"])
    dirs = new_dirs(disk)
    reason = dirs.directories[0].offline or ""
    assert "version '99'" in reason
    assert f"/a/{name}" in reason
    assert "; remove the file, and " in reason
    assert dirs.directories[1].offline is None


def test_directories_of_others_are_refused() -> None:
    disk = new_disk("/a", "/b")
    disk.make_directories("/empty")

    def take(*paths: str, cluster: str = CLUSTER, node: int = 1) -> None:
        LogDirs(disk, Random(1), paths, cluster, node, open_fake)

    with pytest.raises(ValueError, match=r"belongs to cluster.id cluster, not to other"):
        take("/a", cluster="other")
    with pytest.raises(ValueError, match=r"belongs to node.id 1, not to 2"):
        take("/a", node=2)
    with pytest.raises(ValueError, match=r"/empty has no meta.properties; format it first"):
        take("/a", "/empty")
    with pytest.raises(ValueError, match="each once"):
        take("/a", "/a")
    with pytest.raises(ValueError, match="none can be used"):
        take("/missing")
    write_meta_properties(disk, "/b", MetaProperties(CLUSTER, 1, bytes(16)), now_ms=0)
    with pytest.raises(ValueError, match=r"same directory.id"):
        take("/a", "/b")
    assert disk.locks == set()


def test_a_directory_that_failed_is_let_go_at_the_stop() -> None:
    """Whoever starts again in the same process may find it well."""
    disk = new_disk("/a", "/b")
    dirs = new_dirs(disk, "/a", "/b")
    dirs.take_offline(dirs.directories[1], OSError("gone"))
    dirs.close(broker_epoch=1, now_ms=0)
    again = new_dirs(disk, "/a", "/b")
    assert [one.previous_stop.clean for one in again.directories] == [True, False]


def test_a_directory_is_locked_while_it_is_used() -> None:
    disk = new_disk("/a")
    dirs = new_dirs(disk, "/a")
    with pytest.raises(BlockingIOError):
        LogDirs(disk, Random(1), ["/a"], CLUSTER, 1, open_fake)
    dirs.close(broker_epoch=1, now_ms=0)
    new_dirs(disk, "/a")


def load_with_owner(disk: SimDisk, owner: bytes | None) -> Dirs:
    dirs = LogDirs(disk, Random(2), ["/a", "/b"], CLUSTER, 1, open_fake)
    for _ in dirs.load(0, owner=lambda topic, partition: owner):
        pass
    return dirs


def make_folder(disk: SimDisk, folder: str, topic_id: bytes | None, log: str = "00000000000000000000.log") -> None:
    disk.make_directories(folder)
    disk.open(f"{folder}/{log}", create=True).close()
    if topic_id is not None:
        write_topic_id(disk, folder, topic_id)


def fill(disk: SimDisk, path: str) -> None:
    disk.open(path).write_at(0, [b"records"])


@pytest.mark.parametrize("log", ["00000000000000000000.log", "00000000000000000007.log"])
def test_a_partition_with_records_in_two_directories_stops_the_start(log: str) -> None:
    disk = new_disk("/a", "/b")
    for path in ("/a", "/b"):
        make_folder(disk, f"{path}/t-0", TOPIC_ID, log)
        if log.startswith("00000000000000000000"):
            fill(disk, f"{path}/t-0/{log}")
    with pytest.raises(ValueError, match="t-0 is in both /a and /b"):
        load_with_owner(disk, TOPIC_ID)
    disk.kill()
    disk.faults.append(Fault(Effect.FAIL, "open", "/b/t-0/partition.metadata"))
    with pytest.raises(ValueError, match="t-0 is in both /a and /b"):
        load_with_owner(disk, TOPIC_ID)


@pytest.mark.parametrize("used", ["/a", "/b"])
def test_of_two_folders_of_a_partition_the_one_that_was_never_used_is_set_aside(used: str) -> None:
    disk = new_disk("/a", "/b")
    for path in ("/a", "/b"):
        make_folder(disk, f"{path}/t-0", TOPIC_ID)
    fill(disk, f"{used}/t-0/00000000000000000000.log")
    dirs = load_with_owner(disk, TOPIC_ID)
    assert dirs.logs["t", 0].place.folder == f"{used}/t-0"
    home = dirs.directory_of("t", 0)
    assert home is not None
    assert home.path == used
    (other,) = {"/a", "/b"} - {used}
    assert [name for name in disk.list_directory(other) if name.startswith("t-0.") and name.endswith("-stray")]


@pytest.mark.parametrize("copied", ["/a", "/b"])
def test_a_copy_that_has_not_taken_the_place_of_its_partition_is_set_aside_though_the_metadata_names_its_directory(
    copied: str,
) -> None:
    disk = new_disk("/a", "/b")
    for path in ("/a", "/b"):
        make_folder(disk, f"{path}/t-0", TOPIC_ID)
        fill(disk, f"{path}/t-0/00000000000000000000.log")
    disk.open(f"{copied}/t-0/copy", create=True).close()
    dirs = LogDirs(disk, Random(2), ["/a", "/b"], CLUSTER, 1, open_fake)
    named = next(each.directory_id for each in dirs.directories if each.path == copied)
    list(dirs.load(0, lambda topic, partition: named, lambda topic, partition: TOPIC_ID))
    (own,) = {"/a", "/b"} - {copied}
    assert dirs.logs["t", 0].place.folder == f"{own}/t-0"


def test_a_copy_is_not_served_while_a_directory_is_offline_though_the_metadata_names_its_own() -> None:
    """The partition had been moved away, of which the metadata had not heard, and was on its way back: its directory
    failed at the last step, and it went on where it was."""
    disk = new_disk("/a", "/b")
    for path in ("/a", "/b"):
        make_folder(disk, f"{path}/t-0", TOPIC_ID)
        fill(disk, f"{path}/t-0/00000000000000000000.log")
    disk.open("/a/t-0/copy", create=True).close()
    disk.faults.append(Fault(Effect.FAIL, None, "/b/", times=-1))
    dirs = LogDirs(disk, Random(2), ["/a", "/b"], CLUSTER, 1, open_fake)
    named = dirs.directories[0].directory_id
    list(dirs.load(0, lambda topic, partition: named, lambda topic, partition: TOPIC_ID))
    assert dirs.any_offline
    assert ("t", 0) not in dirs.logs


def test_a_copy_that_was_served_is_the_partition_though_a_directory_is_offline_later() -> None:
    """What had been written to it was set aside as an old copy, with the partition made anew (seed 1009031)."""
    disk = new_disk("/a", "/b")
    make_folder(disk, "/a/t-0", TOPIC_ID)
    fill(disk, "/a/t-0/00000000000000000000.log")
    disk.open("/a/t-0/copy", create=True).close()

    def load() -> LogDirs[Any]:
        dirs = LogDirs(disk, Random(2), ["/a", "/b"], CLUSTER, 1, open_fake)
        named = dirs.directories[0].directory_id
        list(dirs.load(0, lambda topic, partition: named, lambda topic, partition: TOPIC_ID))
        return dirs

    assert ("t", 0) in load().logs, "the partition is nowhere else"
    disk.power_loss()
    disk.faults.append(Fault(Effect.FAIL, None, "/b/", times=-1))
    dirs = load()
    assert dirs.any_offline
    assert dirs.logs["t", 0].place.folder == "/a/t-0"


@pytest.mark.parametrize("own", ["/a", "/b", "/c"])
def test_two_copies_of_a_partition_do_not_keep_it_from_being_found_in_a_third_directory(own: str) -> None:
    """One whose directory failed at the end of a move, and one that a crash left at the end of the next."""
    paths = ("/a", "/b", "/c")
    disk = new_disk(*paths)
    for path in paths:
        make_folder(disk, f"{path}/t-0", TOPIC_ID)
        fill(disk, f"{path}/t-0/00000000000000000000.log")
        if path != own:
            disk.open(f"{path}/t-0/copy", create=True).close()
    dirs = LogDirs(disk, Random(2), list(paths), CLUSTER, 1, open_fake)
    named = next(each.directory_id for each in dirs.directories if each.path == own)
    list(dirs.load(0, lambda topic, partition: named, lambda topic, partition: TOPIC_ID))
    assert dirs.logs["t", 0].place.folder == f"{own}/t-0"


@pytest.mark.parametrize("others", [None, bytes(range(1, 17))], ids=["none", "another"])
@pytest.mark.parametrize("own", ["/a", "/b"])
def test_of_two_folders_of_a_partition_the_one_that_is_not_of_its_topic_is_set_aside(
    own: str, others: bytes | None
) -> None:
    disk = new_disk("/a", "/b")
    for path in ("/a", "/b"):
        make_folder(disk, f"{path}/t-0", TOPIC_ID if path == own else others)
        fill(disk, f"{path}/t-0/00000000000000000000.log")
    dirs = load_with_owner(disk, TOPIC_ID)
    assert dirs.logs["t", 0].place.folder == f"{own}/t-0"


@pytest.mark.parametrize("owner", [None, TOPIC_ID], ids=["deleted", "known"])
@pytest.mark.parametrize("operation", ["make_directory", "open", "write", "sync", "rename", "sync_directory"])
def test_a_partition_that_no_directory_could_take_does_not_stop_the_next_start(
    operation: str, owner: bytes | None
) -> None:
    disk = new_disk("/a", "/b")
    dirs = new_dirs(disk)
    disk.faults += [Fault(Effect.FAIL, operation, path) for path in ("/a/t-0", "/b/t-0")]
    with pytest.raises(StorageError, match="no log directory can take"):
        dirs.create("t", 0, TOPIC_ID, is_new=True)
    dirs.close(1, now_ms=0)
    again = load_with_owner(disk, owner)
    if again.directory_of("t", 0) is not None:
        again.set_stray("t", 0)
    again.create("t", 0, TOPIC_ID, is_new=True)
    assert again.topic_id("t", 0) == TOPIC_ID


def test_after_any_power_loss_a_recreated_partition_is_the_old_one_or_the_new_one() -> None:
    old_id, new_id = bytes(range(16)), bytes(range(1, 17))
    disk = new_disk("/a")
    dirs = new_dirs(disk, "/a")
    dirs.create("t", 0, old_id, is_new=True).recovery_point = 1000
    dirs.create("t", 1, old_id, is_new=True).recovery_point = 77
    dirs.checkpoint(RECOVERY_POINTS)
    done = "kept"
    images: list[tuple[str, SimDisk]] = []
    disk.after_change = lambda same: images.append((done, same.fork()))
    dirs.delete("t", 0, now_ms=0)
    done = "deleted"
    dirs.create("t", 0, new_id, is_new=True)
    done = "created"
    images.append((done, disk.fork()))
    found: set[str] = set()
    for promised, image in images:
        for kept in every_survival(image.unsynced()):
            crashed = image.fork()
            crashed.power_loss_keeping(kept)
            again = new_dirs(crashed, "/a")
            assert again.logs["t", 1].place.recovery_point == 77
            if ("t", 0) not in again.logs:
                state = "deleted"
            else:
                topic_id = again.topic_id("t", 0)
                state = "kept" if topic_id == old_id else "created"
                if state == "created":
                    # Without its id written it is empty, and metadata will call it stray.
                    assert topic_id in (new_id, None)
                assert again.logs["t", 0].place.recovery_point == (1000 if state == "kept" else 0)
            order = ["kept", "deleted", "created"]
            assert order.index(state) >= order.index(promised), (promised, state, kept)
            found.add(state)
    assert found == {"kept", "deleted", "created"}


def test_however_many_partitions_come_and_go_their_directory_is_synced_as_often() -> None:
    disk = new_disk("/a", "/b")
    dirs = new_dirs(disk)
    synced: list[str] = []

    def note(operation: str, path: str, position: int, size: int) -> None:
        if operation == "sync_directory" and path in ("/a", "/b"):
            synced.append(path)

    disk.on_operation = note
    wanted = [NewPartition("t", partition, TOPIC_ID) for partition in range(20)]
    for creation in dirs.begin_create(wanted):
        assert not dirs.logs, "nothing is opened before its job has run"
        creation.run()
    for creation in dirs.begin_create([NewPartition("u", 0, TOPIC_ID)]):
        creation.run()
        assert all(dirs.finish_create(creation, new) for new in creation.partitions)
    assert sorted(synced) == ["/a"] * 4 + ["/b"] * 2, "for their recovery points, then for their folders"
    synced.clear()
    deletions = dirs.begin_delete([("u", 0)])
    assert dirs.directory_of("u", 0) is None
    for deletion in deletions:
        deletion.run()
        dirs.finish_delete(deletion, 0)
    assert len(synced) == 1


@pytest.mark.parametrize("epoch", [0, 3])
def test_a_partition_that_is_led_here_is_created_with_its_leader_epoch(epoch: int) -> None:
    disk = new_disk("/a")
    dirs = new_dirs(disk, "/a")
    written: list[tuple[str, str]] = []

    def note(operation: str, path: str, position: int, size: int) -> None:
        if operation in ("sync", "rename", "sync_directory"):
            written.append((operation, path))

    disk.on_operation = note
    led, followed = NewPartition("t", 0, TOPIC_ID, epoch), NewPartition("t", 1, TOPIC_ID)
    for creation in dirs.begin_create([led, followed]):
        creation.run()
        assert all(dirs.finish_create(creation, new) for new in creation.partitions)
    assert disk.peek("/a/t-0/leader-epoch-checkpoint") == b"0\n1\n%d 0\n" % epoch
    assert not disk.exists("/a/t-1/leader-epoch-checkpoint")
    syncs = [path for operation, path in written if operation == "sync"]
    assert syncs.count("/a/t-0/leader-epoch-checkpoint.tmp") == 1
    folders = [path for operation, path in written if operation == "sync_directory"]
    assert folders == ["/a", "/a/t-0", "/a/t-1", "/a"], "nothing but the bytes of the file takes a sync of its own"


def test_partitions_whose_directory_fails_meanwhile_are_created_elsewhere() -> None:
    disk = new_disk("/a", "/b")
    dirs = new_dirs(disk)
    jobs = dirs.begin_create([NewPartition("t", partition, TOPIC_ID) for partition in range(4)])
    elsewhere = []
    for creation in jobs:
        creation.run()
        if creation.directory.path == "/a":
            dirs.take_offline(creation.directory, OSError(errno.EIO, "gone"))
        elsewhere += [new for new in creation.partitions if not dirs.finish_create(creation, new)]
    assert len(elsewhere) == 2
    (again,) = dirs.begin_create(elsewhere)
    again.run()
    assert all(dirs.finish_create(again, new) for new in elsewhere)
    assert {dirs.directory_of("t", partition) for partition in range(4)} == {dirs.directories[1]}
