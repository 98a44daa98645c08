"""One node with several log directories."""

import asyncio
from pathlib import Path

import pytest

from mainstem.broker.app import Broker
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from mainstem.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from mainstem.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from mainstem.storage.posix import PosixFileSystem
from tests.scenarios.test_background_work import create_topic, write
from tests.support.raw import Peer, connect, run_with_node, start_node


def test_new_partitions_spread_over_the_directories_and_the_metadata_learns_which(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        for count in range(4):
            await create_topic(peer, f"topic-{count}")
        counts = [len(one.partitions) for one in node.partitions.dirs.online]
        assert max(counts) - min(counts) <= 1
        for _ in range(200):
            if all(
                state.directory_of(1) == directory.directory_id
                for directory in node.partitions.dirs.online
                for topic, index in directory.partitions
                if (state := node.image.partition(topic, index)) is not None
            ):
                return
            await asyncio.sleep(0.01)
        raise AssertionError("the controller was not told where the replicas are")

    both = f"{tmp_path}/a,{tmp_path}/b"
    run_with_node(tmp_path, scenario, log_dirs=both)


def test_a_cordoned_directory_takes_no_new_partitions(tmp_path: Path) -> None:
    """KIP-1066. With every directory cordoned the controller refuses, as Kafka's does."""
    first, second = f"{tmp_path}/a", f"{tmp_path}/b"

    async def cordon(peer: Peer, paths: str) -> None:
        change = AlterableConfig(name="cordoned.log.dirs", config_operation=0, value=paths)
        resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[change])
        answer = await peer.ask(
            IncrementalAlterConfigsRequest(resources=[resource], validate_only=False),
            1,
            IncrementalAlterConfigsResponse,
        )
        assert answer.responses[0].error_code == 0, answer

    async def scenario(node: Broker, peer: Peer) -> None:
        await cordon(peer, second)
        for count in range(4):
            await create_topic(peer, f"topic-{count}")
        assert {one.path: len(one.partitions) for one in node.partitions.dirs.online} == {first: 4, second: 0}
        await cordon(peer, "*")
        ids = {one.directory_id for one in node.partitions.dirs.online}
        for _ in range(200):
            if set(node.image.brokers[1].cordoned_log_dirs or ()) == ids:
                break
            await asyncio.sleep(0.01)
        topic = CreatableTopic(name="more", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        refused = await peer.ask(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
        assert refused.topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR
        await cordon(peer, "")
        for _ in range(200):
            if not node.image.brokers[1].cordoned_log_dirs:
                break
            await asyncio.sleep(0.01)
        await create_topic(peer, "more")
        assert {one.path: len(one.partitions) for one in node.partitions.dirs.online} == {first: 4, second: 1}

    run_with_node(tmp_path, scenario, log_dirs=f"{first},{second}")


def test_a_restart_finds_every_partition_where_it_was(tmp_path: Path) -> None:
    async def run() -> None:
        both = f"{tmp_path}/a,{tmp_path}/b"
        places = []
        for turn in range(2):
            node = await start_node(tmp_path, log_dirs=both)
            peer = await connect(node)
            if turn == 0:
                for count in range(4):
                    await create_topic(peer, f"topic-{count}")
            places.append({one.path: sorted(one.partitions) for one in node.partitions.dirs.online})
            for count in range(4):
                assert (await peer.produce(f"topic-{count}", b"x")).base_offset == turn
            peer.close()
            await node.stop()
        assert places[0] == places[1]

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_partition_that_cannot_be_told_apart_goes_offline_alone_and_is_kept(tmp_path: Path) -> None:
    """Its folder may be the topic's own data or an earlier topic's: not served, not set aside, and no other is hurt."""

    async def run() -> None:
        node = await start_node(tmp_path, log_dirs=f"{tmp_path}/a")
        peer = await connect(node)
        for name in ("hurt", "whole"):
            await create_topic(peer, name)
            assert (await peer.produce(name, b"x")).base_offset == 0
        peer.close()
        await node.stop()
        identity = tmp_path / "a" / "hurt-0" / "partition.metadata"
        sound = identity.read_bytes()
        identity.write_bytes(b"garbage")
        for answer in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE):
            node = await start_node(tmp_path, log_dirs=f"{tmp_path}/a")
            peer = await connect(node)
            assert (await peer.produce("hurt", b"x")).error_code == answer
            assert (await peer.produce("whole", b"x")).error_code == ErrorCode.NONE
            peer.close()
            await node.stop()
            identity.write_bytes(sound)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_the_metadata_may_have_a_directory_of_its_own(tmp_path: Path) -> None:
    data, metadata = tmp_path / "data", tmp_path / "metadata"

    async def run() -> None:
        for start in range(2):
            node = await start_node(data, metadata_log_dir=str(metadata))
            peer = await connect(node)
            await peer.ensure_topic("orders")
            assert (await peer.produce("orders", b"a")).base_offset == start
            with pytest.raises(BlockingIOError):
                PosixFileSystem().lock(f"{metadata}/.lock")
            peer.close()
            await node.stop()
        assert (data / "orders-0").is_dir()
        assert (metadata / "__cluster_metadata-0").is_dir()
        assert not (data / "__cluster_metadata-0").exists()
        assert not (metadata / ".lock").exists()

    asyncio.run(asyncio.wait_for(run(), 30))


def test_how_far_a_deleted_topic_was_compacted_says_nothing_of_its_successor_in_another_directory(
    tmp_path: Path,
) -> None:
    """Below that offset the new topic would never be cleaned, and its tombstones would go before what they delete."""
    both = f"{tmp_path}/a,{tmp_path}/b"
    compacted = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01", "segment_ms": "1"}

    async def run() -> None:
        node = await start_node(tmp_path, log_dirs=both, log_cleaner_backoff_ms="20")
        peer = await connect(node)
        await create_topic(peer, "table", **compacted)
        began_ms = node.clock.wall_ms()
        for count in range(10):
            # By these times a segment ends, however quickly they are written.
            await write(peer, "table", b"key", b"%d" % count, began_ms + 10 * count)
        checkpoint = tmp_path / "a" / "cleaner-offset-checkpoint"
        deadline = asyncio.get_running_loop().time() + 15
        while "table 0" not in checkpoint.read_text():
            assert asyncio.get_running_loop().time() < deadline, "nothing was compacted"
            await asyncio.sleep(0.02)
        deleted = await peer.ask(DeleteTopicsRequest(topic_names=["table"], timeout_ms=10_000), 5, DeleteTopicsResponse)
        assert deleted.responses[0].error_code == 0, deleted
        await create_topic(peer, "other")
        await create_topic(peer, "table", **compacted, min_compaction_lag_ms="3600000")
        assert (tmp_path / "b" / "table-0").is_dir()
        peer.close()
        await node.stop()
        node = await start_node(tmp_path, log_dirs=both, log_cleaner_backoff_ms="20")
        assert node.compaction.cleaner is not None
        assert ("table", 0) not in node.compaction.cleaner.offsets
        await node.stop()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_stray_that_cannot_be_renamed_costs_its_own_directory_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = f"{tmp_path}/a,{tmp_path}/b"
    rename = PosixFileSystem.rename

    def fail_for_strays(self: PosixFileSystem, source: str, target: str) -> None:
        if target.endswith("-stray"):
            raise OSError(5, "Input/output error")
        rename(self, source, target)

    async def run() -> None:
        node = await start_node(tmp_path, log_dirs=both)
        peer = await connect(node)
        for count in range(4):
            await create_topic(peer, f"topic-{count}")
            assert (await peer.produce(f"topic-{count}", b"x")).base_offset == 0
        peer.close()
        await node.stop()
        # Not in that of the metadata, without which no node goes on.
        (tmp_path / "b" / "__unknown-0").mkdir()
        monkeypatch.setattr(PosixFileSystem, "rename", fail_for_strays)
        node = await start_node(tmp_path, log_dirs=both)
        assert [one.path for one in node.partitions.dirs.online] == [f"{tmp_path}/a"]
        peer = await connect(node)
        codes = [(await peer.produce(f"topic-{count}", b"x")).error_code for count in range(4)]
        assert sorted(codes) == [0, 0, *[int(ErrorCode.KAFKA_STORAGE_ERROR)] * 2]
        peer.close()
        await node.stop()

    asyncio.run(asyncio.wait_for(run(), 60))
