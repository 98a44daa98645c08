"""LeaveGroup (key 13), versions 0–5: members leave a classic group.

Since v3 several at once and by instance id (KIP-345), with an error for each; before, one, whose error is the answer's.
v5 says why (KIP-800).
"""

from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 13
MIN_VERSION = 0
MAX_VERSION = 5

_BATCHED_SINCE = 3


async def handle(broker: "Broker", context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    if context.api_version >= _BATCHED_SINCE:
        return await broker.groups.leave(request)
    request.members = [MemberIdentity(member_id=request.member_id)]
    response = await broker.groups.leave(request)
    code = response.error_code
    if code == ErrorCode.NONE and response.members:
        code = response.members[0].error_code
    return LeaveGroupResponse(error_code=code)
