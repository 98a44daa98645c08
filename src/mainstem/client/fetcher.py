"""Fetching ahead: one request at a time to each leader, and what came of it in a queue until somebody takes it.

- What is in memory and not taken yet is bounded: a partition is asked for while it has less than twice
  `max_partition_fetch_bytes` here, and all of them together while they have less than `fetch_max_bytes`. So the next
  fetch is under way while the last is being read, and a slow reader holds no more than that. What a paused partition
  has here counts for itself only: nobody takes it, and the others must not wait for that.
- One answer is no larger than what a connection receives into, or it would be copied once more. Whoever takes whole
  chunks (`take_chunk`) gets them about as large, where `max_partition_fetch_bytes` was left as it is: what a fetch
  costs besides its bytes, to both sides, is then spread over four times as many.
- Records are decoded when they are taken, by whoever takes them.
- What a caller of `poll` has to hear of (an offset that is not there, a topic that may not be read) waits in the queue
  behind the records that came before it. What a new leader cures is tried again here.
- A broker may name a replica that is nearer (KIP-392); it is asked until the metadata is too old, or it has not what is
  asked for.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Final, TypeVar

from mainstem.client.cluster import Cluster
from mainstem.client.connection import RECEIVE_BYTES
from mainstem.client.decode import FetchedChunk
from mainstem.client.errors import (
    CorruptRecordError,
    KafkaError,
    LogTruncationError,
    OffsetOutOfRangeError,
    SerializationError,
    error_for,
)
from mainstem.client.fetch_session import FINAL_EPOCH, NO_SESSION, FetchSession, Wanted
from mainstem.client.lanes import Lane
from mainstem.client.metadata import BrokerAddress
from mainstem.client.options import ConsumerOptions
from mainstem.client.subscription import PartitionState, Subscription
from mainstem.client.types import ConsumerRecord, TopicPartition
from mainstem.protocol.api import ApiKey
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.fetch import (
    TOPIC_IDS_FROM,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    encode_fetch_request,
    read_fetch_response,
)
from mainstem.protocol.primitives import ZERO_UUID

T = TypeVar("T")
log = logging.getLogger(__name__)

READ_COMMITTED: Final = 1
PARTITIONS_AHEAD: Final = 2
"""How many times the bytes it is asked for a partition may have in memory."""
ANSWER_BYTES: Final = RECEIVE_BYTES - (256 << 10)
"""What is asked of a broker at once. A batch that is larger comes all the same, and what is not records needs room."""
CLOSE_TIMEOUT_S: Final = 0.5

_NEW_LEADER_CURES: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


class Failure:
    """Something that a caller of `poll` has to hear of, or that has to be done in `poll`."""

    __slots__ = ("error", "offset")

    def __init__(self, error: KafkaError, offset: int) -> None:
        self.error = error
        self.offset = offset


class _Asked:
    """A partition in a request that is under way."""

    __slots__ = ("offset", "state", "version")

    def __init__(self, state: PartitionState) -> None:
        self.state = state
        self.offset = state.fetch_offset
        self.version = state.version


class Fetcher:
    def __init__(self, cluster: Cluster, subscription: Subscription, options: ConsumerOptions, rng: Random) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._lane = Lane(cluster, "fetch", rng)
        self._isolation = READ_COMMITTED if options.isolation_level == "read_committed" else 0
        self._partition_bytes = options.max_partition_fetch_bytes
        self._sessions: dict[int, FetchSession] = {}
        self._running: dict[int, asyncio.Task[None]] = {}
        self._ready: deque[tuple[PartitionState, int, FetchedChunk | Failure]] = deque()
        self._retry: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._is_hungry = False
        self.has_room_again = False
        """Whether a fetch had waited for room and there is some now: whoever takes records then calls `wake`."""
        self.on_data: Callable[[], None] = lambda: None
        """Called on the loop when there is something to take."""
        self.on_unsettled: Callable[[], None] = lambda: None
        """Called on the loop when a position has to be checked before anything is fetched from it."""
        self.needs_settling = False
        """Set by whoever took records, when a position has to be found anew."""
        cluster.on_update(self.wake)

    # Taking what came; any thread, but one at a time and never while the partitions are being changed

    @property
    def has_data(self) -> bool:
        """Whether anything is here, if only what nobody may take now."""
        return bool(self._ready)

    @property
    def has_takeable(self) -> bool:
        return any(
            version == state.version and not state.is_paused and not state.is_going for state, version, _ in self._ready
        )

    def take(self, wanted: int, records: list[ConsumerRecord]) -> None:
        """Appends up to `wanted` records, those that came first first. KafkaError where one cannot be had."""
        aside: list[tuple[PartitionState, int, FetchedChunk | Failure]] = []
        ready = self._ready
        try:
            while wanted > 0 and ready:
                state, version, item = entry = ready[0]
                if version != state.version:
                    ready.popleft()
                elif state.is_paused or state.is_going:
                    ready.popleft()
                    aside.append(entry)
                elif isinstance(item, Failure):
                    if records:
                        return
                    ready.popleft()
                    self._fail(state, item)
                else:
                    wanted -= self._take_from(state, item, wanted, records)
                    if item.is_over:
                        ready.popleft()
        finally:
            if aside:
                ready.extendleft(reversed(aside))

    def _take_from(self, state: PartitionState, chunk: FetchedChunk, wanted: int, records: list[ConsumerRecord]) -> int:
        try:
            return chunk.take(wanted, records)
        except RemoteError as error:
            if records:
                return wanted  # told when it is met again, after those before it were given out
            raise _corrupt(state, chunk, error) from error
        except Exception as error:
            if records:
                return wanted
            if isinstance(error, KafkaError):
                raise
            raise SerializationError(
                f"the record at offset {chunk.position} cannot be deserialized: {error}; seek past it to go on",
                topic=chunk.topic,
                partition=chunk.partition,
            ) from error
        finally:
            self._advance(state, chunk)

    def _advance(self, state: PartitionState, chunk: FetchedChunk) -> None:
        state.position = chunk.position
        if chunk.position_epoch >= 0:
            state.position_epoch = chunk.position_epoch
        if chunk.is_over:
            self._release(state, chunk)

    def _release(self, state: PartitionState, chunk: FetchedChunk) -> None:
        state.bytes_out += chunk.size
        self.has_room_again = self._is_hungry

    @property
    def ready_count(self) -> int:
        """How many chunks and failures are here."""
        return len(self._ready)

    def take_chunk(self, convert: Callable[[FetchedChunk], T]) -> T | None:
        """What `convert` makes of a whole chunk, or of what is left of one (from its `position` on).

        The position moves to its end when that has succeeded. None where there is no chunk.
        """
        if self._partition_bytes == ConsumerOptions.max_partition_fetch_bytes:
            self._partition_bytes = max(self._partition_bytes, min(ANSWER_BYTES, self._options.fetch_max_bytes // 2))
        index = 0
        while index < len(self._ready):
            state, version, item = self._ready[index]
            if version != state.version:
                del self._ready[index]  # moved since: nobody will ever want it
                continue
            if state.is_paused or state.is_going:
                index += 1
                continue
            if isinstance(item, Failure):
                del self._ready[index]
                self._fail(state, item)
                return None
            converted = convert(item)
            del self._ready[index]
            self._release(state, item)
            state.position = int(item.end_offset)
            if item.last_epoch >= 0:
                state.position_epoch = int(item.last_epoch)
            return converted
        return None

    def _fail(self, state: PartitionState, failure: Failure) -> None:
        state.is_failed = False
        self.has_room_again = True  # nobody asks for it any more: whoever polls on hears of it again, or it is over
        if isinstance(failure.error, OffsetOutOfRangeError):
            if failure.offset != state.position:
                return  # it was moved since
            if self._options.auto_offset_reset != "none":
                log.info("offset %d of %s-%d is out of range", failure.offset, *state.tp)
                state.ask_reset(self._options.auto_offset_reset)
                self.needs_settling = True
                return
        raise failure.error

    # Fetching; on the loop

    def wake(self) -> None:
        """Has every leader asked for what there is room for."""
        if self._is_closed:
            return
        self._is_hungry = False
        self.has_room_again = False
        self._begin(self._plan())

    def wake_for(self, state: PartitionState) -> None:
        """The same for one partition that was moved. A leader that is being asked already is asked for it next: to look
        at all partitions here would make a seek in each of thousands of them take minutes."""
        leader = self._cluster.leader(state.tp)
        if leader is None or leader.leader not in self._running:
            self.wake()

    def _begin(self, plan: dict[int, list[PartitionState]]) -> None:
        for node_id in plan:
            if node_id not in self._running:
                task = self._cluster.spawn(self._fetch_from(node_id), f"fetch from {node_id}")
                self._running[node_id] = task

    def _plan(self) -> dict[int, list[PartitionState]]:
        """Which partitions to ask of which node now. Sees to it that the rest is not forgotten."""
        plan: dict[int, list[PartitionState]] = {}
        states = self._subscription.partitions.values()
        if self._is_full():
            return plan
        room = PARTITIONS_AHEAD * self._partition_bytes
        now = self._loop.time()
        next_retry = 0.0
        for state in states:
            if not state.is_fetchable:
                continue
            if self._is_full(state, room):
                continue
            if state.retry_at > now:
                next_retry = min(next_retry or state.retry_at, state.retry_at)
                continue
            leader = self._cluster.leader(state.tp)
            if leader is None:
                self._cluster.request_update()
                continue
            state.lead_by(leader.epoch)
            if state.needs_check:
                self.on_unsettled()
                continue
            node_id = leader.leader
            if state.preferred_replica >= 0:
                if now < state.preferred_until and state.preferred_replica in self._cluster.cache.brokers:
                    node_id = state.preferred_replica
                else:
                    state.preferred_replica = -1
            plan.setdefault(node_id, []).append(state)
        if next_retry and self._retry is None:
            self._retry = self._loop.call_at(next_retry, self._try_again)
        return plan

    def _is_full(self, state: PartitionState | None = None, room: int = 0) -> bool:
        """Whether nothing more is to be asked for, of one partition or at all, until something was taken.

        Another thread may be taking the last of it at this moment, and then looks whether anybody waits for room. So
        it is said first that somebody does, and looked at once more: one of the two notices the other.
        """
        for _ in range(2):
            if state is not None:
                buffered, limit = state.buffered_bytes, room
            else:
                buffered, limit = self._buffered_bytes(), self._options.fetch_max_bytes
            if buffered < max(limit, 1):
                return False
            self._is_hungry = True
        return True

    def _buffered_bytes(self) -> int:
        return sum(each.buffered_bytes for each in self._subscription.partitions.values() if not each.is_paused)

    def _try_again(self) -> None:
        self._retry = None
        self.wake()

    async def _fetch_from(self, node_id: int) -> None:
        """Asks one node until there is nothing more to ask it for."""
        pauses = self._cluster.backoff()
        try:
            while not self._is_closed:
                plan = self._plan()
                # An answer may have sent a partition to another node: to a replica that is nearer, or back from one.
                self._begin(plan)
                states = plan.get(node_id)
                if not states:
                    return
                try:
                    await self._fetch_once(node_id, states)
                    pauses.reset()
                except KafkaError as error:
                    log.debug("fetch from %d: %s", node_id, error)
                    self._sessions.pop(node_id, None)
                    for state in states:
                        state.preferred_replica = -1  # the leader may name another
                    self._cluster.request_update()
                    await asyncio.sleep(pauses.next_s())
        finally:
            self._running.pop(node_id, None)

    async def _fetch_once(self, node_id: int, states: list[PartitionState]) -> None:
        connection = await self._lane.node(node_id)
        options = self._options
        asked = {state.tp: _Asked(state) for state in states if state.is_fetchable}
        if not asked:
            return
        topics = self._cluster.cache.topics
        ids = {tp.topic: topics[tp.topic].topic_id if tp.topic in topics else ZERO_UUID for tp in asked}
        by_id = ZERO_UUID not in ids.values()
        version = connection.version_for(ApiKey.FETCH, None if by_id else TOPIC_IDS_FROM - 1)
        by_id = version >= TOPIC_IDS_FROM
        wanted = {}
        for tp, each in asked.items():
            leader = self._cluster.leader(tp)
            epoch = leader.epoch if leader is not None and each.state.preferred_replica < 0 else -1
            wanted[tp] = Wanted(each.offset, epoch, self._partition_bytes, ids[tp.topic])
        session = self._sessions.setdefault(node_id, FetchSession())
        changed, forgotten = session.next_request(wanted, by_id)
        room = options.fetch_max_bytes - self._buffered_bytes()
        most = max(1, min(room, max(ANSWER_BYTES, options.fetch_min_bytes)))
        request = FetchRequest(options.fetch_max_wait_ms, options.fetch_min_bytes, most, changed)
        request.forgotten = forgotten
        request.isolation_level = self._isolation
        request.session_id = session.session_id
        request.session_epoch = session.epoch
        request.rack_id = options.client_rack
        frame = encode_fetch_request(request, version, 0, options.client_id)
        timeout_s = (options.request_timeout_ms + options.fetch_max_wait_ms) / 1000
        answer = await connection.send_frame(ApiKey.FETCH, version, [frame], timeout_s=timeout_s)
        try:
            response = read_fetch_response(answer, version)[1]
        except RemoteError as error:
            connection.close()
            raise CorruptRecordError(f"a fetch was answered with nonsense: {error}", broker=connection.name) from error
        if not session.answered(int(response.session_id), int(response.error_code)):
            log.debug("fetch session with %d starts anew: error %d", node_id, response.error_code)
            if response.error_code in (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, ErrorCode.UNKNOWN_TOPIC_ID):
                self._cluster.request_update()
            return
        names = {topic_id: name for name, topic_id in ids.items()}
        self._take_in(answer, response, asked, names if by_id else None, connection.name)
        if response.throttle_time_ms > 0:
            await asyncio.sleep(response.throttle_time_ms / 1000)

    def _take_in(
        self,
        frame: bytes,
        response: FetchResponse,
        asked: dict[TopicPartition, _Asked],
        names: dict[bytes, str] | None,
        broker: str,
    ) -> None:
        endpoints = [
            BrokerAddress(int(each.node_id), each.host, int(each.port), each.rack)
            for each in response.node_endpoints or ()
        ]
        came = False
        for topic in response.topics:
            name = topic.name if names is None else names.get(topic.topic_id)
            if name is None:
                continue
            for partition in topic.partitions:
                tp = TopicPartition(name, int(partition.index))
                each = asked.get(tp)
                if each is None or each.version != each.state.version:
                    continue  # it was moved or given away since
                if partition.error_code != 0:
                    came = self._take_error(each, partition, endpoints, broker) or came
                else:
                    came = self._take_records(each, partition, frame, broker) or came
        if came:
            self.on_data()

    def _take_records(self, asked: _Asked, partition: FetchPartitionResponse, frame: bytes, broker: str) -> bool:
        state = asked.state
        state.high_watermark = int(partition.high_watermark)
        state.last_stable_offset = int(partition.last_stable_offset)
        state.log_start_offset = int(partition.log_start_offset)
        if partition.preferred_read_replica >= 0:
            state.preferred_replica = int(partition.preferred_read_replica)
            state.preferred_until = self._loop.time() + self._options.metadata_max_age_ms / 1000
            return False
        if partition.diverging_epoch >= 0 or partition.diverging_end_offset >= 0:
            error = LogTruncationError(
                "the log was cut below the position", broker=broker, topic=state.tp.topic, partition=state.tp.partition
            )
            return self._queue_failure(asked, error)
        if partition.records_size == 0:
            return False
        options = self._options
        try:
            chunk = FetchedChunk(
                state.tp.topic,
                state.tp.partition,
                frame,
                partition.records_start,
                partition.records_size,
                asked.offset,
                (partition.aborted or []) if self._isolation == READ_COMMITTED else None,
                options.check_crcs,
                options.key_deserializer,
                options.value_deserializer,
            )
        except RemoteError as error:
            return self._queue_failure(
                asked, error_for(error.code, error.message, broker=broker, topic=state.tp.topic, partition=state.tp[1])
            )
        if chunk.is_over:
            # Not one whole batch: brokers send the first one whole however large, so the next request gets it.
            return False
        state.bytes_in += chunk.size
        state.fetch_offset = int(chunk.end_offset)
        self._ready.append((state, asked.version, chunk))
        return True

    def _take_error(
        self, asked: _Asked, partition: FetchPartitionResponse, endpoints: list[BrokerAddress], broker: str
    ) -> bool:
        state, code = asked.state, int(partition.error_code)
        if code in _NEW_LEADER_CURES:
            is_known = partition.leader_id >= 0 and self._cluster.note_leader(
                state.tp, int(partition.leader_id), int(partition.leader_epoch), endpoints
            )
            if not is_known:
                self._cluster.note_error(state.tp, code)
                state.retry_at = self._loop.time() + self._options.retry_backoff_ms / 1000
            state.preferred_replica = -1
            return False
        if code == ErrorCode.OFFSET_OUT_OF_RANGE and state.preferred_replica >= 0:
            state.preferred_replica = -1
            return False
        topic, number = state.tp
        error = error_for(code, f"fetch at offset {asked.offset}", broker=broker, topic=topic, partition=number)
        if code == ErrorCode.UNKNOWN_SERVER_ERROR or (error.retriable and code != ErrorCode.CORRUPT_MESSAGE):
            log.warning("%s", error)
            state.retry_at = self._loop.time() + self._options.retry_backoff_max_ms / 1000
            return False
        return self._queue_failure(asked, error)

    def _queue_failure(self, asked: _Asked, error: KafkaError) -> bool:
        asked.state.is_failed = True
        self._ready.append((asked.state, asked.version, Failure(error, asked.offset)))
        return True

    async def close(self) -> None:
        """Tells brokers that the sessions are over, as far as that goes quickly. `stop` comes after it."""
        self._end_fetching()
        goodbyes = []
        for node_id, session in self._sessions.items():
            connection = self._lane.connected(node_id)
            if session.session_id != NO_SESSION and connection is not None and not connection.in_flight:
                request = FetchRequest(0, 0, 0, [])
                request.session_id = session.session_id
                request.session_epoch = FINAL_EPOCH
                version = connection.version_for(ApiKey.FETCH)
                frame = encode_fetch_request(request, version, 0, self._options.client_id)
                goodbyes.append(connection.send_frame(ApiKey.FETCH, version, [frame], timeout_s=CLOSE_TIMEOUT_S))
        if goodbyes:
            await asyncio.gather(*goodbyes, return_exceptions=True)

    def stop(self) -> None:
        """Ends every connection and drops what was fetched, at once."""
        self._end_fetching()
        self._lane.close()
        self._ready.clear()

    def _end_fetching(self) -> None:
        self._is_closed = True
        if self._retry is not None:
            self._retry.cancel()
        for task in [*self._running.values()]:
            task.cancel()


def _corrupt(state: PartitionState, chunk: FetchedChunk, error: RemoteError) -> KafkaError:
    return error_for(
        error.code,
        f"what was fetched at offset {chunk.position} is not sound: {error.message}; seek past it to go on",
        topic=state.tp.topic,
        partition=state.tp.partition,
    )
