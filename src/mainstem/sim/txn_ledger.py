"""What transactional clients know: what each transaction wrote, whether its commit was asked for, and what came of it.

A transaction is all there or not at all. It is there if its commit was acknowledged, and not if its client never asked
for one; where an answer was lost it may be either. Values are unique, so that every one read tells its transaction.
"""

from dataclasses import dataclass, field

from mainstem.sim.ledger import Place, Violation


@dataclass(slots=True)
class Txn:
    number: int
    producer: str
    group: str
    values: dict[bytes, Place] = field(default_factory=dict)
    offset: int | None = None
    """The position of the group that it commits, if it does."""
    commit_sent: bool = False
    is_committed: bool = False
    """Whether somebody was told that it is."""


class TxnLedger:
    def __init__(self) -> None:
        self.txns: list[Txn] = []
        self.by_value: dict[bytes, Txn] = {}
        self.read: dict[bytes, None] = {}
        """Everything that a reader of committed records has seen."""
        self.is_sure = True
        """Whether nothing can have been lost, with the power or with the disk."""
        self._given: dict[tuple[int, int], str] = {}

    def begin(self, producer: str, group: str) -> Txn:
        txn = Txn(len(self.txns), producer, group)
        self.txns.append(txn)
        return txn

    def wrote(self, txn: Txn, value: bytes, place: Place) -> None:
        txn.values[value] = place
        self.by_value[value] = txn

    def given(self, producer_id: int, epoch: int, to: str) -> None:
        """T4, T11: a producer id and epoch are one client's, once."""
        owner = self._given.setdefault((producer_id, epoch), to)
        if owner != to and self.is_sure:
            raise Violation(
                "T4 an epoch is given once", f"producer {producer_id} epoch {epoch} was given to {owner} and to {to}"
            )

    def seen(self, place: Place, offset: int, value: bytes) -> None:
        """A reader of committed records was given this."""
        txn = self.by_value.get(value)
        if txn is None:
            return  # not written in a transaction
        self.read[value] = None
        if not txn.commit_sent:
            raise Violation(
                "T5 nobody reads what is not committed",
                f"{place} gave {value!r} of transaction {txn.number} at {offset}, and no commit was ever asked for",
            )

    def lost_power(self) -> None:
        self.is_sure = False

    def forget(self) -> None:
        """The broker has another disk: what was acknowledged may be gone, and epochs are given once more."""
        self.is_sure = False
