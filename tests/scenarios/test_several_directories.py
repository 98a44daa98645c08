"""One node with several log directories."""

import asyncio
from pathlib import Path

from mainstem.broker.app import Broker
from tests.scenarios.test_background_work import create_topic
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
