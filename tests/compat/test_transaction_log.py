"""Transactions that one system began are ended by the other: each opens the other's directory, after a clean stop and
after kill -9, and knows what is open, what was ended and how, on `__transaction_state` as on partitions and groups."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mainstem.protocol.errors import ErrorCode
from tests.support.kafka import Kafka, KafkaNode
from tests.support.node import Node
from tests.support.raw import Peer
from tests.support.transactions import TxnClient, committed_offset, find_group, latest, read_committed

pytestmark = [pytest.mark.kafka, pytest.mark.campaign, pytest.mark.timeout(300)]

SETTINGS = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
AnyNode = KafkaNode | Node


async def until(step: Callable[[], Awaitable[bool]]) -> None:
    """Coordinators are loaded, and topics made, a little after a node has started."""
    for _ in range(300):
        if await step():
            return
        await asyncio.sleep(0.1)
    assert await step()


class Clients:
    """One of each transaction version for each way that a transaction can be when a node goes."""

    def __init__(self) -> None:
        self.all: dict[str, TxnClient] = {}
        self.ended: dict[str, TxnClient] = {}
        """Who asked for the ends, as they were then."""

    async def connect(self, node: AnyNode) -> Peer:
        peer = Peer(*await asyncio.open_connection("127.0.0.1", node.port))
        for client in (*self.all.values(), *self.ended.values()):
            client.peer = peer
        return peer

    async def write(self, peer: Peer) -> None:
        async def has_topic() -> bool:
            try:
                await peer.ensure_topic("t")
                await find_group(peer, "g")
            except AssertionError:
                return False
            return True

        await until(has_topic)
        for tv2 in (True, False):
            for name in ("committed", "aborted", "open", "left"):
                client = self.all[f"{name}-{tv2}"] = TxnClient(peer, f"{name}-{tv2}", tv2)
                await until(lambda client=client: _began(client))  # type: ignore[misc]
                await client.write("t", client.transactional_id.encode())
                assert await client.commit_offset(client.transactional_id, "t", 7) is ErrorCode.NONE
                if name in ("committed", "aborted"):
                    self.ended[client.transactional_id] = client.copy()
                    assert await client.end_and_wait(commit=name == "committed") is ErrorCode.NONE

    async def states(self) -> dict[str, Any]:
        async def loaded() -> bool:
            return all([(await client.describe()).error_code == 0 for client in self.all.values()])

        await until(loaded)
        found = {}
        for name, client in self.all.items():
            told = await client.describe()
            topics = sorted((one.topic, sorted(one.partitions)) for one in told.topics)
            identity = (told.producer_id, told.producer_epoch, told.transaction_timeout_ms)
            found[name] = (told.transaction_state, *identity, told.transaction_start_time_ms, topics)
        return found


async def _began(client: TxnClient) -> bool:
    try:
        await client.begin()
    except AssertionError:
        return False
    return True


async def _offsets(peer: Peer, clients: Clients) -> dict[str, int | ErrorCode]:
    async def loaded() -> bool:
        return await committed_offset(peer, "g", "t") is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    await until(loaded)
    return {name: await committed_offset(peer, name, "t", require_stable=True) for name in clients.all}


def _go(node: AnyNode, clean: bool) -> None:
    if clean:
        node.stop()
    else:
        node.kill()


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("writer", ["ours", "kafkas"])
def test_each_ends_what_the_other_began(kafka: Kafka, tmp_path: Path, writer: str, clean: bool) -> None:
    ours, theirs = Node(tmp_path, SETTINGS), KafkaNode(kafka, tmp_path, SETTINGS)
    nodes: list[AnyNode] = [ours, theirs]
    first, second = nodes if writer == "ours" else nodes[::-1]
    clients = Clients()

    async def begin() -> dict[str, Any]:
        peer = await clients.connect(first)
        await clients.write(peer)
        states = await clients.states()
        peer.close()
        return states

    async def go_on(before: dict[str, Any]) -> None:
        peer = await clients.connect(second)
        assert await clients.states() == before
        assert await read_committed(peer, "t", is_sorted=second is ours) == [b"committed-True"]
        assert await latest(peer, "t", 1) < await latest(peer, "t", 0)
        offsets = await _offsets(peer, clients)
        for name, offset in offsets.items():
            kind = name.partition("-")[0]
            assert offset == {"committed": 7, "aborted": -1}.get(kind, ErrorCode.UNSTABLE_OFFSET_COMMIT), name
        for name, client in clients.ended.items():
            is_committed = name.startswith("committed")
            assert await client.copy().end(commit=is_committed) is ErrorCode.NONE, "a repeat"
            assert await client.copy().end(commit=not is_committed) is ErrorCode.INVALID_TXN_STATE
            late = ErrorCode.INVALID_PRODUCER_EPOCH if client.tv2 else ErrorCode.TRANSACTION_ABORTABLE
            assert await client.copy().send("t", b"late") is late
        for name, client in clients.all.items():
            if name.startswith("open"):
                assert await client.send("t", b"more") is ErrorCode.NONE
                assert await client.end_and_wait(commit=client.tv2) is ErrorCode.NONE
            elif name.startswith("left"):
                newcomer = clients.all[name] = TxnClient(peer, name, client.tv2)
                assert (await newcomer.init()).error_code == 0
                assert newcomer.producer_id == client.producer_id
                assert await client.end() is ErrorCode.PRODUCER_FENCED
        await check_end(peer, second)
        peer.close()

    async def check_end(peer: Peer, node: AnyNode) -> None:
        values = [b"committed-True", b"open-True", b"committed-False", b"more"]
        assert await read_committed(peer, "t", is_sorted=node is ours) == values
        assert await latest(peer, "t", 1) == await latest(peer, "t", 0)
        offsets = await _offsets(peer, clients)
        assert offsets == {
            name: 7 if name in ("committed-True", "committed-False", "open-True") else -1 for name in offsets
        }

    async def come_back() -> None:
        peer = await clients.connect(first)
        states = await clients.states()
        assert {name: state[0] for name, state in states.items()} == {
            name: {"committed": "CompleteCommit", "aborted": "CompleteAbort", "left": "Empty"}.get(
                name.partition("-")[0], "CompleteCommit" if name == "open-True" else "CompleteAbort"
            )
            for name in states
        }
        await check_end(peer, first)
        client = clients.all["open-True"]
        await client.write("t", b"last")
        assert await client.end_and_wait() is ErrorCode.NONE
        assert (await read_committed(peer, "t", is_sorted=first is ours))[-1] == b"last"
        peer.close()

    try:
        first.start()
        before = asyncio.run(asyncio.wait_for(begin(), 60))
        _go(first, clean)
        second.start()
        asyncio.run(asyncio.wait_for(go_on(before), 60))
        _go(second, clean)
        first.start()
        asyncio.run(asyncio.wait_for(come_back(), 60))
    finally:
        for node in nodes:
            node.kill()
