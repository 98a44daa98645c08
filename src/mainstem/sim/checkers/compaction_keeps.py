"""What compaction may take, checked cleaning by cleaning: the log as it was when one began, and as it left it.

- C1: the newest record of each key stays, and no record that stays has changed.
- C2: nothing is cleaned past the last stable offset, the recovery point or the active segment, nothing of a
  transaction whose marker is past the recovery point, and nothing for the first time that is younger than
  `min.compaction.lag.ms`.
- C3: a tombstone gets its delete horizon when it is first cleaned, `delete.retention.ms` ahead, goes only when that has
  passed, and never before an older value of its key.
- C5: the last batch of each producer that is known stays, if only as a header.
- C6: a cleaning gets on: one that ends where it began would begin again without end (KAFKA-8764).

Files are read from the disk's memory, past the broker. Which records of transactions count is told by the markers, as
they were written: an aborted one is no newer value of its key. On a disk that nobody has watched they cannot be told.
"""

from dataclasses import dataclass, field

from mainstem.broker.app import Broker
from mainstem.protocol.batch import iterate_batches
from mainstem.protocol.records import iterate_records
from mainstem.sim.checkers import Checker
from mainstem.sim.checkers.markers_outlive import ends_of
from mainstem.sim.ledger import Place, Violation
from mainstem.storage.cleaning import Cleaning


@dataclass(slots=True)
class SeenBatch:
    last_offset: int
    max_timestamp: int
    horizon_ms: int | None
    is_transactional: bool


@dataclass(slots=True)
class SeenRecord:
    key: bytes | None
    value: bytes | None
    batch: SeenBatch


@dataclass(slots=True)
class Contents:
    """Some of a log, in the order of its offsets."""

    records: dict[int, SeenRecord] = field(default_factory=dict)
    batch_ends: dict[int, None] = field(default_factory=dict)

    def add(self, other: "Contents") -> None:
        self.records.update(other.records)
        self.batch_ends.update(other.batch_ends)


@dataclass(slots=True)
class Begun:
    name: str
    place: Place
    wall_ms: int
    contents: Contents


class CompactionKeeps(Checker):
    def __init__(self, world: object) -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self._begun: dict[Cleaning, Begun] = {}
        self._parsed: dict[str, tuple[bytes, Contents]] = {}

    def died(self, broker: Broker | None, how: str) -> None:
        self._begun.clear()

    def after_step(self, broker: Broker) -> None:
        cleaner = broker.compaction.cleaner
        if cleaner is None or not (cleaner.running or self._begun):
            return
        for (topic, index), cleaning in cleaner.running.items():
            if cleaning not in self._begun and (topic, index) not in self.world.ledger.damaged:
                self._begun[cleaning] = self._begin((topic, index), cleaning)
        for cleaning, begun in list(self._begun.items()):
            if cleaning.is_over:
                del self._begun[cleaning]
                if cleaning.is_done and begun.place not in self.world.ledger.damaged:
                    self._check(cleaning, begun)

    def _begin(self, place: Place, cleaning: Cleaning) -> Begun:
        name = f"{place[0]}-{place[1]}"
        log, end = cleaning.log, cleaning.end
        bounds = {
            "the last stable offset": log.last_stable_offset,
            "the recovery point": log.recovery_point,
            "the active segment": log.active_segment.base_offset,
        }
        for what, bound in bounds.items():
            if end > bound:
                raise Violation("C2 only what is stable is cleaned", f"{name}: up to {end}, and {what} is at {bound}")
        if place in self.world.txn_logs.partitions:
            self._check_markers(place, cleaning)
        begun = Begun(name, place, self.world.process.clock.wall_ms(), self._read(cleaning))
        if log.config.min_compaction_lag_ms > 0 and place not in self.world.ledger.mistimed:
            self._check_ages(cleaning, begun)
        return begun

    def _check_markers(self, place: Place, cleaning: Cleaning) -> None:
        """What a power loss can still decide otherwise is left alone."""
        written = self.world.written.find(place)
        if written is None:
            return
        log = cleaning.log
        for last, (marker, _) in ends_of(written.batches).items():
            if log.log_start <= last < cleaning.end and marker >= log.recovery_point:
                raise Violation(
                    "C2 only what is decided is cleaned",
                    f"{place[0]}-{place[1]}: up to {cleaning.end}, with a batch at {last} whose marker is at {marker}, "
                    f"and the recovery point is at {log.recovery_point}",
                )

    def _check_ages(self, cleaning: Cleaning, begun: Begun) -> None:
        self.world.count("age of what is cleaned checked")
        lag_ms = cleaning.log.config.min_compaction_lag_ms
        for offset, record in begun.contents.records.items():
            age_ms = begun.wall_ms - record.batch.max_timestamp
            if cleaning.first_dirty <= offset < cleaning.end and age_ms < lag_ms:
                raise Violation(
                    "C2 what is young is not cleaned",
                    f"{begun.name}: {offset} is {age_ms} ms old, and min.compaction.lag.ms is {lag_ms}",
                )

    def _read(self, cleaning: Cleaning) -> Contents:
        found = Contents()
        for segment in cleaning.log.segments:
            if segment.base_offset < cleaning.end:
                path = segment.log.path
                data = self.world.disk.peek(path)[: segment.size]
                before = self._parsed.get(path)
                if before is None or before[0] != data:
                    before = self._parsed[path] = (data, _parse(data))
                found.add(before[1])
        return found

    def _check(self, cleaning: Cleaning, begun: Begun) -> None:
        self.world.count("log compacted")
        name = begun.name
        self.world.trace("log cleaned", name)
        if cleaning.cleaned_to < cleaning.end:
            self.world.count("map of a cleaning full")
        if name.startswith("__"):
            self.world.count("log of a coordinator compacted")
        if cleaning.cleaned_to <= cleaning.first_dirty:
            raise Violation(
                "C6 compaction gets on",
                f"{name}: cleaned from {cleaning.first_dirty} to {cleaning.end}, and will begin at "
                f"{cleaning.cleaned_to} again",
            )
        after = self._read(cleaning)
        start = cleaning.log.first_base_offset
        for offset, record in after.records.items():
            was = begun.contents.records.get(offset)
            if was is None or was.key != record.key or was.value != record.value:
                raise Violation("C1 what stays is unchanged", f"{name}: {offset} was {was}, is {record}")
            if record.value is None:
                self._check_horizon(cleaning, begun, offset, was.batch, record.batch)
        self._check_newest(cleaning, begun, after, start)
        for producer in cleaning.log.producers.states.all():
            last = producer.last_offset
            if last in begun.contents.batch_ends and last >= start and last not in after.batch_ends:
                raise Violation(
                    "C5 a producer's last batch stays", f"{name}: {producer.producer_id} wrote up to {last}"
                )

    def _check_newest(self, cleaning: Cleaning, begun: Begun, after: Contents, start: int) -> None:
        newest: dict[bytes, int] = {}
        unsure: dict[bytes, None] = {}
        written = self.world.written.find(begun.place)
        ends = ends_of(written.batches) if written is not None and written.is_known else {}
        for offset, record in begun.contents.records.items():
            if record.key is not None and start <= offset < cleaning.end:
                if record.batch.is_transactional:
                    end = ends.get(record.batch.last_offset)
                    if end is None:
                        unsure[record.key] = None
                    elif not end[1]:
                        continue
                    else:
                        self.world.count("newest of a transaction looked for")
                newest[record.key] = offset
        for key, offset in newest.items():
            if offset in after.records or key in unsure:
                continue
            record = begun.contents.records[offset]
            if record.value is not None:
                raise Violation(
                    "C1 the newest record of a key stays", f"{begun.name}: {key!r} at {offset} is gone, {record}"
                )
            horizon_ms = record.batch.horizon_ms
            if horizon_ms is None or horizon_ms > begun.wall_ms:
                raise Violation(
                    "C3 a tombstone stays its time",
                    f"{begun.name}: {key!r} at {offset} is gone at {begun.wall_ms}, its horizon is {horizon_ms}",
                )
            self.world.count("tombstone removed")
            older = [at for at, each in after.records.items() if each.key == key and at < offset]
            if older:
                raise Violation(
                    "C3 a tombstone outlives older values", f"{begun.name}: {key!r} at {offset} is gone, {older} stay"
                )

    def _check_horizon(self, cleaning: Cleaning, begun: Begun, offset: int, was: SeenBatch, now: SeenBatch) -> None:
        if was.horizon_ms is not None and now.horizon_ms != was.horizon_ms:
            raise Violation(
                "C3 a tombstone stays its time",
                f"{begun.name}: the horizon of {offset} was {was.horizon_ms}, is {now.horizon_ms}",
            )
        wanted_ms = begun.wall_ms + cleaning.log.config.delete_retention_ms
        if was.horizon_ms is None and now.horizon_ms is not None and now.horizon_ms < wanted_ms:
            raise Violation(
                "C3 a tombstone stays its time",
                f"{begun.name}: {offset} got the horizon {now.horizon_ms}, which must not be before {wanted_ms}",
            )


def _parse(data: bytes) -> Contents:
    found = Contents()
    for batch in iterate_batches(data, 0, len(data)):
        if batch.is_control:
            continue
        horizon_ms = batch.base_timestamp if batch.has_delete_horizon else None
        seen = SeenBatch(batch.last_offset, batch.max_timestamp, horizon_ms, batch.is_transactional)
        found.batch_ends[batch.last_offset] = None
        for record in iterate_records(batch):
            found.records[record.offset] = SeenRecord(record.key, record.value, seen)
    return found
