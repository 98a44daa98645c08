"""Spark's own Kafka connector and ours told the same, in one session; run as a process of its own.

    python -m tests.spark.jobs.side_by_side BOOTSTRAP TOPIC HOME JARS

The topic has two partitions of a hundred records whose timestamps begin at `FIRST_MS`, with aborted transactions among
them. Prints one JSON object: what differed, by what was told, which is to be empty.
"""

import json
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from mainstem.spark import session
from mainstem.spark.pipelines.starting import started
from tests.spark import quick
from tests.spark.connector import FIRST_MS


def told(topic: str) -> list[dict[str, Any]]:
    def by_partition(zero: int, one: int) -> str:
        return json.dumps({topic: {"0": zero, "1": one}})

    middle = FIRST_MS + 50
    return [
        {"subscribe": topic},
        {"subscribe": f" {topic} ", "includeHeaders": "true"},
        {"subscribePattern": topic[:-2] + ".*", "minPartitions": "7"},
        {"assign": json.dumps({topic: [1]}), "maxRecordsPerPartition": "13"},
        {"subscribe": topic, "kafka.isolation.level": "read_committed", "groupIdPrefix": "side-by-side"},
        {"subscribe": topic, "startingOffsets": by_partition(-2, 40), "endingOffsets": by_partition(60, -1)},
        {"subscribe": topic, "startingTimestamp": str(middle), "endingTimestamp": str(middle + 20)},
        {"subscribe": topic, "startingOffsetsByTimestamp": by_partition(middle, FIRST_MS)},
        {"subscribe": topic, "endingOffsetsByTimestamp": by_partition(FIRST_MS + 10, middle + 10**9)},
        # One that is for all comes before those by partition, and those before offsets.
        {"subscribe": topic, "startingTimestamp": str(middle), "startingOffsets": "earliest"},
        {
            "subscribe": topic,
            "startingTimestamp": str(FIRST_MS + 10**9),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        {"subscribe": topic, "kafkaConsumer.pollTimeoutMs": "60000", "fetchOffset.numRetries": "1"},
        {"subscribe": topic, "fetchOffset.retryIntervalMs": "5", "failOnDataLoss": "false"},
        # What both refuse.
        {"subscribe": topic, "startingTimestamp": str(FIRST_MS + 10**9)},
        {"subscribe": topic, "startingOffsets": "latest"},
        {"subscribe": topic, "endingOffsets": "earliest"},
        {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 1}})},
        {"subscribe": topic, "assign": json.dumps({topic: [0]})},
        {"subscribe": ""},
        {},
        {"subscribe": topic, "kafka.auto.offset.reset": "earliest"},
        {"subscribe": topic, "kafka.enable.auto.commit": "false"},
        {"subscribe": topic, "minPartitions": "0"},
    ]


def streams(topic: str) -> list[dict[str, Any]]:
    return [
        {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "60"},
        {"subscribe": topic, "startingOffsets": "earliest", "minOffsetsPerTrigger": "10", "maxTriggerDelay": "1s"},
        {"subscribe": topic, "startingTimestamp": str(FIRST_MS + 50)},
        {"subscribe": topic},
        # What both refuse.
        {"subscribe": topic, "endingOffsets": "latest"},
        {"subscribe": topic, "endingTimestamp": str(FIRST_MS)},
        {"subscribe": topic, "minOffsetsPerTrigger": "20", "maxOffsetsPerTrigger": "10"},
    ]


class Sides:
    def __init__(self, spark: SparkSession, bootstrap: str, home: str) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._home = home
        self._queries = 0

    def batch(self, kind: str, options: dict[str, Any]) -> Any:
        """The rows, or that it was refused: each side says why in its own words."""
        try:
            reader = self._spark.read.format(kind).option("kafka.bootstrap.servers", self._bootstrap)
            return rows(reader.options(**options).load())
        except Exception:
            return "refused"

    def stream(self, kind: str, options: dict[str, Any]) -> Any:
        self._queries += 1
        name = f"side_{self._queries}"
        try:
            reader = self._spark.readStream.format(kind).option("kafka.bootstrap.servers", self._bootstrap)
            writer = reader.options(**options).load().writeStream.format("memory").queryName(name)
            writer = writer.option("checkpointLocation", f"{self._home}/{name}")
            started(writer.trigger(availableNow=True).start).awaitTermination()
            return rows(self._spark.table(name))
        except Exception:
            return "refused"


def rows(frame: DataFrame) -> list[str]:
    return sorted(str(row.asDict(recursive=True)) for row in frame.collect())


def main() -> None:
    bootstrap, topic, home, jars = sys.argv[1:]
    settings = {"spark.jars": jars, "spark.driver.memory": "768m", "spark.ui.enabled": "false", **quick.DRIVER}
    sides = Sides(session("side by side", "local[2]", {**settings, "spark.log.level": "OFF"}), bootstrap, home)
    differing = {}
    for ask, given in ((sides.batch, told(topic)), (sides.stream, streams(topic))):
        for options in given:
            theirs, ours = ask("kafka", options), ask("mainstem", options)
            if theirs != ours:
                differing[json.dumps(options)] = [summary(theirs), summary(ours)]
    print(json.dumps({"differing": differing, "all": len(sides.batch("mainstem", {"subscribe": topic}))}))


def summary(found: Any) -> Any:
    return found if isinstance(found, str) else {"rows": len(found), "first": found[:2]}


if __name__ == "__main__":
    main()
