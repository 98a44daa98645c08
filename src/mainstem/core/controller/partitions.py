"""Partitions as their leaders report them: AlterPartition, AssignReplicasToDirs, and AllocateProducerIds beside them.

AlterPartition is how a leader proposes in-sync replicas (KIP-497): it is taken only from the current leader, in its
epoch and on top of the partition epoch it knew, and only replicas whose brokers are active in the incarnation that the
leader saw may join (KIP-841, KIP-903).
"""

from __future__ import annotations

from typing import Final

from mainstem.core.controller.context import Context, Decision
from mainstem.core.controller.leadership import PartitionChange, broker_left
from mainstem.core.controller.states import RECOVERED, RECOVERING, BrokerState, PartitionState, TopicState
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages import k73_assign_replicas_to_dirs as k73
from mainstem.protocol.messages.k56_alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionData,
    ResponsePartitionData,
    ResponseTopicData,
)
from mainstem.protocol.messages.k67_allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from mainstem.protocol.messages.metadata_records import PartitionChangeRecord, ProducerIdsRecord
from mainstem.protocol.schema import Message

PRODUCER_ID_BLOCK: Final = 1000
PRODUCER_ID_MAX: Final = (1 << 63) - 1


def allocate_producer_ids(context: Context, request: AllocateProducerIdsRequest) -> Decision:
    """A block that nobody got before: the record says where the next one begins (T11)."""
    try:
        context.check_epoch(request.broker_id, request.broker_epoch)
        first = context.image.next_producer_id
        if first > PRODUCER_ID_MAX - PRODUCER_ID_BLOCK:
            raise RemoteError(ErrorCode.UNKNOWN_SERVER_ERROR, "there are no producer ids left")
    except RemoteError as error:
        return Decision(AllocateProducerIdsResponse(error_code=error.code, producer_id_start=0, producer_id_len=0))
    record = ProducerIdsRecord(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=first + PRODUCER_ID_BLOCK
    )
    return Decision(
        AllocateProducerIdsResponse(
            error_code=ErrorCode.NONE, producer_id_start=first, producer_id_len=PRODUCER_ID_BLOCK
        ),
        [record],
    )


def alter_partition(context: Context, request: AlterPartitionRequest, version: int) -> Decision:
    try:
        context.check_epoch(request.broker_id, request.broker_epoch)
    except RemoteError as error:
        return Decision(AlterPartitionResponse(error_code=error.code, topics=[]))
    records: list[Message] = []
    topics = []
    for asked in request.topics:
        topic = context.image.topics_by_id.get(asked.topic_id)
        answers = []
        for data in asked.partitions:
            try:
                if topic is None:
                    raise RemoteError(ErrorCode.UNKNOWN_TOPIC_ID)
                change = _alter(context, topic, data, request.broker_id, version)
            except RemoteError as error:
                answers.append(_refused(data.partition_index, error.code))
                continue
            record = change.build()
            if record is not None:
                records.append(record)
            answers.append(_altered(data.partition_index, change.partition, record))
        topics.append(ResponseTopicData(topic_id=asked.topic_id, partitions=answers))
    return Decision(AlterPartitionResponse(error_code=ErrorCode.NONE, topics=topics), records)


def _alter(context: Context, topic: TopicState, data: PartitionData, broker_id: int, version: int) -> PartitionChange:
    partition = topic.partitions.get(data.partition_index)
    if partition is None:
        raise RemoteError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if data.leader_epoch > partition.leader_epoch or data.partition_epoch > partition.partition_epoch:
        raise RemoteError(ErrorCode.NOT_CONTROLLER)
    if data.leader_epoch < partition.leader_epoch:
        raise RemoteError(ErrorCode.FENCED_LEADER_EPOCH)
    if broker_id != partition.leader:
        raise RemoteError(ErrorCode.INVALID_REQUEST)
    if data.partition_epoch < partition.partition_epoch:
        raise RemoteError(ErrorCode.INVALID_UPDATE_VERSION)
    epochs = {one.broker_id: one.broker_epoch for one in data.new_isr_with_epochs}
    isr = list(epochs) if version >= 3 else list(data.new_isr)
    if not set(isr) <= set(partition.replicas) or len(set(isr)) != len(isr) or partition.leader not in isr:
        raise RemoteError(ErrorCode.INVALID_REQUEST)
    if data.leader_recovery_state not in (RECOVERED, RECOVERING):
        raise RemoteError(ErrorCode.INVALID_REQUEST)
    if data.leader_recovery_state == RECOVERING and (len(isr) > 1 or partition.recovery_state == RECOVERED):
        raise RemoteError(ErrorCode.INVALID_REQUEST)
    for replica in isr:
        broker = context.image.brokers.get(replica)
        if broker is None or not broker.is_active or epochs.get(replica, -1) not in (-1, broker.epoch):
            raise RemoteError(ErrorCode.INELIGIBLE_REPLICA)
    change = PartitionChange(context, topic, data.partition_index)
    # In the order of assignment, as Kafka keeps it once a leader is chosen from it.
    change.isr = isr
    change.recovery_state = data.leader_recovery_state
    return change


def _altered(index: int, partition: PartitionState, record: PartitionChangeRecord | None) -> ResponsePartitionData:
    """The partition as it is after the record, which has not been replayed yet."""
    leader, leader_epoch, isr = partition.leader, partition.leader_epoch, list(partition.isr)
    recovery, epoch = partition.recovery_state, partition.partition_epoch
    if record is not None:
        epoch += 1
        isr = isr if record.isr is None else record.isr
        recovery = recovery if record.leader_recovery_state == -1 else record.leader_recovery_state
        if record.leader != -2:
            leader, leader_epoch = record.leader, leader_epoch + 1
    return ResponsePartitionData(
        partition_index=index,
        error_code=ErrorCode.NONE,
        leader_id=leader,
        leader_epoch=leader_epoch,
        isr=isr,
        leader_recovery_state=recovery,
        partition_epoch=epoch,
    )


def _refused(index: int, code: ErrorCode) -> ResponsePartitionData:
    return ResponsePartitionData(
        partition_index=index, error_code=code, leader_id=0, leader_epoch=0, isr=[], partition_epoch=0
    )


def assign_replicas_to_dirs(context: Context, request: k73.AssignReplicasToDirsRequest) -> Decision:
    """A broker says where it put its replicas (KIP-858).

    A directory that is not among its online ones has failed, or is the one of what is lost: such replicas cannot lead.
    """
    try:
        broker = context.check_epoch(request.broker_id, request.broker_epoch)
        if not context.has_directories:
            raise RemoteError(ErrorCode.UNSUPPORTED_VERSION)
    except RemoteError as error:
        return Decision(k73.AssignReplicasToDirsResponse(error_code=error.code, directories=[]))
    records: list[Message] = []
    directories = []
    offline: list[tuple[TopicState, int, PartitionState]] = []
    for asked in request.directories:
        is_online = broker.has_online_directory(asked.id)
        topics = []
        for wanted in asked.topics:
            topic = context.image.topics_by_id.get(wanted.topic_id)
            answers = []
            for data in wanted.partitions:
                code = _assign(context, broker, asked.id, topic, data.partition_index, records)
                answers.append(k73.ResponsePartitionData(partition_index=data.partition_index, error_code=code))
                if code == ErrorCode.NONE and not is_online and topic is not None:
                    offline.append((topic, data.partition_index, topic.partitions[data.partition_index]))
            topics.append(k73.ResponseTopicData(topic_id=wanted.topic_id, partitions=answers))
        directories.append(k73.ResponseDirectoryData(id=asked.id, topics=topics))
    records += broker_left(context, broker.broker_id, offline, clean=True)
    answer = k73.AssignReplicasToDirsResponse(error_code=ErrorCode.NONE, directories=directories)
    return Decision(answer, records, atomic=False)


def _assign(
    context: Context,
    broker: BrokerState,
    directory: bytes,
    topic: TopicState | None,
    index: int,
    records: list[Message],
) -> ErrorCode:
    broker_id = broker.broker_id
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if index not in topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker_id not in topic.partitions[index].replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition = topic.partitions[index]

    def can_lead(replica: int) -> bool:
        if replica == broker_id and broker.has_online_directory(directory):
            # Where it was may have failed; where it is has not.
            return broker.is_active
        return context.can_lead(partition, replica)

    change = PartitionChange(context, topic, index, can_lead=can_lead)
    change.directories[broker_id] = directory
    record = change.build()
    if record is not None:
        records.append(record)
    return ErrorCode.NONE
