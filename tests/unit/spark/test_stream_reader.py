"""The streaming reader's offsets, with a broker that is only said to be there."""

from __future__ import annotations

import asyncio
import time

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

from mainstem.spark import questions, stream
from mainstem.spark.offsets import Offsets, Partition
from mainstem.spark.options import source_options
from mainstem.spark.schema import default_schema, wanted
from mainstem.spark.splits import RecordBytes
from mainstem.spark.stream import TopicStreamReader

GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}


class Told(TopicStreamReader):
    """One that is told where partitions end, and how large their records are."""

    target: Offsets
    now: Offsets
    sizes: dict[Partition, float]

    async def _starting(self) -> Offsets:
        return dict(self.now)

    async def _target_ends(self) -> Offsets:
        return dict(self.target)

    async def _ends(self, begin: Offsets) -> Offsets:
        return dict(self.now)

    async def _firsts(self, new: list[Partition]) -> Offsets:
        return dict.fromkeys(new, 0)

    async def _record_bytes(self, ends: Offsets) -> RecordBytes:
        return self.sizes.__getitem__


def reader(**options: str) -> Told:
    found = source_options({**GIVEN, **options}, streaming=True)
    return Told(found, wanted(default_schema(found), found))


def test_a_batch_of_available_now_never_ends_before_it_begins() -> None:
    """Spark asks for the target first and for a start at `latest` second: records may come in between."""
    query = reader()
    query.target = {("t", 0): 100}
    query.prepareForTriggerAvailableNow()
    query.now = {("t", 0): 105}
    start = query.initialOffset()
    assert query.latestOffset(start) == start == {"t": {"0": 105}}
    query.now = {("t", 0): 110}
    assert query.latestOffset(start) == start


def test_the_first_batch_of_a_start_at_the_end_is_empty_whatever_came_meanwhile() -> None:
    """Spark notes where a query began with its first batch only. Were that one to fail, the next run would begin at the
    end that there is then, and what came in between be lost."""
    for options in ({}, {"startingOffsets": '{"t": {"0": -1}}'}):
        query = reader(**options)
        query.now = {("t", 0): 100}
        start = query.initialOffset()
        query.now = {("t", 0): 105}
        assert query.latestOffset(start) == start == {"t": {"0": 100}}
        assert query.latestOffset(start) == {"t": {"0": 105}}
    query = reader(startingOffsets="earliest")
    query.now = {("t", 0): 0}
    start = query.initialOffset()
    query.now = {("t", 0): 5}
    assert query.latestOffset(start) == {"t": {"0": 5}}, "where nothing can be lost, nothing is waited for"


def test_available_now_goes_on_from_the_end_of_a_log_that_was_made_anew() -> None:
    """Lost records are accepted: a query that stayed at its old offset would pass over all that comes up to there."""
    query = reader(startingOffsets="earliest", failOnDataLoss="false")
    query.target = {("t", 0): 10}
    query.prepareForTriggerAvailableNow()
    query.now = {("t", 0): 12}
    assert query.latestOffset({"t": {"0": 100}}) == {"t": {"0": 10}}


def test_available_now_leaves_what_came_later_to_the_next_run() -> None:
    query = reader(startingOffsets="earliest")
    query.target = {("t", 0): 100}
    query.prepareForTriggerAvailableNow()
    query.now = {("t", 0): 110, ("t", 1): 7}
    assert query.latestOffset({"t": {"0": 20}}) == {"t": {"0": 100}}


def test_a_partition_that_is_new_counts_for_the_limits_with_all_that_is_in_it() -> None:
    """A topic that a pattern finds later may have millions of records: they are no one batch."""
    query = reader(startingOffsets="earliest", maxOffsetsPerTrigger="10")
    query.now = {("t", 0): 20, ("t", 1): 1000}
    assert query.latestOffset({"t": {"0": 20}}) == {"t": {"0": 20, "1": 10}}
    assert query.latestOffset({"t": {"0": 20, "1": 10}}) == {"t": {"0": 20, "1": 20}}


def test_records_of_a_new_partition_are_enough_for_a_batch() -> None:
    query = reader(startingOffsets="earliest", minOffsetsPerTrigger="100")
    query.now = {("t", 0): 20}
    assert query.latestOffset({"t": {"0": 0}}) == {"t": {"0": 20}}
    query.now = {("t", 0): 21, ("t", 1): 99}
    assert query.latestOffset({"t": {"0": 20}}) == {"t": {"0": 21, "1": 99}}


def test_a_batch_has_about_so_many_bytes_however_large_records_are() -> None:
    query = reader(startingOffsets="earliest", maxOffsetsPerTrigger="5000", maxBytesPerTrigger="100000")
    query.sizes = {("t", 0): 1000.0, ("t", 1): 10.0}
    query.now = {("t", 0): 1000, ("t", 1): 10_000}
    # 1.1 MB in all: each partition gives an eleventh.
    assert query.latestOffset({"t": {"0": 0, "1": 0}}) == {"t": {"0": 91, "1": 909}}
    query.sizes = {("t", 0): 1e6, ("t", 1): 1e6}
    assert query.latestOffset({"t": {"0": 0, "1": 9999}}) == {"t": {"0": 1, "1": 10_000}}
    query.now = {("t", 0): 0, ("t", 1): 0}
    assert query.latestOffset({"t": {"0": 0, "1": 0}}) == {"t": {"0": 0, "1": 0}}


def test_the_smaller_of_two_bounds_counts() -> None:
    query = reader(startingOffsets="earliest", maxOffsetsPerTrigger="50", maxBytesPerTrigger="1000")
    query.now = {("t", 0): 1000}
    query.sizes = {("t", 0): 10.0}  # a hundred records are 1000 bytes
    assert query.latestOffset({"t": {"0": 0}}) == {"t": {"0": 50}}
    query.sizes = {("t", 0): 40.0}
    assert query.latestOffset({"t": {"0": 0}}) == {"t": {"0": 25}}


def test_sizes_of_records_are_asked_for_again_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query runs for days, and what its topic has changes."""
    now_s, sizes = 100.0, 10.0
    asked: list[float] = []

    async def offsets(cluster: object, asked_for: Offsets) -> Offsets:
        return dict.fromkeys(asked_for, 0)

    async def told(cluster: object, starts: Offsets, ends: Offsets) -> RecordBytes:
        asked.append(now_s)
        size = sizes
        return lambda where: size

    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    monkeypatch.setattr(questions, "list_offsets", offsets)
    monkeypatch.setattr(stream, "record_bytes", told)
    monkeypatch.setattr(TopicStreamReader, "_cluster", lambda self: None)
    found = source_options(GIVEN, streaming=True)
    query, where = TopicStreamReader(found, wanted(default_schema(found), found)), ("t", 0)

    def size_now() -> float:
        return asyncio.run(query._record_bytes({where: 100}))(where)

    assert size_now() == 10.0
    sizes, now_s = 20.0, now_s + stream.SIZES_AGE_S
    assert size_now() == 10.0
    now_s += 1.0
    assert size_now() == 20.0
    assert size_now() == 20.0
    assert asked == [100.0, 161.0]


def test_bytes_alone_bound_a_batch_and_spark_is_told_that_it_is_bounded() -> None:
    query = reader(startingOffsets="earliest", maxBytesPerTrigger="1000")
    assert query.getDefaultReadLimit() == ReadMaxBytes(1000)
    query.sizes, query.now = {("t", 0): 10.0}, {("t", 0): 1000}
    assert query.latestOffset({"t": {"0": 0}}, ReadMaxBytes(1000)) == {"t": {"0": 100}}
    assert query.latestOffset({"t": {"0": 0}}, ReadAllAvailable()) == {"t": {"0": 1000}}
