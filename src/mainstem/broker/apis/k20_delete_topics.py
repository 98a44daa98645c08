"""DeleteTopics (key 20), versions 1–6: the controller deletes topics.

v5 tells error messages, v6 names topics by name or id.
"""

from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.broker.forwarding import forward
from mainstem.protocol.errors import RemoteError
from mainstem.protocol.messages.k20_delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from mainstem.protocol.primitives import ZERO_UUID

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 20
MIN_VERSION = 1
MAX_VERSION = 6


async def handle(broker: "Broker", context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    answer = await forward(broker, context, request, DeleteTopicsResponse, request.timeout_ms)
    if isinstance(answer, RemoteError):
        wanted: list[tuple[str | None, bytes]] = [(name, ZERO_UUID) for name in request.topic_names]
        wanted += [(topic.name, topic.topic_id) for topic in request.topics]
        return DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(
                    name=name, topic_id=topic_id, error_code=answer.code, error_message=answer.message or None
                )
                for name, topic_id in wanted
            ]
        )
    return answer
