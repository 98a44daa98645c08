"""What a job does on a cluster: reads a topic, copies it exactly once as a stream; run as a process of its own.

    python -m tests.spark.jobs.on_cluster MASTER BOOTSTRAP SOURCE TARGET HOME

Prints one JSON object with what it counted and on how many executors it ran.
"""

import json
import os
import sys

from mainstem.spark import session


def main() -> None:
    master, bootstrap, source, target, home = sys.argv[1:]
    spark = session(
        "cluster test",
        master,
        {
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.log.level": "OFF",
            "spark.sql.shuffle.partitions": "2",
            "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        },
    )
    reader = spark.read.format("mainstem").option("kafka.bootstrap.servers", bootstrap).option("subscribe", source)
    frame = reader.option("minPartitions", 4).load()
    read = frame.count()
    stream = (
        spark.readStream.format("mainstem")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 500)
        .load()
    )
    query = (
        stream.select("key", "value")
        .writeStream.format("mainstem")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", target)
        .option("checkpointLocation", home)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    executors = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    print(json.dumps({"read": read, "executors": len(executors) - 1}))
    spark.stop()


if __name__ == "__main__":
    main()
