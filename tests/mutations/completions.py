"""How the end of a transaction is brought about, as it went wrong for others."""

import pytest

from mainstem.core.coordinator.effects import Order, Outcome
from mainstem.core.txn.machine import SendMarkers, TxnMachine
from mainstem.core.txn.states import Transaction
from mainstem.protocol.errors import ErrorCode
from tests.mutations.tuned import Reached


def completed_twice(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """KAFKA-9777: two complete one transaction, and whoever is late does it to the next one of its id.

    Here one alone brings the markers, and what it has brought is compared with what is being completed: neither stays.
    """
    written, markers_written = TxnMachine.written, TxnMachine.markers_written

    def twice(self: TxnMachine, token: object, error: ErrorCode, now_ms: int) -> Outcome:
        out = written(self, token, error, now_ms)
        orders = [each for each in out.effects if isinstance(each, Order) and isinstance(each.what, SendMarkers)]
        if orders:
            reached()
            out.effects += orders
        return out

    def whatever(self: TxnMachine, txn: Transaction, now_ms: int) -> Outcome:
        return markers_written(self, self._being_completed(txn.transactional_id) or txn, now_ms)

    patch.setattr(TxnMachine, "written", twice)
    patch.setattr(TxnMachine, "markers_written", whatever)
