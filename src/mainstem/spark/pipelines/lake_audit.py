"""Whether a lake has every record of a topic once, and with the same content.

The topic is decoded as the lake's was, with the schema that its files have, and both are compared record by record:
where it was, its time, its key, and its content as one text, in which nothing is rounded. Bad records are compared with
the lake's table of them.

A lake is kept longer than a topic: what it has from before the topic's first record is counted, and is no difference.
Neither is what it has between, where the topic is compacted. A file that a batch has landed and that is gone is found
fault with by its name, and what was in it is missing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mainstem.spark.pipelines import lake, lake_lists
from mainstem.spark.pipelines.audit import EXAMPLES, Finding, Report, compare, topic_frame
from mainstem.spark.pipelines.holes import is_compacted
from mainstem.spark.pipelines.lake_folder import LAKE_FILE, landed_schema
from mainstem.spark.times import JSON_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mainstem.spark.pipelines.progress import Steps

Gone = dict[str, list[str]]
"""Files that are gone, by the table that they are of."""


def compare_lake(
    spark: SparkSession, bootstrap: str, topic: str, path: str | Path, steps: Steps | None = None
) -> Report:
    """Compares what is committed in a topic with a lake of it."""
    gone = lake_lists.gone(Path(path))
    rows = _good(spark, Path(path), gone)
    if "_offset" in rows.columns:
        landed = _content(rows)
        if _has(Path(path), lake.BAD, gone):
            landed = landed.unionAll(_content(lake.rows(spark, path, lake.BAD, without=gone[lake.BAD]), "_corrupt"))
        there = _decoded(spark, bootstrap, topic, rows)
    else:
        landed, there = _raw(rows), _raw(topic_frame(spark, bootstrap, topic, headers=True))
    first = there.groupBy("partition").agg({"offset": "min"}).withColumnRenamed("min(offset)", "first")
    kept = landed.join(first, "partition").where("offset >= first").drop("first")
    why = "from before the topic's first"
    if is_compacted(bootstrap, topic):
        kept = kept.join(there.select("partition", "offset"), ["partition", "offset"], "left_semi")
        why += ", or compacted away"
    report = compare(there, kept, (topic, str(path)), steps=steps)
    older = landed.count() - kept.count()
    report.findings[:0] = _found_gone(gone)
    report.figures["records that only the lake has kept"] = f"{older:,} ({why})"
    return report


def _good(spark: SparkSession, path: Path, gone: Gone) -> DataFrame:
    """The good rows. Where the lake has none, or none that are left, no row of the shape of a good one.

    What was run on a topic without records says of itself what would be landed. Where nothing was run there is no lake.
    """
    if not _has(path, lake.ROWS, gone) and (path / LAKE_FILE).exists():
        return spark.createDataFrame([], landed_schema(path))
    rows = lake.rows(spark, path, without=gone.get(lake.ROWS, ()))
    return rows.drop(rows.columns[-1])  # the day, which is the folder's


def _has(path: Path, which: str, gone: Gone) -> bool:
    return len(lake.listed(path, which)) > len(gone.get(which, ()))


def _found_gone(gone: Gone) -> list[Finding]:
    names = [f"{which}/{name}" for which, some in gone.items() for name in some]
    if not names:
        return []
    return [Finding("Are all files of the lake there?", False, f"no: {len(names):,} are gone", names[:EXAMPLES])]


def _raw(frame: DataFrame) -> DataFrame:
    return frame.select("partition", "offset", "key", "value", "headers", "timestamp")


def _decoded(spark: SparkSession, bootstrap: str, topic: str, rows: DataFrame) -> DataFrame:
    from pyspark.sql.types import StringType, StructField, StructType

    from mainstem.spark.schema import CORRUPT

    schema = StructType([*rows.schema.fields, StructField(CORRUPT, StringType())])
    frame = (
        spark.read.format("mainstem")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("kafka.isolation.level", "read_committed")
        .option("valueFormat", "json")
        .schema(schema)
        .load()
    )
    good = _content(frame.where("_corrupt is null").drop("_corrupt"))
    return good.unionAll(_content(frame.where("_corrupt is not null"), "_corrupt"))


def _content(frame: DataFrame, column: str | None = None) -> DataFrame:
    """Where each record was, and what is in it: one column of a bad one, or all fields of the value as one text."""
    from pyspark.sql import functions as f

    own = {"_topic", "_partition", "_offset", "_timestamp", "_key"}
    fields = [f.col(lake.quoted(name)) for name in frame.columns if name not in own]
    content = f.col(column) if column is not None else f.to_json(f.struct(*fields), {**JSON_OPTIONS, "timeZone": "UTC"})
    return frame.select(
        f.col("_partition").alias("partition"),
        f.col("_offset").alias("offset"),
        f.col("_timestamp").alias("timestamp"),
        f.col("_key").alias("key"),
        f.lit(column is None).alias("is_good"),
        content.alias("content"),
    )
