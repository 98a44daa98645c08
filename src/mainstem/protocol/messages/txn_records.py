"""The records of `__transaction_state`: one key for each transactional id. Framed as in `group_records`."""

from __future__ import annotations

from mainstem.protocol.schema import Int8, Int16, Int32, Int64, Message, Str, Struct, field


class TransactionLogKey(Message, api_key=0, versions="0", flexible="none"):
    transactional_id: Str = field("0")


class PartitionsSchema(Struct):
    topic: Str = field("0+")
    partition_ids: list[Int32] = field("0+")


class TransactionLogValue(Message, api_key=0, versions="0-1", flexible="1+"):
    producer_id: Int64 = field("0+")
    previous_producer_id: Int64 = field("1+", default=-1, tag=0)
    next_producer_id: Int64 = field("1+", default=-1, tag=1)
    producer_epoch: Int16 = field("0+")
    next_producer_epoch: Int16 = field("1+", default=-1, tag=3)
    transaction_timeout_ms: Int32 = field("0+")
    transaction_status: Int8 = field("0+")
    transaction_partitions: list[PartitionsSchema] | None = field("0+")
    transaction_last_update_timestamp_ms: Int64 = field("0+")
    transaction_start_timestamp_ms: Int64 = field("0+")
    client_transaction_version: Int16 = field("1+", default=0, tag=2)
