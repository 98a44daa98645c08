"""What coordinators keep in internal topics is theirs: no client writes there, so none can keep one from loading."""

import asyncio
from pathlib import Path

import pytest

from mainstem.broker.app import Broker
from mainstem.protocol.builder import BatchBuilder
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k00_produce import ProduceRequest, ProduceResponse
from mainstem.protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from mainstem.protocol.rpc import encode_request
from tests.support.raw import Peer, batch_of, connect, produce_request, run_with_node, start_node
from tests.support.transactions import TIMESTAMP, TxnClient, find_group

INTERNAL = ("__transaction_state", "__consumer_offsets")


async def produce(peer: Peer, request: ProduceRequest, version: int, client_id: str = "test") -> list[ErrorCode]:
    peer.writer.write(encode_request(request, version, 1, client_id))
    answer = await peer.receive(ProduceResponse, version)
    return [ErrorCode(one.error_code) for topic in answer.responses for one in topic.partition_responses]


async def add(client: TxnClient, version: int, *topics: tuple[str, int]) -> dict[str, ErrorCode]:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=client.transactional_id,
        v3_and_below_producer_id=client.producer_id,
        v3_and_below_producer_epoch=client.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=[index]) for name, index in topics],
    )
    answer = await client.peer.ask(request, version, AddPartitionsToTxnResponse)
    return {
        one.name: ErrorCode(one.results_by_partition[0].partition_error_code)
        for one in answer.results_by_topic_v3_and_below
    }


@pytest.mark.parametrize("version", [3, 9, 12])
def test_no_client_writes_to_an_internal_topic(tmp_path: Path, version: int) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("t")
        await find_group(peer, "g")
        await TxnClient(peer, "id").begin()
        for topic in INTERNAL:
            codes = await produce(peer, produce_request(topic, batch_of(b"x")), version)
            assert codes == [ErrorCode.INVALID_TOPIC_EXCEPTION]
        both = produce_request(INTERNAL[0], batch_of(b"x"))
        both.topic_data += produce_request("t", batch_of(b"x")).topic_data
        assert await produce(peer, both, version) == [ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.NONE]

    run_with_node(tmp_path, scenario)


def test_a_transaction_does_not_reach_into_an_internal_topic(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await find_group(peer, "g")
        for topic in INTERNAL:
            client = TxnClient(peer, f"two-{topic}")
            await client.begin()
            assert await client.send(topic, b"x") is ErrorCode.INVALID_TOPIC_EXCEPTION
            assert (await client.describe()).transaction_state == "Empty"
            older = TxnClient(peer, f"one-{topic}", tv2=False)
            await older.begin()
            assert await older.send(topic, b"x") is ErrorCode.TRANSACTION_ABORTABLE

    run_with_node(tmp_path, scenario)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_client_cannot_add_an_internal_topic_to_its_transaction(tmp_path: Path, version: int) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("t")
        await find_group(peer, "g")
        client = TxnClient(peer, "id", tv2=False)
        await client.begin()
        for topic in INTERNAL:
            assert await add(client, version, ("t", 0), (topic, 0), ("nowhere", 0)) == {
                "t": ErrorCode.OPERATION_NOT_ATTEMPTED,
                topic: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            }
            assert await add(client, version, (topic, 999)) == {topic: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        assert (await client.describe()).transaction_state == "Empty"
        assert await add(client, version, ("t", 0)) == {"t": ErrorCode.NONE}

    run_with_node(tmp_path, scenario)


def test_a_coordinator_leaves_out_what_only_a_later_version_can_read(tmp_path: Path) -> None:
    """Who calls itself Kafka's own admin client may write there. Records of an unknown type or version are left out."""

    async def run() -> None:
        node = await start_node(tmp_path, transaction_state_log_num_partitions="1")
        peer = await connect(node)
        client = TxnClient(peer, "id")
        await client.begin()
        for key, value in ((b"\0\x09\0\x02no", b"x"), (b"\0\0\0\x02id", b"\0\x09later")):
            request = produce_request(INTERNAL[0], batch_with(key, value))
            assert await produce(peer, request, 9, "__admin_client") == [ErrorCode.NONE]
        peer.close()
        await node.stop()
        node = await start_node(tmp_path, transaction_state_log_num_partitions="1")
        peer = await connect(node)
        later = TxnClient(peer, "id")
        await later.begin()
        assert (later.producer_id, later.epoch) == (client.producer_id, client.epoch + 1)
        peer.close()
        await node.stop()

    asyncio.run(run())


def batch_with(key: bytes, value: bytes) -> bytes:
    builder = BatchBuilder()
    builder.append(TIMESTAMP, key, value)
    return builder.build()
