"""ListPartitionReassignments (key 46), version 0: the controller lists the moves under way (KIP-455)."""

from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.broker.forwarding import forward
from mainstem.protocol.errors import RemoteError
from mainstem.protocol.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 46
MIN_VERSION = 0
MAX_VERSION = 0


async def handle(
    broker: "Broker", context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    answer = await forward(broker, context, request, ListPartitionReassignmentsResponse)
    if isinstance(answer, RemoteError):
        return ListPartitionReassignmentsResponse(
            error_code=answer.code, error_message=answer.message or None, topics=[]
        )
    return answer
