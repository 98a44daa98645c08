"""A source's process is a fork of one that has imported everything, and is like one that was started."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mainstem.spark import worker_python

WARM = str(Path(worker_python.__file__).with_name("warm_start.py"))
EARLY = Path(worker_python.__file__).with_name("early_connect.py")
WITHIN_S = 60.0

TELL = """
import json, os, sys
import lent
print(json.dumps([sys.argv[1:], os.environ.get("TOLD"), os.getcwd(), lent.SAID, "decimal" in sys.modules]), flush=True)
sys.exit(int(sys.argv[1]))
"""
WAIT = """
import os, time
print(os.getpid(), flush=True)
time.sleep(60)
"""
"""The test ends it long before; should that fail, it does not outlive the test for long."""


@pytest.fixture
def warm(tmp_path: Path) -> Iterator[Path]:
    """The socket of a process that has imported `decimal`, which nobody does by himself."""
    path = tmp_path / "warm"
    server = subprocess.Popen([sys.executable, "-P", WARM, "serve", path, "no.such", "decimal"], stdin=subprocess.PIPE)
    until(path.exists)
    yield path
    assert server.stdin is not None
    server.stdin.close()
    assert server.wait(WITHIN_S) == 0, "it ends with the process that started it"


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def asking(socket: Path, script: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-I", "-S", WARM, "ask", str(socket), "-P", str(script), *arguments]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("is_warm", [True, False])
def test_a_fork_has_the_arguments_the_environment_and_the_outputs_of_who_asked(
    warm: Path, tmp_path: Path, is_warm: bool
) -> None:
    script, own = tmp_path / "tell.py", tmp_path / "own"
    script.write_text(TELL)
    own.mkdir()
    (own / "lent.py").write_text("SAID = 'from the path of who asked'")
    done = subprocess.run(
        asking(warm if is_warm else tmp_path / "nobody", script, "3", "a b"),
        cwd=own,
        env={**os.environ, "PYTHONPATH": str(own), "TOLD": "yes"},
        stdout=subprocess.PIPE,
        timeout=WITHIN_S,
    )
    words = f'[["3", "a b"], "yes", "{own}", "from the path of who asked", {str(is_warm).lower()}]\n'
    assert done.stdout.decode() == words
    assert done.returncode == 3


def test_a_module_that_is_imported_already_runs_in_a_fork_without_a_warning(warm: Path) -> None:
    # Who forks has read requests with it.
    done = subprocess.run(asking(warm, EARLY, "json.scanner"), stderr=subprocess.PIPE, timeout=WITHIN_S)
    assert (done.returncode, done.stderr) == (0, b"")


def test_who_ends_the_process_that_asked_ends_its_fork(warm: Path, tmp_path: Path) -> None:
    script = tmp_path / "wait.py"
    script.write_text(WAIT)
    with subprocess.Popen(asking(warm, script), stdout=subprocess.PIPE) as asker:
        assert asker.stdout is not None
        fork = int(asker.stdout.readline())
        assert fork != asker.pid
        asker.terminate()
        until(lambda: not is_alive(fork))


def test_a_fork_that_dies_is_seen_to_have_failed(warm: Path, tmp_path: Path) -> None:
    script = tmp_path / "wait.py"
    script.write_text(WAIT)
    with subprocess.Popen(asking(warm, script), stdout=subprocess.PIPE) as asker:
        assert asker.stdout is not None
        os.kill(int(asker.stdout.readline()), 9)
        assert asker.wait(WITHIN_S) == 1


def test_nonsense_does_not_end_the_process_that_forks(warm: Path, tmp_path: Path) -> None:
    import socket

    for said in (b"", b"\x7f\xff\xff\xff", b"GET / HTTP/1.1\r\n\r\n"):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(str(warm))
            stranger.sendall(said)
    script = tmp_path / "say.py"
    script.write_text("print('here')")
    done = subprocess.run(asking(warm, script), stdout=subprocess.PIPE, timeout=WITHIN_S)
    assert (done.stdout, done.returncode) == (b"here\n", 0)
