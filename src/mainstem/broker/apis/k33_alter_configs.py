"""AlterConfigs (key 33), versions 0–2: replaces the whole configuration of resources.

Deprecated since KIP-339, because two clients that each change one value undo each other's; served as Kafka serves it.
Levels of loggers cannot be changed by it.
"""

from functools import partial
from typing import TYPE_CHECKING

from mainstem.broker.config_requests import Checked, check_broker_resource, check_keys, check_type
from mainstem.broker.context import RequestContext
from mainstem.broker.forwarding import forward
from mainstem.core.controller.image import BROKER
from mainstem.protocol.errors import RemoteError
from mainstem.protocol.messages.k33_alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 33
MIN_VERSION = 0
MAX_VERSION = 2


async def handle(broker: "Broker", context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    checked = Checked(request.resources, partial(_check, broker))
    answers: list[AlterConfigsResourceResponse] | RemoteError = []
    if checked.remaining:
        remaining = AlterConfigsRequest(resources=checked.remaining, validate_only=request.validate_only)
        answer = await forward(broker, context, remaining, AlterConfigsResponse)
        answers = answer if isinstance(answer, RemoteError) else answer.responses
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, code, message in checked.results(answers)
        ]
    )


def _check(broker: "Broker", resource: AlterConfigsResource) -> bool:
    configs = resource.configs
    check_keys([each.name for each in configs], [each.name for each in configs if each.value is None])
    if resource.resource_type == BROKER:
        check_broker_resource(broker, resource, lambda _: {each.name: each.value or "" for each in configs})
    else:
        check_type(resource.resource_type)
    return False
