"""DescribeTransactions (key 65), version 0: what the coordinator knows of transactional ids (KIP-664)."""

import asyncio
from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 65
MIN_VERSION = 0
MAX_VERSION = 0

_AT_A_TIME = 100
"""How many are described before others have their turn: a request may name as many as it likes."""


async def handle(
    broker: "Broker", context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    states: list[TransactionState] = []
    for transactional_id in request.transactional_ids:
        states.append(await _describe(broker, transactional_id))
        if len(states) % _AT_A_TIME == 0:
            await asyncio.sleep(0)
    return DescribeTransactionsResponse(transaction_states=states)


async def _describe(broker: "Broker", transactional_id: str) -> TransactionState:
    answer = TransactionState(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )
    try:
        txn = await broker.transactions.describe(transactional_id)
    except RemoteError as error:
        answer.error_code = error.code
        return answer
    answer.transaction_state = txn.state.label
    answer.transaction_timeout_ms = txn.timeout_ms
    answer.transaction_start_time_ms = txn.start_ms
    answer.producer_id = txn.producer_id
    answer.producer_epoch = txn.producer_epoch
    by_topic: dict[str, list[int]] = {}
    for topic, index in txn.partitions:
        by_topic.setdefault(topic, []).append(index)
    answer.topics = [TopicData(topic=topic, partitions=indexes) for topic, indexes in by_topic.items()]
    return answer
