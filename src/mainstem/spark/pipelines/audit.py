"""`audit`: says whether a topic is complete, ordered and free of duplicates, or whether two have the same records.

One topic: offsets that are missing, records that are there twice, and, where records carry a number of their own,
numbers that are missing or out of order, within each key or within what the user names. Two topics, of one cluster or
of two, or a topic and a lake: records that only one of them has, counted with how often each is there, so that a
duplicate is a difference; and of two topics that have the same, whether the records of a key are in the same order.

Offsets may be missing for good reason: before the first that is kept, after compaction, where transactions ended and
where they were aborted. That is told, and is no finding. Where none of these explains it, records have been lost.
The report is a page that a person can open, with the figures, examples of what is wrong, and plots.
"""

from __future__ import annotations

import html
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mainstem.spark.pipelines import plots
from mainstem.spark.pipelines.held_back import held_back
from mainstem.spark.pipelines.holes import gaps, holes, is_compacted, log_bounds
from mainstem.spark.pipelines.progress import Steps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXAMPLES: Final = 5
POINTS: Final = 60


@dataclass(slots=True)
class Finding:
    """One question, and what came of it."""

    question: str
    is_good: bool
    answer: str
    examples: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    title: str
    findings: list[Finding] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    plots: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return all(each.is_good for each in self.findings)

    def to_text(self) -> str:
        lines = [self.title]
        lines += [f"  {name}: {value}" for name, value in self.figures.items()]
        for each in self.findings:
            lines.append(f"  {'ok  ' if each.is_good else 'BAD '} {each.question} {each.answer}")
            lines += [f"         {example}" for example in each.examples]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """For a script."""
        findings = [asdict(each) for each in self.findings]
        return {"title": self.title, "is_good": self.is_good, "figures": self.figures, "findings": findings}

    def to_html(self) -> str:
        rows = "".join(
            f"<tr class={'good' if each.is_good else 'bad'}><td>{'✓' if each.is_good else '✗'}</td>"
            f"<td>{html.escape(each.question)}</td><td>{html.escape(each.answer)}"
            + "".join(f"<br><code>{html.escape(example)}</code>" for example in each.examples)
            + "</td></tr>"
            for each in self.findings
        )
        figures = "".join(
            f"<tr><td></td><td>{html.escape(name)}</td><td>{html.escape(str(value))}</td></tr>"
            for name, value in self.figures.items()
        )
        return (
            '<!doctype html><meta charset="utf-8"><title>'
            + html.escape(self.title)
            + "</title><style>body{font:15px sans-serif;max-width:60em;margin:2em auto}td{padding:.3em .8em;"
            "vertical-align:top}.good td:first-child{color:#2f855a}.bad{background:#fed7d7}</style>"
            f"<h1>{html.escape(self.title)}</h1><p>{'All is well.' if self.is_good else 'Something is wrong.'}</p>"
            f"<table>{rows}{figures}</table>" + "".join(self.plots)
        )

    def write(self, path: str | Path) -> None:
        Path(path).write_text(self.to_html(), encoding="utf-8")


def topic_frame(spark: SparkSession, bootstrap: str, topic: str, *, headers: bool = False) -> DataFrame:
    """What is committed in a topic now."""
    return (
        spark.read.format("mainstem")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("kafka.isolation.level", "read_committed")
        .option("includeHeaders", "true" if headers else "false")
        .load()
    )


def audit_topic(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    *,
    identity: str | None = None,
    sequence: str | None = None,
    within: str | None = None,
    steps: Steps | None = None,
) -> Report:
    """Audits one topic.

    `identity`, `sequence` and `within` are SQL over the record's columns, with `value` and `key` as strings: what makes
    a record itself (key and value where none is given), the number it carries, and within what numbers count (its key).
    """
    from pyspark.sql import functions as f

    # Before the topic is read: all up to here is then in what is read.
    starts, ends = log_bounds(bootstrap, topic)
    frame = topic_frame(spark, bootstrap, topic).selectExpr(
        "cast(key as string) key", "cast(value as string) value", "topic", "partition", "offset", "timestamp"
    )
    frame = frame.persist()
    try:
        report = Report(f"Audit of {topic}")
        _at(steps, "reading the topic")
        per_partition = frame.groupBy("partition").agg(f.count("*").alias("n")).orderBy("partition").collect()
        report.figures = {
            "records": f"{sum(row.n for row in per_partition):,}",
            "partitions with records": len(per_partition),
        }
        deleted = sum(starts.values())
        if deleted:
            report.figures["offsets before the log begins"] = f"{deleted:,} (retention, or records that were deleted)"
        waiting = sum(held_back(bootstrap, topic).values())
        if waiting:
            report.figures["offsets after an open transaction"] = f"{waiting:,} (not committed yet, not looked at)"
        _at(steps, "looking for offsets without a record")
        _account_for(report, gaps(frame, starts, ends), bootstrap, topic)
        _at(steps, "looking for offsets that are there twice")
        report.findings.append(_unique_offsets(frame))
        _at(steps, "looking for records that are there twice")
        report.findings.append(_duplicates(frame, identity))
        if sequence is not None:
            _at(steps, "following the numbers")
            report.findings += _sequences(frame, sequence, within or "key")
        report.plots.append(
            plots.bars(
                "Records by partition", [str(row.partition) for row in per_partition], [r.n for r in per_partition]
            )
        )
        _at(steps, "plotting")
        report.plots.append(_over_time(frame))
        return report
    finally:
        frame.unpersist()


def _at(steps: Steps | None, step: str) -> None:
    if steps is not None:
        steps.at(step)


def _account_for(report: Report, missing: DataFrame, bootstrap: str, topic: str) -> None:
    """Tells how many offsets have no record, and finds fault where nothing explains it."""
    missing = missing.persist()
    try:
        count = _offsets_in(missing)
        if is_compacted(bootstrap, topic):
            report.figures["offsets without a record"] = f"{count:,} (compaction, transactions)"
            return
        lost = holes(missing, bootstrap, topic).persist()
        try:
            lost_count = _offsets_in(lost)
            some = lost.orderBy("partition", "start").limit(EXAMPLES).collect()
        finally:
            lost.unpersist()
    finally:
        missing.unpersist()
    report.figures["offsets without a record"] = (
        f"{count - lost_count:,} (markers of transactions, and what they aborted)"
    )
    report.findings.append(
        Finding(
            "Has the log every offset between its ends?",
            lost_count == 0,
            "yes" if lost_count == 0 else f"no: {lost_count:,} are missing, and the topic is not compacted",
            [f"partition {row.partition} offsets {row.start} to {row.end - 1}" for row in some],
        )
    )


def _offsets_in(ranges: DataFrame) -> int:
    return int(ranges.selectExpr("coalesce(sum(end - start), 0) n").collect()[0].n)


def _unique_offsets(frame: DataFrame) -> Finding:
    twice = frame.groupBy("partition", "offset").count().where("count > 1").limit(EXAMPLES).collect()
    return Finding(
        "Is every offset there once?",
        not twice,
        "yes" if not twice else "no",
        [f"partition {row.partition} offset {row.offset}: {row['count']} times" for row in twice],
    )


def _duplicates(frame: DataFrame, identity: str | None) -> Finding:
    from pyspark.sql import functions as f

    what = f.expr(identity) if identity else f.struct("key", "value")
    place = f.struct("partition", "offset")
    # Not all the places: a record may be there a million times.
    counted = frame.groupBy(what.alias("identity")).agg(
        f.count("*").alias("n"), f.min(place).alias("first"), f.max(place).alias("last")
    )
    twice = counted.where("n > 1")
    count = twice.count()
    some = twice.limit(EXAMPLES).collect() if count else []
    return Finding(
        "Is no record there twice?",
        count == 0,
        "yes" if count == 0 else f"no: {count:,} are there more than once",
        [
            f"{row.identity} {row.n:,} times, at partition {row['first'].partition} offset {row['first'].offset} and "
            f"partition {row['last'].partition} offset {row['last'].offset}"
            for row in some
        ],
    )


def _sequences(frame: DataFrame, sequence: str, within: str) -> list[Finding]:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    numbered = frame.select(
        f.expr(within).cast("string").alias("within"),
        f.expr(sequence).try_cast("bigint").alias("number"),
        "partition",
        "offset",
    )
    unnumbered = numbered.where("number is null").count()
    numbered = numbered.where("number is not null")
    sets = numbered.groupBy("within").agg(
        f.countDistinct("number").alias("n"), f.min("number").alias("first"), f.max("number").alias("last")
    )
    missing = sets.where("n < last - first + 1")
    lost = missing.selectExpr("coalesce(sum(last - first + 1 - n), 0) lost").collect()[0].lost
    order = Window.partitionBy("within", "partition").orderBy("offset")
    backwards = numbered.withColumn("before", f.lag("number").over(order)).where("number < before")
    disordered = backwards.count()
    return [
        Finding(
            "Does every record carry its number?",
            unnumbered == 0,
            "yes" if not unnumbered else f"{unnumbered:,} do not",
        ),
        Finding(
            "Is no number missing?",
            lost == 0,
            "yes" if lost == 0 else f"no: {lost:,} are",
            [
                f"{row.within}: {row.first} to {row['last']} has {row.n} of {row['last'] - row.first + 1}"
                for row in (missing.limit(EXAMPLES).collect() if lost else [])
            ],
        ),
        Finding(
            "Are the numbers in order?",
            disordered == 0,
            "yes" if disordered == 0 else f"no: {disordered:,} come after a larger one",
            [
                f"{row.within}: {row.number} after {row.before} at partition {row.partition} offset {row.offset}"
                for row in (backwards.limit(EXAMPLES).collect() if disordered else [])
            ],
        ),
    ]


def _over_time(frame: DataFrame) -> str:
    span = frame.selectExpr("unix_millis(min(timestamp)) a", "unix_millis(max(timestamp)) b").collect()[0]
    if span.a is None:
        return plots.lines("Records over time", [], {})
    step = max((span.b - span.a) // POINTS + 1, 1)
    counted = (
        frame.selectExpr(f"(unix_millis(timestamp) - {span.a}) div {step} bucket").groupBy("bucket").count().collect()
    )
    values = [0.0] * ((span.b - span.a) // step + 1)
    for row in counted:
        values[row.bucket] = float(row["count"])
    labels = [moment(span.a + nth * step) for nth in range(len(values))]
    return plots.lines("Records over time", labels, {"records": values})


def moment(timestamp_ms: int) -> str:
    """For a person. A producer may have written any number."""
    try:
        return f"{datetime.fromtimestamp(timestamp_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError):
        return f"{timestamp_ms:,} ms"


def compare(
    left: DataFrame,
    right: DataFrame,
    names: tuple[str, str],
    columns: list[str] | None = None,
    steps: Steps | None = None,
) -> Report:
    """Whether two DataFrames have the same rows, each as often, in the columns that are named or that both have."""
    from pyspark.sql import functions as f

    columns = columns or [name for name in left.columns if name in right.columns]
    if not columns:
        raise ValueError(f"{names[0]} and {names[1]} have no column in common; name what to compare")
    ours = left.groupBy(*columns).agg(f.count("*").alias("left_n"))
    theirs = right.groupBy(*columns).agg(f.count("*").alias("right_n"))
    same = [ours[name].eqNullSafe(theirs[name]) for name in columns]
    joined = ours.join(theirs, same, "full_outer").select(
        *[f.coalesce(ours[name], theirs[name]).alias(name) for name in columns],
        f.coalesce("left_n", f.lit(0)).alias("left_n"),
        f.coalesce("right_n", f.lit(0)).alias("right_n"),
    )
    # Python has no room for every time that Spark has, and a producer may have written any.
    shown = [f.col(name).cast("string") if _is_time(left, name) else f.col(name) for name in columns]
    joined = joined.persist()
    try:
        report = Report(f"{names[0]} beside {names[1]}")
        _at(steps, f"comparing {names[0]} with {names[1]}")
        totals = joined.selectExpr(
            "coalesce(sum(left_n), 0) l",
            "coalesce(sum(right_n), 0) r",
            "coalesce(sum(greatest(left_n - right_n, 0)), 0) missing",
            "coalesce(sum(greatest(right_n - left_n, 0)), 0) extra",
        ).collect()[0]
        report.figures = {f"records in {names[0]}": f"{totals.l:,}", f"records in {names[1]}": f"{totals.r:,}"}
        for question, count, condition in (
            (f"Is all of {names[0]} in {names[1]}?", totals.missing, "left_n > right_n"),
            (f"Is all of {names[1]} in {names[0]}?", totals.extra, "right_n > left_n"),
        ):
            some = joined.where(condition).limit(EXAMPLES).select(*shown).collect() if count else []
            report.findings.append(
                Finding(
                    question,
                    count == 0,
                    "yes" if count == 0 else f"no: {count:,} are not",
                    [", ".join(f"{name}={row[name]}" for name in columns) for row in some],
                )
            )
        report.plots.append(plots.bars("Records", list(names), [totals.l, totals.r]))
        return report
    finally:
        joined.unpersist()


def _is_time(frame: DataFrame, column: str) -> bool:
    return frame.schema[column].dataType.simpleString() == "timestamp"


def compare_topics(
    spark: SparkSession, left: tuple[str, str], right: tuple[str, str], steps: Steps | None = None
) -> Report:
    """Whether two topics, each given by its cluster and its name, have the same records, those of a key in one order.

    Keys, values and headers are compared; partitions, offsets and timestamps are not, for a copy has its own.
    """
    columns = (
        "cast(key as string) key",
        "cast(value as string) value",
        "transform(headers, each -> struct(each.key, cast(each.value as string) value)) headers",
        "partition",
        "offset",
    )
    frames = [topic_frame(spark, *each, headers=True).selectExpr(*columns) for each in (left, right)]
    names = (left[1], right[1] if right[1] != left[1] else f"{right[1]} ({right[0]})")
    report = compare(frames[0], frames[1], names, ["key", "value", "headers"], steps)
    if report.is_good:
        # Where records are missing, all that come after them are out of step, which would say nothing.
        _at(steps, "comparing the order")
        report.findings.append(_same_order(frames[0], frames[1]))
    return report


def _same_order(left: DataFrame, right: DataFrame) -> Finding:
    """The nth record of a key against the nth, for keys that are in one partition: no other order is promised."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    def numbered(frame: DataFrame, name: str) -> DataFrame:
        of_key = Window.partitionBy("key")
        return (
            frame.where("key is not null")
            .withColumn("spread", f.max("partition").over(of_key) - f.min("partition").over(of_key))
            .where("spread = 0")
            .select(
                "key",
                f.row_number().over(of_key.orderBy("offset")).alias("nth"),
                f.col("value").alias(name),
                f.col("headers").alias(f"{name}_headers"),
            )
        )

    both = numbered(left, "here").join(numbered(right, "there"), ["key", "nth"])
    moved = both.where("not (here <=> there and here_headers <=> there_headers)")
    count = moved.count()
    return Finding(
        "Are the records of each key in the same order? (Of those without a key it is not compared.)",
        count == 0,
        "yes" if count == 0 else f"no: {count:,} are not",
        [f"{row.key}: number {row.nth} is {row.here} and {row.there}" for row in moved.limit(EXAMPLES).collect()]
        if count
        else [],
    )
