"""The one test with Spark in `make test`: Spark finds the source and reads a topic. `make test-spark` has the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.brokers import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.timeout(600)
def test_spark_finds_the_source_and_reads_a_topic(spark: SparkSession, mainstem_broker: Broker) -> None:
    topic = mainstem_broker.topic()
    mainstem_broker.produce(topic, [b"v%d" % nth for nth in range(300)], keys=[b"k%d" % nth for nth in range(300)])
    options = {"kafka.bootstrap.servers": mainstem_broker.bootstrap, "subscribe": topic}
    expected = [(each.key, each.value, topic, each.partition, each.offset) for each in mainstem_broker.read(topic)]

    batch = spark.read.format("mainstem").options(**options).load()
    rows = batch.select("key", "value", "topic", "partition", "offset").collect()
    assert sorted((bytes(r[0]), bytes(r[1]), *r[2:]) for r in rows) == sorted(expected)
