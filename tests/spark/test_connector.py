"""Spark's own `format("kafka")` works unchanged against our broker: batch, streaming and sink."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.brokers import Broker
from tests.spark.conftest import ROOT
from tests.spark.connector import SPARK_VERSION, connector_jars
from tests.support.kafka import missing

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(900)]


def test_sparks_own_connector_reads_writes_and_streams(mainstem_broker: Broker, tmp_path: Path) -> None:
    import pyspark

    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    if pyspark.__version__ != SPARK_VERSION:
        pytest.skip(f"the connector's jars are for PySpark {SPARK_VERSION}; this is {pyspark.__version__}")
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
