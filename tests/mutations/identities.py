"""Bugs of the epochs that tell one transaction from the next, and one client from the next."""

from collections.abc import Callable
from typing import Any

import pytest

from mainstem.core.coordinator.effects import Outcome
from mainstem.core.log.producers import ProducerStates
from mainstem.core.txn import machine as txn_machine
from mainstem.core.txn.machine import Client, Producer, TxnMachine
from mainstem.core.txn.states import COMPLETE_COMMIT, EPOCH_MAX, NO_ID, ONGOING, PREPARED, TV2, Transaction
from mainstem.protocol.errors import ErrorCode, RemoteError

Reached = Callable[[], None]


def late_markers_end_the_next(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own, of KIP-890: a marker of the epoch of the open transaction is taken for its own."""
    original = ProducerStates.check_marker

    def check(
        self: ProducerStates,
        producer_id: int,
        epoch: int,
        coordinator_epoch: int,
        transaction_version: int,
        origin: Any,
    ) -> None:
        producer = self._producers.get(producer_id)
        if producer is not None and transaction_version >= TV2 and epoch == producer.epoch != EPOCH_MAX:
            if producer.txn_first_offset >= 0:
                reached()
            transaction_version = 0
        original(self, producer_id, epoch, coordinator_epoch, transaction_version, origin)

    patch.setattr(ProducerStates, "check_marker", check)


def any_old_epoch_will_do(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own, of KIP-360: who names an epoch that was his once is given the one in force, which another has."""
    original = TxnMachine._take_over

    def take_over(
        self: TxnMachine, ticket: Any, txn: Transaction, expected: Any, timeout_ms: int, now_ms: int, fresh_id: int
    ) -> Outcome:
        epoch = txn.producer_epoch
        if expected is not None and expected[1] != epoch:
            if expected[1] != self._last_epoch(txn):
                reached()
            return self._give(ticket, txn, txn.producer_id, epoch, timeout_ms, expected[1], now_ms)
        return original(self, ticket, txn, expected, timeout_ms, now_ms, fresh_id)

    patch.setattr(TxnMachine, "_take_over", take_over)


def any_producer_id_will_do(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own, of KIP-360: who names the producer id of somebody else is let in all the same."""
    original = txn_machine._may_be_producer

    def may_be(txn: Transaction, expected: tuple[int, int]) -> bool:
        if not original(txn, expected):
            reached()
        return True

    patch.setattr(txn_machine, "_may_be_producer", may_be)


def aborts_of_nothing_keep_the_epoch(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own, of KIP-890: who aborts before its coordinator knows of a batch goes on under the epoch of that batch."""
    original = TxnMachine._end_v2

    def end(
        self: TxnMachine, ticket: Any, txn: Transaction, client: Client, commit: bool, now_ms: int, fresh_id: int
    ) -> Outcome:
        is_its_own = (client.producer_id, client.epoch) == (txn.client_id, txn.client_epoch)
        if commit or not is_its_own or txn.state is ONGOING or txn.state in PREPARED:
            return original(self, ticket, txn, client, commit, now_ms, fresh_id)
        reached()
        return Outcome().reply(ticket, Producer(txn.producer_id, txn.producer_epoch))

    patch.setattr(TxnMachine, "_end_v2", end)


def owners_are_refused(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own, of KIP-360: who names what it has been given is told that another has it."""
    original = TxnMachine._take_over

    def take_over(self: TxnMachine, ticket: Any, txn: Transaction, expected: Any, *rest: Any) -> Outcome:
        if expected is not None and expected[1] == txn.producer_epoch:
            reached()
            raise RemoteError(ErrorCode.PRODUCER_FENCED, "another has it")
        return original(self, ticket, txn, expected, *rest)

    patch.setattr(TxnMachine, "_take_over", take_over)


def commits_are_told_as_errors(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Redpanda #9571, #10669: a client whose answer was lost asks for the commit again, and is refused."""
    original = TxnMachine.end

    def end(self: TxnMachine, ticket: Any, client: Client, commit: bool, now_ms: int, fresh_id: int = NO_ID) -> Outcome:
        txn = self.store.get(client.transactional_id)
        out = original(self, ticket, client, commit, now_ms, fresh_id)
        if commit and txn is not None and txn.state is COMPLETE_COMMIT:
            reached()
            raise RemoteError(ErrorCode.INVALID_TXN_STATE, "nothing is open")
        return out

    patch.setattr(TxnMachine, "end", end)
