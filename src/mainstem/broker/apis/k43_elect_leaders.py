"""ElectLeaders (key 43), versions 0–2: the controller elects leaders (KIP-183, KIP-460).

v1 chooses between the preferred leader and any that is alive. A null list is every partition, and then only those
that needed an election are told.
"""

from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.broker.forwarding import forward
from mainstem.protocol.errors import RemoteError
from mainstem.protocol.messages.k43_elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 43
MIN_VERSION = 0
MAX_VERSION = 2

_ERROR_OF_ALL_FROM = 1


async def handle(broker: "Broker", context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    answer = await forward(broker, context, request, ElectLeadersResponse, request.timeout_ms)
    if isinstance(answer, RemoteError):
        failed = ElectLeadersResponse(
            replica_election_results=[
                ReplicaElectionResult(
                    topic=topic.topic,
                    partition_result=[
                        PartitionResult(
                            partition_id=index, error_code=answer.code, error_message=answer.message or None
                        )
                        for index in topic.partitions
                    ],
                )
                for topic in request.topic_partitions or []
            ]
        )
        if context.api_version >= _ERROR_OF_ALL_FROM:
            failed.error_code = answer.code
        return failed
    return answer
