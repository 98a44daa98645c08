"""What transactional clients know: what each transaction wrote, whether its commit was asked for, and what came of it.

A transaction is all there or not at all. It is there if its commit was acknowledged, and not if its client never asked
for one; where an answer was lost it may be either. Values are unique, so that every one read tells its transaction.

A power loss that may take what was not synced may tear a transaction apart, and the ledger knows which: one that lost a
record, a marker, or what its coordinator knew of it before it was over. And whoever is given an epoch that was given
before, because the coordinator lost that it was: then the broker takes new batches for old ones. Of all others
everything is promised that is promised without power losses.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from mainstem.core.txn.states import OVER, Transaction, TxnState
from mainstem.sim.ledger import Place, Violation

Pair = tuple[int, int]
"""A producer id and an epoch."""


@dataclass(slots=True)
class Txn:
    number: int
    producer: str
    transactional_id: str
    group: str
    pair: Pair
    values: dict[bytes, Place] = field(default_factory=dict)
    reads: dict[bytes, None] = field(default_factory=dict)
    """What was read, of what others wrote, while it was open."""
    offset: int | None = None
    """The position of the group that it commits, if it does."""
    commit_sent: bool = False
    is_committed: bool = False
    """Whether somebody was told that it is."""
    is_torn: bool = False
    """Whether a power loss took a part of it, where it may."""
    ended_after: int | None = None
    """How many records its coordinator had written for its id when its end was first asked for."""
    asked_before: int = 0
    """How often its id had been asked for when it began."""

    @property
    def tag(self) -> str:
        """The metadata that its offset is committed with."""
        return f"transaction {self.number}"


@dataclass(slots=True, frozen=True)
class StateRecord:
    """What a coordinator has written of a transactional id."""

    index: int
    at: int
    state: TxnState
    pairs: frozenset[Pair]


class TxnLedger:
    def __init__(self, count: Callable[[str], None]) -> None:
        self.txns: list[Txn] = []
        self.by_value: dict[bytes, Txn] = {}
        self.read: dict[bytes, None] = {}
        """Everything that a reader of committed records has seen."""
        self.loses_nothing = True
        """Whether each acknowledgement is durable: then nothing is torn, whatever is lost."""
        self._given: dict[Pair, str] = {}
        self._identities: dict[str, list[Pair]] = {}
        self._states: dict[str, list[StateRecord]] = {}
        self._lost_pairs: dict[str, set[Pair]] = {}
        self._given_again: set[Pair] = set()
        self._given_before: set[Pair] = set()
        """What was given while the broker had another disk. On the older one that it has now a partition may have kept
        batches that the coordinator's log has lost: what is written under their epoch is taken for theirs."""
        self._by_tag: dict[str, Txn] = {}
        self._asked: dict[str, int] = {}
        """By transactional id how many asked to take it, and what was open with it, and have not been answered."""
        self._asked_ever: dict[str, int] = {}
        self._count = count

    # What clients do

    def begin(self, producer: str, transactional_id: str, group: str, pair: Pair) -> Txn:
        for before in reversed(self.txns):
            if before.transactional_id == transactional_id:
                self.ending(before)  # its client died, or it would have been ended
                break
        txn = Txn(len(self.txns), producer, transactional_id, group, pair)
        txn.asked_before = self._asked_ever.get(transactional_id, 0)
        if pair in self._given_again or pair in self._given_before:
            self._tear(txn)
        self.txns.append(txn)
        self._by_tag[txn.tag] = txn
        return txn

    def wrote(self, txn: Txn, value: bytes, place: Place) -> None:
        txn.values[value] = place
        self.by_value[value] = txn

    def ending(self, txn: Txn) -> None:
        """Its client asks for its end, or gives it up."""
        if txn.ended_after is None:
            txn.ended_after = len(self._states.get(txn.transactional_id, ()))

    def given(self, pair: Pair, to: str, transactional_id: str, after: Pair | None = None) -> None:
        """T4, T11: a producer id and epoch are one client's, once; again only where the coordinator lost it.

        Two that were given one epoch so are given one `after` it, too, when each ends its transaction: nothing tells
        the second from one that asks again.
        """
        owner = self._given.get(pair)
        self._given[pair] = to
        if owner is None:
            self._identities.setdefault(transactional_id, []).append(pair)
            return
        if pair not in self._lost_pairs.get(transactional_id, ()) and after not in self._given_again:
            raise Violation(
                "T4 an epoch is given once", f"producer {pair[0]} epoch {pair[1]} was given to {owner} and to {to}"
            )
        self._count("epoch given again after a loss")
        self._given_again.add(pair)
        for txn in self.txns:
            if txn.pair == pair:
                self._tear(txn)  # what comes late of it is the new owner's (N10)

    def asking(self, transactional_id: str) -> None:
        """A client asks for an id, and for the end of whatever is open."""
        self._asked[transactional_id] = self._asked.get(transactional_id, 0) + 1
        self._asked_ever[transactional_id] = self._asked_ever.get(transactional_id, 0) + 1

    def was_answered(self, transactional_id: str) -> None:
        self._asked[transactional_id] -= 1

    def may_be_taken(self, transactional_id: str) -> bool:
        """Whether such a request may still arrive (N10): nothing tells it from that of a newcomer."""
        return self._asked.get(transactional_id, 0) > 0

    def is_left_alone(self, transactional_id: str, pair: Pair) -> bool:
        """Whether the transaction of this identity is open, and nobody has asked for its end or for its id since."""
        newest = next((each for each in reversed(self.txns) if each.transactional_id == transactional_id), None)
        return (
            newest is not None
            and newest.pair == pair
            and newest.ended_after is None
            and not newest.is_torn
            and not self.may_be_taken(transactional_id)
            and newest.asked_before == self._asked_ever.get(transactional_id, 0)
        )

    def was_given(self, pair: Pair) -> bool:
        return pair in self._given

    def identities(self) -> dict[str, list[Pair]]:
        """By transactional id all that were given to its clients, the last ones last."""
        return self._identities

    def seen(self, place: Place, offset: int, value: bytes) -> None:
        """A reader of committed records was given this."""
        txn = self.by_value.get(value)
        if txn is None:
            return  # not written in a transaction
        self.read[value] = None
        if not txn.commit_sent and not txn.is_torn:
            raise Violation(
                "G1a",
                f"{place} gave {value!r} of transaction {txn.number} at {offset}, and no commit was ever asked for",
            )

    # What is in the logs, and what of it is lost

    def log_state(self, transactional_id: str, index: int, at: int, txn: Transaction | None) -> None:
        if txn is not None:
            pairs = {(txn.producer_id, txn.producer_epoch), (txn.client_id, txn.client_epoch), txn.identity_after()}
            record = StateRecord(index, at, txn.state, frozenset(pairs))
            self._states.setdefault(transactional_id, []).append(record)

    def cut_states(self, index: int, end: int) -> None:
        """The log of a coordinator came back with this end."""
        for transactional_id, records in self._states.items():
            lost: list[StateRecord] = []
            while records and records[-1].index == index and records[-1].at >= end:
                lost.append(records.pop())
            if not lost or self.loses_nothing:
                continue
            pairs = self._lost_pairs.setdefault(transactional_id, set())
            for record in lost:
                pairs |= record.pairs
            for txn in self.txns:
                if txn.transactional_id == transactional_id and not self._was_over(txn, records):
                    self._tear(txn)

    def _was_over(self, txn: Txn, records: list[StateRecord]) -> bool:
        return txn.ended_after is not None and any(record.state in OVER for record in records[txn.ended_after :])

    def cut_records(self, changes: list[tuple[int, list[Txn] | None, bool]]) -> None:
        """Another log came back: of each change in it the producer id, the transactions it is of, whether it is lost.

        A marker has no transactions of its own: it is of all that its producer had open.
        """
        if self.loses_nothing:
            return
        open_of: dict[int, list[Txn]] = {}
        for producer_id, txns, is_lost in changes:
            if txns is None:
                touched = open_of.pop(producer_id, [])
            else:
                touched = txns
                open_of.setdefault(producer_id, []).extend(txns)
            if is_lost:
                for txn in touched:
                    self._tear(txn)

    def find(self, value: bytes | None, tag: str | None = None) -> Txn | None:
        return self._by_tag.get(tag) if tag is not None else self.by_value.get(value or b"")

    def _tear(self, txn: Txn) -> None:
        if not txn.is_torn:
            txn.is_torn = True
            self._count("transaction torn by a power loss")

    def is_torn_at(self, producer_id: int, epoch: int = 0) -> bool:
        """Whether a transaction of this producer may be open for ever: the coordinator lost it, or thinks it over.

        What is said of an epoch, if one is named, may be about one that was torn under it, or the one before: the end
        of a transaction raises it. What comes after those is held to every promise again.
        """
        return any(txn.is_torn and txn.pair[0] == producer_id and txn.pair[1] >= epoch - 1 for txn in self.txns)

    def forget(self) -> None:
        """The broker has another disk: what was acknowledged may be gone, and epochs are given once more."""
        for txn in self.txns:
            txn.is_torn = True
        self.read.clear()
        if not self.loses_nothing:
            self._given_before.update(self._given)
        self._given.clear()
        self._identities.clear()
        self._states.clear()
        self._lost_pairs.clear()
        self._given_again.clear()
