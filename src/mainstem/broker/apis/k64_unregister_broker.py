"""UnregisterBroker (key 64), version 0: the controller forgets a broker that will not come back (KIP-631)."""

from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.broker.forwarding import forward
from mainstem.protocol.errors import RemoteError
from mainstem.protocol.messages.k64_unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 64
MIN_VERSION = 0
MAX_VERSION = 0


async def handle(
    broker: "Broker", context: RequestContext, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    answer = await forward(broker, context, request, UnregisterBrokerResponse)
    if isinstance(answer, RemoteError):
        return UnregisterBrokerResponse(error_code=answer.code, error_message=answer.message or None)
    return answer
