"""SyncGroup (key 14), versions 0–5: the leader brings the assignment of its group, everyone gets their part of it.

v3 has instance ids, v5 names the protocol, which must be there and be the group's (KIP-559). The answer waits for the
leader, and for its assignment to be committed.
"""

from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.core.group.rebalance import sync_error
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 14
MIN_VERSION = 0
MAX_VERSION = 5

_PROTOCOL_SINCE = 5


async def handle(broker: "Broker", context: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
    if context.api_version >= _PROTOCOL_SINCE and (request.protocol_type is None or request.protocol_name is None):
        return sync_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return await broker.groups.sync(request)
