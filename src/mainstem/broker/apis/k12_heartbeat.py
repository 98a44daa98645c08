"""Heartbeat (key 12), versions 0–4: a member is alive; it learns whether its group rebalances. v3 has instance ids."""

from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 12
MIN_VERSION = 0
MAX_VERSION = 4


async def handle(broker: "Broker", context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    return await broker.groups.heartbeat(request)
