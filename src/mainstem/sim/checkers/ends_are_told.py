"""T8: who asks again for the end that its transaction has is told that it is so (Redpanda #9571).

A client whose answer was lost asks again, under the epoch that it had. Were it told an error it would take what is
committed for lost, and do its work once more. Judged by what the coordinator has written when it asks, where nobody has
taken the id by the time of the answer, and the broker is the same:
- Under version 1 the epoch is that of the transaction which is over.
- Under version 2 the end has raised it, or given the id's next producer id where it could not be raised (KIP-890); the
  answer says which identity that is. An abort by its time-out is one that its client may have asked for.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from mainstem.core.txn.states import COMPLETE_ABORT, COMPLETE_COMMIT, Transaction, is_exhausted
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from mainstem.sim.checkers import Checker
from mainstem.sim.client import SimClient
from mainstem.sim.ledger import Violation
from mainstem.sim.zombies import noted

if TYPE_CHECKING:
    from mainstem.sim.world import World

_WRITTEN_S: Final = 0.5
"""Within which time a coordinator has written what it knew when it refused somebody, if ever."""


class EndsAreTold(Checker):
    def asking(self, client: SimClient, request: EndTxnRequest, tv2: bool) -> "Asked":
        return Asked(self.world, client, request, tv2)


class Asked:
    """An EndTxn on its way."""

    def __init__(self, world: "World", client: SimClient, request: EndTxnRequest, tv2: bool) -> None:
        self._world = world
        self._client = client
        self._request = request
        self._tv2 = tv2
        self._life = world.process.life
        found = noted(world, request.transactional_id)
        self._over = found if found is not None and self._is_its_end(found) else None

    def _is_its_end(self, txn: Transaction) -> bool:
        request = self._request
        if txn.state is not (COMPLETE_COMMIT if request.committed else COMPLETE_ABORT):
            return False
        if not self._tv2:
            return (txn.producer_id, txn.producer_epoch) == (request.producer_id, request.producer_epoch)
        if is_exhausted(request.producer_epoch):
            return txn.previous_producer_id == request.producer_id and txn.producer_epoch == 0
        return (txn.producer_id, txn.producer_epoch) == (request.producer_id, request.producer_epoch + 1)

    def _is_still_so(self) -> bool:
        is_of_one_life = self._life == self._client.life == self._world.process.life
        return is_of_one_life and noted(self._world, self._request.transactional_id) is self._over

    async def was_answered(self, answer: EndTxnResponse) -> None:
        over, code = self._over, ErrorCode(answer.error_code)
        if over is None or not self._is_still_so():
            return
        if code is ErrorCode.NONE:
            self._world.count("end told again")
            given = (answer.producer_id, answer.producer_epoch)
            if self._tv2 and given != (over.producer_id, over.producer_epoch):
                raise self._violation(f"is given {given}")
            return
        await asyncio.sleep(_WRITTEN_S)
        if self._is_still_so():
            raise self._violation(f"is told {code.name}")

    def _violation(self, what: str) -> Violation:
        request = self._request
        return Violation(
            "T8 who has ended a transaction is told so",
            f"{request.transactional_id} asks as {(request.producer_id, request.producer_epoch)} for the end that its "
            f"coordinator has written, {self._over}, and {what}",
        )
