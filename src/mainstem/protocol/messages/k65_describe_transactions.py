"""DescribeTransactions (key 65) describes transactions (KIP-664)."""

from __future__ import annotations

from mainstem.protocol.schema import Int16, Int32, Int64, Message, Str, Struct, field


class DescribeTransactionsRequest(Message, api_key=65, versions="0", flexible="0+"):
    transactional_ids: list[Str] = field("0+")


class TopicData(Struct):
    topic: Str = field("0+")
    partitions: list[Int32] = field("0+")


class TransactionState(Struct):
    error_code: Int16 = field("0+")
    transactional_id: Str = field("0+")
    transaction_state: Str = field("0+")
    transaction_timeout_ms: Int32 = field("0+")
    transaction_start_time_ms: Int64 = field("0+")
    producer_id: Int64 = field("0+")
    producer_epoch: Int16 = field("0+")
    topics: list[TopicData] = field("0+")


class DescribeTransactionsResponse(Message, api_key=65, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    transaction_states: list[TransactionState] = field("0+")
