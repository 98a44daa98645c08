"""T4: once a transactional id has a new epoch, nothing is appended with an older one: no record, and no offset.

Judged at every append, by what the coordinator has written until then:
- A batch of a transaction has the epoch of the transaction that is open at its coordinator, and no client has come
  back to that transaction and was given a newer epoch (KIP-939).
- While a transaction is completed, its marker has not come yet to this partition: what its client sent before may
  still come. Version 2 has raised the epoch by then, and so has a time-out.
"""

from mainstem.core.txn.states import ONGOING, PREPARED, Transaction
from mainstem.protocol.batch import BatchView
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Place, Violation
from mainstem.sim.txn_logs import in_words


class OldEpochsAreOver(Checker):
    def appended(self, place: Place, batch: BatchView) -> None:
        if not batch.is_transactional or batch.is_control or not self.world.process.is_serving:
            return
        producer_id, epoch = batch.producer_id, batch.producer_epoch
        txn = self.world.txn_logs.current(producer_id)
        is_taken = txn is not None and txn.is_kept and self.world.txns.was_given((txn.client_id, txn.client_epoch))
        if _may_append(txn, epoch) and not is_taken:
            self.world.count("epoch of a batch checked")
            return
        if self.world.may_be_torn(producer_id, epoch):
            self.world.count("epoch of a torn transaction let pass")
            return
        raise Violation(
            "T4 an old epoch appends nothing",
            f"{place[0]}-{place[1]}: a batch of producer {producer_id} epoch {epoch} at {batch.base_offset}, "
            f"and its coordinator has {in_words(txn)}",
        )


def _may_append(txn: Transaction | None, epoch: int) -> bool:
    if txn is None:
        return False
    if txn.state is ONGOING:
        return epoch == txn.producer_epoch
    return txn.state in PREPARED and epoch in (txn.producer_epoch, txn.producer_epoch - 1)
