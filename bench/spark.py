"""Spark's own Kafka connector and ours on the same broker, alternating, each in a session that stays warm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.spark.connector import connector_jars

from bench import load
from bench.frame import KAFKA, MAINSTEM, Figures, Metric, Result, Row, Setting
from bench.systems import MainstemSystem

ROWS_READ: Final = 5_000_000
ROWS_WRITTEN: Final = 2_000_000
ROWS_STREAMED: Final = 2_000_000
PER_TRIGGER: Final = 1_000_000
PARTITIONS: Final = 4
AGAINST: Final = "Spark's connector"
REPOSITORY: Final = Path(__file__).resolve().parents[1]


class Session:
    """One `bench.spark_job`."""

    def __init__(self, kind: str, bootstrap: str, home: Path, jars: str) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._log = open(home / "session.log", "wb")  # noqa: SIM115 - as long as the session
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.spark_job", kind, bootstrap, str(home), jars],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        self._answer()

    def do(self, work: str, **arguments: Any) -> Figures:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"work": work, **arguments}).encode() + b"\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Figures:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            if line.startswith(b"{"):
                found: Figures = json.loads(line)
                return found
        raise RuntimeError(f"the session ended; {self._log.name} says why")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._log.close()


class Place:
    """The broker, its topics, and both sessions."""

    def __init__(self, setting: Setting) -> None:
        setting.used += 1
        self._home = setting.home / f"{setting.used}-spark"
        self.system = MainstemSystem(self._home / "broker")
        self.system.start()
        jars = connector_jars()
        self.sessions = {
            KAFKA: Session("kafka", self.system.bootstrap, self._home / "kafka", jars),
            MAINSTEM: Session("mainstem", self.system.bootstrap, self._home / "mainstem", ""),
        }

    def topic(self, partitions: int = PARTITIONS) -> str:
        return load.new_topic(self.system, partitions)

    def filled(self, rows: int, partitions: int = PARTITIONS) -> str:
        topic = self.topic(partitions)
        self.sessions[MAINSTEM].do("write", topic=topic, rows=rows)
        return topic

    @property
    def data(self) -> Path:
        return self._home / "broker" / "data"

    def close(self) -> None:
        for session in self.sessions.values():
            session.close()
        self.system.kill()


def _alternating(measure: Callable[[Place], Callable[[str, Session], Figures]]) -> Callable[[Setting], Result]:
    """A round of each to warm up, then pairs, of which every second begins with the other."""

    def run(setting: Setting) -> Result:
        result = Result()
        place = Place(setting)
        try:
            work = measure(place)
            order = [KAFKA, MAINSTEM]
            for name in order:
                work(name, place.sessions[name])
            for pair in range(setting.pairs):
                for name in order if pair % 2 == 0 else reversed(order):
                    figures = work(name, place.sessions[name])
                    result.rounds[name].append(figures)
                    shown = ", ".join(f"{key} {value:,.3g}" for key, value in figures.items())
                    setting.say(f"  {pair + 1}/{setting.pairs} {AGAINST if name == KAFKA else name:18} {shown}")
            return result
        finally:
            place.close()

    return run


def _read(columns: str | None, partitions: int) -> Callable[[Setting], Result]:
    def measure(place: Place) -> Callable[[str, Session], Figures]:
        topic = place.filled(ROWS_READ, partitions)
        return lambda name, session: session.do("read", topic=topic, columns=columns, rows=ROWS_READ)

    return _alternating(measure)


def _write(place: Place) -> Callable[[str, Session], Figures]:
    return lambda name, session: session.do("write", topic=place.topic(), rows=ROWS_WRITTEN)


def _stream(place: Place) -> Callable[[str, Session], Figures]:
    source = place.filled(ROWS_STREAMED)
    return lambda name, session: session.do(
        "stream", source=source, target=place.topic(), rows=ROWS_STREAMED, per_trigger=PER_TRIGGER
    )


def _latency(place: Place) -> Callable[[str, Session], Figures]:
    return lambda name, session: session.do("latency", source=place.topic(1), target=place.topic(1))


def _segments(place: Place) -> Callable[[str, Session], Figures]:
    topic = place.filled(ROWS_READ)
    (folder,) = place.data.rglob(f"{topic}-0")

    def work(name: str, session: Session) -> Figures:
        if name == KAFKA:
            return session.do("read", topic=topic, columns=None, rows=ROWS_READ)
        return session.do("segments", path=str(folder.parent), topic=topic, rows=ROWS_READ)

    return work


def _rate(least: float) -> tuple[Metric, ...]:
    return (Metric("m_s", "throughput", "M rows/s", ratio_at_least=least),)


SPARK_ROWS: tuple[Row, ...] = (
    Row("spark-read", "Spark: batch read, all columns", _rate(2.5), _read(None, PARTITIONS), AGAINST),
    Row("spark-read-kv", "Spark: batch read, key and value", _rate(3.0), _read("key,value", PARTITIONS), AGAINST),
    Row("spark-read-hot", "Spark: one hot partition, all columns", _rate(2.5), _read(None, 1), AGAINST),
    Row(
        "spark-write",
        "Spark: batch write, exactly once beside at least once",
        _rate(1.3),
        _alternating(_write),
        AGAINST,
    ),
    Row(
        "spark-stream",
        "Spark: stream from topic to topic, exactly once beside at least once",
        _rate(2.5),
        _alternating(_stream),
        AGAINST,
    ),
    Row(
        "spark-latency",
        "Spark: micro-batch of one row, topic to topic",
        (Metric("p50_ms", "p50", "ms", ratio_at_most=0.5), Metric("p99_ms", "p99", "ms")),
        _alternating(_latency),
        AGAINST,
    ),
    Row("spark-segments", "Spark: segment files, all columns", _rate(3.0), _alternating(_segments), AGAINST),
)
