"""CreateAcls (key 30), versions 1–3: there is no authorizer, so every entry is refused.

An entry with a part that is UNKNOWN is a malformed request.
"""

from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k30_create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 30
MIN_VERSION = 1
MAX_VERSION = 3

_UNKNOWN = 0


def handle(broker: "Broker", context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    for each in request.creations:
        if _UNKNOWN in (each.resource_type, each.resource_pattern_type, each.operation, each.permission_type):
            raise RemoteError(ErrorCode.INVALID_REQUEST, "an access control entry has an unknown part")
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message="This broker has no authorizer.")
            for _ in request.creations
        ]
    )
