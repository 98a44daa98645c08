"""Copies a topic exactly once with confluent-kafka: reads, transforms, writes and commits its position in transactions.

Started with the bootstrap address, the source, the target and a transactional id. It runs until it is killed, and says
so when it cannot go on: whoever started it starts it again.
"""

import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

WAIT_S = 20.0


def positions(messages: list[Message]) -> list[TopicPartition]:
    ends: dict[tuple[str, int], int] = {}
    for message in messages:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        ends[topic, partition] = offset + 1
    return [TopicPartition(topic, partition, offset) for (topic, partition), offset in ends.items()]


def rewind(consumer: Consumer) -> None:
    """Back to where the group is: what was read in a transaction that was aborted must be read again."""
    assigned = consumer.assignment()
    for at in consumer.committed(assigned, WAIT_S):
        consumer.seek(TopicPartition(at.topic, at.partition, max(at.offset, 0)))


def copy_some(consumer: Consumer, producer: Producer, target: str) -> None:
    messages = [one for one in consumer.consume(200, timeout=0.1) if one.error() is None]
    if not messages:
        return
    producer.begin_transaction()
    for message in messages:
        value: Any = message.value()
        partition = message.partition()
        assert partition is not None
        producer.produce(target, b"<" + value + b">", partition=partition)
    producer.send_offsets_to_transaction(positions(messages), consumer.consumer_group_metadata(), WAIT_S)
    producer.commit_transaction(WAIT_S)


def main() -> None:
    bootstrap, source, target, transactional_id = sys.argv[1:5]
    quick = {
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,
        # When its only broker is away librdkafka would forget it and start over, and never send a TxnOffsetCommit
        # that it was about to send (seen with 2.16).
        "metadata.recovery.strategy": "none",
    }
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{transactional_id}-group",
            "group.instance.id": "only",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
            **quick,
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 10_000,
            "linger.ms": 2,
            **quick,
        }
    )
    producer.init_transactions(60)
    consumer.subscribe([source])
    while True:
        try:
            copy_some(consumer, producer, target)
        except KafkaException as error:
            cause: KafkaError = error.args[0]
            if not cause.txn_requires_abort() and not cause.retriable():
                raise
            producer.abort_transaction(60)
            rewind(consumer)
            time.sleep(0.05)


main()
