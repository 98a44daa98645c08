"""What a job does on a cluster: reads a topic, copies it exactly once as streams; run as a process of its own.

    python -m tests.spark.jobs.on_cluster MASTER BOOTSTRAP SOURCE HOME TARGET SPECULATED RETRIED TRANSFORMED

The first copy is undisturbed. In the second a task is slow, so that Spark runs another attempt beside it. In the third
an executor is killed together with what it had shuffled, so that Spark runs whole stages again. Then come the
pipelines: the fourth copy is one of `transform`, there is a lake, and audits of both. Prints one JSON object with what
it counted and on how many executors it ran.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from mainstem.spark import session
from mainstem.spark.pipelines import audit, lake, transform
from mainstem.spark.pipelines.lake_audit import compare_lake
from mainstem.spark.pipelines.progress import Watcher
from mainstem.spark.pipelines.starting import started
from tests.spark import quick
from tests.spark.crashing import CrashingSource

SETTINGS = {
    **quick.DRIVER,
    **quick.EXECUTOR,
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.log.level": "OFF",
    "spark.sql.shuffle.partitions": "2",
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.5",
}


def main() -> None:
    master, bootstrap, source, home, target, speculated, retried, transformed = sys.argv[1:]
    executor_path = {"spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"]}
    spark = session("cluster test", master, {**SETTINGS, **executor_path})
    spark.dataSource.register(CrashingSource)
    reader = spark.read.format("mainstem").option("kafka.bootstrap.servers", bootstrap).option("subscribe", source)
    read = reader.option("minPartitions", 4).load().count()
    executors = len(spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()) - 1

    def copy(frame: DataFrame, to: str, kind: str = "mainstem", **options: Any) -> None:
        writer = frame.select("key", "value").writeStream.format(kind).options(**options)
        writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", to)
        writer = writer.option("checkpointLocation", f"{home}/{to}").trigger(availableNow=True)
        started(writer.start).awaitTermination()

    copy(stream(spark, bootstrap, source), target)
    slow = {"crashHow": "slow", "crashAt": "flushed", "crashMarker": f"{home}/slow"}
    copy(stream(spark, bootstrap, source), speculated, "crashing", **slow)
    killed = {"crashHow": "jvm", "crashAt": "flushed", "crashMarker": f"{home}/killed"}
    copy(stream(spark, bootstrap, source).repartition(4, "value"), retried, "crashing", **killed)
    found = {"read": read, "executors": executors, **pipelines(spark, bootstrap, source, Path(home), transformed)}
    print(json.dumps(found))
    spark.stop()


def pipelines(spark: SparkSession, bootstrap: str, source: str, home: Path, transformed: str) -> dict[str, Any]:
    landed = lake.run(spark, lake.Lake(bootstrap, source, home / "lake"), watcher=Watcher(quiet=True))
    job = transform.Transform(bootstrap, source, transformed, home / "transform")
    statement = "select key, value from input"
    read = transform.run(spark, job, statement, watcher=Watcher(quiet=True))
    reports = [
        compare_lake(spark, bootstrap, source, home / "lake"),
        audit.compare_topics(spark, (bootstrap, source), (bootstrap, transformed)),
        audit.audit_topic(spark, bootstrap, transformed, sequence="value", within="1"),
    ]
    wrong = [each.question for report in reports[:2] for each in report.findings if not each.is_good]
    # Records without a key may come to a partition from several, so their order there says nothing.
    wrong += [each.question for each in reports[2].findings if not each.is_good and "order" not in each.question]
    return {"landed": landed, "transformed": read, "wrong": wrong}


def stream(spark: SparkSession, bootstrap: str, source: str) -> DataFrame:
    reader = spark.readStream.format("mainstem").option("kafka.bootstrap.servers", bootstrap)
    reader = reader.option("subscribe", source).option("startingOffsets", "earliest").option("minPartitions", 4)
    return reader.option("maxOffsetsPerTrigger", 700).load()


if __name__ == "__main__":
    main()
