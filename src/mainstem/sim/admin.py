"""What administrators do in a run: topics come and go, settings change, records and groups are deleted."""

import asyncio
import contextlib
from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, Final

from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k08_offset_commit import OffsetCommitResponse
from mainstem.protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from mainstem.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from mainstem.protocol.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from mainstem.protocol.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from mainstem.protocol.messages.k42_delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from mainstem.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from mainstem.protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from mainstem.sim.churn import Churn
from mainstem.sim.client import NoAnswer, SimClient
from mainstem.sim.group_members import commit_request, find_coordinator
from mainstem.sim.ledger import Place, Violation
from mainstem.sim.workloads import list_offset

if TYPE_CHECKING:
    from mainstem.sim.world import World

_OFFSET_DELETIONS: Final = 0.3
"""Of the commits without members, how many are taken back."""
_OF_MEMBERS: Final = 0.6
GROUP: Final = "group"
"""The one that has members."""


async def create_topics(
    client: SimClient, topics: dict[str, tuple[int, dict[str, str]]]
) -> dict[str, tuple[ErrorCode, str]]:
    """Asks for them with one request: how many partitions each, with which settings. What came of each, and why."""
    wanted = [
        CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            assignments=[],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        for name, (partitions, configs) in topics.items()
    ]
    answer = await client.ask(CreateTopicsRequest(topics=wanted, timeout_ms=1000), 7, CreateTopicsResponse)
    return {topic.name: (ErrorCode(topic.error_code), topic.error_message or "") for topic in answer.topics}


async def create_topic(client: SimClient, name: str, partitions: int, configs: dict[str, str]) -> ErrorCode:
    return (await create_topics(client, {name: (partitions, configs)}))[name][0]


async def delete_records(world: "World", client: SimClient, place: Place, offset: int) -> None:
    """Asks for the deletion of everything before an offset."""
    before = world.what_goes.asked(place, offset)
    world.trace("deleted before", f"{place[0]}-{place[1]}", offset)
    partition = DeleteRecordsPartition(partition_index=place[1], offset=offset)
    topic = DeleteRecordsTopic(name=place[0], partitions=[partition])
    answer = await client.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=1000), 2, DeleteRecordsResponse)
    found = answer.topics[0].partitions[0]
    if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        world.what_goes.refused(place, offset, before)
        world.count("deletion past the high watermark refused")
    if found.error_code == ErrorCode.NONE:
        world.count("records deleted")
        if place in world.ledger.damaged:
            return
        if found.low_watermark < offset:
            raise Violation(
                "P1 what is to go goes",
                f"{place} was to begin at {offset}, and begins at {found.low_watermark}",
            )
        world.watch.acknowledged.deleted(place, offset, client.life)


async def delete_offset(client: SimClient, group: str, place: Place) -> ErrorCode:
    """Asks for one offset of a group to be forgotten (KIP-496)."""
    partition = OffsetDeleteRequestPartition(partition_index=place[1])
    topic = OffsetDeleteRequestTopic(name=place[0], partitions=[partition])
    answer = await client.ask(OffsetDeleteRequest(group_id=group, topics=[topic]), 0, OffsetDeleteResponse)
    if answer.error_code != ErrorCode.NONE:
        return ErrorCode(answer.error_code)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


class Admin:
    def __init__(self, world: "World", client: SimClient, rng: Random) -> None:
        self.world = world
        self.client = client
        self.rng = rng
        self.topics: dict[str, bool | None] = {}
        """Of the topics that come and go, whether they must be there; None where nobody can tell."""
        self.message_bytes_max: str | None = None
        """What `max.message.bytes` of the first topic was last set to; None where nobody can tell."""
        self._churn = Churn(world, client)
        self._deletions = Random(f"{world.seed}:deletions")
        self._was_answered = True
        """Whether every request to set it was: one that was not may still arrive, after later ones (N10)."""
        self._lost: dict[str, int] = {}
        """In which life of the broker a request about a topic was last not answered: in that life it may arrive yet."""

    async def run(self) -> None:
        actions = (
            self._create,
            self._create,
            self._delete,
            self._alter,
            self._alter_policy,
            self._shrink_group_segments,
            self._trim,
            self._commit,
            self._commit,
            self._delete_group,
            self._add_partitions,
        )
        while not self.world.is_stopping:
            with contextlib.suppress(NoAnswer):
                await self.rng.choice(actions)()
            await asyncio.sleep(self.rng.random() * 4 * self.world.pace_s)

    async def _create(self) -> None:
        name = f"churn{self.rng.randrange(3)}"
        before, self.topics[name] = self.topics.get(name, False), None
        partitions = 1 + self.rng.randrange(2)
        with self._asking(name):
            code = await create_topic(self.client, name, partitions, {})
        if code is ErrorCode.NONE:
            self.world.trace("topic created", self.client.name, name)
        self._settle(name, code, ErrorCode.TOPIC_ALREADY_EXISTS, True, before)
        if self._churn.is_on and self.topics[name]:
            if code is ErrorCode.NONE:
                self._churn.created(name)
            await self._churn.use(name)
            await self._make_anew(name)

    async def _make_anew(self, name: str) -> None:
        await self._remove(name)
        if self.topics[name] is False:
            self.topics[name] = None
            with self._asking(name):
                code = await create_topic(self.client, name, 1, {})
            self._settle(name, code, ErrorCode.TOPIC_ALREADY_EXISTS, True, False)
            if code is ErrorCode.NONE:
                self._churn.created(name)
                await self._churn.use(name)

    async def _delete(self) -> None:
        await self._remove(f"churn{self.rng.randrange(3)}")

    async def _remove(self, name: str) -> None:
        before, self.topics[name] = self.topics.get(name, False), None
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=1000)
        with self._asking(name):
            answer = await self.client.ask(request, 5, DeleteTopicsResponse)
        code = ErrorCode(answer.responses[0].error_code)
        if code == ErrorCode.NONE:
            self.world.count("A2 topic deleted")
            self.world.trace("topic deleted", self.client.name, name)
            self._churn.deleted(name)
        self._settle(name, code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False, before)

    @contextlib.contextmanager
    def _asking(self, name: str) -> Iterator[None]:
        try:
            yield
        except NoAnswer:
            self._lost[name] = self.world.process.life
            raise

    def _settle(self, name: str, code: ErrorCode, already: ErrorCode, there: bool, before: bool | None) -> None:
        if self._lost.get(name) == self.world.process.life:
            return
        if code in (ErrorCode.NONE, already):
            self.topics[name] = there
        elif code != ErrorCode.REQUEST_TIMED_OUT:
            self.topics[name] = before

    async def _alter(self) -> None:
        value = str(self.rng.randrange(1 << 15, 1 << 20))
        self.message_bytes_max = None
        was_answered, self._was_answered = self._was_answered, False
        if await self._set("log", {"max.message.bytes": value}) and was_answered:
            self.message_bytes_max = value
        self._was_answered = was_answered

    async def _alter_policy(self) -> None:
        """A3: what a topic's old records are worth changes while they are produced, read and cleaned."""
        policy = self.rng.choice(("compact", "compact", "compact,delete"))
        if await self._set("keyed", {"cleanup.policy": policy, "retention.ms": "-1", "retention.bytes": "-1"}):
            self.world.count("A3 cleanup policy changed")

    async def _shrink_group_segments(self) -> None:
        """So that the log of a coordinator, too, is rolled and compacted."""
        small = {"internal.segment.bytes": "1500", "min.cleanable.dirty.ratio": "0.01", "segment.index.bytes": "400"}
        await self._set("__consumer_offsets", small)

    async def _set(self, topic: str, configs: dict[str, str]) -> bool:
        changes = [AlterableConfig(name=name, config_operation=0, value=value) for name, value in configs.items()]
        resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=changes)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        answer = await self.client.ask(request, 1, IncrementalAlterConfigsResponse)
        if answer.responses[0].error_code != ErrorCode.NONE:
            return False
        self.world.count("A3 settings changed")
        return True

    async def _add_partitions(self) -> None:
        there = [name for name, is_there in self.topics.items() if is_there]
        name = self.rng.choice(there or ["churn0"])
        wanted = CreatePartitionsTopic(name=name, count=2 + self.rng.randrange(3), assignments=None)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=1000, validate_only=False)
        answer = await self.client.ask(request, 3, CreatePartitionsResponse)
        if answer.results[0].error_code == ErrorCode.NONE:
            self.world.count("partitions added")

    async def _trim(self) -> None:
        place = ("short", 0)
        end = await list_offset(self.client, place, -1)
        if not end:
            return
        await delete_records(self.world, self.client, place, self.rng.randrange(end + 1))

    async def _commit(self) -> None:
        """A commit without members, to a group that is deleted now and then."""
        group = f"simple{self.rng.randrange(2)}"
        await find_coordinator(self.client, group)
        commit = self.world.groups.committing(group, -1, "", ("log", 0), self.rng.randrange(1000), self.client.life)
        request = commit_request(group, ("log", 0), commit.offset, commit.tag)
        answer = await self.client.ask(request, 9, OffsetCommitResponse)
        self.world.groups.committed(commit, ErrorCode(answer.topics[0].partitions[0].error_code))
        if self._deletions.random() < _OFFSET_DELETIONS:
            await self._delete_offset(group)

    async def _delete_offset(self, group: str) -> None:
        deletion = self.world.groups.committing(group, -1, "", ("log", 0), -1, self.client.life)
        code = await delete_offset(self.client, group, ("log", 0))
        self.world.groups.committed(deletion, code)
        if code is ErrorCode.NONE:
            self.world.count("offset deleted")

    async def _delete_group(self) -> None:
        """Also one that has members, or its offset: neither goes then (G7)."""
        if self._deletions.random() < _OF_MEMBERS:
            await self._delete_offset(GROUP)
        group = GROUP if self._deletions.random() < _OF_MEMBERS else f"simple{self.rng.randrange(2)}"
        deletion = self.world.groups.committing(group, -1, "", ("log", 0), -1, self.client.life)
        answer = await self.client.ask(DeleteGroupsRequest(groups_names=[group]), 2, DeleteGroupsResponse)
        code = ErrorCode(answer.results[0].error_code)
        self.world.groups.committed(deletion, code)
        if code == ErrorCode.NONE:
            self.world.count("group deleted")
