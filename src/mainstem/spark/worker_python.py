"""The Python that Spark starts its processes with: this one, with PySpark imported as it is installed.

Spark puts `pyspark.zip` first on the path of every Python process it starts. Python keeps no compiled form of what it
imports from a zip, so each process compiles PySpark anew: 1.4 s of processor time instead of 0.4 s (measured with
PySpark 4.2.0). The same PySpark is installed beside the zip, so the launcher takes the zip off the path and starts
Python. The process of a stream's source has ten seconds to connect, which no setting makes longer: the launcher has it
connect before it imports anything (`early_connect`).

Only for a session whose workers run on this machine: the launcher is a file of this one.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

VARIABLE: Final = "PYSPARK_PYTHON"
SOURCE_MODULE: Final = "pyspark.sql.streaming.python_streaming_source_runner"
"""What Spark runs for the source of a stream."""

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
        path.write_text(script(sys.executable))
        path.chmod(0o700)
        _made[sys.executable] = str(path)
    return _made[sys.executable]


def script(python: str) -> str:
    """No process is started on the way: the shell becomes Python."""
    early = Path(__file__).absolute().with_name("early_connect.py")
    return _SCRIPT.format(python=shlex.quote(python), early=shlex.quote(str(early)), source=SOURCE_MODULE)
