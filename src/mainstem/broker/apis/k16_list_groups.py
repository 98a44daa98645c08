"""ListGroups (key 16), versions 0–5: the groups that this broker coordinates, since v4 by state, since v5 by type."""

from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k16_list_groups import ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 16
MIN_VERSION = 0
MAX_VERSION = 5


async def handle(broker: "Broker", context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    groups = await broker.groups.list_groups(request.states_filter, request.types_filter)
    return ListGroupsResponse(error_code=ErrorCode.NONE, groups=groups)
