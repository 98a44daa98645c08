"""Which transactions a power loss has torn: the ledger is told by what the logs had, and have.

Follows the records of coordinators of transactions, the batches and markers of transactions in partitions, and the
offsets that are part of them.
"""

from mainstem.core.group.records import read_offset_value
from mainstem.core.group.store import OFFSET_PREFIX
from mainstem.protocol.batch import BatchView
from mainstem.protocol.records import iterate_records
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Place
from mainstem.sim.txn_ledger import Txn
from mainstem.sim.written import OFFSETS_TOPIC, STATE_TOPIC


class TornTransactions(Checker):
    def appended(self, place: Place, batch: BatchView) -> None:
        if place[0] == STATE_TOPIC:
            for offset, transactional_id, txn in self.world.txn_logs.read(batch):
                self.world.txns.log_state(transactional_id, place[1], offset, txn)

    def reopened(self, place: Place, end: int, kept: list[BatchView], lost: list[BatchView]) -> None:
        if not lost:
            return
        if place[0] == STATE_TOPIC:
            self.world.txns.cut_states(place[1], end)
            return
        changes: list[tuple[int, list[Txn] | None, bool]] = []
        for batch in (*kept, *lost):
            if batch.is_transactional:
                txns = None if batch.is_control else self._transactions(place, batch)
                changes.append((batch.producer_id, txns, batch.base_offset >= end))
        self.world.txns.cut_records(changes)

    def _transactions(self, place: Place, batch: BatchView) -> list[Txn]:
        found: dict[int, Txn] = {}
        for record in iterate_records(batch):
            if place[0] == OFFSETS_TOPIC:
                if record.value is None or record.key is None or not record.key.startswith(OFFSET_PREFIX):
                    continue
                txn = self.world.txns.find(None, read_offset_value(record.value).metadata)
            else:
                txn = self.world.txns.find(record.value)
            if txn is not None:
                found[txn.number] = txn
        return list(found.values())
