import asyncio
import random
from itertools import pairwise

import pytest

from mainstem.client.accumulator import Accumulator
from mainstem.client.batches import ProducerBatch, SendFuture
from mainstem.client.errors import (
    IllegalStateError,
    InvalidPartitionsError,
    KafkaTimeoutError,
    NotLeaderOrFollowerError,
    RecordTooLargeError,
)
from mainstem.client.producer import AsyncProducer
from mainstem.client.splitting import split
from mainstem.protocol.batch import BatchView
from mainstem.protocol.builder import BatchBuilder
from mainstem.protocol.records import iterate_records


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.woken = 0

    def __call__(self) -> float:
        return self.now_s

    def wake(self) -> None:
        self.woken += 1


def make(clock: Clock, partitions: int = 1, **options: object) -> Accumulator:
    settings: dict[str, object] = {
        "batch_size": 1000,
        "linger_s": 0.005,
        "buffer_memory": 1_000_000,
        "max_request_size": 10_000,
        "now_s": clock,
        "random": random.Random(1).random,
        "wake": clock.wake,
        "clock": lambda: 1_700_000_000_000,
        **options,
    }
    accumulator = Accumulator(**settings)  # type: ignore[arg-type]
    accumulator.set_topic("t", [(1, 0)] * partitions)
    return accumulator


def append(accumulator: Accumulator, value: bytes = b"v", partition: int = 0, key: bytes | None = None) -> SendFuture:
    sent = accumulator.append("t", partition, key, value, -1, None)
    assert sent is not None
    return sent


def test_a_batch_is_ready_when_it_lingered_or_is_full() -> None:
    clock = Clock()
    accumulator = make(clock)
    append(accumulator)
    assert accumulator.ready(clock.now_s) == []
    assert accumulator.next_ready_s(clock.now_s) == 100.005
    assert len(accumulator.ready(100.006)) == 1
    append(accumulator, bytes(950))
    assert len(accumulator.ready(clock.now_s)) == 1


@pytest.mark.parametrize("reason", ["flushing", "waiting_for_room", "is_closed"])
def test_whoever_waits_does_not_wait_for_lingering(reason: str) -> None:
    clock = Clock()
    accumulator = make(clock)
    append(accumulator)
    setattr(accumulator, reason, True if reason == "is_closed" else 1)
    assert len(accumulator.ready(clock.now_s)) == 1


def test_a_batch_goes_on_growing_until_it_is_taken_and_not_past_the_largest_request() -> None:
    clock = Clock()
    accumulator = make(clock)
    for _ in range(25):
        append(accumulator, bytes(900))
    (queue,) = accumulator.ready(clock.now_s)
    assert [batch.count for batch in queue.batches] == [10, 10, 5]
    first = accumulator.take(queue)
    assert first.is_closed
    append(accumulator, b"more")
    assert [batch.count for batch in queue.batches] == [10, 6]


def test_the_sender_is_woken_once_until_it_has_looked() -> None:
    clock = Clock()
    accumulator = make(clock)
    for _ in range(5):
        append(accumulator, bytes(900))
    assert clock.woken == 1
    accumulator.ready(clock.now_s)
    append(accumulator)
    assert clock.woken == 1  # the batch was ready before: nothing is new to the sender
    accumulator.take(accumulator.ready(clock.now_s)[0])
    append(accumulator)
    assert clock.woken == 2


def test_records_that_have_no_room_are_not_taken_until_there_is() -> None:
    clock = Clock()
    accumulator = make(clock, buffer_memory=2000)
    first = append(accumulator, bytes(900))
    append(accumulator, bytes(900))
    assert accumulator.append("t", 0, None, bytes(900), -1, None) is None
    (queue,) = accumulator.ready(clock.now_s)
    batch = accumulator.take(queue)
    queue.in_flight -= 1
    accumulator.release(batch)
    batch.complete(0, -1)
    assert accumulator.used_bytes == 0
    append(accumulator, bytes(900))
    assert first.result(0).offset == 0


def test_what_cannot_ever_fit_is_refused() -> None:
    with pytest.raises(RecordTooLargeError, match="max_request_size is 10000"):
        append(make(Clock()), bytes(10_000))
    with pytest.raises(RecordTooLargeError, match="buffer_memory is 500"):
        append(make(Clock(), buffer_memory=500), bytes(600))


def test_an_unknown_topic_or_partition_has_to_wait() -> None:
    accumulator = make(Clock())
    assert accumulator.append("other", -1, None, b"", -1, None) is None
    assert accumulator.append("t", 1, None, b"", -1, None) is None
    accumulator.set_topic("t", [(1, 0), (1, 0)])
    assert accumulator.append("t", 1, None, b"", -1, None) is not None


def test_a_refusal_is_raised_before_anything_else() -> None:
    accumulator = make(Clock())
    accumulator.refusal = IllegalStateError("closed")
    with pytest.raises(IllegalStateError):
        append(accumulator)


def test_records_without_a_key_stick_to_a_partition_for_a_batch() -> None:
    accumulator = make(Clock(), 8)
    chosen = [append(accumulator, bytes(90), -1).partition for _ in range(200)]
    changes = sum(one != other for one, other in pairwise(chosen))
    assert changes <= 22
    assert len(set(chosen)) > 3


def test_they_go_where_less_is_waiting() -> None:
    accumulator = make(Clock(), 2)
    for _ in range(80):
        append(accumulator, bytes(900), 0)
    chosen = [append(accumulator, bytes(90), -1).partition for _ in range(300)]
    assert chosen.count(1) > 4 * chosen.count(0)


def test_they_go_anywhere_alike_where_a_producer_is_told_not_to_adapt() -> None:
    async def story() -> None:
        async with AsyncProducer(
            partitioner_adaptive_partitioning_enable=False, batch_size=1000, rng=random.Random(1)
        ) as producer:
            accumulator = producer.accumulator
            accumulator.set_topic("t", [(1, 0)] * 2)
            for _ in range(80):
                append(accumulator, bytes(900), 0)
            chosen = [append(accumulator, bytes(90), -1).partition for _ in range(300)]
            assert 0.5 < chosen.count(1) / chosen.count(0) < 2
            await producer.close(timeout_ms=0)

    asyncio.run(story())


def test_they_go_only_where_there_is_a_leader() -> None:
    accumulator = make(Clock(), 3)
    accumulator.set_topic("t", [(-1, 0), (1, 0), (-1, 0)])
    assert {append(accumulator, bytes(900), -1).partition for _ in range(50)} == {1}


def test_they_avoid_partitions_that_are_stuck() -> None:
    clock = Clock()
    accumulator = make(clock, 2, availability_s=1.0)
    queue = accumulator.queue_of("t", 0)
    assert queue is not None
    queue.stuck_since_s = clock.now_s - 2
    accumulator.next_sticky("t")
    assert {append(accumulator, bytes(900), -1).partition for _ in range(50)} == {1}


def test_a_topic_that_was_forgotten_goes_on_with_its_sequences() -> None:
    """A broker would take a batch that begins at 0 again for the first one, and acknowledge what it did not write."""
    accumulator = make(Clock(), 2)
    queue = accumulator.queue_of("t", 1)
    assert queue is not None
    queue.next_sequence, queue.producer_id = 7, 5
    append(accumulator, partition=1)
    assert not accumulator.drop_topic("t")
    accumulator.take_waiting()
    assert accumulator.drop_topic("t")
    assert accumulator.append("t", 1, None, b"v", -1, None) is None
    accumulator.set_topic("t", [(1, 0)] * 3)
    again = accumulator.queue_of("t", 1)
    assert again is not None
    assert (again.next_sequence, again.producer_id, again.next_ordinal) == (7, 5, 1)


def test_keys_decide_unless_they_are_to_be_ignored() -> None:
    keyed = [append(make(Clock(), 5), b"v", -1, key=b"same").partition for _ in range(20)]
    assert len(set(keyed)) == 1
    ignoring = make(Clock(), 5, ignore_keys=True)
    assert len({append(ignoring, bytes(900), -1, key=b"same").partition for _ in range(50)}) > 1


def test_a_batch_is_what_javas_builder_writes() -> None:
    batch = ProducerBatch("t", 0, 0.0, 0)
    builder = BatchBuilder(producer_id=5, producer_epoch=1, base_sequence=9, transactional=True)
    rows = [
        (1000, b"k", b"v", [("h", b"1"), ("n", None)]),
        (900, None, None, []),
        (5000, b"", b"x" * 300, []),
    ]
    from mainstem.protocol.builder import encode_headers

    for timestamp, key, value, headers in rows:
        tail = encode_headers(headers)
        batch.append(timestamp, key, value, tail, batch.record_size(timestamp, key, value, tail))
        builder.append(timestamp, key, value, headers)
    batch.producer_id, batch.producer_epoch, batch.sequence = 5, 1, 9
    batch.close(0, None)
    assert batch.header(0, True) + batch.body == builder.build()
    assert batch.size == len(builder.build())


def test_batches_put_back_stand_in_their_old_places() -> None:
    clock = Clock()
    accumulator = make(clock)
    for _ in range(35):
        append(accumulator, bytes(900))
    (queue,) = accumulator.ready(clock.now_s)
    taken = [accumulator.take(queue) for _ in range(3)]
    for batch in (taken[1], taken[2], taken[0]):
        accumulator.put_back(queue, batch)
    assert [batch.ordinal for batch in queue.batches] == [0, 1, 2, 3]


def test_expired_batches_are_taken_out_in_order() -> None:
    clock = Clock()
    accumulator = make(clock)
    for at in range(22):
        clock.now_s = 100.0 + at
        append(accumulator, bytes(900))
    assert accumulator.oldest_s() == 100.0
    assert [batch.ordinal for batch in accumulator.expired(115.0)] == [0, 1]


def test_a_future_tells_where_its_record_went() -> None:
    batch = ProducerBatch("t", 3, 0.0, 0)
    future = SendFuture(batch, 2, 77)
    told: list[int] = []
    future.add_done_callback(lambda done: told.append(done.result().offset))
    assert (future.done(), future.topic, future.partition, told) == (False, "t", 3, [])
    with pytest.raises(KafkaTimeoutError, match=r"not acknowledged within 0\.01 s"):
        future.result(0.01)
    batch.complete(40, -1)
    assert future.result() == ("t", 3, 42, 77, 0)
    assert told == [42]
    future.add_done_callback(lambda done: told.append(-1))
    assert told == [42, -1]


def test_a_future_raises_why_its_record_was_not_written() -> None:
    batch = ProducerBatch("t", 3, 0.0, 0)
    future = SendFuture(batch, 0, 77)
    batch.fail(NotLeaderOrFollowerError("moved"))
    with pytest.raises(NotLeaderOrFollowerError):
        future.result()
    assert isinstance(future.exception(), NotLeaderOrFollowerError)


def test_waiting_in_a_coroutine_is_refused_instead_of_blocking_the_loop() -> None:
    async def act() -> None:
        batch = ProducerBatch("t", 0, 0.0, 0)
        future = SendFuture(batch, 0, 1)
        with pytest.raises(IllegalStateError, match="await it"):
            future.result()
        asyncio.get_running_loop().call_soon(batch.complete, 5, -1)
        assert (await future).offset == 5

    asyncio.run(act())


def test_a_split_batch_keeps_its_records_sequences_and_futures() -> None:
    batch = ProducerBatch("t", 0, 0.0, 0)
    futures = []
    for at in range(20):
        value = b"%050d" % at
        futures.append(SendFuture(batch, at, at))
        batch.append(at, None, value, b"\x00", batch.record_size(at, None, value, b"\x00"))
    batch.producer_id, batch.producer_epoch, batch.sequence = 5, 0, 0x7FFFFFFF - 3
    batch.close(3, None)
    told: list[int] = []
    futures[19].add_done_callback(lambda done: told.append(done.result().offset))
    parts = split(batch, 400, 3, None)
    batch.split_into(parts)
    assert all(part.size <= 400 for part in parts)
    assert [part.sequence for part in parts[:3]] == [0x7FFFFFFF - 3, 1, 6]
    values = []
    for at, part in enumerate(parts):
        view = BatchView(part.header(3, False) + part.body, 0)
        values += [record.value for record in iterate_records(view)]
        part.complete(1000 * at, -1)
    assert values == [b"%050d" % at for at in range(20)]
    assert [future.result().offset for future in futures[:7]] == [0, 1, 2, 3, 4, 1000, 1001]
    assert told == [futures[19].result().offset]


@pytest.mark.parametrize("leader", [1, -1])
def test_a_topic_made_anew_with_less_partitions_gets_nothing_for_those_that_are_gone(leader: int) -> None:
    clock = Clock()
    accumulator = make(clock, partitions=8)
    keys = [b"%d" % number for number in range(50)]
    assert max(append(accumulator, key=key, partition=-1).partition for key in keys) == 7
    for queue in accumulator.queues():
        queue.is_established = True
    accumulator.set_topic("t", [(leader, 0)] * 2, is_anew=True)
    assert accumulator.partitions_of("t") == 2
    assert {append(accumulator, key=key, partition=-1).partition for key in keys} == {0, 1}
    assert append(accumulator, partition=-1).partition in (0, 1)
    assert accumulator.append("t", 2, None, b"v", -1, None) is None
    # Brokers know nothing of our sequences there: the first batch goes alone.
    assert not any(queue.is_established for queue in accumulator.queues())
    # What was taken for the others waits for its time to be up.
    gone = [queue for queue in accumulator.queues() if queue.partition >= 2]
    assert any(queue.batches for queue in gone)
    assert all(queue.leader < 0 for queue in gone)


def test_a_broker_that_lags_behind_takes_no_partitions_away() -> None:
    accumulator = make(Clock(), partitions=8)
    accumulator.set_topic("t", [(1, 0)] * 2)
    assert accumulator.partitions_of("t") == 8


def test_a_record_whose_topic_is_forgotten_while_it_is_appended_waits_until_the_topic_is_known_again() -> None:
    """Or it would be in a queue that nobody finds any more: not when its leader moves, and not when its time is up."""
    clock = Clock()

    def forget(topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
        accumulator.drop_topic(topic)
        return 0

    accumulator = make(clock, partitioner=forget)
    assert accumulator.append("t", -1, None, b"v", -1, None) is None
    assert not accumulator.incomplete
    accumulator.set_topic("t", [(1, 0)])
    append(accumulator)
    assert len(accumulator.incomplete) == 1


def test_a_record_whose_producer_closes_while_it_is_appended_is_refused() -> None:
    """Or whoever waits for it would wait for ever."""
    clock = Clock()

    def close(topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
        accumulator.close(IllegalStateError("closed"))
        return 0

    accumulator = make(clock, partitioner=close)
    assert accumulator.append("t", -1, None, b"v", -1, None) is None
    assert not accumulator.incomplete
    with pytest.raises(IllegalStateError, match="closed"):
        accumulator.append("t", -1, None, b"v", -1, None)


@pytest.mark.parametrize("chosen", [-1, 2])
def test_a_partition_that_the_topic_has_not_is_the_partitioners_mistake(chosen: int) -> None:
    accumulator = make(Clock(), partitions=2, partitioner=lambda *_: chosen)
    with pytest.raises(InvalidPartitionsError, match=f"chose {chosen}; the topic has 2 partitions"):
        accumulator.append("t", -1, None, b"v", -1, None)
