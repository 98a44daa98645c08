"""G6, T9: the offsets of groups are what the log of their coordinator says, also where groups commit in transactions
and without, and the coordinator knows every group that has some.

Told by the records as they were written, before anything was compacted, and without asking our own replay:
- What is committed in a transaction counts from its commit on; until then it is staged, and after an abort nothing.
- Of several that count the one that stands last in the log wins, whenever its transaction ended (Redpanda #31483).
- A tombstone takes what was before it, staged or not.

Looked at after each step that wrote to such a log; and what a client is told at the end is the same.
"""

from typing import NamedTuple

from mainstem.broker.app import Broker
from mainstem.core.group.records import read_offset_key, read_offset_value
from mainstem.core.group.store import OFFSET_PREFIX, GroupStore
from mainstem.protocol.batch import BatchView
from mainstem.protocol.control import parse_end_marker
from mainstem.protocol.records import iterate_records
from mainstem.sim.checkers import Checker
from mainstem.sim.group_shards import comparable
from mainstem.sim.ledger import Place, Violation
from mainstem.sim.tuning import RETENTION_MS
from mainstem.sim.written import OFFSETS_TOPIC

PROMISE = "G6 offsets are what the log says"
GONE = -1

Key = tuple[str, str, int]
"""A group, a topic and a partition of it."""


Named = tuple[str | int, ...]
"""A key; for what is staged the producer id stands before it."""
Said = tuple[int, str]
"""An offset and its metadata."""


class Position(NamedTuple):
    at: int
    """Where its record stands in the log."""
    offset: int
    tag: str
    committed_ms: int
    is_transactional: bool


class _OffsetLog:
    """What one log of a coordinator says."""

    def __init__(self) -> None:
        self.offsets: dict[Key, Position] = {}
        self.staged: dict[int, dict[Key, Position]] = {}
        """By producer id, as long as its transaction is open."""
        self.ended: dict[str, bool] = {}
        """By the tag of each offset that was part of a transaction, whether that was committed."""
        self.ever: dict[Key, set[int]] = {}
        """All that an offset was set to without a transaction, deleted or not."""

    def apply(self, batch: BatchView) -> list[str]:
        """Takes a batch; what there was in it that is rare."""
        if batch.is_control:
            marker = parse_end_marker(batch)
            return [] if marker is None else self._end(batch.producer_id, marker.commit)
        rare: list[str] = []
        for record in iterate_records(batch):
            if record.key is None or not record.key.startswith(OFFSET_PREFIX):
                continue
            key = read_offset_key(record.key)
            if record.value is None:
                rare += self._bury(key)
                continue
            value = read_offset_value(record.value)
            position = Position(
                record.offset, value.offset, value.metadata, value.commit_timestamp, batch.is_transactional
            )
            if batch.is_transactional:
                self.staged.setdefault(batch.producer_id, {})[key] = position
            else:
                self.offsets[key] = position
                self.ever.setdefault(key, set()).add(position.offset)
        return rare

    def _end(self, producer_id: int, commit: bool) -> list[str]:
        rare: list[str] = []
        for key, position in self.staged.pop(producer_id, {}).items():
            self.ended[position.tag] = commit
            current = self.offsets.get(key)
            if commit and (current is None or current.at < position.at):
                self.offsets[key] = position
            elif commit:
                rare.append("plain commit kept over an earlier one of a transaction")
        return rare

    def _bury(self, key: Key) -> list[str]:
        rare: list[str] = []
        self.offsets.pop(key, None)
        for producer_id, held in list(self.staged.items()):
            if held.pop(key, None) is not None:
                rare.append("group deleted while a transaction had its offset")
            if not held:
                del self.staged[producer_id]
        return rare

    def groups(self) -> dict[str, None]:
        return dict.fromkeys(key[0] for held in (self.offsets, *self.staged.values()) for key in held)


class OffsetsFollow(Checker):
    def __init__(self, world: object) -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self._logs: dict[int, _OffsetLog] = {}
        self._changed: dict[int, None] = {}

    # What the logs say

    def appended(self, place: Place, batch: BatchView) -> None:
        if place[0] == OFFSETS_TOPIC:
            self._changed[place[1]] = None
            log = self._logs.setdefault(place[1], _OffsetLog())
            if batch.is_control and self.world.tuning.expires_offsets:
                self._count_kept(log, batch.producer_id)
            for what in log.apply(batch):
                self.world.count(what)

    def _count_kept(self, log: _OffsetLog, producer_id: int) -> None:
        now_ms = self.world.process.clock.wall_ms()
        for key in log.staged.get(producer_id, ()):
            if key in log.offsets and now_ms - log.offsets[key].committed_ms >= RETENTION_MS:
                self.world.count("offset past its time kept for a transaction")

    def reopened(self, place: Place, end: int, kept: list[BatchView], lost: list[BatchView]) -> None:
        if place[0] == OFFSETS_TOPIC:
            self._changed[place[1]] = None
            log = self._logs[place[1]] = _OffsetLog()
            for batch in kept:
                log.apply(batch)
            settled = {key[0] for key in log.offsets}
            if any(group not in settled for group in log.groups()):
                self.world.count("group loaded that open transactions alone have")

    def forget(self) -> None:
        self._logs.clear()
        self._changed.clear()

    def find(self, group: str, place: Place) -> Position | None:
        """The position of a group; None where it has none."""
        key = (group, *place)
        return next((log.offsets[key] for log in self._logs.values() if key in log.offsets), None)

    def offset(self, group: str, place: Place) -> int:
        found = self.find(group, place)
        return GONE if found is None else found.offset

    def ever(self, group: str, place: Place) -> set[int]:
        """All that its offset was set to without a transaction, as far back as the log is known."""
        return {offset for log in self._logs.values() for offset in log.ever.get((group, *place), ())}

    def is_staged(self, group: str, place: Place, producer_id: int | None = None) -> bool:
        """Whether a transaction, or that of one producer, is open and has an offset of the group."""
        key = (group, *place)
        return any(
            key in held
            for log in self._logs.values()
            for owner, held in log.staged.items()
            if producer_id in (None, owner)
        )

    # What the coordinator says

    def after_step(self, broker: Broker) -> None:
        if not self._changed:
            return
        for partition, machine in comparable(broker, self._changed):
            del self._changed[partition.index]
            log = self._logs.setdefault(partition.index, _OffsetLog())
            difference = _difference(log, machine.store)
            if difference:
                raise Violation(PROMISE, f"{partition}: {difference}")
            for group in log.groups():
                if group not in machine.groups and group not in machine.store.others:
                    raise Violation(
                        "G4 a coordinator knows its groups", f"{partition}: {group} has offsets, and is not known"
                    )
            self.world.count("offsets compared with their log")

    def told(self, group: str, place: Place, found: int, before: int) -> None:
        """A client asked when the log said `before`, and was told this: it may have changed meanwhile."""
        if found not in (before, self.offset(group, place)):
            raise Violation(
                PROMISE, f"{group} is said to be at {found} of {place[0]}-{place[1]}; by the log it is at {before}"
            )

    def at_end(self, broker: Broker) -> None:
        """T9: what was committed with a transaction was committed by its marker, and what was not was not."""
        ended = {tag: commit for log in self._logs.values() for tag, commit in log.ended.items()}
        for txn in self.world.txns.txns:
            if txn.offset is None or txn.is_torn:
                continue
            commit = ended.get(txn.tag)
            if commit and not txn.commit_sent:
                raise Violation(
                    "T9 offsets are part of the transaction", f"{txn.tag} was never committed, and its offset was"
                )
            if commit is False and txn.is_committed:
                raise Violation(
                    "T9 offsets are part of the transaction", f"{txn.tag} was committed, and its offset was not"
                )
            self.world.count("offset of a transaction checked")


def _difference(log: _OffsetLog, store: GroupStore) -> str:
    expected: dict[Named, Said] = {(*key,): (each.offset, each.tag) for key, each in log.offsets.items()}
    found: dict[Named, Said] = {}
    for group, of_group in store.offsets.items():
        for place, committed in of_group.items():
            found[group, *place] = (committed.offset, committed.metadata)
    for owner, staged in log.staged.items():
        expected |= {(owner, *key): (each.offset, each.tag) for key, each in staged.items()}
    for owner, open_ones in store.staged.items():
        found |= {(owner, *key): (each.offset, each.metadata) for key, each in open_ones.items()}
    if expected == found:
        return ""
    odd = next(key for key in (*expected, *found) if expected.get(key) != found.get(key))
    return f"of {odd} it knows {found.get(odd)}, its log says {expected.get(odd)}"
