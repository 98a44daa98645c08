"""The sink when a whole driver or a broker is killed with -9, at each step of the protocol in turn."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mainstem
from mainstem.spark.spark_session import missing
from tests.spark.brokers import Broker, SteadyKafka
from tests.spark.conftest import ROOT
from tests.spark.test_sink import copy
from tests.support.kafka import Kafka
from tests.support.kafka import missing as kafka_missing
from tests.support.node import Node

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(1500)]

PHASES = {
    "write": ["begin-transaction", "flush", "flushed", "written"],
    "decide": ["decide", "write-decision", "end-decision", "decided"],
    "finish": ["commit-one", "wait-markers", "note-finished", "committed"],
}
STEPS = {
    "mainstem": [step for steps in PHASES.values() for step in steps],
    # Kafka takes its time to start: the steps that differ most.
    "kafka": ["flush", "write-decision", "end-decision", "commit-one"],
}
# Spark starts five times for each: what differs between the brokers is before every step in `test_exactly_once`.
CHAINS = [*(("mainstem", steps) for steps in PHASES.values()), ("kafka", STEPS["kafka"])]
RECORDS = 1200
RUN_S_MAX = 300
ACCIDENT_S_MAX = 120.0


def run_driver(broker: Broker, source: str, target: str, home: Path, steps: list[str]) -> tuple[int, str]:
    """The exit status and what it said. Into a file: processes that outlive the driver would hold a pipe open."""
    paths = os.pathsep.join([str(Path(mainstem.__file__).parents[1]), str(ROOT)])
    log = home / "driver.log"
    with open(log, "wb") as out:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.spark.jobs.copying"),
                *(broker.bootstrap, source, target, str(home), ",".join(steps)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=ROOT,
            start_new_session=True,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": paths},
        )
    try:
        return process.wait(RUN_S_MAX), log.read_text()[-4000:]
    except subprocess.TimeoutExpired:
        raise AssertionError(f"the driver did not end: {log.read_text()[-4000:]}") from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


@pytest.mark.parametrize(("kind", "steps"), CHAINS, ids=[f"{kind}-{steps[0]}" for kind, steps in CHAINS])
def test_a_driver_killed_at_each_step_neither_loses_nor_doubles(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, steps: list[str]
) -> None:
    """Each run goes on where the one before it was killed, and is killed a step further on."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    broker: Broker = request.getfixturevalue(f"{kind}_broker")
    source, target = broker.topic(2), broker.topic(2)
    broker.produce(source, [b"%d" % nth for nth in range(RECORDS)])
    for nth, step in enumerate(steps):
        status, said = run_driver(broker, source, target, tmp_path, steps)
        assert (tmp_path / f"crash-{nth}").exists(), (step, said)
        assert not (tmp_path / f"crash-{nth + 1}").exists(), step
        assert status != 0, (step, said)
    status, said = run_driver(broker, source, target, tmp_path, steps)
    assert status == 0, said
    assert broker.values(target) == broker.values(source)


@pytest.fixture(params=["mainstem", "kafka"])
def mortal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Node | SteadyKafka]:
    """A broker that may be killed, and comes back where it was."""
    if request.param == "mainstem":
        with Node(tmp_path / "broker") as node:
            yield node
        return
    reason = kafka_missing()
    if reason is not None:
        pytest.skip(reason)
    found = Kafka()
    found.fetch()
    kafka = SteadyKafka(found, tmp_path / "broker")
    with kafka:
        yield kafka


def test_a_broker_killed_at_each_step_neither_loses_nor_doubles(
    spark: SparkSession, mortal: Node | SteadyKafka, tmp_path: Path
) -> None:
    """It is down when the step is taken, and comes back soon: the query goes on by itself."""
    from tests.spark.crashing import CrashingSource

    spark.dataSource.register(CrashingSource)
    kind = "mainstem" if isinstance(mortal, Node) else "kafka"
    broker = Broker(kind, mortal.bootstrap, mortal.data)
    source, target = broker.topic(2), broker.topic(2)
    broker.produce(source, [b"%d" % nth for nth in range(RECORDS)])
    steps = STEPS[kind]
    accident = {"crashAt": ",".join(steps), "crashMarker": str(tmp_path / "crash"), "crashHow": "hold"}
    query = copy(spark, broker, source, target, tmp_path / "checkpoint", "crashing", **accident)
    try:
        for nth in range(len(steps)):
            wait_for_accident(tmp_path / f"crash-{nth}", query)
            mortal.kill()
            (tmp_path / f"crash-{nth}-go").touch()
            mortal.start()
        assert query.awaitTermination(RUN_S_MAX)
    finally:
        query.stop()
    assert broker.values(target) == broker.values(source)


def wait_for_accident(mark: Path, query: StreamingQuery) -> None:
    deadline = time.monotonic() + ACCIDENT_S_MAX
    while not mark.exists():
        assert query.isActive, str(query.exception())
        assert time.monotonic() < deadline, f"{mark.name} does not come: {query.lastProgress}"
        time.sleep(0.02)


def test_a_copied_checkpoint_is_refused(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Two queries that both believe to be one: the one that is behind is told so."""
    import shutil

    source, target = broker.topic(1), broker.topic(1)
    broker.produce(source, [b"a"] * 10)
    assert copy(spark, broker, source, target, tmp_path / "one").awaitTermination(RUN_S_MAX)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    for _ in range(2):
        broker.produce(source, [b"b"] * 10)
        assert copy(spark, broker, source, target, tmp_path / "one").awaitTermination(RUN_S_MAX)
    with pytest.raises(Exception, match="the checkpoint was rewound, or copied while another query went on"):
        copy(spark, broker, source, target, tmp_path / "two").awaitTermination(RUN_S_MAX)
    assert broker.values(target) == broker.values(source)
