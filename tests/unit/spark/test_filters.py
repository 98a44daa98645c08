"""Filters narrow what is read, and never by more than they say."""

from datetime import UTC, datetime

from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, IsNotNull, LessThan, LessThanOrEqual

from mainstem.spark.filters import Narrowing, narrow

OWN = ("topic", "partition", "offset", "timestamp", "key")


def test_bounds_of_the_offset_come_together() -> None:
    found = narrow([GreaterThan(("offset",), 4), LessThanOrEqual(("offset",), 9), IsNotNull(("offset",))], OWN)
    assert (found.first_offset, found.end_offset) == (5, 10)
    assert narrow([EqualTo(("offset",), 7), LessThan(("offset",), 100)], OWN).end_offset == 8
    assert narrow([In(("offset",), (3, 9, 5))], OWN) == Narrowing(first_offset=3, end_offset=10)


def test_topics_and_partitions_are_intersected_down_to_none() -> None:
    found = narrow([In(("partition",), (0, 1, 2)), EqualTo(("partition",), 2), EqualTo(("topic",), "a")], OWN)
    assert found.keeps(("a", 2))
    assert not found.keeps(("a", 1))
    assert not found.keeps(("b", 2))
    nothing = narrow([EqualTo(("partition",), 1), EqualTo(("partition",), 2), EqualTo(("partition",), 2)], OWN)
    assert not any(nothing.keeps(("a", number)) for number in range(3))


def test_only_lower_bounds_of_the_timestamp_are_used() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 6789, tzinfo=UTC)
    assert narrow([GreaterThanOrEqual(("timestamp",), moment)], OWN).from_ms == 1767323045006
    assert narrow([LessThan(("timestamp",), moment)], OWN) == Narrowing()


def test_a_moment_before_all_timestamps_leaves_out_no_record_without_one() -> None:
    long_ago = datetime(1960, 1, 1, tzinfo=UTC)
    assert narrow([GreaterThan(("timestamp",), long_ago)], OWN) == Narrowing()
    assert narrow([GreaterThan(("timestamp",), datetime(1970, 1, 1, tzinfo=UTC))], OWN).from_ms == 0


def test_what_is_not_the_records_own_says_nothing() -> None:
    assert narrow([EqualTo(("offset",), 7)], ("value",)) == Narrowing()
    assert narrow([EqualTo(("key",), b"x"), EqualTo(("headers", "key"), "x")], OWN) == Narrowing()
