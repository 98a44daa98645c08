"""Requests that are allowed and that hardly anyone sends: answered as Kafka 4.3.1 answers them."""

import asyncio
import struct
from pathlib import Path

import pytest

from mainstem.broker.app import Broker
from mainstem.protocol.checksum import crc32c
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.headers import encode_request_header
from mainstem.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from mainstem.protocol.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from mainstem.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from mainstem.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from mainstem.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from mainstem.protocol.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from mainstem.protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from mainstem.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from mainstem.protocol.messages.k43_elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from mainstem.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from mainstem.protocol.primitives import REQUEST_ELEMENTS_MAX, ZERO_UUID, uvarint
from tests.support.raw import Peer, batch_of, connect, fetch_request, produce_request, run_with_node, start_node


def test_the_first_batch_is_fetched_whatever_the_limits_say(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("orders")
        await peer.produce("orders", b"a")
        await peer.produce("orders", b"b")
        found = await peer.fetch("orders", 0, max_bytes=0)
        assert (found.error_code, len(found.records or b"")) == (0, len(batch_of(b"a")))

    run_with_node(tmp_path, scenario)


def test_a_negative_limit_is_an_error_where_there_is_something_to_read(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("orders")
        await peer.produce("orders", b"a")
        codes = [(await peer.fetch("orders", offset, max_bytes=-1)).error_code for offset in (0, 1, 2)]
        assert codes == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE]

    run_with_node(tmp_path, scenario)


def test_an_unknown_isolation_level_is_an_error(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("orders")
        fetched = await peer.ask(fetch_request("orders", 0, isolation_level=2), 12, FetchResponse)
        assert (fetched.error_code, fetched.responses[0].partitions[0].error_code) == (-1, -1)
        wanted = ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=-1)
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=7, topics=[ListOffsetsTopic(name="orders", partitions=[wanted])]
        )
        listed = await peer.ask(request, 5, ListOffsetsResponse)
        assert listed.topics[0].partitions[0].error_code == -1

    run_with_node(tmp_path, scenario)


def test_who_is_no_replica_does_not_fetch_as_one_and_an_unknown_epoch_is_out_of_range(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("orders")
        await peer.produce("orders", b"a")
        for replica in (1, 5):
            request = fetch_request("orders", 0)
            request.replica_id = replica
            answer = await peer.ask(request, 12, FetchResponse)
            assert answer.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        request = fetch_request("orders", 0)
        request.topics[0].partitions[0].last_fetched_epoch = 99
        answer = await peer.ask(request, 12, FetchResponse)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    run_with_node(tmp_path, scenario)


def test_whoever_asks_in_an_old_epoch_or_the_wrong_broker_is_told_who_leads(tmp_path: Path) -> None:
    async def run() -> None:
        node = await start_node(tmp_path)
        peer = await connect(node)
        await peer.ensure_topic("orders")
        peer.close()
        await node.stop()
        node = await start_node(tmp_path)  # which leads in a new epoch
        peer = await connect(node)
        leader = node.partitions.find("orders", 0).leader
        assert leader is not None
        address = node.advertised[0]
        for version in (13, 15, 16, 18):
            for replica, epoch, error in ((-1, 0, "FENCED_LEADER_EPOCH"), (5, -1, "NOT_LEADER_OR_FOLLOWER")):
                request = _by_id(node.image.topics["orders"].topic_id, 0, -1)
                if version < 15:
                    request.replica_id = replica
                else:
                    request.replica_state.replica_id = replica
                request.topics[0].partitions[0].current_leader_epoch = epoch
                answer = await peer.ask(request, version, FetchResponse)
                found = answer.responses[0].partitions[0]
                told = (found.current_leader.leader_id, found.current_leader.leader_epoch)
                nodes = [(one.node_id, one.host, one.port, one.rack) for one in answer.node_endpoints]
                assert ErrorCode(found.error_code).name == error
                if version < 16:
                    assert (told, nodes) == ((-1, -1), [])
                else:
                    where = [(1, address.host, address.port, None)]
                    assert (told, nodes) == ((1, leader.epoch), where if replica < 0 else [])
        answer = await peer.ask(_by_id(node.image.topics["orders"].topic_id, 0, -1), 16, FetchResponse)
        assert answer.responses[0].partitions[0].current_leader.leader_id == -1
        assert answer.node_endpoints == []
        peer.close()
        await node.stop()

    asyncio.run(run())


def _by_id(topic_id: bytes, session_id: int, session_epoch: int, max_wait_ms: int = 0) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20, current_leader_epoch=-1)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[FetchTopic(topic_id=topic_id, partitions=[partition])] if session_epoch <= 0 else [],
        forgotten_topics_data=[],
    )


def test_what_a_first_request_forgets_is_in_its_session_all_the_same(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("orders")
        topic_id = node.image.topics["orders"].topic_id
        request = _by_id(topic_id, 0, 0)
        request.forgotten_topics_data = [ForgottenTopic(topic_id=topic_id, partitions=[0])]
        first = await peer.ask(request, 13, FetchResponse)
        assert first.responses[0].partitions[0].error_code == 0
        await peer.produce("orders", b"a")
        again = await peer.ask(_by_id(topic_id, first.session_id, 1), 13, FetchResponse)
        assert again.responses[0].partitions[0].records

    run_with_node(tmp_path, scenario)


async def _delete(peer: Peer, topic: str) -> None:
    answer = await peer.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=5000), 5, DeleteTopicsResponse)
    assert answer.responses[0].error_code == 0


def test_a_fetch_learns_that_its_topic_was_deleted_and_that_another_took_its_name(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        async def code(request: FetchRequest) -> int:
            answer = await peer.ask(request, 15, FetchResponse)
            return answer.responses[0].partitions[0].error_code

        await peer.ensure_topic("orders")
        topic_id = node.image.topics["orders"].topic_id
        begun = await peer.ask(_by_id(topic_id, 0, 0), 15, FetchResponse)
        parked = await connect(node)
        parked.send(_by_id(topic_id, 0, -1, max_wait_ms=20_000), 15)
        while not node.partitions.find("orders", 0).watchers:
            await asyncio.sleep(0.01)
        await _delete(peer, "orders")
        answer = await asyncio.wait_for(parked.receive(FetchResponse, 15), 10)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await code(_by_id(topic_id, begun.session_id, 1)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await peer.ensure_topic("orders")
        assert await code(_by_id(topic_id, begun.session_id, 2)) == ErrorCode.INCONSISTENT_TOPIC_ID
        forgets = _by_id(topic_id, begun.session_id, 3)
        forgets.forgotten_topics_data = [ForgottenTopic(topic_id=topic_id, partitions=[0])]
        ended = await peer.ask(forgets, 15, FetchResponse)
        assert (ended.error_code, ended.session_id) == (0, 0)
        parked.close()

    run_with_node(tmp_path, scenario)


def test_of_a_partition_that_is_produced_to_twice_in_a_request_the_last_counts(tmp_path: Path) -> None:
    def data(*records: bytes) -> TopicProduceData:
        return TopicProduceData(
            name="orders", partition_data=[PartitionProduceData(index=0, records=each) for each in records]
        )

    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("orders")
        one, two, three = batch_of(b"a"), batch_of(b"b", b"c"), batch_of(b"d", b"e", b"f")
        request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data(one, two), data(three)])
        answer = await peer.ask(request, 9, ProduceResponse)
        told = [(each.name, [p.base_offset for p in each.partition_responses]) for each in answer.responses]
        assert told == [("orders", [0])]
        assert (await peer.produce("orders", b"g")).base_offset == 3

    run_with_node(tmp_path, scenario)


def with_length(batch: bytes, length: int) -> bytes:
    return batch[:8] + length.to_bytes(4, "big", signed=True) + batch[12:]


def with_magic(batch: bytes, magic: int) -> bytes:
    return batch[:16] + bytes([magic]) + batch[17:]


ONE, TWO = batch_of(b"one"), batch_of(b"two")
REST = len(ONE) - 12
RECORDS: dict[ErrorCode, dict[str, bytes]] = {
    ErrorCode.NONE: {
        **{f"{size} bytes behind it": ONE + b"\xff" * size for size in (1, 11)},
        **{f"{size} bytes of another": ONE + TWO[:size] for size in (12, 16, 17, 60, 61, len(TWO) - 1)},
        "another too short for its length": ONE + with_length(TWO, REST + 1),
        "another far too short for its length": ONE + with_length(TWO, 0x7FFFFFFF - 12),
        "16 bytes of another of a format that never was": ONE + with_magic(TWO, 3)[:16],
        "20 bytes of another of a format that was dropped": ONE + with_magic(TWO, 1)[:20],
        "17 bytes of another shorter than a header": ONE + with_length(TWO, 14)[:17],
    },
    ErrorCode.INVALID_RECORD: {
        **{f"{size} bytes of a batch": ONE[:size] for size in (0, 1, 11, 12, 16, 17, 60, 61, len(ONE) - 1)},
        "two batches": ONE + TWO,
        "two batches, the first damaged": ONE[:17] + bytes(4) + ONE[21:] + TWO,
        "another shorter than a header": ONE + with_length(TWO, 14),
        "another, half a header long": ONE + with_length(TWO, 15)[:40],
        "another shorter than it is": ONE + with_length(TWO, REST - 1),
        "too short for its length": with_length(ONE, REST + 1),
        "another of a format that was dropped": ONE + with_magic(TWO, 1),
        "a format that was dropped": with_magic(ONE, 0),
        "a format that was dropped, and another": with_magic(ONE, 1) + TWO,
    },
    ErrorCode.CORRUPT_MESSAGE: {
        **{f"{size} zeros behind it": ONE + bytes(size) for size in (12, 16, 17, 60, 61, 200)},
        **{f"a negative length in {size} bytes behind it": ONE + b"\xff" * size for size in (12, 16, 17, 60, 61)},
        **{f"another with length {length}": ONE + with_length(TWO, length) for length in (-(1 << 31), -1, 0, 13)},
        **{f"a length of {length}": with_length(ONE, length) for length in (-(1 << 31), -1, 0, 13, 14, 48)},
        "another that begins in it": with_length(ONE, REST - 1) + TWO,
        "another of a format that never was": ONE + with_magic(TWO, 3),
        "20 bytes of another of a format that never was": ONE + with_magic(TWO, 255)[:20],
        "a format that never was": with_magic(ONE, 3),
        "a format that never was, and another": with_magic(ONE, 255) + TWO,
        "a wrong CRC, and some bytes": ONE[:17] + bytes(4) + ONE[21:] + bytes(5),
    },
}


@pytest.mark.parametrize("code", RECORDS, ids=lambda code: code.name)
def test_records_that_are_not_one_batch_are_answered_as_kafka_answers_them(tmp_path: Path, code: ErrorCode) -> None:
    """Each as Kafka 4.3.1 was seen to; no record is blamed, and where the log starts is not told with a refusal."""

    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("orders")
        for count, (what, records) in enumerate(RECORDS[code].items()):
            answer = await peer.ask(produce_request("orders", records), 9, ProduceResponse)
            told = answer.responses[0].partition_responses[0]
            expected: tuple[int, int, int, list[object]] = (
                (code, count, 0, []) if code is ErrorCode.NONE else (code, -1, -1, [])
            )
            assert (told.error_code, told.base_offset, told.log_start_offset, told.record_errors) == expected, what
        read = await peer.ask(fetch_request("orders", 0), 12, FetchResponse)
        stored = len(RECORDS[code]) * len(ONE) if code is ErrorCode.NONE else 0
        assert len(read.responses[0].partitions[0].records or b"") == stored

    run_with_node(tmp_path, scenario)


def with_field(batch: bytes, layout: str, position: int, value: int) -> bytes:
    """With that in the header, and a checksum that is right."""
    changed = bytearray(batch)
    struct.pack_into(layout, changed, position, value)
    struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


REFUSED: dict[str, bytes] = {
    "a base offset of 5": with_field(ONE, ">q", 0, 5),
    **{f"a count of {count}": with_field(ONE, ">i", 57, count) for count in (-1, 0, 2)},
    **{f"a last offset delta of {delta}": with_field(ONE, ">i", 23, delta) for delta in (-1, 1)},
    "a control batch": with_field(ONE, ">h", 21, 0x20),
    "a negative sequence": batch_of(b"one", producer_id=7, producer_epoch=0, base_sequence=-1),
    "a record longer than the batch": with_field(ONE, ">b", 61, ONE[61] + 2),
    "a record shorter than it is": with_field(ONE, ">b", 61, ONE[61] - 2),
}


def test_no_record_is_blamed_for_a_batch_that_is_refused_as_a_whole(tmp_path: Path) -> None:
    """As Kafka 4.3.1 was seen to: where records are blamed, clients take the others for innocent."""

    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("orders")
        for what, records in REFUSED.items():
            answer = await peer.ask(produce_request("orders", records), 9, ProduceResponse)
            told = answer.responses[0].partition_responses[0]
            expected: tuple[int, int, int, list[object]] = (ErrorCode.INVALID_RECORD, -1, 0, [])
            assert (told.error_code, told.base_offset, told.log_start_offset, told.record_errors) == expected, what

    run_with_node(tmp_path, scenario)


def test_metadata_goes_by_ids_where_there_are_any_and_names_do_not_count_beside_them(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("orders")
        await peer.ensure_topic("users")
        orders = node.image.topics["orders"].topic_id

        async def ask(version: int, *topics: tuple[str | None, bytes]) -> MetadataResponse:
            wanted = [MetadataRequestTopic(name=name, topic_id=topic_id) for name, topic_id in topics]
            return await peer.ask(MetadataRequest(topics=wanted), version, MetadataResponse)

        for version in (12, 13):
            for asked in ([("orders", orders)], [("users", orders)], [("users", ZERO_UUID), (None, orders)]):
                answer = await ask(version, *asked)
                assert [(each.error_code, each.name) for each in answer.topics] == [(0, "orders")]
        for version in (10, 11):
            answer = await ask(version, ("users", ZERO_UUID), ("orders", orders))
            assert {each.error_code for each in answer.topics} == {ErrorCode.INVALID_REQUEST}
            assert (len(answer.topics), answer.brokers, answer.controller_id) == (2, [], -1)

    run_with_node(tmp_path, scenario)


def test_a_topic_is_not_tiered_without_tiering(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("orders")
        config = CreatableTopicConfig(name="remote.storage.enable", value="true")
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[config])
        created = await peer.ask(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
        assert created.topics[0].error_code == ErrorCode.INVALID_CONFIG
        change = AlterableConfig(name="remote.storage.enable", config_operation=0, value="true")
        resource = AlterConfigsResource(resource_type=2, resource_name="orders", configs=[change])
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        altered = await peer.ask(request, 1, IncrementalAlterConfigsResponse)
        assert altered.responses[0].error_code == ErrorCode.INVALID_CONFIG

    run_with_node(tmp_path, scenario)


def test_offsets_are_told_as_often_as_they_are_asked_for_and_no_election_is_no_error(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ask(FindCoordinatorRequest(key="g", key_type=0), 3, FindCoordinatorResponse)
        topics = [
            OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
            for name, indexes in (("a", [0, 0]), ("b", []), ("a", [1]))
        ]
        fetched = await peer.ask(OffsetFetchRequest(group_id="g", topics=topics), 7, OffsetFetchResponse)
        told = [(topic.name, [each.partition_index for each in topic.partitions]) for topic in fetched.topics]
        assert told == [("a", [0, 0]), ("b", []), ("a", [1])]
        request = ElectLeadersRequest(election_type=9, topic_partitions=[], timeout_ms=1000)
        assert (await peer.ask(request, 2, ElectLeadersResponse)).error_code == 0

    run_with_node(tmp_path, scenario)


def test_a_request_of_countless_elements_ends_its_connection_and_costs_others_nothing(tmp_path: Path) -> None:
    """A name of no letters takes two bytes to send and many times that to hold and to answer."""

    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("orders")
        for count, is_answered in ((REQUEST_ELEMENTS_MAX, True), (REQUEST_ELEMENTS_MAX + 1, False)):
            asking = await connect(node)
            names = [MetadataRequestTopic(name="")] * count
            asking.send(MetadataRequest(topics=names, allow_auto_topic_creation=False), 4)
            if is_answered:
                assert (await asking.receive(MetadataResponse, 4)).topics[0].error_code != 0
            else:
                assert await asking.reader.read() == b""
            asking.close()
        fetching = await connect(node)
        request = fetch_request("orders", 0)
        request.topics[0].partitions *= REQUEST_ELEMENTS_MAX
        fetching.send(request, 12)
        assert await fetching.reader.read() == b""
        producing = await connect(node)
        produced = produce_request("orders", b"")
        produced.topic_data[0].partition_data *= REQUEST_ELEMENTS_MAX
        producing.send(produced, 9)
        assert await producing.reader.read() == b""
        assert (await peer.produce("orders", b"a")).error_code == 0

    run_with_node(tmp_path, scenario)


def test_a_request_of_countless_tagged_fields_ends_its_connection_and_costs_others_nothing(tmp_path: Path) -> None:
    """Two bytes each, in the header or in the body, which nobody looks at but who must step over them."""
    tags = uvarint(REQUEST_ELEMENTS_MAX + 1) + bytes([5, 0]) * (REQUEST_ELEMENTS_MAX + 1)

    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("orders")
        frames = [encode_request_header(3, 12, 1, None)[:-1] + tags + bytes(10)]
        for key, version, body in (
            (0, 9, produce_request("orders", b"").encode(9)),
            (1, 12, fetch_request("orders", 0).encode(12)),
            (3, 12, MetadataRequest(topics=None).encode(12)),
        ):
            assert body[-1] == 0
            frames.append(encode_request_header(key, version, 1, None) + body[:-1] + tags)
        for frame in frames:
            asking = await connect(node)
            asking.writer.write(struct.pack(">i", len(frame)) + frame)
            assert await asking.reader.read() == b""
            asking.close()
        assert (await peer.produce("orders", b"a")).error_code == 0

    run_with_node(tmp_path, scenario)
