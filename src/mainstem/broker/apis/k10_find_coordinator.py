"""FindCoordinator (key 10), versions 0–6: who coordinates a group or a transactional id.

v1 asks by kind, v4 for several keys at once. The coordinator of a key leads one partition of an internal topic, which
is created when it is first asked for.
"""

from typing import TYPE_CHECKING, Final

from mainstem.broker.context import RequestContext
from mainstem.broker.topic_creation import GROUP_OFFSETS, TRANSACTION_STATE
from mainstem.core.controller.states import NO_LEADER
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.java import coordinator_partition
from mainstem.protocol.messages.k10_find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 10
MIN_VERSION = 0
MAX_VERSION = 6

_BATCHED_FROM = 4
_TOPICS: Final = {0: GROUP_OFFSETS, 1: TRANSACTION_STATE}
"""The internal topic of each kind of key that is served: groups, transactional ids."""


async def handle(broker: "Broker", context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if context.api_version >= _BATCHED_FROM:
        return FindCoordinatorResponse(
            coordinators=[await _find(broker, context, request.key_type, key) for key in request.coordinator_keys]
        )
    found = await _find(broker, context, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


async def _find(broker: "Broker", context: RequestContext, key_type: int, key: str) -> Coordinator:
    topic_name = _TOPICS.get(key_type)
    if topic_name is None:
        return _failed(key, ErrorCode.INVALID_REQUEST, f"coordinators of key type {key_type} are not served")
    try:
        code = await broker.topic_creation.ensure(topic_name)
    except RemoteError as error:  # the controller did not answer, say
        code = error.code
    topic = broker.image.topics.get(topic_name)
    if code is not ErrorCode.NONE or topic is None:
        return _failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic_name} could not be created: {code.name}")
    leader = topic.partitions[coordinator_partition(key, len(topic.partitions))].leader
    for node_id, host, port, _ in broker.nodes(context.listener_name):
        if node_id == leader:
            return Coordinator(
                key=key, node_id=node_id, host=host, port=port, error_code=ErrorCode.NONE, error_message=""
            )
    reason = "it has no leader" if leader == NO_LEADER else f"its leader {leader} is not reachable"
    return _failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic_name}: {reason}")


def _failed(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)
