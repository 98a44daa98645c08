"""Sending whole columns: Arrow arrays become record batches, and those go to the leaders of their partitions.

A `Sender` belongs to one producer id and epoch. Each partition has its own sequence, one batch of it is under way at a
time, and a batch that got no answer, or one that can be tried again, goes out again with the same sequence: the broker
knows it. A batch that is more than its topic takes goes out as two halves, and later ones of that topic are made
smaller. Several partitions of a broker share a request.

`add` encodes and queues, sends what it can, and waits only while more than `buffer_memory` is not acknowledged; while
Spark makes the next rows, brokers work. `flush` waits for everything.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any, Final

from mainstem.client.cluster import Cluster
from mainstem.client.errors import (
    KafkaError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    RecordTooLargeError,
    error_for,
)
from mainstem.client.metadata import BrokerAddress
from mainstem.client.options import ProducerOptions
from mainstem.client.types import TopicPartition
from mainstem.protocol.api import ApiKey
from mainstem.protocol.batch import BatchView
from mainstem.protocol.columns import decode_columns, encode_columns
from mainstem.protocol.compression import CODEC_NAMES
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.produce import (
    PartitionBatches,
    ProducePartitionResponse,
    ProduceResponse,
    TopicBatches,
    encode_produce_request,
    read_produce_response,
)
from mainstem.protocol.schema import ZERO_UUID
from mainstem.spark.halving import SEQUENCE_MASK, halves
from mainstem.spark.offsets import Partition
from mainstem.spark.transactions import Transactions, Triple

if TYPE_CHECKING:
    import pyarrow as pa

V1_MAX: Final = 11
"""Up to this version producing does not add a partition to the transaction."""

V2_MAX: Final = 12
"""The last one that names topics; it adds partitions by itself."""

SHOWN_BYTES: Final = 100


class _Queue:
    """What waits for one partition."""

    __slots__ = ("batches", "first", "is_busy", "last", "sequence")

    def __init__(self) -> None:
        self.batches: deque[bytes] = deque()
        self.is_busy = False
        self.sequence = 0
        self.first = -1
        self.last = -1


class Sender:
    def __init__(self, cluster: Cluster, options: ProducerOptions, triple: Triple, transactions: Transactions) -> None:
        self._cluster = cluster
        self._options = options
        self._triple = triple
        self._transactions = transactions
        self._is_transactional = bool(triple.transactional_id)
        self._queues: dict[Partition, _Queue] = defaultdict(_Queue)
        self._batch_bytes: dict[str, int] = {}
        """Of topics that do not take batches of the size that was asked for."""
        self._added: set[Partition] = set()
        self._is_v2 = True
        self._unacknowledged = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._failure: BaseException | None = None

    @property
    def _level(self) -> int | None:
        return getattr(self._options, f"compression_{self._options.compression_type}_level", None)

    async def begin(self) -> None:
        if self._is_transactional:
            self._is_v2 = await self._transactions.is_v2()

    def encode(
        self, where: Partition, key: pa.Array | None, value: pa.Array, headers: Any, timestamps: Any, now_ms: int
    ) -> None:
        """Queues rows for a partition, in order."""
        queue = self._queues[where]
        name = self._options.compression_type
        batches = encode_columns(
            key,
            value,
            timestamps,
            headers,
            timestamp=now_ms,
            codec=CODEC_NAMES.index(name),
            level=self._level,
            producer_id=self._triple.producer_id,
            producer_epoch=self._triple.epoch,
            base_sequence=queue.sequence if self._triple.producer_id >= 0 else -1,
            transactional=self._is_transactional,
            max_batch_bytes=self._batch_bytes.get(where[0], self._options.batch_size),
        )
        for batch in batches:
            queue.sequence = (queue.sequence + int(BatchView(batch, 0).record_count)) & SEQUENCE_MASK
            queue.batches.append(batch)
            self._unacknowledged += len(batch)

    async def send(self) -> None:
        """Sends what is queued, and waits while too much is not acknowledged."""
        await self._add_new_partitions()
        self._pump()
        await asyncio.sleep(0)
        await self._wait_for(self._options.buffer_memory)

    async def flush(self) -> None:
        await self._add_new_partitions()
        self._pump()
        await self._wait_for(0)

    async def drop(self, within_s: float) -> None:
        """Sends nothing more, and waits for the answers to what was sent: it is part of the transaction."""
        if self._failure is None:
            self._failure = KafkaError("what was to be sent was given up")
        if self._tasks:
            _, pending = await asyncio.wait([*self._tasks], timeout=within_s)
            for task in pending:
                task.cancel()

    def written(self) -> dict[Partition, tuple[int, int]]:
        """The first and last offset of what was written, by partition."""
        return {where: (queue.first, queue.last) for where, queue in self._queues.items() if queue.first >= 0}

    async def _add_new_partitions(self) -> None:
        new = [where for where in self._queues if where not in self._added]
        if new and self._is_transactional and not self._is_v2:
            await self._transactions.add_partitions(self._triple, new)
        self._added.update(new)

    async def _wait_for(self, most: int) -> None:
        while self._failure is None and self._unacknowledged > most:
            self._changed.clear()
            await self._changed.wait()
        if self._failure is not None:
            for task in [*self._tasks]:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            raise self._failure

    def _pump(self) -> None:
        """Starts a request for each leader that has something to send and is not busy with the same partition."""
        by_leader: dict[int, list[Partition]] = defaultdict(list)
        for where, queue in self._queues.items():
            if queue.batches and not queue.is_busy and where in self._added:
                queue.is_busy = True
                leader = self._cluster.leader(TopicPartition(*where))
                by_leader[-1 if leader is None else leader.leader].append(where)
        for node, some in by_leader.items():
            groups = [some] if node >= 0 else [[where] for where in some]
            for group in groups:
                task = asyncio.ensure_future(self._deliver(node, group))
                self._tasks.add(task)
                task.add_done_callback(self._delivered)

    def _delivered(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None and self._failure is None:
            self._failure = task.exception()
        if self._failure is None:
            self._pump()
        self._changed.set()

    async def _deliver(self, node: int, group: list[Partition]) -> None:
        """Gets the first batch of each partition acknowledged; `node` is -1 where it is not known who leads them."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._options.delivery_timeout_ms / 1000
        pauses = self._cluster.backoff()
        todo = await self._try(node, group) if node >= 0 else await self._try_each(group)
        while todo:
            pause_s = pauses.next_s()
            if loop.time() + pause_s > deadline:
                topic, partition = todo[0]
                raise KafkaTimeoutError(
                    f"no acknowledgement within {self._options.delivery_timeout_ms} ms",
                    topic=topic,
                    partition=partition,
                )
            await asyncio.sleep(pause_s)
            todo = await self._try_each(todo)

    async def _try_each(self, group: list[Partition]) -> list[Partition]:
        """Their leaders may have become different ones."""
        return [again for where in group for again in await self._try_alone(where)]

    async def _try_alone(self, where: Partition) -> list[Partition]:
        try:
            await self._cluster.metadata([where[0]])
            leader = self._cluster.leader(TopicPartition(*where))
            if leader is None:
                raise LeaderNotAvailableError("it has no leader now", topic=where[0], partition=where[1])
        except KafkaError as error:
            if not error.retriable:
                raise
            self._cluster.request_update()
            return [where]
        return await self._try(leader.leader, [where])

    async def _try(self, node: int, group: list[Partition]) -> list[Partition]:
        """Sends one request; the partitions that have to be sent again."""
        try:
            connection = await self._cluster.node(node)
            version = connection.version_for(ApiKey.PRODUCE, V2_MAX if self._is_v2 else V1_MAX)
            topics: dict[str, list[PartitionBatches]] = defaultdict(list)
            for topic, number in group:
                topics[topic].append(PartitionBatches(number, [self._queues[topic, number].batches[0]]))
            frame = encode_produce_request(
                version,
                0,
                self._options.client_id,
                self._triple.transactional_id or None,
                -1,
                self._options.request_timeout_ms,
                [TopicBatches(topic, ZERO_UUID, parts) for topic, parts in topics.items()],
            )
            answer = await connection.send_frame(ApiKey.PRODUCE, version, frame)
        except KafkaError as error:
            if not error.retriable:
                raise
            self._cluster.request_update()
            return group
        _, response = read_produce_response(answer, version)
        again: list[Partition] = []
        for topic_answer in response.topics:
            for part in topic_answer.partitions:
                where = (topic_answer.name, int(part.index))
                if not self._is_settled(where, part, response):
                    again.append(where)
        return again

    def _is_settled(self, where: Partition, part: ProducePartitionResponse, response: ProduceResponse) -> bool:
        """Whether the batch that was sent must not be sent again as it is."""
        code = int(part.error_code)
        queue = self._queues[where]
        if code in (0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            batch = queue.batches.popleft()
            queue.is_busy = False
            self._unacknowledged -= len(batch)
            if part.base_offset >= 0:
                first = int(part.base_offset)
                queue.first = first if queue.first < 0 else queue.first
                queue.last = first + int(BatchView(batch, 0).record_count) - 1
            return True
        error = error_for(code, part.error_message or "produce", topic=where[0], partition=where[1])
        if isinstance(error, RecordTooLargeError):
            self._halve(where, error)
            queue.is_busy = False
            return True
        if not error.retriable:
            raise error
        endpoints = [
            BrokerAddress(int(each.node_id), each.host, int(each.port), each.rack)
            for each in response.node_endpoints or ()
        ]
        tp = TopicPartition(*where)
        self._cluster.note_leader(tp, int(part.leader_id), int(part.leader_epoch), endpoints)
        self._cluster.note_error(tp, code)
        return False

    def _halve(self, where: Partition, error: KafkaError) -> None:
        """Nothing of the first batch was taken: its halves are sent in its place, before what comes after it."""
        topic, partition = where
        queue = self._queues[where]
        whole = BatchView(queue.batches[0], 0)
        columns = decode_columns(whole.buffer)
        if columns.count == 1:
            row = columns.to_arrow(("key", "value")).to_pylist()[0]
            name = "key" if row["key"] else "value"
            raise RecordTooLargeError(
                f"{error.message}; one row is more than the topic takes, {whole.size} bytes: its {name} begins with "
                f"{(row[name] or b'')[:SHOWN_BYTES]!r}. Raise the topic's max.message.bytes",
                topic=topic,
                partition=partition,
            )
        # Before compression, as batches are cut.
        half = len(columns.buffer) // 2
        self._batch_bytes[topic] = min(self._batch_bytes.get(topic, half), half)
        parts = halves(whole, columns, self._level)
        queue.batches.popleft()
        queue.batches.extendleft(reversed(parts))
        self._unacknowledged += sum(map(len, parts)) - int(whole.size)
