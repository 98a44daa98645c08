"""D8: a move between log directories takes nothing along the way, ends, and leaves nothing behind.

- A log that has taken another's place begins and ends where that did, and knows its epochs and its producers; its
  batches are compared in `written`.
- A move ends because it is finished, because somebody wanted it so, or because a disk failed.
- When all is over, no folder of a copy is left. One that a power loss has brought back goes again.

Counts how moves end, and what happened beside them.
"""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem.broker.app import Broker
from mainstem.core.log.epochs import EpochEntry
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Place, Violation
from mainstem.storage.log import Log
from mainstem.storage.log_dirs import Move

if TYPE_CHECKING:
    from mainstem.sim.checkers.crash_keeps import CrashKeeps

PROMISE = "D8 a move takes nothing"
_LOOKS = 40
_PAUSE_S = 0.5
_HOW = {"kill -9": "a kill", "power loss": "a power loss", "stopped": "a stop"}


@dataclass(frozen=True, slots=True)
class Seen:
    """A move as it was when it was first seen."""

    move: Move[Log]
    source: Log
    start: int
    end: int


class MovesEnd(Checker):
    def __init__(self, world: object, crash_keeps: "CrashKeeps") -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self.piece_bytes = 0
        """How much is copied at a time, where a run decides it."""
        self.is_settled = False
        """Whether all moves have ended, and nobody begins one any more."""
        self._crash_keeps = crash_keeps
        self._moves: dict[Place, Seen] = {}

    @property
    def is_any_under_way(self) -> bool:
        return bool(self._moves)

    def set_pace(self) -> None:
        broker = self.world.process.broker
        if broker is not None and self.piece_bytes:
            broker.log_moves.piece_bytes = self.piece_bytes

    def left_over(self) -> list[str]:
        """The folders of copies on the disk."""
        found = {path.rpartition("/")[0]: None for path in self.world.disk.files("-future/")}
        return list(found)

    def after_step(self, broker: Broker) -> None:
        moves = broker.partitions.dirs.moves
        if not moves and not self._moves:
            return
        for place, seen in list(self._moves.items()):
            if moves.get(place) is not seen.move:
                del self._moves[place]
                self._ended(broker, place, seen)
        for place, move in moves.items():
            if place not in self._moves:
                source = broker.partitions.dirs.logs[place]
                self._moves[place] = Seen(move, source, source.log_start, source.log_end)

    def _ended(self, broker: Broker, place: Place, seen: Seen) -> None:
        dirs = broker.partitions.dirs
        if dirs.logs.get(place) not in (None, seen.source):
            self._crash_keeps.note(broker)
            self.world.count("move finished")
            if place[0].startswith("__"):
                self.world.count("move of an internal partition finished")
            if seen.source.log_end > seen.end:
                self.world.count("batch appended beside a move")
            if seen.source.log_start > seen.start:
                self.world.count("start moved beside a move")
            if place not in self.world.ledger.damaged:
                _check_same(place, seen.source, dirs.logs[place])
        elif self.world.process.is_stopping:
            self.world.count("move interrupted by a stop")
        elif seen.move.directory.offline is not None or place not in dirs.logs:
            # Its topic may be gone, too; or its bytes were not what was written.
            is_offline = dirs.any_offline
            self.world.count("move interrupted by an offline directory" if is_offline else "move without a partition")
        else:
            self.world.count("move cancelled by another")

    def died(self, broker: Broker | None, how: str) -> None:
        for _ in self._moves:
            self.world.count(f"move interrupted by {_HOW.get(how, 'an offline directory')}")
        self._moves.clear()

    def starting(self) -> None:
        """The broker is about to start, with the disk as it is."""
        names = [path.rsplit("/", 2)[-2] for path in self.world.disk.files("/partition.metadata")]
        for name in dict.fromkeys(names):
            if names.count(name) > 1:
                self.world.count("partition in two directories at a start")

    def served(self, broker: Broker) -> None:
        self.set_pace()
        dirs = broker.partitions.dirs
        for _ in dirs.moves.keys() | dirs.interrupted_moves.keys():
            self.world.count("move resumed at a start")

    def is_over(self, broker: Broker) -> bool:
        return not self.left_over() and not broker.partitions.dirs.moves

    async def wait_until_over(self) -> None:
        """The last start may have been after a power loss, which brings back folders whose removal was not synced."""
        for _ in range(_LOOKS):
            broker = self.world.process.broker
            if not self.is_settled or broker is None or self.is_over(broker):
                return
            await asyncio.sleep(_PAUSE_S)

    def at_end(self, broker: Broker) -> None:
        if self.is_settled and not self.is_over(broker):
            raise Violation("D8 a move ends", f"these are left over: {self.left_over()}")


def _knows_some(epochs: list[EpochEntry], copied: list[EpochEntry]) -> bool:
    """Compaction may have taken the first batches of an epoch, or all of them: no copy tells where it began."""
    starts = {entry.epoch: entry.start_offset for entry in epochs}
    return all(entry.start_offset >= starts.get(entry.epoch, 0) for entry in copied)


def _knows_all(epochs: list[EpochEntry], copied: list[EpochEntry]) -> bool:
    """A copy may know more: a crash may bring back batches that the file of epochs had been told are gone."""
    starts = {entry.epoch: entry.start_offset for entry in copied}
    return all(entry.epoch in starts and starts[entry.epoch] <= entry.start_offset for entry in epochs)


def _check_same(place: Place, old: Log, new: Log) -> None:
    if new.log_start < old.log_start or new.high_watermark < old.high_watermark or new.log_end < old.log_end:
        raise Violation(
            PROMISE,
            f"{place} had start {old.log_start}, high watermark {old.high_watermark}, end {old.log_end}, and has "
            f"{new.log_start}, {new.high_watermark}, {new.log_end} where it is now",
        )
    # One without a batch is noted anew when the partition is led.
    epochs, now = [entry for entry in old.epochs.entries() if entry.start_offset < old.log_end], new.epochs.entries()
    is_known = _knows_some(epochs, now) and bool(now or not new.size) if old.config.compact else _knows_all(epochs, now)
    if not is_known:
        raise Violation(PROMISE, f"{place} had the epochs {epochs}, and has {now} where it is now")
    for producer in old.producers.states.all():
        found = new.producers.states.get(producer.producer_id)
        known = (producer.epoch, producer.last_offset)
        if found is None or (found.epoch, found.last_offset) < known:
            what = None if found is None else (found.epoch, found.last_offset)
            raise Violation(
                PROMISE,
                f"{place} knew the epoch and last offset {known} of producer {producer.producer_id}, and knows {what} "
                "where it is now",
            )
