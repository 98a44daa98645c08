"""AlterReplicaLogDirs (key 34) moves replicas between the log directories of a broker."""

from __future__ import annotations

from mainstem.protocol.schema import Int16, Int32, Message, Str, Struct, field


class AlterReplicaLogDirTopic(Struct):
    name: Str = field("0+")
    partitions: list[Int32] = field("0+")


class AlterReplicaLogDir(Struct):
    path: Str = field("0+")
    topics: list[AlterReplicaLogDirTopic] = field("0+")


class AlterReplicaLogDirsRequest(Message, api_key=34, versions="1-2", flexible="2+"):
    dirs: list[AlterReplicaLogDir] = field("0+")


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: Str = field("0+")
    partitions: list[AlterReplicaLogDirPartitionResult] = field("0+")


class AlterReplicaLogDirsResponse(Message, api_key=34, versions="1-2", flexible="2+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    results: list[AlterReplicaLogDirTopicResult] = field("0+")
