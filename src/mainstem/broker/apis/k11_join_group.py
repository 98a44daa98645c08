"""JoinGroup (key 11), versions 0–9: becomes a member of a classic group, or joins its next generation.

v1 has a rebalance timeout of its own, v4 gives out a member id that the client must come back with (KIP-394), v5 has
static members (KIP-345), v7 tells the protocol type and may leave the protocol null, v8 says why (KIP-800), v9 lets a
static leader skip the assignment (KIP-814). The answer waits until everyone has joined.
"""

from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.core.group.rebalance import join_error
from mainstem.protocol.errors import RemoteError
from mainstem.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 11
MIN_VERSION = 0
MAX_VERSION = 9

_NULL_PROTOCOL_SINCE = 7


async def handle(broker: "Broker", context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
    try:
        response = await broker.groups.join(context, request)
    except RemoteError as error:
        response = join_error(error.code, request.member_id)
    if response.protocol_name is None and context.api_version < _NULL_PROTOCOL_SINCE:
        response.protocol_name = ""
    return response
