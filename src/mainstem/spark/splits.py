"""Which Spark partition reads which offsets. Pure: ranges in, splits out.

A split is what one task reads: some ranges of offsets. Spark's own source gives each topic partition one task; here
large ranges are cut, so that one hot partition feeds every core, and small ones are put together, for a Python task has
a price of its own (some 50 ms of processor time). How large a range is in bytes is what the log's size divided by its
records says.

`minPartitions` and `maxRecordsPerPartition` mean what they mean in Spark: at least so many tasks, at most so many
records in one. A stream does not cut a partition unless one of them asks for it: what one task reads, one task writes,
so the order of a partition is kept from topic to topic.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from mainstem.spark.offsets import Partition

SPLIT_BYTES: Final = 64 << 20
"""A range is cut so that no piece is expected to be larger."""

PACK_BYTES: Final = 8 << 20
"""Ranges share a task as long as they are expected to be less than this together, and are not cut smaller."""

DEFAULT_RECORD_BYTES: Final = 256.0
"""Where the broker does not tell the size of its logs."""


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets `start` to `end`, half-open, of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def where(self) -> Partition:
        return self.topic, self.partition

    @property
    def size(self) -> int:
        return self.end - self.start


Split = tuple[Range, ...]
RecordBytes = Callable[[Partition], float]


def even_bytes(total_bytes: float, cores: int) -> int:
    """How large a split is to be where nobody says: as large as gives every core something to do."""
    return round(min(SPLIT_BYTES, max(PACK_BYTES, total_bytes / cores)))


def plan(
    ranges: Iterable[Range],
    record_bytes: RecordBytes,
    min_partitions: int | None = None,
    max_records: int | None = None,
    split_bytes: int | None = SPLIT_BYTES,
) -> list[Split]:
    """The splits of all that is not empty; `split_bytes` is None where a partition is not to be cut."""
    pieces = [found for found in ranges if found.size > 0]
    if max_records is not None:
        pieces = [part for piece in pieces for part in cut(piece, -(-piece.size // max_records))]
    if split_bytes is not None:
        pieces = [
            part
            for piece in pieces
            for part in cut(piece, max(1, round(piece.size * record_bytes(piece.where) / split_bytes)))
        ]
    if min_partitions is not None and 0 < len(pieces) < min_partitions:
        return [(piece,) for piece in at_least(pieces, min_partitions)]
    return pack(pieces, record_bytes, max_records, min_partitions or 1, min(PACK_BYTES, split_bytes or PACK_BYTES))


def cut(found: Range, parts: int) -> list[Range]:
    """Equal parts, none of them empty."""
    parts = max(1, min(parts, found.size))
    bounds = [found.start + found.size * nth // parts for nth in range(parts + 1)]
    return [replace(found, start=start, end=end) for start, end in pairwise(bounds) if end > start]


def at_least(pieces: list[Range], wanted: int) -> list[Range]:
    """Cuts each in proportion to its records, so that there are about `wanted`; fewer only where records are fewer."""
    total = sum(piece.size for piece in pieces)
    parts = [max(1, round(piece.size / total * wanted)) for piece in pieces]
    while sum(parts) < wanted:
        # Rounding took too many away: the piece with most records a part gets one more.
        most = max(range(len(pieces)), key=lambda nth: pieces[nth].size / parts[nth])
        if parts[most] >= pieces[most].size:
            break
        parts[most] += 1
    return [part for piece, count in zip(pieces, parts, strict=True) for part in cut(piece, count)]


def pack(
    pieces: list[Range], record_bytes: RecordBytes, max_records: int | None, fewest: int, pack_bytes: int
) -> list[Split]:
    """Neighbours share a split while they are small, as long as at least `fewest` splits are left."""
    splits: list[list[Range]] = []
    bytes_so_far, records_so_far = 0.0, 0
    for nth, piece in enumerate(pieces):
        size = piece.size * record_bytes(piece.where)
        bytes_so_far += size
        records_so_far += piece.size
        fits = bytes_so_far <= pack_bytes and (max_records is None or records_so_far <= max_records)
        if splits and fits and len(splits) + len(pieces) - nth > fewest:
            splits[-1].append(piece)
        else:
            splits.append([piece])
            bytes_so_far, records_so_far = size, piece.size
    return [tuple(split) for split in splits]


def limit(starts: dict[Partition, int], ends: dict[Partition, int], most: int) -> dict[Partition, int]:
    """`ends` brought nearer, so that at most `most` records are between, each partition in proportion to what it has.

    Every partition that has any gets at least one, as in Spark, so `most` may be passed by as many as there are. What
    rounding leaves of `most` is handed out one by one: what Spark leaves behind costs it a micro-batch of its own.
    """
    sizes = {where: ends[where] - starts.get(where, ends[where]) for where in ends}
    total = sum(size for size in sizes.values() if size > 0)
    if total <= most:
        return dict(ends)
    shares = {where: max(1, size * most // total) for where, size in sizes.items() if size > 0}
    left = most - sum(shares.values())
    for where in sorted(shares, key=lambda each: sizes[each] * most % total, reverse=True)[: max(0, left)]:
        shares[where] += 1
    return {where: min(end, starts[where] + shares[where]) if where in shares else end for where, end in ends.items()}
