"""ListTransactions (key 66) lists transactions (KIP-664)."""

from __future__ import annotations

from mainstem.protocol.schema import Int16, Int32, Int64, Message, Str, Struct, field


class ListTransactionsRequest(Message, api_key=66, versions="0-2", flexible="0+"):
    state_filters: list[Str] = field("0+")
    producer_id_filters: list[Int64] = field("0+")
    duration_filter: Int64 = field("1+", default=-1)
    transactional_id_pattern: Str | None = field("2+", default=None)


class TransactionState(Struct):
    transactional_id: Str = field("0+")
    producer_id: Int64 = field("0+")
    transaction_state: Str = field("0+")


class ListTransactionsResponse(Message, api_key=66, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    unknown_state_filters: list[Str] = field("0+")
    transaction_states: list[TransactionState] = field("0+")
