"""InitProducerId (key 22), versions 0–5: an id for an idempotent producer.

v3 tells the id that a producer had (KIP-360), v4 and v5 know more errors. v6 is not stable yet and not served.
Transactions are not served: a transactional id gets UNSUPPORTED_VERSION, which no client tries again.
"""

from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 22
MIN_VERSION = 0
MAX_VERSION = 5

_NONE = -1


async def handle(broker: "Broker", context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    try:
        _check(broker, request)
        producer_id = await broker.producer_ids.take()
    except RemoteError as error:
        return InitProducerIdResponse(error_code=error.code, producer_id=_NONE, producer_epoch=_NONE)
    return InitProducerIdResponse(error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0)


def _check(broker: "Broker", request: InitProducerIdRequest) -> None:
    if (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
        raise RemoteError(ErrorCode.INVALID_REQUEST, "a producer has an id and an epoch, or neither")
    if request.transactional_id is None:
        # Whatever id it had, an idempotent producer gets a new one.
        return
    if not request.transactional_id:
        raise RemoteError(ErrorCode.INVALID_REQUEST, "a transactional id is not empty")
    timeout_max_ms = broker.config.get_int("transaction.max.timeout.ms")
    if not 0 < request.transaction_timeout_ms <= timeout_max_ms:
        raise RemoteError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, f"a transaction lasts up to {timeout_max_ms} ms")
    raise RemoteError(ErrorCode.UNSUPPORTED_VERSION, "transactions are not served")
