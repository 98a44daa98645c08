"""DescribeLogDirs (key 35) describes the log directories of a broker."""

from __future__ import annotations

from mainstem.protocol.schema import Bool, Int16, Int32, Int64, Message, Str, Struct, field


class DescribableLogDirTopic(Struct):
    topic: Str = field("0+")
    partitions: list[Int32] = field("0+")


class DescribeLogDirsRequest(Message, api_key=35, versions="1-5", flexible="2+"):
    topics: list[DescribableLogDirTopic] | None = field("0+")


class DescribeLogDirsPartition(Struct):
    partition_index: Int32 = field("0+")
    partition_size: Int64 = field("0+")
    offset_lag: Int64 = field("0+")
    is_future_key: Bool = field("0+")


class DescribeLogDirsTopic(Struct):
    name: Str = field("0+")
    partitions: list[DescribeLogDirsPartition] = field("0+")


class DescribeLogDirsResult(Struct):
    error_code: Int16 = field("0+")
    log_dir: Str = field("0+")
    topics: list[DescribeLogDirsTopic] = field("0+")
    total_bytes: Int64 = field("4+", default=-1, ignorable=True)
    usable_bytes: Int64 = field("4+", default=-1, ignorable=True)
    is_cordoned: Bool = field("5+", default=False, ignorable=True)


class DescribeLogDirsResponse(Message, api_key=35, versions="1-5", flexible="2+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("3+", default=0, ignorable=True)
    results: list[DescribeLogDirsResult] = field("0+")
