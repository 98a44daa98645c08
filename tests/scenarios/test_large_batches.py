"""Batches that must be opened or packed anew on their way in hold nobody up, and keep their order."""

import asyncio
import threading
from pathlib import Path

from mainstem.broker.app import Broker
from mainstem.broker.partitions import JUDGES
from mainstem.core.log.validation import RECORDS_AT_ONCE_MAX
from mainstem.protocol.batch import iterate_batches
from mainstem.protocol.builder import BatchBuilder
from mainstem.protocol.compression import GZIP, LZ4, NONE, ZSTD
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from mainstem.protocol.records import iterate_records
from tests.scenarios.test_background_work import create_topic
from tests.support.raw import Peer, batch_of, connect, produce_request, run_with_node

NOW_MS = 1_700_000_000_000


def batch(count: int, sequence: int, key: bytes | None = b"k", codec: int = LZ4) -> bytes:
    builder = BatchBuilder(codec=codec, producer_id=7, producer_epoch=0, base_sequence=sequence)
    for number in range(count):
        builder.append(NOW_MS, key, b"%06d" % (sequence + number))
    return builder.build()


def test_batches_behind_one_that_a_thread_judges_are_appended_in_the_order_they_came(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await create_topic(peer, "packed", compression_type="gzip")
        sequence = 0
        for count in (20_000, 1, 1, 30_000, 2):
            peer.send(produce_request("packed", batch(count, sequence)), 9)
            sequence += count
        other = await connect(node)
        expected = 0
        for count in (20_000, 1, 1, 30_000, 2):
            answer = (await peer.receive(ProduceResponse, 9)).responses[0].partition_responses[0]
            assert (answer.error_code, answer.base_offset) == (0, expected), answer
            expected += count
        offset = 0
        while offset < expected:
            found = await other.fetch("packed", offset, max_bytes=10_000_000)
            for each in iterate_batches(found.records or b"", 0, len(found.records or b"")):
                assert each.codec == GZIP
                assert [record.value for record in iterate_records(each)] == [
                    b"%06d" % number for number in range(each.base_offset, each.next_offset)
                ]
                offset = each.next_offset
        other.close()

    run_with_node(tmp_path, scenario)


def test_requests_that_wait_for_room_on_their_connection_keep_their_order_too(tmp_path: Path) -> None:
    """An answer makes room, and the request it lets in arrives while the batch before it is being finished."""

    async def scenario(node: Broker, peer: Peer) -> None:
        await create_topic(peer, "packed", compression_type="lz4")
        counts = [3000 if number % 2 else 1 for number in range(80)]
        sequence = 0
        for count in counts:
            peer.send(produce_request("packed", batch(count, sequence, codec=ZSTD)), 9)
            sequence += count
        expected = 0
        for count in counts:
            answer = (await peer.receive(ProduceResponse, 9)).responses[0].partition_responses[0]
            assert (answer.error_code, answer.base_offset) == (0, expected), answer
            expected += count

    run_with_node(tmp_path, scenario)


def test_others_are_served_while_a_large_batch_waits_for_the_few_threads_that_judge(tmp_path: Path) -> None:
    """They are few because a batch may expand to 32 MB, which are in memory until it is judged."""

    async def scenario(node: Broker, peer: Peer) -> None:
        await create_topic(peer, "packed", compression_type="zstd")
        await create_topic(peer, "plain")
        release = threading.Event()
        for _ in range(JUDGES):
            node.partitions.judges.submit(release.wait)
        peer.send(produce_request("packed", batch(50_000, 0)), 9)
        slow = asyncio.ensure_future(peer.receive(ProduceResponse, 9))
        other = await connect(node)
        try:
            assert (await other.produce("plain", b"a")).base_offset == 0
            # One for the same partition waits its turn, wherever it comes from.
            behind = asyncio.ensure_future(other.produce("packed", b"b"))
            third = await connect(node)
            assert (await third.produce("plain", b"c")).base_offset == 1
            assert not slow.done()
            assert not behind.done()
        finally:
            release.set()
        assert (await slow).responses[0].partition_responses[0].base_offset == 0
        assert (await behind).base_offset == 50_000
        other.close()
        third.close()

    run_with_node(tmp_path, scenario)


def test_others_are_served_between_the_many_batches_of_one_request(tmp_path: Path) -> None:
    """Each of them takes some milliseconds: what a request brings is not judged all at once because of that."""

    async def scenario(node: Broker, peer: Peer) -> None:
        await create_topic(peer, "plain")
        await peer.ensure_topic("wide")
        count = RECORDS_AT_ONCE_MAX // 2
        many, few = batch(count, 0, None, NONE), batch(1, count, None, NONE)
        release = threading.Event()
        for _ in range(JUDGES):
            node.partitions.judges.submit(release.wait)

        def to_all(records: bytes) -> ProduceRequest:
            partitions = [PartitionProduceData(index=index, records=records) for index in range(12)]
            topics = [TopicProduceData(name="wide", partition_data=partitions)]
            return ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics)

        peer.send(to_all(many), 9)
        other, third = await connect(node), await connect(node)
        logs = [node.partitions.find("wide", index).log for index in range(12)]
        try:
            while logs[0].log_end == 0:
                await asyncio.sleep(0.001)
            assert (await other.produce("plain", b"a")).base_offset == 0
            third.send(to_all(few), 9)
            while logs[0].log_end == count:
                await asyncio.sleep(0.001)
            ends = [log.log_end for log in logs]
            assert ends == [count + 1] * 3 + [0] * 9, "what is too much waits for a thread, and what comes behind it"
        finally:
            release.set()
        for sender, base_offset in ((peer, 0), (third, count)):
            answer = (await sender.receive(ProduceResponse, 9)).responses[0].partition_responses
            found = [(each.index, each.error_code, each.base_offset) for each in answer]
            assert found == [(index, 0, base_offset) for index in range(12)]
            sender.close()
        other.close()

    run_with_node(tmp_path, scenario, num_partitions="12")


def test_a_large_batch_that_is_refused_does_not_hold_up_what_follows(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await create_topic(peer, "table", cleanup_policy="compact")
        peer.send(produce_request("table", batch(50_000, 0, key=None, codec=ZSTD)), 9)
        request = ProduceRequest(
            acks=-1,
            timeout_ms=5000,
            topic_data=[
                TopicProduceData(
                    name="table",
                    partition_data=[
                        PartitionProduceData(index=0, records=batch(50_000, 0, codec=ZSTD)),
                        PartitionProduceData(index=9, records=batch_of(b"nowhere")),
                    ],
                )
            ],
        )
        peer.send(request, 9)
        refused = (await peer.receive(ProduceResponse, 9)).responses[0].partition_responses[0]
        assert refused.error_code == ErrorCode.INVALID_RECORD
        taken, missing = (await peer.receive(ProduceResponse, 9)).responses[0].partition_responses
        assert (taken.error_code, taken.base_offset) == (0, 0)
        assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run_with_node(tmp_path, scenario)


def test_acks_zero_is_as_silent_when_a_thread_judges(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await create_topic(peer, "packed", compression_type="gzip")
        peer.send(produce_request("packed", batch(50_000, 0), acks=0), 9)
        assert (await peer.produce("packed", b"after")).base_offset == 50_000

    run_with_node(tmp_path, scenario)
