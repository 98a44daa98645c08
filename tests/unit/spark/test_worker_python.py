"""The launcher of Spark's Python processes takes PySpark's zip off the path, and nothing else."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from mainstem.spark import worker_python

SHOW = "import os, sys; print(os.environ['PYTHONPATH'], sys.argv[1:])"


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ("/s/python/lib/pyspark.zip:/s/python/lib/py4j-1-src.zip:/own:/jars/core.jar", "/own:/jars/core.jar"),
        ("/own:/s/python/lib/pyspark.zip:/with space:/*", "/own:/with space:/*"),
        ("/own/pyspark.zip:/other", "/own/pyspark.zip:/other"),
        ("", ""),
    ],
)
def test_the_launcher_takes_only_the_zips_off_the_path(tmp_path: Path, given: str, left: str) -> None:
    launcher = tmp_path / "python"
    launcher.write_text(worker_python.script(sys.executable, tmp_path / "nobody"))
    launcher.chmod(0o700)
    done = subprocess.run(
        [launcher, "-c", SHOW, "a b", "c"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": given},
        check=True,
    )
    assert done.stdout.strip() == f"{left} ['a b', 'c']".strip()


def test_a_python_that_the_user_names_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(worker_python.VARIABLE, "/usr/bin/python3")
    worker_python.use_launcher()
    assert os.environ[worker_python.VARIABLE] == "/usr/bin/python3"


def test_a_source_of_a_stream_connects_before_it_imports_pyspark(tmp_path: Path) -> None:
    """A runner that stands for Spark's shows that it gets the connection that was made first."""
    package = tmp_path / "pyspark"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "worker_util.py").write_text("def local_connect_and_auth(info, secret):\n    raise OSError(info)\n")
    (package / "runner.py").write_text(RUNNER)
    script = Path(worker_python.__file__).with_name("early_connect.py")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        server.listen()
        paths = {"PYTHONPATH": str(tmp_path), "PYTHON_WORKER_FACTORY_SOCK_PATH": str(tmp_path / "socket")}
        process = subprocess.Popen([sys.executable, "-P", script, "pyspark.runner"], env={**os.environ, **paths})
        server.settimeout(60)
        accepted, _ = server.accept()
        with accepted:
            accepted.settimeout(60)
            assert accepted.makefile("rb").read() == b"hello from runner"
        assert process.wait(60) == 0


RUNNER = """
import os, sys
from pyspark.worker_util import local_connect_and_auth
file, connection = local_connect_and_auth(os.environ["PYTHON_WORKER_FACTORY_SOCK_PATH"], None)
try:
    local_connect_and_auth("elsewhere", None)
except OSError:
    file.write(b"hello from " + sys.argv[0].rpartition(".")[0].rpartition("/")[2].encode())
file.close()
"""
