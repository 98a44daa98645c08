"""The batch source beside what another client reads from the same topic."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from mainstem.spark import cores
from tests.spark.brokers import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(600)]


def load(spark: SparkSession, broker: Broker, topic: str, schema: str | None = None, **options: Any) -> DataFrame:
    reader = spark.read.format("mainstem").option("kafka.bootstrap.servers", broker.bootstrap)
    if not {"subscribePattern", "assign"} & set(options):
        reader = reader.option("subscribe", topic)
    for name, value in options.items():
        reader = reader.option(name.replace("__", "."), value)
    return reader.schema(schema).load() if schema else reader.load()


def test_all_columns_are_what_another_client_reads(spark: SparkSession, broker: Broker) -> None:
    topic = broker.topic()
    broker.produce(
        topic,
        [None if nth % 7 == 0 else b"value %d" % nth for nth in range(500)],
        keys=[None if nth % 5 == 0 else b"key %d" % nth for nth in range(500)],
        timestamps=[1_700_000_000_123 + nth for nth in range(500)],
        headers=[[("a", b"1"), ("b", None)] if nth % 3 == 0 else None for nth in range(500)],
    )
    rows = load(spark, broker, topic, includeHeaders="true").orderBy("partition", "offset").collect()
    expected = broker.read(topic)
    assert len(rows) == len(expected) == 500
    for row, other in zip(rows, expected, strict=True):
        assert (row.topic, row.partition, row.offset, row.timestampType) == (topic, other.partition, other.offset, 0)
        assert (row.key and bytes(row.key), row.value and bytes(row.value)) == (other.key, other.value)
        stamp = row.timestamp.replace(tzinfo=UTC) if row.timestamp.tzinfo is None else row.timestamp
        assert round(stamp.timestamp() * 1000) in (other.timestamp, other.timestamp + stamp_shift(row.timestamp))
        headers = None if row.headers is None else [(h.key, h.value and bytes(h.value)) for h in row.headers]
        assert headers == other.headers


def stamp_shift(moment: datetime) -> int:
    """`collect` gives naive times in the machine's own zone."""
    offset = moment.astimezone().utcoffset()
    return 0 if offset is None else int(offset.total_seconds() * 1000)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_are_read(spark: SparkSession, broker: Broker, codec: str) -> None:
    topic = broker.topic()
    broker.produce(topic, [b"x" * 500 + b"%d" % nth for nth in range(2000)], compression_type=codec)
    assert load(spark, broker, topic).select("value").distinct().count() == 2000


def test_offsets_and_timestamps_bound_what_is_read(spark: SparkSession, broker: Broker) -> None:
    topic = broker.topic(1)
    broker.produce(
        topic, [b"%d" % nth for nth in range(100)], timestamps=[1_700_000_000_000 + nth for nth in range(100)]
    )

    def span(**options: Any) -> tuple[int, int]:
        found = load(spark, broker, topic, **options).selectExpr("min(offset)", "max(offset)").collect()[0]
        return found[0], found[1]

    assert span(startingOffsets=f'{{"{topic}": {{"0": 10}}}}', endingOffsets=f'{{"{topic}": {{"0": 20}}}}') == (10, 19)
    assert span(startingOffsets=f'{{"{topic}": {{"0": -2}}}}', endingOffsets=f'{{"{topic}": {{"0": -1}}}}') == (0, 99)
    assert span(startingTimestamp=1_700_000_000_050, endingTimestamp=1_700_000_000_060) == (50, 59)
    assert span(startingOffsetsByTimestamp=f'{{"{topic}": {{"0": 1700000000090}}}}') == (90, 99)
    assert span(endingTimestamp=1_800_000_000_000) == (0, 99)
    with pytest.raises(Exception, match="startingTimestamp: no record at or after the timestamp"):
        span(startingTimestamp=1_800_000_000_000)
    late = load(spark, broker, topic, startingTimestamp=1_800_000_000_000, startingOffsetsByTimestampStrategy="latest")
    assert late.count() == 0
    with pytest.raises(Exception, match=f"startingTimestamp: {topic}-0 would start at 60 and end at 50"):
        span(startingTimestamp=1_700_000_000_060, endingTimestamp=1_700_000_000_050)
    beyond = {"startingOffsets": f'{{"{topic}": {{"0": 1000}}}}'}
    with pytest.raises(Exception, match=f"startingOffsets: {topic}-0 would start at 1000 and end at 100"):
        span(**beyond)
    assert load(spark, broker, topic, **beyond, failOnDataLoss="false").count() == 0


def test_topics_by_pattern_and_partitions_by_name(spark: SparkSession, broker: Broker) -> None:
    topic = broker.topic(2)
    broker.produce(topic, [b"a"] * 3, partition=0)
    broker.produce(topic, [b"b"] * 4, partition=1)
    assert load(spark, broker, topic, subscribePattern=topic[:-1] + ".").count() == 7
    assert load(spark, broker, topic, assign=f'{{"{topic}": [1]}}').count() == 4
    assert load(spark, broker, topic, subscribePattern="no-such-topic.*").count() == 0


def test_a_schema_prunes_columns(spark: SparkSession, broker: Broker) -> None:
    topic = broker.topic(1)
    broker.produce(topic, [b"a", b"b"])
    found = load(spark, broker, topic, "offset bigint, value binary")
    assert found.columns == ["offset", "value"]
    assert [(row.offset, bytes(row.value)) for row in found.collect()] == [(0, b"a"), (1, b"b")]


def test_one_hot_partition_feeds_many_tasks(spark: SparkSession, broker: Broker) -> None:
    topic = broker.topic(1)
    broker.produce(topic, [b"x" * 1000 for _ in range(2000)])
    by_bytes = load(spark, broker, topic, splitBytes=200_000)
    assert by_bytes.rdd.getNumPartitions() >= 8
    assert by_bytes.select("offset").distinct().count() == 2000
    assert load(spark, broker, topic, minPartitions=5).rdd.getNumPartitions() == 5
    assert load(spark, broker, topic, maxRecordsPerPartition=500).rdd.getNumPartitions() == 4


def test_one_hot_partition_feeds_every_core_of_the_session(spark: SparkSession, broker: Broker) -> None:
    assert os.environ[cores.VARIABLE] == "2"
    topic = broker.topic(1)
    broker.produce(topic, [b"x" * 500_000 for _ in range(40)])
    read = load(spark, broker, topic)
    assert read.rdd.getNumPartitions() == spark.sparkContext.defaultParallelism == 2
    assert read.select("offset").distinct().count() == 40
    files = spark.read.format("mainstem").option("path", str(broker.log_dir(topic))).option("subscribe", topic).load()
    assert files.rdd.getNumPartitions() == 2
    assert files.count() == 40


def test_json_values_become_columns_and_bad_ones_are_set_aside(spark: SparkSession, broker: Broker) -> None:
    topic = broker.topic(1)
    broker.produce(topic, [b'{"id": 1, "name": "a"}', b"oops", None, b'{"id": 2}'], keys=[b"k"] * 4)
    schema = "id bigint, name string, _corrupt string, _offset bigint, _key binary"
    rows = load(spark, broker, topic, schema, valueFormat="json").orderBy("_offset").collect()
    assert [(row.id, row.name, row._corrupt) for row in rows] == [
        (1, "a", None),
        (None, None, "oops"),
        (None, None, None),
        (2, None, None),
    ]
    assert bytes(rows[0]._key) == b"k"
    with pytest.raises(Exception, match=f"the value at offset 1 of {topic}-0 does not fit the schema: 'oops'"):
        load(spark, broker, topic, "id bigint", valueFormat="json").collect()


def test_a_number_that_spark_has_written_comes_back_as_it_is_or_not_at_all(
    spark: SparkSession, mainstem_broker: Broker
) -> None:
    topic = mainstem_broker.topic(1)
    written = spark.sql(
        """select to_json(struct(f, d)) value from values
           (cast('NaN' as double), 1.5), (double('-Infinity'), 999.99), (3.5e38, 0.0), (1.5, 1000.0) rows(f, d)"""
    )
    values = [str(row["value"]).encode() for row in written.collect()]
    assert values[0] == b'{"f":"NaN","d":1.50}'
    mainstem_broker.produce(topic, values)
    schema = "f float, d decimal(5,2), _corrupt string, _offset bigint"
    rows = load(spark, mainstem_broker, topic, schema, valueFormat="json").orderBy("_offset").collect()
    assert [(str(row["f"]), str(row["d"])) for row in rows] == [
        ("nan", "1.50"),
        ("-inf", "999.99"),
        ("None", "None"),
        ("None", "None"),
    ]
    assert [row["_corrupt"] for row in rows] == [None, None, *(value.decode() for value in values[2:])]


def test_bytes_are_the_base64_that_spark_writes_and_reads(spark: SparkSession, mainstem_broker: Broker) -> None:
    from pyspark.sql import functions as f

    topic = mainstem_broker.topic(1)
    (written,) = spark.sql("select to_json(struct(unhex('00ff10') b)) value").collect()
    texts = [
        "",
        "aA==",
        "aB==",
        "aGVs",
        "aGVsbG8",
        "aG Vs",
        "aGVs bG8=",
        " aGVs\n",
        "aGV=aGVs",
        "aGVs====",
        "-_-_",
        "=",
    ]
    values = [str(written["value"]), *(json.dumps({"b": text}) for text in texts), '{"b": 5}', '{"b": null}']
    mainstem_broker.produce(topic, [value.encode() for value in values])
    schema = "b binary, _corrupt string, _offset bigint"
    ours = load(spark, mainstem_broker, topic, schema, valueFormat="json").orderBy("_offset").collect()
    told = f.from_json("value", "b binary, _corrupt string", {"columnNameOfCorruptRecord": "_corrupt"})
    frame = spark.createDataFrame([(value,) for value in values], "value string")
    spark_s = [row["x"] for row in frame.select(told.alias("x")).collect()]
    assert [(row["b"], row["_corrupt"] is None) for row in ours] == [(x["b"], x["_corrupt"] is None) for x in spark_s]
    assert bytes(ours[0]["b"]) == b"\x00\xff\x10"


def test_string_values_are_strings(spark: SparkSession, broker: Broker) -> None:
    topic = broker.topic(1)
    broker.produce(topic, ["grüß".encode(), None])
    found = load(spark, broker, topic, valueFormat="string")
    assert dict(found.dtypes)["value"] == "string"
    assert [row.value for row in found.orderBy("offset").collect()] == ["grüß", None]


def test_filters_narrow_what_is_read(spark: SparkSession, broker: Broker) -> None:
    topic = broker.topic(2)
    broker.produce(topic, [b"%d" % nth for nth in range(100)], partition=0, timestamps=[10**12 + n for n in range(100)])
    broker.produce(topic, [b"x"] * 50, partition=1, timestamps=[1] * 50)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        found = load(spark, broker, topic, pushFilters="true", minPartitions=1)
        assert found.where("partition = 0 and offset >= 90 and offset < 95").count() == 5
        assert found.where("timestamp >= timestamp_millis(1000000000050)").count() == 50
        assert found.where("partition in (1)").count() == 50
        assert found.where("offset = 7").count() == 2
        # Offsets by partition name all of them, also where a filter leaves one.
        bounds = {"startingOffsets": '{"%s": {"0": 10, "1": 20}}', "endingOffsets": '{"%s": {"0": 15, "1": -1}}'}
        given = load(spark, broker, topic, pushFilters="true", **{name: text % topic for name, text in bounds.items()})
        assert given.where("partition = 0").count() == 5
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_read_committed_leaves_out_what_was_aborted_or_is_open(spark: SparkSession, broker: Broker) -> None:
    from confluent_kafka import Producer

    topic = broker.topic(1)

    def transaction(values: list[bytes], end: str) -> Producer:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"{topic}-{values[0]!r}"})
        producer.init_transactions(30)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        producer.flush(30)
        if end == "commit":
            producer.commit_transaction(30)
        elif end == "abort":
            producer.abort_transaction(30)
        return producer

    transaction([b"a", b"b"], "commit")
    transaction([b"c"] * 3, "abort")
    transaction([b"d"], "commit")
    still_open = transaction([b"e"], "")
    broker.produce(topic, [b"f"], partition=0)
    committed = load(spark, broker, topic, kafka__isolation__level="read_committed")
    assert [bytes(row.value) for row in committed.orderBy("offset").collect()] == [b"a", b"b", b"d"]
    assert load(spark, broker, topic).count() == 8
    still_open.abort_transaction(30)


def test_records_that_are_gone_fail_the_query_or_are_passed_over(spark: SparkSession, broker: Broker) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    topic = broker.topic(1)
    broker.produce(topic, [b"%d" % nth for nth in range(20)])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for done in admin.delete_records([TopicPartition(topic, 0, 5)]).values():
        done.result(30)
    start = {"startingOffsets": f'{{"{topic}": {{"0": 2}}}}'}
    with pytest.raises(Exception, match=r"records from offset 2 on are wanted, but the log begins at 5"):
        load(spark, broker, topic, **start).count()
    assert load(spark, broker, topic, **start, failOnDataLoss="false").count() == 15
    beyond = {"endingOffsets": f'{{"{topic}": {{"0": 100}}}}', "failOnDataLoss": "false"}
    assert load(spark, broker, topic, **beyond).count() == 15


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"subscribe": "no-such-topic"}, "there is no topic no-such-topic"),
        ({"startingOffsets": '{"other": {"0": 1}}'}, "startingOffsets: must name every partition"),
        ({"assign": '{"T": [9]}'}, "there is no partition T-9; T has 1"),
        ({"assign": '{"no-such-topic": [0]}'}, "assign: there is no topic no-such-topic"),
        ({"endingOffsets": '{"T": {"0": 7}}'}, "endingOffsets: T-0 ends at 0 now, 7 is beyond it"),
    ],
)
def test_mistakes_are_told_in_a_sentence(
    spark: SparkSession, broker: Broker, options: dict[str, str], sentence: str
) -> None:
    topic = broker.topic(1)
    given = {name: value.replace("T", topic) for name, value in options.items()}
    reader = spark.read.format("mainstem").option("kafka.bootstrap.servers", broker.bootstrap)
    if not {"assign", "subscribe"} & set(given):
        reader = reader.option("subscribe", topic)
    with pytest.raises(Exception, match=sentence.replace("T", topic)):
        reader.options(**given).load().count()
