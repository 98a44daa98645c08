"""confluent-kafka (librdkafka) behind lines of JSON; `client.py` says which."""

import sys
import time
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.compat.drivers.serving import PolledMember, plain, serve, to_bytes

BOOTSTRAP = {"bootstrap.servers": sys.argv[1]}
CONSUMER = {**BOOTSTRAP, "auto.offset.reset": "earliest", "enable.auto.commit": False, "check.crcs": True}
WAIT_S = 20.0

members: dict[str, PolledMember] = {}
admin = AdminClient({**BOOTSTRAP})


def produce(r: dict[str, Any]) -> list[list[int]]:
    producer = Producer(
        {
            **BOOTSTRAP,
            "compression.type": r["codec"],
            "acks": r["acks"],
            "enable.idempotence": r["idempotent"],
            "linger.ms": 20,
            "message.timeout.ms": 20_000,
        }
    )
    done: dict[int, list[int]] = {}
    failed: list[Exception] = []

    def report(number: int, error: Any, message: Message) -> None:
        if error is not None:
            failed.append(RuntimeError(str(error)))
        else:
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            done[number] = [partition, -1 if offset is None or r["acks"] == "0" else offset]

    for number, one in enumerate(r["records"]):
        extra = {} if one["timestamp"] is None else {"timestamp": one["timestamp"]}
        producer.produce(
            r["topic"],
            value=to_bytes(one["value"]),
            key=to_bytes(one["key"]),
            partition=-1 if one["partition"] is None else one["partition"],
            headers=[(name, to_bytes(value)) for name, value in one["headers"]],
            on_delivery=lambda error, message, number=number: report(number, error, message),
            **extra,
        )
    left = producer.flush(WAIT_S + 5)
    if failed:
        raise failed[0]
    if left:
        raise TimeoutError(f"{left} records were not delivered")
    return [done[number] for number in range(len(r["records"]))]


producers: dict[str, Producer] = {}
begun: set[str] = set()


def txn_init(r: dict[str, Any]) -> None:
    producer = Producer({**BOOTSTRAP, "transactional.id": r["id"], "message.timeout.ms": 20_000})
    producer.init_transactions(WAIT_S)
    producers[r["producer"]] = producer


def _in_transaction(r: dict[str, Any]) -> Producer:
    producer = producers[r["producer"]]
    if r["producer"] not in begun:
        producer.begin_transaction()
        begun.add(r["producer"])
    return producer


def txn_send(r: dict[str, Any]) -> None:
    producer = _in_transaction(r)
    failed: list[Any] = []
    for value in r["values"]:
        producer.produce(
            r["topic"],
            value=value.encode(),
            partition=r["partition"],
            on_delivery=lambda error, message: failed.append(error) if error else None,
        )
    producer.flush(WAIT_S)
    if failed:
        raise KafkaException(failed[0])


def txn_offset(r: dict[str, Any]) -> None:
    consumer = Consumer({**CONSUMER, "group.id": r["group"]})
    at = TopicPartition(r["topic"], 0, r["offset"])
    _in_transaction(r).send_offsets_to_transaction([at], consumer.consumer_group_metadata(), WAIT_S)
    consumer.close()


def txn_end(r: dict[str, Any]) -> None:
    producer = producers[r["producer"]]
    begun.discard(r["producer"])
    (producer.commit_transaction if r["commit"] else producer.abort_transaction)(WAIT_S)


def _plain(message: Message) -> dict[str, Any]:
    if message.error() is not None:
        raise KafkaException(message.error())
    at = message.timestamp()[1]
    headers: Any = message.headers()
    key: Any = message.key()
    value: Any = message.value()
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return plain(partition, offset, at, key, value, headers)


def fetch(r: dict[str, Any]) -> list[dict[str, Any]]:
    isolation = "read_committed" if r["committed"] else "read_uncommitted"
    consumer = Consumer({**CONSUMER, "group.id": "unused", "isolation.level": isolation})
    start = TopicPartition(r["topic"], r["partition"], 0)
    if r["offset"] is not None:
        start.offset = r["offset"]
    elif r["timestamp"] is not None:
        start.offset = r["timestamp"]
        start = consumer.offsets_for_times([start], timeout=WAIT_S)[0]
    else:
        start.offset = -2
    consumer.assign([start])
    found: list[dict[str, Any]] = []
    deadline = time.monotonic() + 15
    while len(found) < r["count"] and time.monotonic() < deadline:
        found += [_plain(message) for message in consumer.consume(500, timeout=0.2)]
    consumer.close()
    return found


def join(r: dict[str, Any]) -> None:
    settings: dict[str, Any] = {
        **CONSUMER,
        "group.id": r["group"],
        "session.timeout.ms": 10_000,
        "heartbeat.interval.ms": 500,
        "partition.assignment.strategy": r["assignor"],
    }
    if r["instance"] is not None:
        settings["group.instance.id"] = r["instance"]
    consumer = Consumer(settings)
    consumer.subscribe([r["topic"]])

    def commit() -> None:
        consumer.commit(asynchronous=False)

    members[r["member"]] = PolledMember(
        poll=lambda: [_plain(message) for message in consumer.consume(500, timeout=0.1)],
        assignment=lambda: [one.partition for one in consumer.assignment()],
        commit=commit,
        close=consumer.close,
    )


def create_topic(r: dict[str, Any]) -> None:
    topic = NewTopic(r["topic"], num_partitions=r["partitions"], config=r["configs"])
    admin.create_topics([topic])[r["topic"]].result(WAIT_S)


def describe_topic(r: dict[str, Any]) -> dict[str, int]:
    topic = admin.list_topics(r["topic"], timeout=WAIT_S).topics[r["topic"]]
    if topic.error is not None:
        raise KafkaException(topic.error)
    return {"partitions": len(topic.partitions), "leader": topic.partitions[0].leader}


def _topic(r: dict[str, Any]) -> ConfigResource:
    return ConfigResource(ResourceType.TOPIC, r["topic"])


def alter_topic_config(r: dict[str, Any]) -> None:
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in r["configs"].items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, r["topic"], incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S)


def describe_topic_config(r: dict[str, Any]) -> dict[str, Any]:
    found = admin.describe_configs([_topic(r)])[_topic(r)].result(WAIT_S)
    return {name: entry.value for name, entry in found.items()}


def describe_group(r: dict[str, Any]) -> dict[str, Any]:
    found = admin.describe_consumer_groups([r["group"]])[r["group"]].result(WAIT_S)
    return {"state": found.state.name.title().replace("_", ""), "members": len(found.members)}


def group_offsets(r: dict[str, Any]) -> dict[str, int]:
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(r["group"])])[r["group"]].result(WAIT_S)
    return {str(one.partition): one.offset for one in found.topic_partitions}


def delete_records(r: dict[str, Any]) -> int:
    at = TopicPartition(r["topic"], r["partition"], r["before"])
    return int(admin.delete_records([at])[at].result(WAIT_S).low_watermark)


def offsets(r: dict[str, Any]) -> dict[str, int]:
    at = TopicPartition(r["topic"], r["partition"])
    found = {}
    for name, spec in (("earliest", OffsetSpec.earliest()), ("latest", OffsetSpec.latest())):
        found[name] = admin.list_offsets({at: spec})[at].result(WAIT_S).offset
    return found


serve(
    {
        "produce": produce,
        "fetch": fetch,
        "txn_init": txn_init,
        "txn_send": txn_send,
        "txn_offset": txn_offset,
        "txn_end": txn_end,
        "join": join,
        "state": lambda r: members[r["member"]].state(),
        "commit": lambda r: members[r["member"]].commit(),
        "leave": lambda r: members.pop(r["member"]).leave(),
        "create_topic": create_topic,
        "list_topics": lambda r: list(admin.list_topics(timeout=WAIT_S).topics),
        "describe_topic": describe_topic,
        "create_partitions": lambda r: admin.create_partitions([NewPartitions(r["topic"], r["total"])])[
            r["topic"]
        ].result(WAIT_S),
        "delete_topic": lambda r: admin.delete_topics([r["topic"]])[r["topic"]].result(WAIT_S),
        "alter_topic_config": alter_topic_config,
        "describe_topic_config": describe_topic_config,
        "list_groups": lambda r: [one.group_id for one in admin.list_consumer_groups().result(WAIT_S).valid],
        "describe_group": describe_group,
        "group_offsets": group_offsets,
        "delete_group": lambda r: admin.delete_consumer_groups([r["group"]])[r["group"]].result(WAIT_S),
        "delete_records": delete_records,
        "offsets": offsets,
    }
)
