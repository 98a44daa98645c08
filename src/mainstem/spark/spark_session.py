"""A Spark session that fits what this package does, with each setting's reason beside it.

`session()` takes a running session where there is one. Whatever the user set, in the call or in Spark's own
configuration, stays as it is.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mainstem.spark import cores, worker_python
from mainstem.spark.own_settings import has_collector, own_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN: Final = 17
JAVA_TIMEOUT_S: Final = 30.0
INSTALL_JAVA: Final = "as in apt install openjdk-17-jre-headless"
STDERR: Final = 2
PYSPARK_MIN: Final = (4, 2)

_ARROW: Final = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
_DRIVER_OPTIONS: Final = "spark.driver.extraJavaOptions"

SETTINGS: Final[dict[str, tuple[str, str]]] = {
    "spark.python.unix.domain.socket.enabled": (
        "true",
        "Spark and its Python workers talk over a Unix socket: 40 to 50 ms less a micro-batch than over TCP.",
    ),
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
        "The default one starts a process for every file of the checkpoint: 50 to 80 ms less a micro-batch. It does "
        "not keep two drivers from one checkpoint as strictly; the sink does, by fencing.",
    ),
    "spark.sql.execution.arrow.maxRecordsPerBatch": (
        "65536",
        "Rows go to the sink in large Arrow batches.",
    ),
    "spark.sql.execution.arrow.maxBytesPerBatch": (
        "67108864",
        "Rows may be large: without a limit so many of them are one Arrow batch that the JVM dies of it. Spark adds up "
        "the bytes for every row then; 2147483647 is no limit, for where 65,536 of the largest rows are a few MB.",
    ),
    _DRIVER_OPTIONS: (
        f"{_ARROW} -XX:+UseParallelGC",
        "Arrow checks every access to its memory otherwise: a tenth of the time of a source. Where tasks run in the "
        "driver, a collector that stops them now and then costs less than one that works beside them.",
    ),
    "spark.executor.extraJavaOptions": (_ARROW, "The same where tasks run."),
    "spark.sql.session.timeZone": ("UTC", "Timestamps of records are in UTC; the machine's own zone would shift them."),
    "spark.ui.showConsoleProgress": ("false", "The pipelines show their own progress."),
}
"""Each setting with its value and why."""


class NoSparkError(RuntimeError):
    """Spark cannot run here; the text says what to install."""


def missing() -> str | None:
    """Why Spark cannot run here, as a sentence; None where it can."""
    if importlib.util.find_spec("pyspark") is None:
        return "PySpark is not installed: pip install 'mainstem[spark]'"
    version = importlib.metadata.version("pyspark")
    if tuple(int(part) for part in version.split(".")[:2]) < PYSPARK_MIN:
        needed = ".".join(str(part) for part in PYSPARK_MIN)
        return f"PySpark {version} is too old, {needed} or later is needed: pip install 'mainstem[spark]'"
    if importlib.util.find_spec("pyarrow") is None:
        return "pyarrow is not installed: pip install 'mainstem[spark]'"
    java = _java()
    home = os.environ.get("JAVA_HOME")
    if home and java is None:
        return (
            f"JAVA_HOME is {home}, where there is no bin/java to run, and Spark takes no other: set it to the folder "
            f"of Java {JAVA_MIN} or later, or unset it for the java that is on PATH"
        )
    if java is None:
        return f"Java is not installed: Spark needs Java {JAVA_MIN} or later, {INSTALL_JAVA}"
    found = _java_version(java)
    if found is not None and found < JAVA_MIN:
        return f"Java {found} ({java}) is too old: Spark needs Java {JAVA_MIN} or later, {INSTALL_JAVA}"
    return None


def _java() -> str | None:
    """The one that Spark's scripts take: that of JAVA_HOME, also where it is not there."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(str(Path(home) / "bin" / "java") if home else "java")


def _java_version(java: str) -> int | None:
    """None where it does not say: then Spark may try."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=JAVA_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    # Java 8 calls itself 1.8.
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    return None if found is None else int(found[1])


def session(
    app_name: str = "mainstem", master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The session that runs, or a new one with `SETTINGS`; `settings` are the user's and come first.

    `master` is `local[*]` unless given here or by spark-submit. NoSparkError where Spark cannot run.
    """
    reason = missing()
    if reason is not None:
        raise NoSparkError(reason)
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return _as_told(running, settings or {})
    conf = SparkConf()
    for key, value in (settings or {}).items():
        conf.set(key, value)
    told = own_settings()

    def set_unless_told(key: str, value: str) -> None:
        if key not in told:
            conf.setIfMissing(key, value)

    set_unless_told("spark.app.name", app_name)
    if master is not None:
        conf.setMaster(master)
    else:
        set_unless_told("spark.master", "local[*]")
    # Workers run the Python that this is, with the modules that this one sees.
    os.environ.setdefault(worker_python.VARIABLE, sys.executable)
    if is_local(conf.get("spark.master") or told["spark.master"]):
        if conf.get("spark.pyspark.python") is None and "spark.pyspark.python" not in told:
            worker_python.use_launcher()
        # Nobody else has to reach a session that runs here alone.
        set_unless_told("spark.driver.bindAddress", "127.0.0.1")
        set_unless_told("spark.driver.host", "127.0.0.1")
    if has_collector({**told, **dict(conf.getAll())}):
        set_unless_told(_DRIVER_OPTIONS, _ARROW)
    for key, (value, _) in SETTINGS.items():
        set_unless_told(key, value)
    known = cores.of_session({**told, **dict(conf.getAll())})
    if known is not None:
        os.environ.setdefault(cores.VARIABLE, str(known))
    return SparkSession.builder.config(conf=conf).getOrCreate()


def _as_told(running: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """A session that runs, with what can still be set of what nobody has set in it."""
    kept = running.conf.getAll
    for key, value in {**{key: value for key, (value, _) in SETTINGS.items() if key not in kept}, **settings}.items():
        if running.conf.isModifiable(key):
            running.conf.set(key, value)
    return running


@contextmanager
def said_to(log: Path) -> Iterator[None]:
    """What processes that are started meanwhile say goes to a file; for a session whose maker has a screen to keep.

    Spark warns of much when it starts, and its Python workers print a traceback where Java no longer listens.
    """
    sys.stderr.flush()
    own = os.dup(STDERR)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(file, STDERR)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(own, STDERR)
        os.close(own)
        os.close(file)


def is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def explain() -> str:
    """The settings and their reasons, for a person."""
    return "\n".join(f"{key} = {value}\n    {why}" for key, (value, why) in SETTINGS.items())
