"""The launcher of Spark's Python processes takes PySpark's zip off the path, and nothing else."""

from __future__ import annotations

import os
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
    launcher.write_text(worker_python.script(sys.executable))
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
