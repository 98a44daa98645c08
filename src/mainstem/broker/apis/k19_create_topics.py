"""CreateTopics (key 19), versions 2–7: the controller creates topics.

v4 lets the broker choose partitions and replicas (-1), v5 tells the configs of what was created, v6 may be throttled,
v7 tells topic ids.
"""

from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.broker.forwarding import forward
from mainstem.protocol.errors import RemoteError
from mainstem.protocol.messages.k19_create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 19
MIN_VERSION = 2
MAX_VERSION = 7


async def handle(broker: "Broker", context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    answer = await forward(broker, context, request, CreateTopicsResponse, request.timeout_ms)
    if isinstance(answer, RemoteError):
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(name=topic.name, error_code=answer.code, error_message=answer.message or None)
                for topic in request.topics
            ]
        )
    return answer
