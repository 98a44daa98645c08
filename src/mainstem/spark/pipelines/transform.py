"""`transform`: a topic to a topic, by a SQL statement or a Python function on DataFrames, exactly once.

The input is the view `input`: the record's columns with `key` and `value` as strings, or with a schema the fields of
the JSON value and the record's columns with an underscore in front. Records whose value does not fit the schema are
left out of it and counted, but for who asks for them: a statement that names `_corrupt`, or `keep_malformed`, gets them
as nulls with their text in that column. What comes out needs no shape of its own: a column
`value` is written as it is, and otherwise the row becomes a JSON object. `key`, `headers` and `partition` are the
record's where the result has them; which topic it goes to is the pipeline's, and its timestamp is when it is written.
"""

from __future__ import annotations

import importlib
import json
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mainstem.spark.pipelines.held_back import Waiting
from mainstem.spark.pipelines.lake_folder import check_schema, fields_of, local_folder
from mainstem.spark.pipelines.progress import INPUT, MALFORMED, RECORDS, Watcher
from mainstem.spark.pipelines.source_topic import check_topic, topic_id
from mainstem.spark.pipelines.starting import start_by_cores, started
from mainstem.spark.pipelines.topic_stream import NO_BOUND, check_max_records, topic_stream
from mainstem.spark.times import JSON_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

META: Final = "_key binary, _topic string, _partition int, _offset bigint, _timestamp timestamp"
TEXT_COLUMNS: Final = (
    *("cast(key as string) key", "cast(value as string) value"),
    *("topic", "partition", "offset", "timestamp", "headers"),
)
SINK_COLUMNS: Final = ("key", "headers", "partition")

Function = Callable[["DataFrame"], "DataFrame"]

_CORRUPT: Final = re.compile(r"\b_corrupt\b", re.IGNORECASE)
_SHORT: Final = re.compile(r"(\d+)\s*([smhd])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def interval(text: str) -> str:
    """As Spark spells it: `10m` becomes `10 minutes`; what it knows already stays as it is."""
    found = _SHORT.fullmatch(text.strip())
    return text.strip() if found is None else f"{found[1]} {_UNITS[found[2]]}"


@dataclass(frozen=True, slots=True)
class Transform:
    bootstrap: str
    source: str
    target: str
    checkpoint: Path
    schema: str | None = None
    watermark: tuple[str, str] | None = None
    """The column of the event's time, and how late an event may come, as in ("at", "10 minutes")."""
    output_mode: str = "append"
    target_bootstrap: str | None = None
    max_offsets_per_trigger: int | None = None
    """The most records of a batch; see `topic_stream` for None, which is no bound where there is a watermark, and 0.

    Batches take records of all partitions by number. Where one begins hours after another, or has fewer records an
    hour, what the other still has would be too late for the watermark that the first has moved.
    """
    guarantee: str = "exactly_once"
    accept_data_loss: bool = False
    """Whether to go on with what is there where records are gone before they were read."""
    starting_offsets: str = "earliest"
    """Where a new checkpoint begins: `earliest`, `latest`, or offsets by partition as Spark has them in JSON."""
    keep_malformed: bool = False
    """Whether a function gets the records, too, whose value does not fit the schema."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "checkpoint", local_folder(self.checkpoint, "checkpoint"))
        check_schema(self.schema)
        check_max_records(self.max_offsets_per_trigger)
        if self.keep_malformed and self.schema is None:
            raise ValueError("keep_malformed: needs a schema; without one every value is as good as another")
        if self.source == self.target and self.target_bootstrap in (None, self.bootstrap):
            raise ValueError(f"target: {self.target} is what is read; name another topic")


def function_named(name: str) -> Function:
    """`package.module:function`; ValueError where there is none."""
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ValueError(f"function: must be package.module:function; it is {name}")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        # Whatever its module does when it is imported, it is not ours.
        raise ValueError(f"function: {name} cannot be had: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise ValueError(f"function: {name} is nothing to call")
    return found  # type: ignore[no-any-return]


def most_records(job: Transform) -> int | None:
    return NO_BOUND if job.watermark and job.max_offsets_per_trigger is None else job.max_offsets_per_trigger


def source_frame(spark: SparkSession, job: Transform, *, keeps_malformed: bool = False) -> DataFrame:
    from pyspark.sql import functions as f

    reader = topic_stream(
        spark,
        job.bootstrap,
        job.source,
        max_records=most_records(job),
        accept_data_loss=job.accept_data_loss,
        starting_offsets=job.starting_offsets,
    )
    records = f.count(f.lit(1)).alias(RECORDS)
    if job.schema is None:
        frame = reader.option("includeHeaders", "true").load().observe(INPUT, records).selectExpr(*TEXT_COLUMNS)
    else:
        fields_of(job.schema)
        # A value that does not parse must not stop what others wait for, nor become a row that says nothing.
        frame = reader.option("valueFormat", "json").schema(f"{job.schema}, {META}, _corrupt string").load()
        if keeps_malformed:
            frame = frame.observe(INPUT, records)
        else:
            frame = frame.observe(INPUT, records, f.count("_corrupt").alias(MALFORMED)).where("_corrupt is null")
    return frame.withWatermark(*job.watermark) if job.watermark else frame


def sink_frame(result: DataFrame) -> DataFrame:
    """The result as the sink takes it."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import BinaryType, StringType

    names = result.columns
    if "value" in names and isinstance(result.schema["value"].dataType, BinaryType | StringType):
        return result
    own = [name for name in SINK_COLUMNS if name in names]
    content = [name for name in names if name not in own]
    if not content:
        raise ValueError("the result has nothing to write: give it a column value, or others to make an object of")
    value = f.to_json(f.struct(*(f.col(f"`{name}`") for name in content)), JSON_OPTIONS).alias("value")
    is_bytes = "key" in own and isinstance(result.schema["key"].dataType, BinaryType)
    keys = [f.col(name).cast("string").alias(name) if name == "key" and not is_bytes else f.col(name) for name in own]
    return result.select(*keys, value)


def start(
    spark: SparkSession,
    job: Transform,
    how: str | Function,
    *,
    continuous: bool,
    written: Callable[[int], None] | None = None,
) -> StreamingQuery:
    """Starts the query; `how` is a SQL statement over `input`, or a function.

    Where Spark cannot count what is written, which is in the mode `update`, `written` is told of every batch.
    """
    keeps_malformed = job.keep_malformed or (isinstance(how, str) and _CORRUPT.search(how) is not None)
    given = source_frame(spark, job, keeps_malformed=keeps_malformed)
    if callable(how):
        result = _called(how, given)
    else:
        given.createOrReplaceTempView("input")
        result = spark.sql(how)
    name = f"{job.source} to {job.target}"
    checkpoint = str(job.checkpoint)
    if is_updating(job):
        # Spark refuses this mode for a Python sink; as named writes, one a batch, it is exactly once all the same.
        stream = result.writeStream.foreachBatch(updater(job, written))
    else:
        stream = sink_frame(result).writeStream.format("mainstem").options(**sink_options(job))
    check_topic(job.checkpoint, job.source, topic_id(job.bootstrap, job.source))
    writer = stream.outputMode(job.output_mode).option("checkpointLocation", checkpoint).queryName(name)
    triggered = writer if continuous else writer.trigger(availableNow=True)
    return started(lambda: start_by_cores(spark, triggered.start))


def _called(how: Function, given: DataFrame) -> DataFrame:
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame

    name = getattr(how, "__name__", repr(how))
    try:
        result = how(given)
    except PySparkException:
        raise
    except Exception as error:
        raise ValueError(f"function: {name} failed: {type(error).__name__}: {error}") from error
    if not isinstance(result, DataFrame):
        raise ValueError(f"function: {name} gave a {type(result).__name__}; it must give a DataFrame")
    return result


def sink_options(job: Transform) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": job.target_bootstrap or job.bootstrap,
        "topic": job.target,
        "guarantee": job.guarantee,
    }


def is_updating(job: Transform) -> bool:
    return job.output_mode == "update"


def updater(job: Transform, written: Callable[[int], None] | None = None) -> Callable[[DataFrame, int], None]:
    """Writes a batch under the query's own id, which Spark keeps in the checkpoint: a new checkpoint is a new sink."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    def write(frame: DataFrame, batch: int) -> None:
        query = json.loads((job.checkpoint / "metadata").read_text())["id"]
        named = {"txnAppId": query, "txnVersion": str(batch)}
        counted = Observation()
        rows = sink_frame(frame).observe(counted, f.count(f.lit(1)).alias("rows"))
        rows.write.format("mainstem").mode("append").options(**sink_options(job), **named).save()
        if written is not None:
            written(int(counted.get["rows"]))

    return write


def run(
    spark: SparkSession,
    job: Transform,
    how: str | Function,
    *,
    continuous: bool = False,
    watcher: Watcher | None = None,
) -> int:
    """Does what there is to do, or goes on until it is interrupted; how many records were read."""
    written: list[int] = []
    query = start(spark, job, how, continuous=continuous, written=written.append)
    name = f"{job.source} to {job.target}"
    rows_out = (lambda: sum(written)) if is_updating(job) else None
    watcher = watcher or Watcher()
    with Waiting(job.bootstrap, job.source) as waiting:
        read = watcher.follow({name: query}, rows_out=rows_out, is_endless=continuous, waiting=waiting)
    if watcher.late:
        log.warning("%s", warning_of_late(job, watcher.late))
    return read[name]


def warning_of_late(job: Transform, late: int) -> str:
    allowed = f"the watermark of {job.watermark[1]}" if job.watermark else "the watermark"
    way = "allow more of it (--watermark)"
    if most_records(job) != NO_BOUND:
        way += ", or take all that waits in one batch (--max-records 0)"
    return (
        f"watermark: {late:,} rows of {job.source} came later than {allowed} allows and are not in {job.target}; each "
        f"is a record or, where Spark had begun to group, several; to have them, {way}, with another target and "
        "checkpoint"
    )
