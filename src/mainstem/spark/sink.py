"""`df.write` and `df.writeStream` with `format("mainstem")`: what tasks do with rows, and the driver with tasks.

Columns are those of Spark's Kafka sink: `value`, and if there `key`, `headers`, `topic`, `partition`; `timestamp` with
`useTimestampColumn`; others are ignored. Exactly once is by `exactly_once`; with `guarantee=at_least_once` tasks write
straight away, by an idempotent producer, and the driver has nothing to do.
"""

from __future__ import annotations

import asyncio
import time
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from mainstem.client.cluster import Cluster
from mainstem.client.errors import InvalidProducerEpochError, InvalidTxnStateError, KafkaError, ProducerFencedError
from mainstem.spark import questions
from mainstem.spark.decisions import DecisionLog, Written
from mainstem.spark.exactly_once import (
    SINK_PREFIX,
    Coordinator,
    SinkError,
    Staged,
    ended_early,
    given_up,
    name_of_run,
    no_step,
    of_another_query,
    rewound,
    task_id,
)
from mainstem.spark.loop import runner, settle_down
from mainstem.spark.options import SinkOptions, Topics, sink_options
from mainstem.spark.partitioning import Partitioner, rows_by_partition
from mainstem.spark.producing import Sender
from mainstem.spark.schema import TYPES
from mainstem.spark.transactions import Transactions, Triple

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_PROPERTY: Final = "sql.streaming.queryId"
BATCH_PROPERTY: Final = "streaming.sql.batchId"
RUN_PROPERTY: Final = "spark.jobGroup.id"
REMEMBERED_RUNS: Final = 16
FENCED: Final = (InvalidProducerEpochError, ProducerFencedError, InvalidTxnStateError)
"""What a task is told whose transaction is no more. Brokers end one that times out."""

ABORT_WITHIN_S: Final = 5.0
"""A task that has failed is not held up for longer by cleaning up after it; Spark kills it soon."""

GIVE_UP_WITHIN_S: Final = 30.0
"""The same for a driver that no task has told anything. Nobody cleans up after it."""


@dataclass(frozen=True)
class SinkMessage(WriterCommitMessage):
    """What a task tells the driver. `staged` is None where it wrote nothing."""

    sink: str
    run: str
    batch: int
    staged: Staged | None
    query: str = ""


@dataclass(frozen=True, slots=True)
class Identity:
    """Which write this is: the sink, the batch of it, and the run that makes it."""

    sink: str
    batch: int
    run: str
    skips_older: bool = False
    """Whether a batch before the last decided one is left out, as in a write that the user named, or is an error."""
    query: str = ""
    """The streaming query whose batch it is."""


on_step: Callable[[str], None] = no_step
"""Called with the name of each step that a crash could come before; for tests."""


# What a process keeps from task to task.


class _Kept:
    def __init__(self, cluster: Cluster) -> None:
        self.transactions = Transactions(cluster)
        self.decisions = DecisionLog(cluster)
        self.idempotent: Sender | None = None


_kept: dict[int, _Kept] = {}
_slots: dict[tuple[str, str], _Slots] = {}


def _keep(cluster: Cluster) -> _Kept:
    return _kept.setdefault(id(cluster), _Kept(cluster))


class _Slots:
    """The transactional ids of one run in this process. One is used again only in a later batch of the same run."""

    def __init__(self, run: str) -> None:
        self._name = name_of_run(run) + uuid.uuid4().hex[:16]
        self._batch = -1
        self._next = 0

    def take(self, identity: Identity) -> str:
        if identity.batch != self._batch:
            self._batch, self._next = identity.batch, 0
        self._next += 1
        version = None if identity.query else identity.batch
        return task_id(identity.sink, self._name, version, self._next - 1)


def _slot(identity: Identity) -> str:
    key = (identity.sink, identity.run)
    if key not in _slots:
        while len(_slots) >= REMEMBERED_RUNS:
            del _slots[next(iter(_slots))]
        _slots[key] = _Slots(identity.run)
    return _slots[key].take(identity)


# Rows


class RowWriter:
    """Checks the schema once, then turns Arrow batches into what is sent."""

    def __init__(self, schema: StructType, options: SinkOptions) -> None:
        names = set(schema.names)
        if "value" not in names:
            raise ValueError(f"the sink needs a column value; the columns are {', '.join(schema.names)}")
        for name in ("key", "value"):
            if name in names and not isinstance(schema[name].dataType, BinaryType | StringType):
                raise ValueError(
                    f"column {name} is {schema[name].dataType.simpleString()}; it must be binary or string, as in "
                    f"CAST({name} AS STRING)"
                )
        if options.topic is None and "topic" not in names:
            raise ValueError("topic: say where to write with option topic, or with a column topic")
        if "topic" in names and not isinstance(schema["topic"].dataType, StringType):
            raise ValueError(f"column topic is {schema['topic'].dataType.simpleString()}; it must be a string")
        if "partition" in names and not isinstance(
            schema["partition"].dataType, IntegerType | LongType | ShortType | ByteType
        ):
            raise ValueError(f"column partition is {schema['partition'].dataType.simpleString()}; it must be an int")
        if "headers" in names and schema["headers"].dataType.simpleString() != TYPES["headers"].simpleString():
            raise ValueError(
                f"column headers is {schema['headers'].dataType.simpleString()}; it must be "
                f"{TYPES['headers'].simpleString()}"
            )
        if options.use_timestamp_column and (
            "timestamp" not in names or not isinstance(schema["timestamp"].dataType, TimestampType)
        ):
            raise ValueError("useTimestampColumn: there is no column timestamp of type timestamp")
        self._names = names
        self._options = options

    def rows_by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        import pyarrow.compute as pc

        if self._options.topic is not None:
            yield self._options.topic, batch
            return
        topics = batch.column("topic")
        if topics.null_count:
            raise ValueError("column topic is null in a row; give every row a topic, or say option topic")
        distinct = pc.unique(topics).to_pylist()
        for topic in distinct:
            yield topic, batch if len(distinct) == 1 else batch.filter(pc.equal(topics, topic))

    def column(self, batch: pa.RecordBatch, name: str) -> Any:
        if name not in self._names or (name == "timestamp" and not self._options.use_timestamp_column):
            return None
        return batch.column(name)


class TaskWrite:
    """The rows of one task on their way."""

    def __init__(self, cluster: Cluster, rows: RowWriter, sender: Sender, first_turn: int) -> None:
        self._cluster = cluster
        self._rows = rows
        self._sender = sender
        self._partitioner = Partitioner(first_turn)
        self._counts: dict[str, int] = {}

    async def take(self, batch: pa.RecordBatch) -> None:
        now_ms = int(time.time() * 1000)
        for topic, some in self._rows.rows_by_topic(batch):
            key, value = self._rows.column(some, "key"), self._rows.column(some, "value")
            own = self._rows.column(some, "partition")
            headers, stamps = self._rows.column(some, "headers"), self._rows.column(some, "timestamp")
            count = await self._partitions_of(topic)
            assigned = self._partitioner.assign(count, key, own, topic, some.num_rows)
            for number, mine in rows_by_partition(assigned, count):

                def picked(column: Any, mine: Any = mine) -> Any:
                    return column if column is None or mine is None else column.take(mine)

                self._sender.encode(
                    (topic, number), picked(key), picked(value), picked(headers), picked(stamps), now_ms
                )
        await self._sender.send()

    async def _partitions_of(self, topic: str) -> int:
        if topic not in self._counts:
            there = await questions.partitions(self._cluster, Topics(names=(topic,)), "topic")
            self._counts[topic] = len(there)
        return self._counts[topic]


def _first_turn(identity: Identity, task: int) -> int:
    """Which partition rows without a key go to first: for each task another, and for each batch.

    A stream of small batches would have them all in one.
    """
    return zlib.crc32(f"{identity.run}.{identity.batch}".encode()) + task


def write_rows(
    schema: StructType, options: SinkOptions, iterator: Iterator[pa.RecordBatch], identity: Identity
) -> SinkMessage:
    """What a task does."""
    settle_down()
    here = runner()
    cluster = here.cluster(options.kafka)
    rows = RowWriter(schema, options)
    task = TaskContext.get()
    number = task.partitionId() if task is not None else 0
    if not options.exactly_once:
        here.run(_write_at_least_once(cluster, rows, options, iterator, _first_turn(identity, number)))
        return SinkMessage(identity.sink, identity.run, identity.batch, None)
    return here.run(stage(cluster, rows, options, iterator, identity, number))


async def stage(
    cluster: Cluster,
    rows: RowWriter,
    options: SinkOptions,
    iterator: Iterator[pa.RecordBatch],
    identity: Identity,
    number: int,
) -> SinkMessage:
    kept = _keep(cluster)
    await kept.decisions.ensure()
    nothing = SinkMessage(identity.sink, identity.run, identity.batch, None, identity.query)
    if await _is_decided(kept.decisions, identity):
        _pass_over(iterator)
        return nothing
    write: TaskWrite | None = None
    sender: Sender | None = None
    triple = Triple("", -1, -1)
    try:
        for batch in iterator:
            if not batch.num_rows:
                continue
            if write is None or sender is None:
                on_step("begin-transaction")
                triple = await kept.transactions.init(_slot(identity), two_phase=options.two_phase)
                # Who has decided meanwhile has not seen this one; who decides later will.
                if await _is_decided(kept.decisions, identity):
                    _pass_over(iterator)
                    return nothing
                on_step("begun-transaction")
                sender = Sender(cluster, options.kafka, triple, kept.transactions)
                await sender.begin()
                write = TaskWrite(cluster, rows, sender, _first_turn(identity, number))
            await write.take(batch)
        if sender is None:
            return nothing
        on_step("flush")
        await sender.flush()
    except Exception as error:
        # Nobody else may come to know of it, and who reads what is committed would wait until it times out.
        if sender is not None:
            await _abort_own(kept.transactions, sender, triple)
        if isinstance(error, FENCED) and not await _is_decided(kept.decisions, identity) and not options.two_phase:
            timeout_ms = await kept.transactions.timeout_ms()
            state = "was ended while it wrote"
            raise ended_early(identity.sink, identity.batch, triple.transactional_id, state, timeout_ms) from error
        raise
    on_step("flushed")
    written: list[Written] = [(*where, first, end) for where, (first, end) in sorted(sender.written().items())]
    staged = Staged(triple, tuple(written))
    return SinkMessage(identity.sink, identity.run, identity.batch, staged, identity.query)


async def _is_decided(decisions: DecisionLog, identity: Identity) -> bool:
    """Whether there is nothing left to write, as of now. Fails where nothing may be written."""
    last = await decisions.last(identity.sink)
    if decisions.is_given_up(identity.sink, identity.run):
        raise given_up(identity.sink, identity.batch)
    if last is None or identity.batch > last.batch:
        return False
    if identity.batch == last.batch and identity.query != last.query:
        raise of_another_query(identity.sink, identity.batch, last)
    if identity.batch < last.batch and not identity.skips_older:
        raise rewound(identity.sink, identity.batch, last)
    return True


def _pass_over(rows: Iterator[pa.RecordBatch]) -> None:
    for _ in rows:
        pass


async def _abort_own(transactions: Transactions, sender: Sender, triple: Triple) -> None:
    await sender.drop(ABORT_WITHIN_S)
    with suppress(KafkaError, TimeoutError):
        await asyncio.wait_for(transactions.end(triple, False), ABORT_WITHIN_S)


async def _write_at_least_once(
    cluster: Cluster, rows: RowWriter, options: SinkOptions, iterator: Iterator[pa.RecordBatch], first_turn: int
) -> None:
    kept = _keep(cluster)
    sender, kept.idempotent = kept.idempotent, None
    if sender is None:
        sender = Sender(cluster, options.kafka, await kept.transactions.init_idempotent(), kept.transactions)
    write = TaskWrite(cluster, rows, sender, first_turn)
    for batch in iterator:
        if batch.num_rows:
            await write.take(batch)
    await sender.flush()
    # Kept only after it went well: what a failed one has sent is not known.
    kept.idempotent = sender


# The driver's side


def _coordinator(options: SinkOptions, sink: str, cluster: Cluster) -> Coordinator:
    kept = _keep(cluster)
    return Coordinator(cluster, options.kafka, sink, kept.transactions, kept.decisions, on_step)


def settle(options: SinkOptions, messages: Sequence[WriterCommitMessage | None], batch: int, *, commit: bool) -> None:
    """Commits or aborts what the tasks of a batch have staged."""
    told = [each for each in messages if isinstance(each, SinkMessage)]
    if not options.exactly_once or not told:
        return
    sink, run = told[0].sink, told[0].run
    staged = [each.staged for each in told if each.staged is not None]
    here = runner()
    coordinator = _coordinator(options, sink, here.cluster(options.kafka))
    if commit:
        here.run(coordinator.commit(batch, run, staged, told[0].query))
    elif staged:
        here.run(coordinator.abort(batch, run, staged))
    else:
        with suppress(KafkaError, TimeoutError):
            here.run(asyncio.wait_for(coordinator.abort(batch, run, staged), GIVE_UP_WITHIN_S))


class StreamSink(DataSourceStreamArrowWriter):
    def __init__(self, schema: StructType, options: SinkOptions) -> None:
        RowWriter(schema, options)
        self._schema = schema
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(self._schema, self._options, iterator, self._identity())

    def _identity(self) -> Identity:
        task = TaskContext.get()
        found = [
            None if task is None else task.getLocalProperty(name)
            for name in (QUERY_PROPERTY, BATCH_PROPERTY, RUN_PROPERTY)
        ]
        query, batch, run = found
        if query is None or batch is None or run is None:
            if self._options.exactly_once:
                raise SinkError(
                    "Spark does not tell which query and batch this is, so exactly once is not possible; set option "
                    "guarantee to at_least_once"
                )
            return Identity("", 0, "")
        return Identity(SINK_PREFIX + (self._options.sink_id or query), int(batch), run, query=query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        settle(self._options, messages, batchId, commit=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        settle(self._options, messages, batchId, commit=False)


class BatchSink(DataSourceArrowWriter):
    """One write. Without a name it is all or nothing; with one it also happens once, however often it is run."""

    def __init__(self, schema: StructType, options: SinkOptions) -> None:
        RowWriter(schema, options)
        self._schema = schema
        self._options = options
        run = uuid.uuid4().hex
        if options.txn_app_id is not None:
            # As in Delta, where one name is for the writes of a batch to several tables. A name may have colons in it,
            # a topic none: so what is behind the last one is the topic, or nothing where rows name theirs.
            name = f"{options.txn_app_id}:{options.topic or ''}"
            self._identity = Identity(f"{SINK_PREFIX}app.{name}", options.txn_version or 0, run, True)
        else:
            self._identity = Identity(SINK_PREFIX + run, 0, run, True)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(self._schema, self._options, iterator, self._identity)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        settle(self._options, messages, self._identity.batch, commit=True)
        has_decided = any(isinstance(each, SinkMessage) and each.staged is not None for each in messages)
        if has_decided and self._options.txn_app_id is None:
            # It has a name of its own that nobody asks for again; the log would grow by every write for good.
            here = runner()
            with suppress(KafkaError):
                here.run(_coordinator(self._options, self._identity.sink, here.cluster(self._options.kafka)).forget())

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._options.exactly_once and not any(isinstance(each, SinkMessage) for each in messages):
            # No task got to tell; that of a worker that was killed is open all the same.
            messages = [SinkMessage(self._identity.sink, self._identity.run, self._identity.batch, None)]
        settle(self._options, messages, self._identity.batch, commit=False)
        if self._options.exactly_once and self._options.txn_app_id is None:
            here = runner()
            with suppress(KafkaError):
                coordinator = _coordinator(self._options, self._identity.sink, here.cluster(self._options.kafka))
                here.run(coordinator.forget_given_up())


def batch_writer(schema: StructType, given: dict[str, str], overwrite: bool) -> DataSourceWriter:
    if overwrite:
        raise ValueError("mode overwrite: a topic cannot be overwritten; use mode append")
    options = sink_options(given)
    if options.sink_id is not None:
        # Every batch write would be batch 0 of that sink: all but the first would be taken for replays of it.
        raise ValueError("sinkId: is for streams; name a batch write with txnAppId and txnVersion, or leave it out")
    sink = BatchSink(schema, options)
    # Else every task would find out for itself.
    here = runner()
    here.run(questions.reach(here.cluster(options.kafka)))
    return sink


def stream_writer(schema: StructType, given: dict[str, str]) -> DataSourceStreamWriter:
    return StreamSink(schema, sink_options(given))
