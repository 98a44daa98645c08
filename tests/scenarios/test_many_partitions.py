"""A topic of many partitions, made and deleted while others are served."""

import asyncio
from pathlib import Path
from random import Random

import pytest

from mainstem.broker.app import Broker
from mainstem.sim.disk import SimDisk
from tests.scenarios.test_failing_directories import create, delete, until
from tests.support.raw import Peer, connect, run_with_node, start_node

PARTITIONS = 100


def watched_disk() -> tuple[SimDisk, list[str]]:
    """And what the loop itself waited for: syncs of directories and renames."""
    disk = SimDisk(Random(1))
    on_loop: list[str] = []

    def note(operation: str, path: str, position: int, size: int) -> None:
        if operation in ("sync_directory", "rename"):
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                return
            on_loop.append(path)

    disk.on_operation = note
    return disk, on_loop


def test_the_loop_does_not_wait_for_the_disk_while_partitions_come_and_go() -> None:
    disk, on_loop = watched_disk()

    async def scenario(node: Broker, peer: Peer) -> None:
        on_loop.clear()
        for _ in range(2):
            await create(peer, "big", PARTITIONS)
            await until("all are here", lambda: len(node.partitions) == PARTITIONS)
            assert (await peer.produce("big", b"x")).base_offset == 0
            await delete(peer, "big")
            await until("all are gone", lambda: len(node.partitions) == 0)
        assert not [path for path in on_loop if "/big-" in path or path == "/data"]

    run_with_node(Path("/data"), scenario, disk)


def test_a_kill_leaves_the_leader_epoch_of_an_empty_partition_as_in_kafka() -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await create(peer, "big", 3)
        await until("all are here", lambda: len(node.partitions) == 3)
        for index in range(3):
            assert disk.peek(f"/data/big-{index}/leader-epoch-checkpoint") == b"0\n1\n0 0\n"

    disk = SimDisk(Random(1))
    run_with_node(Path("/data"), scenario, disk)


def test_folders_that_a_crash_left_without_their_metadata_are_made_anew() -> None:
    async def story() -> None:
        disk = SimDisk(Random(1))
        node = await start_node("/data", disk)
        peer = await connect(node)
        await create(peer, "big", 8)
        await until("all are here", lambda: len(node.partitions) == 8)
        peer.close()
        await node.stop()
        for index in range(0, 8, 2):
            disk.remove(f"/data/big-{index}/partition.metadata")
        node = await start_node("/data", disk)
        await until("all are here again", lambda: len(node.partitions) == 8)
        peer = await connect(node)
        assert (await peer.produce("big", b"x")).base_offset == 0
        peer.close()
        await node.stop()

    asyncio.run(asyncio.wait_for(story(), 30))


def test_a_log_line_tells_of_many_partitions_at_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        caplog.set_level("INFO", "mainstem")
        caplog.clear()
        await create(peer, "big", PARTITIONS)
        await until("all are here", lambda: len(node.partitions) == PARTITIONS)
        await delete(peer, "big")
        await until("all are gone", lambda: node.partitions.dirs.directory_of("big", 0) is None)

    run_with_node(tmp_path, scenario)
    lines = [record for record in caplog.records if record.name == "mainstem.broker.partitions"]
    assert [record.getMessage() for record in lines] == ["created partitions", "deleted partitions"]
    assert {record.__dict__["count"] for record in lines} == {PARTITIONS}
    assert {record.__dict__["partitions"] for record in lines} == {"big-0,big-1,big-2,…"}
