"""The streaming source: nothing lost at the start, limits kept, partitions that come later, progress that is seen."""

from __future__ import annotations

import asyncio
import json
import random
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mainstem.client.cluster import Cluster
from mainstem.client.options import ConsumerOptions
from mainstem.spark import questions
from mainstem.spark.offsets import LATEST, Offsets
from mainstem.spark.options import Topics
from mainstem.spark.pipelines.starting import started
from tests.spark.brokers import Broker
from tests.spark.queries import until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(600)]


def stream(spark: SparkSession, broker: Broker, topic: str, **options: Any) -> DataFrame:
    reader = spark.readStream.format("mainstem").option("kafka.bootstrap.servers", broker.bootstrap)
    for name, value in {"subscribe": topic, **options}.items():
        reader = reader.option(name.replace("__", "."), value)
    return reader.load()


def start(frame: DataFrame, checkpoint: Path, **trigger: Any) -> tuple[StreamingQuery, str]:
    name = f"q{uuid.uuid4().hex[:8]}"

    def begin() -> StreamingQuery:
        folder = checkpoint / uuid.uuid4().hex  # a table in memory cannot go on from one that is there
        writer = frame.writeStream.format("memory").queryName(name).option("checkpointLocation", str(folder))
        return writer.trigger(**trigger).start()

    return started(begin), name


def land(frame: DataFrame, home: Path) -> StreamingQuery:
    """What is available now to files, which go on from a checkpoint; a table in memory cannot."""

    def begin() -> StreamingQuery:
        writer = frame.writeStream.format("parquet").option("path", str(home / "rows"))
        return writer.option("checkpointLocation", str(home / "checkpoint")).trigger(availableNow=True).start()

    return started(begin)


def landed(spark: SparkSession, home: Path) -> list[bytes]:
    return sorted(bytes(row.value) for row in spark.read.parquet(str(home / "rows")).collect())


def batches(query: StreamingQuery) -> list[int]:
    return [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]


def test_a_start_at_latest_loses_nothing_that_comes_meanwhile(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = broker.topic(2)
    broker.produce(topic, [b"old"] * 10)
    query, name = start(stream(spark, broker, topic), tmp_path, processingTime="0 seconds")
    try:
        until(lambda: bool(query.recentProgress), query)
        broker.produce(topic, [b"%d" % nth for nth in range(200)])
        until(lambda: spark.table(name).count() >= 200, query)
        values = [bytes(row.value) for row in spark.table(name).collect()]
        assert sorted(values) == sorted(b"%d" % nth for nth in range(200))
    finally:
        query.stop()


def test_the_first_batch_of_a_start_at_latest_is_empty_and_pins_the_start(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = broker.topic(1)
    broker.produce(topic, [b"old"] * 10)
    assert land(stream(spark, broker, topic), tmp_path).awaitTermination(120)
    broker.produce(topic, [b"new"] * 5)
    assert land(stream(spark, broker, topic), tmp_path).awaitTermination(120)
    assert landed(spark, tmp_path) == [b"new"] * 5


def test_a_limit_is_kept_and_available_now_ends(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic = broker.topic(3)
    broker.produce(topic, [b"%d" % nth for nth in range(1000)])
    frame = stream(spark, broker, topic, startingOffsets="earliest", maxOffsetsPerTrigger=300)
    query, name = start(frame, tmp_path, availableNow=True)
    assert query.awaitTermination(120)
    assert spark.table(name).count() == 1000
    assert max(batches(query)) <= 302
    assert len(batches(query)) >= 4


def test_a_query_goes_on_where_it_stopped(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic = broker.topic(2)
    for run in range(3):
        broker.produce(topic, [b"%d-%d" % (run, nth) for nth in range(100)])
        assert land(stream(spark, broker, topic, startingOffsets="earliest"), tmp_path).awaitTermination(120)
        assert landed(spark, tmp_path) == broker.values(topic)


def test_too_few_records_wait_until_the_delay_is_over(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic = broker.topic(1)
    broker.produce(topic, [b"first"] * 10)
    frame = stream(spark, broker, topic, startingOffsets="earliest", minOffsetsPerTrigger=100, maxTriggerDelay="8s")
    query, name = start(frame, tmp_path, processingTime="0 seconds")
    try:
        until(lambda: spark.table(name).count() == 10, query)
        began = time.monotonic()
        broker.produce(topic, [b"few"] * 5)
        until(lambda: spark.table(name).count() == 15, query)
        assert time.monotonic() - began > 3
        broker.produce(topic, [b"many"] * 200)
        until(lambda: spark.table(name).count() == 215, query)
    finally:
        query.stop()


def test_partitions_that_come_later_are_read_from_their_beginning(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = broker.topic(1)
    query, name = start(stream(spark, broker, topic), tmp_path, processingTime="0 seconds")
    try:
        until(lambda: bool(query.recentProgress), query)
        broker.grow(topic, 3)
        broker.produce(topic, [b"late"] * 20, partition=2)
        until(lambda: spark.table(name).count() == 20, query)
    finally:
        query.stop()


def test_progress_is_committed_to_the_group(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic, group = broker.topic(1), f"g-{uuid.uuid4().hex[:8]}"
    broker.produce(topic, [b"a"] * 10)
    frame = stream(spark, broker, topic, startingOffsets="earliest", kafka__group__id=group)
    query, name = start(frame, tmp_path, processingTime="0 seconds")
    try:
        until(lambda: spark.table(name).count() == 10, query)
        broker.produce(topic, [b"b"] * 10)
        until(lambda: spark.table(name).count() == 20, query)
        until(lambda: broker.committed(group, topic, 1)[0] >= 10, query)
        progress = query.lastProgress
        assert progress is not None
        latest = json.loads(progress.json)["sources"][0]["latestOffset"]
        assert latest[topic]["0"] == 20
    finally:
        query.stop()


def test_a_topic_made_anew_is_lost_data(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic = broker.topic(1)
    broker.produce(topic, [b"a"] * 10)
    options = {"startingOffsets": "earliest", "fetchOffset__retryIntervalMs": 10}
    assert land(stream(spark, broker, topic, **options), tmp_path).awaitTermination(120)
    broker.make_anew(topic, 1)
    broker.produce(topic, [b"b"] * 3)
    query = land(stream(spark, broker, topic, **options), tmp_path)
    with pytest.raises(Exception, match=r"the log ends at 3 now; they were deleted"):
        query.awaitTermination(120)


def test_a_topic_made_anew_under_a_query_is_lost_data_also_where_it_is_longer(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """By the offsets of the old one, what the new one begins with would be left out without a word."""
    topic = broker.topic(1)
    broker.produce(topic, [b"a"] * 10)
    query, name = start(stream(spark, broker, topic, startingOffsets="earliest"), tmp_path, processingTime="10 seconds")
    try:
        until(lambda: spark.table(name).count() == 10, query)
        broker.make_anew(topic, 1)
        broker.produce(topic, [b"b"] * 20)
        with pytest.raises(Exception, match=rf"{topic}-0: .* is another one: the topic was deleted and made anew"):
            query.awaitTermination(120)
    finally:
        query.stop()


def test_a_new_partition_whose_beginning_is_gone_is_lost_data(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    topic = broker.topic(1)
    broker.produce(topic, [b"a"])
    options = {"startingOffsets": "earliest", "fetchOffset__retryIntervalMs": 10}
    assert land(stream(spark, broker, topic, **options), tmp_path).awaitTermination(120)
    broker.grow(topic, 2)
    broker.produce(topic, [b"%d" % nth for nth in range(10)], partition=1)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (deleted,) = admin.delete_records([TopicPartition(topic, 1, 4)]).values()
    deleted.result(30)
    query = land(stream(spark, broker, topic, **options), tmp_path)
    with pytest.raises(Exception, match=rf"{topic}-1: records from offset 0 on are wanted, but the log begins at 4"):
        query.awaitTermination(120)
    assert land(stream(spark, broker, topic, **options, failOnDataLoss="false"), tmp_path).awaitTermination(120)
    assert landed(spark, tmp_path) == [*(b"%d" % nth for nth in range(4, 10)), b"a"]


def test_a_topic_of_a_pattern_that_is_deleted_does_not_end_a_query_that_accepts_losses(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    from confluent_kafka.admin import AdminClient

    prefix = f"p-{uuid.uuid4().hex[:8]}"
    for name in ("one", "two"):
        broker.make_topic(f"{prefix}.{name}", 1)
        broker.produce(f"{prefix}.{name}", [b"first"] * 5)
    reader = spark.readStream.format("mainstem").option("kafka.bootstrap.servers", broker.bootstrap)
    reader = reader.option("subscribePattern", f"{prefix}.*").option("startingOffsets", "earliest")
    frame = reader.option("failOnDataLoss", "false").option("fetchOffset.retryIntervalMs", 10).load()
    query, name = start(frame, tmp_path, processingTime="0 seconds")
    try:
        until(lambda: spark.table(name).count() == 10, query)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.delete_topics([f"{prefix}.one"])[f"{prefix}.one"].result(30)
        broker.produce(f"{prefix}.two", [b"second"] * 5)
        until(lambda: spark.table(name).count() == 15, query)
    finally:
        query.stop()


def test_a_batch_that_is_run_again_passes_over_a_topic_that_was_deleted_meanwhile(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """Where losses are accepted: the query could never go on otherwise."""
    from confluent_kafka.admin import AdminClient

    prefix = f"p-{uuid.uuid4().hex[:8]}"
    for name in ("one", "two"):
        broker.make_topic(f"{prefix}.{name}", 1)
        broker.produce(f"{prefix}.{name}", [name.encode()] * 5)
    reader = spark.readStream.format("mainstem").option("kafka.bootstrap.servers", broker.bootstrap)
    reader = reader.option("subscribePattern", f"{prefix}.*").option("startingOffsets", "earliest")
    frame = reader.option("failOnDataLoss", "false").option("fetchOffset.retryIntervalMs", 10).load()
    folder = tmp_path / "checkpoint"

    def begin() -> StreamingQuery:
        writer = frame.writeStream.foreachBatch(lambda rows, _: seen.append(rows.count()))
        return writer.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()

    seen: list[int] = []
    started(begin).awaitTermination()
    assert seen == [10]
    # As if the run had died before Spark noted that the batch is done.
    for done in (folder / "commits").iterdir():
        done.unlink()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([f"{prefix}.one"])[f"{prefix}.one"].result(30)
    deadline = time.monotonic() + 60
    while f"{prefix}.one" in admin.list_topics(timeout=30).topics:
        assert time.monotonic() < deadline, "Kafka deletes a topic when it gets round to it, but not this one"
        time.sleep(0.05)
    started(begin).awaitTermination()
    # The second batch of it, without the topic, has nothing new.
    assert seen[:2] == [10, 5]
    assert sum(seen[2:]) == 0


def test_offsets_are_listed_without_what_was_deleted_meanwhile(broker: Broker) -> None:
    from confluent_kafka.admin import AdminClient

    kept, deleted = broker.topic(2), broker.topic(1)
    broker.produce(kept, [b"a"] * 3, partition=1)
    options = ConsumerOptions(bootstrap_servers=broker.bootstrap)

    async def story() -> Offsets:
        async with Cluster(options, random.Random()) as cluster:
            await questions.partitions(cluster, Topics(pattern="t-.*"))
            there = {(kept, 0): LATEST, (kept, 1): LATEST, (deleted, 0): LATEST}
            assert (await questions.list_offsets(cluster, there)).keys() == there.keys()
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            await asyncio.to_thread(admin.delete_topics([deleted])[deleted].result, 30)
            async with asyncio.timeout(60):
                # Kafka deletes a topic when it gets round to it.
                while (deleted, 0) in (found := await questions.list_offsets(cluster, there, leaves_out_gone=True)):
                    await asyncio.sleep(0.05)
            return found

    assert asyncio.run(story()) == {(kept, 0): 0, (kept, 1): 3}
