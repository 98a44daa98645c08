"""The connections of a client, and how they end."""

import asyncio
import socket
from random import Random

import pytest

from mainstem.client.cluster import Cluster
from mainstem.client.errors import IllegalStateError, KafkaError
from mainstem.client.options import AdminOptions

BOOTSTRAP = -1
TIME_S_MAX = 10


def test_a_client_closes_while_one_of_its_tasks_waits_for_a_connection_that_others_wait_for() -> None:
    """Both are cancelled then. The one that waits used to be told of the end of the other, as of an error. A consumer's
    heartbeats go on after errors: they went on for ever, and `close` waited for them."""

    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = f"127.0.0.1:{server.getsockname()[1]}"
        options = AdminOptions(bootstrap_servers=address, reconnect_backoff_ms=5000, reconnect_backoff_max_ms=5000)
        cluster = Cluster(options, Random(1))
        with pytest.raises(KafkaError):
            await cluster.node(BOOTSTRAP)

        async def beats() -> None:
            while True:
                try:
                    await cluster.node(BOOTSTRAP)
                except KafkaError:
                    await asyncio.sleep(0.01)

        first = asyncio.ensure_future(cluster.node(BOOTSTRAP))
        await asyncio.sleep(0)
        cluster.spawn(beats(), "beats")
        await asyncio.sleep(0.05)
        await cluster.close()
        with pytest.raises(IllegalStateError, match="the client is closed"):
            await first

    asyncio.run(asyncio.wait_for(story(), TIME_S_MAX))
