"""`mainstem pipeline`: the pipelines on Spark, on this machine or on a cluster by `--master`."""

from __future__ import annotations

import argparse
import asyncio
import atexit
import json
import os
import random
import re
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from mainstem.cli.arguments import Verbs
from mainstem.cli.failures import DONE, NOT_FOUND, REFUSED, UNREACHABLE, UserError
from mainstem.cli.session import output_for
from mainstem.cli.values import not_negative

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mainstem.client.cluster import Cluster
    from mainstem.spark.decisions import Decision, Written
    from mainstem.spark.exactly_once import Coordinator, LostError

T = TypeVar("T")

LOG_LEVEL: Final = "spark.log.level"
TELLS_EVERY_ERROR: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""PySpark's own loggers, which no level of Spark's log silences: a page of JSON for each error."""
WRONG: Final = re.compile("error|invalid", re.IGNORECASE)

MASTER: Final = re.compile(r"local(\[[\w*, ]+\])?|(spark|k8s)://.+|yarn|local-cluster\[.+\]")
"""What Spark takes; of anything else it tells by a traceback of Java's."""


def declare(parser: argparse.ArgumentParser, command: str) -> None:
    verbs = Verbs(parser)
    lake = verbs.add(
        "lake",
        "land a topic in Parquet files by day, exactly once",
        run_lake,
        example='mainstem pipeline lake orders lake/ --schema "id bigint, at timestamp" --event-time at',
    )
    lake.add_argument("topic", help="what to read")
    lake.add_argument("path", type=Path, help="the folder of the lake, which every worker can write to")
    fields = lake.add_mutually_exclusive_group()
    fields.add_argument("--schema", help="the fields of the JSON value, as in 'id bigint, at timestamp'")
    fields.add_argument("--infer-schema", action="store_true", help="take the fields from the first values there are")
    lake.add_argument("--event-time", metavar="COLUMN", help="the field that says when it happened")
    lake.add_argument("--bad-topic", metavar="TOPIC", help="write values that do not parse here as well")
    lake.add_argument(
        "--compact", action="store_true", help="merge the small files of each day, now and then and at the end"
    )
    _add_stream(lake, "a million and about 256 MB")

    transform = verbs.add(
        "transform",
        "turn a topic into another by SQL or a Python function, exactly once",
        run_transform,
        example='mainstem pipeline transform orders big --checkpoint ck --sql "select * from input where amount > 100"',
    )
    transform.add_argument("source", help="the topic to read")
    transform.add_argument("target", help="the topic to write")
    how = transform.add_mutually_exclusive_group(required=True)
    how.add_argument("--sql", help="a statement over the view `input`")
    how.add_argument("--function", metavar="MODULE:NAME", help="a function from DataFrame to DataFrame")
    transform.add_argument("--checkpoint", type=Path, required=True, help="where it notes how far it is")
    transform.add_argument("--schema", help="the fields of the JSON value, as in 'id bigint, at timestamp'")
    transform.add_argument(
        "--starting-offsets",
        default="earliest",
        metavar="OFFSETS",
        help='where a new checkpoint begins: earliest (default), latest, or JSON as {"orders": {"0": 23, "1": -1}}',
    )
    transform.add_argument(
        "--keep-malformed",
        action="store_true",
        help="let a function have records, too, that do not fit the schema; a statement has them that names _corrupt",
    )
    transform.add_argument("--watermark", metavar="COLUMN:LATE", help="how late an event may come, as in at:10m")
    transform.add_argument("--output-mode", choices=["append", "update", "complete"], default="append")
    transform.add_argument("--to", metavar="HOST:PORT", help="the cluster to write to, where it is another")
    transform.add_argument("--at-least-once", action="store_true", help="faster, for brokers without transactions")
    _add_stream(transform, "a million and about 256 MB; with --watermark no bound")

    audit = verbs.add(
        "audit",
        "check that a topic is complete and without duplicates, or that two are equal",
        run_audit,
        example="mainstem pipeline audit orders --sequence \"get_json_object(value, '$.n')\" --report audit.html",
    )
    audit.add_argument("topic", help="what to check")
    audit.add_argument("--identity", metavar="SQL", help="what makes a record itself (default: key and value)")
    audit.add_argument("--sequence", metavar="SQL", help="the number that a record carries")
    audit.add_argument("--within", metavar="SQL", help="within what the numbers count (default: the key)")
    beside = audit.add_mutually_exclusive_group()
    beside.add_argument("--against", metavar="TOPIC", help="a topic that should have the same records")
    beside.add_argument("--against-lake", type=Path, metavar="PATH", help="a lake that should have them")
    audit.add_argument("--against-bootstrap", metavar="HOST:PORT", help="its cluster, where it is another")
    audit.add_argument("--report", type=Path, metavar="FILE", help="write a page with plots here")
    _add_spark(audit)

    verbs.add("settings", "show what the session sets of Spark's settings, and why", run_settings)
    verbs.add("sinks", "list the exactly-once sinks of Spark queries and what each decided last", run_sinks)
    finish = verbs.add(
        "finish",
        "commit what a sink has decided, when its driver does not come back",
        run_finish,
        example="mainstem pipeline finish mainstem-sink.0f7c…",
    )
    finish.add_argument("sink", help="its name, as `mainstem pipeline sinks` shows it; its query must not run")
    finish.add_argument(
        "--accept-loss",
        action="store_true",
        help="let the sink go on where rows of the batch were lost; tells which, for you to write them again",
    )
    abort = verbs.add(
        "abort",
        "abort what a sink has open, when its query is given up; what was decided is committed first",
        run_abort,
        example="mainstem pipeline abort mainstem-sink.0f7c…",
    )
    abort.add_argument("sink", help="its name, as `mainstem pipeline sinks` shows it; its query must not run")


def _add_stream(parser: argparse.ArgumentParser, bound: str) -> None:
    parser.add_argument("--continuous", action="store_true", help="go on until interrupted, not only to what is there")
    parser.add_argument(
        "--max-records",
        type=not_negative,
        metavar="N",
        help=f"at most so many in one batch (default: {bound}); 0 for no bound",
    )
    parser.add_argument(
        "--accept-data-loss",
        action="store_true",
        help="go on with what is there, where retention took records before they were read",
    )
    _add_spark(parser)


def _add_spark(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--master", help="where Spark runs: local[*] (default), spark://host:7077, yarn …")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark's")


def _check_spark() -> None:
    """Told before anything is imported that PySpark has to be there for."""
    from mainstem.spark.spark_session import missing

    why = missing()
    if why is not None:
        raise UserError(why)


@contextmanager
def _in_words() -> Iterator[None]:
    """What is wrong with the input comes from deep inside of Spark; a person gets the sentence of it."""
    from mainstem.spark.failures import sentence

    try:
        yield
    except Exception as error:
        told = sentence(error) or (str(error) if isinstance(error, ValueError) else None)
        if told is None:
            raise
        code = NOT_FOUND if "there is no topic" in told else UNREACHABLE if "no broker answers" in told else REFUSED
        raise UserError(told, code) from error


def _session(given: argparse.Namespace) -> SparkSession:
    from mainstem.spark.spark_session import NoSparkError, session

    if given.master is not None and not MASTER.fullmatch(given.master):
        raise UserError(f"--master is local[*], spark://host:7077, yarn or k8s://…; it is {given.master}")
    settings: dict[str, str] = {}
    for each in given.conf:
        key, equals, value = each.partition("=")
        if not equals:
            raise UserError(f"--conf is KEY=VALUE; it is {each}")
        settings[key] = value
    try:
        if LOG_LEVEL in settings:
            return session("mainstem pipeline", given.master, settings)  # who asks for Spark's log gets it
        return _quiet_session(given.master, settings)
    except NoSparkError as error:
        raise UserError(str(error)) from error


def _quiet_session(master: str | None, settings: dict[str, str]) -> SparkSession:
    """What fails is told as a sentence; Spark would have it before that, with a page of Java's stack."""
    from pyspark.errors import PySparkException
    from pyspark.logger import PySparkLogger

    from mainstem.spark.spark_session import said_to, session

    for name in TELLS_EVERY_ERROR:
        PySparkLogger.getLogger(name).disabled = True
    descriptor, name = tempfile.mkstemp(prefix="mainstem-spark-", suffix=".log")
    os.close(descriptor)
    log = Path(name)
    print("starting Spark ...", file=sys.stderr, flush=True)
    atexit.register(log.unlink, missing_ok=True)
    try:
        with said_to(log):
            return session("mainstem pipeline", master, {LOG_LEVEL: "OFF", **settings})
    except PySparkException as error:
        said = [line.strip() for line in log.read_text(errors="replace").splitlines() if WRONG.search(line)]
        raise UserError(f"Spark did not start: {said[0] if said else error}", REFUSED) from error


def run_lake(given: argparse.Namespace) -> int:
    from mainstem.spark.pipelines import lake
    from mainstem.spark.pipelines.held_back import told
    from mainstem.spark.pipelines.lake_folder import check_schema, local_folder
    from mainstem.spark.pipelines.progress import Watcher

    if given.bad_topic and given.schema is None and not given.infer_schema:
        raise UserError("--bad-topic needs --schema: without one every value is as good as another")
    _check_spark()
    with _in_words():
        # Told before Spark takes its time to start.
        local_folder(given.path, "path")
        check_schema(given.schema)
        spark = _session(given)
        schema = given.schema
        if given.infer_schema:
            schema = lake.inferred_schema(spark, given.bootstrap, given.topic, given.path)
        job = lake.Lake(
            given.bootstrap,
            given.topic,
            given.path,
            schema,
            given.event_time,
            given.max_records,
            bad_topic=given.bad_topic,
            compact_every=lake.COMPACT_EVERY if given.compact else None,
            accept_data_loss=given.accept_data_loss,
        )
        watcher = Watcher()
        read = lake.run(spark, job, continuous=given.continuous, watcher=watcher)
        landed = {which: len(lake.listed(given.path, which)) for which in (lake.ROWS, lake.BAD)}
        merged = lake.compact(spark, given.path) if given.compact else 0
    output_for(given).done(
        f"{read:,} records of {given.topic} landed in {given.path}: {landed[lake.ROWS]} files"
        + (f", and {landed[lake.BAD]} of bad records" if landed[lake.BAD] else "")
        + (f"; {merged} small files merged" if merged else "")
        + (f"; {told(watcher.held)}" if watcher.held else ""),
        topic=given.topic,
        path=str(given.path),
        records=read,
        files=landed[lake.ROWS],
        bad_files=landed[lake.BAD],
        merged=merged,
        waiting=_by_place(watcher.held),
    )
    return DONE


def run_transform(given: argparse.Namespace) -> int:
    from mainstem.spark.pipelines import transform
    from mainstem.spark.pipelines.held_back import told
    from mainstem.spark.pipelines.progress import Watcher, left_out, too_late

    if given.keep_malformed and given.schema is None:
        raise UserError("--keep-malformed needs --schema: without one every value is as good as another")
    watermark = None
    if given.watermark:
        column, colon, late = given.watermark.partition(":")
        if not (column and colon and late):
            raise UserError(f"--watermark is COLUMN:LATE, as in at:10m; it is {given.watermark}")
        watermark = (column, transform.interval(late))
    _check_spark()
    # A function may be in a file of the folder that the command is given in, as with `python -m`.
    sys.path.insert(0, "")
    with _in_words():
        job = transform.Transform(
            bootstrap=given.bootstrap,
            source=given.source,
            target=given.target,
            checkpoint=given.checkpoint,
            schema=given.schema,
            watermark=watermark,
            output_mode=given.output_mode,
            target_bootstrap=given.to,
            starting_offsets=given.starting_offsets,
            keep_malformed=given.keep_malformed,
            max_offsets_per_trigger=given.max_records,
            guarantee="at_least_once" if given.at_least_once else "exactly_once",
            accept_data_loss=given.accept_data_loss,
        )
        how = given.sql if given.sql is not None else transform.function_named(given.function)
        watcher = Watcher()
        read = transform.run(_session(given), job, how, continuous=given.continuous, watcher=watcher)
    output_for(given).done(
        f"{read:,} records of {given.source} transformed into {given.target}"
        + (f"; {left_out(watcher.malformed)}, which do not fit the schema" if watcher.malformed else "")
        + (f"; {too_late(watcher.late)}" if watcher.late else "")
        + (f"; {told(watcher.held)}" if watcher.held else ""),
        source=given.source,
        target=given.target,
        records=read,
        malformed=watcher.malformed,
        late=watcher.late,
        waiting=_by_place(watcher.held),
    )
    return DONE


def _by_place(waiting: Mapping[tuple[str, int], int]) -> dict[str, int]:
    return {f"{topic}-{number}": count for (topic, number), count in waiting.items()}


def run_audit(given: argparse.Namespace) -> int:
    from mainstem.spark.pipelines import audit
    from mainstem.spark.pipelines.lake_audit import compare_lake
    from mainstem.spark.pipelines.progress import Steps

    _check_audit(given)
    _check_spark()
    with _in_words():
        spark = _session(given)
        with Steps(spark, f"audit {given.topic}") as steps:
            if given.against:
                other = (given.against_bootstrap or given.bootstrap, given.against)
                report = audit.compare_topics(spark, (given.bootstrap, given.topic), other, steps)
            elif given.against_lake:
                report = compare_lake(spark, given.bootstrap, given.topic, given.against_lake, steps)
            else:
                report = audit.audit_topic(
                    spark,
                    given.bootstrap,
                    given.topic,
                    identity=given.identity,
                    sequence=given.sequence,
                    within=given.within,
                    steps=steps,
                )
    if given.report:
        report.write(given.report)
    out = output_for(given)
    if out.is_json:
        out.document(report.to_dict())
    else:
        print(report.to_text() + (f"\n  report: {given.report}" if given.report else ""))
    return DONE if report.is_good else REFUSED


def _check_audit(given: argparse.Namespace) -> None:
    """Told before Spark takes its time to start: also what would go without notice, as if it had been looked at."""
    if given.report and given.report.is_dir():
        raise UserError(f"--report: {given.report} is a folder; name a file in it")
    if given.report and not given.report.absolute().parent.is_dir():
        raise UserError(f"--report: there is no folder {given.report.absolute().parent}", NOT_FOUND)
    is_beside = given.against is not None or given.against_lake is not None
    for option in ("identity", "sequence", "within"):
        if is_beside and getattr(given, option) is not None:
            raise UserError(f"--{option}: is for one topic by itself; audit it without --against and --against-lake")
    if given.within is not None and given.sequence is None:
        raise UserError("--within: says within what numbers count; say which with --sequence")
    if given.against_bootstrap is not None and given.against is None:
        raise UserError("--against-bootstrap: is the cluster of another topic; name that with --against")


def run_settings(given: argparse.Namespace) -> int:
    from mainstem.spark.spark_session import SETTINGS, explain

    if given.json:
        print(json.dumps({key: {"value": value, "why": why} for key, (value, why) in SETTINGS.items()}))
    else:
        print(explain())
    return DONE


def run_sinks(given: argparse.Namespace) -> int:
    async def story(cluster: Cluster) -> tuple[dict[str, Decision], dict[str, int]]:
        from mainstem.spark.decisions import DecisionLog
        from mainstem.spark.exactly_once import open_transactions
        from mainstem.spark.transactions import Transactions

        return await DecisionLog(cluster).all(), await open_transactions(Transactions(cluster))

    decided, still_open = _with_cluster(given, story)
    found = {sink: (decided.get(sink), still_open.get(sink, 0)) for sink in sorted({*decided, *still_open})}
    if given.json:
        print(
            json.dumps(
                {
                    sink: {
                        "batch": None if last is None else last.batch,
                        "finished": last is None or last.is_finished,
                        "open": count,
                    }
                    for sink, (last, count) in found.items()
                }
            )
        )
        return DONE
    for sink, (last, count) in found.items():
        if last is None:
            state = "nothing decided yet"
        else:
            state = f"batch {last.batch}  {'finished' if last.is_finished else 'decided, not finished'}"
        print(f"{sink}  {state}" + (f"  {count} transactions open" if count else ""))
    return DONE


def run_finish(given: argparse.Namespace) -> int:
    from mainstem.spark.exactly_once import places

    async def story(cluster: Cluster) -> tuple[Decision | None, list[Written]]:
        return await (await _coordinator(cluster, given)).recover(accept_loss=given.accept_loss)

    last, lost = _with_cluster(given, story)
    state = "nothing was decided yet" if last is None else f"batch {last.batch} is finished"
    output_for(given).done(
        f"{given.sink}: {state}" + (f" without the rows that were lost: {places(lost)}" if lost else ""),
        sink=given.sink,
        batch=None if last is None else last.batch,
        lost=[
            {"topic": topic, "partition": number, "first_offset": first, "last_offset": end}
            for topic, number, first, end in lost
        ],
    )
    return DONE


def run_abort(given: argparse.Namespace) -> int:
    async def story(cluster: Cluster) -> tuple[int, LostError | None]:
        aborted, lost = await (await _coordinator(cluster, given)).abandon()
        return len(aborted), lost

    count, lost = _with_cluster(given, story)
    output_for(given).done(
        f"{given.sink}: {count} transactions aborted" if count else f"{given.sink}: nothing was open",
        sink=given.sink,
        aborted=count,
    )
    if lost is not None:
        raise UserError(str(lost), REFUSED)
    return DONE


async def _coordinator(cluster: Cluster, given: argparse.Namespace) -> Coordinator:
    """The driver's side of a sink that there is."""
    from mainstem.client.options import ProducerOptions
    from mainstem.spark.decisions import DecisionLog
    from mainstem.spark.exactly_once import Coordinator, open_transactions
    from mainstem.spark.transactions import Transactions

    log, transactions = DecisionLog(cluster), Transactions(cluster)
    if given.sink not in await log.sinks() and given.sink not in await open_transactions(transactions):
        raise UserError(f"there is no sink {given.sink}; `mainstem pipeline sinks` lists them", NOT_FOUND)
    return Coordinator(cluster, ProducerOptions(bootstrap_servers=given.bootstrap), given.sink, transactions, log)


def _with_cluster(given: argparse.Namespace, story: Callable[[Cluster], Awaitable[T]]) -> T:
    from mainstem.client.cluster import Cluster
    from mainstem.client.options import ProducerOptions
    from mainstem.spark.decisions import UnreadableError
    from mainstem.spark.exactly_once import SinkError

    async def run() -> T:
        options = ProducerOptions(bootstrap_servers=given.bootstrap)
        async with Cluster(options, random.Random()) as cluster:
            return await story(cluster)

    try:
        return asyncio.run(run())
    except (SinkError, UnreadableError) as error:
        raise UserError(str(error), REFUSED) from error
