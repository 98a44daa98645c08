"""Consumer groups: listed, described, deleted, and the offsets that they committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mainstem.client.admin_base import AdminBase, by_topic, raise_first
from mainstem.client.admin_types import GroupDescription, GroupListing, MemberDescription
from mainstem.client.cluster import CoordinatorKind
from mainstem.client.commits import check_offsets
from mainstem.client.connection import BrokerConnection
from mainstem.client.errors import KafkaError, UnsupportedVersionError, error_for, raise_for
from mainstem.client.metadata import BrokerAddress
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
    DescribedGroupMember,
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
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)

_NAMES_MAX = 9
"""The last version of OffsetCommit and OffsetFetch that names topics."""
_GROUPS_FROM = 8


class GroupsAdmin(AdminBase):
    async def list_groups(
        self,
        *,
        states: Iterable[str] = (),
        types: Iterable[str] = (),
        timeout_ms: float | None = None,
    ) -> list[GroupListing]:
        """Every group of every coordinator, or those in one of these states or of one of these types."""
        wanted_states, wanted_types = list(states), list(types)

        async def ask(connection: BrokerConnection) -> list[GroupListing]:
            version = connection.version_for(ApiKey.LIST_GROUPS)
            if (wanted_states and version < 4) or (wanted_types and version < 5):
                raise UnsupportedVersionError(
                    "the broker cannot choose groups by state or type", broker=connection.name
                )
            request = ListGroupsRequest(states_filter=wanted_states, types_filter=wanted_types)
            answer = await connection.ask(request, ListGroupsResponse, version=version)
            raise_for(answer.error_code, "listing groups", broker=connection.name)
            return [
                GroupListing(each.group_id, each.protocol_type, each.group_state, each.group_type or "Classic")
                for each in answer.groups
            ]

        found = await self._on_every_broker(ask, timeout_ms, "listing groups")
        return sorted({each for groups in found.values() for each in groups})

    async def describe_groups(
        self, groups: Iterable[str], *, timeout_ms: float | None = None
    ) -> dict[str, GroupDescription]:
        """State, members and what each of them reads. GroupIdNotFoundError where there is no such group."""
        described: dict[str, GroupDescription] = {}
        failed: dict[str, KafkaError] = {}
        for group_id in groups:
            try:
                described[group_id] = await self._describe_group(group_id, timeout_ms)
            except KafkaError as error:
                failed[group_id] = error
        raise_first(failed)
        return described

    async def _describe_group(self, group_id: str, timeout_ms: float | None) -> GroupDescription:
        async def ask(connection: BrokerConnection) -> GroupDescription:
            if connection.has_api(ApiKey.CONSUMER_GROUP_DESCRIBE):
                found = await self._describe_consumer_group(connection, group_id)
                if found is not None:
                    return found
            answer = await connection.ask(DescribeGroupsRequest(groups=[group_id]), DescribeGroupsResponse)
            each = answer.groups[0]
            raise_for(each.error_code, each.error_message or f"group {group_id!r}", broker=connection.name)
            if each.group_state == "Dead":
                raise error_for(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r}", broker=connection.name)
            return GroupDescription(
                group_id,
                each.group_state,
                "Classic",
                each.protocol_type,
                each.protocol_data,
                _address(connection),
                [_classic_member(member) for member in each.members],
            )

        return await self._on_coordinator(
            CoordinatorKind.GROUP, group_id, ask, timeout_ms, f"describing group {group_id!r}"
        )

    async def _describe_consumer_group(self, connection: BrokerConnection, group_id: str) -> GroupDescription | None:
        """A group of the new protocol (KIP-848); None where it is not one."""
        request = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
        answer = await connection.ask(request, ConsumerGroupDescribeResponse)
        each = answer.groups[0]
        if each.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
            return None
        raise_for(each.error_code, each.error_message or f"group {group_id!r}", broker=connection.name)
        members = [
            MemberDescription(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                [
                    TopicPartition(topic.topic_name, partition)
                    for topic in member.assignment.topic_partitions
                    for partition in topic.partitions
                ],
            )
            for member in each.members
        ]
        return GroupDescription(
            group_id, each.group_state, "Consumer", "consumer", each.assignor_name, _address(connection), members
        )

    async def delete_groups(self, groups: Iterable[str], *, timeout_ms: float | None = None) -> None:
        """Deletes groups that have no members, with their offsets."""
        failed: dict[str, KafkaError] = {}
        for group_id in groups:

            async def ask(connection: BrokerConnection, group_id: str = group_id) -> None:
                answer = await connection.ask(DeleteGroupsRequest(groups_names=[group_id]), DeleteGroupsResponse)
                raise_for(answer.results[0].error_code, f"group {group_id!r}", broker=connection.name)

            try:
                await self._on_coordinator(
                    CoordinatorKind.GROUP, group_id, ask, timeout_ms, f"deleting group {group_id!r}"
                )
            except KafkaError as error:
                failed[group_id] = error
        raise_first(failed)

    async def remove_members(
        self, group_id: str, group_instance_ids: Iterable[str], *, timeout_ms: float | None = None
    ) -> None:
        """Has static members leave a group, so that their partitions are given to others (KIP-345)."""
        names = list(group_instance_ids)

        async def ask(connection: BrokerConnection) -> None:
            request = LeaveGroupRequest(
                group_id=group_id,
                members=[MemberIdentity(member_id="", group_instance_id=name) for name in names],
            )
            answer = await connection.ask(request, LeaveGroupResponse)
            raise_for(answer.error_code, f"group {group_id!r}", broker=connection.name)
            raise_first(
                {
                    member.group_instance_id: error_for(member.error_code, f"member {member.group_instance_id!r}")
                    for member in answer.members
                    if member.error_code != 0
                }
            )

        await self._on_coordinator(CoordinatorKind.GROUP, group_id, ask, timeout_ms, "removing members")

    # Offsets

    async def list_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group committed, for these partitions or for all; partitions without an offset are left out.

        `require_stable` waits for transactions that have offsets of this group.
        """
        asked = None if partitions is None else by_topic(partitions)

        async def ask(connection: BrokerConnection) -> dict[TopicPartition, OffsetAndMetadata]:
            version = connection.version_for(ApiKey.OFFSET_FETCH, _NAMES_MAX)
            request = _offset_fetch(group_id, asked, version)
            if version >= 7:
                request.require_stable = require_stable
            answer = await connection.ask(request, OffsetFetchResponse, version=version)
            if version >= _GROUPS_FROM:
                group = answer.groups[0]
                code, topics = group.error_code, [(topic.name, topic.partitions) for topic in group.topics]
            else:
                code = answer.error_code
                topics = [(topic.name, topic.partitions) for topic in answer.topics]  # type: ignore[misc]
            raise_for(code, f"group {group_id!r}", broker=connection.name)
            found = {}
            for name, each in topics:
                for one in each:
                    raise_for(one.error_code, f"group {group_id!r}", topic=name, partition=one.partition_index)
                    if one.committed_offset >= 0:
                        found[TopicPartition(name, one.partition_index)] = OffsetAndMetadata(
                            one.committed_offset, one.metadata or "", one.committed_leader_epoch
                        )
            return found

        return await self._on_coordinator(
            CoordinatorKind.GROUP, group_id, ask, timeout_ms, f"listing offsets of {group_id!r}"
        )

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Commits offsets for a group that has no members at this moment."""
        failed: dict[TopicPartition, KafkaError] = {}
        positions = {tp: OffsetAndMetadata(each) if isinstance(each, int) else each for tp, each in offsets.items()}
        check_offsets(positions)

        async def ask(connection: BrokerConnection) -> None:
            failed.clear()
            topics: dict[str, list[OffsetCommitRequestPartition]] = {}
            for tp, position in positions.items():
                topics.setdefault(tp.topic, []).append(
                    OffsetCommitRequestPartition(
                        partition_index=tp.partition,
                        committed_offset=position.offset,
                        committed_leader_epoch=position.leader_epoch,
                        committed_metadata=position.metadata,
                    )
                )
            request = OffsetCommitRequest(
                group_id=group_id,
                member_id="",
                topics=[OffsetCommitRequestTopic(name=name, partitions=each) for name, each in topics.items()],
            )
            version = connection.version_for(ApiKey.OFFSET_COMMIT, _NAMES_MAX)
            answer = await connection.ask(request, OffsetCommitResponse, version=version)
            for topic in answer.topics:
                for each in topic.partitions:
                    if each.error_code == 0:
                        continue
                    tp = TopicPartition(topic.name, each.partition_index)
                    error = error_for(
                        each.error_code,
                        f"group {group_id!r}",
                        broker=connection.name,
                        topic=tp.topic,
                        partition=tp.partition,
                    )
                    if error.retriable and each.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        raise error
                    failed[tp] = error

        await self._on_coordinator(
            CoordinatorKind.GROUP, group_id, ask, timeout_ms, f"committing offsets of {group_id!r}"
        )
        raise_first(failed)

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> None:
        """Forgets what a group committed. GroupSubscribedToTopicError while a member reads the topic."""
        asked = by_topic(partitions)
        failed: dict[TopicPartition, KafkaError] = {}

        async def ask(connection: BrokerConnection) -> None:
            failed.clear()
            request = OffsetDeleteRequest(
                group_id=group_id,
                topics=[
                    OffsetDeleteRequestTopic(
                        name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in each]
                    )
                    for name, each in asked.items()
                ],
            )
            answer = await connection.ask(request, OffsetDeleteResponse)
            raise_for(answer.error_code, f"group {group_id!r}", broker=connection.name)
            for topic in answer.topics:
                for each in topic.partitions:
                    if each.error_code != 0:
                        tp = TopicPartition(topic.name, each.partition_index)
                        failed[tp] = error_for(
                            each.error_code, f"group {group_id!r}", topic=tp.topic, partition=tp.partition
                        )

        await self._on_coordinator(
            CoordinatorKind.GROUP, group_id, ask, timeout_ms, f"deleting offsets of {group_id!r}"
        )
        raise_first(failed)


def _offset_fetch(group_id: str, asked: dict[str, list[int]] | None, version: int) -> OffsetFetchRequest:
    if version >= _GROUPS_FROM:
        topics = None
        if asked is not None:
            topics = [OffsetFetchRequestTopics(name=name, partition_indexes=each) for name, each in asked.items()]
        return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=topics)])
    named = None
    if asked is not None:
        named = [OffsetFetchRequestTopic(name=name, partition_indexes=each) for name, each in asked.items()]
    return OffsetFetchRequest(group_id=group_id, topics=named)


def _classic_member(member: DescribedGroupMember) -> MemberDescription:
    partitions: list[TopicPartition] = []
    if len(member.member_assignment) >= 2:
        try:
            version = min(int.from_bytes(member.member_assignment[:2], "big"), ConsumerProtocolAssignment.MAX_VERSION)
            assignment = ConsumerProtocolAssignment.decode(member.member_assignment, version, 2)
            partitions = [
                TopicPartition(topic.topic, index)
                for topic in assignment.assigned_partitions
                for index in topic.partitions
            ]
        except RemoteError:
            partitions = []  # a group of another protocol (Kafka Connect, say) has bytes of its own there
    return MemberDescription(
        member.member_id, member.group_instance_id, member.client_id, member.client_host, sorted(partitions)
    )


def _address(connection: BrokerConnection) -> BrokerAddress:
    return BrokerAddress(connection.node_id, connection.host, connection.port)
