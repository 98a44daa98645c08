"""A consumer without a group reads what is there, from where it was told, once and in order."""

import time

import pytest

from mainstem.client.consumer import AsyncConsumer
from mainstem.client.errors import (
    IllegalStateError,
    InvalidOptionError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    SerializationError,
    UnknownTopicOrPartitionError,
)
from mainstem.client.types import OffsetAndTimestamp, TopicPartition
from tests.client.consumer_support import Target, read, target, until, values

__all__ = ["target"]


def test_every_record_of_every_partition_comes_once_and_in_order(target: Target) -> None:
    topic = target.topic(3)
    written = {number: target.fill(topic, number, 1000) for number in range(3)}
    with target.consumer(topic) as consumer:
        records = read(consumer, 3000)
        assert consumer.poll(200) == []
    for number in range(3):
        mine = [record for record in records if record.partition == number]
        assert values(mine) == written[number]
        assert [record.offset for record in mine] == list(range(1000))


def test_a_record_has_its_key_headers_and_timestamp(target: Target) -> None:
    topic = target.topic()
    target.writer.send(topic, 0, [b"v"], timestamp=123_456_789, headers=[("a", b"1"), ("b", None)])
    with target.consumer(topic) as consumer:
        (record,) = read(consumer, 1)
    assert (record.topic, record.partition, record.offset) == (topic, 0, 0)
    assert (record.key, record.value, record.timestamp) == (b"key-0", b"v", 123_456_789)
    assert record.headers == [("a", b"1"), ("b", None)]
    assert record.timestamp_type == 0


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_every_codec_is_read(target: Target, codec: int) -> None:
    topic = target.topic()
    wanted = [b"%d" % number * 20 for number in range(500)]
    target.writer.send(topic, 0, wanted, codec=codec)
    with target.consumer(topic) as consumer:
        assert values(read(consumer, 500)) == wanted


def test_records_larger_than_the_bounds_still_come(target: Target) -> None:
    topic = target.topic()
    large = [bytes([number]) * 300_000 for number in range(5)]
    for value in large:
        target.writer.send(topic, 0, [value])
    with target.consumer(topic, max_partition_fetch_bytes=1000, fetch_max_bytes=1000) as consumer:
        assert values(read(consumer, 5)) == large


def test_poll_gives_no_more_than_it_was_asked_for(target: Target) -> None:
    topic = target.topic()
    written = target.fill(topic, 0, 1000)
    with target.consumer(topic, max_poll_records=7) as consumer:
        found: list[bytes] = []
        while len(found) < 1000:
            records = consumer.poll(1000)
            assert len(records) <= 7
            found += values(records)
        assert found == written
        consumer.seek(TopicPartition(topic, 0), 0)
        assert len(consumer.poll(5000, max_records=3)) == 3


def test_iterating_gives_record_after_record_and_poll_the_rest(target: Target) -> None:
    topic = target.topic()
    written = target.fill(topic, 0, 30)
    tp = TopicPartition(topic, 0)
    with target.consumer(topic) as consumer:
        found = []
        for record in consumer:
            found.append(record.value)
            if len(found) == 10:
                break
        assert consumer.position(tp) == 10
        found += values(read(consumer, 20))
        assert found == written


def test_reading_starts_where_it_is_told_to(target: Target) -> None:
    topic = target.topic()
    target.fill(topic, 0, 10)
    tp = TopicPartition(topic, 0)
    with target.consumer(topic, auto_offset_reset="latest") as consumer:
        assert consumer.position(tp) == 10
        target.fill(topic, 0, 1, first=10)
        assert values(read(consumer, 1)) == [b"0:10"]
    with target.consumer(topic, auto_offset_reset="earliest") as consumer:
        assert consumer.position(tp) == 0


def test_reading_may_start_a_duration_ago(target: Target) -> None:
    topic = target.topic()
    now = int(time.time() * 1000)
    for minutes, value in ((20, b"old"), (9, b"new"), (1, b"newest")):
        target.writer.send(topic, 0, [value], timestamp=now - minutes * 60_000)
    with target.consumer(topic, auto_offset_reset="by_duration:PT10M") as consumer:
        assert values(read(consumer, 2)) == [b"new", b"newest"]
    with target.consumer(topic, auto_offset_reset="by_duration:PT0S") as consumer:
        assert consumer.position(TopicPartition(topic, 0)) == 3


def test_without_a_way_to_reset_somebody_has_to_decide(target: Target) -> None:
    topic = target.topic()
    target.fill(topic, 0, 3)
    tp = TopicPartition(topic, 0)
    with target.consumer(auto_offset_reset="none") as consumer:
        consumer.assign([tp])
        with pytest.raises(NoOffsetForPartitionError, match=topic):
            consumer.poll(5000)
        consumer.seek(tp, 100)
        with pytest.raises(OffsetOutOfRangeError, match=topic):
            consumer.poll(5000)
        consumer.seek(tp, 1)
        assert values(read(consumer, 2)) == [b"0:1", b"0:2"]


def test_a_seek_right_after_an_assignment_needs_no_way_to_reset(target: Target) -> None:
    topic = target.topic()
    target.fill(topic, 0, 3)
    tp = TopicPartition(topic, 0)
    with target.consumer(auto_offset_reset="none") as consumer:
        consumer.assign([tp])
        # By now it has found out that there is nowhere to begin; nobody has been told.
        until(lambda: consumer._core._positions._failure is not None)
        consumer.seek(tp, 1)
        assert values(read(consumer, 2)) == [b"0:1", b"0:2"]
        assert consumer.poll(50) == []


def test_an_offset_out_of_range_is_reset(target: Target) -> None:
    topic = target.topic()
    written = target.fill(topic, 0, 3)
    with target.consumer(topic) as consumer:
        consumer.seek(TopicPartition(topic, 0), 1000)
        assert values(read(consumer, 3)) == written


def test_seeking_goes_back_and_forth(target: Target) -> None:
    topic = target.topic()
    written = target.fill(topic, 0, 1000)
    tp = TopicPartition(topic, 0)
    with target.consumer(topic) as consumer:
        for offset in (500, 0, 999, 250, 500):
            consumer.seek(tp, offset)
            assert consumer.position(tp) == offset
            assert values(read(consumer, 1)) == [written[offset]]
        consumer.seek_to_beginning()
        assert values(read(consumer, 1)) == [written[0]]
        consumer.seek_to_end(tp)
        assert consumer.position(tp) == 1000


def test_a_paused_partition_keeps_its_records_and_others_go_on(target: Target) -> None:
    topic = target.topic(2)
    one, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    target.fill(topic, 0, 100)
    with target.consumer(topic) as consumer:
        assert len(read(consumer, 50)) == 50
        consumer.pause(one)
        assert consumer.paused == [one]
        target.fill(topic, 1, 10)
        assert {record.partition for record in read(consumer, 10)} == {1}
        assert consumer.poll(200) == []
        consumer.resume(one)
        assert [record.offset for record in read(consumer, 50)] == list(range(50, 100))
        assert consumer.position(other) == 10


def test_assigning_anew_reads_only_what_is_assigned(target: Target) -> None:
    topic = target.topic(2)
    target.fill(topic, 0, 10)
    target.fill(topic, 1, 10)
    with target.consumer() as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert {record.partition for record in read(consumer, 5)} == {0}
        consumer.assign([TopicPartition(topic, 1)])
        assert [record.partition for record in read(consumer, 10)] == [1] * 10
        assert consumer.assignment == [TopicPartition(topic, 1)]


def test_the_ends_of_a_log_and_offsets_by_time(target: Target) -> None:
    topic = target.topic(2)
    one, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    target.writer.send(topic, 0, [b"a"], timestamp=1000)
    target.writer.send(topic, 0, [b"b"], timestamp=2000)
    with target.consumer() as consumer:
        assert consumer.beginning_offsets([one, other]) == {one: 0, other: 0}
        assert consumer.end_offsets([one, other]) == {one: 2, other: 0}
        found = consumer.offsets_for_times({one: 1001, other: 0})
        assert found[one] == OffsetAndTimestamp(1, 2000, 0)
        assert found[other] is None
        assert consumer.offsets_for_times({one: 2001}) == {one: None}
        assert consumer.partitions_for(topic) == [0, 1]


def test_lag_is_what_is_left_to_read(target: Target) -> None:
    topic = target.topic()
    tp = TopicPartition(topic, 0)
    target.fill(topic, 0, 10)
    with target.consumer(topic) as consumer:
        assert consumer.lag(tp) is None
        assert len(read(consumer, 4)) == 4
        assert consumer.lag(tp) == 6


def test_what_is_fetched_ahead_is_bounded(target: Target) -> None:
    topic = target.topic(4)
    for number in range(4):
        for _ in range(8):
            target.writer.send(topic, number, [bytes(1000)] * 50)
    with target.consumer(topic, max_partition_fetch_bytes=60_000, fetch_max_bytes=150_000) as consumer:
        assert len(read(consumer, 1)) == 1
        most = 0
        for _ in range(30):
            states = consumer._core._subscription.partitions.values()
            most = max(most, sum(state.buffered_bytes for state in states))
            time.sleep(0.01)
        assert 0 < most <= 150_000 + 60_000
        assert len(read(consumer, 1599)) == 1599


def test_deserializers_are_applied_and_a_bad_record_can_be_passed(target: Target) -> None:
    topic = target.topic()
    target.writer.send(topic, 0, [b"1", b"x", b"3"])
    tp = TopicPartition(topic, 0)
    with target.consumer(topic, value_deserializer=int, key_deserializer=bytes.decode) as consumer:
        (record,) = consumer.poll(5000)
        assert (record.key, record.value) == ("key-0", 1)
        with pytest.raises(SerializationError, match=r"offset 1 .* seek past it"):
            consumer.poll(5000)
        consumer.seek(tp, 2)
        assert [record.value for record in read(consumer, 1)] == [3]


def test_read_committed_leaves_out_what_was_aborted(target: Target) -> None:
    from confluent_kafka import Producer

    topic = target.topic()
    producer = Producer({"bootstrap.servers": target.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    wanted = []
    for number in range(6):
        producer.begin_transaction()
        for nth in range(10):
            producer.produce(topic, b"%d.%d" % (number, nth), partition=0)
        producer.flush(30)
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            wanted += [b"%d.%d" % (number, nth) for nth in range(10)]
    with target.consumer(topic, isolation_level="read_committed") as consumer:
        assert values(read(consumer, 30)) == wanted
        assert consumer.poll(300) == []
    with target.consumer(topic, isolation_level="read_uncommitted") as consumer:
        assert len(read(consumer, 60)) == 60


def test_read_committed_waits_for_a_transaction_that_is_open(target: Target) -> None:
    from confluent_kafka import Producer

    topic = target.topic()
    producer = Producer({"bootstrap.servers": target.bootstrap, "transactional.id": topic, "linger.ms": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"a", partition=0)
    producer.flush(10)
    target.writer.send(topic, 0, [b"b"])
    with target.consumer(topic, isolation_level="read_committed") as consumer:
        assert consumer.poll(500) == []
        assert consumer.end_offsets([TopicPartition(topic, 0)]) == {(topic, 0): 0}
        producer.commit_transaction(30)
        assert values(read(consumer, 2)) == [b"a", b"b"]


def test_many_partitions_share_a_session(target: Target) -> None:
    topic = target.topic(50)
    with target.consumer(topic) as consumer:
        consumer.poll(200)
        for round_ in range(3):
            for number in range(0, 50, 7):
                target.fill(topic, number, 5, first=5 * round_)
            assert len(read(consumer, 40)) == 40


def test_partitions_that_are_added_are_read_from_their_beginning(target: Target) -> None:
    topic = target.topic()
    with target.consumer(topic, auto_offset_reset="latest", metadata_max_age_ms=100) as consumer:
        consumer.poll(100)
        target.grow(topic, 2)
        written = target.fill(topic, 1, 3)
        assert values(read(consumer, 3)) == written


def test_a_topic_that_is_not_there_is_told(target: Target) -> None:
    with (
        pytest.raises(UnknownTopicOrPartitionError, match="nowhere"),
        target.consumer("nowhere", allow_auto_create_topics=False, default_api_timeout_ms=500),
    ):
        pass


def test_mistakes_are_told_in_a_sentence(target: Target) -> None:
    with pytest.raises(InvalidOptionError, match="did you mean 'group_id'"):
        target.consumer(group_idd="g")
    with pytest.raises(InvalidOptionError, match="partition_assignment_strategy has 'rang'"):
        target.consumer(group_id="g", partition_assignment_strategy="rang")
    with target.consumer() as consumer:
        with pytest.raises(IllegalStateError, match="subscribe or assign first"):
            consumer.poll()
        with pytest.raises(IllegalStateError, match="needs a group_id"):
            consumer.subscribe(["a"])
        with pytest.raises(IllegalStateError, match="not assigned"):
            consumer.seek(TopicPartition("a", 0), 1)
        with pytest.raises(IllegalStateError, match="no group_id"):
            consumer.commit()
    with pytest.raises(IllegalStateError, match="closed"):
        consumer.position(TopicPartition("a", 0))


def test_the_asynchronous_face_reads_alike(target: Target) -> None:
    import asyncio

    topic = target.topic(2)
    wanted = sorted(target.fill(topic, 0, 100) + target.fill(topic, 1, 100))

    async def story() -> list[bytes]:
        found: list[bytes] = []
        async with AsyncConsumer(topic, bootstrap_servers=target.bootstrap, auto_offset_reset="earliest") as consumer:
            assert sorted(consumer.assignment) == [(topic, 0), (topic, 1)]
            async for record in consumer:
                found.append(record.value)
                if len(found) == 150:
                    break
            while len(found) < 200:
                found += [record.value for record in await consumer.poll(1000)]
            assert await consumer.end_offsets(consumer.assignment) == {(topic, 0): 100, (topic, 1): 100}
        return sorted(found)

    assert asyncio.run(story()) == wanted
