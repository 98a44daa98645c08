"""What is known of one transactional id, and the changes that are legal.

    Empty ─────────> Ongoing ──> PrepareCommit ──> CompleteCommit
      ^                 │                               │
      │                 └──────> PrepareAbort ───> CompleteAbort
      └── InitProducerId of an id whose transaction is over; Ongoing may also follow a completed transaction

Under transaction version 2 an abort may come where nothing was begun (KIP-890): PrepareAbort then follows Empty or a
completed transaction, so that the epoch is raised and whatever the client had sent is fenced.

A producer has an id and an epoch, and may have two pairs at once: those of a prepared transaction that a client left
(`producer_*`), and those that the client who came back was given (`next_*`, KIP-939). The next id alone, without an
epoch, is the one that takes over at epoch 0 when the epochs of the current one are used up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

Place = tuple[str, int]
"""A topic and a partition of it."""

NO_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1
EPOCH_MAX: Final = 0x7FFF
NO_TIMEOUT: Final = 0x7FFFFFFF
"""The time-out of a transaction that takes part in a two-phase commit: none."""

TV1: Final = 0
"""What Kafka writes for every client before version 2, on version 1 as on version 0."""
TV2: Final = 2
FENCE: Final = -1
"""In place of a marker's version: no marker, only the word that nothing more of the epoch may come."""


class TxnState(IntEnum):
    """By the numbers that records have."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def label(self) -> str:
        """As ListTransactions and its like spell it."""
        return "".join(word.capitalize() for word in self.name.split("_"))


EMPTY, ONGOING = TxnState.EMPTY, TxnState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT

TRANSITIONS: Final = {
    EMPTY: (EMPTY, ONGOING, PREPARE_ABORT),
    ONGOING: (ONGOING, PREPARE_COMMIT, PREPARE_ABORT),
    PREPARE_COMMIT: (COMPLETE_COMMIT,),
    PREPARE_ABORT: (COMPLETE_ABORT,),
    COMPLETE_COMMIT: (EMPTY, ONGOING, PREPARE_ABORT),
    COMPLETE_ABORT: (EMPTY, ONGOING, PREPARE_ABORT),
}
PREPARED: Final = (PREPARE_COMMIT, PREPARE_ABORT)
OVER: Final = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
"""Nothing is under way: the id may begin, be taken over, or expire."""

LABELS: Final = {state.label: state for state in TxnState}
LISTABLE: Final = frozenset({*LABELS, "Dead", "PrepareEpochFence"})
"""The states that Kafka has a name for; nothing here is ever in the last two."""


def is_exhausted(epoch: int) -> bool:
    """Whether no client may be given a higher epoch: the highest is for the last markers of the id."""
    return epoch >= EPOCH_MAX - 1


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transactional id, as its newest record has it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TxnState
    partitions: tuple[Place, ...] = ()
    start_ms: int = NO_TIME
    updated_ms: int = NO_TIME
    previous_producer_id: int = NO_ID
    next_producer_id: int = NO_ID
    next_producer_epoch: int = NO_EPOCH
    client_version: int = TV1

    # Who the client is

    @property
    def is_kept(self) -> bool:
        """Whether a client has come back to a transaction and was given an identity besides the transaction's."""
        return self.next_producer_epoch != NO_EPOCH

    @property
    def client_id(self) -> int:
        return self.next_producer_id if self.is_kept else self.producer_id

    @property
    def client_epoch(self) -> int:
        return self.next_producer_epoch if self.is_kept else self.producer_epoch

    @property
    def last_epoch(self) -> int:
        """The epoch that the client had before the end of its transaction raised it; -1 where none did."""
        if self.client_version < TV2 or self.state in (EMPTY, ONGOING):
            return NO_EPOCH
        return self.client_epoch - 1 if self.client_epoch > 0 else EPOCH_MAX - 1

    def is_late(self, now_ms: int) -> bool:
        """Whether the time of an open transaction is up. One that was kept has as long as its client asked for, from
        when the client came back."""
        since_ms = self.updated_ms if self.is_kept else self.start_ms
        return self.timeout_ms != NO_TIMEOUT and since_ms + self.timeout_ms < now_ms

    # How it changes; every change names the producer id that was there before, as Kafka's records do

    def given(self, producer_id: int, epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
        """A client takes the id, and nothing is under way."""
        return replace(
            self,
            producer_id=producer_id,
            producer_epoch=epoch,
            timeout_ms=timeout_ms,
            state=EMPTY,
            partitions=(),
            start_ms=NO_TIME,
            updated_ms=now_ms,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_ID,
            next_producer_epoch=NO_EPOCH,
        )

    def kept_for(self, producer_id: int, epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
        """A client takes the id, and its transaction stays open (KIP-939)."""
        return replace(
            self,
            timeout_ms=timeout_ms,
            updated_ms=now_ms,
            previous_producer_id=self.producer_id,
            next_producer_id=producer_id,
            next_producer_epoch=epoch,
        )

    def with_partitions(self, added: tuple[Place, ...], client_version: int, now_ms: int) -> Transaction:
        return replace(
            self,
            state=ONGOING,
            partitions=tuple(dict.fromkeys((*self.partitions, *added))),
            start_ms=self.start_ms if self.state is ONGOING else now_ms,
            updated_ms=now_ms,
            previous_producer_id=self.producer_id,
            client_version=client_version,
        )

    def prepared(self, commit: bool, client_version: int, fresh_id: int, now_ms: int) -> Transaction:
        """Its end is decided. Version 2 raises the epoch; `fresh_id` takes over where that is not possible."""
        after = replace(
            self,
            state=PREPARE_COMMIT if commit else PREPARE_ABORT,
            start_ms=self.start_ms if self.state is ONGOING else now_ms,
            updated_ms=now_ms,
            previous_producer_id=self.client_id,
            client_version=client_version,
        )
        if client_version < TV2:
            return after
        after = replace(after, producer_epoch=min(self.producer_epoch + 1, EPOCH_MAX))
        if not self.is_kept:
            return replace(after, next_producer_id=fresh_id)
        if fresh_id != NO_ID:
            return replace(after, next_producer_id=fresh_id, next_producer_epoch=0)
        return replace(after, next_producer_epoch=self.next_producer_epoch + 1)

    def fenced(self) -> Transaction:
        """Its client may do nothing more; for version 1, where the end itself does not raise the epoch."""
        if self.is_kept:
            return replace(self, next_producer_epoch=min(self.next_producer_epoch + 1, EPOCH_MAX))
        return replace(self, producer_epoch=min(self.producer_epoch + 1, EPOCH_MAX))

    def completed(self, now_ms: int) -> Transaction:
        """All its markers are written."""
        producer_id, epoch = self.identity_after()
        return replace(
            self,
            producer_id=producer_id,
            producer_epoch=epoch,
            state=COMPLETE_COMMIT if self.state is PREPARE_COMMIT else COMPLETE_ABORT,
            partitions=(),
            updated_ms=now_ms,
            previous_producer_id=self.producer_id if self.previous_producer_id == NO_ID else self.previous_producer_id,
            next_producer_id=NO_ID,
            next_producer_epoch=NO_EPOCH,
        )

    def identity_after(self) -> tuple[int, int]:
        """Who the client is once this prepared transaction is complete; what EndTxn answers."""
        if self.is_kept:
            return self.next_producer_id, self.next_producer_epoch
        if self.next_producer_id != NO_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch
