"""Who asks for the deletion of what was only just appended: of more than is below the high watermark (KIP-107).

The batch before it asks for no acknowledgement, so that the deletion is right behind it: where everything is synced
first, the log has the batch and nobody may see it yet. What goes then was committed to nobody, and a log would begin
where it does not end for readers. So it is refused, or it comes late enough.

In some of the runs in which the records of its topic are synced before they are acknowledged; in the others the high
watermark is the end of the log.
"""

import asyncio
import contextlib
from random import Random
from typing import TYPE_CHECKING, Final

from mainstem.protocol.builder import BatchBuilder
from mainstem.sim.admin import delete_records
from mainstem.sim.client import NoAnswer, SimClient
from mainstem.sim.ledger import Place, Send
from mainstem.sim.workloads import PRODUCE_VERSION, client_ms, list_offset

if TYPE_CHECKING:
    from mainstem.sim.world import World

REACHED: Final = ("deletion past the high watermark refused",)
"""Rare branches that each campaign must have taken."""

PLACE: Final = ("short", 0)
NAME: Final = "overreacher"
_SHARE: Final = 0.2


def comes(world: "World") -> bool:
    """Whether a run has one. Drawn apart, so that the others are as they were."""
    return world.ledger.is_durable(PLACE) and Random(f"{world.seed}:overreacher").random() < _SHARE


class Overreacher:
    def __init__(self, world: "World", client: SimClient, rng: Random, place: Place) -> None:
        self.world = world
        self.client = client
        self.rng = rng
        self.place = place
        self._number = 0

    async def run(self) -> None:
        while not self.world.is_stopping:
            with contextlib.suppress(NoAnswer):
                end = await list_offset(self.client, self.place, -1)
                if end is not None:
                    count = 1 + self.rng.randrange(3)
                    await self.client.send_batch(self.place, self._batch(count), PRODUCE_VERSION, acks=0)
                    await delete_records(self.world, self.client, self.place, end + 1 + self.rng.randrange(count))
            await asyncio.sleep(self.rng.random() * self.world.pace_s)

    def _batch(self, count: int) -> bytes:
        builder = BatchBuilder()
        for _ in range(count):
            self._number += 1
            value = f"{self.client.name}.{self._number}.".encode()
            send = Send(self.place, value, None, self.client.name, self._number, ordered=False)
            send.headers, send.timestamp_ms = [], client_ms(self.world)
            builder.append(send.timestamp_ms, None, value)
            self.world.ledger.sent(send)
        return builder.build()
