"""FetchSnapshot (key 59) reads a part of a snapshot of the metadata (KIP-630)."""

from __future__ import annotations

from mainstem.protocol.schema import ZERO_UUID, Int16, Int32, Int64, Message, Records, Str, Struct, Uint16, Uuid, field


class SnapshotId(Struct):
    end_offset: Int64 = field("0+")
    epoch: Int32 = field("0+")


class PartitionSnapshot(Struct):
    partition: Int32 = field("0+")
    current_leader_epoch: Int32 = field("0+")
    snapshot_id: SnapshotId = field("0+")
    position: Int64 = field("0+")
    replica_directory_id: Uuid = field("1+", default=ZERO_UUID, tag=0, ignorable=True)


class TopicSnapshot(Struct):
    name: Str = field("0+")
    partitions: list[PartitionSnapshot] = field("0+")


class FetchSnapshotRequest(Message, api_key=59, versions="0-1", flexible="0+"):
    cluster_id: Str | None = field("0+", default=None, tag=0)
    replica_id: Int32 = field("0+", default=-1)
    max_bytes: Int32 = field("0+", default=0x7FFFFFFF)
    topics: list[TopicSnapshot] = field("0+")


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = field("0+", default=0)
    leader_epoch: Int32 = field("0+", default=0)


class ResponsePartitionSnapshot(Struct):
    index: Int32 = field("0+")
    error_code: Int16 = field("0+")
    snapshot_id: SnapshotId = field("0+")
    current_leader: LeaderIdAndEpoch = field("0+", default_factory=LeaderIdAndEpoch, tag=0)
    size: Int64 = field("0+")
    position: Int64 = field("0+")
    unaligned_records: Records = field("0+")


class ResponseTopicSnapshot(Struct):
    name: Str = field("0+")
    partitions: list[ResponsePartitionSnapshot] = field("0+")


class NodeEndpoint(Struct):
    node_id: Int32 = field("1+")
    host: Str = field("1+")
    port: Uint16 = field("1+")


class FetchSnapshotResponse(Message, api_key=59, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = field("0+", default=0, ignorable=True)
    error_code: Int16 = field("0+")
    topics: list[ResponseTopicSnapshot] = field("0+")
    node_endpoints: list[NodeEndpoint] = field("1+", default_factory=list, tag=0)
