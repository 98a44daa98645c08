"""pytest gives tests a broker, and takes back what they did to it."""

import os
import subprocess
import sys
from pathlib import Path

import mainstem

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

_TESTS = """
import pytest
from mainstem.testing.faults import Faults

seen = []

def test_one(mainstem_cluster):
    mainstem_cluster.fail("Produce", "INVALID_RECORD", times=None)
    mainstem_cluster.kill()
    seen.append(mainstem_cluster)

def test_two(mainstem_cluster):
    assert mainstem_cluster is seen[0]
    assert mainstem_cluster.is_running
    mainstem_cluster.create_topic("t")

def test_three(fresh_mainstem_cluster, mainstem_cluster):
    assert fresh_mainstem_cluster is not mainstem_cluster
    fresh_mainstem_cluster.create_topic("t")
"""


def run_pytest(folder: Path, *arguments: str) -> str:
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(mainstem.__file__).parents[1]),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "mainstem.testing.plugin", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_fixtures_give_one_broker_to_share_and_one_to_break(tmp_path: Path) -> None:
    (tmp_path / "test_application.py").write_text(_TESTS)
    assert "3 passed" in run_pytest(tmp_path, "test_application.py")


def test_the_examples_with_other_peoples_clients_pass(tmp_path: Path) -> None:
    files = [str(EXAMPLES / name) for name in ("test_aiokafka_application.py", "test_confluent_application.py")]
    assert "6 passed" in run_pytest(tmp_path, "--rootdir", str(tmp_path), "-c", os.devnull, *files)
