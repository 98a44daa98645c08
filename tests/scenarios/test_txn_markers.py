"""WriteTxnMarkers as leaders answer it: what is not committed in time, and what their group coordinator refuses."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mainstem.broker.apis import k27_write_txn_markers
from mainstem.broker.app import Broker
from mainstem.broker.topic_creation import GROUP_OFFSETS
from mainstem.core.txn.states import FENCE
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.support.raw import Peer, run_with_node
from tests.support.transactions import find_group


async def write_marker(peer: Peer, topic: str) -> ErrorCode:
    marker = WritableTxnMarker(
        producer_id=7,
        producer_epoch=0,
        transaction_result=True,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
        coordinator_epoch=0,
    )
    answer = await peer.ask(WriteTxnMarkersRequest(markers=[marker]), 1, WriteTxnMarkersResponse)
    return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)


def marker_of(version: int) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=7,
        producer_epoch=0,
        transaction_result=True,
        topics=[],
        coordinator_epoch=0,
        transaction_version=version,
    )


def test_a_marker_that_is_not_committed_in_time_is_not_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its transaction would be complete, and what ends it could still be lost."""

    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("t")

        def uncommitted(*_: object) -> "asyncio.Future[ErrorCode]":
            return node.loop.create_future()

        monkeypatch.setattr(k27_write_txn_markers, "_write", uncommitted)
        assert await write_marker(peer, "t") is ErrorCode.REQUEST_TIMED_OUT

    run_with_node(tmp_path, scenario, request_timeout_ms="20")


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_marker_is_answered_for_when_it_is_committed(code: ErrorCode) -> None:
    """One broker commits at once; where others must have it too, it waits for them."""
    waiting: list[tuple[int, Callable[[ErrorCode], None]]] = []
    partition = SimpleNamespace(
        append=lambda *_, **__: SimpleNamespace(last_offset=4),
        notify=lambda: None,
        when_committed=lambda end, callback: waiting.append((end, callback)),
    )
    loop = asyncio.new_event_loop()
    broker: Any = SimpleNamespace(loop=loop, partitions=SimpleNamespace(find=lambda *_: partition))
    marker = WritableTxnMarker(producer_id=7, producer_epoch=0, transaction_result=True, topics=[], coordinator_epoch=0)
    written = k27_write_txn_markers._write(broker, "t", 0, b"", marker)
    assert not written.done()
    (end, callback) = waiting.pop()
    assert end == 5
    callback(code)
    assert written.result() is code
    loop.close()


@pytest.mark.parametrize("topic", ["t", GROUP_OFFSETS])
@pytest.mark.parametrize("version", [0, 2])
def test_the_version_of_a_transaction_reaches_the_log_that_judges_its_marker(topic: str, version: int) -> None:
    """Version 2's late markers are told from its own by it (KIP-890)."""
    told: list[int] = []

    def append(*_: object, transaction_version: int = 0, **__: object) -> SimpleNamespace:
        told.append(transaction_version)
        return SimpleNamespace(last_offset=4)

    def write_marker(index: int, batch: bytes, transaction_version: int) -> int:
        told.append(transaction_version)
        return 5

    partition = SimpleNamespace(append=append, notify=lambda: None, when_committed=lambda *_: None)
    loop = asyncio.new_event_loop()
    broker: Any = SimpleNamespace(
        loop=loop,
        partitions=SimpleNamespace(find=lambda *_: partition),
        groups=SimpleNamespace(write_marker=write_marker),
    )
    k27_write_txn_markers._write(broker, topic, 0, b"", marker_of(version))
    assert told == [version]
    loop.close()


def test_who_does_not_lead_fences_nobody_and_says_so() -> None:
    """The leader would take what the fence is to keep out (T4)."""
    fenced: list[tuple[int, int]] = []

    def check_leader() -> None:
        raise RemoteError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another does")

    partition = SimpleNamespace(
        check_leader=check_leader, log=SimpleNamespace(fence=lambda *producer: fenced.append(producer))
    )
    loop = asyncio.new_event_loop()
    broker: Any = SimpleNamespace(loop=loop, partitions=SimpleNamespace(find=lambda *_: partition))
    written = k27_write_txn_markers._write(broker, "t", 0, b"", marker_of(FENCE))
    assert written.result() is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not fenced
    loop.close()


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR])
def test_a_group_coordinator_that_does_not_serve_is_no_leader_to_whoever_sends_markers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await find_group(peer, "g")

        def refuses(*_: object) -> int:
            raise RemoteError(code, "not now")

        monkeypatch.setattr(node.groups, "write_marker", refuses)
        assert await write_marker(peer, GROUP_OFFSETS) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    run_with_node(tmp_path, scenario)
