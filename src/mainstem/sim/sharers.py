"""Who else has a hand in what transactional clients use, in runs that are tuned so (`tuning`): somebody who commits the
offsets of their group without a transaction and deletes the group, and somebody who deletes records of their topic."""

import asyncio
import contextlib
from random import Random
from typing import TYPE_CHECKING, Final

from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k08_offset_commit import OffsetCommitResponse
from mainstem.protocol.messages.k42_delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from mainstem.sim.admin import delete_records
from mainstem.sim.client import NoAnswer, SimClient
from mainstem.sim.group_members import commit_request, find_coordinator
from mainstem.sim.ledger import Place
from mainstem.sim.workloads import list_offset

if TYPE_CHECKING:
    from mainstem.sim.world import World

_PLACE: Final = ("log", 0)
_OFFSET_MIN: Final = 100_000
"""Past those of transactions, so that a reader of a trace can tell them."""


class Sharer:
    def __init__(self, world: "World", client: SimClient, rng: Random, group: str) -> None:
        self.world = world
        self.client = client
        self.rng = rng
        self.group = group

    async def run(self) -> None:
        while not self.world.is_stopping:
            with contextlib.suppress(NoAnswer):
                if self.rng.random() < 0.85:
                    await self._commit()
                else:
                    await self._delete()
            await asyncio.sleep(self.rng.random() * 1.2)

    async def _commit(self) -> None:
        await find_coordinator(self.client, self.group)
        offset = _OFFSET_MIN + self.rng.randrange(1000)
        commit = self.world.groups.committing(self.group, -1, "", _PLACE, offset, self.client.life)
        answer = await self.client.ask(commit_request(self.group, _PLACE, offset, commit.tag), 9, OffsetCommitResponse)
        self.world.groups.committed(commit, ErrorCode(answer.topics[0].partitions[0].error_code))

    async def _delete(self) -> None:
        deletion = self.world.groups.committing(self.group, -1, "", _PLACE, -1, self.client.life)
        answer = await self.client.ask(DeleteGroupsRequest(groups_names=[self.group]), 2, DeleteGroupsResponse)
        self.world.groups.committed(deletion, ErrorCode(answer.results[0].error_code))


class Trimmer:
    """Deletes the beginning of a partition, bit by bit."""

    def __init__(self, world: "World", client: SimClient, rng: Random, place: Place) -> None:
        self.world = world
        self.client = client
        self.rng = rng
        self.place = place

    async def run(self) -> None:
        while not self.world.is_stopping:
            with contextlib.suppress(NoAnswer):
                start = await list_offset(self.client, self.place, -2)
                end = await list_offset(self.client, self.place, -1)
                if start is not None and end is not None and start < end:
                    offset = start + 1 + self.rng.randrange(min(end - start, self.rng.choice((4, 12, 1000))))
                    await delete_records(self.world, self.client, self.place, offset)
            await asyncio.sleep(self.rng.random() * 0.4)
