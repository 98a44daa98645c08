"""kafka-python behind lines of JSON; `client.py` says which."""

import sys
import time
from typing import Any

from kafka import (
    ConsumerGroupMetadata,
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    OffsetAndMetadata,
    TopicPartition,
)
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from tests.compat.drivers.serving import PolledMember, plain, serve, to_bytes

BOOTSTRAP = sys.argv[1]
ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
EARLIEST, LATEST = -2, -1

members: dict[str, PolledMember] = {}
_admin: list[Any] = []


def admin() -> Any:
    if not _admin:
        _admin.append(KafkaAdminClient(bootstrap_servers=BOOTSTRAP))
    return _admin[0]


def produce(r: dict[str, Any]) -> list[list[int]]:
    producer = KafkaProducer(
        bootstrap_servers=BOOTSTRAP,
        compression_type=None if r["codec"] == "none" else r["codec"],
        acks="all" if r["acks"] == "all" else int(r["acks"]),
        enable_idempotence=r["idempotent"],
        linger_ms=20,
        delivery_timeout_ms=25_000,
        request_timeout_ms=10_000,
    )
    sent = [
        producer.send(
            r["topic"],
            value=to_bytes(one["value"]),
            key=to_bytes(one["key"]),
            headers=[(name, to_bytes(value)) for name, value in one["headers"]],
            partition=one["partition"],
            timestamp_ms=one["timestamp"],
        )
        for one in r["records"]
    ]
    producer.flush(25)
    done = [future.get(25) for future in sent]
    producer.close()
    return [[one.partition, -1 if r["acks"] == "0" else one.offset] for one in done]


producers: dict[str, Any] = {}
begun: set[str] = set()


def txn_init(r: dict[str, Any]) -> None:
    producer = KafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id=r["id"], request_timeout_ms=10_000)
    producer.init_transactions()
    producers[r["producer"]] = producer


def _in_transaction(r: dict[str, Any]) -> Any:
    producer = producers[r["producer"]]
    if r["producer"] not in begun:
        producer.begin_transaction()
        begun.add(r["producer"])
    return producer


def txn_send(r: dict[str, Any]) -> None:
    producer = _in_transaction(r)
    sent = [producer.send(r["topic"], value=value.encode(), partition=r["partition"]) for value in r["values"]]
    producer.flush(25)
    for future in sent:
        future.get(25)


def txn_offset(r: dict[str, Any]) -> None:
    at = TopicPartition(r["topic"], 0)
    offsets = {at: OffsetAndMetadata(r["offset"], "", -1)}
    _in_transaction(r).send_offsets_to_transaction(offsets, ConsumerGroupMetadata(r["group"]))


def txn_end(r: dict[str, Any]) -> None:
    producer = producers[r["producer"]]
    begun.discard(r["producer"])
    (producer.commit_transaction if r["commit"] else producer.abort_transaction)()


def _consumer(**settings: Any) -> Any:
    return KafkaConsumer(
        bootstrap_servers=BOOTSTRAP, auto_offset_reset="earliest", enable_auto_commit=False, **settings
    )


def _poll(consumer: Any, timeout_ms: int) -> list[dict[str, Any]]:
    return [
        plain(one.partition, one.offset, one.timestamp, one.key, one.value, one.headers)
        for batch in consumer.poll(timeout_ms).values()
        for one in batch
    ]


def fetch(r: dict[str, Any]) -> list[dict[str, Any]]:
    consumer = _consumer(isolation_level="read_committed" if r["committed"] else "read_uncommitted")
    partition = TopicPartition(r["topic"], r["partition"])
    consumer.assign([partition])
    if r["offset"] is not None:
        consumer.seek(partition, r["offset"])
    elif r["timestamp"] is not None:
        consumer.seek(partition, consumer.offsets_for_times({partition: r["timestamp"]})[partition].offset)
    else:
        consumer.seek_to_beginning(partition)
    found: list[dict[str, Any]] = []
    deadline = time.monotonic() + 15
    while len(found) < r["count"] and time.monotonic() < deadline:
        found += _poll(consumer, 200)
    consumer.close()
    return found


def join(r: dict[str, Any]) -> None:
    consumer = _consumer(
        group_id=r["group"],
        group_instance_id=r["instance"],
        session_timeout_ms=10_000,
        heartbeat_interval_ms=500,
        partition_assignment_strategy=[ASSIGNORS[r["assignor"]]],
    )
    consumer.subscribe([r["topic"]])
    members[r["member"]] = PolledMember(
        # It joins again when the topic's partitions arrive; where a poll's time is up in the middle of that, it never
        # takes what it was assigned (a poll of 100 ms on two busy cores: 4 of 60 rounds on Kafka 4.3.1, 5 on us).
        poll=lambda: _poll(consumer, 1000),
        assignment=lambda: [one.partition for one in consumer.assignment()],
        commit=consumer.commit,
        close=consumer.close,
    )


def create_topic(r: dict[str, Any]) -> None:
    admin().create_topics({r["topic"]: {"num_partitions": r["partitions"], "configs": r["configs"]}})


def describe_topic(r: dict[str, Any]) -> dict[str, int]:
    topic = admin().describe_topics([r["topic"]])[0]
    if topic["error_code"]:
        raise LookupError(f"error {topic['error_code']}")
    return {"partitions": len(topic["partitions"]), "leader": topic["partitions"][0]["leader_id"]}


def create_partitions(r: dict[str, Any]) -> None:
    admin().create_partitions({r["topic"]: r["total"]})


def delete_topic(r: dict[str, Any]) -> None:
    admin().delete_topics([r["topic"]])


def alter_topic_config(r: dict[str, Any]) -> None:
    done = admin().alter_configs([ConfigResource(ConfigResourceType.TOPIC, r["topic"], configs=r["configs"])])
    outcome = done["topic"][r["topic"]]
    if isinstance(outcome, Exception) or "Error" in str(outcome):
        raise RuntimeError(str(outcome))


def describe_topic_config(r: dict[str, Any]) -> dict[str, Any]:
    found = admin().describe_configs([ConfigResource(ConfigResourceType.TOPIC, r["topic"])], config_filter="all")
    return {name: entry["value"] for name, entry in found["topic"][r["topic"]].items()}


def describe_group(r: dict[str, Any]) -> dict[str, Any]:
    found = admin().describe_groups([r["group"]])[r["group"]]
    return {"state": found["group_state"], "members": len(found["members"])}


def group_offsets(r: dict[str, Any]) -> dict[str, int]:
    found = admin().list_group_offsets({r["group"]: None})[r["group"]]
    return {str(at.partition): one.offset for at, one in found.items()}


def delete_group(r: dict[str, Any]) -> None:
    for outcome in dict(admin().delete_groups([r["group"]])).values():
        if outcome not in (None, "OK"):
            raise RuntimeError(str(outcome))


def delete_records(r: dict[str, Any]) -> int:
    at = TopicPartition(r["topic"], r["partition"])
    return int(admin().delete_records({at: r["before"]})[at]["low_watermark"])


def offsets(r: dict[str, Any]) -> dict[str, int]:
    at = TopicPartition(r["topic"], r["partition"])
    return {
        "earliest": admin().list_partition_offsets({at: EARLIEST})[at].offset,
        "latest": admin().list_partition_offsets({at: LATEST})[at].offset,
    }


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
        "list_topics": lambda r: admin().list_topics(),
        "describe_topic": describe_topic,
        "create_partitions": create_partitions,
        "delete_topic": delete_topic,
        "alter_topic_config": alter_topic_config,
        "describe_topic_config": describe_topic_config,
        "list_groups": lambda r: [one["group_id"] for one in admin().list_groups()],
        "describe_group": describe_group,
        "group_offsets": group_offsets,
        "delete_group": delete_group,
        "delete_records": delete_records,
        "offsets": offsets,
    }
)
