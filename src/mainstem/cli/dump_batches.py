"""The batches of a segment or of a metadata snapshot as rows, and the records in them.

A record of an internal log is told in words: its type and its fields. Where it cannot be read as such, it is shown as
any other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from mainstem.cli.values import time_in_words
from mainstem.protocol.batch import BatchView
from mainstem.protocol.compression import CODEC_NAMES
from mainstem.protocol.control import ControlType, parse_control_key
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.fields import Struct, fields_of
from mainstem.protocol.messages.control import (
    EndTxnMarker,
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from mainstem.protocol.messages.record_framing import (
    GROUP_RECORDS,
    SHARE_RECORDS,
    TXN_RECORDS,
    CoordinatorRecords,
    decode_metadata_record,
)
from mainstem.protocol.records import Record, iterate_records
from mainstem.protocol.schema import Message
from mainstem.protocol.uuids import uuid_to_text
from mainstem.storage.posix import PosixFile
from mainstem.storage.scan import BatchScan

Teller = Callable[[Record], tuple[str, Any]]
"""The type of a record and its content as plain values; RemoteError where it is no such record."""

_COORDINATORS: Final = {
    "__consumer_offsets": GROUP_RECORDS,
    "__transaction_state": TXN_RECORDS,
    "__share_group_state": SHARE_RECORDS,
}
_CONTROL: Final[dict[int, type[Message]]] = {
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}
_MARKER_BODY_AT: Final = 2


def batches(path: Path, *, with_records: bool, from_offset: int) -> Iterator[dict[str, Any]]:
    """A row for each batch. RemoteError at what is no batch, and in the end where one does not match its CRC."""
    tell = _teller(path)
    damaged: list[int] = []
    file = PosixFile(str(path), os.open(path, os.O_RDONLY))
    try:
        scan = BatchScan(file, 0, file.size())
        while scan.advance():
            batch = scan.batch
            if batch.last_offset >= from_offset:
                row = _row(batch, scan.position)
                if not row["crc_ok"]:
                    damaged.append(scan.position)
                if with_records:
                    row["records"] = _records(batch, tell) if row["crc_ok"] else []
                yield row
        if scan.broken:
            raise RemoteError(ErrorCode.CORRUPT_MESSAGE, f"at position {scan.next_position}: {scan.broken}")
        if damaged:
            what = f"{len(damaged)} batches do not match their CRC, the first at position {damaged[0]}"
            raise RemoteError(ErrorCode.CORRUPT_MESSAGE, what)
    finally:
        file.close()


def _row(batch: BatchView, position: int) -> dict[str, Any]:
    flags = [
        word
        for word, is_set in (
            ("transactional", batch.is_transactional),
            ("control", batch.is_control),
            ("append-time", batch.is_log_append_time),
            ("delete-horizon", batch.has_delete_horizon),
        )
        if is_set
    ]
    has_producer = batch.has_producer_id
    codec = int(batch.codec)
    return {
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "count": batch.record_count,
        "position": position,
        "size": batch.size,
        "base_timestamp": batch.base_timestamp,
        "max_timestamp": batch.max_timestamp,
        "max_time": time_in_words(batch.max_timestamp),
        "codec": CODEC_NAMES[codec] if codec < len(CODEC_NAMES) else f"codec {codec}",
        "producer_id": batch.producer_id if has_producer else None,
        "producer_epoch": batch.producer_epoch if has_producer else None,
        "base_sequence": batch.base_sequence if has_producer and batch.base_sequence >= 0 else None,
        "leader_epoch": batch.leader_epoch,
        "flags": " ".join(flags),
        "crc": batch.crc,
        "crc_ok": batch.computed_crc() == batch.crc,
    }


def _records(batch: BatchView, tell: Teller | None) -> list[dict[str, Any]]:
    teller = _tell_control if batch.is_control else tell
    found = []
    for record in iterate_records(batch):
        row: dict[str, Any] = {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "time": time_in_words(record.timestamp),
        }
        try:
            if teller is None:
                raise RemoteError(ErrorCode.INVALID_RECORD, "any record")
            row["type"], row["content"] = teller(record)
        except RemoteError:
            row["key"], row["value"] = text_of(record.key), text_of(record.value)
            row["headers"] = [(key, text_of(value)) for key, value in record.headers]
        found.append(row)
    return found


def text_of(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")


def plain(value: Any, kind: str = "") -> Any:
    """A message as dicts and lists, with ids as text."""
    if isinstance(value, Struct):
        return {
            each.name: plain(getattr(value, each.name), each.kind.name if each.kind else "")
            for each in fields_of(type(value))
        }
    if isinstance(value, list):
        return [plain(each, kind) for each in value]
    if isinstance(value, bytes):
        return uuid_to_text(value) if kind == "uuid" else text_of(value)
    return value


def _teller(path: Path) -> Teller | None:
    topic = path.resolve().parent.name.rpartition("-")[0]
    if topic == "__cluster_metadata" or path.name.endswith(".checkpoint"):
        return _tell_metadata
    records = _COORDINATORS.get(topic)
    return None if records is None else _tell_coordinator(records)


def _tell_metadata(record: Record) -> tuple[str, Any]:
    if record.value is None:
        raise RemoteError(ErrorCode.INVALID_RECORD, "no value")
    message, version = decode_metadata_record(record.value)
    return f"{type(message).__name__} v{version}", plain(message)


def _tell_coordinator(records: CoordinatorRecords) -> Teller:
    def tell(record: Record) -> tuple[str, Any]:
        if record.key is None:
            raise RemoteError(ErrorCode.INVALID_RECORD, "no key")
        key, value = records.decode(record.key, record.value)
        return type(key).__name__.removesuffix("Key"), {"key": plain(key), "value": plain(value)}

    return tell


def _tell_control(record: Record) -> tuple[str, Any]:
    kind = parse_control_key(record.key)
    value = record.value or b""
    if kind in (ControlType.ABORT, ControlType.COMMIT):
        # The value of a marker begins with its version, which is always 0.
        return ControlType(kind).name, plain(EndTxnMarker.decode(value, 0, _MARKER_BODY_AT))
    known = _CONTROL.get(kind)
    if known is None:
        raise RemoteError(ErrorCode.UNSUPPORTED_VERSION, f"control record of type {kind}")
    # What the quorum writes begins with its version, as a field of the message itself.
    version = int.from_bytes(value[:2], "big")
    return ControlType(kind).name, plain(known.decode(value, min(version, known.MAX_VERSION)))
