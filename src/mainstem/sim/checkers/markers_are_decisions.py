"""T8: a marker is what its coordinator decided of that transaction.

Judged at every append, by what the coordinator has written until then:
- One that ends a transaction is of the decision that is being carried out now, and for this partition.
- One that ends nothing is of a decision that was made once: markers are sent again until they are answered, and one
  that comes again changes nothing (T10).
"""

from mainstem.core.txn.states import PREPARE_COMMIT, PREPARED
from mainstem.protocol.batch import BatchView
from mainstem.protocol.control import parse_end_marker
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Place, Violation
from mainstem.sim.txn_logs import in_words


class MarkersAreDecisions(Checker):
    def appended(self, place: Place, batch: BatchView) -> None:
        if not batch.is_control or not batch.is_transactional or not self.world.process.is_serving:
            return
        marker = parse_end_marker(batch)
        if marker is None or self.world.may_be_torn(batch.producer_id, batch.producer_epoch):
            return
        if not self._is_right(place, batch, marker.commit):
            raise Violation(
                "T8 a marker is its coordinator's decision",
                f"{place[0]}-{place[1]}: {'commit' if marker.commit else 'abort'} of producer {batch.producer_id} "
                f"epoch {batch.producer_epoch}; its coordinator has "
                f"{in_words(self.world.txn_logs.current(batch.producer_id))}",
            )
        self.world.count("marker checked")

    def _is_right(self, place: Place, batch: BatchView, commit: bool) -> bool:
        logs = self.world.txn_logs
        producer_id, epoch = batch.producer_id, batch.producer_epoch
        transactions = logs.partitions.get(place)
        if transactions is None or producer_id not in transactions.open:
            return (producer_id, epoch, commit) in logs.decisions
        txn = logs.current(producer_id)
        return (
            txn is not None
            and txn.state in PREPARED
            and (txn.state is PREPARE_COMMIT) == commit
            and txn.producer_epoch == epoch
            and place in txn.partitions
        )
