"""The session as it is made: what Spark's own processes see of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.brokers import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(600)]


def where_pyspark_is(_: Iterable[int]) -> Iterable[str]:
    import pyspark

    yield pyspark.__file__


def test_workers_import_pyspark_as_it_is_installed_and_not_from_a_zip(spark: SparkSession) -> None:
    (found,) = spark.sparkContext.parallelize([0], 1).mapPartitions(where_pyspark_is).collect()
    assert ".zip" not in found


def test_a_session_that_runs_keeps_what_was_set_in_it(spark: SparkSession) -> None:
    from mainstem.spark import session

    zone, batch = "spark.sql.session.timeZone", "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = {key: spark.conf.get(key) for key in (zone, batch)}
    try:
        spark.conf.set(zone, "Europe/Berlin")
        spark.conf.unset(batch)
        assert session() is spark
        assert spark.conf.get(zone) == "Europe/Berlin"
        assert spark.conf.get(batch) == "65536"
        assert session(settings={zone: "Asia/Tokyo"}).conf.get(zone) == "Asia/Tokyo"
    finally:
        for key, value in before.items():
            spark.conf.set(key, str(value))


WINDOWS = """
import json, re, sys
from pathlib import Path
from mainstem.spark import session
from mainstem.spark.pipelines import transform
from mainstem.spark.pipelines.progress import Watcher

servers, home, told = sys.argv[1], Path(sys.argv[2]), dict(each.split("=") for each in sys.argv[3:])
spark = session("windows", "local[2]", {"spark.ui.enabled": "false", "spark.driver.memory": "640m", **told})
job = transform.Transform(servers, "ticks", "counts", home, "at timestamp", ("at", "10 seconds"), "update")
statement = "select window.start w, count(*) n from input group by window(at, '5 seconds')"
transform.run(spark, job, statement, watcher=Watcher(quiet=True))

def parts_of_a_batch():
    plan = spark.range(1000).selectExpr("id % 7 k").groupBy("k").count()._jdf.queryExecution().executedPlan()
    return int(re.search(r"hashpartitioning\\([^)]*, (\\d+)\\)", plan.toString())[1])

found = [len([*(home / "state" / "0").glob("[0-9]*")]), parts_of_a_batch()]
spark.conf.set("spark.sql.shuffle.partitions", "3")
print(json.dumps([*found, parts_of_a_batch()]))
"""


def test_windows_have_a_state_for_each_core_and_a_checkpoint_keeps_its_number(
    mainstem_broker: Broker, tmp_path: Path
) -> None:
    for topic in ("ticks", "counts"):
        mainstem_broker.make_topic(topic, 1)

    def run(home: str, *told: str) -> list[object]:
        mainstem_broker.produce("ticks", [b'{"at": "2026-01-02T03:04:%02dZ"}' % nth for nth in range(10)])
        command = [sys.executable, "-c", WINDOWS, mainstem_broker.bootstrap, str(tmp_path / home), *told]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert ran.returncode == 0, ran.stdout + ran.stderr[-3000:]
        found: list[object] = json.loads(ran.stdout)
        return found

    # What is no stream has Spark's number, or the one that it is told, before and afterwards.
    assert run("own") == [2, 200, 3]
    assert run("told", "spark.sql.shuffle.partitions=5") == [5, 5, 3]
    assert run("told") == [5, 200, 3]


def test_large_records_are_copied_in_little_memory(mainstem_broker: Broker, tmp_path: Path) -> None:
    here, (source, target) = mainstem_broker.bootstrap, (mainstem_broker.topic(1), mainstem_broker.topic(1))
    values = [b"%04d" % nth + b"x" * 1_000_000 for nth in range(800)]
    mainstem_broker.produce(source, values, compression_type="lz4", message_max_bytes=2_000_000, linger_ms=0)
    command = [sys.executable, "-m", "mainstem", "pipeline", "transform", source, target, "--bootstrap", here, "--json"]
    command += ["--checkpoint", str(tmp_path / "checkpoint"), "--sql", "select value from input"]
    command += ["--conf", "spark.driver.memory=640m", "--conf", "spark.ui.enabled=false"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-3000:]
    assert json.loads(ran.stdout)["records"] == len(values)


_TELL = """
import json
from mainstem.spark import session
spark = session()
keys = ("spark.master", "spark.app.name", "spark.sql.session.timeZone", "spark.sql.execution.arrow.maxRecordsPerBatch")
print(json.dumps([spark.conf.get(key) for key in keys]))
"""


@pytest.mark.parametrize("way", ["spark-submit", "defaults", "arguments", "file in arguments"])
def test_a_session_keeps_what_spark_was_told_past_the_program(tmp_path: Path, way: str) -> None:
    """Spark's own configuration is in no SparkConf before Java runs: ours came before it, and the master was ours."""
    script = tmp_path / "tell.py"
    script.write_text(_TELL)
    told = {"spark.master": "local[1]", "spark.app.name": "mine", "spark.sql.session.timeZone": "Europe/Berlin"}
    options = [word for key, value in told.items() for word in ("--conf", f"{key}={value}")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, str(script)]
    if way == "spark-submit":
        command = [str(Path(sys.executable).with_name("spark-submit")), *options, str(script)]
    elif way == "defaults":
        (tmp_path / "spark-defaults.conf").write_text("\n".join(f"{key} {value}" for key, value in told.items()))
        environment["SPARK_CONF_DIR"] = str(tmp_path)
    elif way == "file in arguments":
        (tmp_path / "mine.conf").write_text("\n".join(f"{key} {value}" for key, value in told.items()))
        # Not looked into where a file is named.
        (tmp_path / "spark-defaults.conf").write_text("spark.sql.execution.arrow.maxRecordsPerBatch 7")
        environment["SPARK_CONF_DIR"] = str(tmp_path)
        environment["PYSPARK_SUBMIT_ARGS"] = f"--properties-file {tmp_path / 'mine.conf'} pyspark-shell"
    else:
        environment["PYSPARK_SUBMIT_ARGS"] = " ".join([*options, "pyspark-shell"])
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [*told.values(), "65536"]
