"""Transactions, against every target that has them: all or nothing, for a reader of committed records."""

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple
from uuid import uuid4

import pytest

from mainstem.client.errors import IllegalStateError, KafkaError, ProducerFencedError, RecordTooLargeError
from mainstem.client.producer import AsyncProducer
from mainstem.client.sync_admin import Admin
from mainstem.client.sync_producer import Producer
from mainstem.client.types import OffsetAndMetadata, TopicPartition
from mainstem.protocol.errors import ErrorCode
from tests.client.test_producing import new_topic
from tests.support.reading import eventually, read_values
from tests.support.targets import Target


class Group(NamedTuple):
    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@pytest.fixture
def transactional_id() -> str:
    """A fresh one."""
    return f"txn-{uuid4().hex[:10]}"


@pytest.fixture
def producer(target: Target, transactional_id: str) -> Iterator[Producer]:
    with Producer(bootstrap_servers=target.bootstrap, transactional_id=transactional_id) as made:
        yield made


def committed(target: Target, topic: str, partition: int = 0) -> list[bytes | None]:
    return read_values(target.bootstrap, topic, partition, read_committed=True)


def test_what_is_committed_is_there_in_all_partitions(target: Target, producer: Producer) -> None:
    topic = new_topic(target, 3)
    for round in range(3):
        with producer.transaction():
            for partition in range(3):
                producer.send(topic, b"%d" % round, partition=partition)
    for partition in range(3):
        eventually(partial(committed, target, topic, partition), [b"0", b"1", b"2"])


def test_what_is_aborted_is_not_there(target: Target, producer: Producer) -> None:
    topic = new_topic(target)
    with producer.transaction():
        producer.send(topic, b"first")

    class MistakeError(Exception):
        pass

    def fail() -> None:
        with producer.transaction():
            producer.send(topic, b"never").result(30)
            raise MistakeError

    with pytest.raises(MistakeError):
        fail()
    with producer.transaction():
        producer.send(topic, b"second")
    eventually(lambda: committed(target, topic), [b"first", b"second"])
    assert read_values(target.bootstrap, topic) == [b"first", b"never", b"second"]


def test_records_that_were_not_sent_when_it_aborts_are_dropped(target: Target, transactional_id: str) -> None:
    topic = new_topic(target)
    with Producer(bootstrap_servers=target.bootstrap, transactional_id=transactional_id, linger_ms=10_000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        lingering = producer.send(topic, b"never")
        producer.abort_transaction()
        with pytest.raises(IllegalStateError, match="aborted before the record was sent"):
            lingering.result(0)
        producer.begin_transaction()
        producer.send(topic, b"then")
        producer.commit_transaction()
    assert read_values(target.bootstrap, topic) == [b"then"]


def test_offsets_are_committed_with_the_records_or_not_at_all(target: Target, producer: Producer) -> None:
    topic = new_topic(target)
    group = Group(f"group-{uuid4().hex[:10]}")
    tp = TopicPartition(topic, 0)
    with Admin(bootstrap_servers=target.bootstrap) as admin:
        with producer.transaction() as transaction:
            producer.send(topic, b"x")
            transaction.send_offsets({tp: OffsetAndMetadata(7, "note")}, group)
        eventually(lambda: admin.list_group_offsets(group.group_id, require_stable=True).get(tp, ())[:2], (7, "note"))
        producer.begin_transaction()
        producer.send_offsets_to_transaction({tp: OffsetAndMetadata(9)}, group)
        producer.abort_transaction()
        eventually(lambda: admin.list_group_offsets(group.group_id, require_stable=True)[tp].offset, 7)


def test_a_second_producer_of_the_same_id_fences_the_first(target: Target, transactional_id: str) -> None:
    topic = new_topic(target)
    options = {"bootstrap_servers": target.bootstrap, "transactional_id": transactional_id}
    with Producer(**options) as first:
        first.init_transactions()
        first.begin_transaction()
        first.send(topic, b"never").result(30)
        with Producer(**options) as second:
            with second.transaction():
                second.send(topic, b"mine")
            with pytest.raises(KafkaError) as caught:
                first.commit_transaction()
            assert caught.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
            with pytest.raises((ProducerFencedError, type(caught.value))):
                first.send(topic, b"too late")
    eventually(lambda: committed(target, topic), [b"mine"])


def test_a_failed_record_leaves_only_abort_and_the_producer_goes_on_after_it(
    target: Target, producer: Producer
) -> None:
    topic = new_topic(target, max_message_bytes="1000")
    producer.init_transactions()
    producer.begin_transaction()
    with pytest.raises(RecordTooLargeError):
        producer.send(topic, bytes(2000)).result(30)
    with pytest.raises(RecordTooLargeError):
        producer.send(topic, b"refused")
    with pytest.raises(RecordTooLargeError):
        producer.commit_transaction()
    producer.abort_transaction()
    for at in range(3):
        with producer.transaction():
            producer.send(topic, b"%d" % at)
    eventually(lambda: committed(target, topic), [b"0", b"1", b"2"])


def test_sending_outside_of_a_transaction_is_refused(target: Target, producer: Producer) -> None:
    with pytest.raises(IllegalStateError, match="begin one first"):
        producer.send("topic", b"x")
    with pytest.raises(IllegalStateError, match="call init_transactions first"):
        producer.begin_transaction()
    with Producer(bootstrap_servers=target.bootstrap) as plain, pytest.raises(IllegalStateError, match="no transac"):
        plain.init_transactions()


def test_an_empty_transaction_is_nothing(target: Target, producer: Producer) -> None:
    with producer.transaction():
        pass
    with producer.transaction():
        pass


def test_closing_aborts_what_is_open(target: Target, transactional_id: str) -> None:
    topic = new_topic(target)
    with Producer(bootstrap_servers=target.bootstrap, transactional_id=transactional_id) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"never").result(30)
    with Producer(bootstrap_servers=target.bootstrap) as other:
        other.send(topic, b"after").result(30)
    eventually(lambda: committed(target, topic), [b"after"])


def test_on_asyncio_the_block_is_the_transaction(target: Target, transactional_id: str) -> None:
    topic = new_topic(target)

    async def act() -> None:
        made = AsyncProducer(bootstrap_servers=target.bootstrap, transactional_id=transactional_id)
        async with made as producer, producer.transaction():
            for at in range(100):
                await producer.send(topic, b"%d" % at)

    asyncio.run(asyncio.wait_for(act(), 60))
    eventually(lambda: committed(target, topic), [b"%d" % at for at in range(100)])


def test_transactions_are_listed_and_described(target: Target, transactional_id: str) -> None:
    topic = new_topic(target, 2)
    with (
        Admin(bootstrap_servers=target.bootstrap) as admin,
        Producer(bootstrap_servers=target.bootstrap, transactional_id=transactional_id) as producer,
    ):
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"x", partition=1).result(30)
        found = {each.transactional_id: each for each in admin.list_transactions()}
        assert found[transactional_id].state == "Ongoing"
        described = admin.describe_transactions([transactional_id])[transactional_id]
        assert (described.state, described.partitions) == ("Ongoing", [TopicPartition(topic, 1)])
        producers = admin.describe_producers([TopicPartition(topic, 1)])[TopicPartition(topic, 1)]
        assert [(each.producer_id, each.transaction_start_offset) for each in producers] == [(described.producer_id, 0)]
        producer.commit_transaction()
        assert admin.fence_producers([transactional_id])[transactional_id][0] >= 0
