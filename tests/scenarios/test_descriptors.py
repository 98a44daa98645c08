"""Connections and the files of logs share what a process may have open, and neither takes all of it."""

import asyncio
import random
import socket
from pathlib import Path

from mainstem.broker.app import FILES_MIN, Broker
from mainstem.broker.clock import SystemClock
from mainstem.broker.format import format_directories
from mainstem.protocol.messages.k00_produce import ProduceResponse
from mainstem.storage.posix import PosixFileSystem
from tests.support.raw import CLUSTER_ID, batch_of, connect, node_config, produce_request

DESCRIPTORS = 200
PARTITIONS = 80


def test_files_are_closed_for_connections_and_connections_refused_before_logs_have_too_few(tmp_path: Path) -> None:
    async def run() -> None:
        fs, clock, config = PosixFileSystem(), SystemClock(), node_config(tmp_path, num_partitions=str(PARTITIONS))
        format_directories(fs, random.Random(1), config, clock.wall_ms(), CLUSTER_ID)
        node = Broker(
            asyncio.get_running_loop(), fs, clock, random.Random(2), config, CLUSTER_ID, descriptors_max=DESCRIPTORS
        )
        await node.start()
        files = node.partitions.open_files
        peer = await connect(node)
        await peer.ensure_topic("orders")
        for index in range(PARTITIONS):
            request = produce_request("orders", batch_of(b"a"))
            request.topic_data[0].partition_data[0].index = index
            await peer.ask(request, 9, ProduceResponse)
        assert files.capacity == DESCRIPTORS - 1
        assert len(files) > FILES_MIN
        address = node.advertised[0]
        sockets = []
        for _ in range(DESCRIPTORS):
            each = socket.create_connection((address.host, address.port))
            each.setblocking(False)
            sockets.append(each)
            await asyncio.sleep(0.001)
            assert len(files) + node.connection_limit.count <= DESCRIPTORS + 1
        while node.connection_limit.count > DESCRIPTORS - FILES_MIN:
            await asyncio.sleep(0.001)
        assert files.capacity == FILES_MIN
        assert (await peer.produce("orders", b"a")).error_code == 0
        refused = 0
        for each in sockets:
            try:
                refused += each.recv(1) == b""
            except ConnectionResetError:
                refused += 1
            except BlockingIOError:
                pass
            each.close()
        assert refused == DESCRIPTORS - (DESCRIPTORS - FILES_MIN - 1)
        while node.connection_limit.count > 1:
            await asyncio.sleep(0.001)
        assert files.capacity == DESCRIPTORS - 1
        peer.close()
        await node.stop()

    asyncio.run(asyncio.wait_for(run(), 30))
