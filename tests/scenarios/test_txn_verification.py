"""What leaders do while they wait for the word of a transaction's coordinator."""

import asyncio
from pathlib import Path

from mainstem.broker.app import Broker
from mainstem.protocol.messages.k00_produce import ProduceResponse
from mainstem.protocol.schema import Message
from tests.support.raw import Peer, connect, run_with_node
from tests.support.transactions import TxnClient, read_committed

TURNS = 200
"""Of the loop: enough for a request that waits for nobody to be answered."""


def test_requests_on_another_connection_wait_behind_the_first_of_a_transaction(tmp_path: Path) -> None:
    """Whose word of the coordinator takes longer than theirs would."""

    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("t")
        client, other = TxnClient(peer, "id"), await connect(node)
        await client.begin()
        send, asked = node.peers.send, 0

        async def slow_at_first(node_id: int, message: Message, version: int) -> Message:
            nonlocal asked
            asked += 1
            if asked == 1:
                while not is_second_there:
                    await asyncio.sleep(0)
                for _ in range(TURNS):
                    await asyncio.sleep(0)
            return await send(node_id, message, version)

        is_second_there = False
        node.peers.send = slow_at_first  # type: ignore[method-assign]
        peer.send(client.produce_request("t", b"1"), 12)
        while not asked:
            await asyncio.sleep(0)
        first = node.verification._waiting[client.producer_id]
        other.send(client.produce_request("t", b"2"), 12)
        while node.verification._waiting.get(client.producer_id) is first:
            await asyncio.sleep(0)
        is_second_there = True
        for each in (peer, other):
            answer = await each.receive(ProduceResponse, 12)
            assert answer.responses[0].partition_responses[0].error_code == 0
        await client.end_and_wait()
        assert await read_committed(peer, "t") == [b"1", b"2"]
        other.close()

    run_with_node(tmp_path, scenario)
