"""Produce (key 0), versions 3–13 (advertised from 0, KAFKA-18659): appends batches to partitions.

v10 tells who leads, and where, to whom is wrong here (KIP-951), v11 knows TRANSACTION_ABORTABLE, v12 lets the broker
add partitions to a transaction (KIP-890), v13 names topics by id. A request is read where it lies in its frame; each
partition costs one append. The batches that begin a transaction wait for its coordinator first. A batch that takes
long to judge is appended later, and the answer waits for it; so are the last of many batches that take long together,
for others are served only after what is judged at once. To an internal topic only a client that calls itself
`__admin_client` may write, as in Kafka: its coordinator reads it as its own.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.broker.current_leader import CurrentLeaders
from mainstem.broker.drivers.verification import Admitted, ProducerBatch
from mainstem.broker.partition import Partition
from mainstem.broker.topic_creation import INTERNAL_TOPICS
from mainstem.core.log.append_result import AppendResult
from mainstem.core.log.rejection import RecordsRejectedError
from mainstem.core.log.validation import LoopShare
from mainstem.core.log.verification import NO_GUARD
from mainstem.core.txn.states import Place
from mainstem.net.connection import Exchange
from mainstem.protocol.batch import HEADER_BYTES, LENGTH_AT, LENGTH_OVERHEAD, MAGIC_AT, BatchView
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

log = logging.getLogger(__name__)

API_KEY = 0
MIN_VERSION = 3
MAX_VERSION = 13

_LEADERS_FROM = 10
_TOPIC_IDS_FROM = 13
_INVALID_OFFSET = -1
_NONE = int(ErrorCode.NONE)
_NOT_LEADER = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_ZSTD_FROM = 7
_KNOWS_ABORTABLE_FROM = 11
_TV2_FROM = 12
_MAGIC = 2
_LENGTH_MIN = 14
"""Of the formats that were dropped: Kafka takes nothing less for a batch of any."""
_ADMIN_CLIENT = "__admin_client"
# Kafka tells where the log starts with every refusal of the log itself but these.
_WITHOUT_LOG_START = (
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


# What the coordinator says and a producer would not know of a leader: it tries again after this.
_TRY_AGAIN = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


def handle_frame(broker: "Broker", context: RequestContext, exchange: Exchange) -> None:
    request = read_produce_request(exchange.frame, context.body_at, context.api_version)
    if len(request.topics) > 1 or (request.topics and len(request.topics[0].partitions) > 1):
        _keep_last(request)
    if request.transactional_id is None:
        _produce(broker, context, exchange, request, _NOTHING_ADMITTED)
        return
    batches = _transactional(broker, exchange.frame, context, request)
    producers = {batch.producer_id: None for batch in batches.values()}
    if len(producers) > 1:
        _refuse_all(broker, exchange, context, request, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    elif any(map(broker.verification.is_waiting, producers)) or not _all_open(broker, batches):
        work = _produce_when_admitted(broker, context, exchange, request, batches)
        broker.verification.run_in_order(next(iter(producers)), work)
    else:
        _produce(broker, context, exchange, request, _NOTHING_ADMITTED)


def _keep_last(request: ProduceRequest) -> None:
    """Of a partition that is named more than once what is said last counts, and is answered once: Kafka's rule."""
    topics: dict[tuple[str, bytes], dict[int, ProducePartition]] = {}
    named = 0
    for topic in request.topics:
        partitions = topics.setdefault((topic.name, topic.topic_id), {})
        for wanted in topic.partitions:
            partitions[wanted.index] = wanted
        named += len(topic.partitions)
    if named != sum(map(len, topics.values())) or len(topics) != len(request.topics):
        request.topics = [
            ProduceTopic(name, topic_id, list(partitions.values())) for (name, topic_id), partitions in topics.items()
        ]


_NOTHING_ADMITTED = Admitted()
"""Of a request that needs no coordinator."""


def _transactional(
    broker: "Broker", frame: bytes, context: RequestContext, request: ProduceRequest
) -> dict[Place, ProducerBatch]:
    """The batches of transactions in a request. What is wrong with others is told when they would be appended.

    What may not be written is not added to the transaction either: its marker would be.
    """
    version = context.api_version
    found: dict[Place, ProducerBatch] = {}
    for topic in request.topics:
        name = topic.name
        if version >= _TOPIC_IDS_FROM:
            known = broker.image.topics_by_id.get(topic.topic_id)
            if known is None:
                continue
            name = known.name
        if version >= _TV2_FROM and not _may_write(context, name):
            continue
        for wanted in topic.partitions:
            if wanted.records_end - wanted.records_start >= HEADER_BYTES:
                batch = BatchView(frame, wanted.records_start)
                if batch.is_transactional and broker.partitions.get(name, wanted.index) is not None:
                    found[name, wanted.index] = ProducerBatch(
                        batch.producer_id, batch.producer_epoch, batch.base_sequence
                    )
    return found


def _may_write(context: RequestContext, topic: str) -> bool:
    return topic not in INTERNAL_TOPICS or context.client_id == _ADMIN_CLIENT


def _all_open(broker: "Broker", batches: dict[Place, ProducerBatch]) -> bool:
    """Whether the transaction has begun on every partition that the request writes to."""
    for place, batch in batches.items():
        if not broker.partitions.find(*place).log.has_open_transaction(batch.producer_id, batch.epoch):
            return False
    return True


async def _produce_when_admitted(
    broker: "Broker",
    context: RequestContext,
    exchange: Exchange,
    request: ProduceRequest,
    batches: dict[Place, ProducerBatch],
) -> None:
    version = context.api_version
    assert request.transactional_id is not None
    try:
        admitted = await broker.verification.admit(
            request.transactional_id, batches, version >= _TV2_FROM, version >= _KNOWS_ABORTABLE_FROM
        )
        for place, error in admitted.errors.items():
            busy = error.code is ErrorCode.CONCURRENT_TRANSACTIONS and version < _TV2_FROM
            if error.code in _TRY_AGAIN or busy:
                admitted.errors[place] = RemoteError(ErrorCode.NOT_ENOUGH_REPLICAS, f"{error}: try again")
        _produce(broker, context, exchange, request, admitted)
    except Exception:
        log.exception("failed to answer a request", extra={"api": "Produce", "peer": context.peer})
        exchange.close()


def _refuse_all(
    broker: "Broker", exchange: Exchange, context: RequestContext, request: ProduceRequest, code: ErrorCode
) -> None:
    error = RemoteError(code, "the batches of one request belong to one producer")
    topics = [
        ProduceTopicResponse(topic.name, topic.topic_id, [_failed(error, wanted.index) for wanted in topic.partitions])
        for topic in request.topics
    ]
    if request.acks == 0:
        _finish_unacknowledged(exchange, topics)
    else:
        _respond(broker, exchange, context, topics)


def _produce(
    broker: "Broker", context: RequestContext, exchange: Exchange, request: ProduceRequest, admitted: Admitted
) -> None:
    frame = exchange.frame
    topics: list[ProduceTopicResponse] = []
    appended: list[Partition] = []
    pending: list[_Uncommitted] = []
    later: list[_Later] = []
    share = LoopShare()
    for topic in request.topics:
        partitions: list[ProducePartitionResponse] = []
        topics.append(ProduceTopicResponse(topic.name, topic.topic_id, partitions))
        for wanted in topic.partitions:
            partitions.append(
                _append(broker, frame, context, request, topic, wanted, appended, pending, later, share, admitted)
            )
    if later:
        _append_later(
            frame, request, pending, later, lambda: _finish_later(broker, context, exchange, request, topics, pending)
        )
    else:
        _finish(broker, context, exchange, request, topics, pending)
    for partition in appended:
        partition.notify()


def _finish(
    broker: "Broker",
    context: RequestContext,
    exchange: Exchange,
    request: ProduceRequest,
    topics: list[ProduceTopicResponse],
    pending: list["_Uncommitted"],
) -> None:
    """Everything that could be appended was."""
    if request.acks == 0:
        _finish_unacknowledged(exchange, topics)
    elif pending:
        exchange.frame = b""
        _Waiting(broker, exchange, context, topics, pending).wait(request.timeout_ms / 1000)
    else:
        _respond(broker, exchange, context, topics)


def _finish_later(
    broker: "Broker",
    context: RequestContext,
    exchange: Exchange,
    request: ProduceRequest,
    topics: list[ProduceTopicResponse],
    pending: list["_Uncommitted"],
) -> None:
    """The same, where nobody else would tell the peer that it failed."""
    try:
        _finish(broker, context, exchange, request, topics, pending)
    except Exception:
        log.exception("failed to answer a request", extra={"api": "Produce", "peer": context.peer})
        if not exchange.is_answered:
            exchange.close()


class _Uncommitted:
    """A batch that was appended and waits for the high watermark, with its answer."""

    __slots__ = ("answer", "end_offset", "partition")

    def __init__(self, partition: Partition, end_offset: int, answer: ProducePartitionResponse) -> None:
        self.partition = partition
        self.end_offset = end_offset
        self.answer = answer


class _Later:
    """A batch that is appended once a thread has judged it, or one before it; its answer is filled in then."""

    __slots__ = ("answer", "end", "guard", "must_be_prepared", "partition", "start")

    def __init__(
        self,
        partition: Partition,
        start: int,
        end: int,
        guard: int,
        must_be_prepared: bool,
        answer: ProducePartitionResponse,
    ) -> None:
        self.partition = partition
        self.start = start
        self.end = end
        self.guard = guard
        self.must_be_prepared = must_be_prepared
        self.answer = answer


def _append_later(
    frame: bytes,
    request: ProduceRequest,
    pending: list[_Uncommitted],
    later: list[_Later],
    finish: Callable[[], None],
) -> None:
    left = len(later)

    def done(each: _Later, outcome: AppendResult | RemoteError) -> None:
        nonlocal left
        if isinstance(outcome, RemoteError):
            _fill_refused(each.answer, outcome, each.partition)
        else:
            _fill_appended(each.answer, outcome, each.partition, request.acks, pending)
        left -= 1
        if left == 0:
            finish()

    for each in later:
        each.partition.append_later(
            frame,
            each.start,
            each.end,
            all_in_sync=request.acks == -1,
            guard=each.guard,
            must_be_prepared=each.must_be_prepared,
            done=partial(done, each),
        )


def _append(
    broker: "Broker",
    frame: bytes,
    context: RequestContext,
    request: ProduceRequest,
    topic: ProduceTopic,
    wanted: ProducePartition,
    appended: list[Partition],
    pending: list[_Uncommitted],
    later: list[_Later],
    share: LoopShare,
    admitted: Admitted,
) -> ProducePartitionResponse:
    version = context.api_version
    guard = NO_GUARD
    try:
        if version >= _TOPIC_IDS_FROM:
            partition = broker.partitions.find_by_id(topic.topic_id, wanted.index)
        else:
            partition = broker.partitions.find(topic.name, wanted.index)
        start = wanted.records_start
        end = _end_of_only_batch(frame, start, wanted.records_end, request, version)
        batch = BatchView(frame, start)
        if request.acks not in (-1, 0, 1):
            raise RemoteError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks} is none of -1, 0 and 1")
        if batch.is_transactional:
            guard = _guard(partition, admitted)
        if not _may_write(context, partition.topic):
            raise RemoteError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.topic} is written by its coordinator")
    except RemoteError as error:
        return _failed(error, wanted.index)
    answer = ProducePartitionResponse(wanted.index, _NONE, _INVALID_OFFSET)
    now_ms = broker.clock.wall_ms()
    if partition.waiting or share.is_used_up or partition.log.takes_long(frame, start, end, now_ms):
        later.append(_Later(partition, start, end, guard, share.is_used_up, answer))
        return answer
    partition.log.count_in(share, frame, start, end, now_ms)
    try:
        result = partition.append(frame, start, end, all_in_sync=request.acks == -1, guard=guard)
    except RemoteError as error:
        _fill_refused(answer, error, partition)
        return answer
    appended.append(partition)
    _fill_appended(answer, result, partition, request.acks, pending)
    return answer


def _end_of_only_batch(frame: bytes, start: int, limit: int, request: ProduceRequest, version: int) -> int:
    """Where the one batch that a partition's records may be ends; RemoteError where they are none, or more.

    Bytes behind it that cannot be the whole of another batch are left out, as in Kafka.
    """
    end = _batch_end(frame, start, limit)
    if end < 0:
        raise RemoteError(ErrorCode.INVALID_RECORD, "a partition's records are one batch, and there is none")
    magic = frame[start + MAGIC_AT]
    if magic != _MAGIC:
        raise RemoteError(ErrorCode.INVALID_RECORD, f"record format v{magic}; v{_MAGIC} is the only one supported")
    batch = BatchView(frame, start)
    if request.transactional_id is None and batch.is_transactional:
        raise RemoteError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a batch of a transaction without a transactional id"
        )
    if version < _ZSTD_FROM and batch.codec == ZSTD:
        raise RemoteError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce v{_ZSTD_FROM} or later")
    if end < limit and _batch_end(frame, end, limit) >= 0:
        raise RemoteError(ErrorCode.INVALID_RECORD, "a partition's records are one batch, and there are more")
    if end - start < HEADER_BYTES:
        raise RemoteError(ErrorCode.CORRUPT_MESSAGE, f"a batch says that it has {end - start} bytes")
    return end


def _batch_end(frame: bytes, start: int, limit: int) -> int:
    """Where the batch at `start` ends, as Kafka reads records: -1 where no whole one is there. RemoteError where the
    bytes that are there cannot be the beginning of one."""
    if limit - start < LENGTH_OVERHEAD:
        return -1
    length = int.from_bytes(frame[start + LENGTH_AT : start + LENGTH_OVERHEAD], "big", signed=True)
    if length < _LENGTH_MIN:
        raise RemoteError(ErrorCode.CORRUPT_MESSAGE, f"a batch says that {length} bytes follow its length")
    if limit - start <= MAGIC_AT:
        return -1
    if frame[start + MAGIC_AT] > _MAGIC:
        raise RemoteError(ErrorCode.CORRUPT_MESSAGE, f"there is no record format v{frame[start + MAGIC_AT]}")
    end = start + LENGTH_OVERHEAD + length
    return end if end <= limit else -1


def _fill_appended(
    answer: ProducePartitionResponse,
    result: AppendResult,
    partition: Partition,
    acks: int,
    pending: list[_Uncommitted],
) -> None:
    answer.base_offset = result.base_offset
    answer.log_append_time_ms = result.log_append_time
    answer.log_start_offset = result.log_start
    # On one broker the high watermark is what was flushed, where the topic asks for that: acks=1 waits for it, too.
    if (acks == -1 or partition.log.flushes_before_ack) and partition.high_watermark <= result.last_offset:
        pending.append(_Uncommitted(partition, result.last_offset + 1, answer))


def _fill_refused(answer: ProducePartitionResponse, error: RemoteError, partition: Partition) -> None:
    """The log itself, or its leader, does not take the batch."""
    _fill_failed(answer, error)
    if error.code not in _WITHOUT_LOG_START:
        answer.log_start_offset = partition.log.log_start


def _guard(partition: Partition, admitted: Admitted) -> int:
    """What the coordinator's word is worth; RemoteError where it said no."""
    place = (partition.topic, partition.index)
    error = admitted.errors.get(place)
    if error is not None:
        raise error
    return admitted.guards.get(place, NO_GUARD)


def _failed(error: RemoteError, index: int) -> ProducePartitionResponse:
    answer = ProducePartitionResponse(index, _NONE, _INVALID_OFFSET)
    _fill_failed(answer, error)
    return answer


def _fill_failed(answer: ProducePartitionResponse, error: RemoteError) -> None:
    answer.error_code = int(error.code)
    answer.error_message = error.message or None
    if isinstance(error, RecordsRejectedError):
        answer.record_errors = [RecordError(at, why) for at, why in error.record_errors]


def _finish_unacknowledged(exchange: Exchange, topics: list[ProduceTopicResponse]) -> None:
    """acks=0 has no answer: a client learns of an error by losing its connection, as in Kafka."""
    if any(partition.error_code != _NONE for topic in topics for partition in topic.partitions):
        exchange.close()
    else:
        exchange.respond([])


class _Waiting:
    """An answer that waits until all batches of its request are committed, or its time is up."""

    __slots__ = ("_broker", "_context", "_exchange", "_open", "_pending", "_timer", "_topics")

    def __init__(
        self,
        broker: "Broker",
        exchange: Exchange,
        context: RequestContext,
        topics: list[ProduceTopicResponse],
        pending: list[_Uncommitted],
    ) -> None:
        self._broker = broker
        self._exchange = exchange
        self._context = context
        self._topics = topics
        self._pending = pending
        self._open = len(pending)
        self._timer: asyncio.TimerHandle | None = None

    def wait(self, timeout_s: float) -> None:
        self._timer = self._broker.loop.call_later(timeout_s, self._timed_out)
        for each in self._pending:
            each.partition.when_committed(each.end_offset, partial(self._committed, each.answer))

    def _committed(self, answer: ProducePartitionResponse, code: ErrorCode) -> None:
        if self._timer is None:
            return
        if code is not ErrorCode.NONE:
            answer.error_code = int(code)
            answer.base_offset = _INVALID_OFFSET
        self._open -= 1
        if self._open == 0:
            self._timer.cancel()
            self._timer = None
            _respond(self._broker, self._exchange, self._context, self._topics)

    def _timed_out(self) -> None:
        self._timer = None
        for each in self._pending:
            if each.partition.high_watermark < each.end_offset and each.answer.error_code == _NONE:
                each.answer.error_code = int(ErrorCode.REQUEST_TIMED_OUT)
                each.answer.base_offset = _INVALID_OFFSET
        _respond(self._broker, self._exchange, self._context, self._topics)


def _respond(broker: "Broker", exchange: Exchange, context: RequestContext, topics: list[ProduceTopicResponse]) -> None:
    response = ProduceResponse(topics)
    if context.api_version >= _LEADERS_FROM:
        _tell_leaders(broker, context, response)
    exchange.respond([encode_produce_response(response, context.api_version, context.correlation_id)])


def _tell_leaders(broker: "Broker", context: RequestContext, response: ProduceResponse) -> None:
    leaders: CurrentLeaders | None = None
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code == _NOT_LEADER:
                leaders = leaders or CurrentLeaders(broker, context.listener_name)
                found = leaders.find(_name_of(broker, context, topic), partition.index)
                if found is not None:
                    partition.leader_id, partition.leader_epoch = found
    if leaders is not None:
        response.node_endpoints = leaders.endpoints


def _name_of(broker: "Broker", context: RequestContext, topic: ProduceTopicResponse) -> str:
    if context.api_version < _TOPIC_IDS_FROM:
        return topic.name
    known = broker.image.topics_by_id.get(topic.topic_id)
    return "" if known is None else known.name
