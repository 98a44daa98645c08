"""Groups and their offsets: list, describe, reset, delete.

A consumer group speaks one of two protocols: the classic one, whose members hand their assignment to each other as
bytes, and that of KIP-848, which brokers understand themselves. `describe_groups` asks for the newer one first, as
Kafka's Admin does, and gives the same description for both.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from mainstem.client.admin_base import AdminBase, by_topic, outcome
from mainstem.client.cluster import CoordinatorKind
from mainstem.client.connection import BrokerConnection
from mainstem.client.errors import GroupIdNotFoundError, KafkaError, UnsupportedVersionError, error_for, raise_for
from mainstem.client.types import OffsetAndMetadata, TopicPartition
from mainstem.protocol.api import ApiKey
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
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
from mainstem.protocol.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from mainstem.protocol.messages.k15_describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from mainstem.protocol.messages.k16_list_groups import ListGroupsRequest, ListGroupsResponse
from mainstem.protocol.messages.k42_delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from mainstem.protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from mainstem.protocol.messages.k69_consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from mainstem.protocol.messages.k69_consumer_group_describe import DescribedGroup as DescribedConsumerGroup

_BY_NAME_MAX: Final = 9
"""The last version of OffsetCommit and OffsetFetch that names topics; later ones have only their ids."""
_CONSUMER_PROTOCOL: Final = "consumer"


@dataclass(frozen=True, slots=True)
class GroupListing:
    """`kind` is "classic", "consumer", "share" or "streams", `state` as Kafka spells it; "" where the broker is old."""

    group_id: str
    kind: str
    protocol_type: str
    state: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """`assignor` is the strategy that the members agreed on; `coordinator` the broker that keeps the group."""

    group_id: str
    kind: str
    protocol_type: str
    state: str
    assignor: str
    coordinator: int
    members: tuple[GroupMember, ...]


class GroupAdmin(AdminBase):
    async def list_groups(self, *, states: Iterable[str] = (), kinds: Iterable[str] = ()) -> list[GroupListing]:
        """Every group of every broker, by id; `states` and `kinds` leave out the others."""
        wanted_states, wanted_kinds = list(states), list(kinds)

        async def attempt(nodes: list[int]) -> dict[int, list[GroupListing] | KafkaError]:
            results: dict[int, list[GroupListing] | KafkaError] = {}
            for node_id in nodes:
                connection = await self.cluster.node(node_id)
                request = ListGroupsRequest(states_filter=wanted_states, types_filter=wanted_kinds)
                version = connection.version_for(ApiKey.LIST_GROUPS)
                if (wanted_states and version < 4) or (wanted_kinds and version < 5):
                    raise UnsupportedVersionError("the broker cannot filter groups so", broker=connection.name)
                answer = await connection.ask(request, ListGroupsResponse, version=version)
                found = [
                    GroupListing(each.group_id, each.group_type.lower(), each.protocol_type, each.group_state)
                    for each in answer.groups
                ]
                results[node_id] = outcome(found, answer.error_code, "listing groups", broker=connection.name)
            return results

        nodes = await self._once(self._brokers, "listing groups")
        found = await self._each(nodes, attempt, "listing groups")
        unique = {each.group_id: each for listed in found.values() for each in listed}
        return [unique[group_id] for group_id in sorted(unique)]

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """Each group with its members; GroupIdNotFoundError for what is none."""

        async def attempt(asked: list[str]) -> dict[str, GroupDescription | KafkaError]:
            return await self._by_coordinator(CoordinatorKind.GROUP, asked, _describe)

        return await self._each(group_ids, attempt, "describing groups")

    async def list_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None, *, require_stable: bool = False
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group has committed, in all or for these partitions. Partitions without a commit are left out."""
        asked = None if partitions is None else by_topic(partitions)

        async def attempt() -> dict[TopicPartition, OffsetAndMetadata]:
            connection = await self._coordinator(CoordinatorKind.GROUP, group_id)
            version = connection.version_for(ApiKey.OFFSET_FETCH, _BY_NAME_MAX)
            request = _offset_fetch(group_id, asked, version, require_stable)
            answer = await connection.ask(request, OffsetFetchResponse, version=version)
            return _committed(group_id, answer, version, connection)

        return await self._once(attempt, f"fetching the offsets of group {group_id}")

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int]
    ) -> None:
        """Commits for a group that has no members at the time; with some it is UnknownMemberIdError."""
        wanted = {
            tp: each if isinstance(each, OffsetAndMetadata) else OffsetAndMetadata(each) for tp, each in offsets.items()
        }

        async def attempt(asked: list[TopicPartition]) -> dict[TopicPartition, KafkaError | None]:
            connection = await self._coordinator(CoordinatorKind.GROUP, group_id)
            topics = [
                OffsetCommitRequestTopic(
                    name=topic, partitions=[_commit(at, wanted[TopicPartition(topic, at)]) for at in theirs]
                )
                for topic, theirs in by_topic(asked).items()
            ]
            request = OffsetCommitRequest(group_id=group_id, member_id="", topics=topics)
            version = connection.version_for(ApiKey.OFFSET_COMMIT, _BY_NAME_MAX)
            answer = await connection.ask(request, OffsetCommitResponse, version=version)
            return {
                TopicPartition(topic.name, each.partition_index): outcome(
                    None, each.error_code, f"group {group_id}", topic=topic.name, partition=each.partition_index
                )
                for topic in answer.topics
                for each in topic.partitions
            }

        await self._each(wanted, attempt, f"altering the offsets of group {group_id}")

    async def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Forgets what a group committed; GroupSubscribedToTopicError while it reads that topic."""

        async def attempt(asked: list[TopicPartition]) -> dict[TopicPartition, KafkaError | None]:
            connection = await self._coordinator(CoordinatorKind.GROUP, group_id)
            request = OffsetDeleteRequest(
                group_id=group_id,
                topics=[
                    OffsetDeleteRequestTopic(
                        name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=at) for at in theirs]
                    )
                    for topic, theirs in by_topic(asked).items()
                ],
            )
            answer = await connection.ask(request, OffsetDeleteResponse)
            raise_for(answer.error_code, f"group {group_id}", broker=connection.name)
            return {
                TopicPartition(topic.name, each.partition_index): outcome(
                    None, each.error_code, f"group {group_id}", topic=topic.name, partition=each.partition_index
                )
                for topic in answer.topics
                for each in topic.partitions
            }

        await self._each(partitions, attempt, f"deleting offsets of group {group_id}")

    async def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Deletes groups with what they committed; GroupNotEmptyError while they have members."""

        async def ask(connection: BrokerConnection, theirs: list[str]) -> dict[str, KafkaError | None]:
            answer = await connection.ask(DeleteGroupsRequest(groups_names=theirs), DeleteGroupsResponse)
            return {
                each.group_id: outcome(None, each.error_code, f"group {each.group_id}", broker=connection.name)
                for each in answer.results
            }

        async def attempt(asked: list[str]) -> dict[str, KafkaError | None]:
            return await self._by_coordinator(CoordinatorKind.GROUP, asked, ask)

        await self._each(group_ids, attempt, "deleting groups")

    async def remove_group_members(
        self, group_id: str, group_instance_ids: Iterable[str] | None = None, *, reason: str | None = None
    ) -> None:
        """Takes static members out of a classic group by their `group_instance_id`, or every member there is."""
        if group_instance_ids is None:
            described = (await self.describe_groups([group_id]))[group_id]
            members = [MemberIdentity(member_id=each.member_id, reason=reason) for each in described.members]
        else:
            members = [
                MemberIdentity(member_id="", group_instance_id=each, reason=reason) for each in group_instance_ids
            ]
        if not members:
            return

        async def attempt() -> None:
            connection = await self._coordinator(CoordinatorKind.GROUP, group_id)
            answer = await connection.ask(LeaveGroupRequest(group_id=group_id, members=members), LeaveGroupResponse)
            raise_for(answer.error_code, f"group {group_id}", broker=connection.name)
            for each in answer.members:
                raise_for(each.error_code, f"group {group_id}, member {each.group_instance_id or each.member_id}")

        await self._once(attempt, f"removing members of group {group_id}")


async def _describe(connection: BrokerConnection, asked: list[str]) -> dict[str, GroupDescription | KafkaError]:
    results: dict[str, GroupDescription | KafkaError] = {}
    if connection.has_api(ApiKey.CONSUMER_GROUP_DESCRIBE):
        request = ConsumerGroupDescribeRequest(group_ids=asked, include_authorized_operations=False)
        newer = await connection.ask(request, ConsumerGroupDescribeResponse)
        for found in newer.groups:
            if found.error_code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                described = _consumer_group(found, connection)
                results[found.group_id] = outcome(
                    described, found.error_code, found.error_message, broker=connection.name
                )
    rest = [each for each in asked if each not in results]
    if rest:
        answer = await connection.ask(DescribeGroupsRequest(groups=rest), DescribeGroupsResponse)
        for group in answer.groups:
            is_missing = group.error_code == ErrorCode.GROUP_ID_NOT_FOUND
            message = f"group {group.group_id}" if is_missing else group.error_message or f"group {group.group_id}"
            results[group.group_id] = outcome(
                _classic_group(group, connection), group.error_code, message, broker=connection.name
            )
            # Until v6 a group that there is not was described as a dead one.
            if group.error_code == 0 and group.group_state == "Dead":
                results[group.group_id] = GroupIdNotFoundError(f"group {group.group_id}", broker=connection.name)
    return results


def _classic_group(group: DescribedGroup, connection: BrokerConnection) -> GroupDescription:
    is_consumer = group.protocol_type == _CONSUMER_PROTOCOL
    members = tuple(
        GroupMember(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host.lstrip("/"),
            _assigned(each.member_assignment) if is_consumer else frozenset(),
        )
        for each in group.members
    )
    return GroupDescription(
        group.group_id,
        "classic",
        group.protocol_type,
        group.group_state,
        group.protocol_data,
        connection.node_id,
        members,
    )


def _consumer_group(group: DescribedConsumerGroup, connection: BrokerConnection) -> GroupDescription:
    members = tuple(
        GroupMember(
            each.member_id, each.instance_id, each.client_id, each.client_host.lstrip("/"), _owned(each.assignment)
        )
        for each in group.members
    )
    return GroupDescription(
        group.group_id,
        "consumer",
        _CONSUMER_PROTOCOL,
        group.group_state,
        group.assignor_name,
        connection.node_id,
        members,
    )


def _owned(assignment: Assignment) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(topic.topic_name, at) for topic in assignment.topic_partitions for at in topic.partitions
    )


def _assigned(data: bytes) -> frozenset[TopicPartition]:
    """What a member was given, where that can be read: the bytes are the members' own affair."""
    if len(data) < 2:
        return frozenset()
    (version,) = struct.unpack_from(">h", data)
    try:
        known = ConsumerProtocolAssignment.decode(data, max(0, min(version, ConsumerProtocolAssignment.MAX_VERSION)), 2)
    except RemoteError:
        return frozenset()
    return frozenset(TopicPartition(topic.topic, at) for topic in known.assigned_partitions for at in topic.partitions)


def _commit(partition: int, offset: OffsetAndMetadata) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=partition,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


def _offset_fetch(
    group_id: str, asked: Mapping[str, list[int]] | None, version: int, require_stable: bool
) -> OffsetFetchRequest:
    if version < 8:
        older = asked and [OffsetFetchRequestTopic(name=name, partition_indexes=at) for name, at in asked.items()]
        return OffsetFetchRequest(
            group_id=group_id, topics=None if asked is None else older or [], require_stable=require_stable
        )
    newer = asked and [OffsetFetchRequestTopics(name=name, partition_indexes=at) for name, at in asked.items()]
    group = OffsetFetchRequestGroup(group_id=group_id, topics=None if asked is None else newer or [])
    return OffsetFetchRequest(groups=[group], require_stable=require_stable)


def _committed(
    group_id: str, answer: OffsetFetchResponse, version: int, connection: BrokerConnection
) -> dict[TopicPartition, OffsetAndMetadata]:
    code = answer.groups[0].error_code if version >= 8 else answer.error_code
    raise_for(code, f"group {group_id}", broker=connection.name)
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for topic in answer.groups[0].topics if version >= 8 else answer.topics:
        for each in topic.partitions:
            tp = TopicPartition(topic.name, each.partition_index)
            if each.error_code:
                raise error_for(each.error_code, f"group {group_id}", topic=tp.topic, partition=tp.partition)
            if each.committed_offset >= 0:
                found[tp] = OffsetAndMetadata(each.committed_offset, each.metadata or "", each.committed_leader_epoch)
    return dict(sorted(found.items()))
