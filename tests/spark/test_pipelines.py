"""The pipelines: what lands and what comes out is what went in, also when they are killed and started again."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.brokers import Broker, Headers
from tests.support.node import Node

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(600)]

SCHEMA = "id bigint, at timestamp, amount double"


def event(number: int, day: int = 1) -> bytes:
    return json.dumps({"id": number, "at": f"2026-01-{day:02}T10:00:00Z", "amount": number / 2}).encode()


def quietly(work: Any, *arguments: Any) -> Any:
    from mainstem.spark.pipelines.progress import Watcher

    return work(*arguments, watcher=Watcher(quiet=True))


def test_a_lake_has_every_record_once_by_the_day_it_happened(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    from mainstem.spark.pipelines import lake

    topic = broker.topic(2)
    job = lake.Lake(broker.bootstrap, topic, tmp_path, SCHEMA, "at", max_offsets_per_trigger=60)
    broker.produce(topic, [event(nth, 1 + nth % 2) for nth in range(100)])
    broker.produce(topic, [b"broken", b'{"id": "x"}'])
    assert quietly(lake.run, spark, job) == 102
    broker.produce(topic, [event(nth, 3) for nth in range(100, 150)])
    assert quietly(lake.run, spark, job) == 50
    rows = lake.rows(spark, tmp_path)
    assert sorted(row.id for row in rows.select("id").collect()) == list(range(150))
    assert {str(row.date): row["count"] for row in rows.groupBy("date").count().collect()} == {
        "2026-01-01": 50,
        "2026-01-02": 50,
        "2026-01-03": 50,
    }
    assert {row._corrupt for row in lake.rows(spark, tmp_path, lake.BAD).collect()} == {"broken", '{"id": "x"}'}

    before = len(lake.listed(tmp_path, lake.ROWS))
    assert lake.compact(spark, tmp_path) > 0
    assert len(lake.listed(tmp_path, lake.ROWS)) == 3 < before
    # Who was reading when they were merged reads on.
    assert sorted(row.id for row in rows.select("id").collect()) == list(range(150))
    assert sorted(row.id for row in lake.rows(spark, tmp_path).select("id").collect()) == list(range(150))
    broker.produce(topic, [event(150, 3)])
    assert quietly(lake.run, spark, job) == 1
    assert lake.rows(spark, tmp_path).count() == 151


def test_bad_values_go_to_a_topic_of_their_own_once_and_as_they_were(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    from mainstem.spark.pipelines import lake, lake_folder, lake_lists

    # Its timestamps are old: no retention is to take them away.
    topic, bad_topic = broker.topic(1, {"retention.ms": "-1"}), broker.topic(1, {"retention.ms": "-1"})
    job = lake.Lake(broker.bootstrap, topic, tmp_path, SCHEMA, "at", 5, bad_topic=bad_topic)
    values = [event(0), b"\xff\x00broken", *(event(nth) for nth in range(1, 8)), b"[1", event(8)]
    keys = [b"k%d" % nth for nth in range(len(values))]
    headers: list[Headers | None] = [*[None] * 9, [("own", b"h")], None]
    broker.produce(topic, values, keys=keys, timestamps=[10**12] * len(values), headers=headers)
    assert quietly(lake.run, spark, job) == len(values)
    # As if it had died after the topic had its records and before any batch counted: Spark replays them.
    for log in ("commits", "offsets"):
        for number in (1, 2):
            (tmp_path / lake_folder.CHECKPOINT / log / str(number)).unlink(missing_ok=True)
    (tmp_path / lake_folder.CHECKPOINT / "commits" / "0").unlink()
    for left in (tmp_path / lake_lists.BATCHES).iterdir():
        left.unlink()
    assert quietly(lake.run, spark, job) == len(values)
    found = broker.read(bad_topic)
    assert [(each.key, each.value, each.timestamp) for each in found] == [
        (b"k1", b"\xff\x00broken", 10**12),
        (b"k9", b"[1", 10**12),
    ]
    assert found[1].headers == [
        ("own", b"h"),
        ("mainstem.topic", topic.encode()),
        ("mainstem.partition", b"0"),
        ("mainstem.offset", b"9"),
    ]
    assert sorted(row.id for row in lake.rows(spark, tmp_path).collect()) == list(range(9))
    assert lake.rows(spark, tmp_path, lake.BAD).count() == 2


def test_a_field_called_date_stays_what_it_was(spark: SparkSession, mainstem_broker: Broker, tmp_path: Path) -> None:
    from mainstem.spark.pipelines import lake

    topic = mainstem_broker.topic(1)
    for number in (1, 2):
        mainstem_broker.produce(topic, [b'{"id": %d, "date": "some day"}' % number], timestamps=[1_767_262_000_000])
        quietly(lake.run, spark, lake.Lake(mainstem_broker.bootstrap, topic, tmp_path, "id bigint, date string"))
    assert lake.compact(spark, tmp_path) == 2
    rows = lake.rows(spark, tmp_path).select("id", "date", "_date").orderBy("id").collect()
    assert [(row.id, row.date, str(row._date)) for row in rows] == [
        (1, "some day", "2026-01-01"),
        (2, "some day", "2026-01-01"),
    ]


def test_fields_called_as_the_day_stay_what_they_were(
    spark: SparkSession, mainstem_broker: Broker, tmp_path: Path
) -> None:
    from mainstem.spark.pipelines import lake
    from mainstem.spark.pipelines.lake_audit import compare_lake

    topic, at = mainstem_broker.topic(1), mainstem_broker.bootstrap
    mainstem_broker.produce(topic, [b'{"date": "2026-01-02", "_date": "mine"}'], timestamps=[1_767_262_000_000])
    quietly(lake.run, spark, lake.Lake(at, topic, tmp_path, lake.inferred_schema(spark, at, topic, tmp_path)))
    (row,) = lake.rows(spark, tmp_path).collect()
    assert (str(row.date)[:10], row._date, str(row["__date"])) == ("2026-01-02", "mine", "2026-01-01")
    assert compare_lake(spark, at, topic, tmp_path).is_good


def test_a_lake_of_bad_records_only_can_be_audited(
    spark: SparkSession, mainstem_broker: Broker, tmp_path: Path
) -> None:
    from mainstem.spark.pipelines import lake
    from mainstem.spark.pipelines.lake_audit import compare_lake

    topic = mainstem_broker.topic(1)
    mainstem_broker.produce(topic, [b"x", b"y"])
    quietly(lake.run, spark, lake.Lake(mainstem_broker.bootstrap, topic, tmp_path, "id bigint"))
    assert compare_lake(spark, mainstem_broker.bootstrap, topic, tmp_path).is_good
    mainstem_broker.produce(topic, [b"z"])
    assert not compare_lake(spark, mainstem_broker.bootstrap, topic, tmp_path).is_good


@pytest.mark.parametrize("schema", [None, "id bigint"], ids=["raw", "typed"])
def test_an_empty_lake_has_every_record_of_an_empty_topic(
    mainstem_broker: Broker, spark: SparkSession, tmp_path: Path, schema: str | None
) -> None:
    from mainstem.spark.pipelines import lake
    from mainstem.spark.pipelines.lake_audit import compare_lake

    topic, at = mainstem_broker.topic(2), mainstem_broker.bootstrap
    with pytest.raises(ValueError, match="nothing has landed here yet"):
        compare_lake(spark, at, topic, tmp_path)
    assert quietly(lake.run, spark, lake.Lake(at, topic, tmp_path, schema)) == 0
    assert compare_lake(spark, at, topic, tmp_path).is_good
    mainstem_broker.produce(topic, [b'{"id": 1}'])
    assert not compare_lake(spark, at, topic, tmp_path).is_good


def test_a_schema_that_cannot_be_landed_is_a_sentence_and_is_not_kept(
    spark: SparkSession, mainstem_broker: Broker, tmp_path: Path
) -> None:
    from mainstem.spark.pipelines import lake

    topic, at = mainstem_broker.topic(1), mainstem_broker.bootstrap
    mainstem_broker.produce(topic, [b'{"id": 1, "ID": 2}'])
    for schema, told in (
        ("id bigint, ID bigint", "Spark does not tell ID from id"),
        ("id bigint, _offset bigint", "_offset is a column of the record's own"),
    ):
        with pytest.raises(ValueError, match=told):
            lake.run(spark, lake.Lake(at, topic, tmp_path, schema))
    with pytest.raises(ValueError, match="Spark does not tell"):
        lake.inferred_schema(spark, at, topic, tmp_path)
    assert not (tmp_path / lake.SCHEMA_FILE).exists()


def test_a_lake_that_is_landed_to_for_good_has_few_files(
    spark: SparkSession, mainstem_broker: Broker, tmp_path: Path
) -> None:
    from mainstem.spark.pipelines import lake

    topic = mainstem_broker.topic(1)
    mainstem_broker.produce(topic, [event(nth) for nth in range(35)])
    job = lake.Lake(mainstem_broker.bootstrap, topic, tmp_path, SCHEMA, "at", 5, compact_every=3)
    quietly(lake.run, spark, job)
    # Of seven batches the first six were merged: three into one, and three and that one into another.
    assert len(lake.listed(tmp_path, lake.ROWS)) == 2
    assert sorted(row.id for row in lake.rows(spark, tmp_path).collect()) == list(range(35))
    # Who began to read them before may still be at it.
    files = tmp_path / lake.ROWS
    assert len(list(files.rglob("*.parquet"))) == 9
    old = next(files.rglob("batch-*00-0000.parquet"))
    os.utime(old, (0, 0))
    lake.merge(spark, tmp_path, kept_s=lake.KEPT_S)
    assert not old.exists()
    lake.remove_leftovers(tmp_path)
    assert len(list(files.rglob("*.parquet"))) == 1
    assert lake.rows(spark, tmp_path).count() == 35


def test_merging_good_rows_leaves_the_bad_ones_of_the_same_batches(
    spark: SparkSession, mainstem_broker: Broker, tmp_path: Path
) -> None:
    from mainstem.spark.pipelines import lake

    # Good and bad rows of one day and one batch: their files have the same names, in folders beside each other.
    here, topic = mainstem_broker.bootstrap, mainstem_broker.topic(1)
    for number in range(3):
        values = [b'{"id": %d}' % number, b"broken %d" % number]
        mainstem_broker.produce(topic, values, timestamps=[1_767_262_000_000] * 2)
        quietly(lake.run, spark, lake.Lake(here, topic, tmp_path, "id bigint"))
    # The second time, what the first has merged is removed.
    for merged in (6, 0):
        assert lake.compact(spark, tmp_path) == merged
        assert sorted(row.id for row in lake.rows(spark, tmp_path).collect()) == [0, 1, 2]
        bad = sorted(row._corrupt for row in lake.rows(spark, tmp_path, lake.BAD).collect())
        assert bad == ["broken 0", "broken 1", "broken 2"]


def test_a_schema_is_taken_from_the_first_values_and_stays(
    spark: SparkSession, mainstem_broker: Broker, tmp_path: Path
) -> None:
    from mainstem.spark.pipelines import lake

    topic, path, here = mainstem_broker.topic(1), tmp_path / "lake", mainstem_broker.bootstrap
    with pytest.raises(ValueError, match="has no JSON objects to take one from"):
        lake.inferred_schema(spark, here, topic, path)
    mainstem_broker.produce(topic, [event(1), b"broken", b'{"id": 2, "tags": ["a"]}', None])
    schema = lake.inferred_schema(spark, here, topic, path)
    assert schema == "`amount` double, `at` timestamp, `id` bigint, `tags` array<string>"
    quietly(lake.run, spark, lake.Lake(here, topic, path, schema, "at"))
    mainstem_broker.produce(topic, [b'{"id": 3, "new": 1}'])
    assert lake.inferred_schema(spark, here, topic, path) == schema
    quietly(lake.run, spark, lake.Lake(here, topic, path, schema, "at"))
    rows = lake.rows(spark, path).where("id is not null").orderBy("id").collect()
    assert [(row.id, row.amount, row.tags) for row in rows] == [(1, 0.5, None), (2, None, ["a"]), (3, None, None)]
    assert str(rows[0].date) == "2026-01-01"


def test_a_field_that_comes_later_is_kept_and_one_that_changes_its_type_is_refused(
    spark: SparkSession, mainstem_broker: Broker, tmp_path: Path
) -> None:
    from mainstem.spark.pipelines import lake, lake_folder

    here, topic, other = mainstem_broker.bootstrap, mainstem_broker.topic(1), mainstem_broker.topic(1)
    for number, schema in ((1, "id bigint"), (2, "id bigint, amount double"), (3, "amount double")):
        mainstem_broker.produce(topic, [b'{"id": %d, "amount": 0.5}' % number], timestamps=[1_767_262_000_000])
        quietly(lake.run, spark, lake.Lake(here, topic, tmp_path, schema))
    expected = [(0, 1, None), (1, 2, 0.5), (2, None, 0.5)]
    for _ in range(2):
        rows = lake.rows(spark, tmp_path).select("_offset", "id", "amount").orderBy("_offset").collect()
        assert [tuple(row) for row in rows] == expected
        lake.compact(spark, tmp_path)
    assert len(lake.listed(tmp_path, lake.ROWS)) == 1

    for wrong, sentence in (
        (lake.Lake(here, topic, tmp_path, "id string"), "id is long in .* and string now"),
        (lake.Lake(here, other, tmp_path, "id bigint"), f"is a lake of {topic}"),
        (
            lake.Lake(here, topic, tmp_path, "id bigint", "id"),
            "event_time: column id is bigint; it must be a timestamp",
        ),
    ):
        with pytest.raises(ValueError, match=sentence):
            quietly(lake.run, spark, wrong)
    shutil.rmtree(tmp_path / lake_folder.CHECKPOINT)
    with pytest.raises(ValueError, match="is gone or another's"):
        quietly(lake.run, spark, lake.Lake(here, topic, tmp_path, "id bigint"))
    assert lake.rows(spark, tmp_path).count() == 3


def test_dates_and_a_value_of_null_land_and_names_may_be_anything(
    spark: SparkSession, mainstem_broker: Broker, tmp_path: Path
) -> None:
    from mainstem.spark.pipelines import lake

    here, topic = mainstem_broker.bootstrap, mainstem_broker.topic(1)
    values = [b'{"day": "2026-01-02", "in-side": {"a b": 1}, "_key": "x"}', b"null", b'{"day": "2026-01-03"}']
    mainstem_broker.produce(topic, values)
    inferred = lake.inferred_schema(spark, here, topic, tmp_path / "inferred")
    assert quietly(lake.run, spark, lake.Lake(here, topic, tmp_path / "inferred", inferred)) == 3
    assert lake.rows(spark, tmp_path / "inferred").where("`in-side`.`a b` = 1").count() == 1
    typed = lake.Lake(here, topic, tmp_path / "typed", "day date", "day")
    assert quietly(lake.run, spark, typed) == 3
    rows = lake.rows(spark, typed.path).select("_offset", "day", "date").orderBy("_offset").collect()
    assert [(row._offset, str(row.day), str(row.date)) for row in rows] == [
        (0, "2026-01-02", "2026-01-02"),
        (2, "2026-01-03", "2026-01-03"),
    ]
    assert [row._corrupt for row in lake.rows(spark, typed.path, lake.BAD).collect()] == ["null"]


def test_what_is_empty_is_no_mistake(spark: SparkSession, mainstem_broker: Broker, tmp_path: Path) -> None:
    from mainstem.spark.pipelines import audit, lake, transform

    here, empty, target = mainstem_broker.bootstrap, mainstem_broker.topic(2), mainstem_broker.topic(1)
    report = audit.audit_topic(spark, here, empty, sequence="value")
    assert report.is_good, report.to_text()
    assert report.figures["records"] == "0"
    report.write(tmp_path / "report.html")
    assert audit.compare_topics(spark, (here, empty), (here, target)).is_good
    job = transform.Transform(here, empty, target, tmp_path / "checkpoint")
    assert quietly(transform.run, spark, job, "select value from input") == 0
    assert quietly(lake.run, spark, lake.Lake(here, empty, tmp_path / "lake")) == 0
    assert lake.compact(spark, tmp_path / "lake") == 0
    with pytest.raises(ValueError, match="nothing has landed here yet"):
        lake.rows(spark, tmp_path / "lake")


def test_a_pipeline_that_stops_at_an_open_transaction_says_so(
    spark: SparkSession, mainstem_broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from confluent_kafka import Producer

    from mainstem.cli.main import main

    topic, target, at = mainstem_broker.topic(1), mainstem_broker.topic(1), ["-b", mainstem_broker.bootstrap]
    mainstem_broker.produce(topic, [b"before"] * 5)
    producer = Producer({"bootstrap.servers": mainstem_broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(30)
    mainstem_broker.produce(topic, [b"after"] * 50)
    held = f"51 offsets of {topic}-0 wait for an open transaction"
    assert main(["pipeline", "lake", topic, str(tmp_path / "lake"), *at]) == 0
    said = capsys.readouterr()
    assert f"5 records of {topic} landed" in said.out
    assert held in said.out
    assert held in said.err
    words = ["transform", topic, target, "--checkpoint", str(tmp_path / "checkpoint"), "--sql", "select * from input"]
    assert main(["pipeline", *words, "--json", *at]) == 0
    assert json.loads(capsys.readouterr().out)["waiting"] == {f"{topic}-0": 51}
    producer.abort_transaction(30)
    assert main(["pipeline", "lake", topic, str(tmp_path / "lake"), *at]) == 0
    assert "open transaction" not in capsys.readouterr().out


def test_an_audit_tells_of_records_after_an_open_transaction(spark: SparkSession, broker: Broker) -> None:
    from confluent_kafka import Producer

    from mainstem.spark.pipelines import audit

    topic = broker.topic(1)
    broker.produce(topic, [b"before"])
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(30)
    broker.produce(topic, [b"after"])
    report = audit.audit_topic(spark, broker.bootstrap, topic)
    assert (report.figures["records"], report.figures["offsets after an open transaction"]) == (
        "1",
        "2 (not committed yet, not looked at)",
    )
    producer.abort_transaction(30)
    report = audit.audit_topic(spark, broker.bootstrap, topic)
    assert report.figures["records"] == "2"
    assert "offsets after an open transaction" not in report.figures


def test_an_audit_finds_what_a_log_has_lost(spark: SparkSession, tmp_path: Path) -> None:
    from mainstem.spark.pipelines import audit

    with Node(tmp_path / "node") as node:
        broker = Broker("mainstem", node.bootstrap, node.data)
        topic = broker.topic(2, {"segment.bytes": "1048576"})
        for nth in range(4):
            broker.produce(topic, [b"%d of %d" % (row, nth) + b"x" * 90 for row in range(10_000)], partition=0)
        folder = broker.log_dir(topic) / f"{topic}-0"
        bases = sorted(int(path.stem) for path in folder.glob("*.log"))
        assert len(bases) > 3
        node.stop()
        for path in folder.glob(f"{bases[1]:020}.*"):
            path.unlink()
        node.start()
        report = audit.audit_topic(spark, node.bootstrap, topic)
    lost = bases[2] - bases[1]
    assert report.figures["records"] == f"{40_000 - lost:,}"
    (finding,) = [each for each in report.findings if not each.is_good]
    assert finding.answer == f"no: {lost:,} are missing, and the topic is not compacted"
    assert finding.examples == [f"partition 0 offsets {bases[1]} to {bases[2] - 1}"]


@pytest.mark.parametrize("cleanup", ["delete", "compact,delete"])
def test_an_audit_finds_no_fault_with_transactions_and_what_was_deleted(
    spark: SparkSession, broker: Broker, cleanup: str
) -> None:
    from confluent_kafka import Producer, TopicPartition
    from confluent_kafka.admin import AdminClient

    from mainstem.spark.pipelines import audit

    topic = broker.topic(2, {"cleanup.policy": cleanup})
    broker.produce(topic, [b"%d" % nth for nth in range(10)], keys=[b"%d" % nth for nth in range(10)], partition=0)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for value in (b"aborted", b"committed", b"aborted"):
        producer.begin_transaction()
        for number in range(2):
            producer.produce(topic, value + b" in %d" % number, b"key", partition=number)
        producer.flush(30)
        producer.commit_transaction(30) if value == b"committed" else producer.abort_transaction(30)
    first = TopicPartition(topic, 0, 4)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_records([first])[first].result(30)
    report = audit.audit_topic(spark, broker.bootstrap, topic)
    assert report.is_good, report.to_text()
    assert report.figures["records"] == "8"
    assert report.figures["offsets before the log begins"] == "4 (retention, or records that were deleted)"
    # Of each partition: three markers, and two records that were aborted.
    assert report.figures["offsets without a record"].split(" (")[0] == "10"


def test_an_audit_tells_how_a_lake_differs_from_its_topic(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    from mainstem.spark.pipelines import lake, lake_lists
    from mainstem.spark.pipelines.lake_audit import compare_lake

    here = broker.bootstrap
    typed, raw = broker.topic(2), broker.topic(1)
    broker.produce(
        typed, [*(event(nth) for nth in range(20)), b"broken"], keys=[b"k%d" % (nth % 3) for nth in range(21)]
    )
    headers: list[Headers | None] = [[("h", b"1"), ("h", None)], None, [("g", b"\xff")]]
    broker.produce(raw, [b"\xff\x00", b"\xfe\x00", None], keys=[None, b"\xff", b"k"], headers=headers)
    for topic, schema in ((typed, SCHEMA), (raw, None)):
        path = tmp_path / topic
        quietly(lake.run, spark, lake.Lake(here, topic, path, schema))
        report = compare_lake(spark, here, topic, path)
        assert report.is_good, report.to_text()
    landed = lake.rows(spark, tmp_path / raw).orderBy("offset").collect()
    assert [row.headers and [(each.key, each.value) for each in row.headers] for row in landed] == headers
    broker.produce(raw, [b"later"])
    report = compare_lake(spark, here, raw, tmp_path / raw)
    assert [each.answer for each in report.findings] == ["no: 1 are not", "yes"]

    # A file that is listed twice over is there twice; one that is gone is missing.
    batch = next((tmp_path / typed / lake_lists.BATCHES).iterdir())
    content = json.loads(batch.read_text())
    (name,) = {str(Path(each)) for each in content["files"][lake.ROWS]}
    copied = str(Path(name).with_name("batch-000000000009-0000.parquet"))
    shutil.copy(tmp_path / typed / lake.ROWS / name, tmp_path / typed / lake.ROWS / copied)
    batch.write_text(json.dumps({**content, "files": {lake.ROWS: [name, copied], lake.BAD: []}}))
    report = compare_lake(spark, here, typed, tmp_path / typed)
    assert [each.answer for each in report.findings] == ["no: 1 are not", "no: 20 are not"]


def test_a_file_of_a_lake_that_is_gone_is_found_by_an_audit_and_told_by_the_next_run(
    spark: SparkSession,
    mainstem_broker: Broker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    from mainstem.cli.main import main
    from mainstem.spark.pipelines import lake
    from mainstem.spark.pipelines.lake_audit import compare_lake

    here, page = mainstem_broker.bootstrap, tmp_path / "page.html"
    for schema in (SCHEMA, None):
        topic = mainstem_broker.topic(1)
        mainstem_broker.produce(topic, [*(event(nth, 1 + nth % 2) for nth in range(20)), b"broken"])
        path = tmp_path / topic
        job = lake.Lake(here, topic, path, schema)
        quietly(lake.run, spark, job)
        assert compare_lake(spark, here, topic, path).is_good
        first, *others = lake.listed(path, lake.ROWS)
        lost = lake.rows(spark, path, without=others).count()
        (path / lake.ROWS / first).unlink()
        capsys.readouterr()
        words = ["pipeline", "audit", topic, "--against-lake", str(path), "--report", str(page), "-b", here]
        assert main(words) == 1
        told = capsys.readouterr().out
        assert f"BAD  Are all files of the lake there? no: 1 are gone\n         rows/{first}\n" in told
        assert f"no: {lost} are not" in told
        assert first in page.read_text()
        page.unlink()

        caplog.clear()
        assert quietly(lake.run, spark, job) == 0
        (warning,) = caplog.messages
        assert f"of the files that have landed in {path}, 1 are gone, such as rows/{first}; put them back" in warning
        assert lake.compact(spark, path) == 0
        assert first in lake.listed(path, lake.ROWS)

        for which in (lake.ROWS, lake.BAD):
            shutil.rmtree(path / which, ignore_errors=True)
        report = compare_lake(spark, here, topic, path)
        assert [each.answer for each in report.findings][1:] == ["no: 21 are not", "yes"], report.to_text()


def test_what_compaction_took_is_no_difference_between_a_lake_and_its_topic(
    spark: SparkSession, mainstem_broker: Broker, tmp_path: Path
) -> None:
    """The second topic is the first without its record 6: a marker stands there, as nothing does after compaction."""
    from confluent_kafka import Producer

    from mainstem.spark.pipelines import lake
    from mainstem.spark.pipelines.lake_audit import compare_lake

    broker = mainstem_broker
    values, whole = [b"%d" % nth for nth in range(10)], broker.topic(1)
    stamps = [1_767_262_000_000 + nth for nth in range(10)]
    broker.produce(whole, values, keys=values, timestamps=stamps)
    quietly(lake.run, spark, lake.Lake(broker.bootstrap, whole, tmp_path))
    for policy, answers in (("delete", ["yes", "no: 1 are not"]), ("compact", ["yes", "yes"])):
        holed = broker.topic(1, {"cleanup.policy": policy})
        broker.produce(holed, values[:5], keys=values[:5], timestamps=stamps[:5])
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": holed})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(holed, values[5], values[5], timestamp=stamps[5])
        producer.commit_transaction(30)
        broker.produce(holed, values[7:], keys=values[7:], timestamps=stamps[7:])
        report = compare_lake(spark, broker.bootstrap, holed, tmp_path)
        assert [each.answer for each in report.findings] == answers, report.to_text()


def test_what_is_wrong_with_the_input_is_one_sentence(
    spark: SparkSession,
    broker: Broker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from mainstem.cli.main import main

    topic, other = broker.topic(1), broker.topic(1)
    broker.produce(topic, [event(1)])
    target = ["--checkpoint", str(tmp_path / "checkpoint"), "--schema", SCHEMA]
    (tmp_path / "not_python.py").write_text("def")
    (tmp_path / "functions.py").write_text("def none(frame): pass\ndef wrong(frame): return {}['a']\n")
    monkeypatch.syspath_prepend(tmp_path)
    for words, code, sentence in (
        (["lake", "no-such-topic", str(tmp_path / "a")], 4, "there is no topic no-such-topic"),
        (
            ["lake", topic, str(tmp_path / "b"), "--schema", "id bigint", "--event-time", "at"],
            1,
            "there is no column at",
        ),
        (["lake", topic, str(tmp_path / "c"), "--schema", "id biggest"], 1, "BIGGEST"),
        (
            ["lake", topic, str(tmp_path / "bad"), "--schema", "id bigint", "--bad-topic", "no-such-topic"],
            4,
            "bad_topic: there is no topic no-such-topic",
        ),
        (
            ["lake", topic, str(tmp_path / "c"), "--schema", "a decimal(5,2), idbigint"],
            1,
            "schema: 'a decimal(5,2), idbigint' does not name fields and their types, as 'id bigint, at timestamp'",
        ),
        (["transform", topic, other, *target[:3], "struct<id: int>", "--sql", "select 1"], 1, "it is one type, struct"),
        (
            ["transform", topic, "no-such-topic", *target, "--sql", "select 'a' value from input"],
            4,
            "there is no topic",
        ),
        (["transform", topic, other, *target, "--sql", "select amunt from input"], 1, "`amunt` cannot be resolved"),
        (["transform", topic, other, *target, "--sql", "selekt"], 1, "Syntax error"),
        (["transform", topic, other, *target, "--function", "nowhere:here"], 1, "function: nowhere:here cannot be had"),
        (["transform", topic, other, *target, "--function", "not_python:here"], 1, "cannot be had: SyntaxError"),
        (["transform", topic, other, *target, "--function", "functions:none"], 1, "none gave a NoneType; it must give"),
        (["transform", topic, other, *target, "--function", "functions:wrong"], 1, "wrong failed: KeyError: 'a'"),
        (["transform", topic, topic, *target, "--sql", "select * from input"], 1, f"target: {topic} is what is read"),
        (["lake", topic, "hdfs://name/lake"], 1, "path: must be a folder of the file system"),
        (
            ["lake", topic, str(tmp_path / "d"), "--schema", "m map<string, string>"],
            1,
            "valueFormat=json does not read",
        ),
        (["audit", topic, "--report", str(tmp_path / "none" / "page.html")], 4, "--report: there is no folder"),
        (["audit", "no-such-topic"], 4, "there is no topic no-such-topic"),
        (["audit", topic, "--sequence", "nonsense"], 1, "`nonsense` cannot be resolved"),
        (["audit", topic, "--against-lake", str(tmp_path / "none")], 1, "nothing has landed here yet"),
    ):
        capsys.readouterr()
        assert main(["pipeline", *words, "-b", broker.bootstrap]) == code, words
        # Before it there may be lines that tell how far it is.
        _, _, told = capsys.readouterr().err.rpartition("mainstem: ")
        assert sentence in told, words
        assert "Traceback" not in told
        assert "this is a bug" not in told
        assert len(told.splitlines()) == 1, told


def test_a_script_gets_one_document_of_every_pipeline(
    spark: SparkSession, mainstem_broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from mainstem.cli.main import main

    topic, target = mainstem_broker.topic(1), mainstem_broker.topic(1)
    mainstem_broker.produce(topic, [event(1), event(2), b"broken", event(1)])

    def told(code: int, *words: str) -> Any:
        capsys.readouterr()
        assert main(["pipeline", *words, "--json", "-b", mainstem_broker.bootstrap]) == code, words
        return json.loads(capsys.readouterr().out)

    path = tmp_path / "lake"
    files = {"files": 1, "bad_files": 1, "merged": 0}
    landed = {"topic": topic, "path": str(path), "records": 4, **files, "waiting": {}}
    assert told(0, "lake", topic, str(path), "--schema", SCHEMA) == landed
    words = ("transform", topic, target, "--checkpoint", str(tmp_path / "checkpoint"))
    copied = {"source": topic, "target": target, "records": 4, "malformed": 0, "late": 0, "waiting": {}}
    assert told(0, *words, "--sql", "select key, value from input") == copied
    audited = told(1, "audit", topic)
    assert (audited["title"], audited["is_good"]) == (f"Audit of {topic}", False)
    (twice,) = (each for each in audited["findings"] if each["question"] == "Is no record there twice?")
    assert (twice["is_good"], len(twice["examples"])) == (False, 1)


def test_a_topic_made_anew_is_not_gone_on_with_where_the_old_one_ended(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """It has as many records as were read of the old one, and more: by their offsets alone, these would be left out."""
    from mainstem.spark.pipelines import lake, transform

    topic, target = broker.topic(1), broker.topic(1)
    broker.produce(topic, [event(nth) for nth in range(5)])
    landing = lake.Lake(broker.bootstrap, topic, tmp_path / "lake", SCHEMA)
    job = transform.Transform(broker.bootstrap, topic, target, tmp_path / "checkpoint")
    statement = "select key, value from input"
    for count in (5, 0):
        assert quietly(lake.run, spark, landing) == count
        assert quietly(transform.run, spark, job, statement) == count
    broker.make_anew(topic, 1)
    broker.produce(topic, [event(nth) for nth in range(100, 110)])
    with pytest.raises(ValueError, match=r"is not the topic that .*/lake was read from: it was deleted and made anew"):
        quietly(lake.run, spark, landing)
    with pytest.raises(ValueError, match=r"is not the topic that .*/checkpoint was read from"):
        quietly(transform.run, spark, job, statement)
    assert broker.values(target) == sorted(event(nth) for nth in range(5))


def test_an_audit_shows_what_it_is_at(spark: SparkSession, mainstem_broker: Broker) -> None:
    import io

    from mainstem.spark.pipelines import audit
    from mainstem.spark.pipelines.progress import Steps

    topic = mainstem_broker.topic(1)
    mainstem_broker.produce(topic, [b"a", b"b"])
    shown = io.StringIO()
    with Steps(spark, "audit", shown) as steps:
        audit.audit_topic(spark, mainstem_broker.bootstrap, topic, steps=steps)
        assert "audit: plotting; " in steps.line()
    assert shown.getvalue().startswith("audit: ")


def test_a_batch_of_a_lake_that_died_is_landed_again_and_counts_once(
    spark: SparkSession, mainstem_broker: Broker, tmp_path: Path
) -> None:
    from mainstem.spark.pipelines import lake, lake_lists

    job = lake.Lake(mainstem_broker.bootstrap, "any", tmp_path)
    frame = spark.sql("select cast('a' as binary) value, timestamp'2026-01-01 10:00:00' timestamp")
    land = lake.lander(job)
    land(frame, 0)
    (counted,) = (tmp_path / lake_lists.BATCHES).iterdir()
    # It died after it had moved its files and before they counted: the replay may be split otherwise.
    counted.unlink()
    land(frame, 0)
    assert lake.rows(spark, tmp_path).count() == 1
    land(frame, 0)  # Spark did not note that it was done
    assert lake.rows(spark, tmp_path).count() == 1
    # A batch that left files and never came back is not seen, and its files go.
    stray = tmp_path / lake.ROWS / "date=2026-01-01" / "batch-000000000007-0000.parquet"
    shutil.copy(next((tmp_path / lake.ROWS).rglob("*.parquet")), stray)
    assert lake.rows(spark, tmp_path).count() == 1
    lake.remove_leftovers(tmp_path)
    assert not stray.exists()


def test_a_statement_turns_one_topic_into_another_once(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    from mainstem.spark.pipelines import transform

    source, target = broker.topic(2), broker.topic(2)
    job = transform.Transform(broker.bootstrap, source, target, tmp_path, SCHEMA, max_offsets_per_trigger=30)
    statement = (
        "select cast(id as string) key, id, amount * 2 as doubled from input where _corrupt is null and id % 2 = 0"
    )
    for first in (0, 50):
        broker.produce(source, [*(event(nth) for nth in range(first, first + 50)), b"broken"])
        assert quietly(transform.run, spark, job, statement) == 51
    found = sorted(broker.read(target), key=lambda each: int(each.key or b""))
    assert [(each.key, json.loads(each.value or b"")) for each in found] == [
        (b"%d" % nth, {"id": nth, "doubled": float(nth)}) for nth in range(0, 100, 2)
    ]


def double(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("key", "concat(value, value) value", "headers")


def test_a_function_and_windows_work_too(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    from mainstem.spark.pipelines import transform

    source, target, windows = broker.topic(1), broker.topic(1), broker.topic(1)
    broker.produce(source, [b"a", b"b"], keys=[b"x", b"y"], headers=[[("h", b"1")], None])
    job = transform.Transform(broker.bootstrap, source, target, tmp_path / "a")
    quietly(transform.run, spark, job, transform.function_named("tests.spark.test_pipelines:double"))
    assert [(each.value, each.headers) for each in broker.read(target)] == [(b"aa", [("h", b"1")]), (b"bb", None)]

    timed = broker.topic(1)
    broker.produce(timed, [event(nth, 1) for nth in range(10)])
    broker.produce(timed, [event(10, 2)])
    job = transform.Transform(broker.bootstrap, timed, windows, tmp_path / "b", SCHEMA, ("at", "1 hour"))
    statement = "select count(*) n from input group by window(at, '1 hour')"
    quietly(transform.run, spark, job, statement)
    assert broker.values(windows) == [b'{"n":10}']


def test_totals_that_change_are_written_again_once_a_batch(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    from mainstem.spark.pipelines import transform

    source, target = broker.topic(1), broker.topic(1)
    job = transform.Transform(broker.bootstrap, source, target, tmp_path, SCHEMA, output_mode="update")
    statement = "select 'all' key, count(*) n from input"
    for expected in (3, 6):
        broker.produce(source, [event(nth) for nth in range(3)])
        quietly(transform.run, spark, job, statement)
        assert [each.value for each in broker.read(target)][-1] == b'{"n":%d}' % expected
    assert broker.values(target) == [b'{"n":3}', b'{"n":6}']


def test_an_audit_finds_what_is_missing_doubled_or_out_of_order(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    from mainstem.spark.pipelines import audit

    good, bad = broker.topic(2), broker.topic(1)
    sequence = "value"
    broker.produce(good, [b"%d" % nth for nth in range(100)], keys=[b"k"] * 100)
    report = audit.audit_topic(spark, broker.bootstrap, good, sequence=sequence)
    assert report.is_good, report.to_text()
    report.write(tmp_path / "report.html")
    assert "<svg" in (tmp_path / "report.html").read_text()

    broker.produce(bad, [b"1", b"2", b"2", b"5", b"4", b"word"], keys=[b"k"] * 6)
    report = audit.audit_topic(spark, broker.bootstrap, bad, sequence=sequence)
    wrong = {each.question: each.answer for each in report.findings if not each.is_good}
    assert wrong == {
        "Is no record there twice?": "no: 1 are there more than once",
        "Does every record carry its number?": "1 do not",
        "Is no number missing?": "no: 1 are",
        "Are the numbers in order?": "no: 1 come after a larger one",
    }


def test_an_audit_tells_how_two_topics_differ(spark: SparkSession, broker: Broker) -> None:
    from mainstem.spark.pipelines import audit

    one, same, other = broker.topic(2), broker.topic(3), broker.topic(1)
    for topic in (one, same):
        broker.produce(topic, [b"a", b"b", b"b", None], keys=[b"1", b"2", b"2", None])
    broker.produce(other, [b"a", b"b", b"c"], keys=[b"1", b"2", b"3"])
    here = broker.bootstrap
    assert audit.compare_topics(spark, (here, one), (here, same)).is_good
    report = audit.compare_topics(spark, (here, one), (here, other))
    assert [each.answer for each in report.findings] == ["no: 2 are not", "no: 1 are not"]


def test_an_audit_tells_when_two_topics_differ_in_headers(spark: SparkSession, broker: Broker) -> None:
    from mainstem.spark.pipelines import audit

    here, (one, same, other) = broker.bootstrap, (broker.topic(1), broker.topic(2), broker.topic(1))
    for topic in (one, same):
        broker.produce(topic, [b"1", b"2"], keys=[b"a", b"b"], headers=[[("h", b"x"), ("none", None)], None])
    broker.produce(other, [b"1", b"2"], keys=[b"a", b"b"])
    report = audit.compare_topics(spark, (here, one), (here, same))
    assert report.is_good, report.to_text()
    assert "(Of those without a key it is not compared.)" in report.to_text()
    report = audit.compare_topics(spark, (here, one), (here, other))
    assert [each.answer for each in report.findings] == ["no: 1 are not", "no: 1 are not"]
    assert report.findings[1].examples == ["key=a, value=1, headers=None"]


def test_an_audit_tells_when_records_of_a_key_changed_places(spark: SparkSession, broker: Broker) -> None:
    from mainstem.spark.pipelines import audit

    here, (one, other) = broker.bootstrap, (broker.topic(2), broker.topic(3))
    broker.produce(one, [b"1", b"2", b"3", b"4"], keys=[b"k", b"k", b"j", b"k"])
    broker.produce(other, [b"3", b"1", b"4", b"2"], keys=[b"j", b"k", b"k", b"k"])
    report = audit.compare_topics(spark, (here, one), (here, other))
    assert [each.answer for each in report.findings] == ["yes", "yes", "no: 2 are not"]
    assert report.findings[-1].examples == ["k: number 2 is 2 and 4", "k: number 3 is 4 and 2"]


def test_an_audit_tells_when_headers_of_a_keys_records_changed_places(spark: SparkSession, broker: Broker) -> None:
    from mainstem.spark.pipelines import audit

    here, (one, other) = broker.bootstrap, (broker.topic(1), broker.topic(1))
    headers: list[Headers | None] = [[("n", b"1")], [("n", b"2")]]
    broker.produce(one, [b"a", b"a"], keys=[b"k", b"k"], headers=headers)
    broker.produce(other, [b"a", b"a"], keys=[b"k", b"k"], headers=headers[::-1])
    report = audit.compare_topics(spark, (here, one), (here, other))
    assert [each.answer for each in report.findings] == ["yes", "yes", "no: 2 are not"]


def test_no_field_of_a_result_goes_missing(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """The topic and the timestamp of what is written are not the result's: columns of these names are fields."""
    from mainstem.spark.pipelines import transform

    source, target = broker.topic(1), broker.topic(1)
    broker.produce(source, [b'{"topic": "news", "timestamp": "2026-01-02T03:04:05Z"}'], keys=[b"\xff\x00"])
    job = transform.Transform(broker.bootstrap, source, target, tmp_path, "topic string, timestamp timestamp")
    quietly(transform.run, spark, job, "select _key as key, topic, timestamp from input")
    (found,) = broker.read(target)
    assert found.key == b"\xff\x00"
    assert json.loads(found.value or b"") == {"topic": "news", "timestamp": "2026-01-02T03:04:05.000000Z"}


def test_the_demo_s_orders_are_believable() -> None:
    from mainstem.spark.demo.orders import Shop

    shop = Shop(1)
    events = list(shop.orders(5000, 1_800_000_000.0))
    good = [json.loads(each.value) for each in events if not each.is_malformed]
    assert [each["number"] for each in good] == list(range(1, shop.made + 1))
    assert 20 < sum(each.is_malformed for each in events) < 100
    assert 80 < sum(each.is_late for each in events) < 250
    assert len({each["customer"] for each in good}) > 50
