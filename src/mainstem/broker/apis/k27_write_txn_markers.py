"""WriteTxnMarkers (key 27), versions 1–2: ends transactions on the partitions that this broker leads.

v2 tells the transaction version, whose epochs are checked more strictly (KIP-1228). A coordinator sends it, and so may
an administrator, to end what hangs (KIP-664). A partition is answered when its marker is committed; of a marker for no
partition nothing is told.

The transaction version FENCE, which only our coordinators send, writes no marker: it keeps the transaction open, and
lets nothing more of its epoch in, because another client has come back to it (KIP-939).
"""

import asyncio
from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.broker.topic_creation import GROUP_OFFSETS
from mainstem.core.log.producers import Origin
from mainstem.core.txn.states import FENCE, NO_EPOCH
from mainstem.protocol.control import EndMarker, build_end_marker
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 27
MIN_VERSION = 1
MAX_VERSION = 2

_AT_A_TIME = 64
"""How many markers are written before others have their turn: a transaction may have thousands of partitions."""

# As a coordinator of groups says it, and as a leader would have.
_AS_LEADER = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}


async def handle(broker: "Broker", context: RequestContext, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    pending: list[asyncio.Future[ErrorCode]] = []
    results: list[tuple[WritableTxnMarkerPartitionResult, asyncio.Future[ErrorCode]]] = []
    markers: list[WritableTxnMarkerResult] = []
    for marker in request.markers:
        batch = build_end_marker(
            EndMarker(
                marker.producer_id,
                marker.producer_epoch,
                marker.transaction_result,
                marker.coordinator_epoch,
                timestamp=broker.clock.wall_ms(),
            )
        )
        topics: list[WritableTxnMarkerTopicResult] = []
        if marker.topics:
            markers.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
        for topic in marker.topics:
            partitions: list[WritableTxnMarkerPartitionResult] = []
            topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions))
            for index in topic.partition_indexes:
                answer = WritableTxnMarkerPartitionResult(partition_index=index, error_code=ErrorCode.NONE)
                partitions.append(answer)
                written = _write(broker, topic.name, index, batch, marker)
                results.append((answer, written))
                if not written.done():
                    pending.append(written)
                if len(results) % _AT_A_TIME == 0:
                    await asyncio.sleep(0)
    if pending:
        await asyncio.wait(pending, timeout=broker.config.get_int("request.timeout.ms", at_least=1) / 1000)
    for answer, written in results:
        answer.error_code = written.result() if written.done() else ErrorCode.REQUEST_TIMED_OUT
    return WriteTxnMarkersResponse(markers=markers)


def _check(marker: WritableTxnMarker) -> None:
    if marker.producer_id < 0 or marker.producer_epoch == NO_EPOCH:
        raise RemoteError(ErrorCode.UNKNOWN_SERVER_ERROR, "a marker is of a producer, and has an epoch")  # Kafka's code
    if marker.producer_epoch < 0:
        raise RemoteError(ErrorCode.INVALID_PRODUCER_EPOCH, f"there is no epoch {marker.producer_epoch}")


def _write(
    broker: "Broker", topic: str, index: int, batch: bytes, marker: WritableTxnMarker
) -> "asyncio.Future[ErrorCode]":
    """Appends a marker; the future is done when it is committed, or will not be."""
    committed: asyncio.Future[ErrorCode] = broker.loop.create_future()
    try:
        partition = broker.partitions.find(topic, index)
        _check(marker)
        if marker.transaction_version == FENCE:
            partition.check_leader()
            partition.log.fence(marker.producer_id, marker.producer_epoch)
            committed.set_result(ErrorCode.NONE)
            return committed
        if topic == GROUP_OFFSETS:
            end = broker.groups.write_marker(index, batch, marker.transaction_version)
        else:
            end = 1 + (
                partition.append(
                    batch,
                    0,
                    len(batch),
                    origin=Origin.COORDINATOR,
                    transaction_version=marker.transaction_version,
                ).last_offset
            )
    except RemoteError as error:
        committed.set_result(_AS_LEADER.get(error.code, error.code))
        return committed

    def done(code: ErrorCode) -> None:
        if not committed.done():
            committed.set_result(code)

    partition.notify()
    partition.when_committed(end, done)
    return committed
