"""T4: what a partition knows of a transactional producer stays `producer.id.expiration.ms` after the last batch or
marker of that producer: its epoch, without which a zombie would not be told from a newcomer, and the epoch of the
coordinator that sent its last marker, without which an older coordinator would be believed (KAFKA-9144).

What is expected is told by the batches alone, as they were appended, where compaction leaves them alone. Looked at
after each step in which something was appended, or in which a partition knows fewer producers than before.
"""

from typing import NamedTuple

from mainstem.broker.app import Broker
from mainstem.core.log.producers import Producer
from mainstem.protocol.batch import BatchView
from mainstem.protocol.control import parse_end_marker
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Place, Violation
from mainstem.sim.txn_workload import PLACES


class _Last(NamedTuple):
    """The last that was heard of a producer."""

    timestamp_ms: int
    epoch: int
    coordinator_epoch: int


class _OnPartition:
    def __init__(self) -> None:
        self.last: dict[int, _Last] = {}
        self.is_changed = True
        self.known = 0

    def apply(self, batch: BatchView) -> None:
        self.is_changed = True
        before = self.last.get(batch.producer_id)
        coordinator_epoch = -1 if before is None else before.coordinator_epoch
        marker = parse_end_marker(batch) if batch.is_control else None
        if marker is not None:
            coordinator_epoch = marker.coordinator_epoch
        self.last[batch.producer_id] = _Last(batch.max_timestamp, batch.producer_epoch, coordinator_epoch)


class ProducersAreKnown(Checker):
    def __init__(self, world: object) -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self._partitions: dict[Place, _OnPartition] = {}
        self._latest_ms = 0
        """The latest that the broker's clock has ever said: what was too old once is gone for good."""

    def _follows(self, place: Place) -> bool:
        return place in PLACES and not self.world.is_keyed(place[0])

    def appended(self, place: Place, batch: BatchView) -> None:
        if self._follows(place) and batch.is_transactional:
            self._on(place).apply(batch)

    def reopened(self, place: Place, end: int, kept: list[BatchView], lost: list[BatchView]) -> None:
        self._partitions.pop(place, None)
        if self._follows(place):
            for batch in kept:
                if batch.is_transactional:
                    self._on(place).apply(batch)

    def forget(self) -> None:
        self._partitions.clear()

    def _on(self, place: Place) -> _OnPartition:
        found = self._partitions.get(place)
        if found is None:
            found = self._partitions[place] = _OnPartition()
        return found

    def after_step(self, broker: Broker) -> None:
        now_ms = self.world.process.clock.wall_ms()
        if now_ms > self._latest_ms:
            self._latest_ms = now_ms
        if not self._partitions:
            return
        here = broker.partitions.by_place
        for place, expected in self._partitions.items():
            partition = here.get(place)
            if partition is None or partition.log.failure is not None or place in self.world.ledger.damaged:
                continue
            states = partition.log.producers.states
            if not expected.is_changed and len(states) >= expected.known:
                continue
            expected.is_changed, expected.known = False, len(states)
            for producer_id, last in expected.last.items():
                if self._latest_ms - last.timestamp_ms < partition.log.producers.expiration_ms:
                    self._check(place, producer_id, last, states.get(producer_id))

    def _check(self, place: Place, producer_id: int, last: _Last, known: Producer | None) -> None:
        epochs = {last.coordinator_epoch}
        if self.world.producers_expire:
            epochs.add(-1)  # it was silent for so long that it was forgotten, and came back
        if known is not None and known.epoch == last.epoch and known.coordinator_epoch in epochs:
            self.world.count("producer is known")
            return
        found = "nothing" if known is None else f"epoch {known.epoch}, coordinator epoch {known.coordinator_epoch}"
        raise Violation(
            "T4 a producer is known its time",
            f"{place[0]}-{place[1]}: of producer {producer_id} the log says {last}, and the broker knows {found}",
        )
