"""ElectLeaders (key 43) elects leaders: the preferred ones, or any that is alive."""

from __future__ import annotations

from mainstem.protocol.schema import Int8, Int16, Int32, Message, Str, Struct, field


class TopicPartitions(Struct):
    topic: Str = field("0+")
    partitions: list[Int32] = field("0+")


class ElectLeadersRequest(Message, api_key=43, versions="0-2", flexible="2+"):
    election_type: Int8 = field("1+", default=0)
    topic_partitions: list[TopicPartitions] | None = field("0+")
    timeout_ms: Int32 = field("0+", default=60000)


class PartitionResult(Struct):
    partition_id: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+")


class ReplicaElectionResult(Struct):
    topic: Str = field("0+")
    partition_result: list[PartitionResult] = field("0+")


class ElectLeadersResponse(Message, api_key=43, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("1+", default=0)
    replica_election_results: list[ReplicaElectionResult] = field("0+")
