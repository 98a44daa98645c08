"""What goes wrong while compaction puts a cleaned segment in the place of those it was made from (`storage.swapping`).

That is a few renames with a sync of the folder after each kind, which chance alone hardly ever meets: in some runs the
power fails, or the process dies, right there. A rename that is not synced before the next kind begins may be lost while
a later one is kept, and the log is a mixture then, or gone.

Drawn from a stream of its own, so that the runs without are what they would be.
"""

from random import Random
from typing import TYPE_CHECKING, Final

from mainstem.storage import names

if TYPE_CHECKING:
    from mainstem.sim.world import World

EXPECTED: Final = ("death amid a swap",)
"""Faults that each campaign must have seen of all this."""

_SHARE: Final = 0.12
_SHARE_OF_COMPACTION: Final = 0.5
"""The same of the runs that are about compaction."""
_DEATH_SHARE: Final = 0.25
"""Of the renames that begin a swap, how many are struck: three or four each has."""
_KILL_SHARE: Final = 0.1
_OPERATIONS: Final = 14
"""How many a swap of one or two segments has."""


def begin_swap_faults(world: "World") -> None:
    rng = Random(f"{world.seed}:swap faults")
    if rng.random() >= (_SHARE_OF_COMPACTION if world.theme == "compaction" else _SHARE):
        return
    before = world.disk.on_operation
    assert before is not None

    def operation(kind: str, path: str, position: int, size: int) -> None:
        before(kind, path, position, size)
        process = world.process
        if kind != "rename" or not path.endswith(names.CLEANED) or process.crash_after is not None:
            return
        if process.is_serving and not world.nemesis.is_over and rng.random() < _DEATH_SHARE:
            world.count("death amid a swap")
            process.crash_is_power_loss = world.needs_reboot or rng.random() >= _KILL_SHARE
            process.crash_after = rng.randrange(_OPERATIONS)

    world.disk.on_operation = operation
