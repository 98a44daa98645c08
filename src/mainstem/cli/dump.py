"""`mainstem dump`: what is in a file of a log directory, ours or Kafka's. The name says which kind it is.

| file | shown |
|---|---|
| `*.log` | batches; `--records` with what is in them; internal topics and the metadata log in words |
| `*-*.checkpoint`, `bootstrap.checkpoint` | a snapshot of the metadata: batches of records in words |
| `*.index`, `*.timeindex`, `*.txnindex` | entries |
| `*.snapshot` | producers |
| `*-checkpoint` | offsets of partitions, or leader epochs |
| `meta.properties`, `partition.metadata`, `quorum-state` | fields |

Files are opened for reading only, so a running broker does not mind. With `--json` there is one object a line, because
a segment has no bounds. A file that is damaged is shown up to the damage, which is then said, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from mainstem.cli.arguments import add_output
from mainstem.cli.failures import DONE, NOT_FOUND, REFUSED, UserError
from mainstem.cli.output import Column, Output, Row, name, number
from mainstem.cli.values import positive, several

_BLOCK_ROWS: Final = 1000
"""Rows of a table that are aligned to each other: a segment has too many to look at them all first."""

_SUFFIXES: Final = (".deleted", ".cleaned", ".swap")

_COLUMNS: Final[dict[str, list[Column]]] = {
    "batches": [
        number("base_offset", "FIRST"),
        number("last_offset", "LAST"),
        number("count"),
        number("position"),
        number("size"),
        Column("max_time", "dim"),
        Column("codec"),
        number("producer_id", "PRODUCER"),
        number("producer_epoch", "P.EPOCH"),
        number("base_sequence", "SEQUENCE"),
        number("leader_epoch", "EPOCH"),
        Column("flags", "yellow"),
        Column("crc_ok", heading="CRC"),
    ],
    "index": [number("offset"), number("position")],
    "timeindex": [number("timestamp"), Column("time", "dim"), number("offset")],
    "txnindex": [number("producer_id"), number("first_offset"), number("last_offset"), number("last_stable_offset")],
    "producers": [
        number("producer_id"),
        number("producer_epoch"),
        number("last_sequence"),
        number("last_offset"),
        Column("last_time", "dim"),
        number("coordinator_epoch"),
        number("transaction_start"),
    ],
    "offsets": [name("topic"), number("partition"), number("offset")],
    "epochs": [number("epoch"), number("start_offset")],
    "fields": [name("field"), Column("value")],
}


def declare(parser: argparse.ArgumentParser, command: str) -> None:
    parser.description = "Show what is in a segment, an index, a snapshot or a checkpoint; the name says which it is."
    parser.epilog = "example: mainstem dump data/orders-0/00000000000000000000.log --records --limit 10"
    parser.add_argument("file", nargs="+", help="a file of a log directory, or a partition's folder")
    parser.add_argument("-r", "--records", action="store_true", help="with the records in each batch")
    parser.add_argument("--limit", type=positive, metavar="N", help="only the first N batches or entries of each file")
    parser.add_argument(
        "--from-offset", type=int, default=0, metavar="N", help="only batches from the one with this offset"
    )
    add_output(parser)
    parser.set_defaults(run=dump)


def dump(given: argparse.Namespace) -> int:
    out = Output(is_json=given.json, color=False if given.no_color else None)
    paths = [each for word in given.file for each in _files(Path(word))]
    code = DONE
    for at, path in enumerate(paths):
        if len(paths) > 1 and not out.is_json:
            out.line(("\n" if at else "") + str(path), "bold")
        code = max(code, _dump_one(out, path, given, with_name=len(paths) > 1))
    return code


def _dump_one(out: Output, path: Path, given: argparse.Namespace, *, with_name: bool) -> int:
    from mainstem.protocol.errors import RemoteError
    from mainstem.storage.errors import StorageError

    try:
        shape, rows = _read(path, given)
        _print(out, shape, islice(rows, given.limit), str(path) if with_name else None)
    except (StorageError, RemoteError, ValueError) as error:
        raise UserError(f"{path} is damaged: {error}", REFUSED) from error
    return DONE


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(each for each in path.iterdir() if each.is_file() and kind_of(each.name) is not None)
        if not found:
            raise UserError(f"{path} has no file that can be shown", NOT_FOUND)
        return found
    if not path.exists():
        raise UserError(f"there is no {path}", NOT_FOUND)
    if kind_of(path.name) is None:
        raise UserError(
            f"{path.name} is no name of a file in a log directory; `mainstem dump --help` says which are known"
        )
    return [path]


def kind_of(file_name: str) -> str | None:
    """What a file of that name holds, None for others."""
    for suffix in _SUFFIXES:
        file_name = file_name.removesuffix(suffix)
    endings = {
        ".log": "batches",
        ".index": "index",
        ".timeindex": "timeindex",
        ".txnindex": "txnindex",
        ".snapshot": "producers",
        ".checkpoint": "batches",
        "leader-epoch-checkpoint": "epochs",
        "-checkpoint": "offsets",
    }
    if file_name in ("meta.properties", "partition.metadata", "quorum-state"):
        return "fields"
    return next((kind for ending, kind in endings.items() if file_name.endswith(ending)), None)


def _read(path: Path, given: argparse.Namespace) -> tuple[str, Iterable[Row]]:
    kind = kind_of(path.name)
    assert kind is not None
    if kind == "batches":
        from mainstem.cli.dump_batches import batches

        return kind, batches(path, with_records=given.records, from_offset=given.from_offset)
    from mainstem.cli import dump_files

    return kind, getattr(dump_files, kind)(path)


def _print(out: Output, shape: str, rows: Iterable[Row], file_name: str | None) -> None:
    if out.is_json:
        for row in rows:
            out.json_line(row if file_name is None else {"file": file_name, **row})
    elif shape == "fields":
        out.fields((str(row["field"]), row["value"]) for row in rows)
    else:
        is_empty = True
        for block in _blocks(rows):
            is_empty = False
            if "records" in block[0]:
                for row in block:
                    _print_batch(out, row)
            else:
                out.draw(_COLUMNS[shape], block)
        if is_empty:
            out.note("empty")


def _blocks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows by the thousand. Where reading fails, those before it come first."""
    block: list[Row] = []
    try:
        for row in rows:
            block.append(row)
            if len(block) == _BLOCK_ROWS:
                yield block
                block = []
    except Exception:
        if block:
            yield block
        raise
    if block:
        yield block


def _print_batch(out: Output, row: Row) -> None:
    words = [f"offsets {row['base_offset']} to {row['last_offset']}", several(row["count"], "record")]
    words += [f"position {row['position']}", f"{row['size']} bytes", row["codec"], f"epoch {row['leader_epoch']}"]
    if row["producer_id"] is not None:
        words.append(f"producer {row['producer_id']} epoch {row['producer_epoch']} sequence {row['base_sequence']}")
    words += [row["flags"]] if row["flags"] else []
    words += [] if row["crc_ok"] else ["CRC DOES NOT MATCH"]
    out.line(", ".join(words), "bold")
    for record in row["records"]:
        out.line(f"  {_record_line(record)}")


def _record_line(record: dict[str, Any]) -> str:
    if "content" in record:
        return f"{record['offset']}  {record['type']}  {json.dumps(record['content'], ensure_ascii=False)}"
    headers = "".join(f"  {key}={value}" for key, value in record["headers"])
    return f"{record['offset']}  {record['time']}  {_shown(record['key'])}: {_shown(record['value'])}{headers}"


def _shown(text: str | None) -> str:
    return "null" if text is None else text
