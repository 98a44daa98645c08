"""A seed is the whole bug report: the same run comes out of it, in every process."""

import io
import json
import os
import subprocess
import sys

import pytest

from mainstem.build_info import build_name
from mainstem.sim.world import run_seed

pytestmark = pytest.mark.skipif(build_name() != "interpreted", reason="the simulator runs the interpreted broker")


def digest_elsewhere(seed: int, hash_seed: str) -> str:
    """The run's hash in another process, whose sets and dicts of strings are hashed differently."""
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-m", "mainstem.sim", "--seed", str(seed)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout.rsplit("trace ", 1)[1].split()[0]


@pytest.mark.parametrize("seed", [3, 11])
def test_a_seed_replays_in_another_process_with_another_hash_seed(seed: int) -> None:
    here = run_seed(seed).digest
    assert run_seed(seed).digest == here
    assert digest_elsewhere(seed, "1") == here
    assert digest_elsewhere(seed, "2") == here


def test_another_seed_is_another_run() -> None:
    assert run_seed(3).digest != run_seed(4).digest


def test_a_trace_is_json_lines_without_addresses() -> None:
    file = io.StringIO()
    run_seed(5, file)
    lines = file.getvalue().splitlines()
    assert len(lines) > 1000
    assert {"at", "event", "what"} == set(json.loads(lines[0]))
    assert " at 0x" not in file.getvalue()
    assert "Task-" not in file.getvalue()
