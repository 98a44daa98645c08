"""Watching queries."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


def until(condition: Callable[[], bool], query: StreamingQuery, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert query.isActive, str(query.exception())
        assert time.monotonic() < deadline, query.lastProgress
        time.sleep(0.05)
