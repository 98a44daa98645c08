"""Moves batches from the accumulator to the brokers, and what they answer back to the batches.

One pass looks at what is ready, makes one Produce request for each broker that has room, and says when to look again.
A pass runs on the loop when something changed: a batch began or filled up, an answer came, metadata came, a timer.
It never waits; what takes time (connecting, asking for a producer id) runs beside it and has it run again.

- A request has at most one batch of a partition and about `max_request_size` bytes; each broker has at most
  `max_in_flight_requests_per_connection` of them.
- A batch that failed goes back to its place in its queue, and waits a little longer each time, unless the answer
  named a new leader. After `delivery_timeout_ms` from its first record it is given up, in flight or not.
- Order: with idempotence by sequences (`idempotence`); without, only with one request in flight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final, Protocol

from mainstem.client.accumulator import FOREVER_S, Accumulator, PartitionQueue
from mainstem.client.backoff import JITTER
from mainstem.client.batches import ProducerBatch
from mainstem.client.cluster import Cluster
from mainstem.client.connection import BrokerConnection, Chunk
from mainstem.client.errors import (
    DisconnectedError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    error_for,
)
from mainstem.client.idempotence import Idempotence
from mainstem.client.metadata import BrokerAddress
from mainstem.client.options import ProducerOptions
from mainstem.client.splitting import split
from mainstem.client.types import TopicPartition
from mainstem.protocol.api import ApiKey
from mainstem.protocol.compression import CODEC_NAMES
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.produce import (
    TOPIC_IDS_FROM,
    PartitionBatches,
    ProducePartitionResponse,
    TopicBatches,
    encode_produce_request,
    read_produce_response,
)
from mainstem.protocol.schema import ZERO_UUID

_REQUEST_OVERHEAD_BYTES: Final = 512
_PAUSE_MIN_S: Final = 0.01
_LAST_WITHOUT_TRANSACTION_V2: Final = 11
"""From Produce v12 on, a transactional batch adds its partition to the transaction by itself (KIP-890)."""


class Transactions(Protocol):
    """What the sender asks of a producer's transactions."""

    @property
    def is_v2(self) -> bool: ...
    @property
    def is_aborting(self) -> bool: ...
    def may_send(self, queue: PartitionQueue) -> bool: ...
    def batch_failed(self, batch: ProducerBatch, error: KafkaError) -> None: ...
    def sequence_lost(self) -> None: ...


class _Request:
    """A Produce request in flight."""

    __slots__ = ("batches", "connection", "timer", "version")

    def __init__(
        self,
        connection: BrokerConnection,
        version: int,
        batches: dict[tuple[str, int], tuple[PartitionQueue, ProducerBatch]],
    ) -> None:
        self.connection = connection
        self.version = version
        self.batches = batches
        self.timer: asyncio.TimerHandle | None = None
        """Set where the time of a batch is up before that of the request."""


class Sender:
    def __init__(
        self,
        cluster: Cluster,
        accumulator: Accumulator,
        options: ProducerOptions,
        rng: Random,
        idempotence: Idempotence | None,
        ask_for_id: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._accumulator = accumulator
        self._options = options
        self._rng = rng
        self._idempotence = idempotence
        self._ask_for_id = ask_for_id
        self.transactions: Transactions | None = None
        self.on_room: Callable[[], None] = lambda: None
        """Called when batches were answered, which makes room for others."""
        self.codec = CODEC_NAMES.index(options.compression_type)
        self.level = options.compression_level
        self._acks = int(options.acks)
        self._loop = asyncio.get_running_loop()
        self._in_flight: dict[int, int] = {}
        self._quiet: list[asyncio.Future[None]] = []
        self._connecting: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._scheduled = False
        self._stopped = False

    def wake(self) -> None:
        """Has a pass run soon. On the loop."""
        if not self._scheduled and not self._stopped:
            self._scheduled = True
            self._loop.call_soon(self._pass)

    def stop(self) -> None:
        """No more passes."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    @property
    def in_flight(self) -> int:
        return sum(self._in_flight.values())

    async def all_answered(self) -> None:
        """Waits until no request is in flight, given up or not: what a broker may still be sent is known then."""
        while self.in_flight:
            waiter = self._loop.create_future()
            self._quiet.append(waiter)
            await waiter

    # A pass

    def _pass(self) -> None:
        self._scheduled = False
        if self._stopped:
            return
        now_s = self._loop.time()
        self._expire(now_s)
        by_node: dict[int, list[PartitionQueue]] = {}
        may_send = self._has_identity()
        for queue in self._accumulator.ready(now_s):
            if not may_send or not self._may_take(queue):
                continue
            if queue.leader < 0:
                self._stuck(queue, now_s)
                self._cluster.request_update()
                continue
            by_node.setdefault(queue.leader, []).append(queue)
        for node_id, queues in by_node.items():
            self._serve(node_id, queues, now_s)
        self._set_timer(now_s)

    def _has_identity(self) -> bool:
        idempotence = self._idempotence
        if idempotence is None:
            return True
        if idempotence.has_id and not idempotence.is_transactional:
            idempotence.bump_where_wanted(self._accumulator.queues_to_bump())
        if not idempotence.has_id:
            self._ask_for_id()
        return idempotence.has_id

    def _may_take(self, queue: PartitionQueue) -> bool:
        if self._idempotence is not None and not self._idempotence.may_take(queue):
            return False
        if self._options.max_in_flight_requests_per_connection == 1 and queue.in_flight:
            return False
        return self.transactions is None or self.transactions.may_send(queue)

    def _stuck(self, queue: PartitionQueue, now_s: float) -> None:
        if queue.stuck_since_s < 0:
            queue.stuck_since_s = now_s

    def _serve(self, node_id: int, queues: list[PartitionQueue], now_s: float) -> None:
        """Sends what is ready for one broker, in as many requests as it may have in flight."""
        connection = self._cluster.connected(node_id)
        if connection is None:
            for queue in queues:
                self._stuck(queue, now_s)
            self._connect(node_id)
            return
        most = self._options.max_in_flight_requests_per_connection
        if len(queues) > 1:
            self._rng.shuffle(queues)  # where not all fit into a request, none is always the last
        while queues and self._in_flight.get(node_id, 0) < most:
            self._send(connection, self._fill(queues))
            queues = [queue for queue in queues if self._is_ready_again(queue, now_s)]

    def _is_ready_again(self, queue: PartitionQueue, now_s: float) -> bool:
        return bool(queue.batches) and self._accumulator.is_ready(queue, now_s) and self._may_take(queue)

    def _fill(self, queues: list[PartitionQueue]) -> dict[tuple[str, int], tuple[PartitionQueue, ProducerBatch]]:
        taken: dict[tuple[str, int], tuple[PartitionQueue, ProducerBatch]] = {}
        size = _REQUEST_OVERHEAD_BYTES
        for queue in queues:
            first = queue.batches[0]
            if taken and size + first.size > self._options.max_request_size:
                continue
            batch = self._accumulator.take(queue)
            batch.close(self.codec, self.level)
            if self._idempotence is not None:
                self._idempotence.stamp(queue, batch)
            size += len(batch.body) + _REQUEST_OVERHEAD_BYTES // 4
            taken[queue.topic, queue.partition] = queue, batch
        return taken

    def _connect(self, node_id: int) -> None:
        if node_id in self._connecting:
            return
        if node_id not in self._cluster.cache.brokers:  # forgotten; metadata will say who leads now, and wake us
            self._cluster.request_update()
            return
        self._connecting.add(node_id)

        async def connect() -> None:
            try:
                await self._cluster.node(node_id)
            except KafkaError:
                # The next try waits for its pause; metadata that names another leader does not.
                self._cluster.request_update()
                self._loop.call_later(max(self._cluster.blocked_s(node_id), _PAUSE_MIN_S), self.wake)
            else:
                self.wake()
            finally:
                self._connecting.discard(node_id)

        self._cluster.spawn(connect(), f"produce to {node_id}")

    def _set_timer(self, now_s: float) -> None:
        """The next pass that nothing but time brings about."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at_s = self._accumulator.next_ready_s(now_s)
        oldest_s = self._accumulator.oldest_s()
        if oldest_s < FOREVER_S:
            at_s = min(at_s, self._late_s(oldest_s))
        if at_s < FOREVER_S:
            self._timer = self._loop.call_at(max(at_s, now_s + 0.0002), self.wake)

    # Requests

    def _send(
        self, connection: BrokerConnection, taken: dict[tuple[str, int], tuple[PartitionQueue, ProducerBatch]]
    ) -> None:
        is_transactional = self.transactions is not None
        most = _LAST_WITHOUT_TRANSACTION_V2 if self.transactions is not None and not self.transactions.is_v2 else None
        try:
            version = connection.version_for(ApiKey.PRODUCE, most)
            chunks = self._encode(taken, version, is_transactional)
        except KafkaError as error:
            for queue, batch in taken.values():
                queue.in_flight -= 1
                self._give_up(queue, batch, error)
            return
        for _, batch in taken.values():
            batch.attempts += 1
        request = _Request(connection, version, taken)
        node_id = connection.node_id
        is_answered = self._acks != 0
        future = connection.send_frame(ApiKey.PRODUCE, version, chunks, is_answered=is_answered)
        self._in_flight[node_id] = self._in_flight.get(node_id, 0) + 1
        future.add_done_callback(partial(self._answered, request, node_id))
        if is_answered:
            self._watch(request)

    def _encode(
        self,
        taken: dict[tuple[str, int], tuple[PartitionQueue, ProducerBatch]],
        version: int,
        is_transactional: bool,
    ) -> list[Chunk]:
        topics: dict[str, TopicBatches] = {}
        for (name, partition), (_, batch) in taken.items():
            topic = topics.get(name)
            if topic is None:
                known = self._cluster.cache.topics.get(name)
                topic = topics[name] = TopicBatches(name, ZERO_UUID if known is None else known.topic_id, [])
            header = batch.header(self.codec, is_transactional)
            topic.partitions.append(PartitionBatches(partition, [header, batch.body]))
        return encode_produce_request(
            version,
            0,
            self._options.client_id,
            self._options.transactional_id,
            self._acks,
            self._options.request_timeout_ms,
            list(topics.values()),
        )

    def _answered(self, request: _Request, node_id: int, future: asyncio.Future[bytes]) -> None:
        self._in_flight[node_id] -= 1
        if request.timer is not None:
            request.timer.cancel()
        for queue, _ in request.batches.values():
            queue.in_flight -= 1
        try:
            frame = future.result()
        except asyncio.CancelledError:
            self._unanswered(request, DisconnectedError("the client was closed", broker=request.connection.name))
        except KafkaError as error:
            self._unanswered(request, error)
        else:
            if self._acks == 0:
                for _, batch in request.batches.values():
                    self._accumulator.release(batch)
                    batch.complete(-1, -1)
            else:
                self._take_answer(request, frame)
        if not self.in_flight:
            waiters, self._quiet = self._quiet, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
        self.on_room()
        self.wake()

    def _unanswered(self, request: _Request, error: KafkaError) -> None:
        """The connection ended before the answer came: the broker may have the batches, or not."""
        self._cluster.request_update()
        for queue, batch in request.batches.values():
            batch.is_doubtful = True
            self._try_again(queue, batch, error)

    def _take_answer(self, request: _Request, frame: bytes) -> None:
        try:
            _, response = read_produce_response(frame, request.version)
        except RemoteError as broken:
            request.connection.close()
            self._unanswered(request, DisconnectedError(str(broken), broker=request.connection.name))
            return
        endpoints = [
            BrokerAddress(each.node_id, each.host, each.port, each.rack) for each in response.node_endpoints or ()
        ]
        for topic in response.topics:
            name: str | None = topic.name
            if request.version >= TOPIC_IDS_FROM:
                name = self._cluster.cache.name_of(topic.topic_id)
            for partition in topic.partitions:
                found = request.batches.pop((name or "", partition.index), None)
                if found is None and request.version >= TOPIC_IDS_FROM:
                    found = self._find_unnamed(request, topic.topic_id, partition.index)
                if found is not None:
                    self._take_partition(request, *found, partition, endpoints)
        if request.batches:  # whatever the broker said nothing about
            left = DisconnectedError("the answer leaves out the partition", broker=request.connection.name)
            self._unanswered(request, left)

    def _find_unnamed(
        self, request: _Request, topic_id: bytes, partition: int
    ) -> tuple[PartitionQueue, ProducerBatch] | None:
        """A topic that was made anew since: its old id is not known any more, but only one can be meant."""
        found = [key for key in request.batches if key[1] == partition]
        return request.batches.pop(found[0]) if len(found) == 1 else None

    def _take_partition(
        self,
        request: _Request,
        queue: PartitionQueue,
        batch: ProducerBatch,
        answer: ProducePartitionResponse,
        endpoints: list[BrokerAddress],
    ) -> None:
        if batch.is_done:
            return  # given up before the answer came
        code = answer.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            batch.is_doubtful = False
            if self._idempotence is not None:
                self._idempotence.acknowledged(queue, batch)
            self._accumulator.release(batch)
            batch.complete(answer.base_offset, answer.log_append_time_ms)
            return
        error = error_for(
            code, answer.error_message, broker=request.connection.name, topic=batch.topic, partition=batch.partition
        )
        if code == ErrorCode.MESSAGE_TOO_LARGE and batch.count > 1:
            self._split(queue, batch)
            return
        if self._idempotence is not None:
            may_retry = self._idempotence.may_retry(queue, batch, code)
        else:
            may_retry = error.retriable
        tp = TopicPartition(batch.topic, batch.partition)
        if error.is_stale_metadata:
            self._cluster.note_error(tp, code)
        if not may_retry:
            if answer.record_errors:
                batch.record_errors = {each.batch_index: each.message or "" for each in answer.record_errors}
            self._give_up(queue, batch, error)
            return
        moved = answer.leader_id >= 0 and self._cluster.note_leader(
            tp, answer.leader_id, answer.leader_epoch, endpoints
        )
        self._try_again(queue, batch, error, at_once=moved)

    # How batches end, or do not

    def _try_again(
        self, queue: PartitionQueue, batch: ProducerBatch, error: KafkaError, *, at_once: bool = False
    ) -> None:
        if batch.is_done:
            return  # given up before the request was
        now_s = self._loop.time()
        if self._is_late(batch, now_s):
            self._give_up(queue, batch, self._too_late(batch, error))
            return
        is_dropped = self.transactions is not None and self.transactions.is_aborting
        if is_dropped or batch.attempts > self._options.retries or (not error.retriable and self._idempotence is None):
            self._give_up(queue, batch, error)
            return
        batch.error = error  # the reason, should it be given up for lack of time; cleared when it is written
        pause_ms = self._options.retry_backoff_ms * (1 << min(int(batch.attempts) - 1, 20))
        pause_s = min(pause_ms, self._options.retry_backoff_max_ms) / 1000
        pause_s *= 1 - JITTER + 2 * JITTER * self._rng.random()
        batch.retry_at_s = 0.0 if at_once else now_s + pause_s
        self._accumulator.put_back(queue, batch)

    def _give_up(self, queue: PartitionQueue, batch: ProducerBatch, error: KafkaError) -> None:
        if self._idempotence is not None:
            self._idempotence.given_up(queue, batch)
        self._accumulator.release(batch)
        batch.fail(error)
        if self.transactions is not None:
            self.transactions.batch_failed(batch, error)

    def _is_late(self, batch: ProducerBatch, now_s: float) -> bool:
        return now_s >= self._late_s(batch.created_s)

    def _late_s(self, created_s: float) -> float:
        """When its time is up: the one sum that is compared and waited for, or a timer could come and find nothing."""
        return created_s + self._options.delivery_timeout_ms / 1000

    def _watch(self, request: _Request) -> None:
        """Sees to it that what is in flight is given up in time, too. Mostly the request's own time is up before."""
        waiting = [batch.created_s for _, batch in request.batches.values() if not batch.is_done]
        at_s = self._late_s(min(waiting, default=FOREVER_S))
        if at_s < self._loop.time() + self._options.request_timeout_ms / 1000:
            request.timer = self._loop.call_at(at_s, self._overdue, request)

    def _overdue(self, request: _Request) -> None:
        """Batches of this request are too late: whatever is answered, their senders have been told."""
        now_s = self._loop.time()
        for queue, batch in request.batches.values():
            if not batch.is_done and self._is_late(batch, now_s):
                batch.is_doubtful = True
                self._give_up(queue, batch, self._too_late(batch, batch.error))
        self._watch(request)
        self.on_room()
        self.wake()

    def _too_late(self, batch: ProducerBatch, last: KafkaError | None) -> KafkaError:
        limit_ms = self._options.delivery_timeout_ms
        if last is not None:
            why = f"the last try: {last.code.name + ': ' if last.code else ''}{last.message}"
        else:
            why = "it was sent and not answered" if batch.attempts else "it was not sent"
        return KafkaTimeoutError(
            f"{batch.count} records were not acknowledged within delivery_timeout_ms, which is {limit_ms}; {why}",
            broker=last.broker if last else None,
            topic=batch.topic,
            partition=batch.partition,
        )

    def _expire(self, now_s: float) -> None:
        expired = self._accumulator.expired(now_s - self._options.delivery_timeout_ms / 1000)
        for batch in expired:
            queue = self._accumulator.queue_of(batch.topic, batch.partition)
            assert queue is not None
            self._give_up(queue, batch, self._too_late(batch, batch.error))
        if expired:
            self.on_room()

    def _split(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """The broker found it too large. Half of it may not be; and later batches are kept as small."""
        limit = max(batch.size // 2, 1) if batch.size // 2 < self._options.batch_size else self._options.batch_size
        parts = split(batch, limit, self.codec, self.level)
        self._accumulator.limit_batches(batch.topic, limit)
        if self._idempotence is not None:
            self._idempotence.split(queue, batch, parts)
        self._accumulator.replace(queue, batch, parts)
        batch.split_into(parts)

    def abort_waiting(self, error: KafkaError) -> None:
        """Gives up everything that is not in flight."""
        for batch in self._accumulator.take_waiting():
            queue = self._accumulator.queue_of(batch.topic, batch.partition)
            assert queue is not None
            if self._idempotence is not None:
                self._idempotence.given_up(queue, batch)
            if self.transactions is not None and batch.has_sequence:
                self.transactions.sequence_lost()
            self._accumulator.release(batch)
            batch.fail(error)
        self.on_room()

    def abort_all(self) -> None:
        """The producer closes without waiting: whatever is not answered fails."""
        error = IllegalStateError("the producer was closed before the record was acknowledged")
        self.abort_waiting(error)
        for batch in [*self._accumulator.incomplete]:
            self._accumulator.release(batch)
            batch.fail(error)
