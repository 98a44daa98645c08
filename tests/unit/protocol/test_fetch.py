"""Fetch by hand says what its declaration says, in every version, and leaves the records where they are."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.protocol import fetch
from mainstem.protocol.errors import RemoteError
from mainstem.protocol.headers import read_request_header
from mainstem.protocol.messages import k01_fetch as declared
from mainstem.protocol.rpc import encode_request, encode_response
from tests.unit.protocol.message_strategies import structs

VERSIONS = range(4, 19)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_request_is_read_and_written_as_declared(version: int, data: st.DataObject) -> None:
    message = data.draw(structs(declared.FetchRequest, version))
    frame = encode_request(message, version, 7, "someone")
    header = read_request_header(frame[4:])
    request = fetch.read_fetch_request(frame[4:], header.body_at, version)
    assert declared_request(request, version) == message
    assert fetch.encode_fetch_request(request, version, 7, "someone") == frame


def declared_request(request: fetch.FetchRequest, version: int) -> declared.FetchRequest:
    message = declared.FetchRequest(
        cluster_id=request.cluster_id,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        isolation_level=request.isolation_level,
        session_id=request.session_id,
        session_epoch=request.session_epoch,
        rack_id=request.rack_id,
        topics=[
            declared.FetchTopic(
                topic=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    declared.FetchPartition(
                        partition=p.partition,
                        current_leader_epoch=p.current_leader_epoch,
                        fetch_offset=p.fetch_offset,
                        last_fetched_epoch=p.last_fetched_epoch,
                        log_start_offset=p.log_start_offset,
                        partition_max_bytes=p.max_bytes,
                        replica_directory_id=p.replica_directory_id,
                        high_watermark=p.high_watermark,
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ],
        forgotten_topics_data=[
            declared.ForgottenTopic(topic=topic.name, topic_id=topic.topic_id, partitions=topic.partitions)
            for topic in request.forgotten
        ],
    )
    if version >= fetch.REPLICA_STATE_FROM:
        message.replica_state = declared.ReplicaState(
            replica_id=request.replica_id, replica_epoch=request.replica_epoch
        )
    else:
        message.replica_id = request.replica_id
    return message


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_response_is_read_and_written_as_declared(version: int, data: st.DataObject) -> None:
    message = data.draw(structs(declared.FetchResponse, version))
    for topic in message.responses:
        for partition in topic.partitions:
            partition.records = partition.records or b""
    frame = encode_response(message, version, 9)
    correlation_id, response = fetch.read_fetch_response(frame[4:], version)
    assert correlation_id == 9
    assert declared_response(response, frame[4:]) == message
    pieces = fetch.encode_fetch_response(response, version, 9)
    assert joined(pieces, frame[4:]) == frame


def joined(pieces: list[fetch.FetchPiece], frame: bytes) -> bytes:
    """What the caller sends, with the records where their partitions stand."""
    return b"".join(
        piece if isinstance(piece, bytes) else frame[piece.records_start : piece.records_start + piece.records_size]
        for piece in pieces
    )


def declared_response(response: fetch.FetchResponse, frame: bytes) -> declared.FetchResponse:
    return declared.FetchResponse(
        throttle_time_ms=response.throttle_time_ms,
        error_code=response.error_code,
        session_id=response.session_id,
        node_endpoints=[
            declared.NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            for node in response.node_endpoints or []
        ],
        responses=[
            declared.FetchableTopicResponse(
                topic=topic.name,
                topic_id=topic.topic_id,
                partitions=[declared_partition(p, frame) for p in topic.partitions],
            )
            for topic in response.topics
        ],
    )


def declared_partition(p: fetch.FetchPartitionResponse, frame: bytes) -> declared.PartitionData:
    aborted = p.aborted
    return declared.PartitionData(
        partition_index=p.index,
        error_code=p.error_code,
        high_watermark=p.high_watermark,
        last_stable_offset=p.last_stable_offset,
        log_start_offset=p.log_start_offset,
        diverging_epoch=declared.EpochEndOffset(epoch=p.diverging_epoch, end_offset=p.diverging_end_offset),
        current_leader=declared.LeaderIdAndEpoch(leader_id=p.leader_id, leader_epoch=p.leader_epoch),
        snapshot_id=declared.SnapshotId(end_offset=p.snapshot_end_offset, epoch=p.snapshot_epoch),
        aborted_transactions=None
        if aborted is None
        else [declared.AbortedTransaction(producer_id=t.producer_id, first_offset=t.first_offset) for t in aborted],
        preferred_read_replica=p.preferred_read_replica,
        records=None if p.records_start < 0 else frame[p.records_start : p.records_start + p.records_size],
    )


def test_records_are_never_null_on_the_way_out() -> None:
    topic = fetch.FetchTopicResponse("orders", bytes(16), [fetch.FetchPartitionResponse(0, 3, -1)])
    pieces = fetch.encode_fetch_response(fetch.FetchResponse([topic]), 11, 1)
    assert len(pieces) == 1
    frame = pieces[0]
    assert isinstance(frame, bytes)
    decoded = declared.FetchResponse.decode(frame, 11, 8)
    assert decoded.responses[0].partitions[0].records == b""


def test_partitions_stand_where_their_records_go() -> None:
    with_records = [fetch.FetchPartitionResponse(index, 0, 50, size) for index, size in ((0, 100), (1, 0), (2, 7))]
    topic = fetch.FetchTopicResponse("orders", bytes(16), with_records)
    pieces = fetch.encode_fetch_response(fetch.FetchResponse([topic]), 12, 1)
    assert [piece for piece in pieces if not isinstance(piece, bytes)] == [with_records[0], with_records[2]]
    first = pieces[0]
    assert isinstance(first, bytes)
    sent = sum(len(piece) if isinstance(piece, bytes) else piece.records_size for piece in pieces)
    assert int.from_bytes(first[:4]) == sent - 4


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_every_cut_is_refused(version: int) -> None:
    partition = declared.PartitionData(
        partition_index=1, error_code=0, high_watermark=5, aborted_transactions=None, records=b"batch"
    )
    partition.aborted_transactions = [declared.AbortedTransaction(producer_id=1, first_offset=2)]
    topic = declared.FetchableTopicResponse(topic="orders" if version < 13 else "", partitions=[partition])
    frame = encode_response(declared.FetchResponse(responses=[topic]), version, 1)[4:]
    for length in range(len(frame)):
        with pytest.raises(RemoteError):
            fetch.read_fetch_response(frame[:length], version)
