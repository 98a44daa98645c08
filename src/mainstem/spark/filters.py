"""Filters that Spark would apply to every row, used to read fewer of them.

Only what offsets can express is used: equality and lists of topic and partition, bounds of the offset, and lower bounds
of the timestamp (records before the first one at or after it are all older; nothing like it holds for upper bounds,
for timestamps need not rise). All filters are left to Spark to apply as well, so none has to be exact.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from mainstem.spark.offsets import Partition

T = TypeVar("T")

INT64_MAX = 0x7FFFFFFFFFFFFFFF


@dataclass(frozen=True, slots=True)
class Narrowing:
    """What is left to read: None means all."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    first_offset: int = 0
    end_offset: int = INT64_MAX
    from_ms: int | None = None

    def keeps(self, where: Partition) -> bool:
        return (self.topics is None or where[0] in self.topics) and (
            self.partitions is None or where[1] in self.partitions
        )


def narrow(filters: Iterable[Filter], columns: Iterable[str]) -> Narrowing:
    """`columns` are those that are the record's own: a filter on another says nothing about offsets."""
    own = set(columns)
    found = Narrowing()
    for each in filters:
        attribute = getattr(each, "attribute", None)
        if attribute is None or len(attribute) != 1 or attribute[0] not in own:
            continue
        found = _narrowed(found, attribute[0], each)
    return found


def _narrowed(found: Narrowing, column: str, given: Filter) -> Narrowing:
    values: Any
    match given:
        case EqualTo(value=value):
            values = (value,)
        case In(value=value):
            values = value
        case _:
            values = None
    if values is not None and None not in values:
        match column:
            case "topic":
                return replace(found, topics=_both(frozenset(values), found.topics))
            case "partition":
                return replace(found, partitions=_both(frozenset(values), found.partitions))
            case "offset" if values:
                return _offsets(found, min(values), max(values) + 1)
    match given:
        case GreaterThan(value=int(offset)) if column == "offset":
            return _offsets(found, offset + 1, INT64_MAX)
        case GreaterThanOrEqual(value=int(offset)) if column == "offset":
            return _offsets(found, offset, INT64_MAX)
        case LessThan(value=int(offset)) if column == "offset":
            return _offsets(found, 0, offset)
        case LessThanOrEqual(value=int(offset)) if column == "offset":
            return _offsets(found, 0, offset + 1)
        case EqualTo(value=datetime() as moment) | GreaterThan(value=datetime() as moment) if column == "timestamp":
            return _since(found, moment)
        case GreaterThanOrEqual(value=datetime() as moment) if column == "timestamp":
            return _since(found, moment)
    return found


def _both(some: frozenset[T], others: frozenset[T] | None) -> frozenset[T]:
    """None stands for all."""
    return some if others is None else some & others


def _offsets(found: Narrowing, first: int, end: int) -> Narrowing:
    return replace(found, first_offset=max(found.first_offset, first), end_offset=min(found.end_offset, end))


def _since(found: Narrowing, moment: datetime) -> Narrowing:
    if moment.tzinfo is None:
        moment = moment.astimezone()
    since = moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    # Down to the millisecond, which is all that a record's timestamp has.
    stamp = (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000
    # All there is may be after a moment before 1970: records without a timestamp have -1, which nobody can ask for.
    return found if stamp < 0 else replace(found, from_ms=max(found.from_ms or 0, stamp))
