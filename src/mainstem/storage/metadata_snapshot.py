"""Snapshots of the metadata log: `<end offset>-<epoch>.checkpoint` beside it, and `bootstrap.checkpoint` (KIP-630).

A file of record batches: a control batch that begins with SnapshotHeader, followed in it by KRaftVersion and
KRaftVoters where voters are in the log (KIP-853); batches of metadata records; a control batch with SnapshotFooter.
Offsets run from 0, and every batch has the epoch of the snapshot.

A snapshot is there whole or not at all: written under another name, synced, renamed, the directory synced. One without
its footer, or with a batch that does not match its CRC, is damage and no snapshot.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from mainstem.protocol.batch import BatchView, iterate_batches
from mainstem.protocol.builder import BatchBuilder
from mainstem.protocol.control import ControlType, build_control_batch, parse_control_key
from mainstem.protocol.errors import RemoteError
from mainstem.protocol.messages.control import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from mainstem.protocol.records import iterate_records
from mainstem.storage.checkpoint import MalformedFileError, parent_of, read_file
from mainstem.storage.fs import FileSystem

SUFFIX: Final = ".checkpoint"
PART_SUFFIX: Final = ".checkpoint.part"
BOOTSTRAP: Final = "bootstrap.checkpoint"
BATCH_BYTES: Final = 1 << 20
"""How much goes into one batch; Kafka reads up to 8 MB."""


class SnapshotId:
    """What a snapshot covers: everything before `end_offset`, the last of it written in `epoch`."""

    __slots__ = ("end_offset", "epoch")

    def __init__(self, end_offset: int, epoch: int) -> None:
        self.end_offset = end_offset
        self.epoch = epoch

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}{SUFFIX}"

    def __repr__(self) -> str:
        return f"SnapshotId({self.end_offset}, epoch {self.epoch})"


class Snapshot:
    """What a snapshot file holds; `values` are metadata records, framed."""

    __slots__ = ("kraft_version", "last_timestamp", "values", "voters")

    def __init__(
        self,
        values: Iterable[bytes],
        last_timestamp: int = 0,
        kraft_version: int | None = None,
        voters: VotersRecord | None = None,
    ) -> None:
        self.values = values
        self.last_timestamp = last_timestamp
        self.kraft_version = kraft_version
        self.voters = voters


def parse_file_name(name: str) -> SnapshotId | None:
    """None for any other file."""
    if not name.endswith(SUFFIX):
        return None
    end, dash, epoch = name.removesuffix(SUFFIX).partition("-")
    if not dash or len(end) != 20 or len(epoch) != 10 or not (end + epoch).isdigit():
        return None
    return SnapshotId(int(end), int(epoch))


def find_snapshots(fs: FileSystem, folder: str) -> list[SnapshotId]:
    """The snapshots in a folder, oldest first."""
    found = [parse_file_name(name) for name in fs.list_directory(folder)]
    return sorted((one for one in found if one is not None), key=lambda one: (one.end_offset, one.epoch))


def remove_unfinished(fs: FileSystem, folder: str) -> None:
    """What a crash left of snapshots that were being written."""
    for name in fs.list_directory(folder):
        if name.endswith(PART_SUFFIX):
            fs.remove(f"{folder}/{name}")


def encode_snapshot(snapshot: Snapshot, epoch: int, now_ms: int) -> Iterator[bytes]:
    """The batches of a snapshot file."""
    header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=snapshot.last_timestamp)
    first = [(int(ControlType.SNAPSHOT_HEADER), header.encode(0))]
    if snapshot.kraft_version:
        assert snapshot.voters is not None, "kraft.version 1 keeps its voters in the log"
        version = KRaftVersionRecord(version=0, kraft_version=snapshot.kraft_version)
        first.append((int(ControlType.KRAFT_VERSION), version.encode(0)))
        first.append((int(ControlType.KRAFT_VOTERS), snapshot.voters.encode(0)))
    yield build_control_batch(first, 0, now_ms, epoch)
    offset = len(first)
    builder = BatchBuilder(base_offset=offset, leader_epoch=epoch, max_bytes=BATCH_BYTES)
    for value in snapshot.values:
        if not builder.append(now_ms, None, value):
            yield builder.build()
            builder = BatchBuilder(base_offset=offset, leader_epoch=epoch, max_bytes=BATCH_BYTES)
            builder.append(now_ms, None, value)
        offset += 1
    if builder.record_count:
        yield builder.build()
    footer = [(int(ControlType.SNAPSHOT_FOOTER), SnapshotFooterRecord(version=0).encode(0))]
    yield build_control_batch(footer, offset, now_ms, epoch)


def write_snapshot(fs: FileSystem, path: str, batches: Iterable[bytes]) -> None:
    """Returns when the snapshot is there for good. Blocks."""
    part = path.removesuffix(SUFFIX) + PART_SUFFIX
    file = fs.open(part, create=True)
    try:
        file.truncate(0)
        position = 0
        for batch in batches:
            file.write_at(position, [batch])
            position += len(batch)
        file.sync()
    finally:
        file.close()
    fs.rename(part, path)
    fs.sync_directory(parent_of(path))


def read_snapshot(fs: FileSystem, path: str) -> Snapshot:
    """MalformedFileError where the file is not a whole snapshot. Blocks."""
    data = read_file(fs, path)
    try:
        return decode_snapshot(path, data)
    except RemoteError as error:
        raise MalformedFileError(path, str(error)) from error


def decode_snapshot(path: str, data: bytes) -> Snapshot:
    values: list[bytes] = []
    found = Snapshot(values)
    at = 0
    ended = began = False
    for batch in iterate_batches(data, 0, len(data)):
        batch.check(len(data))
        if ended or (not began and not batch.is_control):
            break
        if batch.is_control:
            for kind, value in _control_records(batch):
                if not began and kind != ControlType.SNAPSHOT_HEADER:
                    raise MalformedFileError(path, "does not begin with a header")
                began = True
                ended = kind == ControlType.SNAPSHOT_FOOTER
                _take_control(found, kind, value)
        else:
            for record in iterate_records(batch):
                if record.value is None:
                    raise MalformedFileError(path, f"a record without a value at offset {record.offset}")
                values.append(record.value)
        at = batch.end
    if not ended or at != len(data):
        raise MalformedFileError(path, f"not a whole snapshot: {at} of {len(data)} bytes are")
    return found


def _control_records(batch: BatchView) -> Iterator[tuple[int, bytes]]:
    for record in iterate_records(batch):
        yield parse_control_key(record.key), record.value or b""


def _take_control(found: Snapshot, kind: int, value: bytes) -> None:
    match kind:
        case ControlType.SNAPSHOT_HEADER:
            found.last_timestamp = SnapshotHeaderRecord.decode(value, 0).last_contained_log_timestamp
        case ControlType.KRAFT_VERSION:
            found.kraft_version = KRaftVersionRecord.decode(value, 0).kraft_version
        case ControlType.KRAFT_VOTERS:
            found.voters = VotersRecord.decode(value, 0)
