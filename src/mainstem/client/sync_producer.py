"""The synchronous producer.

    with Producer(bootstrap_servers="127.0.0.1:9092") as producer:
        future = producer.send("orders", b"value", key=b"key")
        producer.flush()
        print(future.result())

`send` writes the record into the accumulator on the caller's thread and returns; only where it has to wait (a topic it
has not met, a full buffer) does it go to the loop. Any number of threads may send at the same time; the records of
each keep their order.
"""

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from mainstem.client.accumulator import Accumulator, Headers
from mainstem.client.batches import SendFuture
from mainstem.client.producer import AsyncProducer
from mainstem.client.serializers import as_bytes, check_place, serialize
from mainstem.client.sync import LoopThread, loop_thread
from mainstem.client.transactions import GroupMetadata
from mainstem.client.types import OffsetAndMetadata, TopicPartition


class Producer:
    """Options are keyword arguments, by Kafka's names in Python's spelling: see `ProducerOptions`."""

    def __init__(self, **options: Any) -> None:
        self._async = AsyncProducer(**options)
        self._runner: LoopThread = loop_thread()
        self._accumulator: Accumulator = self._async.accumulator
        self._key_serializer: Callable[[Any], bytes | None] | None = self._async.options.key_serializer
        self._value_serializer: Callable[[Any], bytes | None] | None = self._async.options.value_serializer
        self._runner.run(self._async.start())

    def __enter__(self) -> "Producer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> SendFuture:
        """Takes a record. `result()` of what it returns waits until it is acknowledged and says where it went.

        Blocks for up to `max_block_ms` where the topic is not known yet or `buffer_memory` is full, and raises then.
        """
        if self._key_serializer is not None and key is not None:
            key = serialize(self._key_serializer, key, "key", topic)
        if self._value_serializer is not None and value is not None:
            value = serialize(self._value_serializer, value, "value", topic)
        if key is not None and not isinstance(key, bytes):
            key = as_bytes(key, "key", topic)
        if value is not None and not isinstance(value, bytes):
            value = as_bytes(value, "value", topic)
        if partition is not None or timestamp_ms is not None:
            check_place(topic, partition, timestamp_ms)
        where = -1 if partition is None else partition
        when = -1 if timestamp_ms is None else timestamp_ms
        sent = self._accumulator.append(topic, where, key, value, when, headers)
        if sent is not None:
            return sent
        return self._append_waiting(topic, where, key, value, when, headers)

    def _append_waiting(
        self, topic: str, partition: int, key: Any, value: Any, timestamp: int, headers: Headers | None
    ) -> SendFuture:
        sent: SendFuture = self._runner.run(
            self._async.append_waiting(topic, partition, key, value, timestamp, headers)
        )
        return sent

    def send_table(self, table: Any, topic: str | None = None, **options: Any) -> int:
        """Sends an Arrow table, a record a row, and waits until it is acknowledged; how many records that was."""
        sent: int = self._runner.run(self._async.send_table(table, topic, **options))
        return sent

    def flush(self, timeout_ms: float | None = None) -> None:
        """Sends what waits and returns when everything sent so far is answered, well or not."""
        self._runner.run(self._async.flush(timeout_ms))

    def partitions_for(self, topic: str) -> list[int]:
        """The partitions of a topic."""
        found: list[int] = self._runner.run(self._async.partitions_for(topic))
        return found

    def close(self, timeout_ms: float | None = None) -> None:
        """Waits until everything is answered, up to `timeout_ms`, and fails what is not."""
        self._runner.run(self._async.close(timeout_ms))

    # Transactions

    def init_transactions(self) -> None:
        """Once before the first transaction: ends what the last owner of the transactional id left open."""
        self._runner.run(self._async.init_transactions())

    def begin_transaction(self) -> None:
        self._runner.run(_begin(self._async))

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        """Commits a group's offsets with the transaction; `group` is the consumer's `group_metadata()`."""
        self._runner.run(self._async.send_offsets_to_transaction(offsets, group))

    def commit_transaction(self) -> None:
        """Waits until every record is acknowledged, and commits them all."""
        self._runner.run(self._async.commit_transaction())

    def abort_transaction(self) -> None:
        """Drops what was not sent, and has brokers and consumers drop what was."""
        self._runner.run(self._async.abort_transaction())

    def transaction(self) -> "Transaction":
        """A transaction for a `with` block: committed at its end, aborted where it raises."""
        return Transaction(self, self._runner, self._async)


async def _begin(producer: AsyncProducer) -> None:
    producer.begin_transaction()


class Transaction:
    """The open transaction of a producer, within `with producer.transaction()`."""

    def __init__(self, producer: Producer, runner: LoopThread, inner: AsyncProducer) -> None:
        self._producer = producer
        self._runner = runner
        self._context: Any = inner.transaction()

    def __enter__(self) -> "Transaction":
        self._runner.run(self._context.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._runner.run(self._context.__aexit__(kind, error, traceback))

    def send_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata) -> None:
        """Commits a group's offsets with the transaction; `group` is the consumer's `group_metadata()`."""
        self._producer.send_offsets_to_transaction(offsets, group)
