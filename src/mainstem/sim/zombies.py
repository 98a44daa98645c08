"""Who names an identity that is not its own any more: InitProducerId with a producer id and an epoch (KIP-360).

A client that names what it has been given is given the next epoch, and goes on. One that names what it had before, when
others have taken its transactional id since, is over and must be told so, and so must one that names the producer id of
somebody else (T4: an identity is given to one client, once).

Judged by what the coordinator has written when the zombie asks. Only the identity in force may be named, and the one
before it: whoever was not answered when it was given its identity names the one that it had.
"""

import asyncio
from random import Random
from typing import TYPE_CHECKING, Final

from mainstem.core.txn.states import ONGOING, OVER, PREPARED, Transaction, is_exhausted
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from mainstem.sim.client import NoAnswer, SimClient
from mainstem.sim.ledger import Violation
from mainstem.sim.txn_ledger import Pair

if TYPE_CHECKING:
    from mainstem.sim.world import World

REACHED: Final = (
    "old identity refused",
    "identity of another refused",
    "next epoch given for the last one",
    "identity named after it was taken",
)
"""Rare branches that each campaign must have taken."""

NAME: Final = "zombie"
_SHARE: Final = 0.6
_IN_THE_MIDDLE: Final = 0.2
"""Of what it might name while a transaction is open, how often it does: the coordinator aborts that, as in Kafka."""
_FENCED: Final = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING)


def comes(seed: int) -> bool:
    """Whether a run with transactions has one. Drawn apart, so that the others are as they were."""
    return Random(f"{seed}:zombie").random() < _SHARE


def noted(world: "World", transactional_id: str) -> Transaction | None:
    """What the logs of coordinators have of a transactional id."""
    return next((each[transactional_id] for each in world.txn_logs.states.values() if transactional_id in each), None)


def is_fenced(code: int) -> bool:
    return code in _FENCED


class Owner:
    """One request that names what its client was given last: it is refused only where somebody else has taken that."""

    def __init__(self, world: "World", client: SimClient, transactional_id: str, named: Pair) -> None:
        self._world = world
        self._named = named
        self._id = transactional_id
        self._client = client
        self._life = world.process.life
        self._noted = noted(world, transactional_id)

    def was_refused(self) -> None:
        txn = self._noted
        self._world.count("identity named after it was taken")
        if txn is None or txn.state not in OVER or (txn.client_id, txn.client_epoch) != self._named:
            return
        is_of_one_life = self._life == self._client.life == self._world.process.life
        if is_of_one_life and noted(self._world, self._id) is txn:
            raise Violation("T4 who has an identity goes on", f"{self._named} was refused, and is in force: {txn}")


class Zombie:
    def __init__(self, world: "World", client: SimClient, rng: Random) -> None:
        self.world = world
        self.client = client
        self.rng = rng

    async def run(self) -> None:
        while not self.world.is_stopping:
            await asyncio.sleep(self.rng.random() * self.world.pace_s / 2)
            known = self.world.txns.identities()
            if known and self.world.process.is_serving:
                transactional_id = self.rng.choice(list(known))
                try:
                    await self._claim(transactional_id, known)
                except NoAnswer:
                    await asyncio.sleep(0.1)

    def _old(self, txn: Transaction, given: list[Pair]) -> Pair | None:
        """One that was the id's; rather one with the epoch in force, which tells the producer ids apart."""
        old = [each for each in given if not _may_be_named(txn, each)]
        alike = [each for each in old if each[1] == txn.client_epoch]
        return self.rng.choice(alike or old) if old else None

    def _foreign(self, txn: Transaction, known: dict[str, list[Pair]]) -> Pair | None:
        """The producer id of somebody else, with an epoch that would be right."""
        ids = [pairs[-1][0] for name, pairs in known.items() if name != txn.transactional_id]
        found = (self.rng.choice(ids), txn.client_epoch) if ids else None
        return None if found is None or _may_be_named(txn, found) else found

    async def _claim(self, transactional_id: str, known: dict[str, list[Pair]]) -> None:
        await self.client.connected()
        txn, life = noted(self.world, transactional_id), self.client.life
        if txn is None or life != self.world.process.life:
            return
        is_foreign = self.rng.random() < 0.4
        named = self._foreign(txn, known) if is_foreign else self._old(txn, known[transactional_id])
        if named is None:
            return
        may_abort = named[0] == txn.client_id
        if may_abort and self.world.txn_shape.two_phase:
            return  # whoever comes back to what it has prepared counts on finding it
        if may_abort and txn.state is ONGOING and self.rng.random() >= _IN_THE_MIDDLE:
            return
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=3000,
            producer_id=named[0],
            producer_epoch=named[1],
        )
        if may_abort:
            self.world.txns.asking(transactional_id)
        answer = await self.client.ask(request, 4, InitProducerIdResponse)
        if may_abort:
            self.world.txns.was_answered(transactional_id)
        if is_fenced(answer.error_code):
            self.world.count("identity of another refused" if is_foreign else "old identity refused")
        elif answer.error_code == ErrorCode.NONE and life == self.client.life:
            self._check(txn, named, (answer.producer_id, answer.producer_epoch))

    def _check(self, txn: Transaction, named: Pair, given: Pair) -> None:
        if self.world.txn_shape.forgets and given[0] != txn.client_id and given[1] == 0:
            self.world.count("forgotten id given to who named an old one")  # nobody knew it any more
            return
        raise Violation(
            "T4 an old identity is over",
            f"{txn.transactional_id}: who named {named} was given {given}, and its coordinator had {txn}",
        )


def _may_be_named(txn: Transaction, pair: Pair) -> bool:
    """Whether whoever names this identity may have it, or have had it when the one in force was given."""
    in_force = [(txn.client_id, txn.client_epoch)]
    if txn.state in PREPARED:
        in_force.append(txn.identity_after())
    for producer_id, epoch in in_force:
        if pair[0] == producer_id and pair[1] >= epoch - 1:
            return True
        if pair[0] == txn.previous_producer_id != producer_id and is_exhausted(pair[1]):
            return True
    return False
