"""T12, the other side: nobody ends a transaction against its client's will before its time-out is over.

Judged at each record of a coordinator that aborts what was open, by the record before it. Somebody may have asked for
the end: the client itself, or whoever asks for the transactional id, which ends what is open with it. Where nobody did,
since the transaction began, only time can have: by the clock when it was looked at, which may have been set back before
the end was written.
"""

from typing import TYPE_CHECKING

from mainstem.core.txn.states import NO_TIMEOUT, ONGOING, PREPARE_ABORT, Transaction
from mainstem.protocol.batch import BatchView
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Place, Violation
from mainstem.sim.written import STATE_TOPIC

if TYPE_CHECKING:
    from mainstem.sim.world import World


class TransactionsHaveTheirTime(Checker):
    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._seen_s: dict[tuple[str, int], float] = {}
        """By transactional id and beginning, when a transaction was seen to be open first."""

    def appended(self, place: Place, batch: BatchView) -> None:
        if place[0] != STATE_TOPIC or not self.world.process.is_serving:
            return
        states = self.world.txn_logs.states.get(place[1], {})
        earlier: dict[str, Transaction] = {}
        for _, transactional_id, txn in self.world.txn_logs.read(batch):
            before = earlier.get(transactional_id) or states.get(transactional_id)
            if txn is None:
                continue
            earlier[transactional_id] = txn
            if txn.state is ONGOING:
                self._seen_s.setdefault((transactional_id, _since_ms(txn)), self.world.scheduler.now)
            if before is not None and before.state is ONGOING and txn.state is PREPARE_ABORT:
                self._check(before, txn)

    def _check(self, before: Transaction, after: Transaction) -> None:
        if not self.world.txns.is_left_alone(before.transactional_id, (before.producer_id, before.producer_epoch)):
            return
        since_ms = _since_ms(before)
        seen_s = self._seen_s.get((before.transactional_id, since_ms), 0.0)
        shown = [shown_ms for at_s, shown_ms in self.world.process.clock.jumps if at_s >= seen_s]
        lasted_ms = max([after.updated_ms, *shown]) - since_ms
        if before.timeout_ms == NO_TIMEOUT or lasted_ms <= before.timeout_ms:
            raise Violation(
                "T12 a transaction has its time",
                f"{before.transactional_id}: aborted after {lasted_ms} ms, its time-out is {before.timeout_ms} ms, and "
                "nobody asked for its end",
            )
        self.world.count("transaction timed out")


def _since_ms(txn: Transaction) -> int:
    """When its time began."""
    return txn.updated_ms if txn.is_kept else txn.start_ms
