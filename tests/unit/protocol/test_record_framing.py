"""Records of the internal logs, against bytes that Kafka 4.3.1 wrote."""

import pytest

from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.control import KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from mainstem.protocol.messages.group_records import ConsumerGroupMemberMetadataValue, OffsetCommitKey
from mainstem.protocol.messages.metadata_records import FeatureLevelRecord
from mainstem.protocol.messages.record_framing import (
    GROUP_RECORDS,
    SHARE_RECORDS,
    TXN_RECORDS,
    decode_metadata_record,
    encode_metadata_record,
    metadata_record_types,
)
from mainstem.protocol.messages.txn_records import PartitionsSchema, TransactionLogKey, TransactionLogValue
from mainstem.protocol.schema import Message

# Off the metadata log of a fresh node that made one topic.
METADATA_LOG = [
    ("BeginTransactionRecord", "01170001001212426f6f747374726170207265636f726473"),
    ("FeatureLevelRecord", "010c00116d657461646174612e76657273696f6e001e00"),
    ("ConfigRecord", "0104000401146d696e2e696e73796e632e7265706c69636173023100"),
    ("EndTransactionRecord", "01180000"),
    ("NoOpRecord", "01140000"),
    (
        "RegisterControllerRecord",
        "011b0000000001841c1d3bffa44d4aa1352d4dcb9f158e00020b434f4e54524f4c4c45520a3132372e302e302e31721a0000000"
        "80e67726f75702e76657273696f6e00000001000e6b726166742e76657273696f6e0000000100116d657461646174612e766572"
        "73696f6e0007001e000e73686172652e76657273696f6e00000001001073747265616d732e76657273696f6e000000010014747"
        "2616e73616374696f6e2e76657273696f6e000000020021656c696769626c652e6c65616465722e7265706c696361732e766572"
        "73696f6e000000010000",
    ),
    (
        "RegisterBrokerRecord",
        "0100040000000100153744bf85894f00bbe8f848f772c151000000000000000e020a504c41494e544558540a3132372e302e302"
        "e3171b6000000080e67726f75702e76657273696f6e00000001001073747265616d732e76657273696f6e000000010014747261"
        "6e73616374696f6e2e76657273696f6e000000020021656c696769626c652e6c65616465722e7265706c696361732e766572736"
        "96f6e0000000100116d657461646174612e76657273696f6e0007001e000e73686172652e76657273696f6e00000001000e6b72"
        "6166742e76657273696f6e0000000100000100010011022f007f130f2443d395a5e3b52c988eb2",
    ),
    ("BrokerRegistrationChangeRecord", "01110000000001000000000000000e010001ff"),
    ("TopicRecord", "010200076f726465727305f2188c49c444a2831555334d5706f200"),
    (
        "PartitionRecord",
        "0103020000000005f2188c49c444a2831555334d5706f2020000000102000000010101000000010000000000000000022f007f1"
        "30f2443d395a5e3b52c988eb200",
    ),
]

# Off __consumer_offsets after a classic and a new consumer group had read that topic.
GROUP_LOG = [
    (
        "000500056e65772d6700164f5a315857494853545f65596e6f4f6d503577464441",
        "0000000011636f6e736f6c652d636f6e73756d65720b2f3132372e302e302e3102076f726465727301000493e00001000100",
    ),
    ("000300056e65772d67", "0000000000020100088e3465b78e3beacb"),
    (
        "000700056e65772d6700164f5a315857494853545f65596e6f4f6d503577464441",
        "00000205f2188c49c444a2831555334d5706f20300000000000000010000",
    ),
    ("000600056e65772d67", "000000000002010008000001a1e171aa9e"),
    (
        "000800056e65772d6700164f5a315857494853545f65596e6f4f6d503577464441",
        "00000000000200000000000205f2188c49c444a2831555334d5706f20300000000000000010100090300000002000000020100",
    ),
    (
        "000100056e65772d6700066f726465727300000000",
        "00040000000000000000ffffffff01000001a1e171acb901001005f2188c49c444a2831555334d5706f2",
    ),
    ("00020009636c61737369632d67", "0003000000000000ffffffff000001a1e17198a000000000"),
]


@pytest.mark.parametrize(("name", "value"), METADATA_LOG)
def test_kafkas_metadata_records_are_read_and_written_to_the_bit(name: str, value: str) -> None:
    record, version = decode_metadata_record(bytes.fromhex(value))
    assert type(record).__name__ == name
    assert encode_metadata_record(record, version).hex() == value


def test_a_metadata_record_says_what_kafka_meant() -> None:
    record, version = decode_metadata_record(bytes.fromhex(METADATA_LOG[1][1]))
    assert (record, version) == (FeatureLevelRecord(name="metadata.version", feature_level=30), 0)


@pytest.mark.parametrize(("key", "value"), GROUP_LOG)
def test_kafkas_group_records_are_read_and_written_to_the_bit(key: str, value: str) -> None:
    decoded_key, decoded_value = GROUP_RECORDS.decode(bytes.fromhex(key), bytes.fromhex(value))
    assert decoded_value is not None
    assert GROUP_RECORDS.encode_key(decoded_key).hex() == key
    version = int(value[:4], 16)
    assert GROUP_RECORDS.encode_value(decoded_value, version).hex() == value


def test_a_member_of_a_consumer_group_is_no_classic_one() -> None:
    _, value = GROUP_RECORDS.decode(*(bytes.fromhex(half) for half in GROUP_LOG[0]))
    assert isinstance(value, ConsumerGroupMemberMetadataValue)
    assert value.classic_member_metadata is None


@pytest.mark.parametrize(
    ("cls", "version", "value"),
    [
        (LeaderChangeMessage, 0, "00000000000102000000010002000000010000"),
        (KRaftVersionRecord, 0, "0000000100"),
        (
            VotersRecord,
            0,
            "000002000000012f007f130f2443d395a5e3b52c988eb2020b434f4e54524f4c4c45520a3132372e302e302e31721a0000000001000000",
        ),
    ],
)
def test_kafkas_control_records_are_read_and_written_to_the_bit(cls: type[Message], version: int, value: str) -> None:
    record, end = cls.decode_from(bytes.fromhex(value), version)
    assert end == len(value) // 2
    assert record.encode(version).hex() == value


def test_a_null_value_takes_the_key_back() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=1)
    assert GROUP_RECORDS.decode(GROUP_RECORDS.encode_key(key), None) == (key, None)


def test_transaction_records() -> None:
    key = TransactionLogKey(transactional_id="t")
    value = TransactionLogValue(
        producer_id=7,
        producer_epoch=1,
        transaction_timeout_ms=60_000,
        transaction_status=1,
        transaction_partitions=[PartitionsSchema(topic="orders", partition_ids=[0, 2])],
        transaction_last_update_timestamp_ms=5,
        transaction_start_timestamp_ms=4,
        client_transaction_version=2,
    )
    assert TXN_RECORDS.encode_key(key).hex() == "0000000174"
    assert TXN_RECORDS.encode_value(value, 1).hex() == (
        "0001000000000000000700010000ea600102076f7264657273030000000000000002000000000000000005000000000000000401"
        "02020002"
    )
    assert TXN_RECORDS.decode(TXN_RECORDS.encode_key(key), TXN_RECORDS.encode_value(value, 1)) == (key, value)


def test_every_type_of_record_is_known() -> None:
    assert sorted(metadata_record_types()) == [*range(6), *range(7, 13), 14, 15, *range(17, 29)]
    assert (
        sorted(GROUP_RECORDS.keys) == sorted(GROUP_RECORDS.values) == [*range(9), *range(9 + 1, 18), 19, 20, 21, 22, 23]
    )
    assert sorted(TXN_RECORDS.keys) == sorted(TXN_RECORDS.values) == [0]
    assert sorted(SHARE_RECORDS.keys) == sorted(SHARE_RECORDS.values) == [0, 1]


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("", ErrorCode.CORRUPT_MESSAGE),
        ("0114", ErrorCode.CORRUPT_MESSAGE),
        ("0114000000", ErrorCode.CORRUPT_MESSAGE),  # a byte too many
        ("01140007", ErrorCode.CORRUPT_MESSAGE),
        ("00140000", ErrorCode.UNSUPPORTED_VERSION),  # another frame version
        ("01140100", ErrorCode.UNSUPPORTED_VERSION),  # a later version of NoOpRecord
        ("01ff7f0000", ErrorCode.UNSUPPORTED_VERSION),  # a later type
    ],
)
def test_malformed_metadata_records_are_told_from_newer_ones(value: str, code: ErrorCode) -> None:
    with pytest.raises(RemoteError) as caught:
        decode_metadata_record(bytes.fromhex(value))
    assert caught.value.code is code


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("", None, ErrorCode.CORRUPT_MESSAGE),
        ("0003", None, ErrorCode.CORRUPT_MESSAGE),
        ("7fff", None, ErrorCode.UNSUPPORTED_VERSION),
        ("000300056e65772d67", "00", ErrorCode.CORRUPT_MESSAGE),
        ("000300056e65772d67", "0009", ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_malformed_group_records_are_told_from_newer_ones(key: str, value: str | None, code: ErrorCode) -> None:
    with pytest.raises(RemoteError) as caught:
        GROUP_RECORDS.decode(bytes.fromhex(key), None if value is None else bytes.fromhex(value))
    assert caught.value.code is code
