"""T12, the other side: nobody ends a transaction against its client's will before its time-out is over.

Judged at each record of a coordinator that aborts what was open, by the record before it. Somebody may have asked for
the end: the client itself, or whoever asks for the transactional id, which ends what is open with it. Where nobody did,
since the transaction began, only time can have.
"""

from mainstem.core.txn.states import NO_TIMEOUT, ONGOING, PREPARE_ABORT, Transaction
from mainstem.protocol.batch import BatchView
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Place, Violation
from mainstem.sim.written import STATE_TOPIC


class TransactionsHaveTheirTime(Checker):
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
            if before is not None and before.state is ONGOING and txn.state is PREPARE_ABORT:
                self._check(before, txn)

    def _check(self, before: Transaction, after: Transaction) -> None:
        if not self.world.txns.is_left_alone(before.transactional_id, (before.producer_id, before.producer_epoch)):
            return
        since_ms = before.updated_ms if before.is_kept else before.start_ms
        lasted_ms = after.updated_ms - since_ms
        if before.timeout_ms == NO_TIMEOUT or lasted_ms <= before.timeout_ms:
            raise Violation(
                "T12 a transaction has its time",
                f"{before.transactional_id}: aborted after {lasted_ms} ms, its time-out is {before.timeout_ms} ms, and "
                "nobody asked for its end",
            )
        self.world.count("transaction timed out")
