"""T7: what is open on a partition is open, or being completed, at its coordinator, which has that partition in it.

Looked at after every step that wrote a batch of a transaction or a record of a coordinator: nothing else moves either
side. Both are what the logs say, so that it holds while a coordinator is still loading, too.
"""

from mainstem.broker.app import Broker
from mainstem.core.txn.states import OVER
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Place, Violation
from mainstem.sim.txn_logs import in_words


class NoHangingTransactions(Checker):
    def __init__(self, world: object) -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self._changes = -1

    def after_step(self, broker: Broker) -> None:
        logs = self.world.txn_logs
        if logs.changes == self._changes:
            return
        self._changes = logs.changes
        for place, transactions in logs.partitions.items():
            for producer_id, first_offset in transactions.open.items():
                self._check(place, producer_id, first_offset)

    def _check(self, place: Place, producer_id: int, first_offset: int) -> None:
        txn = self.world.txn_logs.current(producer_id)
        if txn is not None and txn.state not in OVER and place in txn.partitions:
            return
        if place in self.world.ledger.damaged or self.world.may_be_torn(producer_id):
            return
        raise Violation(
            "T7 no transaction hangs",
            f"{place[0]}-{place[1]}: producer {producer_id} has one open since {first_offset}, and its coordinator "
            f"has {in_words(txn)}",
        )
