"""DescribeGroups (key 15), versions 0–6: the state, the protocol and the members of classic groups.

v3 tells what the client may do, v4 instance ids; since v6 a group that is not there is an error instead of Dead
(KIP-1043).
"""

from typing import TYPE_CHECKING

from mainstem.broker.authorized import GROUP_OPERATIONS
from mainstem.broker.context import RequestContext
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k15_describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 15
MIN_VERSION = 0
MAX_VERSION = 6


async def handle(broker: "Broker", context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    groups = [await _describe(broker, group_id, context.api_version) for group_id in request.groups]
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = GROUP_OPERATIONS
    return DescribeGroupsResponse(groups=groups)


async def _describe(broker: "Broker", group_id: str, api_version: int) -> DescribedGroup:
    try:
        return await broker.groups.describe(group_id, api_version)
    except RemoteError as error:
        return DescribedGroup(
            error_code=error.code,
            group_id=group_id,
            group_state="",
            protocol_type="",
            protocol_data="",
            members=[],
        )
