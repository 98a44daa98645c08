"""What a lake keeps of a topic: every field under its name, every value to its last digit; else one sentence."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.brokers import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mainstem.spark.pipelines.lake import Lake

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(600)]


def land(spark: SparkSession, job: Lake) -> int:
    from mainstem.spark.pipelines import lake
    from mainstem.spark.pipelines.progress import Watcher

    return lake.run(spark, job, watcher=Watcher(quiet=True))


def test_a_schema_that_is_taken_from_values_reads_them(
    spark: SparkSession, mainstem_broker: Broker, tmp_path: Path
) -> None:
    """Spark takes digits for years, and hours for times of today; landed so, every record would be a bad one."""
    from mainstem.spark.pipelines import lake

    topic, at = mainstem_broker.topic(1), mainstem_broker.bootstrap
    values = [
        {"id": nth, "zip": f"{10115 + nth}", "opens": "12:30", "at": "2026-01-02T03:04:05.5Z", "in": {"no": "0049"}}
        for nth in range(20)
    ]
    mainstem_broker.produce(topic, [json.dumps(value).encode() for value in values])
    schema = lake.inferred_schema(spark, at, topic, tmp_path)
    assert schema == "`at` timestamp, `id` bigint, `in` struct<`no`: string>, `opens` string, `zip` string"
    assert land(spark, lake.Lake(at, topic, tmp_path, schema, "at")) == 20
    rows = lake.rows(spark, tmp_path).orderBy("id").collect()
    assert [(row.zip, row.opens, row["in"].no) for row in rows] == [(value["zip"], "12:30", "0049") for value in values]
    assert lake.listed(tmp_path, lake.BAD) == []


def test_a_schema_by_which_no_value_can_be_read_is_refused(
    spark: SparkSession, mainstem_broker: Broker, tmp_path: Path
) -> None:
    from mainstem.spark.pipelines import lake

    topic, at = mainstem_broker.topic(1), mainstem_broker.bootstrap
    mainstem_broker.produce(topic, [b'[{"id": 1}]', b"{'id': 2}"])  # which Spark reads
    with pytest.raises(ValueError, match=r"schema: `id` bigint is what the first 2 values of .* seem to have"):
        lake.inferred_schema(spark, at, topic, tmp_path)
    assert not (tmp_path / lake.SCHEMA_FILE).exists()


@pytest.mark.parametrize("name", ["event.time", "event`time", "event time"])
def test_the_time_of_an_event_may_be_in_a_field_of_any_name(
    spark: SparkSession, mainstem_broker: Broker, tmp_path: Path, name: str
) -> None:
    from mainstem.spark.pipelines import lake
    from mainstem.spark.pipelines.lake_audit import compare_lake

    topic, at = mainstem_broker.topic(1), mainstem_broker.bootstrap
    mainstem_broker.produce(topic, [json.dumps({name: "2026-01-02T03:04:05Z"}).encode()])
    assert land(spark, lake.Lake(at, topic, tmp_path, f"{lake.quoted(name)} timestamp", name)) == 1
    (row,) = lake.rows(spark, tmp_path).collect()
    assert str(row.date) == "2026-01-02"
    report = compare_lake(spark, at, topic, tmp_path)
    assert report.is_good, report.to_text()


@pytest.mark.parametrize(
    ("column", "moved"),
    [
        ("at", "at + make_dt_interval(0, 0, 0, 0.0003)"),
        ("local", "local + make_dt_interval(0, 0, 0, 0.000001)"),
        ("in", "named_struct('at', in.at + make_dt_interval(0, 0, 0, 0.000001))"),
        ("double", f"{math.nextafter(0.1, 1)}D"),
        ("_timestamp", "_timestamp + make_dt_interval(0, 0, 0, 0.001)"),
        ("_timestamp", "timestamp_micros(9000000000000000000)"),
        ("_key", "cast('other' as binary)"),
    ],
)
def test_an_audit_tells_the_least_difference_of_a_lake_from_its_topic(
    spark: SparkSession, mainstem_broker: Broker, tmp_path: Path, column: str, moved: str
) -> None:
    from pyspark.sql import functions as f

    from mainstem.spark.pipelines import lake
    from mainstem.spark.pipelines.lake_audit import compare_lake

    topic, here = mainstem_broker.topic(1), mainstem_broker.bootstrap
    time = "2026-01-02T03:04:05.123456"
    value = {"at": time + "Z", "local": time, "in": {"at": time + "Z"}, "double": 0.1}
    mainstem_broker.produce(topic, [json.dumps(value).encode()], keys=[b"key"], timestamps=[1_767_323_045_123])
    schema = "at timestamp, local timestamp_ntz, in struct<at: timestamp>, double double"
    land(spark, lake.Lake(here, topic, tmp_path / "lake", schema))
    assert compare_lake(spark, here, topic, tmp_path / "lake").is_good
    (file,) = (tmp_path / "lake" / lake.ROWS).rglob("*.parquet")
    landed = spark.read.parquet(str(file)).withColumn(column, f.expr(moved))
    landed.coalesce(1).write.parquet(str(tmp_path / "moved"))
    next((tmp_path / "moved").glob("*.parquet")).replace(file)
    spark.catalog.clearCache()
    report = compare_lake(spark, here, topic, tmp_path / "lake")
    assert [each.answer for each in report.findings] == ["no: 1 are not", "no: 1 are not"]


def test_an_audit_tells_a_good_record_that_is_among_the_bad_ones(
    spark: SparkSession, mainstem_broker: Broker, tmp_path: Path
) -> None:
    from mainstem.spark.pipelines import lake, lake_lists
    from mainstem.spark.pipelines.lake_audit import compare_lake

    topic, here, path = mainstem_broker.topic(1), mainstem_broker.bootstrap, tmp_path / "lake"
    mainstem_broker.produce(topic, [b'{"id":1}'])
    land(spark, lake.Lake(here, topic, path, "id bigint"))
    columns = "_topic", "_partition", "_offset", "_timestamp", "_key", "to_json(struct(id)) _corrupt"
    lake.rows(spark, path).selectExpr(*columns).coalesce(1).write.parquet(str(path / lake.BAD / "date=2026-01-01"))
    (file,) = (path / lake.BAD).rglob("*.parquet")
    (batch,) = (path / lake_lists.BATCHES).iterdir()
    files = {lake.ROWS: [], lake.BAD: [str(file.relative_to(path / lake.BAD))]}
    batch.write_text(json.dumps({**json.loads(batch.read_text()), "files": files}))
    report = compare_lake(spark, here, topic, path)
    assert [each.answer for each in report.findings] == ["no: 1 are not", "no: 1 are not"]


def test_what_fails_in_a_batch_is_one_sentence_with_its_cause(
    spark: SparkSession, mainstem_broker: Broker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A file where Java is to make a folder stands for a disk that takes nothing."""
    from mainstem.cli.main import main
    from mainstem.spark.pipelines import lake

    topic, path = mainstem_broker.topic(1), tmp_path / "lake"
    mainstem_broker.produce(topic, [b"any"])
    path.mkdir()
    (path / lake.STAGING).write_text("in the way")
    assert main(["pipeline", "lake", topic, str(path), "-b", mainstem_broker.bootstrap]) == 1
    _, _, told = capfd.readouterr().err.rpartition("mainstem: ")
    assert len(told.splitlines()) == 1, told
    assert str(path / lake.STAGING) in told
    assert "this is a bug" not in told
    (path / lake.STAGING).unlink()
    assert land(spark, lake.Lake(mainstem_broker.bootstrap, topic, path)) == 1


def test_spark_prints_no_page_beside_the_sentence(
    spark: SparkSession, mainstem_broker: Broker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from pyspark.logger import PySparkLogger

    from mainstem.cli.main import main
    from mainstem.cli.pipeline import TELLS_EVERY_ERROR

    class Pages(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            printed.append(record.getMessage())

    printed: list[str] = []
    for name in TELLS_EVERY_ERROR:
        PySparkLogger.getLogger(name).addHandler(Pages())
    topic, target = mainstem_broker.topic(1), mainstem_broker.topic(1)
    mainstem_broker.produce(topic, [b"any"])
    words = ["transform", topic, target, "--checkpoint", str(tmp_path), "--function", f"{__name__}:unknown"]
    assert main(["pipeline", *words, "-b", mainstem_broker.bootstrap]) == 1
    assert "`nope` cannot be resolved" in capfd.readouterr().err
    assert printed == []


def unknown(frame: Any) -> Any:
    return frame.select("nope")


def test_a_batch_that_counts_is_not_written_again(spark: SparkSession, mainstem_broker: Broker, tmp_path: Path) -> None:
    """Where Spark did not get to note it, it asks again. By then its files are read, or merged into one with others."""
    from mainstem.spark.pipelines import lake

    told: list[int] = []
    land_batch = lake.lander(lake.Lake(mainstem_broker.bootstrap, "any", tmp_path), told.append)
    frame = spark.sql("select cast('a' as binary) value, timestamp'2026-01-01 10:00:00' timestamp")
    for batch in (0, 1):
        land_batch(frame, batch)
    files = {path: path.stat().st_ino for path in (tmp_path / lake.ROWS).rglob("*.parquet")}
    land_batch(frame, 1)
    assert {path: path.stat().st_ino for path in (tmp_path / lake.ROWS).rglob("*.parquet")} == files
    assert lake.compact(spark, tmp_path) == 2
    land_batch(frame, 1)
    assert lake.rows(spark, tmp_path).count() == 2
    assert told == [1, 1]
