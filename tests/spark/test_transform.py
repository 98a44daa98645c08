"""What a transformation writes, and what becomes of records that it cannot read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.brokers import Broker
from tests.spark.test_pipelines import quietly

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(600)]


def test_what_it_writes_is_read_back_to_the_microsecond_and_the_byte(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    from mainstem.spark.pipelines import transform

    schema = (
        "at timestamp, local timestamp_ntz, day date, some array<timestamp>, bytes binary, of struct<at: timestamp>"
    )
    source, target = broker.topic(1), broker.topic(1)
    broker.produce(
        source,
        [
            b'{"at": "2026-01-02T03:04:05.123456Z", "local": "2026-01-02T03:04:05.000001", "day": "2026-01-02", '
            b'"some": ["1901-02-03T04:05:06.000001Z"], "bytes": "AP8Q", "of": {"at": "2026-01-02T03:04:05.1Z"}}'
        ],
    )
    job = transform.Transform(broker.bootstrap, source, target, tmp_path, schema)
    quietly(transform.run, spark, job, "select at, local, day, some, bytes, of from input")
    assert broker.values(target) == [
        b'{"at":"2026-01-02T03:04:05.123456Z","local":"2026-01-02T03:04:05.000001","day":"2026-01-02",'
        b'"some":["1901-02-03T04:05:06.000001Z"],"bytes":"AP8Q","of":{"at":"2026-01-02T03:04:05.100000Z"}}'
    ]

    def read(topic: str) -> Any:
        reader = spark.read.format("mainstem").option("kafka.bootstrap.servers", broker.bootstrap)
        return reader.option("subscribe", topic).option("valueFormat", "json").schema(schema).load().collect()

    assert read(target) == read(source)


MIXED = [b'{"id": 1}', b"broken", b'{"id": 2}', b'{"id": "x"}', None]


def told(words: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    from mainstem.cli.main import main

    capsys.readouterr()
    assert main(["pipeline", "transform", *words]) == 0
    return capsys.readouterr()


def test_malformed_records_are_left_out_and_counted(
    spark: SparkSession, broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = broker.topic(1), broker.topic(1)
    broker.produce(source, MIXED)
    words = [source, target, "--checkpoint", str(tmp_path), "--schema", "id bigint", "-b", broker.bootstrap]
    said = told([*words, "--max-records", "2", "--sql", "select id from input"], capsys)
    assert f"5 records of {source} transformed into {target}; 2 malformed records left out, which do not" in said.out
    assert "; 2 malformed records left out" in said.err
    # A record without a value is no malformed one.
    assert broker.values(target) == [b'{"id":1}', b'{"id":2}', b"{}"]
    broker.produce(source, MIXED[:2])
    assert '"malformed":1' in told([*words, "--sql", "select id from input", "--json"], capsys).out.replace(" ", "")
    assert len(broker.values(target)) == 4


def test_who_names_the_column_of_malformed_records_gets_them(
    spark: SparkSession, mainstem_broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker, topic = mainstem_broker, mainstem_broker.topic(1)
    broker.produce(topic, MIXED)
    ways = [
        (["--sql", "select _Corrupt as value from input where _corrupt is not null"], [b"broken", b'{"id": "x"}']),
        (["--function", "tests.spark.test_transform:texts"], [b"-", b"-", b"-"]),
        (["--function", "tests.spark.test_transform:texts", "--keep-malformed"], [b"-", b"-", b"-", b"broken"]),
    ]
    for nth, (how, expected) in enumerate(ways):
        target = broker.topic(1)
        words = [topic, target, "--checkpoint", str(tmp_path / str(nth)), "--schema", "id bigint", *how]
        told([*words, "-b", broker.bootstrap], capsys)
        assert broker.values(target)[: len(expected)] == expected


def texts(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("coalesce(_corrupt, '-') value")


@pytest.mark.parametrize("mode", ["append", "update"])
def test_malformed_records_are_counted_once_whatever_is_made_of_the_others(
    spark: SparkSession, mainstem_broker: Broker, tmp_path: Path, mode: str
) -> None:
    from mainstem.spark.pipelines import transform
    from mainstem.spark.pipelines.progress import Watcher

    source, target = mainstem_broker.topic(2), mainstem_broker.topic(1)
    mainstem_broker.produce(source, [b'{"id": %d, "at": "2026-01-02T03:04:05Z"}' % nth for nth in range(10)])
    mainstem_broker.produce(source, [b"broken"] * 3)
    job = transform.Transform(
        mainstem_broker.bootstrap, source, target, tmp_path, "id bigint, at timestamp", ("at", "1 hour"), mode
    )
    watcher = Watcher(quiet=True)
    grouped = "select window.start, count(*) n from input group by window(at, '1 hour')"
    statement = grouped if mode == "update" else "select id from input union all select -id as id from input"
    # Spark's own number has each record twice where the statement names the input twice.
    assert transform.run(spark, job, statement, watcher=watcher) == 13
    assert watcher.malformed == 3
    assert len(mainstem_broker.values(target)) == (1 if mode == "update" else 20)


@pytest.mark.parametrize(
    ("statement", "written"),
    [
        ("select value from input union all select value from input", 10),
        ("select a.value from input a join input b on a.value = b.value", 5),
        ("select value from input where value < '3'", 3),
    ],
)
def test_records_without_a_schema_count_once_as_well(
    spark: SparkSession, mainstem_broker: Broker, tmp_path: Path, statement: str, written: int
) -> None:
    from mainstem.spark.pipelines import transform

    source, target = mainstem_broker.topic(2), mainstem_broker.topic(1)
    mainstem_broker.produce(source, [b"%d" % nth for nth in range(5)])
    job = transform.Transform(mainstem_broker.bootstrap, source, target, tmp_path)
    assert quietly(transform.run, spark, job, statement) == 5
    assert len(mainstem_broker.values(target)) == written


def test_partitions_that_are_hours_apart_lose_nothing_to_a_watermark_or_it_is_told(
    spark: SparkSession,
    mainstem_broker: Broker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each is in order of time, but batches take as many records of an hour of one as of two hours of the other."""
    from mainstem.spark.pipelines import topic_stream

    monkeypatch.setattr(topic_stream, "BATCH_RECORDS", 200)
    broker, source = mainstem_broker, mainstem_broker.topic(2)
    count = 500
    for partition, first in enumerate((0, 12)):
        minutes = [first * 60 + (24 - first) * 60 * nth // count for nth in range(count)]
        values = [b'{"at": "2026-01-01T%02d:%02d:00Z"}' % divmod(minute, 60) for minute in minutes]
        broker.produce(source, values, partition=partition)
    broker.produce(source, [b'{"at": "2026-01-03T00:00:00Z"}'], partition=0)
    statement = "select window.start, count(*) n from input group by window(at, '1 hour')"
    words = ["--schema", "at timestamp", "--watermark", "at:10m", "--sql", statement, "-b", broker.bootstrap]

    def counted(*bound: str) -> tuple[dict[str, Any], int]:
        target = broker.topic(1)
        given = [source, target, "--checkpoint", str(tmp_path / target), *words, *bound, "--json"]
        result = json.loads(told(given, capsys).out)
        return result, sum(json.loads(value)["n"] for value in broker.values(target))

    result, n = counted()
    assert (result["records"], result["late"], n) == (2 * count + 1, 0, 2 * count)
    assert not caplog.messages
    result, n = counted("--max-records", "200")
    assert n < 2 * count
    # Rows are those of a task and a window, of records that are more.
    assert 0 < result["late"] <= 2 * count - n
    assert f"watermark: {result['late']:,} rows of {source} came later than the watermark of 10 minutes" in caplog.text
