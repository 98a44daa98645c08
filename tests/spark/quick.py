"""Java that starts quickly: a test has it run for seconds, in which the best code is never paid back.

    python -m tests.spark.quick

makes an archive of Spark's classes, read and checked, beside the environment that it runs in; where there is one, every
Java of the tests takes its classes from it. Measured: quick code is half the processor time of a session that starts
and runs a dozen small queries, and the archive halves what is left (15 s to 8 s for a start and two queries).
"""

import sys
import tempfile
from pathlib import Path

from mainstem.spark.spark_session import SETTINGS, session

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
_PLAIN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
JAVA = f"{_PLAIN} -XX:SharedArchiveFile={ARCHIVE} -Xlog:cds=off" if ARCHIVE.exists() else _PLAIN
_OURS = SETTINGS["spark.executor.extraJavaOptions"][0]
"""The driver's are these and a collector, and Java takes one collector."""
DRIVER = {"spark.driver.extraJavaOptions": f"{_OURS} {JAVA}"}
EXECUTOR = {"spark.executor.extraJavaOptions": f"{_OURS} {JAVA}"}


def make_archive() -> None:
    """Has Java write down which classes it had when it ends, after a little of everything."""
    written = ARCHIVE.with_suffix(".new")
    options = f"{_OURS} {_PLAIN} -XX:ArchiveClassesAtExit={written}"
    settings = {"spark.driver.extraJavaOptions": options, "spark.ui.enabled": "false", "spark.log.level": "OFF"}
    with tempfile.TemporaryDirectory() as home:
        spark = session("archive", "local[2]", {**settings, "spark.sql.warehouse.dir": home})
        frame = spark.range(0, 100, 1, 2).selectExpr("id", "cast(id as string) text", "cast(id % 2 as int) part")
        frame.write.partitionBy("part").parquet(f"{home}/rows")
        rows = spark.read.parquet(f"{home}/rows")
        rows.mapInArrow(lambda batches: batches, rows.schema).groupBy("part").count().collect()
        rows.join(frame, "id").orderBy("id").select("id").distinct().count()
        stream = spark.readStream.schema(rows.schema).parquet(f"{home}/rows").selectExpr("*", "current_timestamp() at")
        counts = stream.withWatermark("at", "1 minute").groupBy("at").count()
        for nth, (query, mode) in enumerate([(stream, "append"), (counts, "complete")]):
            writer = query.writeStream.format("noop").outputMode(mode).option("checkpointLocation", f"{home}/{nth}")
            writer.trigger(availableNow=True).start().awaitTermination()
        gateway = spark.sparkContext._gateway
        spark.stop()
        assert gateway is not None
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(300)
    written.rename(ARCHIVE)


if __name__ == "__main__":
    make_archive()
