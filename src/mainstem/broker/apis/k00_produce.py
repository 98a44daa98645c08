"""Produce (key 0), versions 3–13 (advertised from 0, KAFKA-18659): appends batches to partitions.

v10 tells the current leader where it is another (KIP-951), v12 lets the broker add partitions to a transaction
(KIP-890), v13 names topics by id. A request is read where it lies in its frame; each partition costs one append.
"""

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.broker.partition import Partition
from mainstem.net.connection import Exchange
from mainstem.protocol.batch import HEADER_BYTES, BatchView
from mainstem.protocol.compression import ZSTD
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResponse,
    RecordError,
    encode_produce_response,
    read_produce_request,
)

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 0
MIN_VERSION = 3
MAX_VERSION = 13

_TOPIC_IDS_FROM = 13
_INVALID_OFFSET = -1
_NONE = int(ErrorCode.NONE)
_ZSTD_FROM = 7
# Kafka tells where the log starts with every refusal of the log itself but these.
_WITHOUT_LOG_START = (
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


def handle_frame(broker: "Broker", context: RequestContext, exchange: Exchange) -> None:
    version = context.api_version
    frame = exchange.frame
    request = read_produce_request(frame, context.body_at, version)
    topics: list[ProduceTopicResponse] = []
    appended: list[Partition] = []
    waiting = _Waiting(broker, exchange, context, topics, appended, request)
    for topic in request.topics:
        partitions: list[ProducePartitionResponse] = []
        topics.append(ProduceTopicResponse(topic.name, topic.topic_id, partitions))
        for wanted in topic.partitions:
            partitions.append(_append(broker, frame, version, request, topic, wanted, waiting))
    if request.acks == 0:
        _finish_unacknowledged(exchange, topics)
    else:
        waiting.answer_when_committed()
    for partition in appended:
        partition.notify()


def _append(
    broker: "Broker",
    frame: bytes,
    version: int,
    request: ProduceRequest,
    topic: ProduceTopic,
    wanted: ProducePartition,
    waiting: "_Waiting",
) -> ProducePartitionResponse:
    try:
        if version >= _TOPIC_IDS_FROM:
            partition = broker.partitions.find_by_id(topic.topic_id, wanted.index)
        else:
            partition = broker.partitions.find(topic.name, wanted.index)
        start, end = wanted.records_start, wanted.records_end
        if end - start < HEADER_BYTES:
            raise RemoteError(ErrorCode.INVALID_RECORD, "a partition's records are one batch, and there is none")
        batch = BatchView(frame, start)
        if batch.end < end:
            raise RemoteError(ErrorCode.INVALID_RECORD, "a partition's records are one batch, and there are more")
        if version < _ZSTD_FROM and batch.codec == ZSTD:
            raise RemoteError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce v{_ZSTD_FROM} or later")
        if request.acks not in (-1, 0, 1):
            raise RemoteError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks} is none of -1, 0 and 1")
    except RemoteError as error:
        return _failed(error, wanted.index)
    try:
        result = partition.append(frame, start, end, all_in_sync=request.acks == -1)
    except RemoteError as error:
        answer = _failed(error, wanted.index)
        if error.code not in _WITHOUT_LOG_START:
            answer.log_start_offset = partition.log.log_start
        return answer
    waiting.appended.append(partition)
    answer = ProducePartitionResponse(wanted.index, _NONE, result.base_offset, result.log_append_time, result.log_start)
    if request.acks == -1:
        waiting.wait_for(partition, result.last_offset + 1, answer)
    return answer


def _failed(error: RemoteError, index: int) -> ProducePartitionResponse:
    answer = ProducePartitionResponse(index, int(error.code), _INVALID_OFFSET)
    answer.error_message = error.message or None
    if error.code is ErrorCode.INVALID_RECORD:
        answer.record_errors = [RecordError(0, error.message)]
    return answer


def _finish_unacknowledged(exchange: Exchange, topics: list[ProduceTopicResponse]) -> None:
    """acks=0 has no answer: a client learns of an error by losing its connection, as in Kafka."""
    if any(partition.error_code != _NONE for topic in topics for partition in topic.partitions):
        exchange.close()
    else:
        exchange.respond([])


class _Waiting:
    """The answer to a produce, and the commits it still waits for."""

    __slots__ = ("_context", "_exchange", "_loop", "_open", "_pending", "_request", "_timer", "_topics", "appended")

    def __init__(
        self,
        broker: "Broker",
        exchange: Exchange,
        context: RequestContext,
        topics: list[ProduceTopicResponse],
        appended: list[Partition],
        request: ProduceRequest,
    ) -> None:
        self.appended = appended
        self._loop = broker.loop
        self._exchange = exchange
        self._context = context
        self._topics = topics
        self._request = request
        self._pending: list[tuple[Partition, int, ProducePartitionResponse]] = []
        self._open = 0
        self._timer: asyncio.TimerHandle | None = None

    def wait_for(self, partition: Partition, end_offset: int, answer: ProducePartitionResponse) -> None:
        if partition.high_watermark < end_offset:
            self._pending.append((partition, end_offset, answer))

    def answer_when_committed(self) -> None:
        pending = self._pending
        if not pending:
            self._respond()
            return
        self._open = len(pending)
        timer = self._loop.call_later(self._request.timeout_ms / 1000, self._timed_out)
        self._timer = timer
        for partition, end_offset, answer in pending:
            partition.when_committed(end_offset, partial(self._committed, answer))

    def _committed(self, answer: ProducePartitionResponse, code: ErrorCode) -> None:
        if self._timer is None:
            return
        if code is not ErrorCode.NONE:
            answer.error_code = int(code)
            answer.base_offset = _INVALID_OFFSET
        answer.leader_id = -1
        self._open -= 1
        if self._open == 0:
            self._timer.cancel()
            self._timer = None
            self._respond()

    def _timed_out(self) -> None:
        self._timer = None
        for partition, end_offset, answer in self._pending:
            if partition.high_watermark < end_offset and answer.error_code == _NONE:
                answer.error_code = int(ErrorCode.REQUEST_TIMED_OUT)
                answer.base_offset = _INVALID_OFFSET
        self._respond()

    def _respond(self) -> None:
        context = self._context
        self._exchange.respond(
            [encode_produce_response(ProduceResponse(self._topics), context.api_version, context.correlation_id)]
        )
