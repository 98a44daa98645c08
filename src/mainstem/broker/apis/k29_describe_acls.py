"""DescribeAcls (key 29), versions 1–3: there is no authorizer, so there are no access control entries to tell.

v1 tells patterns of resource names (KIP-290), v3 knows users as resources (KIP-48). A filter with a part that is
UNKNOWN is a malformed request.
"""

from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k29_describe_acls import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 29
MIN_VERSION = 1
MAX_VERSION = 3

_UNKNOWN = 0


def handle(broker: "Broker", context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    parts = (
        request.resource_type_filter,
        request.pattern_type_filter,
        request.operation,
        request.permission_type,
    )
    if _UNKNOWN in parts:
        raise RemoteError(ErrorCode.INVALID_REQUEST, "a filter of access control entries has an unknown part")
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="This broker has no authorizer.", resources=[]
    )
