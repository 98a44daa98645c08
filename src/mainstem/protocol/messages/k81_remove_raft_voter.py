"""RemoveRaftVoter (key 81) removes a voter from the metadata quorum (KIP-853)."""

from __future__ import annotations

from mainstem.protocol.schema import Int16, Int32, Message, Str, Uuid, field


class RemoveRaftVoterRequest(Message, api_key=81, versions="0", flexible="0+"):
    cluster_id: Str | None = field("0+")
    voter_id: Int32 = field("0+")
    voter_directory_id: Uuid = field("0+")


class RemoveRaftVoterResponse(Message, api_key=81, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+", ignorable=True)
