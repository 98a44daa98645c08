"""What Spark has been told already, past the program: by spark-submit, in a file of properties, in its variable.

`SparkConf` knows nothing of it before Java runs, and what a program sets comes before all of it. So whoever wants to
set only what nobody else has set has to look for himself.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Final

GATEWAY: Final = "PYSPARK_GATEWAY_PORT"
"""Where Java listens that spark-submit has started."""

_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
_NAMED: Final = {
    "--master": "spark.master",
    "--name": "spark.app.name",
    "--driver-java-options": "spark.driver.extraJavaOptions",
}
_LINE: Final = re.compile(r"(spark\.[^\s=:]+)(?:\s*[=:]\s*|\s+)(.*)")
_JAVA_VARIABLES: Final = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")


def own_settings() -> dict[str, str]:
    """By Spark's keys; needs PySpark."""
    if GATEWAY in os.environ:
        from pyspark import SparkConf, SparkContext

        SparkContext._ensure_initialized()
        return dict(SparkConf().getAll())
    said = os.environ.get(_ARGUMENTS, "")
    named, with_defaults = files_in_arguments(said)
    defaults = in_file(_defaults()) if named is None or with_defaults else {}
    return {**defaults, **({} if named is None else in_file(named)), **in_arguments(said)}


def _defaults() -> Path:
    folder = os.environ.get("SPARK_CONF_DIR")
    if folder is None:
        from pyspark.find_spark_home import _find_spark_home

        folder = os.path.join(_find_spark_home(), "conf")
    return Path(folder, "spark-defaults.conf")


def in_file(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    found = (_LINE.fullmatch(line.strip()) for line in lines)
    return {each[1]: each[2].strip() for each in found if each is not None}


def in_arguments(said: str) -> dict[str, str]:
    """Those of a command line of spark-submit, each `--name value` or `--name=value`."""
    found: dict[str, str] = {}
    words = iter(shlex.split(said))
    for word in words:
        name, is_joined, value = word.partition("=")
        if name in ("--conf", "-c"):
            key, _, value = (value if is_joined else next(words, "")).partition("=")
            found[key] = value
        elif name in _NAMED:
            found[_NAMED[name]] = value if is_joined else next(words, "")
    return found


def files_in_arguments(said: str) -> tuple[Path | None, bool]:
    """The file of properties that a command line of spark-submit names, and whether that of defaults counts as well.

    Without a word it does not: the one that is named stands in its place.
    """
    named: Path | None = None
    with_defaults = False
    words = iter(shlex.split(said))
    for word in words:
        name, is_joined, value = word.partition("=")
        if name == "--properties-file":
            named = Path(value if is_joined else next(words, ""))
        elif word == "--load-spark-defaults":
            with_defaults = True
    return named, with_defaults


def has_collector(settings: dict[str, str]) -> bool:
    """Whether somebody has chosen how the driver's Java collects garbage. It does not start where two have."""
    said = [
        settings.get("spark.driver.defaultJavaOptions", ""),
        *(os.environ.get(each, "") for each in _JAVA_VARIABLES),
    ]
    return re.search(r"-XX:\+Use\w+GC\b", " ".join(said)) is not None
