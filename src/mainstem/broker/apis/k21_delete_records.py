"""DeleteRecords (key 21), versions 0–2: moves the start of partitions forward (KIP-107).

Offset -1 is the high watermark. The answer tells the low watermark, the smallest log start of all replicas. What lies
before the log start is gone for readers at once; its segments go with the next retention check. A crash before the log
starts are next checkpointed brings the records back, as in Kafka.
"""

from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.broker.topic_creation import INTERNAL_TOPICS
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k21_delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from mainstem.storage.errors import StorageError

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 21
MIN_VERSION = 0
MAX_VERSION = 2

_HIGH_WATERMARK = -1
_NO_WATERMARK = -1


def handle(broker: "Broker", context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    # A partition that is named twice counts once, by its last offset.
    wanted: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            wanted.setdefault(topic.name, {})[partition.partition_index] = partition.offset
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=name, partitions=[_delete(broker, name, index, offset) for index, offset in offsets.items()]
            )
            for name, offsets in wanted.items()
        ]
    )


def _delete(broker: "Broker", topic: str, index: int, offset: int) -> DeleteRecordsPartitionResult:
    try:
        return DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=_advance(broker, topic, index, offset), error_code=ErrorCode.NONE
        )
    except (RemoteError, StorageError) as error:
        return DeleteRecordsPartitionResult(partition_index=index, low_watermark=_NO_WATERMARK, error_code=error.code)


def _advance(broker: "Broker", topic: str, index: int, offset: int) -> int:
    partition = broker.partitions.find(topic, index)
    if topic in INTERNAL_TOPICS:
        raise RemoteError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"records of {topic} are not deleted by clients")
    partition.check_leader()
    log = partition.log
    if not log.config.delete and log.config.compact:
        raise RemoteError(ErrorCode.POLICY_VIOLATION, f"{topic} is compacted, so nothing is deleted from its start")
    target = log.high_watermark if offset == _HIGH_WATERMARK else offset
    if target < 0:
        raise RemoteError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset}")
    if log.advance_log_start(target):
        # Whoever waits for records before it must learn that they are gone.
        partition.watchers.wake()
    return log.log_start
