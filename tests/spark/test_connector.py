"""Spark's own `format("kafka")` works unchanged against our broker, and what both are told, both do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.spark.brokers import Broker
from tests.spark.conftest import ROOT
from tests.spark.connector import FIRST_MS, SPARK_VERSION, connector_jars
from tests.support.kafka import missing

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(900)]


def skip_without_connector() -> None:
    import pyspark

    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    if pyspark.__version__ != SPARK_VERSION:
        pytest.skip(f"the connector's jars are for PySpark {SPARK_VERSION}; this is {pyspark.__version__}")


def test_sparks_own_connector_reads_writes_and_streams(mainstem_broker: Broker, tmp_path: Path) -> None:
    skip_without_connector()
    broker = mainstem_broker
    source, target, copied = broker.topic(3), broker.topic(2), broker.topic(3)
    broker.produce(source, [b"v%d" % nth for nth in range(1000)], keys=[b"k%d" % nth for nth in range(1000)])
    command = [sys.executable, "-m", "tests.spark.jobs.connector", broker.bootstrap, source, target, copied]
    done = subprocess.run(
        [*command, str(tmp_path / "checkpoint"), connector_jars()],
        capture_output=True,
        text=True,
        timeout=800,
        cwd=ROOT,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["read"], found["distinct"]) == (1000, 1000)
    assert found["batches"] >= 3
    assert sorted(int(value) for value in broker.values(target)) == list(range(1000))
    assert broker.values(copied) == broker.values(source)


def test_options_do_what_they_do_in_sparks_own_connector(mainstem_broker: Broker, tmp_path: Path) -> None:
    skip_without_connector()
    broker = mainstem_broker
    topic = broker.topic(2, {"retention.ms": "-1"})
    for number in range(2):
        broker.produce(
            topic,
            [None if nth % 10 == 0 else b"v%d" % nth for nth in range(90)],
            keys=[b"k%d" % nth for nth in range(90)],
            partition=number,
            timestamps=[FIRST_MS + nth for nth in range(90)],
            headers=[[("h", b"%d" % nth)] if nth % 3 == 0 else None for nth in range(90)],
        )
    aborted = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    aborted.init_transactions(30)
    aborted.begin_transaction()
    for nth in range(10):
        aborted.produce(topic, b"aborted", partition=nth % 2, timestamp=FIRST_MS + 90 + nth)
    aborted.flush(30)
    aborted.abort_transaction(30)
    command = [sys.executable, "-m", "tests.spark.jobs.side_by_side", broker.bootstrap, topic]
    done = subprocess.run(
        [*command, str(tmp_path), connector_jars()],
        capture_output=True,
        text=True,
        timeout=800,
        cwd=ROOT,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {"differing": {}, "all": 190}
