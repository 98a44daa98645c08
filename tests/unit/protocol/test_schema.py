"""What the declarations mean: the semantics of Kafka's own generated classes."""

import subprocess
import sys
import textwrap

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages import k01_fetch, k03_metadata, k24_add_partitions_to_txn
from mainstem.protocol.messages.group_records import ClassicMemberMetadata, ConsumerGroupMemberMetadataValue
from mainstem.protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from mainstem.protocol.messages.k68_consumer_group_heartbeat import Assignment, ConsumerGroupHeartbeatResponse
from mainstem.protocol.messages.metadata_records import PartitionChangeRecord
from mainstem.protocol.schema import Message
from tests.unit.protocol.message_strategies import all_messages, structs, versions_of


@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
@settings(
    max_examples=12, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)
@given(data=st.data())
def test_every_version_of_every_message_survives_a_round_trip(cls: type[Message], data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(versions_of(cls)))
    message = data.draw(structs(cls, version))
    encoded = b"before" + message.encode(version)
    assert cls.decode_from(encoded, version, 6) == (message, len(encoded))


def test_unknown_tagged_fields_survive_in_the_order_of_their_tags() -> None:
    response = ApiVersionsResponse(error_code=0, api_keys=[], finalized_features_epoch=7)
    response.unknown_tags = {200: b"later", 0x7FFFFFFF: b""}
    data = response.encode(3)
    assert data.endswith(b"\x03" + b"\x01\x08" + (7).to_bytes(8) + b"\xc8\x01\x05later" + b"\xff\xff\xff\xff\x07\x00")
    decoded = ApiVersionsResponse.decode(data, 3)
    assert decoded.unknown_tags == response.unknown_tags
    assert decoded == response
    assert decoded.encode(3) == data


def test_unknown_tags_of_nested_structs_survive_too() -> None:
    topic = k03_metadata.MetadataRequestTopic(name="orders")
    topic.unknown_tags = {1: b"x" * 300}
    request = k03_metadata.MetadataRequest(topics=[topic])
    assert k03_metadata.MetadataRequest.decode(request.encode(9), 9) == request


def test_unknown_tags_cannot_be_written_where_there_are_no_tags() -> None:
    request = ApiVersionsRequest()
    request.unknown_tags = {9: b""}
    with pytest.raises(ValueError, match="unknown_tags"):
        request.encode(2)


def test_a_declared_tag_cannot_be_passed_off_as_unknown() -> None:
    response = ApiVersionsResponse(error_code=0, api_keys=[], finalized_features_epoch=7)
    response.unknown_tags = {1: b""}
    with pytest.raises(ValueError, match=r"tags \[1\]"):
        response.encode(3)


def test_tagged_fields_are_written_only_when_they_differ_from_their_default() -> None:
    assert ApiVersionsResponse(error_code=0, api_keys=[]).encode(3)[-1:] == b"\x00"
    assert PartitionChangeRecord(partition_id=1, topic_id=bytes(16)).encode(0)[-1:] == b"\x00"
    # An empty list is not null, which is the default here.
    assert PartitionChangeRecord(partition_id=1, topic_id=bytes(16), isr=[]).encode(0)[-4:] == b"\x01\x00\x01\x01"


def test_a_version_without_a_field_drops_it_or_refuses() -> None:
    response = k03_metadata.MetadataResponse(brokers=[], topics=[], throttle_time_ms=5)
    assert k03_metadata.MetadataResponse.decode(response.encode(2), 2).throttle_time_ms == 0
    response.cluster_authorized_operations = 1
    assert response.encode(8)
    with pytest.raises(
        ValueError, match=r"v11 cannot carry the value of MetadataResponse.cluster_authorized_operations"
    ):
        response.encode(11)


def test_null_is_refused_where_the_version_has_none() -> None:
    everything = k03_metadata.MetadataRequest(topics=None)
    assert k03_metadata.MetadataRequest.decode(everything.encode(1), 1).topics is None
    with pytest.raises(ValueError, match=r"v0 cannot carry the value of MetadataRequest.topics"):
        everything.encode(0)
    with pytest.raises(RemoteError, match="topics"):
        k03_metadata.MetadataRequest.decode(b"\xff\xff\xff\xff", 0)
    unnamed = k03_metadata.MetadataRequest(topics=[k03_metadata.MetadataRequestTopic(name=None)])
    with pytest.raises(ValueError, match=r"MetadataRequest.topics.name"):
        unnamed.encode(9)


@pytest.mark.parametrize(
    ("field", "value"),
    [("node_id", 2**31), ("node_id", "1"), ("host", 5), ("host", "x" * 40_000), ("rack", b"r"), ("port", None)],
)
@pytest.mark.parametrize("version", [1, 9])
def test_a_value_that_does_not_fit_is_named(version: int, field: str, value: object) -> None:
    broker = k03_metadata.MetadataResponseBroker(node_id=1, host="h", port=1)
    setattr(broker, field, value)
    response = k03_metadata.MetadataResponse(brokers=[broker], topics=[])
    with pytest.raises(ValueError, match=rf"v{version} cannot carry the value of MetadataResponse.brokers.{field}"):
        response.encode(version)


def test_a_uuid_has_sixteen_bytes() -> None:
    topic = k03_metadata.MetadataRequestTopic(name=None, topic_id=b"short")
    with pytest.raises(ValueError, match="topic_id"):
        k03_metadata.MetadataRequest(topics=[topic]).encode(12)


def test_nullable_struct() -> None:
    absent = ConsumerGroupHeartbeatResponse(
        error_code=0, error_message=None, member_id=None, member_epoch=0, heartbeat_interval_ms=5
    )
    assert absent.assignment is None
    assert absent.encode(0)[-2:] == b"\xff\x00"
    present = ConsumerGroupHeartbeatResponse.decode(absent.encode(0), 0)
    present.assignment = Assignment(topic_partitions=[])
    assert present.encode(0)[-4:] == b"\x01\x01\x00\x00"
    assert ConsumerGroupHeartbeatResponse.decode(present.encode(0), 0) == present


def test_nullable_tagged_struct_as_kafka_writes_it() -> None:
    """Bytes from Kafka 4.3.1: null is not the default and is written, as 0 where another struct has -1."""
    value = ConsumerGroupMemberMetadataValue(
        instance_id="",
        rack_id="",
        client_id="",
        client_host="",
        subscribed_topic_names=[],
        subscribed_topic_regex="",
        server_assignor="",
    )
    assert value.encode(0).hex() == "010101010101ffffffff0100"
    value.classic_member_metadata = None
    assert value.encode(0).hex() == "010101010101ffffffff0101000100"
    assert ConsumerGroupMemberMetadataValue.decode(value.encode(0), 0).classic_member_metadata is None
    value.classic_member_metadata = ClassicMemberMetadata(session_timeout_ms=5)
    assert value.encode(0).hex() == "010101010101ffffffff0101000701000000050100"
    assert ConsumerGroupMemberMetadataValue.decode(value.encode(0), 0) == value


def test_a_field_may_leave_in_a_later_version() -> None:
    request = k24_add_partitions_to_txn.AddPartitionsToTxnRequest(v3_and_below_transactional_id="t")
    assert request.encode(3)
    with pytest.raises(ValueError, match="v3_and_below_transactional_id"):
        request.encode(4)


def test_defaults_are_never_shared() -> None:
    one = k03_metadata.MetadataResponsePartition(
        error_code=0, partition_index=0, leader_id=0, replica_nodes=[], isr_nodes=[]
    )
    other = k03_metadata.MetadataResponsePartition(
        error_code=0, partition_index=0, leader_id=0, replica_nodes=[], isr_nodes=[]
    )
    one.offline_replicas.append(1)
    assert other.offline_replicas == []
    first = k01_fetch.PartitionData(
        partition_index=0, error_code=0, high_watermark=0, aborted_transactions=None, records=b""
    )
    data = k01_fetch.FetchResponse(responses=[k01_fetch.FetchableTopicResponse(partitions=[first])]).encode(12)
    decoded = k01_fetch.FetchResponse.decode(data, 12).responses[0].partitions[0]
    decoded.current_leader.leader_id = 5
    again = k01_fetch.FetchResponse.decode(data, 12).responses[0].partitions[0]
    assert again.current_leader.leader_id == -1


def test_construction_is_by_keyword_and_complete() -> None:
    with pytest.raises(TypeError, match="host"):
        k03_metadata.MetadataResponseBroker(node_id=1, port=9092)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="prot"):
        k03_metadata.MetadataResponseBroker(node_id=1, host="h", prot=9092)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        k03_metadata.MetadataResponseBroker(1, "h", 9092)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        k03_metadata.MetadataResponseBroker(node_id=1, host="h", port=9092).hots = 1  # type: ignore[attr-defined]


def test_repr_is_for_people() -> None:
    topic = k03_metadata.MetadataRequestTopic(name=None, topic_id=bytes(15) + b"\x01")
    request = k03_metadata.MetadataRequest(topics=[topic])
    assert repr(request) == (
        "MetadataRequest(topics=[MetadataRequestTopic(topic_id=<AAAAAAAAAAAAAAAAAAAAAQ>, name=None)])"
    )


def test_equality_is_by_value_and_type() -> None:
    assert k01_fetch.LeaderIdAndEpoch(leader_id=1) == k01_fetch.LeaderIdAndEpoch(leader_id=1)
    assert k01_fetch.LeaderIdAndEpoch(leader_id=1) != k01_fetch.LeaderIdAndEpoch(leader_id=2)
    assert k01_fetch.LeaderIdAndEpoch() != k01_fetch.EpochEndOffset()


def test_a_version_that_does_not_exist_is_our_mistake() -> None:
    with pytest.raises(ValueError, match="versions 0 to 13, not 14"):
        k03_metadata.MetadataRequest(topics=[]).encode(14)
    with pytest.raises(ValueError, match="versions 0 to 13, not -1"):
        k03_metadata.MetadataRequest.decode(b"", -1)


def test_bytes_after_a_message_are_let_pass_as_kafka_does() -> None:
    data = k03_metadata.MetadataRequest(topics=[]).encode(1)
    assert k03_metadata.MetadataRequest.decode(data + b"garbage", 1).topics == []
    assert k03_metadata.MetadataRequest.decode_from(data + b"garbage", 1)[1] == len(data)


def test_strings_that_are_not_utf8_are_mended_as_kafka_does() -> None:
    data = b"\x00\x00\x00\x01\x00\x03\xff\xfea"
    request = k03_metadata.MetadataRequest.decode(data, 1)
    assert request.topics is not None
    assert request.topics[0].name == "��a"


@pytest.mark.parametrize(
    ("version", "data"),
    [
        (1, b"\x7f\xff\xff\xff"),  # more topics than bytes
        (1, b"\xff\xff\xff\xfe"),  # a length that is neither null nor a length
        (1, b"\x00\x00\x00\x01\x7f\xff"),  # a name longer than the data
        (1, b"\x00\x00\x00\x01\x80\x00"),
        (9, b"\xff\xff\xff\xff\x0f"),  # 2^32 - 2 topics
        (9, b"\xff\xff\xff\xff\xff\x01"),  # a varint of six bytes
        (9, b"\x02\x81\x80\x02" + bytes(32_768)),  # a name longer than any string
        (9, b"\x01\x01\x00\x00\x01\x00\x05ab"),  # a tagged field that passes the end
        (9, b""),
    ],
)
def test_lengths_are_checked_before_they_are_believed(version: int, data: bytes) -> None:
    with pytest.raises(RemoteError) as caught:
        k03_metadata.MetadataRequest.decode(data, version)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_tagged_field_must_be_as_long_as_it_says() -> None:
    data = bytearray(ApiVersionsResponse(error_code=0, api_keys=[], finalized_features_epoch=7).encode(3))
    assert data[-10:-8] == b"\x01\x08"
    data[-9] = 7
    with pytest.raises(RemoteError):
        ApiVersionsResponse.decode(bytes(data), 3)


def test_importing_the_registry_imports_no_messages() -> None:
    program = """
        import sys
        import mainstem.protocol.api as api
        loaded = [name for name in sys.modules if ".messages" in name]
        assert loaded == [], loaded
        assert api.APIS[3].request.__name__ == "MetadataRequest"
        loaded = [name for name in sys.modules if ".messages." in name]
        assert loaded == ["mainstem.protocol.messages.k03_metadata"], loaded
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=60)
