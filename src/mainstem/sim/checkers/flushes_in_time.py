"""P1: what a topic's `flush.ms` asks for is synced by the broker itself, with nobody writing.

When all is healed and clients are done, within seconds nothing is left unsynced in a partition whose topic has such a
setting: by the metadata, past what the broker has made of it.
"""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from mainstem.core.controller.image import TOPIC
from mainstem.sim.ledger import Violation

if TYPE_CHECKING:
    from mainstem.sim.world import World

_LOOKS: Final = 20
_PAUSE_S: Final = 0.25
"""The broker looks every second, the longest `flush.ms` that is drawn is less than one, and a sync takes its time."""


async def wait_until_synced(world: "World") -> None:
    for _ in range(_LOOKS):
        unsynced = list(_unsynced(world))
        if not unsynced:
            return
        await asyncio.sleep(_PAUSE_S)
    raise Violation("P1 flush.ms is kept", f"not synced: {', '.join(unsynced)}")


def _unsynced(world: "World") -> Iterator[str]:
    broker = world.process.broker
    if broker is None:
        return
    for partition in broker.partitions:
        log = partition.log
        if log.failure is not None or "flush.ms" not in broker.image.config(TOPIC, partition.topic):
            continue
        world.count("flush.ms of a partition looked at")
        if log.recovery_point < log.log_end:
            yield f"{partition} from {log.recovery_point} to {log.log_end}"
