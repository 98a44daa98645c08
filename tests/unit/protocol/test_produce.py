"""Produce by hand says what its declaration says, in every version, and copies no records."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.protocol import produce
from mainstem.protocol.errors import RemoteError
from mainstem.protocol.headers import encode_request_header, read_request_header
from mainstem.protocol.messages import k00_produce as declared
from mainstem.protocol.rpc import encode_request, encode_response
from tests.unit.protocol.message_strategies import structs

VERSIONS = range(3, 14)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_reads_what_the_declaration_writes(version: int, data: st.DataObject) -> None:
    message = data.draw(structs(declared.ProduceRequest, version))
    frame = encode_request(message, version, 7, "someone")[4:]
    header = read_request_header(frame)
    request = produce.read_produce_request(frame, header.body_at, version)
    assert (request.transactional_id, request.acks, request.timeout_ms) == (
        message.transactional_id,
        message.acks,
        message.timeout_ms,
    )
    found = [
        (
            topic.name,
            topic.topic_id,
            [
                (p.index, None if p.records_start < 0 else frame[p.records_start : p.records_end])
                for p in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    assert found == [(t.name, t.topic_id, [(p.index, p.records) for p in t.partition_data]) for t in message.topic_data]


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_client_writes_what_the_declaration_writes(version: int, data: st.DataObject) -> None:
    message = data.draw(structs(declared.ProduceRequest, version))
    topics = []
    for topic in message.topic_data:
        partitions = []
        for partition in topic.partition_data:
            partition.records = partition.records or b""
            middle = len(partition.records) // 2
            halves: list[produce.Buffer] = [partition.records[:middle], memoryview(partition.records)[middle:]]
            partitions.append(produce.PartitionBatches(partition.index, halves))
        topics.append(produce.TopicBatches(topic.name, topic.topic_id, partitions))
    pieces = produce.encode_produce_request(
        version, 7, None, message.transactional_id, message.acks, message.timeout_ms, topics
    )
    assert b"".join(pieces) == encode_request(message, version, 7, None)


def test_client_hands_its_batches_on_as_they_are() -> None:
    batch = bytes(1000)
    topics = [produce.TopicBatches("orders", bytes(16), [produce.PartitionBatches(0, [batch])])]
    pieces = produce.encode_produce_request(9, 1, "me", None, -1, 30_000, topics)
    assert any(piece is batch for piece in pieces)
    assert int.from_bytes(pieces[0][:4]) == sum(map(len, pieces)) - 4


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_response_is_written_and_read_as_declared(version: int, data: st.DataObject) -> None:
    message = data.draw(structs(declared.ProduceResponse, version))
    frame = encode_response(message, version, 9)
    correlation_id, response = produce.read_produce_response(frame[4:], version)
    assert correlation_id == 9
    assert declared_from(response) == message
    assert produce.encode_produce_response(response, version, 9) == frame


def declared_from(response: produce.ProduceResponse) -> declared.ProduceResponse:
    return declared.ProduceResponse(
        throttle_time_ms=response.throttle_time_ms,
        node_endpoints=[
            declared.NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            for node in response.node_endpoints or []
        ],
        responses=[
            declared.TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    declared.PartitionProduceResponse(
                        index=p.index,
                        error_code=p.error_code,
                        base_offset=p.base_offset,
                        log_append_time_ms=p.log_append_time_ms,
                        log_start_offset=p.log_start_offset,
                        error_message=p.error_message,
                        record_errors=[
                            declared.BatchIndexAndErrorMessage(
                                batch_index=error.batch_index, batch_index_error_message=error.message
                            )
                            for error in p.record_errors or []
                        ],
                        current_leader=declared.LeaderIdAndEpoch(leader_id=p.leader_id, leader_epoch=p.leader_epoch),
                    )
                    for p in topic.partitions
                ],
            )
            for topic in response.topics
        ],
    )


def test_unknown_tags_are_skipped() -> None:
    partition = declared.PartitionProduceData(index=3, records=b"batch")
    topic = declared.TopicProduceData(name="orders", partition_data=[partition])
    message = declared.ProduceRequest(acks=1, timeout_ms=5, topic_data=[topic])
    partition.unknown_tags = topic.unknown_tags = message.unknown_tags = {5: b"x" * 200, 9000: b""}
    frame = encode_request_header(0, 9, 1, None) + message.encode(9)
    request = produce.read_produce_request(frame, read_request_header(frame).body_at, 9)
    found = request.topics[0].partitions[0]
    assert frame[found.records_start : found.records_end] == b"batch"


@pytest.mark.parametrize("version", [3, 9, 13])
def test_every_cut_of_a_request_is_refused(version: int) -> None:
    topic = declared.TopicProduceData(
        name="orders" if version < 13 else "",
        topic_id=b"0123456789abcdef" if version >= 13 else bytes(16),
        partition_data=[declared.PartitionProduceData(index=3, records=b"batch")],
    )
    body = declared.ProduceRequest(transactional_id="t", acks=1, timeout_ms=5, topic_data=[topic]).encode(version)
    for length in range(len(body)):
        with pytest.raises(RemoteError):
            produce.read_produce_request(body[:length], 0, version)
