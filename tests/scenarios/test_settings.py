"""Settings do what they say: those of the file, and those that are changed while the broker runs."""

import asyncio
import socket
from pathlib import Path

from mainstem.broker.app import Broker, socket_options
from mainstem.net.connection import Exchange
from mainstem.net.listener import Listener
from mainstem.net.sockets import SocketOptions
from mainstem.protocol.framing import SharedBuffer
from mainstem.protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from mainstem.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.support.raw import Peer, connect, node_config, run_with_node, start_node


async def _set(peer: Peer, **settings: str) -> None:
    """Changes settings of all brokers while they run."""
    configs = [AlterableConfig(name=k.replace("_", "."), config_operation=0, value=v) for k, v in settings.items()]
    resource = AlterConfigsResource(resource_type=4, resource_name="", configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    answer = await peer.ask(request, 1, IncrementalAlterConfigsResponse)
    assert [(each.error_code, each.error_message) for each in answer.responses] == [(0, None)]


async def _is_served(node: Broker) -> bool:
    other = await connect(node)
    try:
        return (await other.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)).error_code == 0
    except (asyncio.IncompleteReadError, ConnectionError):
        return False
    finally:
        other.close()


def test_a_connection_that_is_idle_for_too_long_is_closed_and_one_that_is_used_is_not(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        idle = await connect(node)

        async def use() -> None:
            while True:
                await peer.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
                await asyncio.sleep(0.02)

        using = asyncio.create_task(use())
        assert await asyncio.wait_for(idle.reader.read(), 10) == b""
        assert not using.done()
        using.cancel()
        idle.close()

    run_with_node(tmp_path, scenario, connections_max_idle_ms="600")


def test_buffers_of_sockets_are_as_large_as_they_are_set_and_else_the_systems(tmp_path: Path) -> None:
    def buffers(listener: Listener) -> list[tuple[int, int]]:
        kinds = (socket.SO_SNDBUF, socket.SO_RCVBUF)
        return [
            (opened.getsockopt(socket.SOL_SOCKET, kinds[0]), opened.getsockopt(socket.SOL_SOCKET, kinds[1]))
            for opened in listener.sockets
        ]

    async def open_with(options: SocketOptions) -> list[tuple[int, int]]:
        loop = asyncio.get_running_loop()
        listener = Listener(loop, "A", Exchange.close, SharedBuffer(), max_frame_bytes=100, options=options)
        await listener.open("127.0.0.1", 0)
        await listener.serve()
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        while not listener.sockets:
            await asyncio.sleep(0.01)
        found = buffers(listener)
        writer.close()
        listener.close()
        return found

    async def run() -> None:
        given = socket_options(
            node_config(tmp_path, socket_send_buffer_bytes="20000", socket_receive_buffer_bytes="30000")
        )
        assert await open_with(given) == [(40000, 60000)]  # Linux doubles what it is asked for
        assert await open_with(socket_options(node_config(tmp_path))) == await open_with(SocketOptions())

    asyncio.run(asyncio.wait_for(run(), 10))


def test_the_limit_of_connections_changes_while_the_broker_runs_and_stays_over_a_restart(tmp_path: Path) -> None:
    async def run() -> None:
        node = await start_node(tmp_path)
        peer = await connect(node)
        assert await _is_served(node)
        await _set(peer, max_connections="1")
        assert not await _is_served(node)
        peer.close()
        await node.stop()
        node = await start_node(tmp_path)
        peer = await connect(node)
        await peer.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
        assert not await _is_served(node)
        await _set(peer, max_connections="2")
        assert await _is_served(node)
        peer.close()
        await node.stop()

    asyncio.run(asyncio.wait_for(run(), 30))


def test_compaction_goes_by_what_is_set_while_the_broker_runs(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("orders")
        await _set(
            peer,
            log_cleaner_backoff_ms="1234",
            log_cleaner_dedupe_buffer_size="2000000",
            log_cleaner_io_buffer_load_factor="0.5",
            producer_id_expiration_ms="4321",
        )
        cleaner = node.compaction.cleaner
        assert cleaner is not None
        assert (node.compaction.backoff_s, cleaner.buffer_bytes, cleaner.load_factor) == (1.234, 2_000_000, 0.5)
        partition = node.partitions.get("orders", 0)
        assert partition is not None
        assert partition.log.producers.expiration_ms == 4321

    run_with_node(tmp_path, scenario)
