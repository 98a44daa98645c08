"""DescribeLogDirs (key 35), versions 1–5: the log directories of this broker, what lies in them and how full they are.

v3 tells an error for the request as a whole, v4 the disk's size (KIP-827), v5 whether a directory takes new partitions
(KIP-1066). Null topics are all of them, an empty list is none.
"""

from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k35_describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from mainstem.storage.log import Log
from mainstem.storage.log_directory import LogDirectory

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 35
MIN_VERSION = 1
MAX_VERSION = 5

_UNKNOWN_SIZE = -1


def handle(broker: "Broker", context: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    wanted: set[tuple[str, int]] | None = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    dirs = broker.partitions.dirs
    cordoned = dirs.cordoned
    results = [_describe(broker, directory, wanted, directory.path in cordoned) for directory in dirs.directories]
    results += [_offline(path, path in cordoned) for path in dirs.unusable]
    return DescribeLogDirsResponse(error_code=ErrorCode.NONE, results=results)


def _offline(path: str, is_cordoned: bool) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(
        error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path, topics=[], is_cordoned=is_cordoned
    )


def _describe(
    broker: "Broker", directory: LogDirectory, wanted: set[tuple[str, int]] | None, is_cordoned: bool
) -> DescribeLogDirsResult:
    if directory.offline is not None:
        return _offline(directory.path, is_cordoned)
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    logs = broker.partitions.dirs.logs
    for key in sorted(directory.partitions):
        log = logs.get(key)
        if log is not None and (wanted is None or key in wanted):
            topics.setdefault(key[0], []).append(_partition(key[1], log))
    for key, move in broker.partitions.dirs.moves.items():
        if move.directory is directory and (wanted is None or key in wanted):
            topics.setdefault(key[0], []).append(_future(key[1], move.log, logs[key]))
    total, usable = _sizes(broker, directory.path)
    return DescribeLogDirsResult(
        error_code=ErrorCode.NONE,
        log_dir=directory.path,
        topics=[DescribeLogDirsTopic(name=name, partitions=found) for name, found in topics.items()],
        total_bytes=total,
        usable_bytes=usable,
        is_cordoned=is_cordoned,
    )


def _partition(index: int, log: Log) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=index,
        partition_size=log.size,
        offset_lag=max(log.high_watermark - log.log_end, 0),
        is_future_key=False,
    )


def _future(index: int, copy: Log, source: Log) -> DescribeLogDirsPartition:
    """A copy on its way here from another directory."""
    return DescribeLogDirsPartition(
        partition_index=index,
        partition_size=copy.size,
        offset_lag=max(source.log_end - copy.log_end, 0),
        is_future_key=True,
    )


def _sizes(broker: "Broker", path: str) -> tuple[int, int]:
    try:
        return broker.fs.total_bytes(path), broker.fs.usable_bytes(path)
    except OSError:
        return _UNKNOWN_SIZE, _UNKNOWN_SIZE
