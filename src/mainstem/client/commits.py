"""The offsets that a group has committed: reading them, and writing them.

Both go to the group's coordinator, on a connection of the group's own. A commit names the generation and the member it
comes from, so that the coordinator refuses those of members who were voted out; a consumer that assigned its
partitions itself names neither. What a retry cures is tried again until the time is up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from mainstem.client.assignors import by_topic
from mainstem.client.cluster import Cluster, CoordinatorKind
from mainstem.client.connection import BrokerConnection
from mainstem.client.errors import (
    CommitFailedError,
    ConsumerFencedError,
    CoordinatorNotAvailableError,
    IllegalStateError,
    KafkaError,
    RebalanceInProgressError,
    error_for,
)
from mainstem.client.lanes import Lane
from mainstem.client.options import INT32_MAX, INT64_MAX
from mainstem.client.types import OffsetAndMetadata, TopicPartition
from mainstem.protocol.api import ApiKey
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
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

T = TypeVar("T")

OFFSETS_BY_NAME_MAX: Final = 9
"""The last version of OffsetCommit and OffsetFetch that names topics. Ids are for groups of KIP-848."""
GROUPS_FROM: Final = 8


class GroupMetadata(NamedTuple):
    """Who a consumer is in its group; what a transaction needs to commit offsets for it."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


def check_offsets(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    """Raises for one that is none: a broker takes it, and the group has no position from then on."""
    for tp, each in offsets.items():
        if not 0 <= each.offset <= INT64_MAX:
            raise IllegalStateError(f"offset {each.offset} cannot be committed", topic=tp.topic, partition=tp.partition)


class Coordinator:
    """The broker that coordinates one group, asked on connections of its own."""

    def __init__(self, cluster: Cluster, lane: Lane, group_id: str) -> None:
        self._cluster = cluster
        self._lane = lane
        self.group_id = group_id

    async def connection(self) -> BrokerConnection:
        node_id = await self._cluster.coordinator_id(CoordinatorKind.GROUP, self.group_id)
        try:
            return await self._lane.node(node_id)
        except KafkaError:
            self.forget()
            raise

    def hang_up(self) -> None:
        """Ends the connection: what is asked next does not wait behind what was asked before."""
        self._lane.close()

    def forget(self) -> None:
        """It is another one now, or cannot be reached: asked for anew the next time."""
        self._cluster.forget_coordinator(CoordinatorKind.GROUP, self.group_id)

    def error(self, code: int, what: str, connection: BrokerConnection) -> KafkaError:
        error = error_for(code, f"{what} of group {self.group_id!r}", broker=connection.name)
        if error.is_lost_coordinator:
            self.forget()
        return error

    def not_told(self, what: str, connection: BrokerConnection) -> KafkaError:
        """Of an answer that leaves out what was asked for: who knows what was done. The same again can help."""
        self.forget()
        message = f"{what} of group {self.group_id!r}: the answer says nothing of it"
        return CoordinatorNotAvailableError(message, broker=connection.name)

    async def retrying(
        self,
        attempt: Callable[[BrokerConnection], Awaitable[T]],
        timeout_ms: float,
        what: str,
        retries: int = INT32_MAX,
    ) -> T:
        async def once() -> T:
            connection = await self.connection()
            try:
                return await attempt(connection)
            except ConnectionError:
                self.forget()
                raise

        return await self._cluster.retrying(once, timeout_ms, f"{what} of group {self.group_id!r}", retries)


class Commits:
    def __init__(self, coordinator: Coordinator, who: Callable[[], GroupMetadata]) -> None:
        self._coordinator = coordinator
        self._who = who
        self.on_fenced: Callable[[KafkaError, GroupMetadata], None] = lambda error, who: None
        """Told when the coordinator does not know the member that committed."""

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: float, retries: int = INT32_MAX
    ) -> None:
        """Writes all of them or raises. CommitFailedError where others have the partitions now."""
        if not offsets:
            return
        check_offsets(offsets)
        who = self._who()

        async def attempt(connection: BrokerConnection) -> None:
            await self._commit_once(connection, offsets, who)

        await self._coordinator.retrying(attempt, timeout_ms, "the commit", retries)

    async def _commit_once(
        self, connection: BrokerConnection, offsets: Mapping[TopicPartition, OffsetAndMetadata], who: GroupMetadata
    ) -> None:
        request = OffsetCommitRequest(
            group_id=who.group_id,
            generation_id_or_member_epoch=who.generation_id,
            member_id=who.member_id,
            group_instance_id=who.group_instance_id if who.member_id else None,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=number,
                            committed_offset=offsets[TopicPartition(topic, number)].offset,
                            committed_leader_epoch=offsets[TopicPartition(topic, number)].leader_epoch,
                            committed_metadata=offsets[TopicPartition(topic, number)].metadata,
                        )
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic(offsets).items()
            ],
        )
        version = connection.version_for(ApiKey.OFFSET_COMMIT, OFFSETS_BY_NAME_MAX)
        answer = await connection.ask(request, OffsetCommitResponse, version=version)
        for topic in answer.topics:
            for each in topic.partitions:
                if each.error_code != 0:
                    raise self._refused(topic.name, each.partition_index, each.error_code, who, connection)
        told = {(topic.name, each.partition_index) for topic in answer.topics for each in topic.partitions}
        missing = next((tp for tp in offsets if tp not in told), None)
        if missing is not None:
            error = self._coordinator.not_told("the commit", connection)
            error.topic, error.partition = missing
            raise error

    def _refused(
        self, topic: str, number: int, code: int, who: GroupMetadata, connection: BrokerConnection
    ) -> KafkaError:
        error = self._coordinator.error(code, "the commit", connection)
        error.topic, error.partition = topic, number
        where: dict[str, Any] = {"broker": connection.name, "topic": topic, "partition": number, "code": error.code}
        match code:
            case ErrorCode.FENCED_INSTANCE_ID:
                fenced = ConsumerFencedError(
                    f"another consumer has the group_instance_id {who.group_instance_id!r} now", **where
                )
                self.on_fenced(fenced, who)
                return fenced
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.ILLEGAL_GENERATION:
                self.on_fenced(error, who)
                return CommitFailedError(
                    "the group gave the partitions to others in the meantime; poll more often "
                    "(max_poll_interval_ms) or take less at a time (max_poll_records)",
                    **where,
                )
            case ErrorCode.REBALANCE_IN_PROGRESS:
                return RebalanceInProgressError(
                    "the group is being rebalanced; poll until that is over and commit again", **where
                )
        return error

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: float
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What is committed for those of the partitions that have something committed."""
        wanted = list(dict.fromkeys(partitions))
        if not wanted:
            return {}

        async def attempt(connection: BrokerConnection) -> dict[TopicPartition, OffsetAndMetadata]:
            return await self._committed_once(connection, wanted)

        return await self._coordinator.retrying(attempt, timeout_ms, "the committed offsets")

    async def _committed_once(
        self, connection: BrokerConnection, wanted: list[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        version = connection.version_for(ApiKey.OFFSET_FETCH, OFFSETS_BY_NAME_MAX)
        group_id = self._coordinator.group_id
        topics = by_topic(wanted).items()
        # Stable ones only: with an offset in a transaction that is still open, the next reader would start too early.
        if version >= GROUPS_FROM:
            group = OffsetFetchRequestGroup(
                group_id=group_id,
                topics=[OffsetFetchRequestTopics(name=name, partition_indexes=numbers) for name, numbers in topics],
            )
            request = OffsetFetchRequest(groups=[group], require_stable=True)
        else:
            request = OffsetFetchRequest(
                group_id=group_id,
                topics=[OffsetFetchRequestTopic(name=name, partition_indexes=numbers) for name, numbers in topics],
                require_stable=version >= 7,
            )
        answer = await connection.ask(request, OffsetFetchResponse, version=version)
        if version >= GROUPS_FROM and not answer.groups:
            raise self._coordinator.not_told("the committed offsets", connection)
        group_code = answer.groups[0].error_code if version >= GROUPS_FROM else answer.error_code
        if group_code != 0:
            raise self._coordinator.error(group_code, "the committed offsets", connection)
        found = {}
        for topic in answer.groups[0].topics if version >= GROUPS_FROM else answer.topics:
            for each in topic.partitions:
                if each.error_code != 0:
                    error = self._coordinator.error(each.error_code, "the committed offsets", connection)
                    error.topic, error.partition = topic.name, each.partition_index
                    raise error
                if each.committed_offset >= 0:
                    found[TopicPartition(topic.name, each.partition_index)] = OffsetAndMetadata(
                        each.committed_offset, each.metadata or "", each.committed_leader_epoch
                    )
        return found
