"""Topics that come and go under one name, with records in them (A2): a new topic has nothing of the one before it,
neither records nor a group's position.

Who does all of it is one client, which sends one request after the other. So what it wrote, and was told to be written,
before it was told that a topic of that name was created, is in another topic. What was not answered may arrive late
(N10) and is not counted on.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from mainstem.protocol.builder import BatchBuilder
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k08_offset_commit import OffsetCommitResponse
from mainstem.sim.client import SimClient
from mainstem.sim.group_members import commit_request, fetch_offset, find_coordinator
from mainstem.sim.ledger import Violation
from mainstem.sim.workloads import PRODUCE_VERSION, client_ms, fetch

if TYPE_CHECKING:
    from mainstem.sim.world import World

SHARE = 0.3
"""Of the runs, in how many such topics have records. Drawn apart, so that the others are as they were."""
PAUSE_S = 0.05
GROUP = "churning"
LOOKS = 6
LOOK_AGAIN_S = 0.25


async def position(
    client: SimClient, group: str, topic: str, can_tell: Callable[[], bool], is_old: Callable[[int], bool]
) -> int | None:
    """Where a group is in a topic that was deleted, once that is known; None where nobody can tell.

    The coordinator hears of a deletion when the broker does, and forgets what it knows a little later.
    """
    offset = -1
    for _ in range(LOOKS):
        code, offset = await fetch_offset(client, group, topic, 0)
        if code is not ErrorCode.NONE or not can_tell():
            return None
        if not is_old(offset):
            break
        await asyncio.sleep(LOOK_AGAIN_S)
    return offset


class Churn:
    def __init__(self, world: "World", client: SimClient) -> None:
        self.world = world
        self.client = client
        self.is_on = Random(f"{world.seed}:churn").random() < SHARE
        self._number = 0
        self._lives: dict[str, int] = {}
        """How many topics of each name were created."""
        self._written: dict[bytes, int] = {}
        """The values that are surely written, and in which of the topics of that name."""
        self._committed: dict[int, int] = {}
        """The same of the offsets that a group has committed."""
        self._deleted_in: dict[str, int] = {}
        """In which life of the broker the last topic of each name was deleted: one that dies before it has forgotten
        the offsets of a topic never does."""

    def created(self, name: str) -> None:
        self._lives[name] = self._lives.get(name, 0) + 1

    def deleted(self, name: str) -> None:
        self._deleted_in[name] = self.client.life

    async def use(self, name: str) -> None:
        """Writes to a topic that is there, and reads all that it has."""
        await self._write(name)
        await asyncio.sleep(PAUSE_S)
        code, _, _, records, _ = await fetch(self.client, (name, 0), 0, max_wait_ms=0)
        if code is ErrorCode.NONE:
            self.check(name, [value for _, _, value in records])
        await self._look_at_offset(name)
        await self._commit(name)

    async def _write(self, name: str) -> None:
        self._number += 1
        value = f"{self.client.name}.{name}.{self._number}".encode()
        builder = BatchBuilder()
        builder.append(client_ms(self.world), None, value)
        found = await self.client.produce((name, 0), builder.build(), PRODUCE_VERSION)
        if found.error_code == ErrorCode.NONE:
            self._written[value] = self._lives.get(name, 0)

    async def _commit(self, name: str) -> None:
        self._number += 1
        offset = self._number
        await find_coordinator(self.client, GROUP)
        request = commit_request(GROUP, (name, 0), offset, f"{name} {offset}")
        answer = await self.client.ask(request, 9, OffsetCommitResponse)
        if answer.topics[0].partitions[0].error_code == ErrorCode.NONE:
            self._committed[offset] = self._lives.get(name, 0)

    async def _look_at_offset(self, name: str) -> None:
        life = self._lives.get(name, 0)

        def is_old(offset: int) -> bool:
            return self._committed.get(offset, life) != life

        def can_tell() -> bool:
            return self.client.life == self._deleted_in.get(name)

        offset = await position(self.client, GROUP, name, can_tell, is_old)
        if offset is None:
            return
        if is_old(offset):
            raise Violation(
                "P10 a new topic is empty",
                f"{name} was deleted and created anew, and a group is at {offset} of the old",
            )
        if life > 1:
            self.world.count("A2 offset of an old name looked for")

    def check(self, name: str, values: list[bytes]) -> None:
        life = self._lives.get(name, 0)
        for value in values:
            if self._written.get(value, life) != life:
                raise Violation(
                    "P10 a new topic is empty",
                    f"{name} was deleted and created anew, and has {value!r} of the one before (KAFKA-12257)",
                )
        if life > 1 and values:
            self.world.count("A2 new topic of an old name read")
