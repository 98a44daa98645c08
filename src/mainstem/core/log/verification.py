"""What a partition's leader knows of transactions that are about to begin on it (KIP-890).

The first batch of a transaction is taken only once the coordinator has said that the partition is part of it, or has
made it so. Meanwhile the producer has an entry here, with a guard: a number that the batch brings back. Whatever ends
or begins a transaction of that producer in between takes the entry away, and with it the right to append, so that a
batch that comes late cannot begin a transaction that nobody would end (KAFKA-14884: a guard is given once, so an entry
that went away and came back is told from the first).

- Of batches that wait together, none may be first that has not the lowest sequence among them.
- A producer of transaction version 2 begins each transaction at sequence 0, because its epoch is a new one.
- The marker of version 2's last transaction may come when its client has begun the next: it leaves the entry of the
  epoch it begins (KAFKA-18575), or of a later one, which a client has that came back to a prepared transaction.

A client that comes back to its prepared transaction (KIP-939) must not find more in it than it had prepared, though its
predecessor's epoch is still that of the open transaction (T4). So its coordinator fences the transaction here: nothing
more of that epoch is taken until its marker comes. A fence is not in the log. A leader that begins a term therefore
doubts all transactions that it finds open: the next batch of each is verified like a first one, and the coordinator,
which knows who the client is, says no to the predecessor.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mainstem.protocol.errors import ErrorCode, RemoteError

NO_GUARD: Final = 0


class _Entry:
    __slots__ = ("epoch", "guard", "lowest_sequence", "raises_epoch", "since_ms")

    def __init__(self, guard: int, sequence: int, epoch: int, raises_epoch: bool, now_ms: int) -> None:
        self.guard = guard
        self.lowest_sequence = sequence
        self.epoch = epoch
        self.raises_epoch = raises_epoch
        self.since_ms = now_ms


class Verifications:
    __slots__ = ("_doubted", "_entries", "_fences", "_last_guard")

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}
        self._last_guard = NO_GUARD
        self._fences: dict[int, int] = {}
        """By producer id the highest epoch of which nothing is taken."""
        self._doubted: set[int] = set()

    def __len__(self) -> int:
        return len(self._entries)

    def begin(self, producer_id: int, sequence: int, epoch: int, raises_epoch: bool, now_ms: int) -> int:
        """The guard that the producer's next batch must bring. `raises_epoch` is transaction version 2."""
        entry = self._entries.get(producer_id)
        if entry is None:
            self._last_guard += 1
            entry = self._entries[producer_id] = _Entry(self._last_guard, sequence, epoch, raises_epoch, now_ms)
        elif epoch == entry.epoch:
            entry.lowest_sequence = min(entry.lowest_sequence, sequence)
        elif epoch > entry.epoch:
            entry.epoch = epoch
            entry.lowest_sequence = sequence
        return entry.guard

    def check(self, producer_id: int, guard: int) -> None:
        """Raises RemoteError unless the batch that begins a transaction was verified."""
        entry = self._entries.get(producer_id)
        if entry is None or guard == NO_GUARD or entry.guard != guard:
            raise RemoteError(
                ErrorCode.INVALID_TXN_STATE, f"a batch of producer {producer_id} is not part of an open transaction"
            )

    def check_sequence(self, producer_id: int, sequence: int, is_known: bool) -> None:
        """Raises RemoteError where the batch is not the first that may come; `is_known` is whether any came before."""
        entry = self._entries.get(producer_id)
        if entry is None:
            return
        if sequence > entry.lowest_sequence or (entry.raises_epoch and sequence != 0 and not is_known):
            raise RemoteError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} begins a transaction with sequence {sequence}, others come before it",
            )

    def appended(self, producer_id: int, epoch: int, is_marker: bool) -> None:
        """A batch of a transaction is in the log."""
        self._doubted.discard(producer_id)
        if is_marker:
            self._fences.pop(producer_id, None)
        entry = self._entries.get(producer_id)
        if entry is not None and not (is_marker and entry.raises_epoch and entry.epoch >= epoch):
            del self._entries[producer_id]

    # Transactions that go on

    def fence(self, producer_id: int, epoch: int) -> None:
        self._fences[producer_id] = max(epoch, self._fences.get(producer_id, epoch))

    def check_fence(self, producer_id: int, epoch: int) -> None:
        """Raises RemoteError where another client has taken the transaction over."""
        fence = self._fences.get(producer_id)
        if fence is not None and epoch <= fence:
            raise RemoteError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} has epoch {epoch}; another client has taken its transaction over",
            )

    def doubt(self, producer_ids: Iterable[int]) -> None:
        self._doubted.update(producer_ids)

    def is_doubted(self, producer_id: int) -> bool:
        return producer_id in self._doubted

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        for producer_id in [p for p, entry in self._entries.items() if now_ms - entry.since_ms >= expiration_ms]:
            del self._entries[producer_id]
