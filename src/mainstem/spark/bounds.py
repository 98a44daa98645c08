"""From what the options say to offsets: where a read starts and where it ends.

Rules are Spark's. Offsets given by partition must name every partition that is read, and no other. A timestamp finds
the first record at or after it; where there is none, the end of the log stands in for an ending bound, and for a
starting one it is an error or the end, as `startingOffsetsByTimestampStrategy` says.
"""

from collections.abc import Iterable

from mainstem.client.cluster import Cluster
from mainstem.spark.offsets import EARLIEST, LATEST, Offsets, Partition, name, names
from mainstem.spark.options import Bound, Kind, SourceOptions
from mainstem.spark.questions import list_offsets
from mainstem.spark.splits import Range


async def starting_offsets(cluster: Cluster, options: SourceOptions, partitions: Iterable[Partition]) -> Offsets:
    return await _resolve(cluster, options.starting, list(partitions), options.late_timestamps_start_at_latest)


async def ending_offsets(cluster: Cluster, options: SourceOptions, partitions: Iterable[Partition]) -> Offsets:
    ends = await _resolve(cluster, options.ending, list(partitions), True)
    if options.ending.kind is not Kind.OFFSETS:
        return ends
    # A task would wait for records that may never come.
    latest = await list_offsets(cluster, dict.fromkeys(ends, LATEST))
    beyond = sorted(where for where in ends if ends[where] > latest[where])
    if beyond and options.fail_on_data_loss:
        first = beyond[0]
        raise ValueError(
            f"endingOffsets: {name(first)} ends at {latest[first]} now, {ends[first]} is beyond it; take another, or "
            "set failOnDataLoss to false to read what is there"
        )
    return {where: min(end, latest[where]) for where, end in ends.items()}


def check_order(starting: Bound, starts: Offsets, ends: Offsets) -> None:
    """ValueError where a batch would start after its end: it would read nothing, and who made a mistake not know."""
    crossed = sorted(where for where in ends if starts[where] > ends[where])
    if crossed:
        first = crossed[0]
        raise ValueError(
            f"{starting.option}: {name(first)} would start at {starts[first]} and end at {ends[first]}; take an "
            "earlier start or a later end, or set failOnDataLoss to false to read nothing there"
        )


async def _resolve(cluster: Cluster, bound: Bound, partitions: list[Partition], late_is_latest: bool) -> Offsets:
    match bound.kind:
        case Kind.EARLIEST:
            return await list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
        case Kind.LATEST:
            return await list_offsets(cluster, dict.fromkeys(partitions, LATEST))
        case Kind.OFFSETS:
            _check_names(bound, partitions)
            asked = {where: offset for where, offset in bound.offsets.items() if offset < 0}
            return {**bound.offsets, **await list_offsets(cluster, asked)}
        case Kind.TIMESTAMP:
            return await _by_time(cluster, bound, dict.fromkeys(partitions, bound.timestamp_ms), late_is_latest)
        case Kind.TIMESTAMPS:
            _check_names(bound, partitions)
            return await _by_time(cluster, bound, bound.offsets, late_is_latest)


async def _by_time(cluster: Cluster, bound: Bound, stamps: dict[Partition, int], late_is_latest: bool) -> Offsets:
    found = await list_offsets(cluster, stamps)
    late = [where for where, offset in found.items() if offset < 0]
    if late and not late_is_latest:
        raise ValueError(
            f"{bound.option}: no record at or after the timestamp in {names(late)}; take an earlier one, or set "
            "startingOffsetsByTimestampStrategy to latest"
        )
    return {**found, **await list_offsets(cluster, dict.fromkeys(late, LATEST))}


def _check_names(bound: Bound, partitions: list[Partition]) -> None:
    there = set(partitions)
    unnamed = there - set(bound.offsets)
    if unnamed:
        raise ValueError(f"{bound.option}: must name every partition that is read; it lacks {names(unnamed)}")
    unknown = set(bound.offsets) - there
    if unknown:
        raise ValueError(f"{bound.option}: names {names(unknown)}, which is not among what is read")


def ranges(starts: Offsets, ends: Offsets, earliest: Offsets, fail_on_data_loss: bool) -> list[Range]:
    """What is between; DataLossError where what is asked for is no more there and that is not accepted."""
    found = []
    for where in sorted(ends):
        start, end = starts[where], ends[where]
        first = earliest.get(where, 0)
        if start < first:
            if fail_on_data_loss:
                raise DataLossError(where, start, first)
            start = first
        if end > start:
            found.append(Range(*where, start, end))
    return found


class DataLossError(Exception):
    """Records that were to be read are gone."""

    def __init__(self, where: Partition, wanted: int, there: int, why: str = "") -> None:
        self.arguments = (where, wanted, there, why)
        super().__init__(
            f"{name(where)}: records from offset {wanted} on are wanted, but the log "
            + (why or f"begins at {there}: offsets {wanted} to {there - 1} are gone")
            + "; they were deleted by retention or with the topic. To go on with what is there set failOnDataLoss to "
            "false; of a pipeline that is --accept-data-loss, or accept_data_loss=True"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return DataLossError, self.arguments
