"""`lake`: a topic to Parquet files, in folders by the time of the event, exactly once.

Each micro-batch is written to a folder of its own under `.staging`, then moved file by file to `date=…/`, under names
that the query and the batch decide: a batch that is replayed replaces its own files and nothing else. A list of the
batch's files (`lake_lists`), written last, is what makes it count; what a batch that died left behind is removed by the
next run. What may land in a folder that is a lake already, and who may work on it, is `lake_folder`'s.

With a schema, values are JSON and become columns; those that do not parse go to `bad/`, with where they came from, and
where `bad_topic` names one also to a topic, as they were. That is a write named by the query and the batch, made before
the list: whichever of the two a run that dies has not done, the replay does.

The day is the column `date`, or `_date` where the value has a field of that name itself, or `__date` where it has both.

Small files of a day are merged by `compact`, which replaces them in the same way; with `compact_every` that happens
between batches, so that a pipeline which never ends does not fill the lake with them.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mainstem.spark.pipelines import lake_lists
from mainstem.spark.pipelines.audit import topic_frame
from mainstem.spark.pipelines.durable import sync, write_durably
from mainstem.spark.pipelines.held_back import Waiting
from mainstem.spark.pipelines.lake_folder import (
    CHECKPOINT,
    Lock,
    check_names,
    check_query,
    check_schema,
    claim,
    day_column,
    fields_of,
    local_folder,
    query_id,
)
from mainstem.spark.pipelines.progress import Watcher
from mainstem.spark.pipelines.sampled import settled_on, unreadable
from mainstem.spark.pipelines.source_topic import check_topic, topic_id
from mainstem.spark.pipelines.starting import started
from mainstem.spark.pipelines.topic_stream import check_max_records, topic_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import DataType

log = logging.getLogger(__name__)

ROWS: Final = "rows"
BAD: Final = "bad"
STAGING: Final = ".staging"
SCHEMA_FILE: Final = ".schema"
INFERRED_FROM: Final = 1000
"""How many values a schema is taken from where none is given."""
META: Final = "_key binary, _topic string, _partition int, _offset bigint, _timestamp timestamp, _corrupt string"
AS_IT_WAS: Final = "_value binary, _headers array<struct<key: string, value: binary>>"
OWN: Final = frozenset({"_value", "_headers", *(each.split()[0] for each in META.split(", "))})
"""Names that fields of values cannot have."""
NOT_LANDED: Final = ("_corrupt", "_value", "_headers")
ORIGIN_HEADERS: Final = {
    "mainstem.topic": "_topic",
    "mainstem.partition": "_partition",
    "mainstem.offset": "_offset",
}
COMPACT_BELOW_BYTES: Final = 16 << 20
COMPACT_EVERY: Final = 100
"""How many batches land, where the pipeline goes on and on, before small files are merged."""
KEPT_S: Final = 3600.0
"""How long a file that was merged stays for who is reading it, where the pipeline goes on and on."""


@dataclass(frozen=True, slots=True)
class Lake:
    """Where it is and what goes into it."""

    bootstrap: str
    topic: str
    path: Path
    schema: str | None = None
    event_time: str | None = None
    """The column that says when it happened; the record's own timestamp where none is named."""
    max_offsets_per_trigger: int | None = None
    """The most records of a batch; see `topic_stream` for None and 0."""
    kafka: tuple[tuple[str, str], ...] = ()
    bad_topic: str | None = None
    """Where values that do not parse go as they were, besides the table of them."""
    compact_every: int | None = None
    """After how many batches small files are merged while it runs; never where None."""
    accept_data_loss: bool = False
    """Whether to go on with what is there where records are gone before they were read."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", local_folder(self.path, "path"))
        check_schema(self.schema)
        check_max_records(self.max_offsets_per_trigger)
        if self.bad_topic is not None and self.schema is None:
            raise ValueError("bad_topic: needs a schema; without one every value is as good as another")
        if self.bad_topic == self.topic:
            raise ValueError(f"bad_topic: {self.topic} is what is read; name another topic")


def rows(spark: SparkSession, path: str | Path, which: str = ROWS, *, without: Collection[str] = ()) -> DataFrame:
    """What is in a lake: the files of batches that count, `without` those of these names."""
    root = Path(path).absolute()
    files = [str(root / which / name) for name in listed(root, which) if name not in without]
    if not files:
        raise ValueError(f"{path}: nothing has landed here yet")
    return _read(spark, root / which, files)


def _read(spark: SparkSession, base: Path, files: list[str]) -> DataFrame:
    # Without merging Spark takes the columns of one file, and those that came later are lost.
    return spark.read.option("basePath", str(base)).option("mergeSchema", "true").parquet(*files)


def inferred_schema(spark: SparkSession, bootstrap: str, topic: str, path: str | Path) -> str:
    """The schema that values have, as the first of them show it. It is kept with the lake: a later run has the same.

    A field that comes up for the first time later is not landed; one that has another type makes its record a bad one.
    ValueError where no value that it is taken from would land.
    """
    from pyspark.sql.types import StructType

    from mainstem.spark.schema import wanted_of_values

    kept = Path(path).absolute() / SCHEMA_FILE
    if kept.exists():
        return kept.read_text(encoding="utf-8")
    some = topic_frame(spark, bootstrap, topic).select("value").where("value is not null")
    values = [bytes(row.value) for row in some.limit(INFERRED_FROM).collect()]
    texts = spark.sparkContext.parallelize([value.decode("utf-8", "replace") for value in values])
    found = spark.read.option("inferTimestamp", "true").json(texts).schema
    fields = [field for field in found.fields if field.name.lower() not in {"_corrupt_record", *OWN}]
    if not fields:
        raise ValueError(f"schema: {topic} has no JSON objects to take one from; give it, as in 'id bigint'")
    # One that cannot be landed is not kept: whoever has mended what is wrong would get it again.
    check_names(StructType(fields))
    wanted_of_values(StructType(fields))
    settled = settled_on(values, StructType(fields))
    schema = ", ".join(f"{quoted(field.name)} {ddl(field.dataType)}" for field in settled.fields)
    if len(unreadable(values, settled)) == len(values):
        raise ValueError(
            f"schema: {schema} is what the first {len(values):,} values of {topic} seem to have, and none can be read "
            "by it: all would land as bad records; give another, or none"
        )
    write_durably(kept, schema)
    return schema


def ddl(kind: DataType) -> str:
    """A type as a schema has it, with names that may be anything."""
    from pyspark.sql.types import ArrayType, StructType

    if isinstance(kind, ArrayType):
        return f"array<{ddl(kind.elementType)}>"
    if isinstance(kind, StructType):
        return f"struct<{', '.join(f'{quoted(field.name)}: {ddl(field.dataType)}' for field in kind.fields)}>"
    return kind.simpleString()


def quoted(name: str) -> str:
    """The name of a column as Spark has to be given it, which takes a dot for the way into a struct."""
    return f"`{name.replace('`', '``')}`"


def listed(path: Path, which: str) -> list[str]:
    """The files that count, by their names under `which`."""
    return lake_lists.read(path).files.get(which, [])


def start(
    spark: SparkSession, lake: Lake, *, continuous: bool, landed: Callable[[int], None] | None = None
) -> StreamingQuery:
    """Starts landing; `landed` is told how many rows each batch has written, good and bad."""
    lake.path.mkdir(parents=True, exist_ok=True)
    lock = Lock(lake.path)
    try:
        query = _start(spark, lake, continuous=continuous, landed=landed)
    except BaseException:
        lock.release()
        raise
    threading.Thread(target=_release_when_over, args=(query, lock), name=f"lock of {lake.path}", daemon=True).start()
    return query


def _release_when_over(query: StreamingQuery, lock: Lock) -> None:
    try:
        # Why it ended is for who follows it.
        with suppress(Exception):
            query.awaitTermination()
    finally:
        lock.release()


def _start(
    spark: SparkSession, lake: Lake, *, continuous: bool, landed: Callable[[int], None] | None
) -> StreamingQuery:
    check_query(lake.path)
    warn_of_gone(lake.path)
    remove_leftovers(lake.path)
    reader = topic_stream(
        spark,
        lake.bootstrap,
        lake.topic,
        max_records=lake.max_offsets_per_trigger,
        accept_data_loss=lake.accept_data_loss,
    ).options(**dict(lake.kafka))
    if lake.schema is not None:
        check_names(fields_of(lake.schema), OWN)
        columns = [lake.schema, META, *([AS_IT_WAS] if lake.bad_topic is not None else [])]
        reader = reader.option("valueFormat", "json").schema(", ".join(columns))
    else:
        reader = reader.option("includeHeaders", "true")
    frame = reader.load()
    _check_event_time(lake, frame)
    claim(lake.path, lake.topic, frame.drop(*NOT_LANDED).schema)
    check_topic(lake.path / CHECKPOINT, lake.topic, topic_id(lake.bootstrap, lake.topic), lake.path)
    if lake.bad_topic is not None:
        topic_id(lake.bootstrap, lake.bad_topic, "bad_topic")  # not only when the first bad record comes
    writer = (
        frame.writeStream.foreachBatch(lander(lake, landed))
        .option("checkpointLocation", str(lake.path / CHECKPOINT))
        .queryName(f"lake {lake.topic}")
    )
    return started((writer if continuous else writer.trigger(availableNow=True)).start)


def _check_event_time(lake: Lake, frame: DataFrame) -> None:
    if lake.event_time is None:
        return
    if lake.event_time not in frame.columns:
        raise ValueError(f"event_time: there is no column {lake.event_time}; there are {', '.join(frame.columns)}")
    kind = frame.schema[lake.event_time].dataType.simpleString()
    if kind not in ("timestamp", "timestamp_ntz", "date"):
        raise ValueError(f"event_time: column {lake.event_time} is {kind}; it must be a timestamp or a date")


def run(spark: SparkSession, lake: Lake, *, continuous: bool = False, watcher: Watcher | None = None) -> int:
    """Lands what there is, or goes on until it is interrupted; how many records were read."""
    name = f"{lake.topic} to {lake.path}"
    landed: list[int] = []
    query = start(spark, lake, continuous=continuous, landed=landed.append)
    with Waiting(lake.bootstrap, lake.topic) as waiting:
        read = (watcher or Watcher()).follow(
            {name: query}, rows_out=lambda: sum(landed), is_endless=continuous, waiting=waiting
        )
    return read[name]


def lander(lake: Lake, landed: Callable[[int], None] | None = None) -> Callable[[DataFrame, int], None]:
    def land(frame: DataFrame, batch: int) -> None:
        if lake_lists.has_landed(lake.path, batch):
            return  # it counts already: Spark did not get to note it
        staging = lake.path / STAGING / f"{batch}-{uuid.uuid4().hex}"
        files: dict[str, list[str]] = {}
        # Good and bad rows are two writes of one batch, which is to be fetched and parsed once.
        kept = frame.persist() if lake.schema is not None else frame
        try:
            for which, some in split(kept, lake).items():
                some.write.partitionBy(some.columns[-1]).parquet(str(staging / which))
                files[which] = _move(staging / which, lake.path / which, f"batch-{batch:012}")
            if lake.bad_topic is not None and files[BAD]:
                _send_bad(kept, lake, batch)
        finally:
            kept.unpersist()
        shutil.rmtree(staging, ignore_errors=True)
        lake_lists.note_batch(lake.path, batch, query_id(lake.path), files)
        if landed is not None:
            landed(sum(_row_count(lake.path / which / name) for which, names in files.items() for name in names))
        if lake.compact_every is not None and (batch + 1) % lake.compact_every == 0:
            merge(frame.sparkSession, lake.path, kept_s=KEPT_S)

    return land


def _row_count(file: Path) -> int:
    import pyarrow.parquet as pq

    return int(pq.read_metadata(file).num_rows)


def split(frame: DataFrame, lake: Lake) -> dict[str, DataFrame]:
    """Good rows and bad ones, each with the day it belongs to as the last column."""
    from pyspark.sql import functions as f

    if lake.schema is None:
        when = f.col(quoted(lake.event_time)) if lake.event_time else f.col("timestamp")
        return {ROWS: frame.withColumn(day_column(frame.columns), f.to_date(when))}
    stamp = f.col("_timestamp")
    when = f.coalesce(f.col(quoted(lake.event_time)), stamp) if lake.event_time else stamp
    bad = frame.where("_corrupt is not null").select(
        "_topic", "_partition", "_offset", "_timestamp", "_key", "_corrupt", f.to_date(stamp).alias("date")
    )
    good = frame.where("_corrupt is null").drop(*NOT_LANDED)
    good = good.withColumn(day_column(good.columns), f.to_date(when))
    return {ROWS: good, BAD: bad}


def _send_bad(frame: DataFrame, lake: Lake, batch: int) -> None:
    """Bad records to their topic as they were, with more headers, which say where from."""
    from pyspark.sql import functions as f

    origin = f.array(
        *(
            f.struct(f.lit(name).alias("key"), f.col(column).cast("string").cast("binary").alias("value"))
            for name, column in ORIGIN_HEADERS.items()
        )
    )
    query = query_id(lake.path)
    bad = frame.where("_corrupt is not null")
    bad.select(
        f.col("_key").alias("key"),
        f.col("_value").alias("value"),
        f.col("_timestamp").alias("timestamp"),
        f.concat(f.coalesce(f.col("_headers"), f.array()), origin).alias("headers"),
    ).write.format("mainstem").mode("append").options(
        **{"kafka.bootstrap.servers": lake.bootstrap, "topic": lake.bad_topic or "", "useTimestampColumn": "true"},
        txnAppId=f"lake.{query}",
        txnVersion=str(batch),
    ).save()


def compact(spark: SparkSession, path: str | Path, below_bytes: int = COMPACT_BELOW_BYTES) -> int:
    """Merges the small files of each day into one; how many there were. Not while the pipeline runs."""
    root = local_folder(Path(path), "path")
    lock = Lock(root)
    try:
        return merge(spark, root, below_bytes)
    finally:
        lock.release()


def merge(spark: SparkSession, root: Path, below_bytes: int = COMPACT_BELOW_BYTES, kept_s: float = 0.0) -> int:
    """As `compact`, by who holds the lock. What is merged now is removed later: somebody may be reading it."""
    remove_leftovers(root, kept_s)
    merged = 0
    for which, files in lake_lists.read(root).files.items():
        by_day: dict[str, list[str]] = {}
        for name in files:
            # One that is gone is nothing to merge, and stays listed: an audit is to find it.
            with suppress(FileNotFoundError):
                if (root / which / name).stat().st_size >= below_bytes:
                    continue
                by_day.setdefault(str(Path(name).parent), []).append(name)
        for day, names in by_day.items():
            if len(names) < 2:
                continue
            label = uuid.uuid4().hex
            staging = root / STAGING / label
            paths = [str(root / which / name) for name in names]
            some = _read(spark, root / which, paths)
            some.coalesce(1).write.partitionBy(day.partition("=")[0]).parquet(str(staging))
            moved = _move(staging, root / which, f"{lake_lists.MERGED}{label}")
            shutil.rmtree(staging, ignore_errors=True)
            lake_lists.note_merged(root, which, moved, names)
            for path in paths:
                os.utime(path)  # how long it is kept is counted from now
            merged += len(names)
    if merged:
        lake_lists.fold(root)
    return merged


def _move(staging: Path, target: Path, label: str) -> list[str]:
    """Moves files to their place under names of the batch's; their names, relative to `target`.

    They are on the disk when this returns: the list that makes them count must not outlive them.
    """
    names = []
    folders: set[Path] = set()
    for nth, file in enumerate(sorted(staging.rglob("*.parquet"))):
        name = Path(file.parent.relative_to(staging)) / f"{label}-{nth:04}.parquet"
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        sync(file)
        os.replace(file, target / name)
        folders.update(((target / name).parent, target, target.parent))
        names.append(str(name))
    for folder in folders:
        sync(folder)
    return names


def warn_of_gone(root: Path) -> None:
    names = [f"{which}/{name}" for which, some in lake_lists.gone(root).items() for name in some]
    if names:
        log.warning(
            "path: of the files that have landed in %s, %d are gone, such as %s; put them back, or see with "
            "`mainstem pipeline audit --against-lake` which records are missing",
            root,
            len(names),
            names[0],
        )


def remove_leftovers(path: Path, kept_s: float = 0.0) -> None:
    """What no batch that counts has named: parts of one that died, and files that were merged so long ago."""
    shutil.rmtree(path / STAGING, ignore_errors=True)
    lists = lake_lists.read(path)
    before_s = time.time() - kept_s
    for which in (ROWS, BAD):
        kept = set(lists.files.get(which, ()))
        for file in (path / which).rglob("*.parquet"):
            if str(file.relative_to(path / which)) not in kept and file.stat().st_mtime <= before_s:
                file.unlink()
