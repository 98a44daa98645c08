"""DeleteGroups (key 42), versions 0–2: deletes groups that have no members, with their offsets (KIP-229)."""

from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k42_delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 42
MIN_VERSION = 0
MAX_VERSION = 2


async def handle(broker: "Broker", context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=await _delete(broker, group_id))
            for group_id in dict.fromkeys(request.groups_names)
        ]
    )


async def _delete(broker: "Broker", group_id: str) -> ErrorCode:
    try:
        return await broker.groups.delete_group(group_id)
    except RemoteError as error:
        return error.code
