"""CreateTopics (key 19) creates topics."""

from __future__ import annotations

from mainstem.protocol.schema import ZERO_UUID, Bool, Int8, Int16, Int32, Message, Str, Struct, Uuid, field


class CreatableReplicaAssignment(Struct):
    partition_index: Int32 = field("0+")
    broker_ids: list[Int32] = field("0+")


class CreatableTopicConfig(Struct):
    name: Str = field("0+")
    value: Str | None = field("0+")


class CreatableTopic(Struct):
    name: Str = field("0+")
    num_partitions: Int32 = field("0+")
    replication_factor: Int16 = field("0+")
    assignments: list[CreatableReplicaAssignment] = field("0+")
    configs: list[CreatableTopicConfig] = field("0+")


class CreateTopicsRequest(Message, api_key=19, versions="2-7", flexible="5+"):
    topics: list[CreatableTopic] = field("0+")
    timeout_ms: Int32 = field("0+", default=60000)
    validate_only: Bool = field("1+", default=False)


class CreatableTopicConfigs(Struct):
    name: Str = field("5+")
    value: Str | None = field("5+")
    read_only: Bool = field("5+")
    config_source: Int8 = field("5+", default=-1, ignorable=True)
    is_sensitive: Bool = field("5+")


class CreatableTopicResult(Struct):
    name: Str = field("0+")
    topic_id: Uuid = field("7+", default=ZERO_UUID, ignorable=True)
    error_code: Int16 = field("0+")
    error_message: Str | None = field("1+", ignorable=True)
    topic_config_error_code: Int16 = field("5+", default=0, tag=0, ignorable=True)
    num_partitions: Int32 = field("5+", default=-1, ignorable=True)
    replication_factor: Int16 = field("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = field("5+", default_factory=list, ignorable=True)


class CreateTopicsResponse(Message, api_key=19, versions="2-7", flexible="5+"):
    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    topics: list[CreatableTopicResult] = field("0+")
