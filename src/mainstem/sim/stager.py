"""Who has an offset of a topic staged in a transaction when that topic is deleted, and commits the transaction then.

What was staged goes with its topic, as what was committed does (`churn`): a topic of the same name, made before the
transaction is committed or after, must not be begun where somebody was in the one before it (P10).

Judged where the offset was staged, the topic deleted and the transaction committed in one life of the broker, and no
disk has failed: a coordinator that is gone before it hears of a deletion never does.
"""

from random import Random
from typing import TYPE_CHECKING, Final

from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from mainstem.protocol.messages.k28_txn_offset_commit import TxnOffsetCommitRequest
from mainstem.sim.admin import create_topic
from mainstem.sim.churn import position
from mainstem.sim.client import NoAnswer, SimClient
from mainstem.sim.ledger import Violation
from mainstem.sim.txn_ledger import Txn
from mainstem.sim.txn_workload import GaveUpError, TxnProducer

if TYPE_CHECKING:
    from mainstem.sim.world import World

REACHED: Final = ("A2 staged offset of a deleted topic looked for",)
"""Rare branches that each campaign must have taken."""

NAME: Final = "txnstager"
TOPIC: Final = "churnstaged"
GROUP: Final = "churning-staged"
_SHARE: Final = 0.35


def comes(seed: int) -> bool:
    """Whether a run with transactions has one. Drawn apart, so that the others are as they were."""
    return Random(f"{seed}:stager").random() < _SHARE


class Stager(TxnProducer):
    def __init__(self, world: "World", client: SimClient, rng: Random, *, tv2: bool) -> None:
        super().__init__(world, client, rng, NAME, tv2=tv2)
        self._made_anew = Random(f"{world.seed}:made anew:{client.name}")

    async def _transaction(self) -> None:
        if not await self._create():
            await self._pause()
            return
        self.group = GROUP
        txn = self._txn = self.world.txns.begin(
            self.client.name, self.transactional_id, GROUP, (self.producer_id, self.epoch)
        )
        self._added.clear()
        await self._commit_offset(txn)
        life = self.client.life
        is_deleted = await self._delete()
        if is_deleted and self._made_anew.random() < 0.5:
            await self._create()
        await self._end(txn, commit=True)
        if is_deleted:
            await self._look(txn, life)
        if self._missed_answer and not self.tv2:
            self.producer_id = -1

    def _offset_request(self, txn: Txn) -> TxnOffsetCommitRequest:
        request = super()._offset_request(txn)
        request.topics[0].name = TOPIC
        txn.offset = None  # nobody is to find it
        return request

    def _go_on_after(self, code: ErrorCode) -> None:
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise GaveUpError
        super()._go_on_after(code)

    async def _create(self) -> bool:
        try:
            code = await create_topic(self.client, TOPIC, 1, {})
        except NoAnswer:
            self._missed_answer = True
            return False
        return code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

    async def _delete(self) -> bool:
        answer = await self._ask(DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=1000), 5, DeleteTopicsResponse)
        return answer is not None and answer.responses[0].error_code == ErrorCode.NONE

    async def _look(self, txn: Txn, life: int) -> None:
        def can_tell() -> bool:
            return self.client.life == life and not self.world.had_disk_error and not txn.is_torn

        try:
            offset = await position(self.client, GROUP, TOPIC, can_tell, lambda offset: offset == txn.number)
        except NoAnswer:
            self._missed_answer = True
            return
        if offset is None:
            return
        if offset == txn.number:
            raise Violation(
                "P10 a new topic is empty",
                f"{TOPIC} was deleted while {NAME} had an offset of it staged, and {GROUP} is at {offset} of it",
            )
        self.world.count("A2 staged offset of a deleted topic looked for")
