"""What the leader of a partition knows of its replicas, and the high watermark that follows from it.

    high watermark = the smallest log end of the leader and of every in-sync follower

- The high watermark never goes back, and does not move while fewer replicas are in sync than the effective
  minimum, which is `min.insync.replicas` but never more than there are replicas (P5, KAFKA-15583).
- What the leader has written but not yet made durable, where the topic asks for that before an acknowledgement
  (`flush.messages`), is not counted: `held_at` is where its log ends for this purpose.
- A follower counts from the moment it fetches in this leader's epoch (KIP-320).
"""

from collections.abc import Iterable
from typing import Final

NEVER: Final = -1


class LeaderState:
    """One term of leadership. A new leader epoch is a new LeaderState."""

    __slots__ = ("_ends", "_in_sync", "_min_in_sync", "_replicas", "epoch", "epoch_start", "high_watermark", "node_id")

    def __init__(
        self,
        node_id: int,
        epoch: int,
        replicas: Iterable[int],
        in_sync: Iterable[int],
        *,
        min_in_sync: int,
        log_end: int,
        high_watermark: int,
    ) -> None:
        self.node_id = node_id
        self.epoch = epoch
        self.epoch_start = log_end
        """Where this epoch begins: a follower is in sync only when it has come this far (KAFKA-7128)."""
        self.high_watermark = min(high_watermark, log_end)
        self._replicas = tuple(replicas)
        self._in_sync = tuple(in_sync)
        self._min_in_sync = min_in_sync
        self._ends = dict.fromkeys(self._replicas, NEVER)
        # Its own log counts from the first `wrote` on: what a start found may not be durable yet.
        self._ends[node_id] = self.high_watermark
        assert node_id in self._in_sync, f"node {node_id} leads but is not in sync: {self._in_sync}"

    @property
    def replicas(self) -> tuple[int, ...]:
        return self._replicas

    @property
    def in_sync(self) -> tuple[int, ...]:
        return self._in_sync

    @property
    def effective_min_in_sync(self) -> int:
        return min(self._min_in_sync, len(self._replicas))

    @property
    def has_enough_in_sync(self) -> bool:
        """Whether a write with acks=all may be taken."""
        return len(self._in_sync) >= self.effective_min_in_sync

    def set_min_in_sync(self, min_in_sync: int) -> bool:
        """Takes a changed `min.insync.replicas`; whether the high watermark moved."""
        self._min_in_sync = min_in_sync
        return self._advance()

    def wrote(self, held_at: int) -> bool:
        """The leader's own log now ends at `held_at`; whether the high watermark moved."""
        self._ends[self.node_id] = held_at
        return self._advance()

    def _advance(self) -> bool:
        if not self.has_enough_in_sync:
            return False
        ends = self._ends
        lowest = min(ends[replica] for replica in self._in_sync)
        if lowest <= self.high_watermark:
            return False
        self.high_watermark = lowest
        return True
