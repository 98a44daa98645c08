"""The producer, against every target: what it promised is what a reader finds."""

import asyncio
from collections.abc import Iterator
from uuid import uuid4

import pytest

from mainstem.client.admin_types import NewTopic
from mainstem.client.errors import (
    InvalidPartitionsError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTopicError,
    KafkaTimeoutError,
    RecordTooLargeError,
    SerializationError,
)
from mainstem.client.partitioner import partition_for_key
from mainstem.client.producer import AsyncProducer
from mainstem.client.sync_admin import Admin
from mainstem.client.sync_producer import Producer
from mainstem.client.types import LOG_APPEND_TIME
from mainstem.protocol.compression import CODEC_NAMES
from tests.support.reading import fetch_batches, read_records, read_values
from tests.support.targets import Target


@pytest.fixture
def producer(target: Target) -> Iterator[Producer]:
    with Producer(bootstrap_servers=target.bootstrap) as made:
        yield made


def new_topic(target: Target, partitions: int = 1, **configs: str) -> str:
    name = f"made-{uuid4().hex[:10]}"
    spelled = {key.replace("_", "."): value for key, value in configs.items()}
    with Admin(bootstrap_servers=target.bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions, 1, spelled)])
    return name


def test_a_record_arrives_with_everything_it_was_sent_with(target: Target, producer: Producer) -> None:
    topic = new_topic(target)
    headers: list[tuple[str, bytes | None]] = [("a", b"1"), ("b", None), ("a", b"2")]
    sent = producer.send(topic, b"value", key=b"key", timestamp_ms=1_700_000_000_123, headers=headers)
    metadata = sent.result(30)
    assert (metadata.topic, metadata.partition, metadata.offset, metadata.timestamp) == (topic, 0, 0, 1_700_000_000_123)
    assert producer.send(topic, None, key=b"key").result(30).offset == 1
    first, second = read_records(target.bootstrap, topic)
    assert (first.key, first.value, first.timestamp, first.headers) == (b"key", b"value", 1_700_000_000_123, headers)
    assert (second.key, second.value, second.headers) == (b"key", None, [])


def test_records_of_a_partition_are_in_the_order_they_were_sent_in(target: Target) -> None:
    topic = new_topic(target)
    with Producer(bootstrap_servers=target.bootstrap, linger_ms=0, batch_size=500) as producer:
        futures = [producer.send(topic, b"%d" % at) for at in range(5000)]
        producer.flush()
    assert [future.result(0).offset for future in futures] == list(range(5000))
    assert read_values(target.bootstrap, topic) == [b"%d" % at for at in range(5000)]


def test_a_key_goes_where_javas_hash_sends_it(target: Target, producer: Producer) -> None:
    topic = new_topic(target, 5)
    futures = {key: producer.send(topic, key, key=key) for key in (b"%d" % at for at in range(200))}
    producer.flush()
    for key, future in futures.items():
        assert future.result(0).partition == partition_for_key(key, 5)
    for partition in range(5):
        for record in read_records(target.bootstrap, topic, partition):
            assert record.key is not None
            assert partition_for_key(record.key, 5) == partition


def test_records_without_a_key_spread_over_all_partitions(target: Target, producer: Producer) -> None:
    topic = new_topic(target, 4)
    futures = [producer.send(topic, bytes(1000)) for _ in range(2000)]
    producer.flush()
    assert {future.result(0).partition for future in futures} == {0, 1, 2, 3}


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_every_codec_is_written_and_read(target: Target, codec: str) -> None:
    topic = new_topic(target)
    values = [b"some text that repeats, number %d" % at for at in range(300)]
    with Producer(bootstrap_servers=target.bootstrap, compression_type=codec) as producer:
        for value in values:
            producer.send(topic, value)
    batches = asyncio.run(fetch_batches(target.bootstrap, topic))
    assert {CODEC_NAMES[batch.codec] for batch in batches} == {codec}
    assert read_values(target.bootstrap, topic) == values


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_kind_of_acknowledgement_writes_the_record(target: Target, acks: int | str) -> None:
    topic = new_topic(target)
    with Producer(bootstrap_servers=target.bootstrap, acks=acks) as producer:
        assert producer.send(topic, b"first").result(30).offset == (-1 if acks == 0 else 0)
        producer.send(topic, b"second").result(30)
        # Without acknowledgements the records are on their way: one that is acknowledged on the way behind them.
        with Producer(bootstrap_servers=target.bootstrap) as other:
            for _ in range(100):
                if len(read_values(target.bootstrap, topic)) >= 2:
                    break
                other.partitions_for(topic)
    assert read_values(target.bootstrap, topic) == [b"first", b"second"]


def test_an_idempotent_batch_carries_its_producer_and_sequence(target: Target, producer: Producer) -> None:
    topic = new_topic(target)
    for at in range(3):
        producer.send(topic, b"%d" % at).result(30)
    batches = asyncio.run(fetch_batches(target.bootstrap, topic))
    assert [batch.base_sequence for batch in batches] == [0, 1, 2]
    assert len({batch.producer_id for batch in batches}) == 1
    assert batches[0].producer_id >= 0


def test_a_partition_that_there_is_not_is_an_error_that_says_how_many_there_are(target: Target) -> None:
    topic = new_topic(target, 2)
    with (
        Producer(bootstrap_servers=target.bootstrap, max_block_ms=500) as producer,
        pytest.raises(KafkaTimeoutError, match=f"the topic has 2 partitions.*topic {topic}, partition 7"),
    ):
        producer.send(topic, b"x", partition=7)


def test_a_topic_name_that_cannot_be_is_refused_at_once(target: Target, producer: Producer) -> None:
    with pytest.raises(InvalidTopicError):
        producer.send("what is this?", b"x")


def test_a_record_too_large_for_the_client_is_refused_before_it_is_sent(target: Target, producer: Producer) -> None:
    topic = new_topic(target)
    producer.send(topic, b"fits").result(30)
    with pytest.raises(RecordTooLargeError, match="max_request_size is 1048576"):
        producer.send(topic, bytes(2 << 20))


def test_a_record_too_large_for_the_topic_fails_alone(target: Target, producer: Producer) -> None:
    topic = new_topic(target, max_message_bytes="2000")
    large = producer.send(topic, bytes(3000))
    with pytest.raises(RecordTooLargeError) as caught:
        large.result(30)
    assert (caught.value.topic, caught.value.partition) == (topic, 0)
    assert caught.value.broker is not None
    assert producer.send(topic, b"small").result(30).offset == 0


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_batch_too_large_for_the_topic_is_split_and_keeps_its_order(target: Target, idempotent: bool) -> None:
    topic = new_topic(target, max_message_bytes="1000")
    options = {} if idempotent else {"enable_idempotence": False, "max_in_flight_requests_per_connection": 1}
    with Producer(bootstrap_servers=target.bootstrap, linger_ms=100, **options) as producer:
        futures = [producer.send(topic, b"%060d" % at) for at in range(200)]
        producer.flush()
    assert [future.result(0).offset for future in futures] == list(range(200))
    assert read_values(target.bootstrap, topic) == [b"%060d" % at for at in range(200)]


def test_a_full_buffer_makes_send_wait_and_loses_nothing(target: Target) -> None:
    topic = new_topic(target)
    with Producer(bootstrap_servers=target.bootstrap, buffer_memory=50_000, batch_size=5000) as producer:
        for at in range(3000):
            producer.send(topic, b"%0200d" % at)
    assert read_values(target.bootstrap, topic) == [b"%0200d" % at for at in range(3000)]


def test_log_append_time_is_the_brokers(target: Target, producer: Producer) -> None:
    topic = new_topic(target, message_timestamp_type="LogAppendTime")
    metadata = producer.send(topic, b"x", timestamp_ms=1).result(30)
    assert metadata.timestamp_type == LOG_APPEND_TIME
    assert metadata.timestamp > 1_600_000_000_000


def test_of_a_refused_batch_each_record_says_whether_it_was_the_reason(target: Target) -> None:
    topic = new_topic(target, cleanup_policy="compact")
    with Producer(bootstrap_servers=target.bootstrap, linger_ms=200) as producer:
        good = producer.send(topic, b"x", key=b"k")
        bad = producer.send(topic, b"x")
        producer.flush()
        with pytest.raises(InvalidRecordError) as of_good:
            good.result(0)
        with pytest.raises(InvalidRecordError) as of_bad:
            bad.result(0)
        assert "another record" in str(of_good.value)
        assert "another record" not in str(of_bad.value)
        assert producer.send(topic, b"y", key=b"k").result(30).offset == 0


def test_serializers_are_applied_and_their_failures_are_told(target: Target) -> None:
    topic = new_topic(target)
    with Producer(
        bootstrap_servers=target.bootstrap, key_serializer=str.encode, value_serializer=lambda value: b"%d" % value
    ) as producer:
        producer.send(topic, 42, key="answer").result(30)
        producer.send(topic, None, key="gone").result(30)
        with pytest.raises(SerializationError, match="the value serializer failed"):
            producer.send(topic, "not a number")
    records = read_records(target.bootstrap, topic)
    assert [(record.key, record.value) for record in records] == [(b"answer", b"42"), (b"gone", None)]


def test_what_is_not_bytes_and_has_no_serializer_is_refused_and_harms_nothing(
    target: Target, producer: Producer
) -> None:
    topic = new_topic(target)
    producer.send(topic, bytearray(b"first"), key=memoryview(b"k")).result(30)
    with pytest.raises(SerializationError, match="the value is str; it is bytes or None, unless value_serializer"):
        producer.send(topic, "text")
    with pytest.raises(InvalidPartitionsError, match="partition is -1"):
        producer.send(topic, b"x", partition=-1)
    with pytest.raises(InvalidTimestampError, match="timestamp_ms is -5"):
        producer.send(topic, b"x", timestamp_ms=-5)
    producer.send(topic, b"second").result(30)
    assert read_values(target.bootstrap, topic) == [b"first", b"second"]


def test_a_partitioner_of_ones_own_decides(target: Target) -> None:
    topic = new_topic(target, 3)

    def by_size(topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
        return len(value or b"") % partitions

    with Producer(bootstrap_servers=target.bootstrap, partitioner=by_size) as producer:
        futures = [producer.send(topic, bytes(size)) for size in range(9)]
        producer.flush()
    assert [future.result(0).partition for future in futures] == [0, 1, 2, 0, 1, 2, 0, 1, 2]


def test_records_after_a_topic_was_made_anew_are_written_to_the_new_one(target: Target, producer: Producer) -> None:
    topic = new_topic(target)
    producer.send(topic, b"old").result(30)
    with Admin(bootstrap_servers=target.bootstrap) as admin:
        admin.delete_topics([topic])
        while topic in admin.list_topics():
            pass
        admin.create_topics([NewTopic(topic, 1, 1)])
    assert producer.send(topic, b"new").result(60).topic == topic
    assert read_values(target.bootstrap, topic) == [b"new"]


def test_on_asyncio_records_are_awaited_one_by_one_or_all_at_once(target: Target) -> None:
    topic = new_topic(target)

    async def act() -> None:
        async with AsyncProducer(bootstrap_servers=target.bootstrap) as producer:
            assert (await producer.send_and_wait(topic, b"0")).offset == 0
            sent = [await producer.send(topic, b"%d" % at) for at in range(1, 100)]
            found = await asyncio.gather(*sent)
            assert [each.offset for each in found] == list(range(1, 100))
            told: list[int] = []
            last = await producer.send(topic, b"100")
            last.add_done_callback(lambda future: told.append(future.result().offset))
            await producer.flush()
            assert told == [100]
            assert await producer.partitions_for(topic) == [0]

    asyncio.run(asyncio.wait_for(act(), 60))


def test_many_threads_send_at_once_and_each_keeps_its_order(target: Target, producer: Producer) -> None:
    from concurrent.futures import ThreadPoolExecutor

    topic = new_topic(target)

    def send(name: int) -> None:
        for at in range(500):
            producer.send(topic, b"%d %d" % (name, at))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(send, range(4)))
    producer.flush()
    values = [value.split() for value in read_values(target.bootstrap, topic) if value is not None]
    for name in range(4):
        assert [int(at) for who, at in values if int(who) == name] == list(range(500))
