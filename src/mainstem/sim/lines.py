"""Lines of batches: in some runs one topic stores its batches with a codec that many producers do not send, and what
they send is judged in a thread, which takes its time. Whatever comes meanwhile waits its turn.

A batch is judged so where it may expand to much, and of what gzip packed a hundredfold has to be expected: it need not
be large, so neither are those here. Two producers more than usual write to one partition of the topic; in runs with
transactions those do that have them anyway.

Drawn from a stream of its own, so that the runs without are what they would be.
"""

from random import Random
from typing import TYPE_CHECKING, Final

from mainstem.protocol.compression import GZIP, NONE
from mainstem.sim.ledger import Place
from mainstem.sim.workloads import Producer

if TYPE_CHECKING:
    from mainstem.sim.world import World

SHARE: Final = 0.12
_PACKED_SHARES: Final = (0.5, 0.8, 1.0)
_JUDGING_S: Final = (0.05, 0.2, 0.4)
_PRODUCERS: Final = 2

REACHED: Final = (
    "batch judged in a thread",
    "batch waited its turn",
    "line of three batches",
)
"""What each campaign must have counted of all this."""


class Lines:
    def __init__(self, world: "World") -> None:
        rng = Random(f"{world.seed}:lines")
        is_drawn = rng.random() < SHARE and not world.is_for_users
        self.place: Place | None = ("txn" if world.is_transactional else "log", 0) if is_drawn else None
        """Where batches wait for each other, if anywhere."""
        self.codec = rng.choice(("lz4", "zstd", "snappy"))
        self._world = world
        self._packed_share = rng.choice(_PACKED_SHARES)
        self._judging_s = rng.choice(_JUDGING_S)
        if self.place is not None:
            judging = Random(f"{world.seed}:judges")
            world.process.judge_delay = lambda: judging.random() * judging.random() * self._judging_s

    def settings(self, topic: str) -> dict[str, str]:
        """A topic's, as far as this decides them."""
        return {"compression.type": self.codec} if self.place is not None and topic == self.place[0] else {}

    def codec_of(self, topic: str, rng: Random) -> int:
        """What a producer packs its next batch for a topic with."""
        if self.place is None or topic != self.place[0]:
            return NONE
        return GZIP if rng.random() < self._packed_share else NONE

    def add_producers(self) -> None:
        world, place = self._world, self.place
        if place is None or world.is_transactional:
            return
        for index in range(_PRODUCERS):
            world.add_client(
                f"packed{index}",
                lambda client, rng: Producer(world, client, rng, place[0], place[1] + 1, idempotent=True).run(),
            )
