"""What the simulator goes by when it damages the cluster's own logs."""

import asyncio
from random import Random

from mainstem.sim.disk import SimDisk
from mainstem.sim.rot_inside import topics_ever
from tests.support.metadata_node import InlineLoop, MetadataNode
from tests.unit.broker.test_metadata_drivers import create_topic


def test_of_a_metadata_log_without_its_beginning_the_topics_are_told_from_a_snapshot_on() -> None:
    disk = SimDisk(Random(1))
    disk.make_directories("/data")

    async def work() -> None:
        node = MetadataNode(asyncio.get_running_loop(), disk, "/data", metadata_max_retention_bytes="1")
        await node.start()
        await create_topic(node, "first")
        await node.quorum.snapshot()
        await create_topic(node, "second", 3)
        await node.quorum.snapshot()
        seen = [frozenset(node.image.topics_by_id)]
        await create_topic(node, "third")
        seen.append(frozenset(node.image.topics_by_id))
        assert node.quorum._opened.log_start > 0
        ever = topics_ever(disk)
        assert set(seen) <= set(ever)
        assert all(len(topics) != 1 for topics in ever), "nobody can tell of what went before the snapshot"
        node.abandon()

    loop = InlineLoop()
    try:
        loop.run_until_complete(work())
    finally:
        loop.close()
