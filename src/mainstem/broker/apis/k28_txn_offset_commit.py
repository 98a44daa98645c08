"""TxnOffsetCommit (key 28), versions 0–5: stores a group's positions as part of a transaction.

v2 knows that a coordinator is loading, v3 tells the group's member (KIP-447), v4 knows TRANSACTION_ABORTABLE; v5 makes
the offsets part of the transaction by itself, for transaction version 2 (KIP-890).
"""

from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.core.coordinator.effects import TransactionPart
from mainstem.core.group.offsets import CommitBy, NewOffset
from mainstem.core.log.verification import NO_GUARD
from mainstem.core.txn.states import Place
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from mainstem.protocol.primitives import ZERO_UUID

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 28
MIN_VERSION = 0
MAX_VERSION = 5

_KNOWS_LOADING_SINCE = 2
_KNOWS_ABORTABLE_SINCE = 4
_TV2_SINCE = 5


async def handle(broker: "Broker", context: RequestContext, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    offsets: list[NewOffset] = []
    for topic in request.topics:
        for one in topic.partitions:
            if broker.image.partition(topic.name, one.partition_index) is not None:
                offsets.append(
                    NewOffset(
                        topic.name,
                        ZERO_UUID,
                        one.partition_index,
                        one.committed_offset,
                        one.committed_leader_epoch,
                        one.committed_metadata,
                    )
                )
    codes = await _commit(broker, context.api_version, request, offsets) if offsets else []
    known = {(new.topic, new.partition): code for new, code in zip(offsets, codes, strict=True)}
    return TxnOffsetCommitResponse(topics=_unknown_first([_answer(topic, known) for topic in request.topics]))


def _answer(topic: TxnOffsetCommitRequestTopic, known: dict[Place, ErrorCode]) -> TxnOffsetCommitResponseTopic:
    partitions = [
        TxnOffsetCommitResponsePartition(
            partition_index=one.partition_index,
            error_code=known.get((topic.name, one.partition_index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        )
        for one in topic.partitions
    ]
    partitions.sort(key=_is_known)
    return TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions)


def _unknown_first(topics: list[TxnOffsetCommitResponseTopic]) -> list[TxnOffsetCommitResponseTopic]:
    """As Kafka answers: what the coordinator was not asked about comes before what it said."""
    return sorted(topics, key=lambda topic: all(map(_is_known, topic.partitions)))


def _is_known(partition: TxnOffsetCommitResponsePartition) -> bool:
    return partition.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def _commit(
    broker: "Broker", version: int, request: TxnOffsetCommitRequest, offsets: list[NewOffset]
) -> list[ErrorCode]:
    by = CommitBy(
        request.group_id,
        request.generation_id,
        request.member_id,
        request.group_instance_id,
        version,
        part_of=TransactionPart(request.producer_id, request.producer_epoch, NO_GUARD),
    )
    try:
        return await broker.groups.commit_in_transaction(
            request.transactional_id,
            by,
            offsets,
            raises_epoch=version >= _TV2_SINCE,
            knows_abortable=version >= _KNOWS_ABORTABLE_SINCE,
        )
    except RemoteError as error:
        code = error.code
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _KNOWS_LOADING_SINCE:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return [code] * len(offsets)
