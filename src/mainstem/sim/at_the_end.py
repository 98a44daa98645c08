"""The checkers that look when the broker is back, or at the end of a run, and that nobody asks in between."""

from typing import TYPE_CHECKING

from mainstem.sim.checkers import Checker
from mainstem.sim.checkers.commits_survive import CommitsSurvive
from mainstem.sim.checkers.derived_state import DerivedState
from mainstem.sim.checkers.groups_settle import GroupsSettle
from mainstem.sim.checkers.history import HistoryHolds
from mainstem.sim.checkers.transactions import TransactionsHold
from mainstem.sim.rotten_indexes import IndexesAreMended

if TYPE_CHECKING:
    from mainstem.sim.world import World


def checkers_at_the_end(world: "World") -> list[Checker]:
    kinds = (DerivedState, HistoryHolds, CommitsSurvive, GroupsSettle, TransactionsHold, IndexesAreMended)
    return [kind(world) for kind in kinds]
