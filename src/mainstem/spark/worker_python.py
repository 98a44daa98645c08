"""The Python that Spark starts its processes with: this one, with PySpark imported as it is installed.

Spark puts `pyspark.zip` first on the path of every Python process it starts. Python keeps no compiled form of what it
imports from a zip, so each process compiles PySpark anew: 1.4 s of processor time instead of 0.4 s (measured with
PySpark 4.2.0). The same PySpark is installed beside the zip, so the launcher takes the zip off the path and starts
Python. The process of a stream's source has ten seconds to connect, which no setting makes longer: the launcher has it
connect before it imports anything (`early_connect`). And as Spark starts one anew for every query, the launcher takes
a fork of one that has imported everything, where that is ready (`warm_start`).

Only for a session whose workers run on this machine: the launcher is a file of this one.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

VARIABLE: Final = "PYSPARK_PYTHON"
SOURCE_MODULE: Final = "pyspark.sql.streaming.python_streaming_source_runner"
"""What Spark runs for the source of a stream."""

IMPORTED: Final = ("pyspark.worker_util", SOURCE_MODULE, "mainstem.spark.source", "mainstem.spark.stream")
"""What a source has need of."""

END_WITHIN_S: Final = 2.0

_SCRIPT: Final = """\
#!/bin/sh
set -f
IFS=:
kept=
for entry in $PYTHONPATH; do
    case $entry in
        */python/lib/pyspark.zip | */python/lib/py4j-*-src.zip) ;;
        *) kept=$kept${{kept:+:}}$entry ;;
    esac
done
unset IFS
PYTHONPATH=$kept
export PYTHONPATH
if [ "$*" = "-m {source}" ]; then
    if [ -S {socket} ]; then
        exec {python} -I -S {warm} ask {socket} -P {early} {source}
    fi
    exec {python} -P {early} {source}
fi
exec {python} "$@"
"""
_made: dict[str, str] = {}


def use_launcher() -> None:
    """Makes Spark start workers by the launcher, unless the user has named another Python, or PySpark has no zip."""
    if os.environ.get(VARIABLE, sys.executable) == sys.executable and _has_zip():
        os.environ[VARIABLE] = _launcher()


def _has_zip() -> bool:
    """Whether Spark will name a zip of the PySpark that is installed here, and not of another."""
    import pyspark

    installed = Path(pyspark.__file__).parent
    home = Path(os.environ.get("SPARK_HOME", installed))
    return home.resolve() == installed.resolve() and (home / "python" / "lib" / "pyspark.zip").exists()


def _launcher() -> str:
    if sys.executable not in _made:
        folder = tempfile.mkdtemp(prefix="mainstem-spark-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        path = Path(folder) / "python"
        socket = Path(folder) / "warm"
        path.write_text(script(sys.executable, socket))
        path.chmod(0o700)
        _made[sys.executable] = str(path)
        _warm_up(socket)
    return _made[sys.executable]


def _warm_up(socket: Path) -> None:
    """Starts the process that sources are forked from; it takes its time beside the start of Java."""
    paths = {"PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
    process = subprocess.Popen(
        [sys.executable, "-P", _beside("warm_start.py"), "serve", socket, *IMPORTED],
        stdin=subprocess.PIPE,
        env={**os.environ, "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"), **paths},
    )
    assert process.stdin is not None
    ends = process.stdin

    def end() -> None:
        ends.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_WITHIN_S)

    atexit.register(end)


def script(python: str, socket: Path) -> str:
    """No process is started on the way: the shell becomes Python."""
    return _SCRIPT.format(
        python=shlex.quote(python),
        early=shlex.quote(_beside("early_connect.py")),
        warm=shlex.quote(_beside("warm_start.py")),
        socket=shlex.quote(str(socket)),
        source=SOURCE_MODULE,
    )


def _beside(name: str) -> str:
    return str(Path(__file__).absolute().with_name(name))
