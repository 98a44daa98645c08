"""Fetch (key 1), versions 4–18: batches from partitions, as slices of files.

v7 has sessions (KIP-227), v9 checks the client's leader epoch, v12 tells where logs diverge, v13 names topics by id,
v16 tells who leads, and where, to whom is fenced or wrong here (KIP-951). The high watermark or last stable offset of
a partition is read once per answer (KAFKA-9807). A request that finds less than it wants is parked until partitions
grow or its time is up. What is not in memory is looked up by a thread.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.broker.current_leader import CurrentLeaders
from mainstem.broker.fetch_sessions import FetchSession, SessionKey, TopicKey
from mainstem.broker.partition import Partition
from mainstem.broker.purgatory import Waiter
from mainstem.net.connection import Chunk, Exchange
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResponse,
    encode_fetch_response,
    read_fetch_request,
)
from mainstem.protocol.primitives import ZERO_UUID
from mainstem.storage.aborted import AbortedJob
from mainstem.storage.errors import StorageError
from mainstem.storage.reading import ReadJob, Slice
from mainstem.storage.txn_index import AbortedTransaction as AbortedInLog

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

log = logging.getLogger(__name__)

API_KEY = 1
MIN_VERSION = 4
MAX_VERSION = 18

_TOPIC_IDS_FROM = 13
_LEADERS_FROM = 16
_READ_UNCOMMITTED = 0
_READ_COMMITTED = 1
_NO_OFFSET = -1


def handle_frame(broker: "Broker", context: RequestContext, exchange: Exchange) -> None:
    request = read_fetch_request(exchange.frame, context.body_at, context.api_version)
    exchange.frame = b""
    uses_topic_ids = context.api_version >= _TOPIC_IDS_FROM
    if request.isolation_level not in (_READ_UNCOMMITTED, _READ_COMMITTED):
        topics = [] if uses_topic_ids else [_failed_topic(topic) for topic in request.topics]
        failed = FetchResponse(topics, int(ErrorCode.UNKNOWN_SERVER_ERROR), request.session_id)
        _respond_empty(exchange, context, failed)
        return
    try:
        if context.listener_name in broker.config.controller_listeners:
            raise RemoteError(ErrorCode.INVALID_REQUEST, "controllers are asked for metadata alone")
        session = broker.fetch_sessions.enter(request, uses_topic_ids)
    except RemoteError as error:
        _respond_empty(exchange, context, FetchResponse([], int(error.code)))
        return
    _Fetch(broker, context, exchange, request, session, uses_topic_ids).start()


def _respond_empty(exchange: Exchange, context: RequestContext, answer: FetchResponse) -> None:
    pieces = encode_fetch_response(answer, context.api_version, context.correlation_id)
    exchange.respond([piece for piece in pieces if isinstance(piece, bytes)])


def _failed_topic(topic: FetchTopic) -> FetchTopicResponse:
    answers: list[FetchPartitionResponse] = []
    for each in topic.partitions:
        answers.append(FetchPartitionResponse(each.partition, int(ErrorCode.UNKNOWN_SERVER_ERROR), _NO_OFFSET))
        answers[-1].aborted = []
    return FetchTopicResponse(topic.name, topic.topic_id, answers)


_Job = ReadJob | AbortedJob
_Step = _Job | Slice | list[AbortedInLog]

_NOT_FOUND = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_LED_OTHERWISE = (int(ErrorCode.NOT_LEADER_OR_FOLLOWER), int(ErrorCode.FENCED_LEADER_EPOCH))


class _Wanted:
    """One partition of a request, with what was found for it."""

    __slots__ = ("answer", "gone", "key", "partition", "slice", "wanted")

    def __init__(self, key: SessionKey, wanted: FetchPartition, partition: Partition | None) -> None:
        self.key = key
        self.wanted = wanted
        self.partition = partition
        self.answer: FetchPartitionResponse | None = None
        self.slice: Slice | None = None
        self.gone = ""
        """The topic's name, where the session has found the topic before and it is there no more."""

    def release(self) -> None:
        if self.slice is not None:
            self.slice.release()
            self.slice = None


class _Fetch:
    """One request on its way: read, maybe park and read again, answer."""

    __slots__ = (
        "_broker",
        "_context",
        "_exchange",
        "_incremental",
        "_is_committed",
        "_max_bytes",
        "_request",
        "_session",
        "_uses_topic_ids",
        "_wanted",
    )

    def __init__(
        self,
        broker: "Broker",
        context: RequestContext,
        exchange: Exchange,
        request: FetchRequest,
        session: FetchSession | None,
        uses_topic_ids: bool,
    ) -> None:
        self._broker = broker
        self._context = context
        self._exchange = exchange
        self._request = request
        self._session = session
        self._incremental = session is not None
        self._uses_topic_ids = uses_topic_ids
        self._is_committed = request.isolation_level == _READ_COMMITTED
        self._max_bytes = min(request.max_bytes, broker.fetch_max_bytes)
        self._wanted = self._find()

    def _find(self) -> list[_Wanted]:
        find = self._broker.partitions.get_by_id if self._uses_topic_ids else self._broker.partitions.get
        if self._session is not None:
            found = [
                _Wanted(key, each.wanted, find(key[0], key[1]))  # type: ignore[arg-type]
                for key, each in self._session.partitions.items()
            ]
            if self._uses_topic_ids:
                self._remember_names(self._session, found)
            return found
        # One that is named twice is answered once, by what is said of it last.
        wanted: dict[SessionKey, _Wanted] = {}
        for topic in self._request.topics:
            name: TopicKey = topic.topic_id if self._uses_topic_ids else topic.name
            for each in topic.partitions:
                key = (name, each.partition)
                wanted[key] = _Wanted(key, each, find(name, each.partition))  # type: ignore[arg-type]
        return list(wanted.values())

    def _remember_names(self, session: FetchSession, found: list[_Wanted]) -> None:
        """A topic that is deleted later is told as gone, one that has another id since as another (as Kafka does)."""
        for each in found:
            known = session.partitions[each.key]
            if each.partition is not None:
                known.topic = each.partition.topic
            elif known.topic and each.key[0] not in self._broker.image.topics_by_id:
                each.gone = known.topic

    def start(self) -> None:
        cold = self._read()
        if cold is not None:
            self._read_cold(cold, may_park=True)
        else:
            self._park_or_answer()

    def _park_or_answer(self) -> None:
        request = self._request
        found = sum(each.slice.size for each in self._wanted if each.slice is not None)
        if (
            request.max_wait_ms <= 0
            or found >= request.min_bytes
            or not self._wanted
            or self._exchange.connection.is_gone  # while a thread was reading: nobody is there to wait for
            or any(each.answer is not None and _is_urgent(each.answer) for each in self._wanted)
        ):
            self._answer()
            return
        for each in self._wanted:
            each.release()
        waiter = Waiter(
            self._broker.loop,
            request.max_wait_ms / 1000,
            [each.partition.watchers for each in self._wanted if each.partition is not None],
            self._has_enough,
            self._woken,
        )
        self._exchange.on_lost = waiter.cancel

    def _has_enough(self) -> bool:
        """Whether it is worth reading again: an estimate by offsets where one byte is enough, else by reading."""
        for each in self._wanted:
            partition = each.partition
            if partition is None or partition.leader is None:
                return True
            if self._request.min_bytes <= 1 and self._upper_bound(partition) > each.wanted.fetch_offset:
                return True
        if self._request.min_bytes <= 1:
            return False
        cold = self._read()
        if cold is not None:
            cold[1].unpin()
            for each in self._wanted:
                each.release()
            return True
        found = 0
        urgent = False
        for each in self._wanted:
            found += 0 if each.slice is None else each.slice.size
            urgent = urgent or (each.answer is not None and _is_urgent(each.answer))
            each.release()
        return urgent or found >= self._request.min_bytes

    def _woken(self) -> None:
        try:
            cold = self._read()
            if cold is not None:
                self._read_cold(cold, may_park=False)
            else:
                self._answer()
        except Exception:
            self._give_up()

    def _give_up(self) -> None:
        """By our own fault, and later than when the request came: its peer must not wait for ever."""
        log.exception("failed to answer a request", extra={"api": "Fetch", "peer": self._context.peer})
        for each in self._wanted:
            each.release()
        if self._exchange.is_answered:
            self._exchange.connection.abort()
        else:
            self._exchange.close()

    # Reading

    def _upper_bound(self, partition: Partition) -> int:
        return partition.last_stable_offset if self._is_committed else partition.high_watermark

    def _read(self, first: int = 0) -> tuple[int, _Job] | None:
        """Reads every partition from the `first` on; the one that needs a thread, where there is one."""
        used = sum(each.slice.size for each in self._wanted[:first] if each.slice is not None)
        for at in range(first, len(self._wanted)):
            each = self._wanted[at]
            room = self._max_bytes - used if at == 0 else max(0, self._max_bytes - used)
            try:
                job = self._go_on(each, self._begin(each, room, min_one=used == 0))
                if job is not None:
                    return at, job
            except (RemoteError, StorageError) as error:
                self._failed(each, error)
            if each.slice is not None:
                used += each.slice.size
        return None

    def _begin(self, each: _Wanted, room: int, min_one: bool) -> ReadJob | Slice:
        partition = each.partition
        wanted = each.wanted
        if partition is None:
            key, index = each.key
            if each.gone:
                raise self._why_gone(each.gone)
            partitions = self._broker.partitions
            partition = partitions.find_by_id(key, index) if isinstance(key, bytes) else partitions.find(key, index)
            each.partition = partition
        elif partition.leader is None and self._broker.image.topics_by_id.get(partition.topic_id) is None:
            raise self._why_gone(partition.topic)
        partition.check_leader(wanted.current_leader_epoch)
        if self._request.replica_id >= 0:
            self._check_replica(partition)
        upper_bound = self._upper_bound(partition)
        answer = FetchPartitionResponse(wanted.partition, 0, partition.high_watermark)
        answer.last_stable_offset = partition.last_stable_offset
        answer.log_start_offset = partition.log.log_start
        each.answer = answer
        if wanted.last_fetched_epoch >= 0:
            end = partition.log.end_offset_for(wanted.last_fetched_epoch)
            if end.epoch < 0 or end.end_offset < 0:
                raise RemoteError(
                    ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition} knows no epoch {wanted.last_fetched_epoch}"
                )
            if end.epoch < wanted.last_fetched_epoch or end.end_offset < wanted.fetch_offset:
                answer.diverging_epoch = end.epoch
                answer.diverging_end_offset = end.end_offset
                upper_bound = partition.log.log_start
                return partition.log.begin_read(upper_bound, 0, upper_bound)
        limit = min(wanted.max_bytes, room)
        if limit < 0 and partition.log.log_start <= wanted.fetch_offset < upper_bound:
            raise RemoteError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{limit} is no number of bytes to read")
        return partition.log.begin_read(wanted.fetch_offset, max(0, limit), upper_bound, min_one)

    def _why_gone(self, topic: str) -> RemoteError:
        if topic in self._broker.image.topics:
            return RemoteError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{topic} has another id since")
        return RemoteError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} was deleted")

    def _check_replica(self, partition: Partition) -> None:
        """Only a replica fetches as one; the leader itself does not."""
        state = self._broker.image.partition(partition.topic, partition.index)
        replica = self._request.replica_id
        if state is None or replica == state.leader or replica not in state.replicas:
            raise RemoteError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{replica} is no follower of {partition}")

    def _go_on(self, each: _Wanted, step: _Step) -> _Job | None:
        """Goes on with a partition as far as memory allows; the job that needs a thread, where there is one."""
        answer, partition = each.answer, each.partition
        assert answer is not None
        assert partition is not None
        while True:
            if isinstance(step, Slice):
                each.slice = step
                answer.records_size = step.size
                answer.source = step
                if not self._is_committed:
                    return None
                step = partition.log.begin_aborted(step, answer.last_stable_offset)
            elif isinstance(step, list):
                answer.aborted = [AbortedTransaction(one.producer_id, one.first_offset) for one in step]
                return None
            elif step.try_run():
                step = self._take_back(partition, step)
            else:
                return step

    def _take_back(self, partition: Partition, job: _Job) -> _Step:
        log = partition.log
        return log.finish_read(job) if isinstance(job, ReadJob) else log.finish_aborted(job)

    def _failed(self, each: _Wanted, error: RemoteError | StorageError) -> None:
        if isinstance(error, StorageError) and each.partition is not None:
            each.partition.read_failed(error)
        answer = FetchPartitionResponse(each.wanted.partition, int(error.code), _NO_OFFSET)
        if error.code in _NOT_FOUND:
            answer.aborted = []  # as Kafka answers before it has looked at the log, where it would be null
        each.answer = answer
        each.release()

    def _read_cold(self, cold: tuple[int, _Job], may_park: bool) -> None:
        """Lets a thread look up what is not in memory, then goes on with the partitions after it."""
        at, job = cold

        def done(future: "asyncio.Future[None]") -> None:
            try:
                self._read_on(at, job, future.exception(), may_park)
            except Exception:
                self._give_up()

        self._broker.loop.run_in_executor(None, job.run).add_done_callback(done)

    def _read_on(self, at: int, job: _Job, error: BaseException | None, may_park: bool) -> None:
        each = self._wanted[at]
        partition = each.partition
        assert partition is not None
        try:
            if error is not None:
                log.error("failed to read a log", exc_info=error, extra={"partition": str(partition)})
                job.unpin()
                raise RemoteError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
            next_job = self._go_on(each, self._take_back(partition, job))
            if next_job is not None:
                self._read_cold((at, next_job), may_park)
                return
        except (RemoteError, StorageError) as failure:
            self._failed(each, failure)
        again = self._read(at + 1)
        if again is not None:
            self._read_cold(again, may_park)
        elif may_park:
            self._park_or_answer()
        else:
            self._answer()

    # Answering

    def _answer(self) -> None:
        context = self._context
        session = self._session
        if session is None:
            session = self._broker.fetch_sessions.begin(self._request, self._uses_topic_ids)
            if session is not None and self._uses_topic_ids:
                self._remember_names(session, self._wanted)
        topics: list[FetchTopicResponse] = []
        leaders: CurrentLeaders | None = None
        last_key: TopicKey | None = None
        for each in list(self._wanted):
            answer = each.answer
            assert answer is not None
            if answer.error_code in _LED_OTHERWISE and context.api_version >= _LEADERS_FROM:
                leaders = leaders or CurrentLeaders(self._broker, context.listener_name)
                _tell_leader(leaders, each.partition, answer)
            if session is not None and not session.must_tell(each.key, answer) and self._incremental:
                each.release()
                continue
            name = each.key[0]
            if name != last_key:
                last_key = name
                topics.append(
                    FetchTopicResponse("", name, [])
                    if isinstance(name, bytes)
                    else FetchTopicResponse(name, ZERO_UUID, [])
                )
            topics[-1].partitions.append(answer)
        response = FetchResponse(topics, 0, 0 if session is None else session.session_id)
        if leaders is not None and self._request.replica_id < 0:  # brokers know where the others are
            response.node_endpoints = leaders.endpoints
        chunks: list[Chunk] = []
        for piece in encode_fetch_response(response, context.api_version, context.correlation_id):
            if isinstance(piece, bytes):
                chunks.append(piece)
            else:
                assert isinstance(piece.source, Slice)
                chunks.append(piece.source)
        self._exchange.respond(chunks)


def _tell_leader(leaders: CurrentLeaders, partition: Partition | None, answer: FetchPartitionResponse) -> None:
    found = None if partition is None else leaders.find(partition.topic, partition.index)
    if found is not None:
        answer.leader_id, answer.leader_epoch = found


def _is_urgent(answer: FetchPartitionResponse) -> bool:
    """Errors and diverging logs are told at once."""
    return answer.error_code != 0 or answer.diverging_epoch >= 0
