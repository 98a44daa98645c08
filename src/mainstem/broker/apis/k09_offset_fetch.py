"""OffsetFetch (key 9), versions 1–10: a group's positions, where it goes on.

v2 fetches all and has an error for the group, v5 leader epochs, v7 may ask that no transaction is open on them, v8
asks for several groups at once; v10 names topics by their ids. An offset that was never committed is -1 and no error,
nor is a group or a topic that does not exist, except by its id.
"""

from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.core.group.offsets import FetchedOffset, WantedTopic
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from mainstem.protocol.primitives import ZERO_UUID

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 9
MIN_VERSION = 1
MAX_VERSION = 10

_GROUP_ERROR_SINCE = 2
_SEVERAL_GROUPS_SINCE = 8
_TOPIC_IDS_SINCE = 10
_NO_OFFSET = -1


async def handle(broker: "Broker", context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    version = context.api_version
    if version >= _SEVERAL_GROUPS_SINCE:
        groups = [await _fetch(broker, group, request.require_stable, version) for group in request.groups]
        return OffsetFetchResponse(groups=groups)
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    asked = OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
    group = await _fetch(broker, asked, request.require_stable, version)
    if group.error_code != ErrorCode.NONE and version < _GROUP_ERROR_SINCE:
        group.topics = [
            OffsetFetchResponseTopics(name=topic.name, partitions=_refused(topic, group.error_code))
            for topic in topics or []
        ]
    return OffsetFetchResponse(error_code=group.error_code, topics=[_single(topic) for topic in group.topics])


async def _fetch(
    broker: "Broker", group: OffsetFetchRequestGroup, require_stable: bool, version: int
) -> OffsetFetchResponseGroup:
    by_id = version >= _TOPIC_IDS_SINCE
    wanted: list[WantedTopic] | None = None
    unknown: list[OffsetFetchResponseTopics] = []
    if group.topics is not None:
        wanted = []
        for topic in group.topics:
            known = broker.image.topics_by_id.get(topic.topic_id) if by_id else None
            if not by_id:
                wanted.append(WantedTopic(topic.name, ZERO_UUID, topic.partition_indexes))
            elif known is not None:
                wanted.append(WantedTopic(known.name, known.topic_id, topic.partition_indexes))
            else:
                partitions = _refused(topic, ErrorCode.UNKNOWN_TOPIC_ID)
                unknown.append(OffsetFetchResponseTopics(topic_id=topic.topic_id, partitions=partitions))
    try:
        found = await broker.groups.fetch_offsets(group.group_id, wanted, require_stable)
    except RemoteError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=error.code)
    topics = _by_topic(found) if wanted is None else _as_wanted(found, wanted)
    if by_id:
        named, topics = topics, []
        for topic_found in named:
            known = broker.image.topics.get(topic_found.name)
            if known is not None:
                topic_found.topic_id = known.topic_id
                topics.append(topic_found)
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics + unknown)


def _as_wanted(found: list[FetchedOffset], wanted: list[WantedTopic]) -> list[OffsetFetchResponseTopics]:
    """As often as they were asked for, and in that order."""
    left = iter(found)
    return [
        OffsetFetchResponseTopics(name=topic.topic, partitions=[_told(next(left)) for _ in topic.partitions])
        for topic in wanted
    ]


def _by_topic(found: list[FetchedOffset]) -> list[OffsetFetchResponseTopics]:
    topics: dict[str, OffsetFetchResponseTopics] = {}
    for offset in found:
        topic = topics.get(offset.topic)
        if topic is None:
            topic = topics[offset.topic] = OffsetFetchResponseTopics(name=offset.topic, partitions=[])
        topic.partitions.append(_told(offset))
    return list(topics.values())


def _told(offset: FetchedOffset) -> OffsetFetchResponsePartitions:
    committed = offset.committed
    return OffsetFetchResponsePartitions(
        partition_index=offset.partition,
        committed_offset=_NO_OFFSET if committed is None else committed.offset,
        committed_leader_epoch=-1 if committed is None else committed.leader_epoch,
        metadata="" if committed is None else committed.metadata,
        error_code=offset.error,
    )


def _refused(topic: OffsetFetchRequestTopics, code: int) -> list[OffsetFetchResponsePartitions]:
    return [
        OffsetFetchResponsePartitions(partition_index=index, committed_offset=_NO_OFFSET, metadata="", error_code=code)
        for index in topic.partition_indexes
    ]


def _single(topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopic:
    """A topic as the versions for one group have it."""
    return OffsetFetchResponseTopic(
        name=topic.name,
        partitions=[
            OffsetFetchResponsePartition(
                partition_index=partition.partition_index,
                committed_offset=partition.committed_offset,
                committed_leader_epoch=partition.committed_leader_epoch,
                metadata=partition.metadata,
                error_code=partition.error_code,
            )
            for partition in topic.partitions
        ],
    )
