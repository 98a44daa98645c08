"""DescribeCluster (key 60), versions 0–2: the brokers of the cluster (KIP-700).

v1 asks for brokers or controllers; a broker knows brokers (KIP-919). v2 asks for those that are fenced, too.
"""

from typing import TYPE_CHECKING

from mainstem.broker.authorized import CLUSTER_OPERATIONS
from mainstem.broker.context import RequestContext
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k60_describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 60
MIN_VERSION = 0
MAX_VERSION = 2

_BROKERS = 1
_CONTROLLERS = 2


def handle(broker: "Broker", context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type == _CONTROLLERS:
        return _failed(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is a broker, and controllers were asked for")
    if request.endpoint_type != _BROKERS:
        return _failed(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"there is no endpoint type {request.endpoint_type}")
    answer = DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=[
            DescribeClusterBroker(broker_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in broker.nodes(context.listener_name)
        ],
    )
    if request.include_fenced_brokers:
        answer.brokers += _fenced(broker, context.listener_name)
    if request.include_cluster_authorized_operations:
        answer.cluster_authorized_operations = CLUSTER_OPERATIONS
    return answer


def _fenced(broker: "Broker", listener_name: str) -> list[DescribeClusterBroker]:
    return [
        DescribeClusterBroker(
            broker_id=state.broker_id, host=endpoint.host, port=endpoint.port, rack=state.rack, is_fenced=True
        )
        for state in broker.image.brokers.values()
        if state.fenced
        for endpoint in state.end_points
        if endpoint.name == listener_name
    ]


def _failed(code: ErrorCode, message: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code, error_message=message, cluster_id="", brokers=[])
