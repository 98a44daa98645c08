"""Who leads a partition now, and where: told to a client that asked in an old epoch, or a broker that does not lead it,
so that it need not ask for metadata first (KIP-951).
"""

from typing import TYPE_CHECKING

from mainstem.protocol.produce import NodeEndpoint

if TYPE_CHECKING:
    from mainstem.broker.app import Broker


class CurrentLeaders:
    """Collects what one answer tells: leaders by partition, and each of their addresses once."""

    __slots__ = ("_broker", "_endpoints", "_listener_name")

    def __init__(self, broker: "Broker", listener_name: str) -> None:
        self._broker = broker
        self._listener_name = listener_name
        self._endpoints: dict[int, NodeEndpoint] = {}

    def find(self, topic: str, index: int) -> tuple[int, int] | None:
        """The leader of a partition and its epoch; none of a partition that is not there."""
        state = self._broker.image.partition(topic, index)
        if state is None:
            return None
        if state.leader not in self._endpoints:
            for node_id, host, port, rack in self._broker.nodes(self._listener_name):
                if node_id == state.leader:
                    self._endpoints[node_id] = NodeEndpoint(node_id, host, port, rack)
        return state.leader, state.leader_epoch

    @property
    def endpoints(self) -> list[NodeEndpoint]:
        return list(self._endpoints.values())
