"""How many tasks run at once, for whoever plans a read.

Spark plans a source written in Python in a process of its own and tells it nothing of the session. What it has is the
environment of Spark's Java: so `session()` says it there, before it starts Java, where the settings tell. Elsewhere it
is taken for what this machine has, which is right for `local[*]` and a guess on a cluster.
"""

import os
import re
from collections.abc import Mapping
from typing import Final

VARIABLE: Final = "MAINSTEM_SPARK_CORES"

_LOCAL: Final = re.compile(r"local(?:\[\s*(\d+|\*)\s*(?:,[^]]*)?\])?")


def here() -> int:
    given = os.environ.get(VARIABLE)
    if given is None:
        return os.cpu_count() or 1
    if not given.isdecimal() or int(given) < 1:
        raise ValueError(f"{VARIABLE}: must be a whole number, at least 1; it is {given}")
    return int(given)


def of_session(settings: Mapping[str, str]) -> int | None:
    """What a session's settings tell; None where only the cluster knows."""
    parallelism = settings.get("spark.default.parallelism", "")
    if parallelism.isdecimal() and int(parallelism) > 0:
        return int(parallelism)
    local = _LOCAL.fullmatch(settings.get("spark.master", ""))
    if local is None:
        return None
    number = local[1] or "1"
    return max(1, int(number)) if number.isdecimal() else os.cpu_count() or 1
