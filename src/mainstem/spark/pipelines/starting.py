"""Starting a streaming query on a machine that may be very busy.

Spark gives the Python process of a stream's source ten seconds from its start to connect, and fails the query where it
takes longer. Nothing has happened by then, so such a query is started again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

TRIES: Final = 5
NOT_CONNECTED: Final = "failed to connect back"
INITIALIZING: Final = "Initializing sources"
POLL_S: Final = 0.05


def started(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """A query whose sources are there, or one that has ended for another reason."""
    for _ in range(TRIES):
        query = start()
        while query.isActive and query.status["message"] == INITIALIZING:
            time.sleep(POLL_S)
        failure = query.exception()
        if failure is None or NOT_CONNECTED not in str(failure):
            break
    return query
