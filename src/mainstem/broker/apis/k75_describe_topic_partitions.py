"""DescribeTopicPartitions (key 75), version 0: topics page by page, with eligible leader replicas (KIP-966).

Topics come by name. A page holds at most as many partitions as the client asks for and the broker allows; its cursor
says where the next one begins. No topics are all topics. A request that is malformed has its error in each topic.
"""

from typing import TYPE_CHECKING

from mainstem.broker.authorized import TOPIC_OPERATIONS
from mainstem.broker.context import RequestContext
from mainstem.broker.topic_creation import INTERNAL_TOPICS, is_legal_name
from mainstem.core.controller.states import NO_LEADER, PartitionState, TopicState
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k75_describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from mainstem.protocol.primitives import ZERO_UUID

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 75
MIN_VERSION = 0
MAX_VERSION = 0


def handle(
    broker: "Broker", context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    try:
        names = _names(broker, request)
    except RemoteError as error:
        return DescribeTopicPartitionsResponse(
            topics=[
                DescribeTopicPartitionsResponseTopic(
                    error_code=error.code, name=topic.name, topic_id=ZERO_UUID, partitions=[]
                )
                for topic in request.topics
            ]
        )
    return _page(broker, request, names)


def _names(broker: "Broker", request: DescribeTopicPartitionsRequest) -> list[str]:
    """The topics from the cursor on, by name."""
    cursor = request.cursor
    wanted = {topic.name for topic in request.topics}
    if "" in wanted:
        raise RemoteError(ErrorCode.UNKNOWN_SERVER_ERROR, "a topic's name is not empty")
    if cursor is not None:
        if wanted and cursor.topic_name not in wanted:
            raise RemoteError(ErrorCode.INVALID_REQUEST, f"the cursor's topic {cursor.topic_name} is not asked for")
        if cursor.partition_index < 0:
            raise RemoteError(ErrorCode.INVALID_REQUEST, f"a cursor at partition {cursor.partition_index}")
    first = "" if cursor is None else cursor.topic_name
    return sorted(name for name in wanted or broker.image.topics if name >= first)


def _page(
    broker: "Broker", request: DescribeTopicPartitionsRequest, names: list[str]
) -> DescribeTopicPartitionsResponse:
    limit = broker.config.get_int("max.request.partition.size.limit")
    room = max(min(limit, request.response_partition_limit), 1)
    page = DescribeTopicPartitionsResponse(topics=[])
    for name in names:
        if room == 0:
            page.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = broker.image.topics.get(name)
        if topic is None:
            page.topics.append(_missing(name))
            continue
        at_cursor = request.cursor is not None and request.cursor.topic_name == name
        start = request.cursor.partition_index if request.cursor is not None and at_cursor else 0
        # Partitions are numbered from 0 without gaps.
        end = min(len(topic.partitions), start + room)
        page.topics.append(_described(broker, topic, range(start, end)))
        if end < len(topic.partitions):
            page.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
        room -= max(end - start, 0)
    return page


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal_name(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        topic_id=ZERO_UUID,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _described(broker: "Broker", topic: TopicState, indexes: range) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_partition(broker, index, topic.partitions[index]) for index in indexes],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(broker: "Broker", index: int, state: PartitionState) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if state.leader == NO_LEADER else ErrorCode.NONE,
        partition_index=index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        eligible_leader_replicas=list(state.elr),
        last_known_elr=list(state.last_known_elr),
        offline_replicas=broker.offline_replicas(state),
    )
