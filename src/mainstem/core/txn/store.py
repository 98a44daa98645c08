"""What a transaction coordinator must not lose, as its log tells it: the newest record of each transactional id.

State changes only in `replay`. A tombstone for what is not there does nothing. `keep` and `revert` bracket records that
were replayed before they were written: `revert` takes back what was replayed since.
"""

from __future__ import annotations

from mainstem.core.txn.records import read_record
from mainstem.core.txn.states import ONGOING, Transaction


class TxnStore:
    __slots__ = ("_journal", "all", "ongoing")

    def __init__(self) -> None:
        self.all: dict[str, Transaction] = {}
        self.ongoing: dict[str, None] = {}
        """The ids in `all` whose transaction is open: those that a time-out may concern."""
        self._journal: list[tuple[str, Transaction | None]] = []
        """What each id was before it was replayed since `keep`, oldest first."""

    def get(self, transactional_id: str) -> Transaction | None:
        return self.all.get(transactional_id)

    def replay(self, key: bytes, value: bytes | None) -> None:
        transactional_id, txn = read_record(key, value)
        self._journal.append((transactional_id, self.all.get(transactional_id)))
        self._put(transactional_id, txn)

    def keep(self) -> None:
        self._journal.clear()

    def revert(self) -> None:
        while self._journal:
            self._put(*self._journal.pop())

    def _put(self, transactional_id: str, txn: Transaction | None) -> None:
        if txn is None:
            self.all.pop(transactional_id, None)
        else:
            self.all[transactional_id] = txn
        if txn is not None and txn.state is ONGOING:
            self.ongoing[transactional_id] = None
        else:
            self.ongoing.pop(transactional_id, None)
