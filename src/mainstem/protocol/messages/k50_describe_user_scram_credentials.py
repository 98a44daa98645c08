"""DescribeUserScramCredentials (key 50) describes SCRAM credentials, without their secrets (KIP-554)."""

from __future__ import annotations

from mainstem.protocol.schema import Int8, Int16, Int32, Message, Str, Struct, field


class UserName(Struct):
    name: Str = field("0+")


class DescribeUserScramCredentialsRequest(Message, api_key=50, versions="0", flexible="0+"):
    users: list[UserName] | None = field("0+")


class CredentialInfo(Struct):
    mechanism: Int8 = field("0+")
    iterations: Int32 = field("0+")


class DescribeUserScramCredentialsResult(Struct):
    user: Str = field("0+")
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+")
    credential_infos: list[CredentialInfo] = field("0+")


class DescribeUserScramCredentialsResponse(Message, api_key=50, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+")
    results: list[DescribeUserScramCredentialsResult] = field("0+")
