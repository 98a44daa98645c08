"""What waits to be sent: a queue of batches for each partition, filled from any thread, drained by the sender.

`append` is what every record goes through: find the topic, choose the partition, write the record into the open batch.
It is one compiled path, with a lock held for a moment and nothing made but the record's future; it never waits. Where
it cannot go on (a topic that is not known yet, no room in `buffer_memory`) it says so with None, and whoever called it
waits in its own way and calls again.

- A batch is ready when it has `batch_size` bytes or is `linger_ms` old, or someone flushes or waits for room.
- A batch that is ready and cannot leave yet, because enough is in flight, goes on growing up to `max_request_size`:
  a partition takes one batch a request, so what would queue behind it may as well go with it. Where the broker then
  finds a batch too large, it is split, and the topic's batches are kept that small from then on.
- Records without a key stick to one partition until it got `batch_size` bytes, and then go where least is waiting
  (KIP-480, KIP-794).
- `buffer_memory` counts the bytes of batches that are not answered yet.
"""

from collections.abc import Callable
from typing import Final

from librt.threading import Lock
from librt.time import time
from mypy_extensions import i64

from mainstem.client.batches import ProducerBatch, SendFuture
from mainstem.client.errors import InvalidPartitionsError, KafkaError, RecordTooLargeError
from mainstem.client.partitioner import partition_for_key
from mainstem.protocol.batch import HEADER_BYTES
from mainstem.protocol.builder import encode_headers
from mainstem.protocol.varint import varint_size

NO_LEADER: Final = -1
NO_HEADERS: Final = b"\x00"
FOREVER_S: Final = 1e18

Partitioner = Callable[[str, bytes | None, bytes | None, int], int]
Headers = list[tuple[str, bytes | None]]


class PartitionQueue:
    """The batches of one partition in order; only the last can be open. Its producer state is in `idempotence`."""

    __slots__ = (
        "batches",
        "bump_wanted",
        "epoch",
        "in_flight",
        "is_active",
        "is_established",
        "leader",
        "next_number",
        "next_ordinal",
        "next_sequence",
        "partition",
        "producer_epoch",
        "producer_id",
        "queued_bytes",
        "sequenced",
        "stuck_since_s",
        "topic",
    )

    def __init__(self, topic: str, partition: i64) -> None:
        self.topic = topic
        self.partition: i64 = partition
        self.leader: i64 = NO_LEADER
        self.epoch: i64 = -1
        self.stuck_since_s = -1.0
        """Since when what is ready cannot be sent, because there is no leader or no connection to it."""
        self.batches: list[ProducerBatch] = []
        self.queued_bytes: i64 = 0
        self.in_flight: i64 = 0
        self.next_ordinal: i64 = 0
        self.is_active = False
        """Whether the accumulator has it among those to look at."""
        self.producer_id: i64 = -1
        self.producer_epoch: i64 = -1
        self.next_sequence: i64 = 0
        self.next_number: i64 = 0
        self.sequenced: list[ProducerBatch] = []
        """Batches with a sequence that are not answered for good, in flight or waiting to be sent again, in order."""
        self.bump_wanted = False
        self.is_established = False
        """Whether the broker has acknowledged a batch of the present producer id and epoch."""

    def put_back(self, batch: ProducerBatch) -> None:
        """A batch that was sent and is to be sent again, in its old place."""
        at: i64 = 0
        for queued in self.batches:
            if queued.ordinal >= batch.ordinal:
                break
            at += 1
        self.batches.insert(at, batch)
        self.queued_bytes += batch.size


class TopicQueues:
    """The partitions of one topic, and where records without a key go at this moment."""

    __slots__ = ("available", "batch_limit", "count", "is_open", "name", "queues", "sticky", "sticky_bytes")

    def __init__(self, name: str, batch_limit: i64) -> None:
        self.name = name
        self.queues: list[PartitionQueue] = []
        """One for each partition, and after them those of partitions that the topic had before it was made anew."""
        self.count: i64 = 0
        self.available: list[PartitionQueue] = []
        """Those that have a leader."""
        self.batch_limit: i64 = batch_limit
        self.sticky: i64 = -1
        self.sticky_bytes: i64 = 0
        self.is_open = True
        """Whether records are taken: not once it is forgotten, or the producer closed. Whoever found it before that
        looks again."""


class Accumulator:
    __slots__ = (
        "_active",
        "_adaptive",
        "_availability_s",
        "_batch_size",
        "_buffer_memory",
        "_clock",
        "_forgotten",
        "_ignore_keys",
        "_linger_s",
        "_lock",
        "_max_request_size",
        "_now_s",
        "_partitioner",
        "_random",
        "_topics",
        "_wake",
        "flushing",
        "incomplete",
        "is_closed",
        "refusal",
        "used_bytes",
        "waiting_for_room",
        "woken",
    )

    def __init__(
        self,
        *,
        batch_size: i64,
        linger_s: float,
        buffer_memory: i64,
        max_request_size: i64,
        now_s: Callable[[], float],
        random: Callable[[], float],
        wake: Callable[[], None],
        clock: Callable[[], int] | None = None,
        partitioner: Partitioner | None = None,
        adaptive: bool = True,
        availability_s: float = 0.0,
        ignore_keys: bool = False,
    ) -> None:
        self._batch_size: i64 = max(batch_size, 1)
        self._linger_s = linger_s
        self._buffer_memory: i64 = buffer_memory
        self._max_request_size: i64 = max_request_size
        self._now_s = now_s
        self._random = random
        self._wake = wake
        self._clock = clock
        self._partitioner = partitioner
        self._adaptive = adaptive
        self._availability_s = availability_s
        self._ignore_keys = ignore_keys
        self._lock = Lock()
        self._topics: dict[str, TopicQueues] = {}
        self._forgotten: dict[str, TopicQueues] = {}
        """Topics that nobody sent to for long. Brokers remember their sequences, and so must we: one that began at 0
        again would be taken for the repetition of an old batch, and acknowledged without being written."""
        self._active: list[PartitionQueue] = []
        self.used_bytes: i64 = 0
        self.incomplete: dict[ProducerBatch, PartitionQueue] = {}
        """Every batch that is not answered for good."""
        self.waiting_for_room: i64 = 0
        self.flushing: i64 = 0
        self.is_closed = False
        self.refusal: KafkaError | None = None
        """Why nothing is taken at this moment."""
        self.woken = False
        """Whether the sender was told that there is something to do, and has not looked yet."""

    # Filling, from any thread

    def append(
        self,
        topic: str,
        partition: i64,
        key: bytes | None,
        value: bytes | None,
        timestamp: i64,
        headers: Headers | None,
    ) -> SendFuture | None:
        """Takes a record. None when that has to wait: the topic or partition is not known yet, or there is no room.

        A partition or timestamp of -1 is chosen here.
        """
        if self.refusal is not None:
            raise self.refusal
        found = self._topics.get(topic)
        if found is None:
            return None
        if timestamp < 0:
            clock = self._clock
            timestamp = i64(int(time() * 1000.0)) if clock is None else clock()
        tail = encode_headers(headers) if headers else NO_HEADERS
        partitioner = self._partitioner
        if partition < 0 and partitioner is not None:
            count: i64 = found.count
            partition = partitioner(topic, key, value, count)
            if partition < 0 or partition >= count:
                raise InvalidPartitionsError(
                    f"the partitioner chose {partition}; the topic has {count} partitions", topic=topic
                )
        with self._lock:
            if not found.is_open:
                return None
            return self._append(found, partition, key, value, timestamp, tail)

    def _append(
        self, found: TopicQueues, partition: i64, key: bytes | None, value: bytes | None, timestamp: i64, tail: bytes
    ) -> SendFuture | None:
        is_sticky = False
        if partition < 0:
            if key is not None and not self._ignore_keys:
                partition = partition_for_key(key, found.count)
            else:
                is_sticky = True
                if found.sticky < 0:
                    self._move_on(found)
                partition = found.sticky
        if partition >= found.count:
            return None
        queue = found.queues[partition]
        batch: ProducerBatch | None = None
        size: i64 = 0
        whole: i64 = 0
        if queue.batches:
            last = queue.batches[-1]
            if not last.is_closed:
                size = last.record_size(timestamp, key, value, tail)
                whole = varint_size(size) + size
                if last.size + whole <= found.batch_limit:
                    batch = last
        is_new = batch is None
        if batch is None:
            batch = ProducerBatch(found.name, partition, 0.0, queue.next_ordinal)
            size = batch.record_size(timestamp, key, value, tail)
            whole = varint_size(size) + size
            if HEADER_BYTES + whole > self._max_request_size or HEADER_BYTES + whole > self._buffer_memory:
                raise self._too_large(found.name, partition, HEADER_BYTES + whole)
            whole += HEADER_BYTES
        if self.used_bytes + whole > self._buffer_memory:
            return None
        if is_new:
            batch.created_s = self._now_s()
            queue.next_ordinal += 1
            queue.batches.append(batch)
            self.incomplete[batch] = queue
            if not queue.is_active:
                queue.is_active = True
                self._active.append(queue)
        index: i64 = batch.count
        was_ready = batch.size >= self._batch_size
        batch.append(timestamp, key, value, tail, size)
        self.used_bytes += whole
        queue.queued_bytes += whole
        is_ready = batch.size >= self._batch_size
        if is_sticky:
            found.sticky_bytes += whole
            if found.sticky_bytes >= self._batch_size and (is_ready or found.sticky_bytes >= 2 * self._batch_size):
                self._move_on(found)
        if not self.woken and (is_new or (is_ready and not was_ready)):
            self.woken = True
            self._wake()
        return SendFuture(batch, index, timestamp)

    def _too_large(self, topic: str, partition: i64, size: i64) -> KafkaError:
        limit = min(self._max_request_size, self._buffer_memory)
        name = "max_request_size" if self._max_request_size <= self._buffer_memory else "buffer_memory"
        return RecordTooLargeError(
            f"a record of {size} bytes with its batch's header; {name} is {limit}", topic=topic, partition=partition
        )

    def _move_on(self, found: TopicQueues) -> None:
        """Chooses where records without a key go next: the less waits for a partition, the likelier."""
        found.sticky_bytes = 0
        choices = found.available if found.available else found.queues[: found.count]
        if self._availability_s > 0.0:
            before_s = self._now_s() - self._availability_s
            moving = [queue for queue in choices if not 0.0 <= queue.stuck_since_s < before_s]
            choices = moving if moving else choices
        count: i64 = len(choices)
        draw: float = self._random()
        if count == 1 or not self._adaptive:
            found.sticky = choices[min(i64(int(draw * float(count))), count - 1)].partition
            return
        longest: i64 = 0
        for queue in choices:
            longest = max(longest, queue.queued_bytes // self._batch_size)
        total: i64 = 0
        for queue in choices:
            total += longest + 1 - queue.queued_bytes // self._batch_size
        left: i64 = i64(int(draw * float(total)))
        for queue in choices:
            left -= longest + 1 - queue.queued_bytes // self._batch_size
            if left < 0:
                found.sticky = queue.partition
                return
        found.sticky = choices[count - 1].partition

    def add_batch(
        self, topic: str, partition: i64, body: bytes, count: i64, base_timestamp: i64, max_timestamp: i64, size: i64
    ) -> ProducerBatch | None:
        """Takes a batch whose records are encoded already. None where `append` would say so."""
        if self.refusal is not None:
            raise self.refusal
        with self._lock:
            found = self._topics.get(topic)
            if found is None or not found.is_open or partition >= found.count:
                return None
            if size > self._max_request_size or size > self._buffer_memory:
                raise self._too_large(topic, partition, size)
            if self.used_bytes + size > self._buffer_memory:
                return None
            queue = found.queues[partition]
            batch = ProducerBatch(topic, partition, self._now_s(), queue.next_ordinal)
            batch.fill(body, count, base_timestamp, max_timestamp, size)
            queue.next_ordinal += 1
            queue.batches.append(batch)
            queue.queued_bytes += size
            self.used_bytes += size
            self.incomplete[batch] = queue
            if not queue.is_active:
                queue.is_active = True
                self._active.append(queue)
            if not self.woken:
                self.woken = True
                self._wake()
            return batch

    def partitions_of(self, topic: str) -> int:
        """How many partitions the topic has; 0 when it is not known."""
        found = self._topics.get(topic)
        return 0 if found is None else found.count

    def next_sticky(self, topic: str) -> int:
        """The partition for the next batch without keys."""
        with self._lock:
            found = self._topics[topic]
            self._move_on(found)
            return found.sticky

    def has_room(self, size: i64) -> bool:
        return self.used_bytes + size <= self._buffer_memory

    # What the cluster tells, on the loop

    def set_topic(self, topic: str, leaders: list[tuple[int, int]], is_anew: bool = False) -> None:
        """The leader and epoch of each partition, -1 where there is none.

        A topic has as many partitions as before or more, unless it was made anew: what waits for those that are gone is
        left to its time. Whatever brokers knew of our sequences there they do not know any more.
        """
        with self._lock:
            found = self._topics.get(topic)
            if found is None:
                found = self._forgotten.pop(topic, None)
                if found is None:
                    found = TopicQueues(topic, self._largest_batch())
                found.is_open = not self.is_closed
                self._topics[topic] = found
            while len(found.queues) < len(leaders):
                found.queues.append(PartitionQueue(topic, len(found.queues)))
            if is_anew:
                found.count = 0
                found.sticky = -1
                for queue in found.queues:
                    queue.leader = NO_LEADER
                    queue.is_established = False
            found.count = max(found.count, len(leaders))
            available: list[PartitionQueue] = []
            for at, (leader, epoch) in enumerate(leaders):
                queue = found.queues[at]
                if leader != queue.leader and queue.batches:
                    # Whoever leads now has no reason to make us wait.
                    queue.batches[0].retry_at_s = 0.0
                queue.leader = leader
                queue.epoch = epoch
                if leader >= 0:
                    available.append(queue)
            found.available = available
            if found.sticky >= 0 and found.queues[found.sticky] not in available and available:
                self._move_on(found)

    def drop_topic(self, topic: str) -> bool:
        """Forgets where a topic is, unless something waits for it."""
        with self._lock:
            found = self._topics.get(topic)
            if found is None:
                return True
            for queue in found.queues:
                if queue.batches or queue.in_flight > 0 or queue.sequenced:
                    return False
            found.is_open = False
            self._forgotten[topic] = self._topics.pop(topic)
            return True

    def close(self, refusal: KafkaError) -> None:
        """Takes no more records, also of threads that are in the middle of `append`: they get `refusal`."""
        with self._lock:
            self.refusal = refusal
            self.is_closed = True
            for found in self._topics.values():
                found.is_open = False

    def activity(self, topic: str) -> int:
        """A number that grows while the topic is sent to."""
        found = self._topics.get(topic)
        return 0 if found is None else sum(queue.next_ordinal for queue in found.queues)

    def limit_batches(self, topic: str, size: i64) -> None:
        """The broker found a batch too large: batches of this topic stay below what it is split into."""
        found = self._topics.get(topic)
        if found is not None and size < found.batch_limit:
            found.batch_limit = max(size, HEADER_BYTES + 1)

    def batch_limit(self, topic: str) -> i64:
        """How large batches of this topic may become."""
        found = self._topics.get(topic)
        return self._largest_batch() if found is None else found.batch_limit

    def _largest_batch(self) -> i64:
        return max(self._batch_size, min(self._max_request_size, 1 << 20))

    # Draining, on the loop

    def ready(self, now_s: float) -> list[PartitionQueue]:
        """The queues whose first batch may leave now."""
        found: list[PartitionQueue] = []
        with self._lock:
            self.woken = False
            kept: list[PartitionQueue] = []
            for queue in self._active:
                if not queue.batches:
                    queue.is_active = False
                    continue
                kept.append(queue)
                if self._ready_at(queue, now_s) <= now_s:
                    found.append(queue)
            self._active = kept
        return found

    def is_ready(self, queue: PartitionQueue, now_s: float) -> bool:
        """Whether the first batch of this queue may leave now."""
        with self._lock:
            return len(queue.batches) > 0 and self._ready_at(queue, now_s) <= now_s

    def queues_to_bump(self) -> list[PartitionQueue]:
        """Those that want to start anew under another epoch; only what is active can."""
        with self._lock:
            return [queue for queue in self._active if queue.bump_wanted]

    def next_ready_s(self, now_s: float) -> float:
        """When the next batch becomes ready that is not ready now."""
        soonest = FOREVER_S
        with self._lock:
            for queue in self._active:
                if queue.batches:
                    at = self._ready_at(queue, now_s)
                    if now_s < at < soonest:
                        soonest = at
        return soonest

    def _ready_at(self, queue: PartitionQueue, now_s: float) -> float:
        first = queue.batches[0]
        if first.retry_at_s > now_s:
            return first.retry_at_s
        if (
            first.is_closed
            or first.size >= self._batch_size
            or len(queue.batches) > 1
            or self.flushing > 0
            or self.waiting_for_room > 0
            or self.is_closed
        ):
            return now_s
        return first.created_s + self._linger_s

    def take(self, queue: PartitionQueue) -> ProducerBatch:
        """The first batch of a queue, to be sent; nothing more is written to it."""
        with self._lock:
            batch = queue.batches.pop(0)
            batch.is_closed = True
            queue.queued_bytes -= batch.size
            queue.in_flight += 1
            queue.stuck_since_s = -1.0
            return batch

    def put_back(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """A batch that was taken is to be sent again."""
        with self._lock:
            queue.put_back(batch)
            if not queue.is_active:
                queue.is_active = True
                self._active.append(queue)

    def replace(self, queue: PartitionQueue, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Puts the parts of a batch that was too large in its place."""
        with self._lock:
            size: i64 = 0
            for part in reversed(parts):
                queue.put_back(part)
                self.incomplete[part] = queue
                size += part.size
            self.used_bytes += size - batch.size
            self.incomplete.pop(batch, None)
            if not queue.is_active:
                queue.is_active = True
                self._active.append(queue)

    def expired(self, before_s: float) -> list[ProducerBatch]:
        """Takes out the waiting batches that were begun before then, in order."""
        found: list[ProducerBatch] = []
        with self._lock:
            for queue in self._active:
                while queue.batches and queue.batches[0].created_s < before_s:
                    batch = queue.batches.pop(0)
                    batch.is_closed = True
                    queue.queued_bytes -= batch.size
                    found.append(batch)
        return found

    def oldest_s(self) -> float:
        """When the oldest waiting batch was begun."""
        oldest = FOREVER_S
        with self._lock:
            for queue in self._active:
                if queue.batches and queue.batches[0].created_s < oldest:
                    oldest = queue.batches[0].created_s
        return oldest

    def take_waiting(self) -> list[ProducerBatch]:
        """Takes out every batch that is not in flight: they are given up."""
        found: list[ProducerBatch] = []
        with self._lock:
            for queue in self._active:
                for batch in queue.batches:
                    batch.is_closed = True
                    found.append(batch)
                queue.batches.clear()
                queue.queued_bytes = 0
        return found

    def release(self, batch: ProducerBatch) -> None:
        """The batch is answered for good: its bytes are free again."""
        with self._lock:
            if self.incomplete.pop(batch, None) is not None:
                self.used_bytes -= batch.size

    def queues(self) -> list[PartitionQueue]:
        """Every partition of every topic."""
        with self._lock:
            return [queue for found in self._topics.values() for queue in found.queues]

    def queue_of(self, topic: str, partition: i64) -> PartitionQueue | None:
        found = self._topics.get(topic)
        return None if found is None or partition >= len(found.queues) else found.queues[partition]
