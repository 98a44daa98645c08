"""What the metadata quorum keeps beside its log: `quorum-state`, whose JSON has these fields."""

from __future__ import annotations

from mainstem.protocol.schema import ZERO_UUID, Int32, Int64, Message, Str, Struct, Uuid, field


class Voter(Struct):
    voter_id: Int32 = field("0")


class QuorumStateData(Message, versions="0-1", flexible="0+"):
    cluster_id: Str = field("0", default="")
    leader_id: Int32 = field("0+", default=-1)
    leader_epoch: Int32 = field("0+", default=-1)
    voted_id: Int32 = field("0+", default=-1)
    voted_directory_id: Uuid = field("1+", default=ZERO_UUID)
    applied_offset: Int64 = field("0", default=0)
    current_voters: list[Voter] | None = field("0", default_factory=list)
