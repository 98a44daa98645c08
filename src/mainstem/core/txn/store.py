"""What a transaction coordinator must not lose, as its log tells it: the newest record of each transactional id.

Beside it stands the one thing that Kafka's record has no place for: the epoch that the client of an Empty id named when
it was given its own, because that InitProducerId may come again. It lives and goes with the record that it belongs to;
whoever takes over does not know it, in Kafka too.

State changes only in `replay`. A tombstone for what is not there does nothing. `keep` and `revert` bracket records that
were replayed before they were written: `revert` takes back what was replayed since.
"""

from __future__ import annotations

from mainstem.core.txn.records import read_record
from mainstem.core.txn.states import NO_EPOCH, ONGOING, Transaction


class TxnStore:
    __slots__ = ("_expected", "_journal", "_last_epochs", "all", "ongoing")

    def __init__(self) -> None:
        self.all: dict[str, Transaction] = {}
        self.ongoing: dict[str, None] = {}
        """The ids in `all` whose transaction is open: those that a time-out may concern."""
        self._last_epochs: dict[str, int] = {}
        self._expected: tuple[str, int] | None = None
        """The last epoch that goes with the next record of that id."""
        self._journal: list[tuple[str, Transaction | None, int]] = []
        """What each id was before it was replayed since `keep`, oldest first."""

    def get(self, transactional_id: str) -> Transaction | None:
        return self.all.get(transactional_id)

    def last_epoch(self, transactional_id: str) -> int:
        return self._last_epochs.get(transactional_id, NO_EPOCH)

    def expect_last_epoch(self, transactional_id: str, epoch: int) -> None:
        """The step that is taken now writes a record of the id, with which this epoch goes."""
        self._expected = (transactional_id, epoch)

    def replay(self, key: bytes, value: bytes | None) -> None:
        transactional_id, txn = read_record(key, value)
        expected, self._expected = self._expected, None
        last = expected[1] if expected is not None and expected[0] == transactional_id else NO_EPOCH
        self._journal.append((transactional_id, self.all.get(transactional_id), self.last_epoch(transactional_id)))
        self._put(transactional_id, txn, last)

    def keep(self) -> None:
        self._journal.clear()

    def revert(self) -> None:
        while self._journal:
            self._put(*self._journal.pop())

    def _put(self, transactional_id: str, txn: Transaction | None, last_epoch: int) -> None:
        if last_epoch == NO_EPOCH:
            self._last_epochs.pop(transactional_id, None)
        else:
            self._last_epochs[transactional_id] = last_epoch
        if txn is None:
            self.all.pop(transactional_id, None)
        else:
            self.all[transactional_id] = txn
        if txn is not None and txn.state is ONGOING:
            self.ongoing[transactional_id] = None
        else:
            self.ongoing.pop(transactional_id, None)
