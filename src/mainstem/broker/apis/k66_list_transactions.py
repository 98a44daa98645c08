"""ListTransactions (key 66), versions 0–2: the transactional ids that this broker coordinates (KIP-664).

v1 asks for those that have been running for longer, v2 for ids that match a pattern: one of RE2's, as in Kafka, so that
an id takes time in proportion to its length, whatever the pattern. An unknown state is told and matches nothing.
"""

from collections.abc import Callable
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
    try:
        found = await broker.transactions.list_transactions(
            request.state_filters,
            request.producer_id_filters,
            request.duration_filter,
            _matcher(request.transactional_id_pattern),
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


def _matcher(pattern: str | None) -> Callable[[str], object] | None:
    if not pattern:
        return None
    import re2  # only who uses patterns needs it: a start does without

    options = re2.Options()
    options.log_errors = False  # it would write on standard error itself
    try:
        matches: Callable[[str], object] = re2.compile(pattern, options).fullmatch
    except re2.error as error:
        raise RemoteError(ErrorCode.INVALID_REGULAR_EXPRESSION, "not a pattern that RE2 takes") from error
    finally:
        re2.purge()  # it would keep the last patterns that came, of some megabytes each
    return matches


def _failed(code: ErrorCode) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=code, unknown_state_filters=[], transaction_states=[])
