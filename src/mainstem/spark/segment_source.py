"""Segment files as a source: `option("path", DIR)` reads log directories in parallel, without a broker.

DIR is a log directory of ours or of Kafka's, a copy of one, or one partition's folder. Large segments are cut where the
offset index says that a batch begins, so that one partition feeds every core. The directory must be visible to all
workers under the same path.

The end is what is in the files: no broker says which of the last records all replicas have. With
`kafka.isolation.level=read_committed`, aborted transactions are left out and reading stops before the first one that
has not ended.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from mainstem.protocol.batch import iterate_batches
from mainstem.protocol.errors import RemoteError
from mainstem.protocol.fetch import AbortedTransaction
from mainstem.spark.fetching import BATCH_BYTES, decode_some
from mainstem.spark.filters import INT64_MAX, Narrowing, narrow
from mainstem.spark.loop import settle_down
from mainstem.spark.offsets import name
from mainstem.spark.options import Bound, Kind, SourceOptions, Topics, describe
from mainstem.spark.questions import READ_COMMITTED
from mainstem.spark.rows import RowMaker
from mainstem.spark.schema import Wanted
from mainstem.spark.splits import PACK_BYTES, Range
from mainstem.storage.checkpoint import LOG_STARTS, parse_offsets
from mainstem.storage.offline import (
    Folder,
    SegmentPart,
    aborted_transactions,
    cut,
    find_folders,
    first_open_transaction,
    read_batches,
    segments,
)

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a segment, which of its offsets are wanted, and the transactions to leave out of it."""

    wanted: Range
    part: SegmentPart
    aborted: tuple[tuple[int, int, int], ...] = ()
    """Producer, first offset, offset of the marker."""


class PiecesPartition(InputPartition):
    def __init__(self, pieces: tuple[Piece, ...]) -> None:
        self.value = pieces


class SegmentReader(DataSourceReader):
    """`minPartitions` makes pieces smaller; how many records a piece has is not known before it is read."""

    def __init__(self, options: SourceOptions, found: Wanted) -> None:
        for bound in (options.starting, options.ending):
            if bound.kind in (Kind.TIMESTAMP, Kind.TIMESTAMPS):
                raise ValueError(f"{bound.option}: segment files are read by offset; filter on the column timestamp")
        self._options = options
        self._wanted = found
        self._narrowing = Narrowing()

    def partitions(self) -> list[InputPartition]:
        options = self._options
        assert options.path is not None
        there = find_folders(options.path)
        folders = [folder for folder in there if options.topics.matches(folder.topic, folder.partition)]
        if not folders:
            raise ValueError(
                f"path: {options.path} has no partition of {describe(options)}; it is to be a log directory"
            )
        _check_named(options.topics, folders, options.path)
        folders = [folder for folder in folders if self._narrowing.keeps((folder.topic, folder.partition))]
        parts = {folder: segments(folder.path) for folder in folders}
        total = sum(part.end - part.start for some in parts.values() for part in some)
        split_bytes = options.batch_split_bytes(total)
        if options.min_partitions is not None:
            split_bytes = max(1, min(split_bytes, total // options.min_partitions))
        pieces = [piece for folder in folders for piece in self._pieces(folder, parts[folder], split_bytes)]
        return [PiecesPartition(some) for some in _pack(pieces, min(PACK_BYTES, split_bytes))] or [PiecesPartition(())]

    def _pieces(self, folder: Folder, parts: Sequence[SegmentPart], split_bytes: int) -> list[Piece]:
        where = (folder.topic, folder.partition)
        first = max(_lower(self._options.starting, where), _log_start(folder), self._narrowing.first_offset)
        end = min(_upper(self._options.ending, where), self._narrowing.end_offset)
        aborted: tuple[tuple[int, int, int], ...] = ()
        if self._options.kafka.isolation_level == READ_COMMITTED:
            still_open = first_open_transaction(folder.path)
            end = end if still_open is None else min(end, still_open)
            aborted = tuple(
                (int(each.producer_id), int(each.first_offset), int(each.last_offset))
                for each in aborted_transactions(folder.path)
            )
        found = []
        for nth, part in enumerate(parts):
            following = parts[nth + 1].base_offset if nth + 1 < len(parts) else INT64_MAX
            if following <= first or part.base_offset >= end:
                continue
            wanted = Range(folder.topic, folder.partition, first, end)
            overlapping = tuple(each for each in aborted if each[2] >= part.base_offset and each[1] < following)
            found += [Piece(wanted, smaller, overlapping) for smaller in cut(part, split_bytes)]
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        settle_down()
        maker = RowMaker(self._wanted, self._options.value_format)
        for piece in partition.value:
            yield from _read(piece, maker, self._options.kafka.check_crcs)


class FilteringSegmentReader(SegmentReader):
    """With `pushFilters`. A timestamp says nothing here: files are found by offset."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._narrowing = narrow(filters, self._wanted.own_columns())
        return filters


def _check_named(topics: Topics, folders: list[Folder], path: str) -> None:
    """ValueError where one of several that are named is not there: the others alone are not what was asked for."""
    for topic in topics.names:
        if all(folder.topic != topic for folder in folders):
            raise ValueError(f"subscribe: there is no topic {topic} in {path}; correct the name")
    numbers = {(folder.topic, folder.partition) for folder in folders}
    for where in topics.partitions:
        if where not in numbers:
            raise ValueError(f"assign: there is no partition {name(where)} in {path}")


def _read(piece: Piece, maker: RowMaker, check_crcs: bool) -> Iterator[pa.RecordBatch]:
    for chunk in read_batches(piece.part):
        batches = list(iterate_batches(chunk, 0, len(chunk)))
        first, reach = int(batches[0].base_offset), min(int(batches[-1].next_offset), piece.wanted.end)
        # Only those that reach into the chunk: a producer's later transactions must not be taken for an aborted one.
        aborted = [AbortedTransaction(producer, start) for producer, start, last in piece.aborted if last >= first]
        position = piece.wanted.start
        while position < reach:
            try:
                bounds = (0, len(chunk), position, piece.wanted.end)
                columns = decode_some(chunk, bounds, aborted or None, check_crcs, max(2 * len(chunk), BATCH_BYTES))
            except RemoteError as error:
                raise ValueError(f"path: {piece.part.path} has a batch that cannot be read: {error}") from error
            if columns.count:
                yield maker(columns, piece.wanted)
            # Decoding stops early only where decompression made too much at once.
            position = int(columns.next_offset) if columns.next_offset > position else reach


def _pack(pieces: list[Piece], pack_bytes: int) -> list[tuple[Piece, ...]]:
    """Small neighbours share a task."""
    packed: list[list[Piece]] = []
    size = 0
    for piece in pieces:
        own = piece.part.end - piece.part.start
        if packed and size + own <= pack_bytes:
            packed[-1].append(piece)
            size += own
        else:
            packed.append([piece])
            size = own
    return [tuple(some) for some in packed]


def _lower(bound: Bound, where: tuple[str, int]) -> int:
    return max(bound.offsets.get(where, 0), 0) if bound.kind is Kind.OFFSETS else 0


def _upper(bound: Bound, where: tuple[str, int]) -> int:
    given = bound.offsets.get(where, -1) if bound.kind is Kind.OFFSETS else -1
    return INT64_MAX if given < 0 else given


def _log_start(folder: Folder) -> int:
    """Records below it were deleted, though their file is still there."""
    path = os.path.join(os.path.dirname(folder.path.rstrip("/")), LOG_STARTS)
    try:
        with open(path, "rb") as file:
            return parse_offsets(path, file.read()).get((folder.topic, folder.partition), 0)
    except FileNotFoundError:
        return 0
