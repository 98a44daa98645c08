"""`format("mainstem")`: the data source that Spark finds, and its batch reader.

Spark makes a reader in a planning process, asks it for partitions, and runs `read` in workers on a copy of it. So what
a reader holds is small and picklable; connections are the process's (`loop`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from mainstem.spark import bounds, questions
from mainstem.spark.fetching import RangeReader
from mainstem.spark.filters import Narrowing, narrow
from mainstem.spark.loop import runner, settle_down
from mainstem.spark.offsets import EARLIEST, Offsets, Partition
from mainstem.spark.options import SourceOptions, source_options
from mainstem.spark.rows import RowMaker
from mainstem.spark.schema import Wanted, default_schema, wanted
from mainstem.spark.splits import DEFAULT_RECORD_BYTES, Range, RecordBytes, Split, plan

if TYPE_CHECKING:
    import pyarrow as pa

    from mainstem.client.cluster import Cluster


class MainstemSource(DataSource):
    """Topics of Mainstem or Kafka, as Spark's Kafka source has them, and segment files with `path`."""

    @classmethod
    def name(cls) -> str:
        return "mainstem"

    def schema(self) -> StructType:
        return default_schema(source_options(self.options, streaming=False))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = source_options(self.options, streaming=False)
        if options.path is not None:
            from mainstem.spark.segment_source import FilteringSegmentReader, SegmentReader

            kind = FilteringSegmentReader if options.push_filters else SegmentReader
            return kind(options, wanted(schema, options))
        if options.push_filters:
            return FilteringTopicReader(options, wanted(schema, options))
        return TopicReader(options, wanted(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from mainstem.spark.stream import TopicStreamReader

        options = source_options(self.options, streaming=True)
        return TopicStreamReader(options, wanted(schema, options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from mainstem.spark.sink import batch_writer

        return batch_writer(schema, dict(self.options), overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from mainstem.spark.sink import stream_writer

        return stream_writer(schema, dict(self.options))


class SplitPartition(InputPartition):
    """What one task reads."""

    def __init__(self, split: Split) -> None:
        self.value = split


class TopicReader(DataSourceReader):
    def __init__(self, options: SourceOptions, found: Wanted) -> None:
        self._options = options
        self._wanted = found
        self._narrowing = Narrowing()

    def partitions(self) -> list[InputPartition]:
        here = runner()
        cluster = here.cluster(self._options.kafka)
        splits = here.run(self._plan(cluster))
        return [SplitPartition(split) for split in splits] or [SplitPartition(())]

    async def _plan(self, cluster: Cluster) -> list[Split]:
        options = self._options
        all_of_them = await questions.partitions(cluster, options.topics)
        there = [where for where in all_of_them if self._narrowing.keeps(where)]
        # Offsets that are given name every partition, whichever of them a filter leaves.
        starts = await bounds.starting_offsets(cluster, options, all_of_them)
        ends = await bounds.ending_offsets(cluster, options, all_of_them)
        if options.fail_on_data_loss:
            bounds.check_order(options.starting, starts, ends)
        ends = {where: ends[where] for where in there}
        earliest = await questions.list_offsets(cluster, dict.fromkeys(there, EARLIEST))
        ranges = bounds.ranges(starts, ends, earliest, options.fail_on_data_loss)
        ranges = await self._narrowed(cluster, ranges)
        sizes = await record_bytes(cluster, earliest, ends)
        total = sum(each.size * sizes(each.where) for each in ranges)
        return plan(
            ranges,
            sizes,
            options.min_partitions,
            options.max_records_per_partition,
            options.batch_split_bytes(total),
        )

    async def _narrowed(self, cluster: Cluster, ranges: list[Range]) -> list[Range]:
        narrowing = self._narrowing
        since: Offsets = {}
        if narrowing.from_ms is not None:
            since = await questions.list_offsets(cluster, {each.where: narrowing.from_ms for each in ranges})
        kept = []
        for each in ranges:
            first = since.get(each.where, 0)
            start = max(each.start, narrowing.first_offset, first if first >= 0 else each.end)
            end = min(each.end, narrowing.end_offset)
            if start < end:
                kept.append(Range(each.topic, each.partition, start, end))
        return kept

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_split(self._options, self._wanted, partition)


class FilteringTopicReader(TopicReader):
    """With `pushFilters`: Spark refuses a reader that has the method unless its own setting is on, too."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._narrowing = narrow(filters, self._wanted.own_columns())
        return filters


def read_split(options: SourceOptions, found: Wanted, partition: InputPartition) -> Iterator[Any]:
    """What a task does, in a batch and in a stream alike."""
    settle_down()
    reader = RangeReader(runner(), options.kafka, options.fail_on_data_loss, options.poll_timeout_ms)
    return reader.read(partition.value, RowMaker(found, options.value_format))


async def record_bytes(cluster: Cluster, earliest: Offsets, ends: Offsets) -> RecordBytes:
    """How large a record of a partition is on average, as the sizes of the logs say."""
    sizes = await questions.log_sizes(cluster, ends)
    averages: dict[Partition, float] = {}
    for where, size in sizes.items():
        records = ends.get(where, 0) - earliest.get(where, 0)
        if records > 0 and size > 0:
            averages[where] = size / records
    return lambda where: averages.get(where, DEFAULT_RECORD_BYTES)
