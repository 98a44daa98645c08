"""Transactional clients that are members of a group, and commit its offsets as such (KIP-447): read, process, write.

The group's coordinator judges such a commit by the member and its generation, as one without a transaction (G5):
- Of a generation that was over when it was sent it takes nothing, in a transaction neither. A client that has not
  noticed the rebalance sends such a commit now and then.
- Who is a member of the generation in force is not refused for that.
What becomes of the offsets is the business of those who look at all transactions (T9, G6).
"""

from random import Random
from typing import TYPE_CHECKING, Final

from mainstem.core.txn.states import TV2
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k28_txn_offset_commit import TxnOffsetCommitRequest
from mainstem.sim.client import NoAnswer, SimClient
from mainstem.sim.group_members import Member
from mainstem.sim.ledger import Violation
from mainstem.sim.txn_ledger import Txn
from mainstem.sim.txn_workload import GaveUpError, TxnProducer

if TYPE_CHECKING:
    from mainstem.sim.world import World

GROUP: Final = "processors"
SHARE: Final = 0.3
_JOINS_MAX: Final = 8
_REJOINS: Final = 0.4
_STALE: Final = 0.4
_PARTITIONS: Final = 2


class TxnMember(TxnProducer):
    def __init__(self, world: "World", client: SimClient, rng: Random, name: str, *, tv2: bool) -> None:
        super().__init__(world, client, rng, name, tv2=tv2)
        self._membership = Random(f"{world.seed}:membership:{client.name}")
        self._member = Member(world, client, self._membership, GROUP, "log", _PARTITIONS, static=False)
        self._stale = (-1, "")
        """The generation that it was in before this one, and under which id."""
        self._sent_in = -1
        self._was_over = False

    async def _commit_offset(self, txn: Txn) -> None:
        self.group = txn.group = GROUP
        if self._member.generation < 0 or self._membership.random() < _REJOINS:
            await self._join()
        await super()._commit_offset(txn)

    async def _join(self) -> None:
        before = (self._member.generation, self._member.member_id)
        for _ in range(_JOINS_MAX):
            try:
                if await self._member.join() is not None:
                    if before[0] >= 0 and before[0] != self._member.generation:
                        self._stale = before
                    return
            except NoAnswer:
                self._missed_answer = True
            await self._pause()
        self._member.generation = -1
        raise GaveUpError

    def _offset_request(self, txn: Txn) -> TxnOffsetCommitRequest:
        request = super()._offset_request(txn)
        request.generation_id, request.member_id = self._member.generation, self._member.member_id
        if self._stale[0] >= 0 and self._membership.random() < _STALE:
            request.generation_id, request.member_id = self._stale
        life = self.client.life
        self._sent_in = life
        self._was_over = self.world.groups.is_over(GROUP, request.generation_id, life)
        return request

    def _offset_answered(self, commit: TxnOffsetCommitRequest, code: ErrorCode) -> None:
        if self.client.life != self._sent_in or self._member.life != self._sent_in:
            return
        if code is ErrorCode.NONE and self._was_over:
            raise Violation(
                "G5 a stale commit is refused",
                f"{GROUP}: {commit.member_id} of generation {commit.generation_id} has committed in a transaction, "
                "though a later generation had begun",
            )
        self.world.watch.members.answered(GROUP, commit.generation_id, commit.member_id, self._sent_in, code)
        if code is ErrorCode.NONE:
            self.world.count("offset committed as a member")
        elif self._was_over:
            self.world.count("offset of a stale generation refused")


def add_members(world: "World") -> None:
    """Two of them, in some of the runs that have transactions. Drawn apart, so that the others are as they were."""
    rng = Random(f"{world.seed}:processors")
    if rng.random() >= SHARE:
        return
    for index in range(2):
        tv2 = world.txn_shape.level >= TV2 and rng.random() < 0.7
        _add(world, f"processor{index}", tv2)


def _add(world: "World", name: str, tv2: bool) -> None:
    if not tv2:
        world.network.in_time.add(name)
    world.add_client(name, lambda client, rng: TxnMember(world, client, rng, name, tv2=tv2).run())
