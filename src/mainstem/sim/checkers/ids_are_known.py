"""T4: a transactional id is known as long as it is used, and `transactional.id.expiration.ms` after that.

Who is forgotten cannot be fenced: its coordinator must know it while a transaction is open or being completed, and its
time after the last. Judged by each tombstone that a coordinator writes, by the record that it removes. An id that is
used again after that begins with a producer id that nobody had (T11), and whoever had the last one appends nothing
(`old_epochs_are_over`).
"""

from mainstem.core.txn.states import OVER, Transaction
from mainstem.protocol.batch import BatchView
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Place, Violation
from mainstem.sim.txn_logs import in_words
from mainstem.sim.written import STATE_TOPIC


class IdsAreKnown(Checker):
    def __init__(self, world: object) -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self._forgotten: dict[str, int] = {}
        """By transactional id the producer id that it had when it was forgotten last."""

    def forget(self) -> None:
        self._forgotten.clear()

    def appended(self, place: Place, batch: BatchView) -> None:
        if place[0] != STATE_TOPIC or not self.world.process.is_serving:
            return
        states = dict(self.world.txn_logs.states.get(place[1], {}))
        for _, transactional_id, txn in self.world.txn_logs.read(batch):
            before = states.get(transactional_id)
            if txn is not None:
                states[transactional_id] = txn
                if before is None and transactional_id in self._forgotten:
                    self._check_new(txn)
            elif before is not None:
                del states[transactional_id]
                self._check_due(before, batch.max_timestamp)

    def _check_due(self, before: Transaction, now_ms: int) -> None:
        idle_ms = now_ms - before.updated_ms
        if before.state not in OVER or idle_ms < self.world.txn_shape.id_expiration_ms:
            raise Violation("T4 an id is known its time", f"at {now_ms} this was forgotten: {in_words(before)}")
        self._forgotten[before.transactional_id] = before.producer_id
        self.world.count("transactional id forgotten")

    def _check_new(self, txn: Transaction) -> None:
        if txn.producer_id == self._forgotten.pop(txn.transactional_id):
            raise Violation(
                "T4 an id that was forgotten begins anew", f"it has the producer id that it had: {in_words(txn)}"
            )
        self.world.count("forgotten id taken again")
