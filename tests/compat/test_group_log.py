"""The log of Kafka's group coordinator and ours: each reads what the other wrote, and the bytes are the same."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from mainstem.core.group import records
from mainstem.core.group.config import GroupConfig
from mainstem.core.group.machine import GroupMachine
from mainstem.protocol.batch import iterate_batches
from mainstem.protocol.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from mainstem.protocol.messages.record_framing import GROUP_RECORDS
from mainstem.protocol.records import Record, iterate_records
from tests.support.kafka import Kafka, KafkaNode
from tests.unit.broker.coordinating import CoordinatingBroker
from tests.unit.broker.test_group_apis import commit_request, stable

pytestmark = pytest.mark.kafka

LOG = Path("__consumer_offsets-0") / "00000000000000000000.log"


def records_of(data: bytes) -> list[Record]:
    return [record for batch in iterate_batches(data, 0, len(data)) for record in iterate_records(batch)]


def use_groups(bootstrap: str) -> None:
    """A member that commits and leaves, a member that stays, and offsets without a group."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t1", 2, 1)])["t1"].result(30)
    common = {"bootstrap.servers": bootstrap, "session.timeout.ms": 30_000, "enable.auto.commit": False}
    left = Consumer({**common, "group.id": "left"})
    stays = Consumer({**common, "group.id": "stays", "group.instance.id": "i1"})
    for consumer in (left, stays):
        consumer.subscribe(["t1"])
        deadline = time.monotonic() + 30
        while not consumer.assignment() and time.monotonic() < deadline:
            consumer.poll(0.1)
        assert len(consumer.assignment()) == 2
        consumer.commit(offsets=[TopicPartition("t1", 0, 7), TopicPartition("t1", 1, 8)], asynchronous=False)
    left.close()
    stays.close()  # Static: it does not leave.
    simple = Consumer({**common, "group.id": "simple"})
    simple.commit(offsets=[TopicPartition("t1", 1, 5)], asynchronous=False)
    simple.close()


def test_what_kafka_wrote_is_loaded_and_would_be_written_alike(kafka: Kafka, tmp_path: Path) -> None:
    with KafkaNode(kafka, tmp_path) as node:
        use_groups(node.bootstrap)
        node.stop()
        found = records_of((node.data / LOG).read_bytes())
    machine = GroupMachine(GroupConfig())
    for record in found:
        assert record.key is not None
        machine.replay(record.key, record.value)
        if record.value is not None:
            assert (record.key, record.value) == rewritten(record.key, record.value)
    now_ms = int(time.time() * 1000)
    machine.loaded(now_ms)
    states = {group_id: group.state.value for group_id, group in machine.groups.items()}
    assert states == {"left": "Empty", "stays": "Stable", "simple": "Empty"}
    assert list(machine.groups["stays"].static_members) == ["i1"]
    assert machine.groups["stays"].subscribed_topics == frozenset({"t1"})
    assert {g: {k: v.offset for k, v in held.items()} for g, held in machine.store.offsets.items()} == {
        "left": {("t1", 0): 7, ("t1", 1): 8},
        "stays": {("t1", 0): 7, ("t1", 1): 8},
        "simple": {("t1", 1): 5},
    }


def rewritten(raw_key: bytes, raw_value: bytes) -> tuple[bytes, bytes | None]:
    """A record of Kafka's as we write the same."""
    key, value = GROUP_RECORDS.decode(raw_key, raw_value)
    if isinstance(key, OffsetCommitKey):
        assert isinstance(value, OffsetCommitValue)
        return records.offset_commit(key.group, key.topic, key.partition, value)
    assert isinstance(key, GroupMetadataKey)
    assert isinstance(value, GroupMetadataValue)
    return records.group_metadata(key.group, value)


def test_kafkas_dump_tool_reads_what_we_write(kafka: Kafka, tmp_path: Path) -> None:
    async def write() -> bytes:
        broker = CoordinatingBroker()
        await broker.start()
        await stable(broker, "members")
        await broker.call(commit_request("simple", [("t1", 0, 5)]), 9)
        broker.groups.close()
        return b"".join(broker.log.batches)

    path = tmp_path / LOG.name
    path.write_bytes(asyncio.run(write()))
    dumped = kafka.dump_log_segments("--offsets-decoder", "--files", str(path))
    assert '"group":"members"' in dumped
    assert '"subscription":{"topics":["t1"],"userData":null}' in dumped
    assert '{"type":"1","data":{"group":"simple","topic":"t1","partition":0}}' in dumped
    assert '"version":"4","data":{"offset":5,"leaderEpoch":3,"metadata":"x"' in dumped
    assert "Could not" not in dumped
