"""CreateDelegationToken (key 38) creates a delegation token."""

from __future__ import annotations

from mainstem.protocol.schema import Bytes, Int16, Int32, Int64, Message, Str, Struct, field


class CreatableRenewers(Struct):
    principal_type: Str = field("0+")
    principal_name: Str = field("0+")


class CreateDelegationTokenRequest(Message, api_key=38, versions="1-3", flexible="2+"):
    owner_principal_type: Str | None = field("3+", default="")
    owner_principal_name: Str | None = field("3+", default="")
    renewers: list[CreatableRenewers] = field("0+")
    max_lifetime_ms: Int64 = field("0+")


class CreateDelegationTokenResponse(Message, api_key=38, versions="1-3", flexible="2+"):
    error_code: Int16 = field("0+")
    principal_type: Str = field("0+")
    principal_name: Str = field("0+")
    token_requester_principal_type: Str = field("3+", default="")
    token_requester_principal_name: Str = field("3+", default="")
    issue_timestamp_ms: Int64 = field("0+")
    expiry_timestamp_ms: Int64 = field("0+")
    max_timestamp_ms: Int64 = field("0+")
    token_id: Str = field("0+")
    hmac: Bytes = field("0+")
    throttle_time_ms: Int32 = field("0+", default=0)
