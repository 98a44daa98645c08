"""A driver that copies a topic exactly once and is killed on the way; run as a process of its own.

    python -m tests.spark.jobs.copying BOOTSTRAP SOURCE TARGET HOME STEPS

`HOME` keeps the checkpoint and the marks of the accidents (`tests.spark.crashing`), so each run goes on to the next.
"""

import os
import sys
from pathlib import Path

from mainstem.spark import session
from mainstem.spark.pipelines.starting import started
from tests.spark import quick
from tests.spark.crashing import CrashingSource


def main() -> None:
    bootstrap, source, target, given, steps = sys.argv[1:]
    home = Path(given)
    settings = {"spark.driver.memory": "512m", "spark.ui.enabled": "false", "spark.log.level": "OFF"}
    spark = session("killed on the way", "local[2]", {**settings, **quick.DRIVER})
    spark.dataSource.register(CrashingSource)
    frame = (
        spark.readStream.format("mainstem")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 400)
        .load()
        .select("key", "value")
    )
    writer = (
        frame.writeStream.format("crashing")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", target)
        .option("checkpointLocation", str(home / "checkpoint"))
        .option("crashAt", steps)
        .option("crashMarker", str(home / "crash"))
        .option("crashHow", "jvm")
        .option("crashRun", str(os.getpid()))
        .trigger(availableNow=True)
    )
    started(writer.start).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
