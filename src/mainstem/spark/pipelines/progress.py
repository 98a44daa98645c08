"""What a person sees of a pipeline while it runs: one line that says how far it is and what it waits for.

In a terminal the line is written over; elsewhere a new one is written when there is news, at most one in some seconds.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S: Final = 0.2
LINE_EVERY_S: Final = 5.0


def lag(progress: dict[str, Any]) -> int:
    """How many records of the sources were not read yet when the batch was made."""
    behind = 0
    for source in progress.get("sources", ()):
        ends, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        for topic, numbers in latest.items():
            behind += sum(max(0, end - ends.get(topic, {}).get(number, 0)) for number, end in numbers.items())
    return behind


def _offsets(given: Any) -> dict[str, dict[str, int]]:
    if isinstance(given, str):
        given = json.loads(given)
    return given if isinstance(given, dict) else {}


def describe(progress: dict[str, Any], rows_in: int) -> str:
    durations = progress.get("durationMs", {})
    sink = progress.get("sink", {}).get("numOutputRows", -1)
    out = f", {sink:,} rows out" if isinstance(sink, int) and sink >= 0 else ""
    rate = progress.get("processedRowsPerSecond") or 0.0
    return (
        f"batch {progress.get('batchId')}: {progress.get('numInputRows', 0):,} rows in{out} "
        f"({rows_in:,} in all, {rate:,.0f}/s), lag {lag(progress):,}, took {durations.get('triggerExecution', 0):,} ms"
    )


class Watcher:
    """Follows queries until all have ended; raises what ended one of them."""

    def __init__(self, to: IO[str] | None = None, *, quiet: bool = False) -> None:
        self._to = to or sys.stderr
        self._quiet = quiet
        self._is_terminal = self._to.isatty()
        self._last_line_s = 0.0
        self._width = 0

    def follow(self, queries: dict[str, StreamingQuery], stop: Callable[[], bool] | None = None) -> dict[str, int]:
        """The rows that each has read. `stop` is asked now and then whether to end them."""
        rows = dict.fromkeys(queries, 0)
        seen = dict.fromkeys(queries, -1)
        while any(query.isActive for query in queries.values()):
            for name, query in queries.items():
                for progress in query.recentProgress:
                    if progress["batchId"] > seen[name]:
                        seen[name] = progress["batchId"]
                        rows[name] += progress["numInputRows"]
                latest = query.lastProgress
                status = query.status["message"]
                if latest is None:
                    self._show(f"{name}: {status}")
                else:
                    self._show(f"{name}: {describe(json.loads(latest.json), rows[name])}; {status}")
            if stop is not None and stop():
                for query in queries.values():
                    query.stop()
            time.sleep(POLL_S)
        for name, query in queries.items():
            for progress in query.recentProgress:
                if progress["batchId"] > seen[name]:
                    seen[name] = progress["batchId"]
                    rows[name] += progress["numInputRows"]
        self.clear()
        for query in queries.values():
            failure = query.exception()
            if failure is not None:
                raise failure
        return rows

    def _show(self, line: str) -> None:
        now = time.monotonic()
        if self._quiet:
            return
        if self._is_terminal:
            print(f"\r{line[:200].ljust(self._width)}", end="", file=self._to, flush=True)
            self._width = min(len(line), 200)
        elif now - self._last_line_s >= LINE_EVERY_S:
            self._last_line_s = now
            print(line, file=self._to, flush=True)

    def clear(self) -> None:
        if self._is_terminal and self._width:
            print("\r" + " " * self._width + "\r", end="", file=self._to, flush=True)
            self._width = 0
