"""AlterUserScramCredentials (key 51) changes SCRAM credentials (KIP-554)."""

from __future__ import annotations

from mainstem.protocol.schema import Bytes, Int8, Int16, Int32, Message, Str, Struct, field


class ScramCredentialDeletion(Struct):
    name: Str = field("0+")
    mechanism: Int8 = field("0+")


class ScramCredentialUpsertion(Struct):
    name: Str = field("0+")
    mechanism: Int8 = field("0+")
    iterations: Int32 = field("0+")
    salt: Bytes = field("0+")
    salted_password: Bytes = field("0+")


class AlterUserScramCredentialsRequest(Message, api_key=51, versions="0", flexible="0+"):
    deletions: list[ScramCredentialDeletion] = field("0+")
    upsertions: list[ScramCredentialUpsertion] = field("0+")


class AlterUserScramCredentialsResult(Struct):
    user: Str = field("0+")
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+")


class AlterUserScramCredentialsResponse(Message, api_key=51, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    results: list[AlterUserScramCredentialsResult] = field("0+")
