"""What must hold, one promise a file. `docs/invariants.md` says the same for people.

A checker looks after each step of the broker, when the broker dies or has come back, and at the end. It raises
`Violation` with the invariant's name and what was seen.
"""

from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

from mainstem.broker.app import Broker
from mainstem.protocol.batch import BatchView
from mainstem.sim.ledger import Place

if TYPE_CHECKING:
    from mainstem.sim.world import World


@mypyc_attr(allow_interpreted_subclasses=True)
class Checker:
    """One promise. What it does not look at it leaves as it is here."""

    def __init__(self, world: "World") -> None:
        self.world = world

    def after_step(self, broker: Broker) -> None:
        """After each step of a broker that serves."""

    def appended(self, place: Place, batch: BatchView) -> None:
        """A batch was appended to a log, or was found there by a start."""

    def reopened(self, place: Place, end: int, kept: list[BatchView], lost: list[BatchView]) -> None:
        """A log is back, with this end: of what was appended to it these are there, and these are gone."""

    def died(self, broker: Broker | None, how: str) -> None:
        """The broker is about to be gone; what it knew can be looked at."""

    def served(self, broker: Broker) -> None:
        """It is back, and has answered nobody yet."""

    def forget(self) -> None:
        """The broker's disk is another one from now on: what was seen of the old one no longer counts."""

    def at_end(self, broker: Broker) -> None:
        """Everything is healed, every client is done, and the broker has been restarted once more."""
