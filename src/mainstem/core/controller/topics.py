"""Topics: CreateTopics, DeleteTopics, CreatePartitions, with Kafka's checks in Kafka's order.

One request answers for each of its topics alone: some may be created while others are refused.
"""

from __future__ import annotations

from collections import Counter

from mainstem.core.controller.configs import effective_configs, topic_config_records
from mainstem.core.controller.context import RECORDS_MAX, Context, Decision
from mainstem.core.controller.names import METADATA_TOPIC, check_topic_name, similar_topic
from mainstem.core.controller.placement import check_assignment, new_partition, place
from mainstem.core.controller.states import TopicState
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from mainstem.protocol.messages.k20_delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from mainstem.protocol.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from mainstem.protocol.messages.metadata_records import RemoveTopicRecord, TopicRecord
from mainstem.protocol.schema import ZERO_UUID, Message

USE_DEFAULT = -1


# -- creating ------------------------------------------------------------------------------------------------------


def create_topics(context: Context, request: CreateTopicsRequest) -> Decision:
    times = Counter(topic.name for topic in request.topics)
    named = [topic for topic in request.topics if times[topic.name] == 1 and topic.name != METADATA_TOPIC]
    records: list[Message] = []
    results: list[CreatableTopicResult] = []
    too_many = _partitions_wanted(context, named) > RECORDS_MAX
    for topic in named:
        try:
            if too_many:
                raise RemoteError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
            made, result = _create_topic(context, topic)
        except RemoteError as error:
            results.append(_refused_topic(topic.name, error.code, error.message))
            continue
        results.append(result)
        records += made
    for name, count in times.items():
        if name == METADATA_TOPIC:
            why = f"Creation of internal topic {name} is prohibited."
            results.append(_refused_topic(name, ErrorCode.INVALID_REQUEST, why))
        elif count > 1:
            results.append(_refused_topic(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
    return Decision(CreateTopicsResponse(topics=results), [] if request.validate_only else records)


def _refused_topic(name: str, code: ErrorCode, message: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=message or None)


def _partitions_wanted(context: Context, topics: list[CreatableTopic]) -> int:
    wanted = 0
    for topic in topics:
        if topic.assignments:
            wanted += len(topic.assignments)
        elif topic.num_partitions == USE_DEFAULT:
            wanted += context.settings.default_partitions
        elif topic.num_partitions > 0:
            wanted += topic.num_partitions
    return wanted


def _create_topic(context: Context, topic: CreatableTopic) -> tuple[list[Message], CreatableTopicResult]:
    check_topic_name(topic.name)
    if topic.name in context.image.topics:
        raise RemoteError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    similar = similar_topic(topic.name, context.image)
    if similar is not None:
        raise RemoteError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{topic.name}' collides with existing topic: {similar}"
        )
    configs = {config.name: config.value for config in topic.configs}
    config_records = topic_config_records(context, topic.name, configs)
    assignments = _assign(context, topic)
    topic_id = context.new_id()
    records: list[Message] = [TopicRecord(name=topic.name, topic_id=topic_id), *config_records]
    records += [new_partition(context, topic_id, index, replicas) for index, replicas in enumerate(assignments)]
    own = {name: value for name, value in configs.items() if value is not None}
    result = CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=len(assignments),
        replication_factor=len(assignments[0]),
        configs=effective_configs(context, own),
    )
    return records, result


def _assign(context: Context, topic: CreatableTopic) -> list[list[int]]:
    if topic.assignments:
        return _assigned_by_hand(context, topic)
    if topic.replication_factor < USE_DEFAULT or topic.replication_factor == 0:
        raise RemoteError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions < USE_DEFAULT or topic.num_partitions == 0:
        raise RemoteError(
            ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
        )
    settings = context.settings
    partitions = settings.default_partitions if topic.num_partitions == USE_DEFAULT else topic.num_partitions
    factor = topic.replication_factor
    return place(context, 0, partitions, settings.default_replication_factor if factor == USE_DEFAULT else factor)


def _assigned_by_hand(context: Context, topic: CreatableTopic) -> list[list[int]]:
    for what, value in (("replication factor", topic.replication_factor), ("numPartitions", topic.num_partitions)):
        if value != USE_DEFAULT:
            raise RemoteError(
                ErrorCode.INVALID_REQUEST, f"A manual partition assignment was specified, but {what} was not set to -1."
            )
    assigned: dict[int, list[int]] = {}
    factor: int | None = None
    for one in topic.assignments:
        if one.partition_index in assigned:
            raise RemoteError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {one.partition_index}",
            )
        check_assignment(context, one.broker_ids, factor)
        factor = len(one.broker_ids)
        assigned[one.partition_index] = one.broker_ids
    if sorted(assigned) != list(range(len(assigned))):
        raise RemoteError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    return [assigned[index] for index in range(len(assigned))]


# -- deleting ------------------------------------------------------------------------------------------------------


def delete_topics(context: Context, request: DeleteTopicsRequest, version: int) -> Decision:
    if not context.settings.delete_topics:
        code = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
        wanted = [(one.name, one.topic_id) for one in request.topics] + [
            (name, ZERO_UUID) for name in request.topic_names
        ]
        refused = [_not_deleted(name, topic_id, code, "Topic deletion is disabled.") for name, topic_id in wanted]
        return Decision(DeleteTopicsResponse(responses=refused))
    asked: list[tuple[str | None, bytes]] = [(name, ZERO_UUID) for name in request.topic_names]
    asked += [(one.name, one.topic_id) for one in request.topics]
    times = Counter(asked)
    by_id = {topic_id for name, topic_id in times if name is None}
    named_too: set[bytes] = set()
    found: list[TopicState] = []
    results: list[DeletableTopicResult] = []
    for (name, topic_id), count in times.items():
        try:
            topic = _topic_to_delete(context, name, topic_id, count)
        except RemoteError as error:
            results.append(_not_deleted(name, topic_id, error.code, error.message))
            continue
        if name is not None and topic.topic_id in by_id:
            # Whoever asks for a topic in two ways is told once, and it stays.
            why = "The provided topic name maps to an ID that was already supplied."
            results.append(_not_deleted(name, topic.topic_id, ErrorCode.INVALID_REQUEST, why))
            named_too.add(topic.topic_id)
        else:
            found.append(topic)
    records: list[Message] = []
    for topic in found:
        if topic.topic_id not in named_too:
            records.append(RemoveTopicRecord(topic_id=topic.topic_id))
            results.append(DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=ErrorCode.NONE))
    return Decision(DeleteTopicsResponse(responses=results), records)


def _topic_to_delete(context: Context, name: str | None, topic_id: bytes, times: int) -> TopicState:
    if name is not None and topic_id != ZERO_UUID:
        raise RemoteError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if name is None and topic_id == ZERO_UUID:
        raise RemoteError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if times > 1:
        what = "name" if name is not None else "id"
        raise RemoteError(ErrorCode.INVALID_REQUEST, f"Duplicate topic {what}.")
    if name is not None:
        topic = context.image.topics.get(name)
        if topic is None:
            raise RemoteError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
        return topic
    by_id = context.image.topics_by_id.get(topic_id)
    if by_id is None:
        raise RemoteError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    return by_id


def _not_deleted(name: str | None, topic_id: bytes, code: ErrorCode, message: str) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)


# -- growing -------------------------------------------------------------------------------------------------------


def create_partitions(context: Context, request: CreatePartitionsRequest) -> Decision:
    times = Counter(topic.name for topic in request.topics)
    records: list[Message] = []
    results: list[CreatePartitionsTopicResult] = []
    for name, count in times.items():
        if count > 1:
            results.append(_not_grown(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
    for topic in request.topics:
        if times[topic.name] > 1:
            continue
        try:
            records += _grow(context, topic, RECORDS_MAX - len(records))
        except RemoteError as error:
            results.append(_not_grown(topic.name, error.code, error.message))
            continue
        results.append(CreatePartitionsTopicResult(name=topic.name, error_code=ErrorCode.NONE))
    return Decision(CreatePartitionsResponse(results=results), [] if request.validate_only else records)


def _not_grown(name: str, code: ErrorCode, message: str) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=code, error_message=message or None)


def _grow(context: Context, wanted: CreatePartitionsTopic, records_left: int) -> list[Message]:
    topic = context.image.topics.get(wanted.name)
    if topic is None:
        raise RemoteError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    has = len(topic.partitions)
    if wanted.count == has:
        raise RemoteError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {has} partition(s).")
    if wanted.count < has:
        raise RemoteError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {wanted.name} currently has {has} partition(s); {wanted.count} would not be an increase.",
        )
    additional = wanted.count - has
    if additional > records_left:
        raise RemoteError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
    factor = len(topic.partitions[0].replicas)
    if wanted.assignments is None:
        assignments = place(context, has, additional, factor)
    else:
        if len(wanted.assignments) != additional:
            raise RemoteError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {additional} additional partition(s), but only {len(wanted.assignments)} "
                "assignment(s) were specified.",
            )
        assignments = [one.broker_ids for one in wanted.assignments]
        for replicas in assignments:
            check_assignment(context, replicas, factor)
    return [new_partition(context, topic.topic_id, has + at, replicas) for at, replicas in enumerate(assignments)]
