"""IncrementalAlterConfigs (key 44), versions 0–1: changes single values of configurations (KIP-339).

A value is set, deleted, or, where it is a list, added to or taken from. Levels of this broker's loggers are changed
here (KIP-412), everything else by the controller.
"""

from functools import partial
from typing import TYPE_CHECKING

from mainstem.broker import loggers
from mainstem.broker.config_changes import DELETE, apply_operations
from mainstem.broker.config_requests import (
    BROKER_LOGGER,
    Checked,
    check_broker_resource,
    check_keys,
    check_this_node,
    check_type,
)
from mainstem.broker.context import RequestContext
from mainstem.broker.forwarding import forward
from mainstem.core.controller.image import BROKER
from mainstem.protocol.errors import RemoteError
from mainstem.protocol.messages.k44_incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 44
MIN_VERSION = 0
MAX_VERSION = 1


async def handle(
    broker: "Broker", context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    checked = Checked(request.resources, partial(_check, broker, request.validate_only))
    answers: list[AlterConfigsResourceResponse] | RemoteError = []
    if checked.remaining:
        remaining = IncrementalAlterConfigsRequest(resources=checked.remaining, validate_only=request.validate_only)
        answer = await forward(broker, context, remaining, IncrementalAlterConfigsResponse)
        answers = answer if isinstance(answer, RemoteError) else answer.responses
    return IncrementalAlterConfigsResponse(
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


def _check(broker: "Broker", validate_only: bool, resource: AlterConfigsResource) -> bool:
    configs = resource.configs
    null_names = [each.name for each in configs if each.config_operation != DELETE and each.value is None]
    check_keys([each.name for each in configs], null_names)
    operations = [(each.name, each.config_operation, each.value) for each in configs]
    if resource.resource_type == BROKER_LOGGER:
        check_this_node(broker, resource.resource_name)
        loggers.check(operations)
        if not validate_only:
            loggers.change(operations)
        return True
    if resource.resource_type == BROKER:
        check_broker_resource(broker, resource, lambda stored: apply_operations(stored, operations))
    else:
        check_type(resource.resource_type)
    return False
