"""CreatePartitions (key 37), versions 0–3: the controller adds partitions to topics. v3 may be throttled."""

from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.broker.forwarding import forward
from mainstem.protocol.errors import RemoteError
from mainstem.protocol.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 37
MIN_VERSION = 0
MAX_VERSION = 3


async def handle(
    broker: "Broker", context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    answer = await forward(broker, context, request, CreatePartitionsResponse, request.timeout_ms)
    if isinstance(answer, RemoteError):
        return CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(
                    name=topic.name, error_code=answer.code, error_message=answer.message or None
                )
                for topic in request.topics
            ]
        )
    return answer
