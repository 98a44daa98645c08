"""The streaming reader's offsets, with a broker that is only said to be there."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from mainstem.spark.offsets import Offsets, Partition
from mainstem.spark.options import source_options
from mainstem.spark.schema import default_schema, wanted
from mainstem.spark.stream import TopicStreamReader

GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}


class Told(TopicStreamReader):
    """One that is told where partitions end."""

    target: Offsets
    now: Offsets

    async def _starting(self) -> Offsets:
        return dict(self.now)

    async def _target_ends(self) -> Offsets:
        return dict(self.target)

    async def _ends(self, begin: Offsets) -> Offsets:
        return dict(self.now)

    async def _firsts(self, new: list[Partition]) -> Offsets:
        return dict.fromkeys(new, 0)


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
