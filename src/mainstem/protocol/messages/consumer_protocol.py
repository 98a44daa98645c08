"""What consumers of a classic group tell each other through JoinGroup and SyncGroup: never flexible.

Each is preceded by its version (int16). A reader of a newer version than it knows reads it as the newest it knows.
"""

from __future__ import annotations

from mainstem.protocol.schema import Bytes, Int32, Message, Str, Struct, field


class TopicPartition(Struct):
    topic: Str = field("1+")
    partitions: list[Int32] = field("1+")


class ConsumerProtocolSubscription(Message, versions="0-3", flexible="none"):
    topics: list[Str] = field("0+")
    user_data: Bytes | None = field("0+", default=None)
    owned_partitions: list[TopicPartition] = field("1+", default_factory=list, ignorable=True)
    generation_id: Int32 = field("2+", default=-1, ignorable=True)
    rack_id: Str | None = field("3+", default=None, ignorable=True)


class AssignedTopicPartition(Struct):
    topic: Str = field("0+")
    partitions: list[Int32] = field("0+")


class ConsumerProtocolAssignment(Message, versions="0-3", flexible="none"):
    assigned_partitions: list[AssignedTopicPartition] = field("0+")
    user_data: Bytes | None = field("0+", default=None)
