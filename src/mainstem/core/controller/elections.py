"""Elections and reassignments that people ask for: ElectLeaders, AlterPartitionReassignments and their list.

A reassignment is the partition's own state (KIP-455): `replicas` holds the target and what is still to be removed,
`adding` and `removing` say which is which. It completes when the leader reports the added ones in sync.
"""

from __future__ import annotations

from mainstem.core.controller.context import Context, Decision
from mainstem.core.controller.leadership import Election, PartitionChange
from mainstem.core.controller.placement import check_assignment
from mainstem.core.controller.states import NO_LEADER, PartitionState
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k43_elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from mainstem.protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from mainstem.protocol.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from mainstem.protocol.schema import Message

PREFERRED, UNCLEAN = 0, 1


def elect_leaders(context: Context, request: ElectLeadersRequest, version: int) -> Decision:
    kind = request.election_type if version >= 1 else PREFERRED
    if request.topic_partitions is not None and not request.topic_partitions:
        return Decision(ElectLeadersResponse(error_code=ErrorCode.NONE, replica_election_results=[]))
    if kind not in (PREFERRED, UNCLEAN):
        return _unknown_election(request, kind)
    asked = [(one.topic, one.partitions) for one in request.topic_partitions or []]
    everything = request.topic_partitions is None
    if everything:
        asked = [(topic.name, list(topic.partitions)) for topic in context.image.topics.values()]
    records: list[Message] = []
    results = []
    for name, indexes in asked:
        answers = []
        for index in indexes:
            code, message = ErrorCode.NONE, None
            try:
                records.append(_elect(context, name, index, kind))
            except RemoteError as error:
                code, message = error.code, error.message
            # Asked for all, who needs no election is not named.
            if not (everything and code == ErrorCode.ELECTION_NOT_NEEDED):
                answers.append(PartitionResult(partition_id=index, error_code=code, error_message=message))
        results.append(ReplicaElectionResult(topic=name, partition_result=answers))
    answer = ElectLeadersResponse(error_code=ErrorCode.NONE, replica_election_results=results)
    return Decision(answer, records, atomic=False)


def _unknown_election(request: ElectLeadersRequest, kind: int) -> Decision:
    message = f"Unknown election type {kind}"
    results = [
        ReplicaElectionResult(
            topic=one.topic,
            partition_result=[
                PartitionResult(partition_id=index, error_code=ErrorCode.INVALID_REQUEST, error_message=message)
                for index in one.partitions
            ],
        )
        for one in request.topic_partitions or []
    ]
    return Decision(ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST, replica_election_results=results))


def _elect(context: Context, name: str, index: int, kind: int) -> Message:
    topic = context.image.topics.get(name)
    if topic is None:
        raise RemoteError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = topic.partitions.get(index)
    if partition is None:
        raise RemoteError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    leads = partition.leader == partition.replicas[0] if kind == PREFERRED else partition.leader != NO_LEADER
    if leads:
        raise RemoteError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    election = Election.PREFERRED if kind == PREFERRED else Election.UNCLEAN
    record = PartitionChange(context, topic, index, election=election).build()
    if record is None:
        if kind == PREFERRED:
            raise RemoteError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
        raise RemoteError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available."
        )
    return record


# -- reassignments -------------------------------------------------------------------------------------------------


def alter_reassignments(context: Context, request: AlterPartitionReassignmentsRequest) -> Decision:
    records: list[Message] = []
    responses = []
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            code, message = ErrorCode.NONE, None
            try:
                record = _reassign(
                    context,
                    topic.name,
                    asked.partition_index,
                    asked.replicas,
                    request.allow_replication_factor_change,
                )
                if record is not None:
                    records.append(record)
            except RemoteError as error:
                code, message = error.code, error.message or None
            answers.append(
                ReassignablePartitionResponse(
                    partition_index=asked.partition_index, error_code=code, error_message=message
                )
            )
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=answers))
    answer = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        error_message=None if request.topics else "",
        responses=responses,
    )
    return Decision(answer, records, atomic=False)


def _reassign(
    context: Context, name: str, index: int, target: list[int] | None, may_change_factor: bool
) -> Message | None:
    topic = context.image.topics.get(name)
    if topic is None:
        raise RemoteError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    partition = topic.partitions.get(index)
    if partition is None:
        raise RemoteError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")
    change = PartitionChange(context, topic, index)
    if target is None:
        _cancel(change, partition)
        return change.build()
    check_assignment(context, target, None)
    current = _without(partition.replicas, partition.adding_replicas)
    if not may_change_factor and len(target) != len(current):
        raise RemoteError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {len(current)} to {len(target)}",
        )
    removing = [replica for replica in current if replica not in target]
    change.replicas = target + removing
    change.removing = removing
    change.adding = [replica for replica in target if replica not in current]
    change.isr = [replica for replica in partition.isr if replica in change.replicas]
    return change.build()


def _cancel(change: PartitionChange, partition: PartitionState) -> None:
    if not partition.is_reassigning:
        raise RemoteError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    change.replicas = _without(partition.replicas, partition.adding_replicas)
    change.isr = _without(partition.isr, partition.adding_replicas)
    change.adding = []
    change.removing = []


def _without(replicas: tuple[int, ...], gone: tuple[int, ...]) -> list[int]:
    return [replica for replica in replicas if replica not in gone]


def list_reassignments(context: Context, request: ListPartitionReassignmentsRequest) -> Decision:
    asked: dict[str, list[int]] = {}
    if request.topics is None:
        asked = {topic.name: list(topic.partitions) for topic in context.image.topics.values()}
    else:
        asked = {one.name: one.partition_indexes for one in request.topics}
    topics = []
    for name, indexes in asked.items():
        ongoing = []
        for index in indexes:
            partition = context.image.partition(name, index)
            if partition is not None and partition.is_reassigning:
                ongoing.append(
                    OngoingPartitionReassignment(
                        partition_index=index,
                        replicas=list(partition.replicas),
                        adding_replicas=list(partition.adding_replicas),
                        removing_replicas=list(partition.removing_replicas),
                    )
                )
        if ongoing:
            topics.append(OngoingTopicReassignment(name=name, partitions=ongoing))
    answer = ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, error_message=None, topics=topics)
    return Decision(answer)
