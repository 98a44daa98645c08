"""The producer on asyncio.

    async with AsyncProducer(bootstrap_servers="127.0.0.1:9092") as producer:
        sent = await producer.send("orders", b"value", key=b"key")
        metadata = await sent

`send` takes the record and returns at once, unless it has to wait for the topic to be known or for room in
`buffer_memory`; what it returns is awaited for where the record went. `try_send` is the same without the wait.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakSet

from mainstem.client.accumulator import Accumulator, Headers
from mainstem.client.batches import ProducerBatch, SendFuture
from mainstem.client.cluster import Cluster
from mainstem.client.errors import (
    BufferExhaustedError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    SerializationError,
    raise_for,
)
from mainstem.client.idempotence import Idempotence
from mainstem.client.metadata import TopicInfo
from mainstem.client.options import ProducerOptions
from mainstem.client.sender import Sender
from mainstem.client.serializers import as_bytes, check_place, serialize
from mainstem.client.transactions import GroupMetadata, TransactionManager
from mainstem.client.types import OffsetAndMetadata, RecordMetadata, TopicPartition
from mainstem.protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse


class AsyncProducer:
    """Options are keyword arguments, by Kafka's names in Python's spelling: see `ProducerOptions`."""

    def __init__(
        self, *, rng: random.Random | None = None, clock: Callable[[], int] | None = None, **options: Any
    ) -> None:
        self.options = ProducerOptions.from_kwargs(options)
        self._rng = rng or random.Random()
        self._clock = clock
        self._cluster: Cluster | None = None
        self._idempotence = (
            Idempotence(is_transactional=self.options.transactional_id is not None)
            if self.options.enable_idempotence
            else None
        )
        self._sender: Sender | None = None
        self._transactions: TransactionManager | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._committing: KafkaError | None = None
        """Why nothing is taken while a transaction is being committed."""
        self._asking_for_id = False
        self._room: list[asyncio.Future[None]] = []
        self._activity: dict[str, int] = {}
        self._topic_ids: dict[str, bytes] = {}
        self._closed = False
        self.accumulator = Accumulator(
            batch_size=self.options.batch_size,
            linger_s=self.options.linger_ms / 1000,
            buffer_memory=self.options.buffer_memory,
            max_request_size=self.options.max_request_size,
            now_s=self._now_s,
            random=self._rng.random,
            wake=self._wake,
            clock=clock,
            partitioner=self.options.partitioner,
            adaptive=self.options.partitioner_adaptive_partitioning_enable,
            availability_s=self.options.partitioner_availability_timeout_ms / 1000,
            ignore_keys=self.options.partitioner_ignore_keys,
        )
        self.accumulator.refusal = IllegalStateError("the producer is not started: use it with `async with`")

    async def __aenter__(self) -> AsyncProducer:
        await self.start()
        return self

    async def __aexit__(self, kind: object, error: object, traceback: object) -> None:
        await self.close(timeout_ms=0 if isinstance(error, asyncio.CancelledError) else None)

    async def start(self) -> None:
        """Makes it ready to send. Connects to nobody yet: that happens with the first record."""
        if self._cluster is not None:
            raise IllegalStateError("the producer was started before")
        self._loop = asyncio.get_running_loop()
        _started.add(self)
        self._cluster = Cluster(self.options, self._rng, allow_auto_create=True)
        self._cluster.on_update(self._take_metadata)
        self._sender = Sender(
            self._cluster, self.accumulator, self.options, self._rng, self._idempotence, self._ask_for_id
        )
        self._sender.on_room = self._tell_of_room
        if self.options.transactional_id is not None:
            assert self._idempotence is not None
            self._transactions = TransactionManager(
                self._cluster, self.options, self._idempotence, self._transaction_changed
            )
            self._sender.transactions = self._transactions
            self.accumulator.refusal = self._transactions.check_can_send()
        else:
            self.accumulator.refusal = None

    # Sending

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> SendFuture:
        """Takes a record; await what it returns to learn where it went.

        Waits up to `max_block_ms` for the topic to be known and for room, and raises where that is not enough.
        """
        options = self.options
        if options.key_serializer is not None and key is not None:
            key = serialize(options.key_serializer, key, "key", topic)
        if options.value_serializer is not None and value is not None:
            value = serialize(options.value_serializer, value, "value", topic)
        if key is not None and not isinstance(key, bytes):
            key = as_bytes(key, "key", topic)
        if value is not None and not isinstance(value, bytes):
            value = as_bytes(value, "value", topic)
        if partition is not None or timestamp_ms is not None:
            check_place(topic, partition, timestamp_ms)
        where = -1 if partition is None else partition
        when = -1 if timestamp_ms is None else timestamp_ms
        sent = self.accumulator.append(topic, where, key, value, when, headers)
        return sent if sent is not None else await self.append_waiting(topic, where, key, value, when, headers)

    def try_send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> SendFuture | None:
        """Takes a record of bytes if that is possible at once; None where `send` would wait. Made for loops."""
        if partition is not None or timestamp_ms is not None:
            check_place(topic, partition, timestamp_ms)
        if not (isinstance(value, bytes | None) and isinstance(key, bytes | None)):
            raise SerializationError("try_send takes bytes or None", topic=topic)
        return self.accumulator.append(
            topic,
            -1 if partition is None else partition,
            key,
            value,
            -1 if timestamp_ms is None else timestamp_ms,
            headers,
        )

    async def send_and_wait(self, topic: str, value: Any = None, key: Any = None, **options: Any) -> RecordMetadata:
        """Sends one record and waits until it is acknowledged."""
        return await (await self.send(topic, value, key, **options))

    async def append_waiting(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers | None,
    ) -> SendFuture:
        """Takes a record that `append` could not take at once, as soon as it can."""
        found: list[SendFuture] = []

        def attempt() -> bool:
            sent = self.accumulator.append(topic, partition, key, value, timestamp, headers)
            if sent is not None:
                found.append(sent)
            return sent is not None

        # Once more at first: the caller may have tried in another thread, and the last answer come since.
        if not attempt():
            await self._when_possible(topic, partition, attempt)
        return found[0]

    async def add_batch_waiting(
        self, topic: str, partition: int, body: bytes, count: int, base_timestamp: int, max_timestamp: int, size: int
    ) -> ProducerBatch:
        """Takes a batch of encoded records, as soon as there is room."""
        found: list[ProducerBatch] = []

        def attempt() -> bool:
            batch = self.accumulator.add_batch(topic, partition, body, count, base_timestamp, max_timestamp, size)
            if batch is not None:
                found.append(batch)
            return batch is not None

        if not attempt():
            await self._when_possible(topic, partition, attempt)
        return found[0]

    async def _when_possible(self, topic: str, partition: int, attempt: Callable[[], bool]) -> None:
        loop, cluster = self._running()
        deadline_s = loop.time() + self.options.max_block_ms / 1000
        while True:
            count = self.accumulator.partitions_of(topic)
            if count == 0:
                await cluster.metadata([topic], (deadline_s - loop.time()) * 1000)
            elif partition >= count:
                await self._wait_for_partition(cluster, topic, partition, count, deadline_s - loop.time())
            else:
                await self._wait_for_room(deadline_s - loop.time())
            if attempt():
                return

    async def _wait_for_partition(
        self, cluster: Cluster, topic: str, partition: int, count: int, timeout_s: float
    ) -> None:
        try:
            await cluster.next_update(timeout_s)
        except KafkaTimeoutError as late:
            raise KafkaTimeoutError(
                f"the topic has {count} partitions, and no more came within max_block_ms",
                topic=topic,
                partition=partition,
            ) from late

    async def _wait_for_room(self, timeout_s: float) -> None:
        loop, _ = self._running()
        assert self._sender is not None
        waiter: asyncio.Future[None] = loop.create_future()
        self._room.append(waiter)
        self.accumulator.waiting_for_room += 1
        self._sender.wake()
        try:
            async with asyncio.timeout(max(timeout_s, 0)):
                await waiter
        except TimeoutError:
            raise BufferExhaustedError(
                f"no room in buffer_memory ({self.options.buffer_memory} bytes) within max_block_ms "
                f"({self.options.max_block_ms})"
            ) from None
        finally:
            self.accumulator.waiting_for_room -= 1
            if waiter in self._room:
                self._room.remove(waiter)

    async def flush(self, timeout_ms: float | None = None) -> None:
        """Sends what waits and returns when everything sent so far is answered, well or not.

        KafkaTimeoutError when it is not within `timeout_ms`.
        """
        self._running()
        assert self._sender is not None
        accumulator = self.accumulator
        accumulator.flushing += 1
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                for batch in [*accumulator.incomplete]:
                    self._sender.wake()
                    await _settled(batch)
        except TimeoutError:
            left = sum(batch.count for batch in [*accumulator.incomplete])
            raise KafkaTimeoutError(f"{left} records were not acknowledged within {timeout_ms:g} ms") from None
        finally:
            accumulator.flushing -= 1

    async def flush_batches(self, batches: Iterable[ProducerBatch]) -> None:
        """Waits until these batches are answered."""
        self.accumulator.flushing += 1
        try:
            for batch in batches:
                await _settled(batch)
        finally:
            self.accumulator.flushing -= 1

    async def partitions_for(self, topic: str) -> list[int]:
        """The partitions of a topic."""
        return sorted((await self.topic_info(topic)).partitions)

    async def topic_info(self, topic: str) -> TopicInfo:
        _, cluster = self._running()
        return (await cluster.metadata([topic], self.options.max_block_ms))[topic]

    async def send_table(self, table: Any, topic: str | None = None, **options: Any) -> int:
        """Sends an Arrow table, a record a row; see `arrow.send_table`."""
        from mainstem.client.arrow_sending import send_table

        sent: int = await send_table(self, table, topic, **options)
        return sent

    # Transactions

    async def init_transactions(self) -> None:
        """Once before the first transaction: ends what the last owner of the transactional id left open."""
        await self._transactional().init()
        self._transaction_changed()

    def begin_transaction(self) -> None:
        self._transactional().begin()
        self._transaction_changed()

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        """Commits a group's offsets with the transaction; `group` is the consumer's `group_metadata()`."""
        await self._transactional().send_offsets(offsets, group)

    async def commit_transaction(self) -> None:
        """Waits until every record is acknowledged, and commits them all."""
        transactions = self._transactional()
        transactions.check_can_commit()
        # What another thread sends now would be neither in this transaction nor, for sure, in the next.
        self._committing = IllegalStateError("the transaction is being committed: begin the next one first")
        self._transaction_changed()
        try:
            await self.flush()
            transactions.check_can_commit()
            await transactions.end(commit=True)
        finally:
            self._committing = None
            self._transaction_changed()

    async def abort_transaction(self) -> None:
        """Drops what was not sent, and has brokers and consumers drop what was."""
        transactions = self._transactional()
        transactions.begin_abort()
        assert self._sender is not None
        self.accumulator.refusal = IllegalStateError("the transaction is being aborted")
        self._sender.abort_waiting(IllegalStateError("the transaction was aborted before the record was sent"))
        await self.flush()
        # A batch that was given up in flight must not come after the end of its transaction.
        await self._sender.all_answered()
        await transactions.end(commit=False)
        self._transaction_changed()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncTransaction]:
        """A transaction for the block: committed at its end, aborted where it raises."""
        if self._transactional().state.name == "UNINITIALIZED":
            await self.init_transactions()
        self.begin_transaction()
        try:
            yield AsyncTransaction(self)
        except BaseException:
            if self._transactional().state.name != "FATAL":
                await self.abort_transaction()
            raise
        try:
            await self.commit_transaction()
        except BaseException:
            if self._transactional().is_known_not_to_be_committed:
                await self.abort_transaction()
            raise

    def _transactional(self) -> TransactionManager:
        self._running()
        if self._transactions is None:
            raise IllegalStateError("the producer has no transactional_id")
        return self._transactions

    def _transaction_changed(self) -> None:
        if self._transactions is not None and not self._closed:
            refusal = self._transactions.check_can_send()
            self.accumulator.refusal = refusal or self._committing
            assert self._sender is not None
            if refusal is not None and self._transactions.state.name in ("ABORTABLE", "FATAL"):
                self._sender.abort_waiting(refusal)
            self._sender.wake()

    # The end

    async def close(self, timeout_ms: float | None = None) -> None:
        """Waits until everything is answered, up to `timeout_ms`, and fails what is not; aborts an open transaction."""
        if self._closed:
            return
        if self._cluster is None:
            self._closed = True
            return
        assert self._sender is not None
        try:
            if timeout_ms != 0:
                async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                    await self._finish()
        except (TimeoutError, KafkaError):
            pass  # whatever is left fails with its own error below
        finally:
            self._closed = True
            self.accumulator.close(IllegalStateError("the producer is closed"))
            self._sender.stop()
            self._sender.abort_all()
            await self._cluster.close()

    async def _finish(self) -> None:
        transactions = self._transactions
        if transactions is not None and transactions.state.name in ("IN_TRANSACTION", "ABORTABLE"):
            await self.abort_transaction()
        else:
            await self.flush()

    # Inside

    def _running(self) -> tuple[asyncio.AbstractEventLoop, Cluster]:
        if self._closed:
            raise IllegalStateError("the producer is closed")
        if self._loop is None or self._cluster is None:
            raise IllegalStateError("the producer is not started: use it with `async with`")
        return self._loop, self._cluster

    def now_ms(self) -> int:
        """The time that records without one get."""
        return int(time.time() * 1000) if self._clock is None else self._clock()

    @property
    def compression_level(self) -> int | None:
        return self.options.compression_level

    def _now_s(self) -> float:
        assert self._loop is not None
        return self._loop.time()

    def _wake(self) -> None:
        """Called by whoever appended, on any thread."""
        assert self._loop is not None
        assert self._sender is not None
        if asyncio._get_running_loop() is self._loop:
            self._sender.wake()
        else:
            self._loop.call_soon_threadsafe(self._sender.wake)

    def _tell_of_room(self) -> None:
        waiters, self._room = self._room, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _take_metadata(self) -> None:
        """Tells the accumulator who leads what, and forgets topics that nobody sends to any more."""
        _, cluster = self._loop, self._cluster
        assert cluster is not None
        for name, info in cluster.cache.topics.items():
            known = info.partitions
            is_anew = self._topic_ids.get(name, info.topic_id) != info.topic_id
            self._topic_ids[name] = info.topic_id
            # Less partitions than before are told by a broker that lags behind, unless it is another topic.
            count = max(0 if is_anew else self.accumulator.partitions_of(name), max(known, default=-1) + 1)
            leaders = [(known[at].leader, known[at].epoch) if at in known else (-1, -1) for at in range(count)]
            self.accumulator.set_topic(name, leaders, is_anew)
            activity = self.accumulator.activity(name)
            if activity != self._activity.get(name):
                self._activity[name] = activity
                cluster.touch(name)
        self._forget_idle(cluster)
        if self._sender is not None:
            self._sender.wake()

    def _forget_idle(self, cluster: Cluster) -> None:
        for topic in cluster.idle(self.options.metadata_max_idle_ms / 1000):
            if self.accumulator.drop_topic(topic):
                cluster.unwant([topic])
                self._activity.pop(topic, None)
            else:
                cluster.touch(topic)  # something waits: without metadata it would never hear of another leader

    def _ask_for_id(self) -> None:
        """Gets a producer id for an idempotent producer; a transactional one gets it from its coordinator."""
        if self._asking_for_id or self._transactions is not None or self._cluster is None:
            return
        self._asking_for_id = True
        self._cluster.spawn(self._get_id(), "producer id")

    async def _get_id(self) -> None:
        assert self._cluster is not None
        assert self._sender is not None
        assert self._idempotence is not None
        cluster = self._cluster

        async def ask() -> InitProducerIdResponse:
            connection = await cluster.any_node()
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0x7FFFFFFF)
            answer = await connection.ask(request, InitProducerIdResponse)
            raise_for(answer.error_code, "a producer id", broker=connection.name)
            return answer

        try:
            answer = await cluster.retrying(ask, self.options.delivery_timeout_ms, "getting a producer id")
            self._idempotence.set_id(answer.producer_id, answer.producer_epoch)
        except KafkaError as error:
            if not error.retriable:
                self.accumulator.refusal = error
            self._sender.abort_waiting(error)
        finally:
            self._asking_for_id = False
            self._sender.wake()


class AsyncTransaction:
    """The open transaction of a producer, within `async with producer.transaction()`."""

    def __init__(self, producer: AsyncProducer) -> None:
        self._producer = producer

    async def send_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata) -> None:
        await self._producer.send_offsets_to_transaction(offsets, group)


_started: WeakSet[AsyncProducer] = WeakSet()


def _refuse_after_fork() -> None:
    """In a forked process nobody sends what is taken, and the thread that held a lock is not there to release it."""
    for producer in _started:
        producer.accumulator.refusal = IllegalStateError(
            "a client does not survive a fork; make one in the new process"
        )


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_refuse_after_fork)


async def _settled(batch: ProducerBatch) -> None:
    """Waits until a batch, or all that it was split into, is answered. On the producer's loop."""
    if not batch.is_done and batch.parts is None:
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()

        def settled() -> None:
            if not waiter.done():
                waiter.set_result(None)

        batch.when_settled(settled)
        await waiter
    for part in batch.parts or ():
        await _settled(part)
