"""AlterPartition (key 56) asks the controller to change the in-sync replicas of partitions (KIP-497)."""

from __future__ import annotations

from mainstem.protocol.schema import Int8, Int16, Int32, Int64, Message, Struct, Uuid, field


class BrokerState(Struct):
    broker_id: Int32 = field("3+")
    broker_epoch: Int64 = field("3+", default=-1)


class PartitionData(Struct):
    partition_index: Int32 = field("0+")
    leader_epoch: Int32 = field("0+")
    new_isr: list[Int32] = field("0-2", default_factory=list)
    new_isr_with_epochs: list[BrokerState] = field("3+", default_factory=list)
    leader_recovery_state: Int8 = field("1+", default=0)
    partition_epoch: Int32 = field("0+")


class TopicData(Struct):
    topic_id: Uuid = field("2+", ignorable=True)
    partitions: list[PartitionData] = field("0+")


class AlterPartitionRequest(Message, api_key=56, versions="2-3", flexible="0+"):
    broker_id: Int32 = field("0+")
    broker_epoch: Int64 = field("0+", default=-1)
    topics: list[TopicData] = field("0+")


class ResponsePartitionData(Struct):
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")
    leader_id: Int32 = field("0+")
    leader_epoch: Int32 = field("0+")
    isr: list[Int32] = field("0+")
    leader_recovery_state: Int8 = field("1+", default=0, ignorable=True)
    partition_epoch: Int32 = field("0+")


class ResponseTopicData(Struct):
    topic_id: Uuid = field("2+", ignorable=True)
    partitions: list[ResponsePartitionData] = field("0+")


class AlterPartitionResponse(Message, api_key=56, versions="2-3", flexible="0+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    topics: list[ResponseTopicData] = field("0+")
