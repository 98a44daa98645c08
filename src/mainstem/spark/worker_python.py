"""The Python that Spark starts its processes with: this one, with PySpark imported as it is installed.

Spark puts `pyspark.zip` first on the path of every Python process it starts. Python keeps no compiled form of what it
imports from a zip, so each process compiles PySpark anew: 1.4 s of processor time instead of 0.4 s (measured with
PySpark 4.2.0). A stream's source is such a process, with ten seconds to connect that no setting makes longer. The same
PySpark is installed beside the zip, so the launcher takes the zip off the path and starts Python.

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
_made: dict[str, str] = {}


def use_launcher() -> None:
    """Makes Spark start workers by the launcher, unless the user has named another Python, or PySpark has no zip."""
    if os.environ.get(VARIABLE, sys.executable) != sys.executable:
        return
    zips = _zips()
    if zips:
        os.environ[VARIABLE] = _launcher(zips)


def _zips() -> list[str]:
    """What Spark will put first on the path, in that order; empty where it is not what is installed here."""
    import pyspark

    installed = Path(pyspark.__file__).parent
    home = Path(os.environ.get("SPARK_HOME", installed))
    found = [*(home / "python" / "lib").glob("pyspark.zip"), *(home / "python" / "lib").glob("py4j-*-src.zip")]
    if home != installed or installed.suffix == ".zip" or len(found) != 2:
        return []
    return [str(each) for each in found]


def _launcher(zips: list[str]) -> str:
    if sys.executable not in _made:
        folder = tempfile.mkdtemp(prefix="mainstem-spark-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        path = Path(folder) / "python"
        path.write_text(script(sys.executable, zips))
        path.chmod(0o700)
        _made[sys.executable] = str(path)
    return _made[sys.executable]


def script(python: str, zips: list[str]) -> str:
    """No process is started on the way: the shell becomes Python."""
    taken = "\n".join(f"PYTHONPATH=${{PYTHONPATH#{shlex.quote(each)}:}}" for each in zips)
    return f'#!/bin/sh\n{taken}\nexport PYTHONPATH\nexec {shlex.quote(python)} "$@"\n'
