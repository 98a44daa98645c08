"""EndTxn (key 26), versions 0–5: commits or aborts a transaction.

v2 knows PRODUCER_FENCED; v5 is that of transaction version 2 and answers with the producer's next epoch, or id
(KIP-890). The answer leaves when the decision is written; markers follow.
"""

from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.core.txn.machine import Client
from mainstem.core.txn.states import TV1, TV2
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k26_end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 26
MIN_VERSION = 0
MAX_VERSION = 5

_KNOWS_FENCED_SINCE = 2
_TV2_SINCE = 5


async def handle(broker: "Broker", context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    version = TV2 if context.api_version >= _TV2_SINCE else TV1
    client = Client(request.transactional_id, request.producer_id, request.producer_epoch, version)
    try:
        now = await broker.transactions.end(client, request.committed)
    except RemoteError as error:
        code = error.code
        if code is ErrorCode.PRODUCER_FENCED and context.api_version < _KNOWS_FENCED_SINCE:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        return EndTxnResponse(error_code=code)
    return EndTxnResponse(error_code=ErrorCode.NONE, producer_id=now.producer_id, producer_epoch=now.epoch)
