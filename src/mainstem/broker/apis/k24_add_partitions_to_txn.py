"""AddPartitionsToTxn (key 24), versions 0–5: makes partitions part of a transaction, or verifies that they are.

v2 knows PRODUCER_FENCED. From v4 on partition leaders send it, for several transactions at once: v4 to verify, v5 to
add what a client of transaction version 2 writes to (KIP-890). If one partition is not there, none is added, and the
others are told OPERATION_NOT_ATTEMPTED. So it is where a client (up to v3) names an internal topic: its coordinators
write there, and a client's marker among their records would be read as theirs.
"""

from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.broker.topic_creation import INTERNAL_TOPICS
from mainstem.core.txn.machine import Client
from mainstem.core.txn.states import TV1, TV2, Place
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 24
MIN_VERSION = 0
MAX_VERSION = 5

_KNOWS_FENCED_SINCE = 2
_BY_BROKERS_SINCE = 4
_TV2_SINCE = 4


async def handle(
    broker: "Broker", context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    version = context.api_version
    if version >= _BY_BROKERS_SINCE:
        results = [
            AddPartitionsToTxnResult(
                transactional_id=each.transactional_id, topic_results=await _results(broker, each, version)
            )
            for each in request.transactions
        ]
        if any(map(_is_unsupported, results)):
            return AddPartitionsToTxnResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    only = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=await _results(broker, only, version))


def _is_unsupported(result: AddPartitionsToTxnResult) -> bool:
    """Whether the cluster's `transaction.version` is too low, which is told of the request as a whole."""
    codes = [one.partition_error_code for topic in result.topic_results for one in topic.results_by_partition]
    return ErrorCode.UNSUPPORTED_VERSION in codes


async def _results(
    broker: "Broker", transaction: AddPartitionsToTxnTransaction, version: int
) -> list[AddPartitionsToTxnTopicResult]:
    places = tuple((topic.name, index) for topic in transaction.topics for index in topic.partitions)
    codes = await _codes(broker, transaction, places, version)
    if version < _KNOWS_FENCED_SINCE:
        fenced, known = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH
        codes = [known if code is fenced else code for code in codes]
    return _by_topic(transaction.topics, codes)


async def _codes(
    broker: "Broker", transaction: AddPartitionsToTxnTransaction, places: tuple[Place, ...], version: int
) -> list[ErrorCode]:
    wrong = [_wrong_with(broker, place, version) for place in places]
    if any(wrong):
        return [code or ErrorCode.OPERATION_NOT_ATTEMPTED for code in wrong]
    client = Client(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        TV2 if version >= _TV2_SINCE else TV1,
    )
    try:
        if transaction.verify_only:
            return await broker.transactions.verify_partitions(client, places)
        await broker.transactions.add_partitions(client, places)
    except RemoteError as error:
        return [error.code] * len(places)
    return [ErrorCode.NONE] * len(places)


def _wrong_with(broker: "Broker", place: Place, version: int) -> ErrorCode:
    """Why a partition cannot be added, or NONE."""
    if version < _BY_BROKERS_SINCE and place[0] in INTERNAL_TOPICS:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if broker.image.partition(*place) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def _by_topic(topics: list[AddPartitionsToTxnTopic], codes: list[ErrorCode]) -> list[AddPartitionsToTxnTopicResult]:
    given = iter(codes)
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=next(given))
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
