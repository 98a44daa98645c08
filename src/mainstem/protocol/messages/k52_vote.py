"""Vote (key 52) asks for a vote in an election of the metadata quorum (KIP-595); pre-votes since v2 (KIP-996)."""

from __future__ import annotations

from mainstem.protocol.schema import ZERO_UUID, Bool, Int16, Int32, Int64, Message, Str, Struct, Uint16, Uuid, field


class PartitionData(Struct):
    partition_index: Int32 = field("0+")
    replica_epoch: Int32 = field("0+")
    replica_id: Int32 = field("0+")
    replica_directory_id: Uuid = field("1+", default=ZERO_UUID, ignorable=True)
    voter_directory_id: Uuid = field("1+", default=ZERO_UUID, ignorable=True)
    last_offset_epoch: Int32 = field("0+")
    last_offset: Int64 = field("0+")
    pre_vote: Bool = field("2+", default=False)


class TopicData(Struct):
    topic_name: Str = field("0+")
    partitions: list[PartitionData] = field("0+")


class VoteRequest(Message, api_key=52, versions="0-2", flexible="0+"):
    cluster_id: Str | None = field("0+", default=None)
    voter_id: Int32 = field("1+", default=-1, ignorable=True)
    topics: list[TopicData] = field("0+")


class ResponsePartitionData(Struct):
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")
    leader_id: Int32 = field("0+")
    leader_epoch: Int32 = field("0+")
    vote_granted: Bool = field("0+")


class ResponseTopicData(Struct):
    topic_name: Str = field("0+")
    partitions: list[ResponsePartitionData] = field("0+")


class NodeEndpoint(Struct):
    node_id: Int32 = field("1+")
    host: Str = field("1+")
    port: Uint16 = field("1+")


class VoteResponse(Message, api_key=52, versions="0-2", flexible="0+"):
    error_code: Int16 = field("0+")
    topics: list[ResponseTopicData] = field("0+")
    node_endpoints: list[NodeEndpoint] = field("1+", default_factory=list, tag=0)
