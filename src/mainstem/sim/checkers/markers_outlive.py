"""C4: the marker of a transaction stays in the log as long as a record of the transaction does.

Its own marker, and no other of the same producer: which one that is, the log says as it was written, before anything
was compacted. Looked at after each cleaning of a log that has transactions, and at the end.
"""

from mainstem.broker.app import Broker
from mainstem.protocol.batch import BatchView, iterate_batches
from mainstem.protocol.control import parse_end_marker
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Place, Violation
from mainstem.storage.cleaning import Cleaning
from mainstem.storage.log import Log


class MarkersOutlive(Checker):
    def __init__(self, world: object) -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self._begun: dict[Cleaning, Place] = {}

    def died(self, broker: Broker | None, how: str) -> None:
        self._begun.clear()

    def after_step(self, broker: Broker) -> None:
        cleaner = broker.compaction.cleaner
        if cleaner is None or not (cleaner.running or self._begun):
            return
        for place, cleaning in cleaner.running.items():
            if place in self.world.txn_logs.partitions:
                self._begun.setdefault(cleaning, place)
        for cleaning, place in list(self._begun.items()):
            if cleaning.is_over:
                del self._begun[cleaning]
                if cleaning.is_done:
                    self._check(place, cleaning.log)

    def at_end(self, broker: Broker) -> None:
        for place in self.world.txn_logs.partitions:
            partition = broker.partitions.get(*place)
            if partition is not None:
                self._check(place, partition.log)

    def _check(self, place: Place, log: Log) -> None:
        written = self.world.written.find(place)
        if written is None or place in self.world.ledger.damaged:
            return
        ends = ends_of(written.batches)
        markers: dict[int, bool] = {}
        records: dict[int, BatchView] = {}
        for segment in log.segments:
            data = self.world.disk.peek(segment.log.path)[: segment.size]
            for batch in iterate_batches(data, 0, len(data)):
                if not batch.is_transactional or not batch.record_count:
                    continue
                if not batch.is_control:
                    records[batch.last_offset] = batch
                elif (marker := parse_end_marker(batch)) is not None:
                    markers[batch.base_offset] = marker.commit
        for offset, batch in records.items():
            end = ends.get(offset)
            if end is not None and markers.get(end[0]) != end[1]:
                raise Violation(
                    "C4 a marker outlives its data",
                    f"{place[0]}-{place[1]}: records of producer {batch.producer_id} up to {offset} are there, and "
                    f"the {'commit' if end[1] else 'abort'} at {end[0]} is not",
                )
        if records:
            self.world.count("markers looked for")


def ends_of(written: list[BatchView]) -> dict[int, tuple[int, bool]]:
    """By the last offset of each batch of a transaction, where its marker was written, and whether that commits."""
    ends: dict[int, tuple[int, bool]] = {}
    next_marker: dict[int, tuple[int, bool]] = {}
    for batch in reversed(written):
        if not batch.is_transactional:
            continue
        if not batch.is_control:
            if batch.producer_id in next_marker:
                ends[batch.last_offset] = next_marker[batch.producer_id]
        elif (marker := parse_end_marker(batch)) is not None:
            next_marker[batch.producer_id] = (batch.base_offset, marker.commit)
    return ends
