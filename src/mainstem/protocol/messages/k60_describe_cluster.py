"""DescribeCluster (key 60) describes the brokers or controllers of a cluster (KIP-700)."""

from __future__ import annotations

from mainstem.protocol.schema import Bool, Int8, Int16, Int32, Message, Str, Struct, field


class DescribeClusterRequest(Message, api_key=60, versions="0-2", flexible="0+"):
    include_cluster_authorized_operations: Bool = field("0+")
    endpoint_type: Int8 = field("1+", default=1)
    include_fenced_brokers: Bool = field("2+", default=False)


class DescribeClusterBroker(Struct):
    broker_id: Int32 = field("0+")
    host: Str = field("0+")
    port: Int32 = field("0+")
    rack: Str | None = field("0+", default=None)
    is_fenced: Bool = field("2+", default=False)


class DescribeClusterResponse(Message, api_key=60, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+", default=None)
    endpoint_type: Int8 = field("1+", default=1)
    cluster_id: Str = field("0+")
    controller_id: Int32 = field("0+", default=-1)
    brokers: list[DescribeClusterBroker] = field("0+")
    cluster_authorized_operations: Int32 = field("0+", default=-0x80000000)
