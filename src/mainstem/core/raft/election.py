"""Who leads in which epoch, and whom this node voted for: the state that must be durable before anyone is told (R2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mainstem.protocol.primitives import ZERO_UUID

NOBODY: Final = -1


@dataclass(frozen=True, slots=True)
class ElectionState:
    leader_id: int = NOBODY
    epoch: int = 0
    voted_id: int = NOBODY
    voted_directory_id: bytes = ZERO_UUID

    def may_be_followed_by(self, later: ElectionState) -> bool:
        """Epochs only rise; in one epoch there is one leader, and one vote (R1, R2)."""
        if later.epoch != self.epoch:
            return later.epoch > self.epoch
        if self.leader_id not in (NOBODY, later.leader_id):
            return False
        # A vote is forgotten once the leader of its epoch is known, as Kafka does it.
        return self.voted_id in (NOBODY, later.voted_id) or later.leader_id != NOBODY
