"""The names of partition folders in a log directory, as Kafka gives them.

`orders-3` holds a partition. `orders-3.<32 hex digits>-delete` waits for its removal, `…-stray` belongs to no partition
the metadata knows, `…-future` is a copy under way from another directory (KIP-113). A topic's name may itself contain
dots and dashes, so names are read from the right. Topic names of up to 249 characters are cut where a suffix would
make the folder's name longer than a file system takes.
"""

import re
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Final

METADATA_FOLDER: Final = "__cluster_metadata-0"
"""The quorum's own log: it lives in a log directory but is opened by the quorum, never by what opens partitions."""

COPY: Final = "copy"
"""A file of ours in the folder of a copy that has not taken its partition's place. Kafka takes no notice of it."""

_NAME_MAX: Final = 255
_PARTITION_MAX: Final = 0x7FFFFFFF
_FOLDER: Final = re.compile(r"([a-zA-Z0-9._-]+)-(0|[1-9][0-9]{0,9})(?:\.([^.]+)-(delete|stray|future))?")


class FolderKind(Enum):
    PARTITION = "partition"
    DELETE = "delete"
    STRAY = "stray"
    FUTURE = "future"


@dataclass(frozen=True, slots=True)
class PartitionFolder:
    kind: FolderKind
    topic: str
    partition: int


def folder_name(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def deleted_folder_name(topic: str, partition: int, rng: Random) -> str:
    return _with_suffix(topic, partition, FolderKind.DELETE, rng)


def stray_folder_name(topic: str, partition: int, rng: Random) -> str:
    return _with_suffix(topic, partition, FolderKind.STRAY, rng)


def future_folder_name(topic: str, partition: int, rng: Random) -> str | None:
    """None where the topic's name is too long for it: a future folder must tell the whole name."""
    name = f"{topic}-{partition}.{rng.randbytes(16).hex()}-{FolderKind.FUTURE.value}"
    return name if len(name) <= _NAME_MAX else None


def _with_suffix(topic: str, partition: int, kind: FolderKind, rng: Random) -> str:
    suffix = f"-{partition}.{rng.randbytes(16).hex()}-{kind.value}"
    return topic[: _NAME_MAX - len(suffix)] + suffix


def parse_folder_name(name: str) -> PartitionFolder | None:
    """None where the name is none of a partition's, the metadata log's included."""
    match = _FOLDER.fullmatch(name)
    if match is None or name == METADATA_FOLDER or int(match[2]) > _PARTITION_MAX:
        return None
    kind = FolderKind(match[4]) if match[4] else FolderKind.PARTITION
    return PartitionFolder(kind, match[1], int(match[2]))
