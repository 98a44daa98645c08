"""Where `mainstem consume` writes records: lines to a stream, or columns to a Parquet file.

A sink takes the next records from a consumer itself, because Parquet is fed from Arrow batches that never become
records. It leaves out what lies beyond the ends that it is given, and says how far each partition is.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, Protocol

from mainstem.cli.failures import REFUSED, UserError
from mainstem.cli.output import Output

if TYPE_CHECKING:
    from mainstem.client.consumer_sync import Consumer
    from mainstem.client.types import ConsumerRecord, TopicPartition

FORMATS: Final = ("pretty", "raw", "json", "parquet")
_BY_SUFFIX: Final = {".parquet": "parquet", ".pq": "parquet", ".jsonl": "json", ".ndjson": "json", ".json": "json"}

Lines = Callable[[Sequence["ConsumerRecord"]], bytes]


class Taken(NamedTuple):
    """What one step brought: records that came, records that were written, and the position of each partition."""

    records: int
    written: int
    positions: dict[TopicPartition, int]


class Sink(Protocol):
    """Made from the options, opened when it is sure that there is something to read: opening empties the file."""

    is_file: bool
    is_lasting: bool
    """Whether what was taken stays, whatever comes: not so where a file is of no use until it is closed."""

    def open(self) -> None: ...

    def take(
        self, consumer: Consumer, wait_ms: float, most: int | None, ends: Mapping[TopicPartition, int] | None
    ) -> Taken: ...

    def close(self) -> None: ...


def make_sink(out: Output, given: argparse.Namespace) -> Sink:
    """The sink that the options ask for; UserError where they contradict each other."""
    if given.json and given.format not in (None, "json"):
        raise UserError("--json is --format json; give one of them")
    chosen = "json" if given.json else given.format
    if chosen is None:
        by_suffix = None if given.output is None else _BY_SUFFIX.get(given.output.suffix)
        chosen = by_suffix or ("pretty" if given.output is None and out.is_terminal else "raw")
    if chosen == "parquet":
        if given.output is None:
            raise UserError("Parquet goes to a file: --output FILE.parquet")
        return ParquetSink(given.output)
    return LineSink(given.output, _lines(out, chosen))


class LineSink:
    """Lines to a file, or to stdout where there is no path."""

    def __init__(self, path: Path | None, lines: Lines) -> None:
        self.is_file = path is not None
        self.is_lasting = True
        self._path = path
        self._stream: BinaryIO = sys.stdout.buffer
        self._lines = lines

    def open(self) -> None:
        if self._path is not None:
            self._stream = self._path.open("wb")

    def take(
        self, consumer: Consumer, wait_ms: float, most: int | None, ends: Mapping[TopicPartition, int] | None
    ) -> Taken:
        from mainstem.client.types import TopicPartition

        records = consumer.poll(wait_ms, most)
        positions = {TopicPartition(each.topic, each.partition): each.offset + 1 for each in records}
        wanted = records
        if ends is not None:
            wanted = [each for each in records if each.offset < ends.get(TopicPartition(each.topic, each.partition), 0)]
        if wanted:
            self._stream.write(self._lines(wanted))
            self._stream.flush()
        return Taken(len(records), len(wanted), positions)

    def close(self) -> None:
        if self._stream is not sys.stdout.buffer:
            self._stream.close()


class ParquetSink:
    """A file with a row group for each fetch, whole when it is closed."""

    is_file = True
    is_lasting = False

    def __init__(self, path: Path) -> None:
        try:
            import pyarrow.parquet  # noqa: F401 (whether it is there is the question)
        except ImportError:
            raise UserError("Parquet needs pyarrow: pip install 'mainstem[arrow]'", REFUSED) from None
        self._path = path
        self._file: BinaryIO | None = None
        self._writer: Any = None

    def open(self) -> None:
        import pyarrow.parquet

        from mainstem.client.arrow_read import COLUMNS, empty_batch

        # Opened here, so that what keeps it from being opened is told as for any other file.
        self._file = self._path.open("wb")
        self._writer = pyarrow.parquet.ParquetWriter(self._file, empty_batch(COLUMNS).schema, compression="zstd")

    def take(
        self, consumer: Consumer, wait_ms: float, most: int | None, ends: Mapping[TopicPartition, int] | None
    ) -> Taken:
        from mainstem.client.types import TopicPartition

        came = written = 0
        positions: dict[TopicPartition, int] = {}
        for batch in consumer.fetch_arrow(wait_ms):
            came += batch.num_rows
            tp = TopicPartition(batch["topic"][0].as_py(), batch["partition"][0].as_py())
            positions[tp] = batch["offset"][batch.num_rows - 1].as_py() + 1
            kept = batch if ends is None else _below(batch, ends.get(tp, 0))
            if most is not None:
                kept = kept.slice(0, most - written)
            if kept.num_rows:
                self._writer.write_batch(kept)
                written += kept.num_rows
        return Taken(came, written, positions)

    def close(self) -> None:
        writer, self._writer = self._writer, None
        file, self._file = self._file, None
        if file is not None:
            with file:
                if writer is not None:
                    writer.close()


def _below(batch: Any, end: int) -> Any:
    """The rows before an offset. Offsets rise, so they are the first ones."""
    if batch.num_rows == 0 or batch["offset"][batch.num_rows - 1].as_py() < end:
        return batch
    import numpy as np

    return batch.slice(0, int(np.searchsorted(batch["offset"].to_numpy(), end)))


def _lines(out: Output, chosen: str) -> Lines:
    from mainstem.cli import record_text

    if chosen == "raw":
        return _raw
    if chosen == "json":
        # A header's name may be no UTF-8. What stands for such bytes is written as JSON's own escape, and read back.
        return lambda records: b"".join(
            json.dumps(record_text.to_json(record), ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
            for record in records
        )
    if chosen == "pretty":
        return _pretty(has_color=out.has_color)
    if "{" not in chosen:
        raise UserError(f"--format is {chosen!r}; it is {', '.join(FORMATS)}, or a template like '{{key}}={{value}}'")
    write = record_text.template(chosen)
    end = "" if chosen.endswith("\\n") else "\n"
    return lambda records: "".join(write(record) + end for record in records).encode("utf-8", "surrogateescape")


def _raw(records: Sequence[ConsumerRecord]) -> bytes:
    return b"".join((record.value if record.value is not None else b"") + b"\n" for record in records)


def _pretty(*, has_color: bool) -> Lines:
    from mainstem.cli.record_text import headers_in_words, shown
    from mainstem.cli.values import time_in_words

    faint, bright, plain = ("\033[2m", "\033[1;36m", "\033[0m") if has_color else ("", "", "")

    def line(record: ConsumerRecord) -> str:
        place = f"{faint}{record.partition}:{record.offset} {time_in_words(record.timestamp)}{plain}"
        key = "" if record.key is None else f" {bright}{shown(record.key)}{plain}"
        headers = f" {faint}[{headers_in_words(record.headers)}]{plain}" if record.headers else ""
        return f"{place}{key} {shown(record.value)}{headers}\n"

    return lambda records: "".join(map(line, records)).encode("utf-8", "surrogateescape")
