"""What leaders do while they wait for the word of a transaction's coordinator."""

import asyncio
from pathlib import Path

import pytest

from mainstem.broker.app import Broker
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k00_produce import ProduceResponse
from mainstem.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from mainstem.protocol.messages.k28_txn_offset_commit import TxnOffsetCommitResponse
from mainstem.protocol.schema import Message
from tests.support.raw import Peer, connect, run_with_node
from tests.support.transactions import TxnClient, committed_offset, find_group, read_committed

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


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_an_offset_whose_topic_is_deleted_while_the_coordinator_is_asked_is_not_staged(
    tmp_path: Path, is_made_anew: bool
) -> None:
    """It came after the deletion had taken back all that was staged, and went with the transaction (seed 100003295)."""

    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("t")
        await find_group(peer, "g")
        client, other = TxnClient(peer, "id"), await connect(node)
        await client.begin()
        send, asked, is_gone = node.peers.send, asyncio.Event(), asyncio.Event()

        async def slow(node_id: int, message: Message, version: int) -> Message:
            asked.set()
            await is_gone.wait()
            return await send(node_id, message, version)

        node.peers.send = slow  # type: ignore[method-assign]
        peer.send(client.offset_request("g", [("t", [0])], 5), 5)
        await asked.wait()
        node.peers.send = send  # type: ignore[method-assign]
        gone = DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000)
        assert (await other.ask(gone, 5, DeleteTopicsResponse)).responses[0].error_code == 0
        if is_made_anew:
            await other.ensure_topic("t")
        is_gone.set()
        answer = await peer.receive(TxnOffsetCommitResponse, 5)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await client.end_and_wait()
        await peer.ensure_topic("t")
        assert await committed_offset(peer, "g", "t") == -1
        other.close()

    run_with_node(tmp_path, scenario)
