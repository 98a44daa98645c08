"""Starting a streaming query: on a machine that may be very busy, and with shuffles that fit its cores.

Spark gives the Python process of a stream's source ten seconds from its start to connect, and fails the query where it
takes longer. Nothing has happened by then, so such a query is started again.

A micro-batch that groups or joins has a task and files of state for each part of a shuffle, and Spark's 200 of them
take longer than the rows: on this machine's own cores a query has as many as cores, where nobody has said how many.
Spark copies a session's settings when a query starts, so the setting is there for that moment only, and what is no
stream keeps Spark's number. A checkpoint keeps the number that it began with.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mainstem.spark import cores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TRIES: Final = 5
NOT_CONNECTED: Final = "failed to connect back"
INITIALIZING: Final = "Initializing sources"
POLL_S: Final = 0.05
SHUFFLE: Final = "spark.sql.shuffle.partitions"

_setting = threading.Lock()
"""Two that start at once would each take the other's setting for the user's."""


def start_by_cores(spark: SparkSession, start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Starts a query whose shuffles have as many parts as Spark has cores here, unless the session says how many."""
    parts = cores.of_session({"spark.master": spark.sparkContext.master or ""})
    with _setting:
        if parts is None or SHUFFLE in spark.conf.getAll:
            return start()
        spark.conf.set(SHUFFLE, parts)
        try:
            return start()
        finally:
            spark.conf.unset(SHUFFLE)


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
