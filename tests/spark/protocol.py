"""Tasks and drivers of the sink without Spark: called as Spark would, each in a client of its own.

A "process" here is a client of its own with nothing remembered. A driver that is killed is one that stops at a step and
is never heard of again; Spark then starts a new run of the query, which replays the batch.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructField, StructType

from mainstem.client.cluster import Cluster
from mainstem.spark import sink as sinks
from mainstem.spark.decisions import DecisionLog
from mainstem.spark.exactly_once import SINK_PREFIX, Coordinator, Staged
from mainstem.spark.options import SinkOptions, sink_options
from mainstem.spark.sink import Identity, RowWriter, stage
from mainstem.spark.transactions import Transactions
from tests.spark.brokers import Broker

SCHEMA = StructType([StructField("value", BinaryType()), StructField("key", BinaryType())])


class KilledError(Exception):
    """Where a driver stopped for good."""


class Query:
    """One streaming query with its sink, as its checkpoint would name it."""

    def __init__(self, broker: Broker, topic: str, sink: str | None = None, **options: str) -> None:
        self.broker = broker
        self.options: SinkOptions = sink_options(
            {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic, **options}
        )
        self.id = uuid.uuid4().hex
        self.sink = SINK_PREFIX + (sink or self.id)

    @asynccontextmanager
    async def process(self) -> AsyncIterator[Cluster]:
        async with Cluster(self.options.kafka, random.Random()) as cluster:
            yield cluster

    async def write(self, batch: int, run: str, rows: list[bytes], tasks: int = 2) -> list[Staged]:
        """What the tasks of a batch do, each in a worker process of its own."""
        staged = []
        for task in range(tasks):
            mine = rows[task::tasks]
            columns = [pa.array(mine, pa.binary()), pa.array(mine, pa.binary())]
            batches = [pa.record_batch(columns, names=["value", "key"])] if mine else []
            async with self.process() as cluster:
                sinks._slots.clear()
                message = await stage(
                    cluster,
                    RowWriter(SCHEMA, self.options),
                    self.options,
                    iter(batches),
                    Identity(self.sink, batch, run, query=self.id),
                    task,
                )
            if message.staged is not None:
                staged.append(message.staged)
        return staged

    async def settle(
        self,
        batch: int,
        run: str,
        staged: Sequence[Staged],
        *,
        commit: bool = True,
        step: Callable[[str], None] | None = None,
    ) -> None:
        """What the driver does, in a process of its own."""
        async with self.process() as cluster:
            coordinator = Coordinator(
                cluster,
                self.options.kafka,
                self.sink,
                Transactions(cluster),
                DecisionLog(cluster),
                step or (lambda name: None),
            )
            if commit:
                await coordinator.commit(batch, run, staged, self.id)
            else:
                await coordinator.abort(batch, run, staged)

    async def recover(self) -> None:
        async with self.process() as cluster:
            await Coordinator(
                cluster, self.options.kafka, self.sink, Transactions(cluster), DecisionLog(cluster)
            ).recover()

    async def open_transactions(self) -> list[str]:
        async with self.process() as cluster:
            return await Transactions(cluster).ongoing(self.sink)


def killed_at(wanted: str) -> Callable[[str], None]:
    def step(name: str) -> None:
        if name == wanted:
            raise KilledError(name)

    return step


def rows_of(batch: int) -> list[bytes]:
    return [b"%d-%d" % (batch, nth) for nth in range(20)]


def play(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)
