"""How the transactions of a run are: which transaction version the cluster has, how old its ids are, who prepares, and
whether ids are forgotten that nobody uses.

Drawn from a stream of its own, so that the rest of a seed is what it would be without.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from mainstem.broker.app import Broker
from mainstem.core.coordinator.effects import Outcome
from mainstem.core.txn.config import TxnConfig
from mainstem.core.txn.records import log_record
from mainstem.core.txn.states import EMPTY, EPOCH_MAX, TV2, Transaction
from mainstem.protocol.errors import RemoteError

if TYPE_CHECKING:
    from mainstem.sim.world import World

_LEVELS: Final = (TV2, TV2, TV2, TV2, 1, 0)
_LEFT_MAX: Final = 5
_LONG_MS: Final = 60_000
ID_EXPIRATION_MS: Final = 1500
"""How long an id is known that nobody uses, in runs that forget ids."""
_FORGETS_SHARE: Final = 0.4


REACHED: Final = (
    "transaction.version 1",
    "C6 producer id rotated",
    "prepared transaction kept",
    "transaction.version 0",
    "old epoch after a kept transaction",
    "marker between verification and append",
    "late marker refused in the next transaction",
    "went on after an abort of nothing",
    "went on after an error under the epoch of its abort",
    "transactional id forgotten",
    "forgotten id taken again",
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
    forgets: bool = False
    """Whether ids expire within seconds, and clients may be idle for longer than that."""

    @property
    def id_expiration_ms(self) -> int:
        return ID_EXPIRATION_MS if self.forgets else TxnConfig().expiration_ms

    def settings(self) -> dict[str, str]:
        """The broker's, as far as the shape decides them."""
        return {
            "transaction.two.phase.commit.enable": str(self.two_phase).lower(),
            "transactional.id.expiration.ms": str(self.id_expiration_ms),
            "transaction.remove.expired.transaction.cleanup.interval.ms": "200" if self.forgets else "3600000",
        }


def draw_shape(seed: int) -> TxnShape:
    rng = Random(f"{seed}:shape of transactions")
    level = rng.choice(_LEVELS)
    is_aged = rng.random() < 0.35
    two_phase = level >= TV2 and rng.random() < 0.6
    return TxnShape(level, is_aged, two_phase, rng.random() < _FORGETS_SHARE)


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
