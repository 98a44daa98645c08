"""Rot in what only leads to the batches: offset and time indexes, which the broker builds anew from them (S9 to S11).

Such damage takes no promise about records with it. What is excused is what a time index alone can tell, as nothing
vouches for its last entry: where a moment is, and what goes by its age.

Few bits of few indexes ever lead anybody anywhere, so in some runs there is much of it:

- When all is healed, and before everything is read, most offset indexes are damaged at once, of all logs. What is read
  past them is compared as ever, and the broker builds them anew in a thread meanwhile.
- After a clean stop the last entries of the last segments are damaged. A start believes them, as it looks at nothing
  after a clean stop, and the next entry does not fit (seed 80010732).

Drawn from streams of their own.
"""

from random import Random
from typing import TYPE_CHECKING, Final

from mainstem.broker.app import Broker
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import place_of
from mainstem.storage import names

if TYPE_CHECKING:
    from mainstem.sim.world import World

EXPECTED: Final = ("S9 rot in offset indexes", "S9 rot in the last entry of an index")
"""Faults that each campaign must have seen of all this."""

REACHED: Final = ("index built anew beside its readers",)
"""Rare branches that each campaign must have taken."""

_SHARE: Final = 0.15
"""Of the runs, how many have much of it."""
_STRUCK: Final = 0.7
"""Of the offset indexes of such a run."""
_ENTRY_BYTES: Final = 8
_STOPS_SHARE: Final = 0.4
"""Of the runs, in how many clean stops are followed by rot in last entries."""
_LAST_SHARE: Final = 0.5
"""Of the last segments, how many are struck then."""


def rotted(world: "World", path: str) -> None:
    """Bytes of a file of a partition have changed by themselves."""
    world.trace("rotted", path)
    if path.endswith(names.TIME_INDEX):
        world.ledger.mistimed[place_of(path)] = None
    elif not path.endswith(names.OFFSET_INDEX):
        world.damage(place_of(path))


def strike(world: "World") -> None:
    """Nothing is being written, and the broker is up or not."""
    rng = Random(f"{world.seed}:rotten indexes")
    if rng.random() >= _SHARE:
        return
    disk = world.disk
    for path in disk.files(names.OFFSET_INDEX):
        size = len(disk.peek(path))
        if path.endswith(names.OFFSET_INDEX) and size and rng.random() < _STRUCK:
            for entry in range(0, size, _ENTRY_BYTES):
                disk.flip_bit(path, entry * 8 + rng.randrange(_ENTRY_BYTES * 8))
            world.count(EXPECTED[0])
            rotted(world, path)


def strike_last_entries(world: "World") -> None:
    """The broker is down. What it has not synced is no matter: a start after a crash builds these indexes anew."""
    if world.process.died_of != "stopped" or Random(f"{world.seed}:rotten last entries").random() >= _STOPS_SHARE:
        return
    rng = Random(f"{world.seed}:rotten last entries:{world.process.life}")
    kind, entry_bytes = rng.choice(((names.OFFSET_INDEX, 8), (names.OFFSET_INDEX, 8), (names.TIME_INDEX, 12)))
    last = {path.rpartition("/")[0]: path for path in sorted(world.disk.files(kind)) if path.endswith(kind)}
    for path in last.values():
        size = len(world.disk.peek(path))
        if size and rng.random() < _LAST_SHARE:
            world.disk.flip_bit(path, (size - entry_bytes) * 8 + rng.randrange(entry_bytes * 8))
            world.count(EXPECTED[1])
            rotted(world, path)


class IndexesAreMended(Checker):
    """Counts those that were built anew while readers went on."""

    def died(self, broker: Broker | None, how: str) -> None:
        if broker is not None:
            self.at_end(broker)

    def at_end(self, broker: Broker) -> None:
        for log in broker.partitions.dirs.logs.values():
            for segment in log.segments:
                if segment.reindexed:
                    self.world.count(REACHED[0])
