"""Connections of one purpose: a lane beside those that a cluster shares among all who ask.

A broker answers the requests of a connection in their order, and some take long on purpose: a fetch waits for records,
JoinGroup for the other members. Whoever sends such requests has a lane, so that nobody else waits behind them.
"""

from __future__ import annotations

import asyncio
from random import Random

from mainstem.client.backoff import Backoff
from mainstem.client.cluster import Cluster
from mainstem.client.connection import RECEIVE_BYTES, BrokerConnection
from mainstem.client.errors import IllegalStateError, KafkaError, NoBrokersAvailableError
from mainstem.protocol.framing import SharedBuffer


class Lane:
    """Asks a cluster where brokers are, and connects to them itself."""

    def __init__(self, cluster: Cluster, name: str, rng: Random) -> None:
        self._cluster = cluster
        self._name = name
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._shared = SharedBuffer(RECEIVE_BYTES)
        self._connections: dict[int, BrokerConnection] = {}
        self._connecting: dict[int, asyncio.Task[BrokerConnection]] = {}
        self._pauses: dict[int, Backoff] = {}
        self._blocked_until: dict[int, float] = {}

    def connected(self, node_id: int) -> BrokerConnection | None:
        """The connection to a node, if there is one that still leads to where the node is."""
        found = self._connections.get(node_id)
        if found is None:
            return None
        broker = self._cluster.cache.brokers.get(node_id)
        if broker is not None and (broker.host, broker.port) != (found.host, found.port):
            found.close()
        if found.is_open:
            return found
        self._connections.pop(node_id, None)
        return None

    async def node(self, node_id: int) -> BrokerConnection:
        """The connection to a node, opened if need be, after a pause where it failed before."""
        found = self.connected(node_id)
        if found is not None:
            return found
        if self._cluster.is_closed:
            raise IllegalStateError("the client is closed")
        task = self._connecting.get(node_id)
        if task is None:
            task = self._cluster.spawn(self._connect(node_id), f"connect to {node_id} ({self._name})")
            self._connecting[node_id] = task
            task.add_done_callback(lambda done: self._settled(node_id, done))
        return await self._cluster.shared(task)

    def _settled(self, node_id: int, done: asyncio.Task[BrokerConnection]) -> None:
        self._connecting.pop(node_id, None)
        if not done.cancelled():
            done.exception()  # whoever waited for it may be gone

    async def _connect(self, node_id: int) -> BrokerConnection:
        await asyncio.sleep(max(0.0, self._blocked_until.get(node_id, 0.0) - self._loop.time()))
        broker = self._cluster.cache.brokers.get(node_id)
        if broker is None:
            self._cluster.request_update()
            raise NoBrokersAvailableError("the cluster has no such broker at this moment", broker=str(node_id))
        options = self._cluster.options
        pauses = self._pauses.get(node_id)
        if pauses is None:
            pauses = Backoff(options.reconnect_backoff_ms, options.reconnect_backoff_max_ms, self._rng)
            self._pauses[node_id] = pauses
        try:
            connection = await BrokerConnection.open(
                broker.host,
                broker.port,
                options.client_id,
                node_id=node_id,
                timeout_s=options.request_timeout_ms / 1000,
                setup_timeout_s=options.socket_connection_setup_timeout_ms / 1000,
                shared=self._shared,
                socket_buffers=(options.send_buffer_bytes, options.receive_buffer_bytes),
                on_lost=self._lost,
            )
        except KafkaError:
            self._blocked_until[node_id] = self._loop.time() + pauses.next_s()
            self._cluster.request_update()
            raise
        pauses.reset()
        self._connections[node_id] = connection
        return connection

    def _lost(self, connection: BrokerConnection) -> None:
        if self._connections.get(connection.node_id) is connection:
            del self._connections[connection.node_id]
            if not self._cluster.is_closed:
                self._cluster.request_update()

    def close(self) -> None:
        for connection in [*self._connections.values()]:
            connection.close()
        self._connections.clear()
