"""The APIs of classic groups as clients see them; every expected answer is one that Kafka 4.3 gave."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Any

from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from mainstem.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from mainstem.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from mainstem.protocol.messages.k12_heartbeat import HeartbeatRequest
from mainstem.protocol.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from mainstem.protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from mainstem.protocol.messages.k15_describe_groups import DescribeGroupsRequest
from mainstem.protocol.messages.k16_list_groups import ListGroupsRequest
from mainstem.protocol.messages.k42_delete_groups import DeleteGroupsRequest
from mainstem.protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from mainstem.protocol.primitives import ZERO_UUID

from .coordinating import CoordinatingBroker, topic_id

SUBSCRIPTION = struct.pack(">hih2si", 0, 1, 2, b"t1", -1)


def run(story: Callable[[CoordinatingBroker], Awaitable[None]], **settings: str) -> None:
    async def begin() -> None:
        broker = CoordinatingBroker(**settings)
        await broker.start()
        await story(broker)
        broker.groups.close()

    asyncio.run(asyncio.wait_for(begin(), 20))


def join_request(group: str, member: str = "", instance: str | None = None, **options: Any) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=options.get("session_ms", 10_000),
        rebalance_timeout_ms=options.get("rebalance_ms", 20_000),
        member_id=member,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
    )


async def stable(broker: CoordinatingBroker, group: str) -> str:
    joined = await broker.call(join_request(group), 3)
    member: str = joined.member_id
    request = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=member,
        assignments=[SyncGroupRequestAssignment(member_id=member, assignment=b"mine")],
    )
    synced = await broker.call(request, 3)
    assert synced.assignment == b"mine"
    return member


def commit_request(group: str, topics: list[tuple[str, int, int]], **by: Any) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=by.get("generation", -1),
        member_id=by.get("member", ""),
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                topic_id=topic_id(name),
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_leader_epoch=3, committed_metadata="x"
                    )
                ],
            )
            for name, index, offset in topics
        ],
    )


def codes(response: Any) -> list[tuple[str, int, int]]:
    return [(t.name, p.partition_index, p.error_code) for t in response.topics for p in t.partitions]


def test_every_version_of_join_can_be_answered() -> None:
    async def story(broker: CoordinatingBroker) -> None:
        for version in range(10):
            refused = await broker.call(join_request("", session_ms=1), version)
            assert (refused.error_code, refused.generation_id) == (ErrorCode.INVALID_GROUP_ID, -1)
            assert refused.protocol_name == (None if version >= 7 else "")
            joined = await broker.call(join_request(f"g{version}"), version)
            if version >= 4:
                assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
                joined = await broker.call(join_request(f"g{version}", joined.member_id), version)
            assert (joined.error_code, joined.generation_id) == (0, 1)
            assert joined.leader == joined.member_id == joined.members[0].member_id
            assert joined.member_id.startswith("cli-")
            assert len(joined.member_id) == len("cli-") + 36

    run(story)


def test_a_member_whose_id_would_be_too_long_is_refused() -> None:
    async def story(broker: CoordinatingBroker) -> None:
        refused = await broker.call(join_request("g", instance="i" * 32_731), 9)
        assert refused.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert (await broker.call(ListGroupsRequest(), 5)).groups == []
        assert (await broker.call(join_request("g" * 32_767, instance="i" * 32_730), 9)).error_code == ErrorCode.NONE

    run(story)


def test_sync_5_must_name_its_protocol() -> None:
    async def story(broker: CoordinatingBroker) -> None:
        request = SyncGroupRequest(group_id="", generation_id=1, member_id="x", assignments=[])
        assert (await broker.call(request, 5)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert (await broker.call(request, 4)).error_code == ErrorCode.INVALID_GROUP_ID

    run(story)


def test_leaving_before_and_after_version_3() -> None:
    async def story(broker: CoordinatingBroker) -> None:
        member = await stable(broker, "g")
        old = await broker.call(LeaveGroupRequest(group_id="g", member_id="stranger"), 1)
        assert old.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        new = await broker.call(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="stranger")]), 5)
        assert (new.error_code, new.members[0].error_code) == (0, ErrorCode.UNKNOWN_MEMBER_ID)
        assert (await broker.call(LeaveGroupRequest(group_id="g", member_id=member), 2)).error_code == 0
        heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member)
        assert (await broker.call(heartbeat, 4)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert (await broker.call(LeaveGroupRequest(group_id="", members=[]), 5)).error_code == 24

    run(story)


def test_committing_to_topics_that_are_there_and_not() -> None:
    async def story(broker: CoordinatingBroker) -> None:
        request = commit_request("s", [("t1", 0, 11), ("nope", 0, 1), ("t1", 7, 1), ("t2", 0, 6)])
        by_name = await broker.call(request, 9)
        assert codes(by_name) == [("nope", 0, 3), ("t1", 7, 3), ("t1", 0, 0), ("t2", 0, 0)]
        assert len(by_name.topics) == 3
        by_id = await broker.call(request, 10)
        assert [(t.topic_id, [p.error_code for p in t.partitions]) for t in by_id.topics] == [
            (topic_id("nope"), [ErrorCode.UNKNOWN_TOPIC_ID]),
            (topic_id("t1"), [3, 0]),
            (topic_id("t2"), [0]),
        ]
        nobody = commit_request("nobody", [("t1", 0, 1), ("nope", 0, 1)], generation=1, member="m")
        assert codes(await broker.call(nobody, 9)) == [("nope", 0, 3), ("t1", 0, ErrorCode.GROUP_ID_NOT_FOUND)]
        assert codes(await broker.call(nobody, 8)) == [("nope", 0, 3), ("t1", 0, ErrorCode.ILLEGAL_GENERATION)]

    run(story)


def fetch_request(group: str, *topics: str) -> OffsetFetchRequest:
    return OffsetFetchRequest(
        group_id=group, topics=[OffsetFetchRequestTopic(name=name, partition_indexes=[0, 1]) for name in topics]
    )


def test_fetching_in_every_version() -> None:
    async def story(broker: CoordinatingBroker) -> None:
        await broker.call(commit_request("s", [("t1", 0, 2), ("t2", 0, 5)]), 9)
        for version in range(1, 8):
            answer = await broker.call(fetch_request("s", "t1"), version)
            first, second = answer.topics[0].partitions
            assert (first.committed_offset, first.metadata, first.error_code) == (2, "x", 0)
            assert (second.committed_offset, second.metadata, second.error_code) == (-1, "", 0)
            assert first.committed_leader_epoch == (3 if version >= 5 else -1)
        everything = await broker.call(OffsetFetchRequest(group_id="s", topics=None), 2)
        assert [topic.name for topic in everything.topics] == ["t1", "t2"]
        several = OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(group_id="s", topics=None),
                OffsetFetchRequestGroup(
                    group_id="nobody", topics=[OffsetFetchRequestTopics(name="t1", partition_indexes=[0])]
                ),
                OffsetFetchRequestGroup(group_id="nobody", topics=None),
            ]
        )
        found, unknown, empty = (await broker.call(several, 9)).groups
        assert [t.name for t in found.topics] == ["t1", "t2"]
        assert (unknown.error_code, unknown.topics[0].partitions[0].committed_offset) == (0, -1)
        assert (empty.error_code, empty.topics) == (0, [])

    run(story)


def test_fetching_by_topic_id() -> None:
    async def story(broker: CoordinatingBroker) -> None:
        await broker.call(commit_request("s", [("t1", 0, 2)]), 10)
        ids = [topic_id("gone"), topic_id("t1"), ZERO_UUID]
        wanted = [OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0]) for each in ids]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="s", topics=wanted)])
        (group,) = (await broker.call(request, 10)).groups
        assert [(t.topic_id, t.partitions[0].committed_offset, t.partitions[0].error_code) for t in group.topics] == [
            (topic_id("t1"), 2, 0),
            (topic_id("gone"), -1, ErrorCode.UNKNOWN_TOPIC_ID),
            (ZERO_UUID, -1, ErrorCode.UNKNOWN_TOPIC_ID),
        ]

    run(story)


def test_errors_of_the_coordinator_reach_every_version_of_fetch() -> None:
    async def story(broker: CoordinatingBroker) -> None:
        broker.groups.runtime.resigned(0)
        old = await broker.call(fetch_request("s", "t1"), 1)
        assert [p.error_code for p in old.topics[0].partitions] == [ErrorCode.NOT_COORDINATOR] * 2
        newer = await broker.call(fetch_request("s", "t1"), 7)
        assert (newer.error_code, newer.topics) == (ErrorCode.NOT_COORDINATOR, [])
        group = OffsetFetchRequestGroup(group_id="s", topics=None)
        newest = await broker.call(OffsetFetchRequest(groups=[group]), 9)
        assert newest.groups[0].error_code == ErrorCode.NOT_COORDINATOR
        assert (await broker.call(join_request("g", "m"), 9)).error_code == ErrorCode.NOT_COORDINATOR
        described = await broker.call(DescribeGroupsRequest(groups=["g"]), 5)
        assert described.groups[0].error_code == ErrorCode.NOT_COORDINATOR
        assert codes(await broker.call(commit_request("s", [("t1", 0, 1)]), 9)) == [("t1", 0, 16)]

    run(story)


def test_describing_and_listing() -> None:
    async def story(broker: CoordinatingBroker) -> None:
        member = await stable(broker, "g")
        await broker.call(commit_request("simple", [("t1", 0, 1)]), 9)
        request = DescribeGroupsRequest(groups=["g", "nope"], include_authorized_operations=True)
        found, missing = (await broker.call(request, 6)).groups
        assert (found.group_state, found.protocol_type, found.protocol_data) == ("Stable", "consumer", "range")
        assert found.authorized_operations == 3400
        described = found.members[0]
        assert (described.member_id, described.client_id, described.client_host) == (member, "cli", "/127.0.0.1")
        assert (described.member_metadata, described.member_assignment) == (SUBSCRIPTION, b"mine")
        assert (missing.error_code, missing.error_message) == (69, "Group nope not found.")
        old = (await broker.call(DescribeGroupsRequest(groups=["nope"]), 5)).groups[0]
        assert (old.error_code, old.group_state) == (0, "Dead")
        listed = await broker.call(ListGroupsRequest(states_filter=["stable"], types_filter=["CLASSIC"]), 5)
        assert [(g.group_id, g.group_state, g.group_type) for g in listed.groups] == [("g", "Stable", "classic")]
        assert len((await broker.call(ListGroupsRequest(), 0)).groups) == 2
        assert (await broker.call(ListGroupsRequest(types_filter=["foo"]), 5)).groups == []

    run(story)


def test_deleting_groups_and_offsets() -> None:
    async def story(broker: CoordinatingBroker) -> None:
        await stable(broker, "g")
        await broker.call(commit_request("simple", [("t1", 0, 1), ("t2", 0, 1)]), 9)

        def offset_delete(group: str, *topics: str) -> OffsetDeleteRequest:
            partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in (0, 9)]
            wanted = [OffsetDeleteRequestTopic(name=name, partitions=partitions) for name in topics]
            return OffsetDeleteRequest(group_id=group, topics=wanted)

        answer = await broker.call(offset_delete("simple", "t1", "nope"), 0)
        assert codes(answer) == [("t1", 9, 3), ("t1", 0, 0), ("nope", 0, 3), ("nope", 9, 3)]
        assert codes(await broker.call(offset_delete("g", "t1"), 0))[1] == ("t1", 0, 86)
        assert (await broker.call(offset_delete("nobody", "nope"), 0)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert (await broker.call(offset_delete("", "t1"), 0)).error_code == ErrorCode.INVALID_GROUP_ID
        request = DeleteGroupsRequest(groups_names=["g", "nobody", "simple", "simple"])
        results = (await broker.call(request, 2)).results
        assert [(r.group_id, r.error_code) for r in results] == [("g", 68), ("nobody", 69), ("simple", 0)]

    run(story)
