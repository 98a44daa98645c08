"""A real Spark cluster on loopback, a master and two workers: source, sink and pipelines, by changing `--master` only.

What only a cluster does is here, too: speculation, and stages that run again after an executor was lost.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import mainstem
from mainstem.spark.spark_session import missing
from tests.spark import quick
from tests.spark.brokers import Broker
from tests.spark.conftest import ROOT
from tests.support.kafka import free_port

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(900)]

START_TIMEOUT_S = 300.0
HOSTS = {"one": "127.0.0.1", "two": "127.0.0.2"}
"""Spark runs no second attempt at a task on the host of the first."""


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a standalone master with two workers of one core each."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    import pyspark

    home = Path(pyspark.__file__).parent
    folder = tmp_path_factory.mktemp("cluster")
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": quick.JAVA,
        "PYSPARK_PYTHON": sys.executable,
    }
    script = [str(home / "bin" / "spark-class")]
    deploy = "org.apache.spark.deploy"
    commands = {
        "master": [f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"],
    }
    for worker, host in HOSTS.items():
        commands[worker] = [f"{deploy}.worker.Worker", "--host", host, "--cores", "1", "--memory", "1g"]
        commands[worker] += ["--webui-port", "0", "--work-dir", str(folder / worker), address]
    running = []
    try:
        for name, command in commands.items():
            own = {**environment, "SPARK_LOCAL_IP": HOSTS.get(name, "127.0.0.1")}
            with open(folder / f"{name}.log", "wb") as log:
                running.append(subprocess.Popen([*script, *command], stdout=log, stderr=log, env=own))
            if name == "master":
                _wait_for(folder / "master.log", "I have been elected leader", running[-1])
        for name in HOSTS:
            _wait_for(folder / f"{name}.log", "Successfully registered with master", running[0])
        yield address
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(30)


def _wait_for(log: Path, text: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while text not in log.read_text(errors="replace"):
        assert process.poll() is None, log.read_text()[-4000:]
        assert time.monotonic() < deadline, log.read_text()[-4000:]
        time.sleep(0.1)


def test_a_cluster_copies_exactly_once_whatever_is_lost_and_runs_the_pipelines(
    master: str, broker: Broker, tmp_path: Path
) -> None:
    source, *copies = (broker.topic(4) for _ in range(5))
    broker.produce(source, [b"%d" % nth for nth in range(2000)])
    paths = os.pathsep.join([str(Path(mainstem.__file__).parents[1]), str(ROOT)])
    home = tmp_path / "home"
    home.mkdir()
    command = [sys.executable, "-m", "tests.spark.jobs.on_cluster", master, broker.bootstrap, source, str(home)]
    done = subprocess.run(
        [*command, *copies],
        capture_output=True,
        text=True,
        timeout=800,
        cwd=ROOT,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": paths, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {"read": 2000, "executors": 2, "landed": 2000, "transformed": 2000, "wrong": []}
    assert (home / "slow-another").exists(), "no second attempt ran"
    assert not (home / "slow-gave-up").exists(), "the second attempt came after the first had failed, not beside it"
    assert (home / "killed-stage-retried").exists(), "no stage ran again"
    for copied in copies:
        assert broker.values(copied) == broker.values(source)
