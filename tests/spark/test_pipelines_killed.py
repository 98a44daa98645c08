"""`mainstem pipeline` as a process of its own, killed with all that belongs to it, and started again.

A start of Spark costs most here, so each pipeline has one of the brokers.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mainstem
from tests.spark import quick
from tests.spark.brokers import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(1200)]

SCHEMA = "id bigint, at timestamp"
RECORDS = 400
SETTINGS = {"spark.driver.memory": "512m", "spark.ui.enabled": "false", **quick.DRIVER}
SMALL = ["--master", "local[2]", *(word for each in SETTINGS.items() for word in ("--conf", "=".join(each)))]
KILLED_S_MAX = 240.0
ENDS_S_MAX = 600.0


class Command:
    """One `mainstem pipeline`, in a group of processes of its own."""

    def __init__(self, broker: Broker, arguments: list[str], log: Path) -> None:
        paths = os.pathsep.join([str(Path(mainstem.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        self.log = log
        with open(log, "ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mainstem", "pipeline", *arguments, *SMALL, "-b", broker.bootstrap],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": paths},
            )

    def kill_when(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + KILLED_S_MAX
        while not condition():
            assert self._process.poll() is None, self.log.read_text()[-4000:]
            assert time.monotonic() < deadline, self.log.read_text()[-4000:]
            time.sleep(0.005)
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)

    def wait(self) -> None:
        assert self._process.wait(ENDS_S_MAX) == 0, self.log.read_text()[-4000:]


def values() -> list[bytes]:
    good = [json.dumps({"id": nth, "at": "2026-01-01T10:00:00Z"}).encode() for nth in range(RECORDS)]
    return [*good[:150], b"broken", *good[150:], b"[1"]


def test_a_lake_that_is_killed_again_and_again_has_every_record_once(
    spark: SparkSession, mainstem_broker: Broker, tmp_path: Path
) -> None:
    from mainstem.spark.pipelines import lake, lake_lists

    broker = mainstem_broker
    topic, bad_topic, path = broker.topic(2), broker.topic(1), tmp_path / "lake"
    broker.produce(topic, values())
    arguments = ["lake", topic, str(path), "--schema", SCHEMA, "--bad-topic", bad_topic, "--max-records", "60"]
    log = tmp_path / "log"

    def batches() -> int:
        return len(list((path / lake_lists.BATCHES).glob("*.json")))

    Command(broker, arguments, log).kill_when(lambda: any((path / lake.STAGING).glob("*/*")))
    Command(broker, arguments, log).kill_when(lambda: any((path / lake.ROWS).rglob("*.parquet")) and batches() > 0)
    before = batches()
    Command(broker, arguments, log).kill_when(lambda: batches() > before)
    Command(broker, arguments, log).wait()
    assert sorted(row.id for row in lake.rows(spark, path).select("id").collect()) == list(range(RECORDS))
    assert lake.rows(spark, path, lake.BAD).count() == 2
    assert broker.values(bad_topic) == [b"[1", b"broken"]
    said = log.read_text()
    assert not [line for line in said.splitlines() if "WARN" in line or "Traceback" in line], said


def test_a_transformation_that_is_killed_again_and_again_writes_every_record_once(
    kafka_broker: Broker, tmp_path: Path
) -> None:
    broker = kafka_broker
    source, target, checkpoint = broker.topic(2), broker.topic(2), tmp_path / "checkpoint"
    broker.produce(source, values())
    statement = "select cast(id as string) key, cast(id as string) value from input"
    arguments = ["transform", source, target, "--schema", SCHEMA, "--checkpoint", str(checkpoint)]
    arguments += ["--sql", statement, "--max-records", "60"]
    log = tmp_path / "log"
    for number in ("0", "1", "3"):
        Command(broker, arguments, log).kill_when((checkpoint / "offsets" / number).exists)
    Command(broker, arguments, log).wait()
    assert sorted(int(value) for value in broker.values(target)) == list(range(RECORDS))
    text = log.read_text()
    assert "rows in" in text
    assert "lag" in text
    assert f"records of {source} transformed into {target}" in text
