"""Which version of a metadata record is written, by what the cluster has agreed on.

The finalized `metadata.version` says what every node can read (KIP-584); a record is written in the newest version it
allows. Levels are Kafka's: 7 is 3.3-IV3, the oldest that Kafka 4 opens, 30 is 4.3-IV0, what a fresh directory gets.
"""

from typing import Final

from mainstem.protocol.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from mainstem.protocol.messages.record_framing import encode_metadata_record
from mainstem.protocol.schema import Message

METADATA_VERSION: Final = "metadata.version"
METADATA_VERSION_MIN: Final = 7
METADATA_VERSION_LATEST: Final = 30

_TRANSACTIONS_FROM: Final = 13
_CONTROLLER_REGISTRATION_FROM: Final = 15
_DIRECTORIES_FROM: Final = 17
_ELR_FROM: Final = 23
_CORDONED_DIRECTORIES_FROM: Final = 30

RELEASES: Final[dict[int, str]] = {
    7: "3.3-IV3", 8: "3.4-IV0", 9: "3.5-IV0", 10: "3.5-IV1", 11: "3.5-IV2", 12: "3.6-IV0", 13: "3.6-IV1",
    14: "3.6-IV2", 15: "3.7-IV0", 16: "3.7-IV1", 17: "3.7-IV2", 18: "3.7-IV3", 19: "3.7-IV4", 20: "3.8-IV0",
    21: "3.9-IV0", 22: "4.0-IV0", 23: "4.0-IV1", 24: "4.0-IV2", 25: "4.0-IV3", 26: "4.1-IV0", 27: "4.1-IV1",
    28: "4.2-IV0", 29: "4.2-IV1", 30: "4.3-IV0",
}  # fmt: skip


def has_transactions(metadata_version: int) -> bool:
    return metadata_version >= _TRANSACTIONS_FROM


def has_controller_registration(metadata_version: int) -> bool:
    return metadata_version >= _CONTROLLER_REGISTRATION_FROM


def has_directories(metadata_version: int) -> bool:
    return metadata_version >= _DIRECTORIES_FROM


def has_cordoned_directories(metadata_version: int) -> bool:
    return metadata_version >= _CORDONED_DIRECTORIES_FROM


def partition_version(metadata_version: int) -> int:
    """Of PartitionRecord and PartitionChangeRecord: directories since 1, eligible leader replicas since 2."""
    return 2 if metadata_version >= _ELR_FROM else 1 if metadata_version >= _DIRECTORIES_FROM else 0


def register_broker_version(metadata_version: int) -> int:
    if metadata_version >= _CORDONED_DIRECTORIES_FROM:
        return 4
    if metadata_version >= _DIRECTORIES_FROM:
        return 3
    return 2 if metadata_version >= 8 else 1


def record_version(record: Message, metadata_version: int) -> int:
    """The version to write `record` in."""
    match record:
        case PartitionRecord() | PartitionChangeRecord():
            return partition_version(metadata_version)
        case RegisterBrokerRecord():
            return register_broker_version(metadata_version)
        case BrokerRegistrationChangeRecord():
            # As Kafka does: the oldest version that holds what is said.
            if record.cordoned_log_dirs is not None:
                return 3
            if record.log_dirs:
                return 2
            return 1 if record.in_controlled_shutdown else 0
        case _:
            return 0


def encode_record(record: Message, metadata_version: int) -> bytes:
    """The value of a record of the metadata log."""
    return encode_metadata_record(record, record_version(record, metadata_version))
