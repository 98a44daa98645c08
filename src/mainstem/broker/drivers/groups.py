"""The group coordinator of this broker: it finds the shard of a group and asks it.

Every method returns what the machine answers, or raises the RemoteError that the API turns into its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeVar

from mainstem.broker.config import BrokerConfig
from mainstem.broker.context import RequestContext
from mainstem.broker.drivers.coordinator import CoordinatorRuntime, PartitionLog, Shard, coordinator_error
from mainstem.broker.drivers.verification import ProducerBatch
from mainstem.broker.topic_creation import GROUP_OFFSETS
from mainstem.core.controller.image import ClusterImage, ImageDelta
from mainstem.core.coordinator.effects import Outcome
from mainstem.core.group.config import GroupConfig
from mainstem.core.group.machine import GroupMachine
from mainstem.core.group.offsets import CommitBy, FetchedOffset, NewOffset, WantedTopic
from mainstem.core.group.rebalance import Caller
from mainstem.core.log.verification import NO_GUARD
from mainstem.protocol.batch import NO_SEQUENCE
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.java import coordinator_partition
from mainstem.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse
from mainstem.protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from mainstem.protocol.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse
from mainstem.protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from mainstem.protocol.messages.k15_describe_groups import DescribedGroup
from mainstem.protocol.messages.k16_list_groups import ListedGroup

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

T = TypeVar("T")
Step = Callable[[GroupMachine, asyncio.Future[object], int], Outcome]


MEMBER_NAME_BYTES_MAX: Final = 0x7FFF - 37
"""A member's id is its client's or instance's and 37 bytes more, and no string is longer than 16 bits can tell."""


def group_config(config: BrokerConfig) -> GroupConfig:
    return GroupConfig(
        session_timeout_min_ms=config.get_int("group.min.session.timeout.ms"),
        session_timeout_max_ms=config.get_int("group.max.session.timeout.ms"),
        initial_rebalance_delay_ms=config.get_int("group.initial.rebalance.delay.ms", at_least=0),
        size_max=config.get_int("group.max.size", at_least=1),
        offset_metadata_max=config.get_int("offset.metadata.max.bytes", at_least=0),
        offsets_retention_ms=config.get_int("offsets.retention.minutes", at_least=1) * 60_000,
        offsets_retention_check_ms=config.get_int("offsets.retention.check.interval.ms", at_least=1),
    )


class Groups:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        settings = group_config(broker.config)
        self.runtime: CoordinatorRuntime[GroupMachine] = CoordinatorRuntime(
            broker.loop,
            broker.clock,
            GROUP_OFFSETS,
            lambda: GroupMachine(settings),
            codec=broker.config.get_int("offsets.topic.compression.codec", at_least=0, at_most=4),
            commit_timeout_ms=broker.config.get_int("offsets.commit.timeout.ms", at_least=1),
        )

    def follow(self, image: ClusterImage, delta: ImageDelta) -> None:
        """Takes on and gives up shards as the partitions of the topic are led here or not; forgets deleted topics."""
        for topic_id, index in delta.partitions:
            topic = image.topics_by_id.get(topic_id)
            if topic is not None and topic.name == GROUP_OFFSETS:
                partition = self._broker.partitions.get(GROUP_OFFSETS, index)
                if partition is not None and partition.leader is not None:
                    held = PartitionLog(self._broker.loop, partition)
                    self.runtime.elected(index, partition.leader.epoch, held)
                else:
                    self.runtime.resigned(index)
        removed = frozenset(topic.name for topic in delta.removed_topics.values())
        if GROUP_OFFSETS in removed and GROUP_OFFSETS not in image.topics:
            self.runtime.close()
        if removed:
            for shard in self.runtime.shards.values():
                shard.tell(lambda machine, now_ms: machine.topics_deleted(removed))

    def close(self) -> None:
        self.runtime.close()

    def _shard(self, group_id: str, empty_allowed: bool = False) -> Shard[GroupMachine]:
        if not group_id and not empty_allowed:
            raise RemoteError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        return self.runtime.shard(self._index(group_id))

    def _index(self, group_id: str) -> int:
        topic = self._broker.image.topics.get(GROUP_OFFSETS)
        if topic is None:
            raise RemoteError(ErrorCode.NOT_COORDINATOR, f"{GROUP_OFFSETS} does not exist yet")
        return coordinator_partition(group_id, len(topic.partitions))

    async def _ask(self, kind: type[T], group_id: str, step: Step, empty_allowed: bool = False) -> T:
        answer = await self._shard(group_id, empty_allowed).ask(step)
        assert isinstance(answer, kind), f"{answer!r} is not a {kind.__name__}"
        return answer

    # Members

    async def join(self, context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
        named = context.client_id if request.group_instance_id is None else request.group_instance_id
        if len(named.encode()) > MEMBER_NAME_BYTES_MAX:
            raise RemoteError(ErrorCode.UNKNOWN_SERVER_ERROR, f"a member id cannot begin with {len(named)} characters")
        caller = Caller(context.client_id, context.client_host, context.api_version, self._fresh_id())
        return await self._ask(
            JoinGroupResponse,
            request.group_id,
            lambda machine, ticket, now_ms: machine.join(ticket, caller, request, now_ms),
        )

    def _fresh_id(self) -> str:
        """A random uuid (version 4), as Kafka appends to a member's id."""
        bits = self._broker.rng.getrandbits(128)
        bits = bits & ~(0xF << 76) | 4 << 76
        bits = bits & ~(0x3 << 62) | 2 << 62
        text = f"{bits:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    async def sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        return await self._ask(
            SyncGroupResponse,
            request.group_id,
            lambda machine, ticket, now_ms: machine.sync(ticket, request, now_ms),
        )

    async def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        return await self._ask(
            HeartbeatResponse,
            request.group_id,
            lambda machine, ticket, now_ms: machine.heartbeat(ticket, request, now_ms),
        )

    async def leave(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        return await self._ask(
            LeaveGroupResponse,
            request.group_id,
            lambda machine, ticket, now_ms: machine.leave(ticket, request, now_ms),
        )

    # Offsets

    async def commit_offsets(self, by: CommitBy, offsets: list[NewOffset]) -> list[ErrorCode]:
        return await self._ask(
            list,
            by.group_id,
            lambda machine, ticket, now_ms: machine.commit_offsets(ticket, by, offsets, now_ms),
            empty_allowed=True,
        )

    async def commit_in_transaction(
        self,
        transactional_id: str,
        by: CommitBy,
        offsets: list[NewOffset],
        *,
        raises_epoch: bool,
        knows_abortable: bool,
    ) -> list[ErrorCode]:
        """Commits offsets as part of a transaction that the coordinator of `transactional_id` knows of.

        Of topics that are the same ones when it is heard: what was deleted meanwhile has been forgotten already.
        """
        assert by.part_of is not None
        shard = self._shard(by.group_id)
        topic_ids = self._topic_ids(offsets)
        place = (GROUP_OFFSETS, self._index(by.group_id))
        batch = ProducerBatch(by.part_of.producer_id, by.part_of.producer_epoch, NO_SEQUENCE)
        admitted = await self._broker.verification.admit(
            transactional_id, {place: batch}, raises_epoch, knows_abortable
        )
        error = admitted.errors.get(place)
        if error is not None:
            raise RemoteError(coordinator_error(error.code), error.message)
        if self._topic_ids(offsets) != topic_ids:
            raise RemoteError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "a topic was deleted meanwhile")
        part = by.part_of._replace(guard=admitted.guards.get(place, NO_GUARD))
        answer = await shard.ask(
            lambda machine, ticket, now_ms: machine.commit_offsets(ticket, by._replace(part_of=part), offsets, now_ms)
        )
        assert isinstance(answer, list)
        return answer

    def _topic_ids(self, offsets: list[NewOffset]) -> list[bytes | None]:
        topics = [self._broker.image.topics.get(new.topic) for new in offsets]
        return [None if topic is None else topic.topic_id for topic in topics]

    def write_marker(self, index: int, batch: bytes, transaction_version: int) -> int:
        """Ends a transaction on one partition of the offsets topic; the log's end after it."""
        return self.runtime.shard(index).append_marker(batch, transaction_version)

    async def fetch_offsets(
        self, group_id: str, wanted: list[WantedTopic] | None, require_stable: bool
    ) -> list[FetchedOffset]:
        return await self._ask(
            list,
            group_id,
            lambda machine, ticket, now_ms: machine.fetch_offsets(ticket, group_id, wanted, require_stable),
            empty_allowed=True,
        )

    async def delete_offsets(self, group_id: str, places: list[tuple[str, int]]) -> list[ErrorCode]:
        return await self._ask(
            list,
            group_id,
            lambda machine, ticket, now_ms: machine.delete_offsets(ticket, group_id, places),
        )

    # Administration

    async def describe(self, group_id: str, api_version: int) -> DescribedGroup:
        return await self._ask(
            DescribedGroup,
            group_id,
            lambda machine, ticket, now_ms: machine.describe(ticket, group_id, api_version),
            empty_allowed=True,
        )

    async def delete_group(self, group_id: str) -> ErrorCode:
        return await self._ask(
            ErrorCode,
            group_id,
            lambda machine, ticket, now_ms: machine.delete_group(ticket, group_id, now_ms),
            empty_allowed=True,
        )

    async def list_groups(self, states: Iterable[str], types: Iterable[str]) -> list[ListedGroup]:
        """The groups of every shard here; RemoteError while one is still loading, whose groups would be missing."""
        if any(shard.is_loading for shard in self.runtime.shards.values()):
            raise RemoteError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "groups are still being read")
        asked = [
            shard.ask(lambda machine, ticket, now_ms: machine.list_groups(ticket, states, types))
            for shard in self.runtime.shards.values()
            if shard.is_serving
        ]
        if not asked:
            return []
        found: list[ListedGroup] = []
        for listed in await asyncio.gather(*asked):
            assert isinstance(listed, list)
            found += listed
        return found
