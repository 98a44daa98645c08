"""Segment files as a source: the same rows as through a broker, from our files, Kafka's, and copies of them."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.brokers import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(600)]


def files(spark: SparkSession, path: Path, **options: Any) -> DataFrame:
    reader = spark.read.format("mainstem").option("path", str(path))
    for name, value in options.items():
        reader = reader.option(name.replace("__", "."), value)
    return reader.load()


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_files_have_what_the_broker_has(spark: SparkSession, broker: Broker, codec: str) -> None:
    topic = broker.topic(2, {"segment.bytes": str(1 << 20)})
    broker.produce(
        topic,
        [random.Random(nth).randbytes(400) for nth in range(8000)],
        keys=[b"%d" % nth for nth in range(8000)],
        compression_type=codec,
    )
    found = files(spark, broker.log_dir(topic), subscribe=topic, splitBytes=500_000)
    rows = found.select("partition", "offset", "key", "value").orderBy("partition", "offset").collect()
    assert [(r.partition, r.offset, bytes(r.key), bytes(r.value)) for r in rows] == [
        (each.partition, each.offset, each.key, each.value) for each in broker.read(topic)
    ]
    assert len(list((broker.log_dir(topic) / f"{topic}-0").glob("*.log"))) > 1


def test_one_folder_is_enough_and_a_torn_end_is_left_out(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic = broker.topic(1)
    broker.produce(topic, [b"%d" % nth for nth in range(500)], batch_size=2000)
    folder = tmp_path / f"{topic}-0"
    shutil.copytree(broker.log_dir(topic) / f"{topic}-0", folder)
    (log,) = folder.glob("*.log")
    size = len(log.read_bytes().rstrip(b"\0"))
    with open(log, "r+b") as file:
        file.truncate(size - 5)
    for index in folder.glob("*.index"):
        index.unlink()
    whole = files(spark, folder).count()
    assert 0 < whole < 500
    assert files(spark, folder, startingOffsets=f'{{"{topic}": {{"0": 10}}}}').count() == whole - 10


def test_what_was_aborted_or_is_open_is_left_out_of_files(spark: SparkSession, broker: Broker) -> None:
    from confluent_kafka import Producer

    topic = broker.topic(1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for nth, commit in enumerate([True, False, True, False, True]):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % nth, partition=0)
        producer.flush(30)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(30)
    broker.produce(topic, [b"after"], partition=0)
    path = broker.log_dir(topic)
    committed = files(spark, path, subscribe=topic, kafka__isolation__level="read_committed")
    assert [bytes(row.value) for row in committed.orderBy("offset").collect()] == [b"0", b"2", b"4"]
    assert files(spark, path, subscribe=topic).count() == 7
    producer.abort_transaction(30)


def test_min_partitions_is_for_files_too(spark: SparkSession, mainstem_broker: Broker) -> None:
    topic = mainstem_broker.topic(2)
    for number in range(2):
        mainstem_broker.produce(topic, [b"x" * 1000] * 1000, partition=number, batch_size=16_000)
    found = files(spark, mainstem_broker.log_dir(topic), subscribe=topic, minPartitions=8)
    assert found.rdd.getNumPartitions() >= 8
    assert found.count() == 2000


def test_files_that_a_filter_rules_out_are_not_read(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic = broker.topic(2)
    for number in range(2):
        broker.produce(topic, [b"x" * 100] * 500, partition=number)
        shutil.copytree(broker.log_dir(topic) / f"{topic}-{number}", tmp_path / f"{topic}-{number}")
    (log,) = (tmp_path / f"{topic}-0").glob("*.log")
    with open(log, "r+b") as file:
        file.seek(200)
        file.write(b"damage")
    with pytest.raises(Exception, match="has a batch that cannot be read"):
        files(spark, tmp_path).where("partition = 1").count()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        found = files(spark, tmp_path, pushFilters="true")
        assert found.where("partition = 1 and offset >= 400 and offset < 450").count() == 50
        assert found.where("partition = 1 and timestamp > timestamp'2020-01-01 00:00:00'").count() == 500
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_directory_without_partitions_is_told(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"has no partition of all topics; it is to be a log directory"):
        files(spark, tmp_path).count()
    with pytest.raises(Exception, match="is no directory"):
        files(spark, tmp_path / "none").count()
