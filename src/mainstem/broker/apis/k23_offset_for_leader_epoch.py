"""OffsetForLeaderEpoch (key 23), versions 2–4: where a leader epoch ends, so that clients notice truncation (KIP-320).

librdkafka sends v2, Java's consumer v3 or later.
"""

from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k23_offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 23
MIN_VERSION = 2
MAX_VERSION = 4


def handle(
    broker: "Broker", context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_find(broker, topic.topic, wanted) for wanted in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _find(broker: "Broker", topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = broker.partitions.find(topic, wanted.partition)
        partition.check_leader(wanted.current_leader_epoch)
    except RemoteError as error:
        return EpochEndOffset(error_code=error.code, partition=wanted.partition)
    end = partition.log.end_offset_for(wanted.leader_epoch)
    return EpochEndOffset(
        error_code=ErrorCode.NONE, partition=wanted.partition, leader_epoch=end.epoch, end_offset=end.end_offset
    )
