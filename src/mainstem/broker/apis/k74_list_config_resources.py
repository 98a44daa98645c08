"""ListConfigResources (key 74), versions 0–1: what has a configuration (KIP-1000, KIP-1142).

v0 lists subscriptions to client metrics, v1 what is asked for, or everything when nothing is.
"""

from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.core.controller.image import BROKER, CLIENT_METRICS, GROUP, TOPIC
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k74_list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 74
MIN_VERSION = 0
MAX_VERSION = 1

_BROKER_LOGGER = 8
_ORDER = (GROUP, CLIENT_METRICS, _BROKER_LOGGER, BROKER, TOPIC)


def handle(
    broker: "Broker", context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    wanted = request.resource_types if context.api_version >= 1 else [CLIENT_METRICS]
    if any(each not in _ORDER for each in wanted):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[])
    return ListConfigResourcesResponse(
        error_code=ErrorCode.NONE,
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in _ORDER
            if not wanted or kind in wanted
            for name in _names(broker, context, kind)
        ],
    )


def _names(broker: "Broker", context: RequestContext, kind: int) -> list[str]:
    if kind == TOPIC:
        return sorted(broker.image.topics)
    if kind in (BROKER, _BROKER_LOGGER):
        return [str(node_id) for node_id, _, _, _ in broker.nodes(context.listener_name)]
    return sorted(name for resource_type, name in broker.image.configs if resource_type == kind)
