"""What the logs say of transactions, read past the broker as it is written: what coordinators have noted of each
transactional id, and what is open on each partition.

Checkers that judge a batch by what was before it follow the logs ahead of this.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from mainstem.core.txn.records import read_record
from mainstem.core.txn.states import NO_EPOCH, NO_ID, NO_TIME, PREPARE_COMMIT, PREPARED, Transaction
from mainstem.protocol.batch import BatchView
from mainstem.protocol.control import parse_end_marker
from mainstem.protocol.records import iterate_records
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Place
from mainstem.sim.verified import Whose
from mainstem.sim.written import STATE_TOPIC

Decision = tuple[int, int, bool]
"""A producer id, the epoch of its markers, and whether they commit."""

StateRecord = tuple[int, str, Transaction | None]
"""Its offset, the transactional id, and what is noted of it; None where that is forgotten."""


def in_words(txn: Transaction | None) -> str:
    """What is noted of a transactional id, all of it, for a report."""
    if txn is None:
        return "nothing"
    told = [f"{txn.transactional_id} as producer {txn.producer_id} epoch {txn.producer_epoch}, {txn.state.label}"]
    if txn.partitions:
        told.append("on " + " and ".join(f"{topic}-{index}" for topic, index in txn.partitions))
    if txn.start_ms != NO_TIME:
        told.append(f"begun at {txn.start_ms}")
    told.append(f"changed at {txn.updated_ms}")
    if txn.previous_producer_id != NO_ID:
        told.append(f"before that producer {txn.previous_producer_id}")
    if txn.next_producer_id != NO_ID or txn.next_producer_epoch != NO_EPOCH:
        told.append(f"next producer {txn.next_producer_id} epoch {txn.next_producer_epoch}")
    return ", ".join((*told, f"time-out {txn.timeout_ms} ms, version {txn.client_version}"))


@dataclass(slots=True)
class OnPartition:
    """The transactions of one partition."""

    open: dict[int, int]
    """Where each begins, by producer id."""
    ended: dict[int, int]
    """The offset of its marker by where each begins, until somebody knows that it is below the high watermark."""
    ended_before: dict[int, int] = field(default_factory=dict)
    """The same of those that had ended when the log was opened last."""
    open_before: dict[int, int] = field(default_factory=dict)
    """Where each began that was open then, by producer id."""

    def apply(self, batch: BatchView) -> None:
        if not batch.is_control:
            # What compaction left of a batch that had everything removed opens nothing.
            if batch.record_count:
                self.open.setdefault(batch.producer_id, batch.base_offset)
        elif parse_end_marker(batch) is not None:
            first = self.open.pop(batch.producer_id, None)
            if first is not None:
                self.ended[first] = batch.base_offset

    def start_after_it(self) -> None:
        """The broker was started when everything here was in the log."""
        self.open_before = dict(self.open)
        self.ended_before |= self.ended
        self.ended.clear()


class TxnLogs(Checker):
    def __init__(self, world: object) -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self.states: dict[int, dict[str, Transaction]] = {}
        """By the partition of the coordinator's topic, the newest record of each transactional id."""
        self.partitions: dict[Place, OnPartition] = {}
        self.decisions: set[Decision] = set()
        """Everything that was ever decided."""
        self.markers: Counter[Whose] = Counter()
        """How many were written, by partition, producer id and epoch."""
        self.changes = 0
        """Counts what moved any of this."""
        self.is_of_another_disk = False
        """Whether there is a past that was not watched, of which the logs may have kept only a part."""
        self._owners: dict[int, tuple[int, str]] = {}
        self._read: dict[BatchView, list[StateRecord]] = {}

    def read(self, batch: BatchView) -> list[StateRecord]:
        """The records of a batch of a coordinator; several checkers ask, and after each start again."""
        found = self._read.get(batch)
        if found is None:
            found = []
            for record in iterate_records(batch):
                assert record.key is not None
                transactional_id, txn = read_record(record.key, record.value)
                found.append((record.offset, transactional_id, txn))
            self._read[batch] = found
        return found

    def current(self, producer_id: int) -> Transaction | None:
        """What is noted of the transactional id that has this producer id now."""
        owner = self._owners.get(producer_id)
        if owner is None:
            return None
        txn = self.states.get(owner[0], {}).get(owner[1])
        return txn if txn is not None and txn.producer_id == producer_id else None

    def markers_in(self, whose: Iterable[Whose]) -> int:
        return sum(self.markers[each] for each in whose)

    def appended(self, place: Place, batch: BatchView) -> None:
        if place[0] == STATE_TOPIC:
            self.changes += 1
            self._note(place[1], batch)
        elif batch.is_transactional:
            self.changes += 1
            if batch.is_control:
                self.markers[place, batch.producer_id, batch.producer_epoch] += 1
            found = self._on(place)
            found.apply(batch)
            if not self.world.process.is_serving:  # a start has found it, on a disk that was not watched before (X6)
                found.start_after_it()

    def reopened(self, place: Place, end: int, kept: list[BatchView], lost: list[BatchView]) -> None:
        self.changes += 1
        if place[0] == STATE_TOPIC:
            self.states[place[1]] = {}
            for batch in kept:
                self._note(place[1], batch)
        elif place in self.partitions or any(batch.is_transactional for batch in kept):
            self.partitions.pop(place, None)
            for batch in kept:
                if batch.is_transactional:
                    self._on(place).apply(batch)
            found = self.partitions.get(place)
            if found is not None:
                found.start_after_it()

    def forget(self) -> None:
        self.changes += 1
        self.is_of_another_disk = True
        self.states.clear()
        self.partitions.clear()
        self.decisions.clear()
        self.markers.clear()
        self._owners.clear()
        self._read.clear()

    def _on(self, place: Place) -> OnPartition:
        found = self.partitions.get(place)
        if found is None:
            found = self.partitions[place] = OnPartition({}, {})
        return found

    def _note(self, index: int, batch: BatchView) -> None:
        states = self.states.setdefault(index, {})
        for _, transactional_id, txn in self.read(batch):
            if txn is None:
                states.pop(transactional_id, None)
                continue
            states[transactional_id] = txn
            self._owners[txn.producer_id] = (index, transactional_id)
            if txn.state in PREPARED:
                self.decisions.add((txn.producer_id, txn.producer_epoch, txn.state is PREPARE_COMMIT))
