"""A Spark session that does what it is told, line by line: one process for Spark's connector, one for ours.

    python -m bench.spark_job kafka|mainstem BOOTSTRAP HOME JARS

A line on stdin is a JSON object with the work's name and its arguments; the answer is one JSON object on stdout with
the figures. Spark's connector runs with Spark's defaults, ours in the session that `mainstem.spark.session` makes.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

MASTER = "local[2]"
HEAP = {"spark.driver.memory": "4g", "spark.ui.enabled": "false", "spark.log.level": "OFF"}
LATENCY_BATCHES = 60
LATENCY_S_MAX = 240


class Job:
    def __init__(self, kind: str, bootstrap: str, home: str, jars: str) -> None:
        self._kind = kind
        self._bootstrap = bootstrap
        self._home = home
        if kind == "mainstem":
            from mainstem.spark import session

            self._spark = session("bench", MASTER, HEAP)
        else:
            os.environ["PYSPARK_PYTHON"] = sys.executable
            builder = SparkSession.builder.master(MASTER).config("spark.jars", jars)
            for key, value in HEAP.items():
                builder = builder.config(key, value)
            self._spark = builder.getOrCreate()

    def read(self, topic: str, columns: str | None, rows: int) -> dict[str, float]:
        """A whole topic to nowhere. Ours is told the columns as one has to tell it; Spark's prunes by itself."""
        began = time.perf_counter()
        self._load(topic, columns).write.format("noop").mode("overwrite").save()
        return {"m_s": rows / 1e6 / (time.perf_counter() - began)}

    def segments(self, path: str, topic: str, rows: int) -> dict[str, float]:
        began = time.perf_counter()
        frame = self._spark.read.format("mainstem").option("path", path).option("subscribe", topic).load()
        frame.write.format("noop").mode("overwrite").save()
        return {"m_s": rows / 1e6 / (time.perf_counter() - began)}

    def write(self, topic: str, rows: int) -> dict[str, float]:
        frame = self._spark.range(0, rows, 1, 4).selectExpr(
            "cast(lpad(cast(id as string), 8, '0') as binary) key", "cast(repeat('x', 100) as binary) value"
        )
        began = time.perf_counter()
        frame.write.format(self._kind).option("kafka.bootstrap.servers", self._bootstrap).option("topic", topic).mode(
            "append"
        ).save()
        return {"m_s": rows / 1e6 / (time.perf_counter() - began)}

    def stream(self, source: str, target: str, rows: int, per_trigger: int) -> dict[str, float]:
        began = time.perf_counter()
        query = self._copy(source, target, {"maxOffsetsPerTrigger": per_trigger}, availableNow=True)
        query.awaitTermination()
        return {"m_s": rows / 1e6 / (time.perf_counter() - began)}

    def latency(self, source: str, target: str) -> dict[str, float]:
        """Micro-batches of one row, each sent when the one before it is done."""
        from confluent_kafka import Producer

        query = self._copy(source, target, {}, processingTime="0 seconds")
        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 0})
        took: list[int] = []
        seen = -1
        deadline = time.monotonic() + LATENCY_S_MAX
        while len(took) < LATENCY_BATCHES and time.monotonic() < deadline:
            producer.produce(source, b"x" * 100, b"12345678")
            producer.flush(30)
            while True:
                new = [each for each in query.recentProgress if each["batchId"] > seen]
                if any(each["numInputRows"] for each in new) or time.monotonic() > deadline:
                    break
                if not query.isActive:
                    raise RuntimeError(f"the query has ended: {query.exception()}")
                time.sleep(0.002)
            for each in new:
                seen = max(seen, each["batchId"])
                if each["numInputRows"]:
                    took.append(each["durationMs"]["triggerExecution"])
        query.stop()
        if len(took) < LATENCY_BATCHES // 2:
            raise RuntimeError(f"{len(took)} micro-batches in {LATENCY_S_MAX} s are too few to say anything")
        settled = sorted(took[len(took) // 3 :])
        return {"p50_ms": float(settled[len(settled) // 2]), "p99_ms": float(settled[len(settled) * 99 // 100])}

    def _load(self, topic: str, columns: str | None) -> DataFrame:
        reader = self._spark.read.format(self._kind).option("kafka.bootstrap.servers", self._bootstrap)
        reader = reader.option("subscribe", topic)
        if columns is None:
            return reader.load()
        if self._kind == "mainstem":
            return reader.schema(", ".join(f"{name} binary" for name in columns.split(","))).load()
        return reader.load().select(*columns.split(","))

    def _copy(self, source: str, target: str, options: dict[str, Any], **trigger: Any) -> Any:
        reader = self._spark.readStream.format(self._kind).option("kafka.bootstrap.servers", self._bootstrap)
        reader = reader.option("subscribe", source).option("startingOffsets", "earliest").options(**options)
        if self._kind == "mainstem":
            reader = reader.schema("key binary, value binary")
        writer = reader.load().select("key", "value").writeStream.format(self._kind)
        writer = writer.option("kafka.bootstrap.servers", self._bootstrap).option("topic", target)
        writer = writer.option("checkpointLocation", f"{self._home}/{uuid4().hex}")
        return writer.trigger(**trigger).start()


def main() -> None:
    job = Job(*sys.argv[1:])
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        told = json.loads(line)
        print(json.dumps(getattr(job, told.pop("work"))(**told)), flush=True)


if __name__ == "__main__":
    main()
