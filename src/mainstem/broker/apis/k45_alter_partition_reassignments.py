"""AlterPartitionReassignments (key 45), versions 0–1: the controller moves partitions to other brokers (KIP-455).

v1 may insist on the replication factor that there is (KIP-860).
"""

from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.broker.forwarding import forward
from mainstem.protocol.errors import RemoteError
from mainstem.protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 45
MIN_VERSION = 0
MAX_VERSION = 1


async def handle(
    broker: "Broker", context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    answer = await forward(broker, context, request, AlterPartitionReassignmentsResponse, request.timeout_ms)
    if isinstance(answer, RemoteError):
        return AlterPartitionReassignmentsResponse(
            error_code=answer.code,
            error_message=answer.message or None,
            responses=[
                ReassignableTopicResponse(
                    name=topic.name,
                    partitions=[
                        ReassignablePartitionResponse(
                            partition_index=partition.partition_index,
                            error_code=answer.code,
                            error_message=answer.message or None,
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )
    return answer
