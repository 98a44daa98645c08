"""Starting and watching queries.

On a very busy machine Spark gives up a Python process before it has connected. That is Spark's own limit of ten
seconds and says nothing about what is tested, so such a start is tried again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

TRIES = 4
NOT_CONNECTED = "failed to connect back"


def started(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """A query that has made its first batch, or has ended for another reason than a slow machine."""
    for _ in range(TRIES):
        query = start()
        while query.isActive and not query.recentProgress:
            time.sleep(0.05)
        failure = query.exception()
        if failure is None or NOT_CONNECTED not in str(failure):
            break
    return query


def until(condition: Callable[[], bool], query: StreamingQuery, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, query.lastProgress
        time.sleep(0.05)
