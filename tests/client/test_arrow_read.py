"""Topics as Arrow: the same records as objects give, in columns, and only what was asked for."""

import time
import uuid
from typing import Any

import pyarrow as pa
import pytest

import mainstem
from mainstem import Admin, Producer
from mainstem.client.errors import IllegalStateError, InvalidOptionError, UnknownTopicOrPartitionError
from mainstem.client.fetcher import ANSWER_BYTES
from mainstem.client.types import ConsumerRecord, TopicPartition
from tests.client.consumer_support import Target, new_group, target

__all__ = ["target"]


def rows_of(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def test_columns_hold_what_records_hold(target: Target) -> None:
    topic = target.topic(2)
    for number in range(2):
        target.writer.send(topic, number, [b"a", b"b"], timestamp=5000, headers=[("h", b"1"), ("n", None)])
        target.writer.send(topic, number, [b"c"], timestamp=6000)
    with target.consumer(topic) as consumer:
        records: list[ConsumerRecord] = []
        while len(records) < 6:
            records += consumer.poll(1000)
        consumer.seek_to_beginning()
        rows: list[dict[str, Any]] = []
        while len(rows) < 6:
            batches = consumer.fetch_arrow(1000)
            assert all(len(set(batch.column("partition").to_pylist())) == 1 for batch in batches)
            rows += rows_of(batches)
        assert [consumer.position(tp) for tp in consumer.assignment] == [3, 3]
    wanted = [
        {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": record.key,
            "value": record.value,
            "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
        }
        for record in sorted(records, key=lambda each: (each.partition, each.offset))
    ]
    for row in rows:
        row["timestamp"] = int(row["timestamp"].timestamp() * 1000)
    assert sorted(rows, key=lambda row: (row["partition"], row["offset"])) == wanted


def test_only_the_columns_asked_for_are_built(target: Target) -> None:
    topic = target.topic()
    target.fill(topic, 0, 10)
    with target.consumer(topic) as consumer:
        (batch,) = consumer.fetch_arrow(5000, columns=["value", "timestamp_type"])
        assert batch.schema.names == ["value", "timestamp_type"]
        assert batch.schema.types == [pa.binary(), pa.int32()]
        target.fill(topic, 0, 1)
        with pytest.raises(InvalidOptionError, match="columns has 'valu'"):
            consumer.fetch_arrow(5000, columns=["valu"])
        assert consumer.fetch_arrow(5000, columns=["offset"])[0].to_pylist() == [{"offset": 10}]


def test_objects_and_columns_may_take_turns(target: Target) -> None:
    topic = target.topic()
    written = target.fill(topic, 0, 100)
    with target.consumer(topic, max_poll_records=30) as consumer:
        found = [record.value for record in consumer.poll(5000)]
        assert found == written[:30]
        rows: list[dict[str, Any]] = []
        while len(rows) < 70:
            rows += rows_of(consumer.fetch_arrow(5000, columns=["value"]))
        assert [row["value"] for row in rows] == written[30:]
        consumer.seek(TopicPartition(topic, 0), 0)
        next(iter(consumer))
        with pytest.raises(IllegalStateError, match="left over"):
            consumer.fetch_arrow(1000)


def test_a_group_reads_columns_and_commits(target: Target) -> None:
    topic, group = target.topic(), new_group()
    target.fill(topic, 0, 50)
    with target.member(group, topic) as consumer:
        count = 0
        while count < 50:
            count += sum(batch.num_rows for batch in consumer.fetch_arrow(5000))
        consumer.commit()
        (committed,) = consumer.committed(consumer.assignment).values()
        assert committed is not None
        assert committed.offset == 50


def test_aborted_transactions_are_left_out_of_columns(target: Target) -> None:
    from confluent_kafka import Producer

    topic = target.topic()
    producer = Producer({"bootstrap.servers": target.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for number in range(4):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number, partition=0)
        producer.flush(30)
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    table = mainstem.read_topic(topic, isolation_level="read_committed", bootstrap_servers=target.bootstrap)
    assert table.column("value").to_pylist() == [b"0", b"2"]
    assert mainstem.read_topic(topic, bootstrap_servers=target.bootstrap).num_rows == 4


def test_a_topic_is_read_whole_and_ends_at_its_end(target: Target) -> None:
    topic = target.topic(3)
    written = [value for number in range(2) for value in target.fill(topic, number, 500)]
    table = mainstem.read_topic(topic, bootstrap_servers=target.bootstrap)
    assert sorted(table.column("value").to_pylist()) == sorted(written)
    assert table.schema.names == ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
    one = mainstem.read_topic(topic, partitions=[1], columns=["value"], bootstrap_servers=target.bootstrap)
    assert one.column("value").to_pylist() == written[500:]


def test_the_last_while_of_a_topic(target: Target) -> None:
    topic = target.topic()
    now = time.time()
    for minutes_ago, value in ((30, b"old"), (4, b"new"), (1, b"newest")):
        target.writer.send(topic, 0, [value], timestamp=int((now - 60 * minutes_ago) * 1000))
    options: dict[str, Any] = {"bootstrap_servers": target.bootstrap, "columns": ["value"]}

    def read(**span: Any) -> list[bytes]:
        found: list[bytes] = mainstem.read_topic(topic, **options, **span).column("value").to_pylist()
        return found

    assert read(last="5m") == [b"new", b"newest"]
    assert read(last=120) == [b"newest"]
    assert read(last="1s") == []
    assert read(since=now - 3600, until=now - 120) == [b"old", b"new"]


def test_an_empty_topic_has_columns_and_no_rows(target: Target) -> None:
    table = mainstem.read_topic(target.topic(2), bootstrap_servers=target.bootstrap)
    assert table.num_rows == 0
    assert table.schema.field("value").type == pa.binary()


def test_data_frames_of_pandas_and_polars(target: Target) -> None:
    pytest.importorskip("pandas")
    topic = target.topic()
    written = target.fill(topic, 0, 20)
    frame = mainstem.read_topic(topic, columns=["offset", "value"], as_="pandas", bootstrap_servers=target.bootstrap)
    assert frame["value"].tolist() == written
    pytest.importorskip("polars")
    frame = mainstem.read_topic(topic, columns=["offset", "value"], as_="polars", bootstrap_servers=target.bootstrap)
    assert frame["offset"].to_list() == list(range(20))


def test_mistakes_in_reading_a_topic_are_told(target: Target) -> None:
    topic = target.topic()
    with pytest.raises(InvalidOptionError, match="as_ is 'excel'"):
        mainstem.read_topic(topic, as_="excel", bootstrap_servers=target.bootstrap)
    with pytest.raises(InvalidOptionError, match="last is '5 parsecs'"):
        mainstem.read_topic(topic, last="5 parsecs", bootstrap_servers=target.bootstrap)
    with pytest.raises(UnknownTopicOrPartitionError, match="partition 7"):
        mainstem.read_topic(topic, partitions=[7], bootstrap_servers=target.bootstrap)
    with pytest.raises(InvalidOptionError, match="columns has 'value' 2 times"):
        mainstem.read_topic(topic, columns=["value", "value"], bootstrap_servers=target.bootstrap)


def test_reading_creates_no_topic(target: Target) -> None:
    name = f"nowhere-{uuid.uuid4().hex}"
    with pytest.raises(UnknownTopicOrPartitionError, match=name):
        mainstem.read_topic(name, bootstrap_servers=target.bootstrap, timeout_ms=300)
    with Admin(bootstrap_servers=target.bootstrap) as admin:
        assert name not in admin.list_topics()


def test_no_partitions_have_no_rows(target: Target) -> None:
    table = mainstem.read_topic(target.topic(), partitions=[], bootstrap_servers=target.bootstrap)
    assert table.num_rows == 0
    assert table.schema.names[0] == "topic"


def test_a_topic_of_which_nothing_was_committed_is_read_without_waiting_for_more(target: Target) -> None:
    topic = target.topic()
    with Producer(bootstrap_servers=target.bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"aborted").result(30)
        producer.abort_transaction()
    began = time.monotonic()
    options: dict[str, Any] = {"isolation_level": "read_committed", "timeout_ms": 20_000}
    assert mainstem.read_topic(topic, bootstrap_servers=target.bootstrap, **options).num_rows == 0
    assert time.monotonic() - began < 10


def test_columns_come_in_fewer_fetches_than_objects_and_are_bounded_as_well(target: Target) -> None:
    topic = target.topic()
    for _ in range(12):
        target.writer.send(topic, 0, [bytes(1000)] * 900)
    with target.consumer(topic) as consumer:
        sizes: list[int] = []
        most = 0
        while sum(sizes) < 12 * 900:
            batches = consumer.fetch_arrow(10_000, columns=["value"])
            sizes += [batch.num_rows for batch in batches]
            (state,) = consumer._core._subscription.partitions.values()
            most = max(most, state.buffered_bytes)
        assert max(sizes) > 900, "no fetch brought more than max_partition_fetch_bytes would"
        assert most <= 3 * ANSWER_BYTES
    with target.consumer(topic, max_partition_fetch_bytes=950_000) as consumer:
        sizes = []
        while sum(sizes) < 12 * 900:
            sizes += [batch.num_rows for batch in consumer.fetch_arrow(10_000, columns=["value"])]
        assert max(sizes) == 900, "what was asked for by hand was not kept to"


def test_one_call_gives_what_was_there_when_it_began(target: Target) -> None:
    """Or a fast broker could keep a single call going to the end of the topic."""
    topic = target.topic()
    target.fill(topic, 0, 10)
    with target.consumer(topic) as consumer:
        core = consumer._core
        assert consumer._run(core.wait_ready(10_000))
        # As if another chunk came for each that is taken.
        core._fetcher.take_chunk = lambda convert: ["a batch"]  # type: ignore[method-assign, assignment, return-value]
        assert 0 < len(core.take_ready_arrow(("value",), None)) <= core._fetcher.ready_count
