"""DescribeDelegationToken (key 41) describes delegation tokens."""

from __future__ import annotations

from mainstem.protocol.schema import Bytes, Int16, Int32, Int64, Message, Str, Struct, field


class DescribeDelegationTokenOwner(Struct):
    principal_type: Str = field("0+")
    principal_name: Str = field("0+")


class DescribeDelegationTokenRequest(Message, api_key=41, versions="1-3", flexible="2+"):
    owners: list[DescribeDelegationTokenOwner] | None = field("0+")


class DescribedDelegationTokenRenewer(Struct):
    principal_type: Str = field("0+")
    principal_name: Str = field("0+")


class DescribedDelegationToken(Struct):
    principal_type: Str = field("0+")
    principal_name: Str = field("0+")
    token_requester_principal_type: Str = field("3+", default="")
    token_requester_principal_name: Str = field("3+", default="")
    issue_timestamp: Int64 = field("0+")
    expiry_timestamp: Int64 = field("0+")
    max_timestamp: Int64 = field("0+")
    token_id: Str = field("0+")
    hmac: Bytes = field("0+")
    renewers: list[DescribedDelegationTokenRenewer] = field("0+")


class DescribeDelegationTokenResponse(Message, api_key=41, versions="1-3", flexible="2+"):
    error_code: Int16 = field("0+")
    tokens: list[DescribedDelegationToken] = field("0+")
    throttle_time_ms: Int32 = field("0+", default=0)
