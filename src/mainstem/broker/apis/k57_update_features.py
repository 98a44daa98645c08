"""UpdateFeatures (key 57), versions 0–2: the controller changes finalized feature levels (KIP-584).

v1 says how a feature may move and can be a trial, v2 tells one result for all updates.
"""

from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.broker.forwarding import forward
from mainstem.protocol.errors import RemoteError
from mainstem.protocol.messages.k57_update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 57
MIN_VERSION = 0
MAX_VERSION = 2


async def handle(broker: "Broker", context: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    timeout_ms = request.timeout_ms if request.timeout_ms > 0 else None
    answer = await forward(broker, context, request, UpdateFeaturesResponse, timeout_ms)
    if isinstance(answer, RemoteError):
        return UpdateFeaturesResponse(error_code=answer.code, error_message=answer.message or None)
    return answer
