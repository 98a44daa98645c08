"""G9: once everything is healed and all clients are gone, every group comes to rest: none stays in the middle of a
rebalance, and none keeps a member that nobody has heard of for longer than its session."""

from mainstem.broker.app import Broker
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Violation


class GroupsSettle(Checker):
    def at_end(self, broker: Broker) -> None:
        for group, (state, members) in self.world.observer.group_states.items():
            if state == "Stable":
                raise Violation("G9 who is gone is put out", f"{group} still has {members}, long after they are gone")
            if state not in ("Empty", "Dead"):
                raise Violation("G9 groups settle", f"{group} is still {state}, long after its members are gone")
