"""Tables into topics, against every target: a record a row, wherever the row says."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

import mainstem
from mainstem.client.errors import InvalidPartitionsError, RecordTooLargeError, SerializationError
from mainstem.client.partitioner import partition_for_key
from mainstem.client.sync_producer import Producer
from tests.client.test_producing import new_topic
from tests.support.reading import read_records, read_values
from tests.support.targets import Target


def test_a_table_is_written_row_by_row_with_all_its_columns(target: Target) -> None:
    topic = new_topic(target)
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    table = pa.table(
        {
            "key": pa.array([b"a", None, b"c"]),
            "value": pa.array(["one", "two", None]),
            "timestamp": pa.array([datetime(2024, 1, 1, tzinfo=UTC)] * 3, pa.timestamp("us", "UTC")),
            "headers": pa.array([[("h", b"1")], [], None], headers),
        }
    )
    with Producer(bootstrap_servers=target.bootstrap) as producer:
        assert producer.send_table(table, topic) == 3
    found = read_records(target.bootstrap, topic)
    assert [(each.key, each.value, each.timestamp, each.headers) for each in found] == [
        (b"a", b"one", 1_704_067_200_000, [("h", b"1")]),
        (None, b"two", 1_704_067_200_000, []),
        (b"c", None, 1_704_067_200_000, []),
    ]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_rows_go_where_their_keys_belong_and_keep_their_order(target: Target, codec: str) -> None:
    topic = new_topic(target, 4)
    keys = [b"key-%d" % (at % 50) for at in range(20_000)]
    table = pa.table({"key": keys, "value": [b"%d" % at for at in range(20_000)]})
    with Producer(bootstrap_servers=target.bootstrap, compression_type=codec) as producer:
        assert producer.send_table(table, topic) == 20_000
    for partition in range(4):
        expected = [b"%d" % at for at, key in enumerate(keys) if partition_for_key(key, 4) == partition]
        assert read_values(target.bootstrap, topic, partition) == expected


def test_rows_go_where_a_partitioner_of_ones_own_says(target: Target) -> None:
    topic = new_topic(target, 3)
    table = pa.table(
        {"key": ["a", "b", None, "d"], "value": [b"2", b"0", b"1", b"2"], "partition": [None, None, None, 0]}
    )

    def by_value(topic: str, key: bytes | None, value: bytes | None, count: int) -> int:
        assert (count, key in (b"a", b"b", None, b"d")) == (3, True)
        return int(value or b"0")

    with Producer(bootstrap_servers=target.bootstrap, partitioner=by_value) as producer:
        assert producer.send_table(table, topic) == 4
        assert producer.send_table(pa.table({"value": [b"1"]}), topic) == 1
    assert [read_values(target.bootstrap, topic, at) for at in range(3)] == [[b"0", b"2"], [b"1", b"1"], [b"2"]]


def test_columns_say_topic_and_partition(target: Target) -> None:
    first, second = new_topic(target, 2), new_topic(target, 2)
    table = pa.table(
        {"topic": [first, second, first, first], "partition": [0, 1, 1, 0], "value": [b"a", b"b", b"c", b"d"]}
    )
    with Producer(bootstrap_servers=target.bootstrap) as producer:
        assert producer.send_table(table) == 4
    assert read_values(target.bootstrap, first, 0) == [b"a", b"d"]
    assert read_values(target.bootstrap, first, 1) == [b"c"]
    assert read_values(target.bootstrap, second, 1) == [b"b"]


def test_tables_and_records_of_one_producer_share_their_sequences(target: Target) -> None:
    topic = new_topic(target)
    with Producer(bootstrap_servers=target.bootstrap) as producer:
        producer.send(topic, b"0").result(30)
        producer.send_table(pa.table({"value": [b"1", b"2"]}), topic)
        producer.send(topic, b"3").result(30)
    assert read_values(target.bootstrap, topic) == [b"0", b"1", b"2", b"3"]


def test_a_table_larger_than_the_buffer_waits_for_room(target: Target) -> None:
    topic = new_topic(target)
    table = pa.table({"value": [b"%0500d" % at for at in range(8000)]})
    with Producer(bootstrap_servers=target.bootstrap, buffer_memory=2 << 20) as producer:
        assert producer.send_table(table, topic) == 8000
    assert read_values(target.bootstrap, topic) == table["value"].to_pylist()


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"value": [b"x"], "colour": ["red"]}, "a column 'colour'"),
        ({"timestamp": [1]}, "neither a column 'key' nor a column 'value'"),
        ({"value": [1]}, "column 'value' is int64; it is bytes or strings"),
        ({"key": [1.5], "value": [b"x"]}, "column 'key' is double"),
        ({"value": [b"x"], "timestamp": ["now"]}, "column 'timestamp' is string; it is milliseconds"),
        ({"value": [b"x"], "partition": ["0"]}, "column 'partition' is string"),
        (
            {"value": [b"x"], "headers": [[{"name": "a", "value": b"1"}]]},
            "it is list<struct<key",
        ),
        ({"value": [b"x"], "headers": [[{"key": 1, "value": b"1"}]]}, "column 'headers' is "),
    ],
)
def test_a_table_that_cannot_be_sent_says_why(target: Target, columns: dict[str, object], sentence: str) -> None:
    with (
        Producer(bootstrap_servers=target.bootstrap) as producer,
        pytest.raises(SerializationError, match=sentence),
    ):
        producer.send_table(pa.table(columns), "topic")


def test_what_is_no_table_is_refused(target: Target) -> None:
    with Producer(bootstrap_servers=target.bootstrap) as producer:
        with pytest.raises(SerializationError, match="a dict is no"):
            producer.send_table({"value": [b"x"]}, "topic")
        with pytest.raises(SerializationError, match="2 columns 'value'"):
            producer.send_table(pa.Table.from_arrays([pa.array([b"x"])] * 2, names=["value", "value"]), "topic")
        with pytest.raises(InvalidPartitionsError, match="-1"):
            producer.send_table(pa.table({"value": [b"x"]}), "topic", partition=-1)


def test_a_header_without_a_key_is_refused(target: Target) -> None:
    topic = new_topic(target)
    with (
        Producer(bootstrap_servers=target.bootstrap) as producer,
        pytest.raises(SerializationError, match="a key is null in row 0"),
    ):
        producer.send_table(pa.table({"value": [b"x"], "headers": [[{"key": None, "value": b"1"}]]}), topic)


def test_columns_of_every_kind_of_bytes_and_headers_in_any_order_of_fields(target: Target) -> None:
    topic = new_topic(target)
    kinds = [
        pa.array(["a"]).dictionary_encode(),
        pa.array(["a"], pa.string_view()),
        pa.array([b"a"], pa.binary_view()),
        pa.array([b"a"], pa.binary(1)),
        pa.array(["a"], pa.large_string()),
    ]
    headers = pa.array([[{"value": b"v", "key": "k"}]])
    assert headers.type.value_type.field(0).name == "value"
    with Producer(bootstrap_servers=target.bootstrap) as producer:
        for kind in kinds:
            assert producer.send_table(pa.table({"key": kind, "value": kind, "headers": headers}), topic) == 1
        mapped = pa.array([[("k", b"v")]], pa.map_(pa.string(), pa.binary()))
        assert producer.send_table(pa.table({"value": [b"a"], "headers": mapped}), topic) == 1
    table = mainstem.read_topic(topic, bootstrap_servers=target.bootstrap)
    assert table["value"].to_pylist() == [b"a"] * 6
    assert table["key"].to_pylist() == [b"a"] * 5 + [None]
    assert table["headers"].to_pylist() == [[{"key": "k", "value": b"v"}]] * 6


def test_a_row_for_a_partition_that_there_is_not_is_refused(target: Target) -> None:
    topic = new_topic(target, 2)
    with (
        Producer(bootstrap_servers=target.bootstrap) as producer,
        pytest.raises(InvalidPartitionsError, match="a row has partition 5; the topic has 2"),
    ):
        producer.send_table(pa.table({"value": [b"x"], "partition": [5]}), topic)


def test_a_refused_batch_raises_its_error(target: Target) -> None:
    topic = new_topic(target, max_message_bytes="1000")
    with Producer(bootstrap_servers=target.bootstrap) as producer:
        # Many small rows are split until they fit; one large row cannot be.
        assert producer.send_table(pa.table({"value": [bytes(100)] * 50}), topic) == 50
        with pytest.raises(RecordTooLargeError):
            producer.send_table(pa.table({"value": [bytes(5000)]}), topic)
