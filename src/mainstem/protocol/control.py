"""Control batches: what brokers and the quorum write among the records, never shown to consumers.

A control record's key is a version and a type, both int16; its value depends on the type. A reader looks at no more of
a key than it knows, so that newer versions stay readable. The marker that ends a transaction (KIP-98) is a batch of one
record that is transactional too (attributes 0x30), with its producer's id and epoch and no sequence. The other types
belong to the metadata quorum (KIP-595, KIP-630, KIP-853); their values are messages declared with the others.
"""

from enum import IntEnum
from typing import Final

from librt.strings import BytesWriter, read_i16_be, read_i32_be, write_i16_be, write_i32_be
from mypy_extensions import i64

from mainstem.protocol.batch import BatchView
from mainstem.protocol.builder import BatchBuilder
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.records import Record, iterate_records

KEY_BYTES: Final = 4
MARKER_BYTES: Final = 6


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndMarker:
    """The end of a producer's transaction on one partition."""

    __slots__ = ("commit", "coordinator_epoch", "offset", "producer_epoch", "producer_id", "timestamp")

    def __init__(
        self,
        producer_id: i64,
        producer_epoch: i64,
        commit: bool,
        coordinator_epoch: i64,
        offset: i64 = 0,
        timestamp: i64 = -1,
    ) -> None:
        self.producer_id: i64 = producer_id
        self.producer_epoch: i64 = producer_epoch
        self.commit = commit
        self.coordinator_epoch: i64 = coordinator_epoch
        self.offset: i64 = offset
        self.timestamp: i64 = timestamp


def control_key(kind: int, version: int = 0) -> bytes:
    writer = BytesWriter()
    write_i16_be(writer, version)
    write_i16_be(writer, kind)
    return writer.getvalue()


def parse_control_key(key: bytes | None) -> int:
    """The type a control record's key names; it may be one that `ControlType` does not know yet."""
    if key is None or len(key) < KEY_BYTES:
        raise RemoteError(ErrorCode.INVALID_RECORD, f"control record with key {key!r}: a version and a type, 4 bytes")
    version: i64 = i64(read_i16_be(key, 0))
    if version < 0:
        raise RemoteError(ErrorCode.INVALID_RECORD, f"control record with key version {version}")
    return int(read_i16_be(key, 2))


def control_record(batch: BatchView) -> tuple[int, Record]:
    """The type and the record of a control batch that holds one, as markers do."""
    if not batch.is_control or batch.record_count != 1:
        raise RemoteError(ErrorCode.INVALID_RECORD, f"batch at offset {batch.base_offset} is not one control record")
    record = next(iter(iterate_records(batch)))
    return parse_control_key(record.key), record


def build_control_batch(
    records: list[tuple[int, bytes]], base_offset: i64, timestamp: i64, leader_epoch: i64, version: int = 0
) -> bytes:
    """A batch of control records of the quorum, (type, value) each. Quorum batches carry no producer."""
    builder = BatchBuilder(base_offset=base_offset, leader_epoch=leader_epoch, control=True)
    for kind, value in records:
        builder.append(timestamp, control_key(kind, version), value)
    return builder.build()


def build_end_marker(marker: EndMarker, leader_epoch: i64 = -1) -> bytes:
    """The batch that ends a transaction, at the marker's offset and timestamp."""
    value = BytesWriter()
    write_i16_be(value, 0)
    write_i32_be(value, marker.coordinator_epoch)  # type: ignore[arg-type]
    builder = BatchBuilder(
        base_offset=marker.offset,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transactional=True,
        control=True,
        leader_epoch=leader_epoch,
    )
    key = control_key(ControlType.COMMIT if marker.commit else ControlType.ABORT)
    builder.append(marker.timestamp, key, value.getvalue())
    return builder.build()


def parse_end_marker(batch: BatchView) -> EndMarker | None:
    """The marker in a control batch; None if the batch is another kind of control batch, or what compaction leaves in
    a marker's place: an empty one."""
    if batch.is_control and batch.record_count == 0:
        return None
    kind, record = control_record(batch)
    if kind != ControlType.ABORT and kind != ControlType.COMMIT:
        return None
    value = record.value
    if value is None or len(value) < MARKER_BYTES or read_i16_be(value, 0) < 0:
        raise RemoteError(ErrorCode.INVALID_RECORD, f"transaction marker with value {value!r}")
    return EndMarker(
        batch.producer_id,
        batch.producer_epoch,
        kind == ControlType.COMMIT,
        i64(read_i32_be(value, 2)),
        record.offset,
        record.timestamp,
    )
