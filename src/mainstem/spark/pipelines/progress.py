"""What a person sees of a pipeline while it runs: one line that says how far it is and what it waits for.

In a terminal the line is written over; elsewhere a new one is written when there is news, at most one in some seconds,
and one at the end.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any, Final

from mainstem.spark.offsets import Offsets
from mainstem.spark.pipelines.held_back import Waiting, told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S: Final = 0.2
LINE_EVERY_S: Final = 5.0
LINE_WIDTH_MAX: Final = 200
INPUT: Final = "mainstem.input"
"""What a pipeline has Spark count of the records that it reads: `RECORDS`, and `MALFORMED` where those are left out."""
RECORDS: Final = "records"
MALFORMED: Final = "malformed"

_CLASS: Final = re.compile(r" from org\.apache\.\S+")


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


def records_in(progress: dict[str, Any]) -> int:
    """How many records a batch has read. Spark's own number has each as often as a statement names its input."""
    counted = progress.get("observedMetrics", {}).get(INPUT)
    return int(progress.get("numInputRows") or 0 if counted is None else counted[RECORDS])


def rows_late(progress: dict[str, Any]) -> int:
    """How many rows a batch has left out as too late for the watermark."""
    return sum(each["numRowsDroppedByWatermark"] for each in progress.get("stateOperators", ()))


def describe(progress: dict[str, Any], rows_in: int, rows_out: int | None = None) -> str:
    """`rows_out` is given where Spark does not know: it counts rows of sinks, not of functions."""
    durations = progress.get("durationMs", {})
    sink = progress.get("sink", {}).get("numOutputRows", -1)
    out = ""
    if rows_out is not None:
        out = f", {rows_out:,} rows out in all"
    elif isinstance(sink, int) and sink >= 0:
        out = f", {sink:,} rows out"
    took_ms = durations.get("triggerExecution", 0)
    records = records_in(progress)
    rate = records * 1000 / took_ms if took_ms else 0.0
    return (
        f"batch {progress.get('batchId')}: {records:,} rows in{out} "
        f"({rows_in:,} in all, {rate:,.0f}/s), lag {lag(progress):,}, took {took_ms:,} ms"
    )


def left_out(malformed: int) -> str:
    """Empty where nothing was."""
    return f"{malformed:,} malformed records left out" if malformed else ""


def too_late(late: int) -> str:
    """Empty where nothing was."""
    return f"{late:,} rows too late for the watermark left out" if late else ""


def doing(status: str) -> str:
    """What Spark says that a query is at, without the name of the class that it is at it with."""
    return _CLASS.sub("", status)


class Line:
    """One line, written over in a terminal."""

    def __init__(self, to: IO[str] | None, quiet: bool) -> None:
        self._to = to or sys.stderr
        self._quiet = quiet
        self._is_terminal = self._to.isatty()
        self._last_s = 0.0
        self._width = 0

    def show(self, line: str, *, is_last: bool = False) -> None:
        now = time.monotonic()
        if self._quiet:
            return
        if self._is_terminal:
            print(f"\r{line[:LINE_WIDTH_MAX].ljust(self._width)}", end="", file=self._to, flush=True)
            self._width = min(len(line), LINE_WIDTH_MAX)
        elif is_last or now - self._last_s >= LINE_EVERY_S:
            self._last_s = now
            print(line, file=self._to, flush=True)

    def clear(self) -> None:
        if self._is_terminal and self._width:
            print("\r" + " " * self._width + "\r", end="", file=self._to, flush=True)
            self._width = 0


class Interrupts:
    """Notes the first interrupt, and leaves a second one to who had them before.

    PySpark's own handler talks to Java, also where the main thread is in the middle of doing so, and fails with pages.
    """

    def __init__(self) -> None:
        self.came = False
        self._before: Any = None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        self._give_back()

    def _note(self, *_: object) -> None:
        self.came = True
        self._give_back()

    def _give_back(self) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None


class Watcher:
    """Follows queries until all have ended; raises what ended one of them."""

    def __init__(self, to: IO[str] | None = None, *, quiet: bool = False) -> None:
        self._line = Line(to, quiet)
        self.held: Offsets = {}
        """What waited for open transactions when the queries had ended, by partition."""
        self.malformed = 0
        """How many records were left out as malformed."""
        self.late = 0
        """How many rows were left out as too late for the watermark.

        Spark counts them where it groups or joins, after it has put together what it could within a task.
        """

    def follow(
        self,
        queries: dict[str, StreamingQuery],
        stop: Callable[[], bool] | None = None,
        rows_out: Callable[[], int] | None = None,
        *,
        is_endless: bool = False,
        waiting: Waiting | None = None,
    ) -> dict[str, int]:
        """The rows that each has read. `stop` is asked now and then whether to end them.

        An interrupt ends them as well: where they are endless that is how they end, else it is raised afterwards.
        """
        rows = dict.fromkeys(queries, 0)
        seen = dict.fromkeys(queries, -1)
        with Interrupts() as interrupts:
            self._watch(
                queries, rows, seen, rows_out, lambda: interrupts.came or (stop is not None and stop()), waiting
            )
        self.held = {} if waiting is None else waiting.ask()
        held = told(self.held)
        for name, query in queries.items():
            self._add_up(name, query, rows, seen)
            parts = [self._latest(query, rows[name], rows_out), *self._left_out(), held]
            if any(parts):
                self._line.show(f"{name}: {'; '.join(each for each in parts if each)}", is_last=True)
        self._line.clear()
        for query in queries.values():
            failure = query.exception()
            if failure is not None:
                raise failure
        if interrupts.came and not is_endless:
            raise KeyboardInterrupt
        return rows

    def _watch(
        self,
        queries: dict[str, StreamingQuery],
        rows: dict[str, int],
        seen: dict[str, int],
        rows_out: Callable[[], int] | None,
        stop: Callable[[], bool],
        waiting: Waiting | None,
    ) -> None:
        since = dict.fromkeys(queries, time.monotonic())
        while any(query.isActive for query in queries.values()):
            for name, query in queries.items():
                before = seen[name]
                self._add_up(name, query, rows, seen)
                if seen[name] != before:
                    since[name] = time.monotonic()
                latest = self._latest(query, rows[name], rows_out)
                held = "" if waiting is None else told(waiting.latest)
                status = f"{doing(query.status['message'])}, {time.monotonic() - since[name]:.0f} s"
                parts = [latest, *self._left_out(), held, status]
                self._line.show(f"{name}: {'; '.join(each for each in parts if each)}")
            if stop():
                for query in queries.values():
                    query.stop()
            time.sleep(POLL_S)

    def _left_out(self) -> list[str]:
        return [left_out(self.malformed), too_late(self.late)]

    def _latest(self, query: StreamingQuery, rows_in: int, rows_out: Callable[[], int] | None) -> str | None:
        latest = query.lastProgress
        if latest is None:
            return None
        return describe(json.loads(latest.json), rows_in, None if rows_out is None else rows_out())

    def _add_up(self, name: str, query: StreamingQuery, rows: dict[str, int], seen: dict[str, int]) -> None:
        for progress in query.recentProgress:
            if progress["batchId"] > seen[name]:
                seen[name] = progress["batchId"]
                rows[name] += records_in(progress)
                self.late += rows_late(progress)
                counted = progress["observedMetrics"].get(INPUT)
                self.malformed += counted[MALFORMED] if counted is not None and MALFORMED in counted else 0


class Steps:
    """Shows which step of several a batch job is at, and how many of Spark's tasks are done, while Spark works."""

    def __init__(self, spark: SparkSession, name: str, to: IO[str] | None = None, *, quiet: bool = False) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._name = name
        self._line = Line(to, quiet)
        self._step = "starting"
        self._began_s = time.monotonic()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="progress", daemon=True)

    def __enter__(self) -> Steps:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._line.clear()

    def at(self, step: str) -> None:
        self._step = step

    def _watch(self) -> None:
        while not self._is_over.wait(POLL_S):
            self._line.show(self.line())

    def line(self) -> str:
        stages = [self._tracker.getStageInfo(number) for number in self._tracker.getActiveStageIds()]
        tasks = sum(stage.numTasks for stage in stages if stage is not None)
        done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
        waiting = f"{done:,} of {tasks:,} tasks" if tasks else "waiting for Spark"
        return f"{self._name}: {self._step}; {waiting}, {time.monotonic() - self._began_s:.0f} s"
