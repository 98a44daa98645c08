"""DescribeQuorum (key 55), versions 0–2: the controller tells the state of the metadata quorum (KIP-595).

v1 tells when each replica last fetched and was caught up (KIP-836), v2 directory ids and endpoints (KIP-853).
"""

from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.broker.forwarding import forward
from mainstem.protocol.errors import RemoteError
from mainstem.protocol.messages.k55_describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 55
MIN_VERSION = 0
MAX_VERSION = 2


async def handle(broker: "Broker", context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    answer = await forward(broker, context, request, DescribeQuorumResponse)
    if isinstance(answer, RemoteError):
        return DescribeQuorumResponse(error_code=answer.code, error_message=answer.message, topics=[])
    return answer
