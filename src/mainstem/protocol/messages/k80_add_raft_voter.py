"""AddRaftVoter (key 80) adds a voter to the metadata quorum (KIP-853)."""

from __future__ import annotations

from mainstem.protocol.schema import Bool, Int16, Int32, Message, Str, Struct, Uint16, Uuid, field


class Listener(Struct):
    name: Str = field("0+")
    host: Str = field("0+")
    port: Uint16 = field("0+")


class AddRaftVoterRequest(Message, api_key=80, versions="0-1", flexible="0+"):
    cluster_id: Str | None = field("0+")
    timeout_ms: Int32 = field("0+")
    voter_id: Int32 = field("0+")
    voter_directory_id: Uuid = field("0+")
    listeners: list[Listener] = field("0+")
    ack_when_committed: Bool = field("1+", default=True)


class AddRaftVoterResponse(Message, api_key=80, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+", ignorable=True)
