"""InitProducerId (key 22), versions 0–6: an id and an epoch for a producer, idempotent or transactional.

v3 tells the id that a producer had (KIP-360), v4 knows PRODUCER_FENCED. v6 (two-phase commit, KIP-939) is advertised
where `transaction.two.phase.commit.enable` is set.
"""

from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.core.txn.machine import InitBy, Producer
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 22
MIN_VERSION = 0
MAX_VERSION = 6

_NONE = -1
_KNOWS_FENCED_SINCE = 4


async def handle(broker: "Broker", context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    try:
        given = await _init(broker, request)
    except RemoteError as error:
        code = error.code
        if code is ErrorCode.PRODUCER_FENCED and context.api_version < _KNOWS_FENCED_SINCE:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        return InitProducerIdResponse(error_code=code, producer_id=_NONE, producer_epoch=_NONE)
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE,
        producer_id=given.producer_id,
        producer_epoch=given.epoch,
        ongoing_txn_producer_id=given.ongoing_producer_id,
        ongoing_txn_producer_epoch=given.ongoing_epoch,
    )


async def _init(broker: "Broker", request: InitProducerIdRequest) -> Producer:
    if (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
        raise RemoteError(ErrorCode.INVALID_REQUEST, "a producer has an id and an epoch, or neither")
    if request.transactional_id is None:
        # Whatever id it had, an idempotent producer gets a new one.
        return Producer(await broker.producer_ids.take(), 0)
    return await broker.transactions.init_producer_id(
        InitBy(
            request.transactional_id,
            request.transaction_timeout_ms,
            None if request.producer_id == _NONE else (request.producer_id, request.producer_epoch),
            request.enable2_pc,
            request.keep_prepared_txn,
        )
    )
