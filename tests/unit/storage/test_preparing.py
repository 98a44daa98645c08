"""Folders of new partitions made before the partitions: durable, the same as without, and not twice."""

from mainstem.sim.disk import SimDisk
from mainstem.storage.partition_metadata import read_topic_id
from tests.unit.storage.test_log_dirs import TOPIC_ID, new_dirs, new_disk


def prepared_disk(partitions: int) -> SimDisk:
    disk = new_disk("/a")
    dirs = new_dirs(disk, "/a")
    jobs = [dirs.prepare("orders", index, TOPIC_ID) for index in range(partitions)]
    for job in jobs:
        assert job is not None
        job.run()
    dirs.directories[0].sync()
    for index in range(partitions):
        dirs.create("orders", index, TOPIC_ID, is_new=True)
    assert sorted(dirs.logs) == [("orders", index) for index in range(partitions)]
    return disk


def test_prepared_partitions_survive_a_power_loss() -> None:
    disk = prepared_disk(3)
    disk.power_loss_keeping({})
    dirs = new_dirs(disk, "/a")
    assert sorted(dirs.logs) == [("orders", 0), ("orders", 1), ("orders", 2)]
    for index in range(3):
        assert read_topic_id(disk, f"/a/orders-{index}") == TOPIC_ID


def test_nothing_is_prepared_twice_or_where_it_exists() -> None:
    dirs = new_dirs(new_disk("/a"), "/a")
    first = dirs.prepare("orders", 0, TOPIC_ID)
    assert first is not None
    assert dirs.prepare("orders", 0, TOPIC_ID) is None
    first.run()
    dirs.create("orders", 0, TOPIC_ID, is_new=True)
    assert dirs.prepare("orders", 0, TOPIC_ID) is None


def test_where_there_is_a_choice_of_directories_creation_makes_it() -> None:
    dirs = new_dirs(new_disk("/a", "/b"), "/a", "/b")
    assert dirs.prepare("orders", 0, TOPIC_ID) is None
    dirs.create("orders", 0, TOPIC_ID, is_new=True)
    assert ("orders", 0) in dirs.logs
