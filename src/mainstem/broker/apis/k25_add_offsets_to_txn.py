"""AddOffsetsToTxn (key 25), versions 0–4: makes the offsets of a group part of a transaction.

v2 knows PRODUCER_FENCED. A client of transaction version 2 does not send it.
"""

from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.broker.topic_creation import GROUP_OFFSETS
from mainstem.core.txn.machine import Client
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.java import coordinator_partition
from mainstem.protocol.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 25
MIN_VERSION = 0
MAX_VERSION = 4

_KNOWS_FENCED_SINCE = 2


async def handle(broker: "Broker", context: RequestContext, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    try:
        await _add(broker, request)
    except RemoteError as error:
        code = error.code
        if code is ErrorCode.PRODUCER_FENCED and context.api_version < _KNOWS_FENCED_SINCE:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        return AddOffsetsToTxnResponse(error_code=code)
    return AddOffsetsToTxnResponse(error_code=ErrorCode.NONE)


async def _add(broker: "Broker", request: AddOffsetsToTxnRequest) -> None:
    # The group may never have been asked for: its partition is that of a topic that must be there.
    code = await broker.topic_creation.ensure(GROUP_OFFSETS)
    topic = broker.image.topics.get(GROUP_OFFSETS)
    if code is not ErrorCode.NONE or topic is None:
        raise RemoteError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{GROUP_OFFSETS} could not be created: {code.name}")
    place = (GROUP_OFFSETS, coordinator_partition(request.group_id, len(topic.partitions)))
    client = Client(request.transactional_id, request.producer_id, request.producer_epoch)
    await broker.transactions.add_partitions(client, (place,))
