"""ListPartitionReassignments (key 46) lists the reassignments under way (KIP-455)."""

from __future__ import annotations

from mainstem.protocol.schema import Int16, Int32, Message, Str, Struct, field


class ListPartitionReassignmentsTopics(Struct):
    name: Str = field("0+")
    partition_indexes: list[Int32] = field("0+")


class ListPartitionReassignmentsRequest(Message, api_key=46, versions="0", flexible="0+"):
    timeout_ms: Int32 = field("0+", default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = field("0+", default=None)


class OngoingPartitionReassignment(Struct):
    partition_index: Int32 = field("0+")
    replicas: list[Int32] = field("0+")
    adding_replicas: list[Int32] = field("0+")
    removing_replicas: list[Int32] = field("0+")


class OngoingTopicReassignment(Struct):
    name: Str = field("0+")
    partitions: list[OngoingPartitionReassignment] = field("0+")


class ListPartitionReassignmentsResponse(Message, api_key=46, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+")
    topics: list[OngoingTopicReassignment] = field("0+")
