"""Requests that are allowed and that hardly anyone sends: answered as Kafka answers them."""

from pathlib import Path

from mainstem.broker.app import Broker
from tests.support.raw import Peer, batch_of, run_with_node


def test_the_first_batch_is_fetched_whatever_the_limits_say(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("orders")
        await peer.produce("orders", b"a")
        await peer.produce("orders", b"b")
        found = await peer.fetch("orders", 0, max_bytes=0)
        assert (found.error_code, len(found.records or b"")) == (0, len(batch_of(b"a")))

    run_with_node(tmp_path, scenario)
