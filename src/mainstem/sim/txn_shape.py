"""How the transactions of a run are: which transaction version the cluster has, how old its ids are, who prepares.

Drawn from a stream of its own, so that the rest of a seed is what it would be without.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from mainstem.broker.app import Broker
from mainstem.core.coordinator.effects import Outcome
from mainstem.core.txn.records import log_record
from mainstem.core.txn.states import EMPTY, EPOCH_MAX, TV2, Transaction
from mainstem.protocol.errors import RemoteError

if TYPE_CHECKING:
    from mainstem.sim.world import World

_LEVELS: Final = (TV2, TV2, TV2, TV2, 1, 0)
_LEFT_MAX: Final = 5
_LONG_MS: Final = 60_000


REACHED: Final = (
    "transaction.version 1",
    "C6 producer id rotated",
    "prepared transaction kept",
    "transaction.version 0",
    "old epoch after a kept transaction",
    "marker between verification and append",
)
"""What each campaign must have counted of all this."""


@dataclass(frozen=True, slots=True)
class TxnShape:
    level: int = TV2
    """The finalized `transaction.version`."""
    is_aged: bool = False
    """Whether ids have been used so often that their epochs are nearly used up (C6)."""
    two_phase: bool = False
    """Whether clients may prepare transactions, leave them, and come back to them."""


def draw_shape(seed: int) -> TxnShape:
    rng = Random(f"{seed}:shape of transactions")
    level = rng.choice(_LEVELS)
    return TxnShape(level, rng.random() < 0.35, level >= TV2 and rng.random() < 0.6)


async def age(world: "World", transactional_ids: Iterable[str]) -> None:
    """Has the coordinator write that these ids have been used some 32,760 times, as if they had."""
    broker = world.process.broker
    assert broker is not None
    rng = Random(f"{world.seed}:age")
    epochs = {each: EPOCH_MAX - 1 - rng.randint(0, _LEFT_MAX) for each in transactional_ids}
    aging = broker.loop.create_task(_age(broker, epochs))
    while not aging.done():
        await asyncio.sleep(0.05)
    aging.result()


async def _age(broker: Broker, epochs: dict[str, int]) -> None:
    for transactional_id, epoch in epochs.items():
        producer_id = await broker.producer_ids.take()
        now_ms = broker.clock.wall_ms()
        used = Transaction(transactional_id, producer_id, epoch, _LONG_MS, EMPTY, updated_ms=now_ms)
        out = Outcome()
        out.records.append(log_record(used, broker.transactions.server_version))
        while True:
            try:
                shard = broker.transactions._shard(transactional_id)
            except RemoteError:
                await asyncio.sleep(0.02)
                continue
            if shard.is_serving:
                break
            await asyncio.sleep(0.02)
        shard.take(out)
