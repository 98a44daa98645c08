"""AlterReplicaLogDirs (key 34), versions 1–2: moves partitions between the log directories of this broker (KIP-113).

The answer says that a move has begun; DescribeLogDirs tells how far it is. A partition that is named twice goes to the
last directory named. Directories are named as in `log.dirs`.
"""

from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 34
MIN_VERSION = 1
MAX_VERSION = 2


async def handle(
    broker: "Broker", context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    wanted: dict[str, dict[int, str]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                wanted.setdefault(topic.name, {})[index] = directory.path
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(
                        partition_index=index, error_code=await _alter(broker, name, index, path)
                    )
                    for index, path in paths.items()
                ],
            )
            for name, paths in wanted.items()
        ]
    )


async def _alter(broker: "Broker", topic: str, index: int, path: str) -> ErrorCode:
    dirs = broker.partitions.dirs
    if not dirs.can_move(topic, index):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if path in dirs.unusable:
        return ErrorCode.KAFKA_STORAGE_ERROR
    target = next((each for each in dirs.directories if each.path == path), None)
    if target is None:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if target.offline is not None:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if path in dirs.cordoned:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT
    try:
        await broker.log_moves.begin(broker.partitions.find(topic, index), target)
    except RemoteError as error:
        return error.code
    return ErrorCode.NONE
