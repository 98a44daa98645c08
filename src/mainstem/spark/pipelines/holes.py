"""Offsets that no batch of a topic has, though its log neither ended before them nor began after.

Where nothing is compacted, batches follow each other without a gap. A reader of what is committed still sees none at
some offsets: markers end transactions there, and records were aborted. So the headers of the batches around such
offsets are read, by whatever workers Spark has: what is in none of them has been lost.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from mainstem.client.admin_types import ConfigResource
from mainstem.client.cluster import Cluster
from mainstem.client.errors import OffsetOutOfRangeError
from mainstem.client.options import ConsumerOptions
from mainstem.client.sync_admin import Admin
from mainstem.protocol.batch import iterate_batches
from mainstem.spark import questions
from mainstem.spark.fetching import RangeReader
from mainstem.spark.loop import runner, settle_down
from mainstem.spark.offsets import EARLIEST, LATEST, Offsets
from mainstem.spark.options import Topics
from mainstem.spark.splits import Range

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

CLEANUP_POLICY: Final = "cleanup.policy"
GAPS: Final = "partition int, start bigint, end bigint"
FETCH_BYTES: Final = 1 << 20
"""Enough for the markers of thousands of transactions that follow each other, little where one stands alone."""
WAIT_MS: Final = 120_000


def is_compacted(bootstrap: str, topic: str) -> bool:
    """Whether records of the topic may go while others before them stay."""
    resource = ConfigResource.topic(topic)
    with Admin(bootstrap_servers=bootstrap) as admin:
        policy = admin.describe_configs([resource], names=[CLEANUP_POLICY])[resource][CLEANUP_POLICY].value
    return "compact" in (policy or "")


def log_bounds(bootstrap: str, topic: str) -> tuple[Offsets, Offsets]:
    """Where each partition begins, and where what is committed in it ends."""
    options = ConsumerOptions(bootstrap_servers=bootstrap, isolation_level="read_committed")

    async def story() -> tuple[Offsets, Offsets]:
        async with Cluster(options, random.Random()) as cluster:
            there = await questions.partitions(cluster, Topics(names=(topic,)))
            starts = await questions.list_offsets(cluster, dict.fromkeys(there, EARLIEST))
            return starts, await questions.list_offsets(cluster, dict.fromkeys(there, LATEST))

    # Whoever calls this may be on a loop of their own, as in a notebook.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, story()).result()


def gaps(frame: DataFrame, starts: Offsets, ends: Offsets) -> DataFrame:
    """The offsets of a topic's bounds at which `frame` has no record: columns as in `GAPS`.

    The bounds are to be older than the frame: what came since is in it, and no gap.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    edges = [(number, start - 1) for (_, number), start in starts.items()]
    edges += [(number, end) for (_, number), end in ends.items()]
    around = frame.sparkSession.createDataFrame(edges, "partition int, offset bigint")
    before = f.lag("offset").over(Window.partitionBy("partition").orderBy("offset"))
    return (
        frame.select("partition", "offset")
        .unionAll(around)
        .select("partition", (before + 1).alias("start"), f.col("offset").alias("end"))
        .where("start < end")
    )


def holes(found: DataFrame, bootstrap: str, topic: str) -> DataFrame:
    """Those of the `gaps` that no batch has, or the parts of them."""

    def told(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        settle_down()
        options = ConsumerOptions(bootstrap_servers=bootstrap, max_partition_fetch_bytes=FETCH_BYTES)
        reader = RangeReader(runner(), options, False, WAIT_MS)
        for batch in batches:
            rows = [Range(topic, *row.values()) for row in batch.to_pylist()]
            lost = [(each.partition, each.start, each.end) for each in without_batch(reader, rows)]
            columns = zip(*lost, strict=True) if lost else ([], [], [])
            kinds = (pa.int32(), pa.int64(), pa.int64())
            arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, names=["partition", "start", "end"])

    return found.mapInArrow(told, GAPS)


def without_batch(reader: RangeReader, ranges: Iterable[Range]) -> Iterator[Range]:
    """The parts of ranges that no batch covers. They come by partition and in order: one answer tells of many."""
    where, reach = ("", -1), -1
    spans: deque[tuple[int, int]] = deque()
    for wanted in ranges:
        position = wanted.start
        while position < wanted.end:
            if where != wanted.where or position >= reach:
                try:
                    fetched = reader.fetch(wanted, position)
                except OffsetOutOfRangeError:
                    break  # the log begins later by now
                where, reach = wanted.where, fetched.reach
                batches = iterate_batches(fetched.frame, fetched.start, fetched.end)
                spans = deque((int(batch.base_offset), int(batch.next_offset)) for batch in batches)
            while spans and spans[0][1] <= position:
                spans.popleft()
            start, end = spans[0] if spans else (reach, reach)
            if start > position:
                yield Range(wanted.topic, wanted.partition, position, min(start, wanted.end))
            position = end
