"""AddOffsetsToTxn (key 25) adds a group's offsets partition to a transaction."""

from __future__ import annotations

from mainstem.protocol.schema import Int16, Int32, Int64, Message, Str, field


class AddOffsetsToTxnRequest(Message, api_key=25, versions="0-4", flexible="3+"):
    transactional_id: Str = field("0+")
    producer_id: Int64 = field("0+")
    producer_epoch: Int16 = field("0+")
    group_id: Str = field("0+")


class AddOffsetsToTxnResponse(Message, api_key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
