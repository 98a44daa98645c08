"""A batch on its way, and what tells the sender of each record how it ended.

A record costs its bytes in the batch and one `SendFuture`, which knows its batch and its place in it, and nothing more:
a batch is answered as a whole, so nothing has to be done per record when the answer comes. What was not asked for is
not made: an event to wait on, a list of callbacks.

- A batch is filled by whoever sends, from any thread; it is closed, sent and answered on the client's loop.
- `is_done` is set last, after everything that can be read once it is True.
- A batch that was too large becomes several (`parts`), and its futures find theirs.
"""

import logging
import threading
from collections.abc import Callable, Generator
from typing import Any, Final

from librt.strings import BytesWriter
from librt.threading import Lock
from mypy_extensions import i64, mypyc_attr, u8

from mainstem.client.errors import IllegalStateError, KafkaError, KafkaTimeoutError, error_for
from mainstem.client.types import CREATE_TIME, LOG_APPEND_TIME, RecordMetadata
from mainstem.protocol.batch import HEADER_BYTES, NO_PRODUCER_ID, NO_SEQUENCE, TRANSACTIONAL_MASK
from mainstem.protocol.builder import encode_header
from mainstem.protocol.compression import compress
from mainstem.protocol.varint import subtract_i64, varint_size, write_varint

log = logging.getLogger(__name__)

NO_OFFSET: Final = -1
SEQUENCE_MAX: Final = 0x7FFFFFFF

_waiting = Lock()
"""Held for a moment by whoever asks to be told of a batch's end, and by whoever tells."""


def next_sequence(sequence: i64, count: i64) -> i64:
    """The sequence after `count` more records; after the largest comes 0."""
    return (sequence + count) & SEQUENCE_MAX


class ProducerBatch:
    """Records for one partition that are sent, and answered, together."""

    __slots__ = (
        "_callbacks",
        "_event",
        "append_time",
        "attempts",
        "base_offset",
        "base_timestamp",
        "body",
        "count",
        "created_s",
        "error",
        "is_closed",
        "is_done",
        "is_doubtful",
        "max_timestamp",
        "number",
        "ordinal",
        "partition",
        "parts",
        "producer_epoch",
        "producer_id",
        "record_errors",
        "retry_at_s",
        "sequence",
        "size",
        "topic",
        "writer",
    )

    def __init__(self, topic: str, partition: i64, created_s: float, ordinal: i64) -> None:
        self.topic = topic
        self.partition: i64 = partition
        self.created_s = created_s
        self.ordinal: i64 = ordinal
        """Its place among the batches of its partition, which it keeps when it is sent again."""
        self.writer: BytesWriter | None = BytesWriter()
        self.body = b""
        """The records as they are sent, once the batch is closed."""
        self.size: i64 = HEADER_BYTES
        """Before compression; what `buffer_memory` counts."""
        self.count: i64 = 0
        self.base_timestamp: i64 = 0
        self.max_timestamp: i64 = -1
        self.producer_id: i64 = NO_PRODUCER_ID
        self.producer_epoch: i64 = -1
        self.sequence: i64 = NO_SEQUENCE
        self.number: i64 = -1
        """The how-manieth batch with a sequence it is in its partition."""
        self.attempts: i64 = 0
        self.retry_at_s = 0.0
        self.is_closed = False
        self.is_doubtful = False
        """Whether it was sent without an answer: the broker may have it."""
        self.is_done = False
        self.base_offset: i64 = NO_OFFSET
        self.append_time: i64 = -1
        self.error: KafkaError | None = None
        self.record_errors: dict[int, str] | None = None
        self.parts: list[ProducerBatch] | None = None
        self._callbacks: list[Callable[[], object]] | None = None
        self._event: threading.Event | None = None

    def append(self, timestamp: i64, key: bytes | None, value: bytes | None, tail: bytes, size: i64) -> None:
        """Writes one record, whose `record_size` is `size`; `tail` are its encoded headers."""
        writer = self.writer
        assert writer is not None
        if self.count == 0:
            self.base_timestamp = timestamp
        delta: i64 = subtract_i64(timestamp, self.base_timestamp)
        write_varint(writer, size)
        writer.append(u8(0))
        write_varint(writer, delta)
        write_varint(writer, self.count)
        if key is None:
            writer.append(u8(1))
        else:
            write_varint(writer, len(key))
            writer.write(key)
        if value is None:
            writer.append(u8(1))
        else:
            write_varint(writer, len(value))
            writer.write(value)
        writer.write(tail)
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        self.count += 1
        self.size = HEADER_BYTES + len(writer)

    def record_size(self, timestamp: i64, key: bytes | None, value: bytes | None, tail: bytes) -> i64:
        """The bytes that the next record takes, without those of its length."""
        delta: i64 = 0 if self.count == 0 else subtract_i64(timestamp, self.base_timestamp)
        size: i64 = 1 + varint_size(delta) + varint_size(self.count) + len(tail)
        size += 1 if key is None else varint_size(len(key)) + len(key)
        size += 1 if value is None else varint_size(len(value)) + len(value)
        return size

    def close(self, codec: i64, level: int | None) -> None:
        """No more records: what was written becomes what is sent."""
        writer = self.writer
        if writer is not None:
            self.is_closed = True
            self.body = compress(codec, writer.getvalue(), level)
            self.writer = None

    def fill(self, body: bytes, count: i64, base_timestamp: i64, max_timestamp: i64, size: i64) -> None:
        """Takes records that are encoded already; the batch is closed with them."""
        self.is_closed = True
        self.writer = None
        self.body = body
        self.count = count
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp
        self.size = size

    def header(self, codec: i64, transactional: bool) -> bytes:
        """The batch's header for this attempt: producer and sequence may differ from the last one's."""
        return encode_header(
            self.body,
            0,
            -1,
            codec | (TRANSACTIONAL_MASK if transactional else 0),
            self.count - 1,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.sequence,
            self.count,
        )

    @property
    def has_sequence(self) -> bool:
        return self.sequence != NO_SEQUENCE

    # How it ended

    def first_error(self) -> KafkaError | None:
        """Why it, or a part of it, was not written."""
        if self.parts is None:
            return self.error if self.is_done else None
        for part in self.parts:
            error = part.first_error()
            if error is not None:
                return error
        return None

    def complete(self, base_offset: i64, append_time: i64) -> None:
        if self.is_done:
            return  # given up before the answer came
        self.base_offset = base_offset
        self.append_time = append_time
        self.error = None
        self._settle()

    def fail(self, error: KafkaError) -> None:
        if self.is_done:
            return
        self.error = error
        self._settle()

    def split_into(self, parts: list["ProducerBatch"]) -> None:
        """From now on these are what this batch was; whoever waits for it waits for the last of them."""
        with _waiting:
            self.parts = parts
            callbacks, self._callbacks = self._callbacks, None
            event = self._event
        self.writer = None
        self.body = b""
        # Which record it is about is not known here: whoever waits looks again, and waits for its own part.
        if event is not None:
            event.set()
        for callback in callbacks or ():
            callback()

    def _settle(self) -> None:
        self.writer = None
        self.body = b""
        with _waiting:
            self.is_done = True
            callbacks, self._callbacks = self._callbacks, None
            event = self._event
        if event is not None:
            event.set()
        for callback in callbacks or ():
            callback()

    def when_settled(self, callback: Callable[[], object]) -> None:
        """Has `callback` called when the batch is done or split, at once if it is; from whichever thread that is."""
        with _waiting:
            settled = self.is_done or self.parts is not None
            if not settled:
                if self._callbacks is None:
                    self._callbacks = []
                self._callbacks.append(callback)
        if settled:
            callback()

    def wait(self, timeout_s: float | None) -> bool:
        """Blocks this thread until the batch is done or split; whether it is."""
        with _waiting:
            if self.is_done or self.parts is not None:
                return True
            if self._event is None:
                self._event = threading.Event()
            event = self._event
        return event.wait(timeout_s)


@mypyc_attr(acyclic=True)
class SendFuture:
    """How one record fares: `result()` waits for where it went, or raises why it did not.

    In a coroutine, await it. On the thread of a client's own loop (a callback, a coroutine of that loop) `result` gives
    what is known and never waits.
    """

    __slots__ = ("_batch", "_index", "_timestamp")

    def __init__(self, batch: ProducerBatch, index: i64, timestamp: i64) -> None:
        self._batch = batch
        self._index: i64 = index
        self._timestamp: i64 = timestamp

    def _find(self) -> ProducerBatch:
        """The batch that this record is in now."""
        while self._batch.parts is not None:
            for part in self._batch.parts:
                if self._index < part.count:
                    self._batch = part
                    break
                self._index -= part.count
        return self._batch

    @property
    def topic(self) -> str:
        return self._batch.topic

    @property
    def partition(self) -> int:
        """The partition that was chosen; known at once."""
        return self._batch.partition

    def done(self) -> bool:
        return self._find().is_done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Where the record went. KafkaTimeoutError after `timeout` seconds without an answer."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._metadata()

    def exception(self, timeout: float | None = None) -> KafkaError | None:
        """Why the record was not written, None if it was."""
        batch = self._find()
        while not batch.is_done:
            if threading.current_thread().name == LOOP_THREAD_NAME or _in_coroutine():
                raise IllegalStateError("the record is not acknowledged yet; await it instead of waiting here")
            if not batch.wait(timeout):
                raise KafkaTimeoutError(
                    f"not acknowledged within {timeout:g} s", topic=batch.topic, partition=batch.partition
                )
            batch = self._find()
        return self._error(batch)

    def _error(self, batch: ProducerBatch) -> KafkaError | None:
        error = batch.error
        if error is None or batch.record_errors is None:
            return error
        if self._index in batch.record_errors:
            message = batch.record_errors[self._index] or error.message
        else:
            message = "another record of the same batch was refused"
        code = 87 if error.code is None else int(error.code)
        return error_for(code, message, broker=error.broker, topic=batch.topic, partition=batch.partition)

    def _metadata(self) -> RecordMetadata:
        batch = self._batch
        offset = NO_OFFSET if batch.base_offset < 0 else batch.base_offset + self._index
        if batch.append_time >= 0:
            return RecordMetadata(batch.topic, batch.partition, offset, batch.append_time, LOG_APPEND_TIME)
        return RecordMetadata(batch.topic, batch.partition, offset, self._timestamp, CREATE_TIME)

    def add_done_callback(self, callback: Callable[["SendFuture"], object]) -> None:
        """Has `callback(future)` called when it is done: on the client's loop, or here if it is done already.

        What it raises is logged and goes no further: others wait to hear of the same batch.
        """

        def look() -> None:
            if not self.done():
                self._find().when_settled(look)
                return
            try:
                callback(self)
            except BaseException as error:
                # sys.exit() ends the thread that it is called in, and that must not be the one all clients share.
                if not isinstance(error, Exception) and threading.current_thread().name != LOOP_THREAD_NAME:
                    raise
                log.exception("a callback for a record of %s-%d failed", self.topic, self.partition)

        self._find().when_settled(look)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        return _awaited(self).__await__()


LOOP_THREAD_NAME: Final = "mainstem-client"
"""The thread that the synchronous faces run their loop on."""


def _in_coroutine() -> bool:
    import asyncio

    return asyncio._get_running_loop() is not None


async def _awaited(future: SendFuture) -> RecordMetadata:
    if not future.done():
        import asyncio

        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not waiter.done():
                waiter.set_result(None)

        def done(_: SendFuture) -> None:
            # The batch may be answered on the loop of another thread.
            if asyncio._get_running_loop() is loop:
                wake()
            else:
                loop.call_soon_threadsafe(wake)

        future.add_done_callback(done)
        await waiter
    return future.result(0)
