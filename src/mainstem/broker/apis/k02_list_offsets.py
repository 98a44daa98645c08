"""ListOffsets (key 2), versions 1–11: offsets by timestamp or by kind.

v2 asks by isolation level, v4 tells and checks leader epochs, v7 finds the largest timestamp, v8 the earliest local
offset, v9 the last tiered one, v11 the first that waits for upload. Without tiering the local log is all there is, and
nothing is tiered.
"""

from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.broker.partition import Partition
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from mainstem.storage.errors import StorageError
from mainstem.storage.timestamps import TimestampedOffset, TimestampJob

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 2
MIN_VERSION = 1
MAX_VERSION = 11

_LATEST = -1
_EARLIEST = -2
_MAX_TIMESTAMP = -3
_EARLIEST_LOCAL = -4
_LATEST_TIERED = -5
_EARLIEST_PENDING_UPLOAD = -6
_SINCE = {_MAX_TIMESTAMP: 7, _EARLIEST_LOCAL: 8, _LATEST_TIERED: 9, _EARLIEST_PENDING_UPLOAD: 11}
_READ_UNCOMMITTED = 0
_READ_COMMITTED = 1
_LEADER_EPOCH_SINCE = 4
_NO_EPOCH = -1
_CONSUMER = -1


async def handle(broker: "Broker", context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    seen: dict[tuple[str, int], int] = {}
    for topic in request.topics:
        for wanted in topic.partitions:
            key = (topic.name, wanted.partition_index)
            seen[key] = seen.get(key, 0) + 1
    topics: dict[str, list[ListOffsetsPartitionResponse]] = {}
    twice: set[tuple[str, int]] = set()
    for topic in request.topics:
        # A topic is answered once however often it is listed, and so is a partition.
        answers = topics.setdefault(topic.name, [])
        for wanted in topic.partitions:
            key = (topic.name, wanted.partition_index)
            if key in twice:
                continue
            try:
                if seen[key] > 1:
                    twice.add(key)
                    raise RemoteError(ErrorCode.INVALID_REQUEST, "a partition is asked for twice")
                if request.isolation_level not in (_READ_UNCOMMITTED, _READ_COMMITTED):
                    raise RemoteError(
                        ErrorCode.UNKNOWN_SERVER_ERROR, f"there is no isolation level {request.isolation_level}"
                    )
                _check_timestamp(wanted.timestamp, context.api_version)
                partition = broker.partitions.find(topic.name, wanted.partition_index)
                answers.append(await _find(broker, partition, wanted, request, context.api_version))
            except (RemoteError, StorageError) as error:
                if isinstance(error, StorageError):
                    partition.read_failed(error)
                answers.append(
                    ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=error.code)
                )
    return ListOffsetsResponse(
        topics=[ListOffsetsTopicResponse(name=name, partitions=answers) for name, answers in topics.items()]
    )


def _check_timestamp(timestamp: int, version: int) -> None:
    if timestamp < 0 and (timestamp < _EARLIEST_PENDING_UPLOAD or version < _SINCE.get(timestamp, 1)):
        raise RemoteError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} in v{version}")


async def _find(
    broker: "Broker", partition: Partition, wanted: ListOffsetsPartition, request: ListOffsetsRequest, version: int
) -> ListOffsetsPartitionResponse:
    timestamp = wanted.timestamp
    partition.check_leader(wanted.current_leader_epoch)
    log = partition.log
    upper_bound = log.log_end
    if request.replica_id == _CONSUMER:
        upper_bound = (
            partition.last_stable_offset if request.isolation_level == _READ_COMMITTED else partition.high_watermark
        )
    answer = ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=ErrorCode.NONE)
    match timestamp:
        case -1:  # latest
            answer.offset = upper_bound
            answer.leader_epoch = log.epochs.latest
        case -2 | -4:  # earliest, earliest local
            answer.offset = log.log_start
            answer.leader_epoch = log.epoch_for(log.log_start)
        case -5 | -6:  # tiered
            pass
        case _:
            if timestamp == _MAX_TIMESTAMP:
                found = await _found(broker, partition, log.begin_find_max())
            else:
                found = await _found(broker, partition, log.begin_find(timestamp, upper_bound))
            if found is not None and found.offset < upper_bound:
                answer.offset = found.offset
                answer.timestamp = found.timestamp
                answer.leader_epoch = found.leader_epoch
    if version < _LEADER_EPOCH_SINCE:
        answer.leader_epoch = _NO_EPOCH
    return answer


async def _found(broker: "Broker", partition: Partition, job: TimestampJob | None) -> TimestampedOffset | None:
    """Looks through segments in a thread: the lookup reads indexes and opens a batch.

    What a compressed batch expands to is in memory then, so only a few are opened at a time. The partition may have
    moved to another directory meanwhile: its log of now goes on.
    """
    step: TimestampJob | TimestampedOffset | None = job
    while isinstance(step, TimestampJob):
        async with broker.lookups:
            await broker.loop.run_in_executor(None, step.run, broker.clock.breathe)
        step = partition.log.finish_find(step)
    return step
