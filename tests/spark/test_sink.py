"""The sink: rows arrive where and as they should, all or nothing, and once, whoever dies on the way."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mainstem.spark.decisions import TOPIC
from mainstem.spark.pipelines.starting import started
from tests.spark.brokers import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(600)]

WORKER_STEPS = ["begin-transaction", "flush", "flushed"]
DRIVER_STEPS = ["decide", "write-decision", "decided", "commit-one", "note-finished"]


def save(frame: DataFrame, broker: Broker, topic: str | None, **options: Any) -> None:
    writer = frame.write.format("mainstem").mode("append").option("kafka.bootstrap.servers", broker.bootstrap)
    if topic is not None:
        writer = writer.option("topic", topic)
    for name, value in options.items():
        writer = writer.option(name.replace("__", "."), value)
    writer.save()


def copy(
    spark: SparkSession,
    broker: Broker,
    source: str,
    target: str,
    checkpoint: Path,
    kind: str = "mainstem",
    **options: Any,
) -> StreamingQuery:
    frame = (
        spark.readStream.format("mainstem")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 400)
        .load()
        .select("key", "value")
    )

    def begin() -> StreamingQuery:
        writer = frame.writeStream.format(kind).option("kafka.bootstrap.servers", broker.bootstrap)
        writer = writer.option("topic", target).option("checkpointLocation", str(checkpoint)).options(**options)
        return writer.trigger(availableNow=True).start()

    return started(begin)


def test_keys_go_where_every_producer_sends_them(spark: SparkSession, broker: Broker) -> None:
    theirs, ours = broker.topic(5), broker.topic(5)
    keys = [b"%x" % (nth * nth) for nth in range(400)]
    broker.produce(theirs, keys, keys=keys, partitioner="murmur2_random")
    frame = spark.createDataFrame([(bytearray(key), bytearray(key)) for key in keys], "key binary, value binary")
    save(frame, broker, ours, guarantee="at_least_once")
    assert {each.key: each.partition for each in broker.read(ours)} == {
        each.key: each.partition for each in broker.read(theirs)
    }


def test_every_column_arrives(spark: SparkSession, broker: Broker) -> None:
    topic = broker.topic(3)
    frame = spark.sql(
        f"""select 'k' key, cast(null as binary) value, '{topic}' topic, 2 partition,
            timestamp_millis(1234567) timestamp, 7 ignored,
            array(named_struct('key', 'h', 'value', cast('x' as binary))) headers"""
    )
    save(frame, broker, None, guarantee="at_least_once", useTimestampColumn="true")
    (read,) = broker.read(topic)
    assert (read.partition, read.key, read.value, read.timestamp) == (2, b"k", None, 1234567)
    assert read.headers == [("h", b"x")]


def test_rows_without_a_key_are_spread(spark: SparkSession, broker: Broker) -> None:
    topic = broker.topic(2)
    save(spark.range(20_000).selectExpr("cast(id as string) value"), broker, topic, guarantee="at_least_once")
    read = broker.read(topic)
    assert sorted(int(each.value or b"") for each in read) == list(range(20_000))
    assert {each.partition for each in read} == {0, 1}


@pytest.mark.parametrize("codec", ["none", "zstd", "lz4"])
def test_a_batch_write_is_there_when_it_returns(spark: SparkSession, broker: Broker, codec: str) -> None:
    topic = broker.topic(3)
    frame = spark.range(5000).repartition(3).selectExpr("cast(id as string) key", "cast(id as string) value")
    save(frame, broker, topic, kafka__compression__type=codec)
    assert sorted(int(each.value or b"") for each in broker.read(topic)) == list(range(5000))


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_rows_arrive_where_a_topic_takes_only_small_batches(
    spark: SparkSession, broker: Broker, codec: str, guarantee: str
) -> None:
    """In order, too: what is refused goes out as smaller batches before what comes after it."""
    topic = broker.topic(2, {"max.message.bytes": "100000"})
    noise = "concat(sha2(cast(id as string), 512), sha2(cast(-id as string), 512)) value"
    frame = spark.range(0, 20_000, 1, 2).selectExpr("cast(id as string) key", noise)
    for _ in range(2):  # processes keep a producer without transactions
        save(frame, broker, topic, guarantee=guarantee, kafka__compression__type=codec)
    read = broker.read(topic)
    assert sorted(int(each.key or b"") for each in read) == sorted(2 * [*range(20_000)])
    for number, least in ((0, 0), (0, 10_000), (1, 0), (1, 10_000)):
        of_a_task = [
            int(each.key or b"")
            for each in read
            if each.partition == number and least <= int(each.key or b"") < least + 10_000
        ]
        assert of_a_task == 2 * sorted({*of_a_task})


def test_a_row_that_is_more_than_the_topic_takes_is_named(spark: SparkSession, broker: Broker) -> None:
    topic = broker.topic(1, {"max.message.bytes": "100000"})
    frame = spark.range(0, 100, 1, 1).selectExpr(
        "concat('row ', id) key", "if(id = 7, repeat('x', 200000), 'small') value"
    )
    with pytest.raises(
        Exception, match=r"one row is more than the topic takes, 2\d{5} bytes: its key begins with b'row 7'"
    ):
        save(frame, broker, topic)
    assert broker.values(topic) == []


def test_a_batch_write_that_fails_leaves_nothing(spark: SparkSession, broker: Broker) -> None:
    topic = broker.topic(1)
    frame = spark.range(0, 1000, 1, 4).selectExpr(
        "cast(id as string) key", "if(id = 900, raise_error('no'), cast(id as string)) value"
    )
    with pytest.raises(Exception, match="no"):
        save(frame, broker, topic)
    save(spark.sql("select 'a' value"), broker, topic)
    # Spark does not wait for the tasks that still ran, but none of them holds readers back.
    assert broker.values(topic) == [b"a"]


def test_a_write_of_which_no_task_succeeds_holds_nobody_back(spark: SparkSession, broker: Broker) -> None:
    """Readers of what is committed would wait for its transaction until that times out."""
    topic = broker.topic(1)
    frame = spark.range(0, 200_000, 1, 1).selectExpr("if(id = 190000, raise_error('no'), cast(id as string)) value")
    with pytest.raises(Exception, match="no"):
        save(frame, broker, topic)
    broker.produce(topic, [b"a"])
    assert broker.values(topic) == [b"a"]


def test_a_write_without_a_name_is_forgotten_when_it_is_done(spark: SparkSession, broker: Broker) -> None:
    """Each is a sink of its own: the log of decisions would grow by every one of them for good."""

    def kept() -> set[bytes | None]:
        last = {each.key: each.value for each in broker.read(TOPIC)}
        return {key for key, value in last.items() if value is not None}

    topic = broker.topic(1)
    save(spark.sql("select 'a' value"), broker, topic, txnAppId=topic, txnVersion=1)
    before = kept()
    save(spark.sql("select 'b' value"), broker, topic)
    assert kept() == before
    assert broker.values(topic) == [b"a", b"b"]


def test_a_named_write_happens_once(spark: SparkSession, broker: Broker) -> None:
    topic = broker.topic(1)
    for version in (0, 0, 1, 0, 1):
        save(spark.sql(f"select '{version}' value"), broker, topic, txnAppId=f"job-{topic}", txnVersion=version)
    assert broker.values(topic) == [b"0", b"1"]


def test_a_name_with_a_colon_is_not_taken_for_a_name_and_a_topic(spark: SparkSession, broker: Broker) -> None:
    topic = broker.topic(1)
    save(spark.sql("select 'a' value"), broker, topic, txnAppId="daily", txnVersion=1)
    save(spark.sql(f"select 'b' value, '{topic}' topic"), broker, None, txnAppId=f"daily:{topic}", txnVersion=1)
    assert broker.values(topic) == [b"a", b"b"]


def test_one_name_does_for_the_writes_of_a_batch_to_several_topics(spark: SparkSession, broker: Broker) -> None:
    """Who writes a batch to two tables of Delta gives both writes the same name: the second must not be left out."""
    topics = [broker.topic(1), broker.topic(1)]
    for version in (0, 1, 1):
        for topic in topics:
            save(spark.sql(f"select '{version}' value"), broker, topic, txnAppId=topics[0], txnVersion=version)
    assert [broker.values(topic) for topic in topics] == [[b"0", b"1"], [b"0", b"1"]]


def test_a_stream_from_topic_to_topic_arrives_once_and_in_order(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    source, target = broker.topic(3), broker.topic(3)
    keys = [b"%d" % (nth % 50) for nth in range(2000)]
    broker.produce(source, [b"%d" % nth for nth in range(2000)], keys=keys, partitioner="murmur2_random")
    assert copy(spark, broker, source, target, tmp_path).awaitTermination(300)
    original, copied = broker.read(source), broker.read(target)
    assert [(each.partition, each.key, each.value) for each in copied] == [
        (each.partition, each.key, each.value) for each in original
    ]


def test_at_least_once_works_without_transactions(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    source, target = broker.topic(2), broker.topic(2)
    broker.produce(source, [b"%d" % nth for nth in range(1000)])
    assert copy(spark, broker, source, target, tmp_path, guarantee="at_least_once").awaitTermination(300)
    assert broker.values(target) == broker.values(source)


@pytest.mark.parametrize("step", WORKER_STEPS)
def test_a_killed_worker_is_replaced_and_nothing_is_doubled(
    spark: SparkSession, broker: Broker, tmp_path: Path, step: str
) -> None:
    from tests.spark.crashing import CrashingSource

    spark.dataSource.register(CrashingSource)
    source, target = broker.topic(2), broker.topic(2)
    broker.produce(source, [b"%d" % nth for nth in range(1000)])
    crash = {"crashAt": step, "crashMarker": str(tmp_path / "crashed")}
    query = copy(spark, broker, source, target, tmp_path / "checkpoint", "crashing", **crash)
    assert query.awaitTermination(300)
    assert (tmp_path / "crashed-0").exists()
    assert broker.values(target) == broker.values(source)


@pytest.mark.parametrize("step", DRIVER_STEPS)
def test_a_commit_that_is_killed_fails_the_query_and_the_next_run_goes_on(
    spark: SparkSession, broker: Broker, tmp_path: Path, step: str
) -> None:
    from tests.spark.crashing import CrashingSource

    spark.dataSource.register(CrashingSource)
    source, target = broker.topic(2), broker.topic(2)
    broker.produce(source, [b"%d" % nth for nth in range(1000)])
    crash = {"crashAt": step, "crashMarker": str(tmp_path / "crashed")}
    query = copy(spark, broker, source, target, tmp_path / "checkpoint", "crashing", **crash)
    with pytest.raises(Exception, match=r"crash|EOF|exited|STREAM_FAILED"):
        query.awaitTermination(300)
    assert (tmp_path / "crashed-0").exists()
    assert copy(spark, broker, source, target, tmp_path / "checkpoint", "crashing", **crash).awaitTermination(300)
    assert broker.values(target) == broker.values(source)


@pytest.mark.parametrize(
    ("sql", "options", "sentence"),
    [
        ("select 1 key, 'a' value", {}, "column key is int; it must be binary or string"),
        ("select 'a' key", {}, "the sink needs a column value"),
        ("select 'a' value, 9 partition", {}, "partitions 0 to 0; a row says 9"),
        ("select 'a' value", {"useTimestampColumn": "true"}, "there is no column timestamp"),
        ("select 'a' value", {"sinkId": "mine"}, "sinkId: is for streams; name a batch write with txnAppId"),
        ("select 'a' value", {"topic": "no-such-topic"}, "topic: there is no topic no-such-topic"),
    ],
)
def test_mistakes_are_told_in_a_sentence(
    spark: SparkSession, broker: Broker, sql: str, options: dict[str, str], sentence: str
) -> None:
    topic = broker.topic(1)
    given = {"guarantee": "at_least_once", **options}
    with pytest.raises(Exception, match=sentence):
        save(spark.sql(sql), broker, given.pop("topic", topic), **given)
