"""Transactions with each make of client, over the versions that it chooses: librdkafka, kafka-python, aiokafka, kafkajs
and Java 3.9 are clients of transaction version 1, Java 4.3 and franz-go of version 2."""

import pytest

from tests.compat.drivers.client import Client, ClientError, Sent
from tests.compat.scenarios import eventually, new_name
from tests.compat.test_clients import need, new_topic

pytestmark = pytest.mark.campaign


def committed(client: Client, topic: str, count: int, partition: int = 0) -> list[str | None]:
    return [one.value for one in client.fetch(topic, count, partition, committed=True)]


def test_committed_transactions_are_read_and_aborted_ones_are_not(client: Client) -> None:
    topic = new_topic(client, "txn", partitions=2)
    producer = client.transact("p", new_name("id"))
    for number in range(4):
        producer.send(topic, f"{number}a", f"{number}b")
        producer.send(topic, f"{number}c", partition=1)
        producer.end(commit=number % 2 == 0)
    client.produce(topic, [Sent("end", partition=0), Sent("end", partition=1)])
    assert committed(client, topic, 5) == ["0a", "0b", "2a", "2b", "end"]
    assert committed(client, topic, 3, 1) == ["0c", "2c", "end"]


def test_an_open_transaction_holds_readers_back_until_it_ends(client: Client) -> None:
    topic = new_topic(client, "open")
    client.produce(topic, [Sent("before")])
    producer = client.transact("p", new_name("id"))
    producer.send(topic, "first")
    client.produce(topic, [Sent("plain")])
    everything = ["before", "first", "plain"]
    assert [one.value for one in client.fetch(topic, 3)] == everything, "to whom it does not matter"
    assert committed(client, topic, 1) == ["before"], "one fetch would have them all"
    producer.end()
    assert committed(client, topic, 3) == everything


def test_a_new_producer_of_the_same_id_fences_the_old_one(client: Client) -> None:
    topic, transactional_id = new_topic(client, "fenced"), new_name("id")
    old = client.transact("old", transactional_id)
    old.send(topic, "zombie")
    new = client.transact("new", transactional_id)
    new.send(topic, "new")
    new.end()
    with pytest.raises(ClientError, match=r"(?i)fenced|epoch|invalid|abort"):
        old.end()
    assert committed(client, topic, 1) == ["new"]


def test_offsets_of_a_group_are_part_of_the_transaction(client: Client) -> None:
    need(client, "txn_offset")
    source, target, group = new_topic(client, "source"), new_topic(client, "target"), new_name("group")
    client.produce(source, [Sent(str(number)) for number in range(10)])
    producer = client.transact("p", new_name("id"))
    for offset, commit in ((3, True), (7, False)):
        producer.send(target, f"up to {offset}")
        producer.send_offset(group, source, offset)
        producer.end(commit)
    found = eventually(lambda: client.call("group_offsets", group=group), bool)
    assert found == {"0": 3}
    client.produce(target, [Sent("end")])
    assert committed(client, target, 2) == ["up to 3", "end"]
