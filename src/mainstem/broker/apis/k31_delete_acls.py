"""DeleteAcls (key 31), versions 1–3: there is no authorizer, so every filter is refused.

A filter with a part that is UNKNOWN is a malformed request.
"""

from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k31_delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 31
MIN_VERSION = 1
MAX_VERSION = 3

_UNKNOWN = 0


def handle(broker: "Broker", context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    for each in request.filters:
        if _UNKNOWN in (each.resource_type_filter, each.pattern_type_filter, each.operation, each.permission_type):
            raise RemoteError(ErrorCode.INVALID_REQUEST, "a filter of access control entries has an unknown part")
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(
                error_code=ErrorCode.SECURITY_DISABLED,
                error_message="This broker has no authorizer.",
                matching_acls=[],
            )
            for _ in request.filters
        ]
    )
