"""UpdateRaftVoter (key 82) changes the endpoints and versions of a voter (KIP-853)."""

from __future__ import annotations

from mainstem.protocol.schema import Int16, Int32, Message, Str, Struct, Uint16, Uuid, field


class Listener(Struct):
    name: Str = field("0+")
    host: Str = field("0+")
    port: Uint16 = field("0+")


class KRaftVersionFeature(Struct):
    min_supported_version: Int16 = field("0+")
    max_supported_version: Int16 = field("0+")


class UpdateRaftVoterRequest(Message, api_key=82, versions="0", flexible="0+"):
    cluster_id: Str | None = field("0+")
    current_leader_epoch: Int32 = field("0+")
    voter_id: Int32 = field("0+")
    voter_directory_id: Uuid = field("0+")
    listeners: list[Listener] = field("0+")
    kraft_version_feature: KRaftVersionFeature = field("0+")


class CurrentLeader(Struct):
    leader_id: Int32 = field("0+", default=-1)
    leader_epoch: Int32 = field("0+", default=-1)
    host: Str = field("0+", default="")
    port: Int32 = field("0+", default=0)


class UpdateRaftVoterResponse(Message, api_key=82, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    current_leader: CurrentLeader = field("0+", default_factory=CurrentLeader, tag=0)
