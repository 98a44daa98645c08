"""T1: a batch, told by its producer id, epoch and sequence, is appended once.

Judged at every append, by what is in the log. But for a producer that was silent for `producer.id.expiration.ms`: the
broker may have forgotten it (C5), and then knows neither its batches nor what sequence is next. So a copy that comes
later is appended again, and so are those behind it, and whatever is older than the first that came is out of order.
Kafka is no better. What is promised then is that the producer can go on: the batch after its last one is taken.

T2: a batch follows the one before it of its producer, and in a new epoch the first has sequence 0. What leaves a gap is
refused, so that nothing behind a batch that was lost, on the way or with the power, is taken in its place. Not asked of
a producer that may have been forgotten: who is not known may begin anywhere.

When a producer may have been forgotten is told by the timestamps of its batches and the broker's clock, which goes
forward between two jumps: whoever is not old before a jump, and not old now, never was.
"""

from typing import Any

from mainstem.protocol.batch import BatchView
from mainstem.protocol.records import iterate_records
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Place, Violation
from mainstem.sim.workloads import SEQUENCE_END, identity

Key = tuple[Place, int]
"""A partition and a producer id."""


class Next:
    """What a producer's next batch must be, in this log and this epoch."""

    __slots__ = ("epoch", "log", "sequence")

    def __init__(self, log: object, epoch: int, sequence: int) -> None:
        self.log = log
        self.epoch = epoch
        self.sequence = sequence


def _after(batch: BatchView, log: object) -> Next:
    return Next(log, batch.producer_epoch, (batch.last_sequence + 1) % SEQUENCE_END)


class AppendedOnce(Checker):
    def __init__(self, world: object) -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self._appended: dict[Place, dict[tuple[int, int, int], int]] = {}
        """By identity, where each batch is."""
        self._newest: dict[Key, BatchView] = {}
        self._next: dict[Key, Next] = {}
        """Not of those of which anything may come."""
        self._old: dict[Key, None] = {}
        """Those that were old before the clock jumped, and have appended nothing since."""
        self._forgotten: dict[Key, None] = {}
        """Those that may have been forgotten, ever."""
        self._repeated: dict[Key, None] = {}
        """Those of which a copy was appended."""
        self.excused: dict[bytes, None] = {}
        """The records of such copies, and of a batch that came late and was taken though what was before it is lost:
        of them it is promised neither that they are there once nor that they are in order."""
        self.world.process.clock.before_jump = self._before_jump

    def appended(self, place: Place, batch: BatchView) -> None:
        if batch.producer_id < 0:
            return
        key = (place, batch.producer_id)
        is_forgotten = self.may_be_forgotten(place, batch.producer_id)
        if batch.is_control:
            self._marker(key, batch)
        elif batch.base_sequence >= 0:
            self._check(key, batch, is_forgotten)
            self._check_follows(key, batch, is_forgotten)
        self._newest[key] = batch
        self._old.pop(key, None)

    def _check(self, key: Key, batch: BatchView, is_forgotten: bool) -> None:
        place, producer_id = key
        there = self._appended.setdefault(place, {})
        name = (producer_id, batch.producer_epoch, batch.base_sequence)
        first = there.get(name)
        there[name] = batch.base_offset
        if first is None:
            if is_forgotten and key in self._newest:
                self.world.count("C5 idle producer came back")
                if not self._is_next(key, batch.base_sequence):
                    self._excuse(batch)
        elif is_forgotten or key in self._repeated:
            self.world.count("C5 copy appended after expiry")
            self._repeated[key] = None
            self._excuse(batch)
        elif not self.world.may_be_torn(producer_id, batch.producer_epoch) and place not in self.world.ledger.damaged:
            raise Violation(
                "T1 a batch is appended once",
                f"{place[0]}-{place[1]}: sequence {name[2]} of producer {producer_id} epoch {name[1]} is at {first} "
                f"and at {batch.base_offset}",
            )

    def _marker(self, key: Key, batch: BatchView) -> None:
        """It may raise the epoch of its producer (KIP-890)."""
        known = self._next.get(key)
        if known is not None and known.epoch != batch.producer_epoch:
            known.epoch, known.sequence = batch.producer_epoch, 0

    def _check_follows(self, key: Key, batch: BatchView, is_forgotten: bool) -> None:
        place, producer_id = key
        log = self._log(place)
        known = self._next.get(key)
        epoch = batch.producer_epoch
        self._next[key] = _after(batch, log)
        # What a start finds was judged when it was appended, and compaction may have left gaps since.
        if known is None or known.log is not log or is_forgotten or not self.world.process.is_serving:
            return
        due = known.sequence if epoch == known.epoch else 0
        if epoch >= known.epoch and batch.base_sequence != due and place not in self.world.ledger.damaged:
            raise Violation(
                "T2 a gap is refused",
                f"{place[0]}-{place[1]}: sequence {due} of producer {producer_id} epoch {epoch} was due, and "
                f"{batch.base_sequence} is at {batch.base_offset}",
            )

    def _lost(self, place: Place, end: int, kept: list[BatchView], lost: list[BatchView]) -> None:
        """Of who lost a batch at the end of the log the broker knows what is before it. Not where compaction may have
        taken that, or what was lost lay below the log's start: then it depends on what a snapshot has of it. So it may
        have where the log comes back with nothing behind its start."""
        known: dict[int, bool] = {}
        for batch in lost:
            self._next.pop((place, batch.producer_id), None)
            known[batch.producer_id] = batch.base_offset >= end and known.get(batch.producer_id, True)
        if self._may_lack_batches(place, end):
            return
        log = self._log(place)
        for batch in kept:
            if known.get(batch.producer_id, False):
                key = (place, batch.producer_id)
                if batch.is_control:
                    self._marker(key, batch)
                elif batch.base_sequence >= 0:
                    self._next[key] = _after(batch, log)

    def _log(self, place: Place) -> object:
        """What is one as long as the topic is: of another one of its name the broker knows no producer."""
        world: Any = self.world
        return world.written.find(place)

    def _may_lack_batches(self, place: Place, end: int) -> bool:
        broker = self.world.process.broker
        log = None if broker is None else broker.partitions.dirs.logs.get(place)
        return log is None or log.config.compact or log.log_start == end

    def _is_next(self, key: Key, sequence: int) -> bool:
        newest = self._newest.get(key)
        return newest is not None and (newest.last_sequence + 1) % SEQUENCE_END == sequence

    def _excuse(self, batch: BatchView) -> None:
        for record in iterate_records(batch):
            self.excused[identity(record)] = None

    def reopened(self, place: Place, end: int, kept: list[BatchView], lost: list[BatchView]) -> None:
        if not lost:
            return
        there = self._appended.get(place, {})
        for name in [name for name, at in there.items() if at >= end]:
            del there[name]
        self._lost(place, end, kept, lost)
        for key in [key for key in self._newest if key[0] == place]:
            del self._newest[key]
        for batch in kept:
            if batch.producer_id >= 0:
                self._newest[place, batch.producer_id] = batch
        # What made it known again may be lost, and what it is known by now be from the time between.
        for key in [key for key in self._forgotten if key[0] == place]:
            self._old[key] = None

    def forget(self) -> None:
        for each in (self._appended, self._newest, self._next, self._old, self._forgotten, self._repeated):
            each.clear()

    # Who may have been forgotten

    def _is_old(self, key: Key) -> bool:
        newest = self._newest.get(key)
        if newest is None:
            return False
        return self.world.process.clock.wall_ms() - newest.max_timestamp >= self.world.producer_expiration_ms

    def _before_jump(self) -> None:
        for key in self._newest:
            if self._is_old(key):
                self._old[key] = None

    def may_be_forgotten(self, place: Place, producer_id: int) -> bool:
        """Whether the broker may have forgotten it since its last batch."""
        key = (place, producer_id)
        if key not in self._old and not self._is_old(key):
            return False
        self._forgotten[key] = None
        return True

    def has_forgotten(self, topic: str) -> bool:
        """Whether some producer to this topic may have been forgotten, ever."""
        for place, producer_id in self._newest:
            self.may_be_forgotten(place, producer_id)
        return any(place[0] == topic for place, _ in self._forgotten)

    def may_be_out_of_order(self, place: Place, producer_id: int, sequence: int) -> bool:
        """Whether a batch may rightly be refused because the broker has forgotten what was before it.

        Not where it comes next: known or not, that one is taken (Redpanda #22670).
        """
        key = (place, producer_id)
        if not self.may_be_forgotten(place, producer_id) and key not in self._forgotten:
            return False
        return key in self._repeated or not self._is_next(key, sequence)
