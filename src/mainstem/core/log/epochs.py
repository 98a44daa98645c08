"""Which leader epoch each offset was written in: the content of `leader-epoch-checkpoint`.

Rules (KIP-101, KIP-279, Kafka's):
- Entries rise strictly, both by epoch and by start offset (P9). A new one removes those that it contradicts; of two
  epochs that start at the same offset only the later is left, since the earlier wrote nothing.
- A leader adds its epoch when it begins to lead, not with its first batch (KAFKA-7415).
- Truncating the log at its end also truncates here, even where the log itself has nothing to cut (KAFKA-10706).
- When the log start moves, the epoch that it falls into begins there.
- Epoch 0 is an epoch like any other (KAFKA-10432).
"""

from dataclasses import dataclass
from typing import Final

from mypy_extensions import i64

UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1


@dataclass(frozen=True, slots=True)
class EpochEntry:
    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """The answer to OffsetForLeaderEpoch: the largest known epoch not above the one asked for, and where it ends."""

    epoch: int
    end_offset: int


class LeaderEpochs:
    """`version` counts changes, so that whoever keeps the file knows when to write it."""

    def __init__(self, entries: list[EpochEntry]) -> None:
        self.version: i64 = 0
        self._entries: list[EpochEntry] = []
        self._latest: i64 = UNDEFINED_EPOCH
        for entry in entries:
            self.assign(entry.epoch, entry.start_offset)
        self.version = 0

    def entries(self) -> list[EpochEntry]:
        return list(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def latest(self) -> i64:
        """The newest epoch, or -1."""
        return self._latest

    @property
    def earliest(self) -> EpochEntry | None:
        return self._entries[0] if self._entries else None

    def assign(self, epoch: i64, start_offset: i64) -> bool:
        """Notes that `epoch` begins at `start_offset`; False where that is known."""
        assert epoch >= 0
        assert start_offset >= 0
        if self._entries:
            last = self._entries[-1]
            if last.epoch == epoch and start_offset >= last.start_offset:
                return False
        while self._entries and (self._entries[-1].epoch >= epoch or self._entries[-1].start_offset >= start_offset):
            self._entries.pop()
        self._entries.append(EpochEntry(epoch, start_offset))
        self._changed()
        return True

    def truncate_from_end(self, end_offset: i64) -> None:
        """Forgets the epochs that begin at or past `end_offset`."""
        changed = False
        while self._entries and self._entries[-1].start_offset >= end_offset:
            self._entries.pop()
            changed = True
        if changed:
            self._changed()

    def truncate_from_start(self, start_offset: i64) -> None:
        """Forgets the epochs that end at or before `start_offset`; the one it falls into begins there."""
        passed: i64 = 0
        for entry in self._entries:
            if entry.start_offset > start_offset:
                break
            passed += 1
        if passed == 0:
            return
        current = self._entries[passed - 1]
        if passed == 1 and current.start_offset == start_offset:
            return
        self._entries[:passed] = [EpochEntry(current.epoch, start_offset)]
        self._changed()

    def clear(self) -> None:
        if self._entries:
            self._entries.clear()
            self._changed()

    def epoch_for(self, offset: i64) -> i64:
        """The epoch that `offset` was written in, or -1."""
        epoch: i64 = UNDEFINED_EPOCH
        for entry in self._entries:
            if entry.start_offset > offset:
                break
            epoch = entry.epoch
        return epoch

    def end_offset_for(self, epoch: i64, log_end: i64) -> EpochEnd:
        """As Kafka answers OffsetForLeaderEpoch.

        The newest epoch ends where the log does. An epoch newer than any known is undefined. For one older than any
        known, the first known one's start: what lay before is gone, and a follower must begin there.
        """
        if epoch == UNDEFINED_EPOCH or not self._entries:
            return EpochEnd(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        if epoch == self._latest:
            return EpochEnd(epoch, log_end)
        floor: i64 = UNDEFINED_EPOCH
        for entry in self._entries:
            if entry.epoch > epoch:
                return EpochEnd(floor if floor >= 0 else epoch, entry.start_offset)
            floor = entry.epoch
        return EpochEnd(UNDEFINED_EPOCH, UNDEFINED_OFFSET)

    def previous_epoch(self, epoch: i64) -> i64:
        """The newest known epoch below `epoch`, or -1."""
        found: i64 = UNDEFINED_EPOCH
        for entry in self._entries:
            if entry.epoch >= epoch:
                break
            found = entry.epoch
        return found

    def _changed(self) -> None:
        self._latest = self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH
        self.version += 1
