"""The records that a group coordinator writes, in the versions that Kafka 4.3 writes them."""

from __future__ import annotations

import struct
from struct import Struct
from typing import Final

from mainstem.core.coordinator.effects import LogRecord
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from mainstem.protocol.messages.record_framing import GROUP_RECORDS
from mainstem.protocol.primitives import UUID_BYTES, ZERO_UUID

GROUP_METADATA_VERSION: Final = 3
OFFSET_COMMIT_VERSION: Final = 4
OFFSET_COMMIT_VERSION_WITH_EXPIRY: Final = 1
"""The only version that has an expiry of its own, which OffsetCommit 2 to 4 could ask for."""
NO_EXPIRY: Final = -1


_KEY_HEAD: Final = Struct(">hh")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_VALUE_HEAD: Final = Struct(">hqi")
_INT64: Final = Struct(">q")
_NO_TAGS: Final = b"\x00"
_TOPIC_ID_TAG: Final = b"\x01\x00\x10"
"""One tag, number 0, of 16 bytes."""
_SHORT: Final = 127
"""Lengths whose varint is one byte."""


def offset_commit(group: str, topic: str, partition: int, value: OffsetCommitValue) -> LogRecord:
    """A committed offset. Written by the dozen with each commit, so by hand where it is of the usual shape."""
    key = offset_key(group, topic, partition)
    if value.expire_timestamp != NO_EXPIRY:
        return LogRecord(key, GROUP_RECORDS.encode_value(value, OFFSET_COMMIT_VERSION_WITH_EXPIRY))
    metadata = value.metadata.encode()
    if len(metadata) >= _SHORT:
        return LogRecord(key, GROUP_RECORDS.encode_value(value, OFFSET_COMMIT_VERSION))
    return LogRecord(
        key,
        b"".join(
            (
                _VALUE_HEAD.pack(OFFSET_COMMIT_VERSION, value.offset, value.leader_epoch),
                bytes((len(metadata) + 1,)),
                metadata,
                _INT64.pack(value.commit_timestamp),
                _NO_TAGS if value.topic_id == ZERO_UUID else _TOPIC_ID_TAG + value.topic_id,
            )
        ),
    )


def offset_tombstone(group: str, topic: str, partition: int) -> LogRecord:
    return LogRecord(offset_key(group, topic, partition), None)


def offset_key(group: str, topic: str, partition: int) -> bytes:
    group_bytes, topic_bytes = group.encode(), topic.encode()
    return b"".join(
        (
            _KEY_HEAD.pack(OffsetCommitKey.API_KEY, len(group_bytes)),
            group_bytes,
            _INT16.pack(len(topic_bytes)),
            topic_bytes,
            _INT32.pack(partition),
        )
    )


def read_offset_key(key: bytes) -> tuple[str, str, int]:
    """Group, topic and partition of an offset's key; RemoteError when it is broken."""
    try:
        topic_at = _KEY_HEAD.size + _KEY_HEAD.unpack_from(key)[1]
        partition_at = topic_at + _INT16.size + _INT16.unpack_from(key, topic_at)[0]
        (partition,) = _INT32.unpack_from(key, partition_at)
        if not _KEY_HEAD.size <= topic_at <= partition_at - _INT16.size:
            raise RemoteError(ErrorCode.CORRUPT_MESSAGE, "an offset's key with a negative length")
        return key[_KEY_HEAD.size : topic_at].decode(), key[topic_at + _INT16.size : partition_at].decode(), partition
    except (struct.error, UnicodeDecodeError):
        raise RemoteError(ErrorCode.CORRUPT_MESSAGE, f"a key of {len(key)} bytes that is not an offset's") from None


def read_offset_value(value: bytes) -> OffsetCommitValue:
    """A committed offset of any version; RemoteError when it is broken."""
    if len(value) > _VALUE_HEAD.size and value[:2] == b"\x00\x04" and 1 <= value[_VALUE_HEAD.size] <= _SHORT:
        _, offset, leader_epoch = _VALUE_HEAD.unpack_from(value)
        metadata_at = _VALUE_HEAD.size + 1
        commit_at = metadata_at + value[_VALUE_HEAD.size] - 1
        tags_at = commit_at + _INT64.size
        tags = value[tags_at:]
        has_id = len(tags) == len(_TOPIC_ID_TAG) + UUID_BYTES and tags.startswith(_TOPIC_ID_TAG)
        if has_id or tags == _NO_TAGS:
            try:
                metadata = value[metadata_at:commit_at].decode()
            except UnicodeDecodeError:
                raise RemoteError(ErrorCode.CORRUPT_MESSAGE, "the metadata of an offset is not UTF-8") from None
            return OffsetCommitValue(
                offset=offset,
                leader_epoch=leader_epoch,
                metadata=metadata,
                commit_timestamp=_INT64.unpack_from(value, commit_at)[0],
                topic_id=tags[len(_TOPIC_ID_TAG) :] if has_id else ZERO_UUID,
            )
    decoded = GROUP_RECORDS.decode_value(OffsetCommitKey.API_KEY, value)
    assert isinstance(decoded, OffsetCommitValue)
    return decoded


def group_metadata(group: str, value: GroupMetadataValue) -> LogRecord:
    return LogRecord(_group_key(group), GROUP_RECORDS.encode_value(value, GROUP_METADATA_VERSION))


def group_tombstone(group: str) -> LogRecord:
    return LogRecord(_group_key(group), None)


def _group_key(group: str) -> bytes:
    return GROUP_RECORDS.encode_key(GroupMetadataKey(group=group))
