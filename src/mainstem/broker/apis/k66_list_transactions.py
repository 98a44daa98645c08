"""ListTransactions (key 66), versions 0–2: the transactional ids that this broker coordinates (KIP-664).

v1 asks for those that have been running for longer, v2 for ids that match a pattern, by Python's rules for one. A state
that nobody knows is told and matches nothing.
"""

import re
from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.core.txn.machine import unknown_states
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k66_list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 66
MIN_VERSION = 0
MAX_VERSION = 2


async def handle(
    broker: "Broker", context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    pattern = None
    if request.transactional_id_pattern:
        try:
            pattern = re.compile(request.transactional_id_pattern)
        except re.error:
            return _failed(ErrorCode.INVALID_REGULAR_EXPRESSION)
    try:
        found = await broker.transactions.list_transactions(
            request.state_filters, request.producer_id_filters, request.duration_filter, pattern
        )
    except RemoteError as error:
        return _failed(error.code)
    return ListTransactionsResponse(
        error_code=ErrorCode.NONE,
        unknown_state_filters=unknown_states(request.state_filters),
        transaction_states=[
            TransactionState(
                transactional_id=txn.transactional_id, producer_id=txn.producer_id, transaction_state=txn.state.label
            )
            for txn in found
        ],
    )


def _failed(code: ErrorCode) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=code, unknown_state_filters=[], transaction_states=[])
