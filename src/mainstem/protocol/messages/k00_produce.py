"""Produce (key 0) appends record batches to partitions.

Topics are named up to v12 and carry their id from v13 (KIP-516). The hot path reads and writes it by hand in
`protocol.produce`.
"""

from __future__ import annotations

from mainstem.protocol.schema import ZERO_UUID, Int16, Int32, Int64, Message, Records, Str, Struct, Uuid, field


class PartitionProduceData(Struct):
    index: Int32 = field("0+")
    records: Records | None = field("0+")


class TopicProduceData(Struct):
    name: Str = field("0-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
    partition_data: list[PartitionProduceData] = field("0+")


class ProduceRequest(Message, api_key=0, versions="3-13", flexible="9+"):
    transactional_id: Str | None = field("3+", default=None)
    acks: Int16 = field("0+")
    timeout_ms: Int32 = field("0+")
    topic_data: list[TopicProduceData] = field("0+")


class BatchIndexAndErrorMessage(Struct):
    batch_index: Int32 = field("8+")
    batch_index_error_message: Str | None = field("8+", default=None)


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = field("10+", default=-1)
    leader_epoch: Int32 = field("10+", default=-1)


class PartitionProduceResponse(Struct):
    index: Int32 = field("0+")
    error_code: Int16 = field("0+")
    base_offset: Int64 = field("0+")
    log_append_time_ms: Int64 = field("2+", default=-1, ignorable=True)
    log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = field("8+", default_factory=list, ignorable=True)
    error_message: Str | None = field("8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = field("10+", default_factory=LeaderIdAndEpoch, tag=0)


class TopicProduceResponse(Struct):
    name: Str = field("0-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = field("0+")


class NodeEndpoint(Struct):
    node_id: Int32 = field("10+")
    host: Str = field("10+")
    port: Int32 = field("10+")
    rack: Str | None = field("10+", default=None)


class ProduceResponse(Message, api_key=0, versions="3-13", flexible="9+"):
    responses: list[TopicProduceResponse] = field("0+")
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    node_endpoints: list[NodeEndpoint] = field("10+", default_factory=list, tag=0)
