"""Checkers that follow logs, or what clients tell them, and what workloads need of them.

They look at appends and answers, none of them after every step but the one of groups, which has then mostly nothing
to do.
"""

from typing import TYPE_CHECKING, Final

from mainstem.sim.checkers import Checker
from mainstem.sim.checkers.acknowledged_is_committed import AcknowledgedIsCommitted
from mainstem.sim.checkers.batches_in_turn import BatchesInTurn
from mainstem.sim.checkers.ends_are_told import EndsAreTold
from mainstem.sim.checkers.groups_live_on import GroupsLiveOn
from mainstem.sim.checkers.members_are_heard import MembersAreHeard
from mainstem.sim.checkers.members_stay import MembersStay
from mainstem.sim.checkers.parts_are_given import PartsAreGiven
from mainstem.sim.checkers.segments_end_in_time import SegmentsEndInTime
from mainstem.sim.checkers.told_is_committed import ToldIsCommitted
from mainstem.sim.checkers.transactions_have_their_time import TransactionsHaveTheirTime

if TYPE_CHECKING:
    from mainstem.sim.world import World

REACHED: Final = (
    "group compared with its log",
    "part of a member checked",
    "refusal of a member looked at",
    "commit of a replaced member",
    "offset of a member checked",
    "told offset looked at",
    "acknowledgement looked at",
    "offset told beside its commit",
    "member stayed by its heartbeats",
    "end of a session looked at",
    "parts of a stale generation refused",
    "offset deleted",
    "A2 offset of an old name looked for",
    "age of a segment checked",
    "what was due is gone",
    "flush.ms of a partition looked at",
    "reader woken",
    "reader of commits woken",
    "end of a term asked for",
    "transaction timed out",
    "end told again",
    "offset committed as a member",
    "offset of a stale generation refused",
)
"""Rare branches that each campaign must have taken."""


class Watch:
    def __init__(self, world: "World") -> None:
        self.parts = PartsAreGiven(world)
        self.members = MembersAreHeard(world)
        self.stays = MembersStay(world)
        self.told = ToldIsCommitted(world)
        self.acknowledged = AcknowledgedIsCommitted(world)
        self.ends = EndsAreTold(world)
        groups = GroupsLiveOn(world)
        self.stepped: list[Checker] = [groups]
        self.following: list[Checker] = [groups]
        """Before the logs of transactions: they judge a batch by what was before it."""
        if world.lines.place is not None:
            in_turn = BatchesInTurn(world, world.lines.place)
            self.stepped.append(in_turn)
            self.following.append(in_turn)
        if world.segment_ages:
            self.following.append(SegmentsEndInTime(world))
        if world.is_transactional:
            self.following.append(TransactionsHaveTheirTime(world))
