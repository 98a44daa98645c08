"""The records that a group coordinator writes, in the versions that Kafka 4.3 writes them."""

from __future__ import annotations

from typing import Final

from mainstem.core.group.effects import LogRecord
from mainstem.protocol.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from mainstem.protocol.messages.record_framing import GROUP_RECORDS

GROUP_METADATA_VERSION: Final = 3
OFFSET_COMMIT_VERSION: Final = 4
OFFSET_COMMIT_VERSION_WITH_EXPIRY: Final = 1
"""The only version that has an expiry of its own, which OffsetCommit 2 to 4 could ask for."""
NO_EXPIRY: Final = -1


def offset_commit(group: str, topic: str, partition: int, value: OffsetCommitValue) -> LogRecord:
    version = OFFSET_COMMIT_VERSION if value.expire_timestamp == NO_EXPIRY else OFFSET_COMMIT_VERSION_WITH_EXPIRY
    return LogRecord(_offset_key(group, topic, partition), GROUP_RECORDS.encode_value(value, version))


def offset_tombstone(group: str, topic: str, partition: int) -> LogRecord:
    return LogRecord(_offset_key(group, topic, partition), None)


def group_metadata(group: str, value: GroupMetadataValue) -> LogRecord:
    return LogRecord(_group_key(group), GROUP_RECORDS.encode_value(value, GROUP_METADATA_VERSION))


def group_tombstone(group: str) -> LogRecord:
    return LogRecord(_group_key(group), None)


def _offset_key(group: str, topic: str, partition: int) -> bytes:
    return GROUP_RECORDS.encode_key(OffsetCommitKey(group=group, topic=topic, partition=partition))


def _group_key(group: str) -> bytes:
    return GROUP_RECORDS.encode_key(GroupMetadataKey(group=group))
