"""Small files of a log directory as rows: indexes, producer snapshots, checkpoints and what identifies a directory."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mainstem.cli.values import time_in_words
from mainstem.storage.checkpoint import checkpoint_lines, checkpoint_number, parse_offsets
from mainstem.storage.names import parse_offset_name
from mainstem.storage.properties import parse_properties
from mainstem.storage.snapshot import decode_snapshot
from mainstem.storage.txn_index import ENTRY_BYTES as TXN_ENTRY_BYTES

Rows = Iterator[dict[str, Any]]

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_TXN_ENTRY: Final = struct.Struct(">hqqqq")


def index(path: Path) -> Rows:
    base = _base_offset(path)
    for relative, position in _entries(path, _OFFSET_ENTRY):
        yield {"offset": base + relative, "position": position}


def timeindex(path: Path) -> Rows:
    base = _base_offset(path)
    for timestamp, relative in _entries(path, _TIME_ENTRY):
        yield {"timestamp": timestamp, "time": time_in_words(timestamp), "offset": base + relative}


def txnindex(path: Path) -> Rows:
    data = path.read_bytes()
    if len(data) % TXN_ENTRY_BYTES:
        raise ValueError(f"{len(data)} bytes are no whole number of entries")
    for version, producer_id, first, last, last_stable in _TXN_ENTRY.iter_unpack(data):
        yield {
            "version": version,
            "producer_id": producer_id,
            "first_offset": first,
            "last_offset": last,
            "last_stable_offset": last_stable,
        }


def producers(path: Path) -> Rows:
    for each in decode_snapshot(path.read_bytes()):
        yield {
            "producer_id": each.producer_id,
            "producer_epoch": each.epoch,
            "last_sequence": each.last_sequence,
            "last_offset": each.last_offset,
            "last_timestamp": each.last_timestamp,
            "last_time": time_in_words(each.last_timestamp),
            "coordinator_epoch": each.coordinator_epoch,
            "transaction_start": each.txn_first_offset if each.txn_first_offset >= 0 else None,
        }


def offsets(path: Path) -> Rows:
    for (topic, partition), offset in parse_offsets(str(path), path.read_bytes()).items():
        yield {"topic": topic, "partition": partition, "offset": offset}


def epochs(path: Path) -> Rows:
    for at, line in enumerate(checkpoint_lines(str(path), path.read_bytes(), 0), 3):
        epoch, _, start = line.partition(" ")
        yield {
            "epoch": checkpoint_number(str(path), epoch, at),
            "start_offset": checkpoint_number(str(path), start, at),
        }


def fields(path: Path) -> Rows:
    text = path.read_text("utf-8")
    if path.name == "quorum-state":
        found = json.loads(text)
    elif path.name == "partition.metadata":
        found = dict(line.split(": ", 1) for line in text.splitlines())
    else:
        found = parse_properties(text)
    for key, value in found.items():
        yield {"field": key, "value": value}


def _entries(path: Path, entry: struct.Struct) -> Iterator[tuple[int, int]]:
    """The entries of an index; a tail of zeros, as in the index of an active segment of Kafka's, is none."""
    data = path.read_bytes()
    used = len(data.rstrip(b"\0"))
    count = min(-(-used // entry.size), len(data) // entry.size)
    yield from entry.iter_unpack(data[: count * entry.size])


def _base_offset(path: Path) -> int:
    found = parse_offset_name(path.name)
    if found is None:
        raise ValueError("its name does not begin with an offset of 20 digits")
    return found[0]
