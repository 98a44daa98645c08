"""G9: once everything is healed every group comes to rest; none stays in the middle of a rebalance."""

from mainstem.broker.app import Broker
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Violation


class GroupsSettle(Checker):
    def at_end(self, broker: Broker) -> None:
        for group, state in self.world.observer.group_states.items():
            if state not in ("Stable", "Empty", "Dead"):
                raise Violation("G9 groups settle", f"{group} is still {state}, long after its members are gone")
