"""BeginQuorumEpoch (key 53) announces a new leader of the metadata quorum (KIP-595)."""

from __future__ import annotations

from mainstem.protocol.schema import ZERO_UUID, Int16, Int32, Message, Str, Struct, Uint16, Uuid, field


class PartitionData(Struct):
    partition_index: Int32 = field("0+")
    voter_directory_id: Uuid = field("1+", default=ZERO_UUID, ignorable=True)
    leader_id: Int32 = field("0+")
    leader_epoch: Int32 = field("0+")


class TopicData(Struct):
    topic_name: Str = field("0+")
    partitions: list[PartitionData] = field("0+")


class LeaderEndpoint(Struct):
    name: Str = field("1+")
    host: Str = field("1+")
    port: Uint16 = field("1+")


class BeginQuorumEpochRequest(Message, api_key=53, versions="0-1", flexible="1+"):
    cluster_id: Str | None = field("0+", default=None)
    voter_id: Int32 = field("1+", default=-1, ignorable=True)
    topics: list[TopicData] = field("0+")
    leader_endpoints: list[LeaderEndpoint] = field("1+", default_factory=list, ignorable=True)


class ResponsePartitionData(Struct):
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")
    leader_id: Int32 = field("0+")
    leader_epoch: Int32 = field("0+")


class ResponseTopicData(Struct):
    topic_name: Str = field("0+")
    partitions: list[ResponsePartitionData] = field("0+")


class NodeEndpoint(Struct):
    node_id: Int32 = field("1+")
    host: Str = field("1+")
    port: Uint16 = field("1+")


class BeginQuorumEpochResponse(Message, api_key=53, versions="0-1", flexible="1+"):
    error_code: Int16 = field("0+")
    topics: list[ResponseTopicData] = field("0+")
    node_endpoints: list[NodeEndpoint] = field("1+", default_factory=list, tag=0)
