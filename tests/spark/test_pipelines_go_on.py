"""A pipeline goes on: past records that are gone, through a backlog of any length, and with a new checkpoint."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.spark.brokers import Broker
from tests.spark.test_pipelines import quietly
from tests.support.node import Node

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(600)]

SHORT = {
    "transaction.max.timeout.ms": "4000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
RECORDS_PER_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
SQL = "select value from input"


def delete_before(broker: Broker, topic: str, offset: int) -> None:
    where = TopicPartition(topic, 0, offset)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_records([where])[where].result(30)


def test_a_pipeline_goes_on_past_records_that_are_gone_where_that_is_accepted(
    spark: SparkSession, broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from mainstem.cli.main import main
    from mainstem.spark.pipelines import lake, transform

    topic, target, at = broker.topic(1), broker.topic(1), ["-b", broker.bootstrap]
    broker.produce(topic, [b"%d" % nth for nth in range(10)])
    job = transform.Transform(broker.bootstrap, topic, target, tmp_path / "checkpoint")
    landing = lake.Lake(broker.bootstrap, topic, tmp_path / "lake")
    quietly(transform.run, spark, job, SQL)
    quietly(lake.run, spark, landing)
    broker.produce(topic, [b"%d" % nth for nth in range(10, 20)])
    delete_before(broker, topic, 15)
    transforming = ["pipeline", "transform", topic, target, "--checkpoint", str(job.checkpoint), "--sql", SQL, *at]
    for words in (transforming, ["pipeline", "lake", topic, str(landing.path), *at]):
        for _ in range(2):
            capsys.readouterr()
            assert main(words) == 1
            told = capsys.readouterr().err
            assert "log begins at 15: offsets 10 to 14 are gone; " in told
            assert "of a pipeline that is --accept-data-loss, or accept_data_loss=True" in told
        assert main([*words, "--accept-data-loss"]) == 0
    kept = [*range(10), *range(15, 20)]
    assert [each.value for each in broker.read(target)] == [b"%d" % nth for nth in kept]
    landed = lake.rows(spark, landing.path).select("offset").orderBy("offset").collect()
    assert [row.offset for row in landed] == kept


@pytest.fixture
def small_batches(spark: SparkSession) -> Iterator[None]:
    """Rows go to the sink as they come, and its transaction begins with the first of them."""
    before = spark.conf.get(RECORDS_PER_BATCH)
    assert before is not None
    spark.conf.set(RECORDS_PER_BATCH, "10")
    yield
    spark.conf.set(RECORDS_PER_BATCH, before)


def slowly(frame: DataFrame) -> DataFrame:
    """A tenth of a second for each ten rows."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for at in range(0, batch.num_rows, 10):
                time.sleep(0.1)
                yield batch.slice(at, 10)

    return frame.select("value").mapInArrow(work, "value string")


VALUES = [b"%06d" % nth + b"x" * 4000 for nth in range(700)]


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize(("records", "size"), [(100, 1 << 30), (10_000, 400_000)], ids=["records", "bytes"])
def test_a_backlog_longer_than_transactions_may_be_open_is_written_in_batches(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: int, size: int
) -> None:
    from mainstem.spark.pipelines import topic_stream, transform

    monkeypatch.setattr(topic_stream, "BATCH_RECORDS", records)
    monkeypatch.setattr(topic_stream, "BATCH_BYTES", size)
    with Node(tmp_path / "node", SHORT) as node:
        broker = Broker("mainstem", node.bootstrap, node.data)
        topic, target = broker.topic(1), broker.topic(1)
        broker.produce(topic, VALUES)
        job = transform.Transform(broker.bootstrap, topic, target, tmp_path / "checkpoint")
        assert quietly(transform.run, spark, job, slowly) == len(VALUES)
        assert broker.values(target) == VALUES
        assert 7 <= len([*(job.checkpoint / "commits").glob("[0-9]*")]) <= 9


@pytest.mark.usefixtures("small_batches")
def test_a_batch_that_was_too_long_is_written_once_when_brokers_allow_for_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    from mainstem.spark.pipelines import transform
    from mainstem.spark.pipelines.topic_stream import NO_BOUND

    with Node(tmp_path / "node", SHORT) as node:
        broker = Broker("mainstem", node.bootstrap, node.data)
        topic, target = broker.topic(1), broker.topic(1)
        job = transform.Transform(
            broker.bootstrap, topic, target, tmp_path / "checkpoint", max_offsets_per_trigger=NO_BOUND
        )
        broker.produce(topic, VALUES[:10])
        quietly(transform.run, spark, job, slowly)
        broker.produce(topic, VALUES[10:])
        with pytest.raises(Exception, match=r"Raise that limit, .* and run again with the same checkpoint"):
            quietly(transform.run, spark, job, slowly)
    with Node(tmp_path / "node", {**SHORT, "transaction.max.timeout.ms": "60000"}, node.port) as node:
        assert quietly(transform.run, spark, job, slowly) == 690
        assert broker.values(target) == VALUES


def test_a_new_checkpoint_goes_on_where_the_old_one_was(
    spark: SparkSession, broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from mainstem.cli.main import main

    topic, target = broker.topic(2), broker.topic(1)
    values = [b"%03d" % nth for nth in range(90)]
    words = ["pipeline", "transform", topic, target, "--sql", SQL, "-b", broker.bootstrap, "--max-records", "20"]
    broker.produce(topic, values[:50])
    old = tmp_path / "old"
    assert main([*words, "--checkpoint", str(old)]) == 0
    broker.produce(topic, values[50:])
    # As docs/spark.md says where it was.
    last = max(int(each.name) for each in (old / "commits").glob("[0-9]*"))
    there = (old / "offsets" / str(last)).read_text().splitlines()[-1]
    assert main([*words, "--checkpoint", str(tmp_path / "new"), "--starting-offsets", there]) == 0
    assert broker.values(target) == values
    capsys.readouterr()
    assert main([*words, "--checkpoint", str(tmp_path / "wrong"), "--starting-offsets", "first"]) == 1
    assert "startingOffsets: must be earliest, latest or JSON" in capsys.readouterr().err
