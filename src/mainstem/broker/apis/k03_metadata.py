"""Metadata (key 3), versions 0–13: brokers, topics, and who leads which partition.

v0 asks for all topics by an empty list, later versions by null; v4 says whether topics may be created; v8 asks for
authorized operations; v10 tells topic ids, v12 asks by them; v13 can fail as a whole.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mainstem.broker.authorized import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from mainstem.broker.context import RequestContext
from mainstem.broker.topic_creation import INTERNAL_TOPICS, is_legal_name
from mainstem.core.controller.states import NO_LEADER, PartitionState, TopicState
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from mainstem.protocol.primitives import ZERO_UUID

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 3
MIN_VERSION = 0
MAX_VERSION = 13

_IDS_ASKED_FROM = 12
_CREATION_SAID_FROM = 4


async def handle(broker: "Broker", context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    version = context.api_version
    wanted = request.topics
    if version < _IDS_ASKED_FROM and any(each.name is None or each.topic_id != ZERO_UUID for each in wanted or ()):
        return _refused(wanted or [])
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else None
    topics: list[MetadataResponseTopic] = []
    if wanted is None or (version == 0 and not wanted):
        topics = [_describe(broker, topic, operations) for topic in broker.image.topics.values()]
    else:
        may_create = broker.config.get_bool("auto.create.topics.enable") and (
            version < _CREATION_SAID_FROM or request.allow_auto_topic_creation
        )
        by_id = [each for each in wanted if each.topic_id != ZERO_UUID]
        for each in _once_each(by_id or wanted):
            topics.append(await _find(broker, each, may_create, operations))
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in broker.nodes(context.listener_name)
        ],
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=topics,
        **(
            {"cluster_authorized_operations": CLUSTER_OPERATIONS}
            if request.include_cluster_authorized_operations
            else {}
        ),
    )


def _refused(wanted: Iterable[MetadataRequestTopic]) -> MetadataResponse:
    """Ids cannot be asked for yet: nothing is told."""
    topics = [_failed(each.name or "", ErrorCode.INVALID_REQUEST) for each in wanted]
    for topic in topics:
        topic.is_internal = False
    return MetadataResponse(brokers=[], cluster_id=None, controller_id=-1, topics=topics)


def _once_each(wanted: Iterable[MetadataRequestTopic]) -> list[MetadataRequestTopic]:
    """Names do not count beside ids."""
    return list({each.name if each.topic_id == ZERO_UUID else each.topic_id: each for each in wanted}.values())


async def _find(
    broker: "Broker", wanted: MetadataRequestTopic, may_create: bool, operations: int | None
) -> MetadataResponseTopic:
    name = wanted.name
    if wanted.topic_id != ZERO_UUID:
        topic = broker.image.topics_by_id.get(wanted.topic_id)
        if topic is None:
            return _failed(None, ErrorCode.UNKNOWN_TOPIC_ID, wanted.topic_id)
        return _describe(broker, topic, operations)
    if name is None:
        return _failed(None, ErrorCode.INVALID_REQUEST)
    topic = broker.image.topics.get(name)
    if topic is None:
        if not is_legal_name(name):
            return _with_operations(_failed(name, ErrorCode.INVALID_TOPIC_EXCEPTION), operations)
        if not may_create:
            return _with_operations(_failed(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), operations)
        code = await broker.topic_creation.ensure(name)
        topic = broker.image.topics.get(name)
        if code is not ErrorCode.NONE or topic is None:
            # What a client may try again, as Kafka tells it while a topic is on its way.
            return _failed(name, code if code is not ErrorCode.NONE else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return _describe(broker, topic, operations)


def _failed(name: str | None, code: ErrorCode, topic_id: bytes = ZERO_UUID) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=code,
        name=name,
        topic_id=topic_id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[],
    )


def _describe(broker: "Broker", topic: TopicState, operations: int | None) -> MetadataResponseTopic:
    found = MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_describe_partition(broker, index, state) for index, state in sorted(topic.partitions.items())],
    )
    return _with_operations(found, operations)


def _with_operations(found: MetadataResponseTopic, operations: int | None) -> MetadataResponseTopic:
    """Kafka tells what one may do with a topic also where it is not there, or cannot be."""
    if operations is not None:
        found.topic_authorized_operations = operations
    return found


def _describe_partition(broker: "Broker", index: int, state: PartitionState) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if state.leader == NO_LEADER else ErrorCode.NONE,
        partition_index=index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        offline_replicas=broker.offline_replicas(state),
    )
