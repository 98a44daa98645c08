"""Members of consumer groups, by the classic protocol: they join, share out the partitions, read, commit, and vanish.

Each notes what it was told, for the checkers of groups: generations and assignments as they were given, commits as they
were sent and answered.
"""

import asyncio
import contextlib
from random import Random
from typing import TYPE_CHECKING, Final

from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from mainstem.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from mainstem.protocol.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from mainstem.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from mainstem.protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from mainstem.protocol.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from mainstem.protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from mainstem.protocol.messages.k15_describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from mainstem.sim.client import NoAnswer, SimClient
from mainstem.sim.group_ledger import GONE
from mainstem.sim.ledger import Place, Violation
from mainstem.sim.workloads import fetch, list_offset, take

if TYPE_CHECKING:
    from mainstem.sim.world import World

SESSION_MS: Final = 1500
REBALANCE_MS: Final = 2000
ZOMBIE_SHARE: Final = 0.5
GLANCE_SHARE: Final = 0.25
LATE_PARTS_SHARE: Final = 0.5
REJOINS_SHARE: Final = 0.05
"""How often a leader joins again by itself, as who sees new partitions does: there has to be another generation."""
EPOCHS: Final = 7
OWN_GROUPS: Final = ("own", "own-committed", "copiers")
"""The groups of our own consumers, which look whether the epoch of a committed offset is still what the log says: they
commit the true one."""


def leader_epoch_of(offset: int) -> int:
    """The leader epoch that is committed with an offset: told by the offset, so that who fetches it knows it."""
    return offset % EPOCHS


class Member:
    def __init__(
        self, world: "World", client: SimClient, rng: Random, group: str, topic: str, partitions: int, static: bool
    ) -> None:
        self.world = world
        self.client = client
        self.rng = rng
        self.group = group
        self.topic = topic
        self.partitions = partitions
        # Whoever takes up a dead client's work is the same static member (C4).
        self.instance = client.name.rstrip("'") if static else None
        self.member_id = ""
        self.generation = -1
        self._former = (-1, "")
        """Generation and id that it had before this one."""
        self.life = -1
        """The life of the broker that has given it its part."""
        self._times_gone = 0
        """How often its group was gone when it asked to join."""
        self._spoke_s = 0.0
        """When it was last heard of by more than a heartbeat."""
        self._zombie = Random(f"{world.seed}:zombie:{client.name}")
        self._glances = Random(f"{world.seed}:glances:{client.name}")
        self._onlooker = client.another()
        """A second connection: what is asked on it waits for nothing that was sent on the first."""
        self._late_parts = Random(f"{world.seed}:late parts:{client.name}")
        self._restless = Random(f"{world.seed}:restless:{client.name}")
        self._led = (-1, "", -1)
        """The last generation that it has led until all had their parts, under which id, in which life of the broker.

        A group that is gone begins again with the same numbers, and with other members.
        """
        self._sync: SyncGroupRequest | None = None
        """What it has last said as a leader, of who gets what."""

    async def run(self) -> None:
        while not self.world.is_stopping:
            try:
                assigned = await self.join()
                if assigned is not None:
                    await self._consume(assigned)
            except NoAnswer:
                pass
            await asyncio.sleep(self.rng.random() * 0.1)
        chance = self.rng.random()
        with contextlib.suppress(NoAnswer):
            if chance < 0.6:
                await self._leave()
            elif chance < 0.8:
                # Its last act is to join, and never to ask what it got.
                await self.join(vanish=True)

    # Joining

    async def join(self, *, vanish: bool = False) -> list[int] | None:
        """Becomes a member of the group's next generation; its part, or None where it has to try again."""
        if await find_coordinator(self.client, self.group) != ErrorCode.NONE:
            return None
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
        )
        await self.client.connected()
        life = self.client.life
        self._times_gone = self.world.groups.times_gone(self.group)
        joined = await self.client.ask(request, 9, JoinGroupResponse, timeout_s=6)
        code = ErrorCode(joined.error_code)
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            return None
        if code != ErrorCode.NONE:
            if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                self._look_whether_known(self.member_id, code)
                self.member_id = ""
            return None
        if self.instance is not None and self.client.name != self.instance and not self.member_id:
            self.world.count("C4 static member replaced")
        if (joined.generation_id, joined.member_id, life) == self._led:
            raise Violation(
                "G9 a leader that joins again is heard",
                f"{self.member_id}, which led generation {joined.generation_id} of {self.group}, joined again, and no "
                "other one began",
            )
        if joined.generation_id != self.generation:
            self._former = (self.generation, joined.member_id)
        self.member_id, self.generation = joined.member_id, joined.generation_id
        self.world.groups.joined(self.group, self.generation, life, self._times_gone)
        if vanish or self.rng.random() < self.world.member_vanishes:
            # C3: it goes silent before it says who gets what.
            self.world.count("C3 member vanished before SyncGroup")
            self.member_id = ""
            await asyncio.sleep(SESSION_MS / 1000 * self.rng.random() * 2)
            return None
        if self.instance is not None:
            self.world.watch.members.took(self.group, self.instance, self.member_id, life)
        assignments = []
        if joined.leader == self.member_id and not joined.skip_assignment:
            parts: dict[str, bytes] = {}
            for index, member in enumerate(joined.members):
                mine = bytes(p for p in range(self.partitions) if p % len(joined.members) == index)
                assignments.append(SyncGroupRequestAssignment(member_id=member.member_id, assignment=mine))
                parts[member.group_instance_id or member.member_id] = mine
            self.world.watch.parts.named(self.group, self.generation, parts)
        sync = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )
        if assignments:
            await self._name_former_parts()
            self._sync = sync
        await self.client.connected()
        life = self.client.life
        synced = await self.client.ask(sync, 5, SyncGroupResponse, timeout_s=6)
        if synced.error_code != ErrorCode.NONE:
            if synced.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                self._look_whether_known(self.member_id, ErrorCode(synced.error_code))
                self.member_id = ""
            return None
        assigned = list(synced.assignment)
        if assignments and life == self.client.life:
            self._led = (self.generation, self.member_id, life)
        # A static member that joins again takes its own place, under another id.
        who = self.instance or self.member_id
        self.life = life
        self._spoke_s = self.client.loop.time()
        self.world.groups.assigned(self.group, self.generation, who, assigned, life, self._times_gone)
        self.world.watch.parts.given(self.group, self.generation, who, bytes(synced.assignment))
        self.world.trace("assigned", self.client.name, self.group, self.generation, str(assigned))
        return assigned

    async def _name_former_parts(self) -> None:
        """A thread of it that has not noticed the rebalance says who gets what in the generation before (G2)."""
        former = self._sync
        if former is None or former.member_id != self.member_id or former.generation_id >= self.generation:
            return
        if self._late_parts.random() < LATE_PARTS_SHARE:
            answer = await self.client.ask(former, 5, SyncGroupResponse, timeout_s=6)
            if answer.error_code == ErrorCode.ILLEGAL_GENERATION:
                self.world.count("parts of a stale generation refused")

    # Consuming

    async def _consume(self, assigned: list[int]) -> None:
        places: dict[Place, int] = {}
        for partition in assigned:
            committed = await self._committed((self.topic, partition))
            if committed is None:
                return
            places[self.topic, partition] = max(committed, 0)
        if places and self._former[0] >= 0 and self.rng.random() < 0.2:
            # A thread of it that has not noticed the rebalance (G5).
            place = self.rng.choice(list(places))
            await self._commit(place, self.rng.randrange(1000), *self._former)
        if places and self.instance is not None and self._zombie.random() < ZOMBIE_SHARE:
            await self._commit_as_replaced(self.instance, next(iter(places)))
        while not self.world.is_stopping:
            for place, offset in list(places.items()):
                await self.client.connected()
                life = self.client.life
                code, start, high, records, after = await fetch(
                    self.client, place, offset, max_wait_ms=20, max_bytes=300
                )
                if code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    after = await list_offset(self.client, place, -2) or 0
                take(self.world, place, records, offset, start, high, life)
                places[place] = after
                if records and self.rng.random() < 0.5 and not await self._commit(place, places[place]):
                    return
            beat = HeartbeatRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance,
            )
            await self.client.connected()
            life, sent_s = self.client.life, self.client.loop.time()
            answer = await self.client.ask(beat, 4, HeartbeatResponse)
            if answer.error_code == ErrorCode.NONE:
                self.world.watch.stays.heard(self.group, self.member_id, life, sent_s)
                if life == self.life and sent_s - self._spoke_s > SESSION_MS / 1000:
                    self.world.count("member stayed by its heartbeats")
            self._answered(self.generation, self.member_id, ErrorCode(answer.error_code))
            if answer.error_code != ErrorCode.NONE:
                if answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                    self.member_id = ""
                return
            chance = self.rng.random()
            if chance < 0.01:
                await self._leave()
                return
            if self._led[0] == self.generation and self._restless.random() < REJOINS_SHARE:
                self.world.count("leader joined again")
                return
            if chance < 0.02:
                self.world.count("member lost its memory")
                self.member_id = ""
                return
            await asyncio.sleep(self.rng.random() * 0.4)

    async def _committed(self, place: Place) -> int | None:
        """Where the group is, as it is told: by the log of its coordinator, then or since."""
        logged = self.world.groups.logged.setdefault((self.group, place), [])
        before = logged[-1].offset if logged else GONE
        count = len(logged)
        code, offset, tag = await ask_offset(self.client, self.group, *place)
        found = offset if code is ErrorCode.NONE else None
        if found is not None:
            self.world.watch.told.told(self.group, place, tag, self.client.life)
        if found is not None and self.client.life == self.life == self.world.process.life:
            said = [before, *(each.offset for each in logged[count:])]
            if found not in said:
                raise Violation(
                    "G4 a group is told its offset",
                    f"{self.group} is told {found} for {place}; it was at {said}",
                )
            self.world.count("offset of a member checked")
        return found

    async def _commit(
        self, place: Place, offset: int, generation: int | None = None, member_id: str | None = None
    ) -> bool:
        generation = self.generation if generation is None else generation
        member_id = self.member_id if member_id is None else member_id
        is_watched = self._glances.random() < GLANCE_SHARE
        if is_watched:
            await self._onlooker.connected()
        await self.client.connected()
        commit = self.world.groups.committing(self.group, generation, member_id, place, offset, self.client.life)
        request = commit_request(self.group, place, offset, commit.tag, generation, member_id, self.instance)
        sent = await self.client.send(request, 9)
        if is_watched:
            await self._glance(place, commit.tag)
        answer = await self.client.answer(sent, OffsetCommitResponse)
        code = ErrorCode(answer.topics[0].partitions[0].error_code)
        self._spoke_s = self.client.loop.time()
        self.world.groups.committed(commit, code)
        self._answered(generation, member_id, code)
        return code == ErrorCode.NONE

    async def _glance(self, place: Place, committing: str) -> None:
        """Somebody asks where the group is while it commits (G8)."""
        with contextlib.suppress(NoAnswer):
            code, _, tag = await ask_offset(self._onlooker, self.group, *place)
            if code is ErrorCode.NONE:
                self.world.watch.told.told(self.group, place, tag, self._onlooker.life)
                if tag == committing:
                    self.world.count("offset told beside its commit")

    def _look_whether_known(self, member_id: str, code: ErrorCode) -> None:
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.world.watch.stays.is_unknown(self.group, member_id, self.client.life, SESSION_MS / 1000)

    def _answered(self, generation: int, member_id: str, code: ErrorCode) -> None:
        self._look_whether_known(member_id, code)
        if generation == self.generation and self.client.life == self.life:
            self.world.watch.members.answered(self.group, generation, member_id, self.life, code)

    async def _commit_as_replaced(self, instance: str, place: Place) -> None:
        """Whoever had its instance id before is not dead after all (C4), and knows of the generation."""
        replaced = self.world.watch.members.replaced(self.group, instance, self.life)
        if replaced is None or self.client.life != self.life:
            return
        request = commit_request(self.group, place, 0, "by who was replaced", self.generation, replaced, instance)
        answer = await self.client.ask(request, 9, OffsetCommitResponse)
        code = ErrorCode(answer.topics[0].partitions[0].error_code)
        self.world.watch.members.zombie_answered(self.group, replaced, self.life, code)

    async def _leave(self) -> None:
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance)
        try:
            request = LeaveGroupRequest(group_id=self.group, members=[identity])
            await self.client.ask(request, 5, LeaveGroupResponse)
        except NoAnswer:
            pass
        self.member_id = ""


def commit_request(
    group: str,
    place: Place,
    offset: int,
    tag: str,
    generation: int = -1,
    member: str = "",
    instance: str | None = None,
) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(
        partition_index=place[1],
        committed_offset=offset,
        committed_leader_epoch=leader_epoch_of(offset),
        committed_metadata=tag,
    )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        group_instance_id=instance,
        topics=[OffsetCommitRequestTopic(name=place[0], partitions=[partition])],
    )


async def fetch_committed(client: SimClient, group: str, topic: str, partition: int) -> int | None:
    """The committed offset, -1 where there is none; None where it cannot be told now."""
    code, offset, _ = await ask_offset(client, group, topic, partition)
    return offset if code is ErrorCode.NONE else None


async def fetch_offset(
    client: SimClient, group: str, topic: str, partition: int, *, require_stable: bool = False
) -> tuple[ErrorCode, int]:
    code, offset, _ = await ask_offset(client, group, topic, partition, require_stable=require_stable)
    return code, offset


async def ask_offset(
    client: SimClient, group: str, topic: str, partition: int, *, require_stable: bool = False
) -> tuple[ErrorCode, int, str]:
    """The committed offset and its metadata, the tag of its commit."""
    wanted = [OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])]
    asked = OffsetFetchRequestGroup(group_id=group, topics=wanted)
    answer = await client.ask(OffsetFetchRequest(groups=[asked], require_stable=require_stable), 9, OffsetFetchResponse)
    found = answer.groups[0]
    if found.error_code != ErrorCode.NONE:
        return ErrorCode(found.error_code), -1, ""
    one = found.topics[0].partitions[0]
    is_made_up = group not in OWN_GROUPS
    if is_made_up and one.committed_offset >= 0 and one.committed_leader_epoch != leader_epoch_of(one.committed_offset):
        raise Violation(
            "G4 an offset has its leader epoch",
            f"{group} is at {one.committed_offset} of {topic}-{partition}, it is told in epoch "
            f"{one.committed_leader_epoch}, and was committed in {leader_epoch_of(one.committed_offset)}",
        )
    return ErrorCode(one.error_code), one.committed_offset, one.metadata or ""


async def find_coordinator(client: SimClient, group: str) -> ErrorCode:
    """Asks who coordinates a group, which creates the topic that coordinators write to."""
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    answer = await client.ask(request, 4, FindCoordinatorResponse)
    return ErrorCode(answer.coordinators[0].error_code)


async def describe_group(client: SimClient, group: str) -> tuple[str, list[str]]:
    """The state of a group, and the ids of its members."""
    answer = await client.ask(DescribeGroupsRequest(groups=[group]), 5, DescribeGroupsResponse)
    found = answer.groups[0]
    return found.group_state, [each.member_id for each in found.members]
