"""Kafka's own classes read every message and record that we write, in every version, and write the same bytes."""

import random
import subprocess
from pathlib import Path

import pytest

from mainstem.protocol.schema import Message
from tests.support.kafka import Kafka
from tests.unit.protocol.message_strategies import all_messages, random_struct, versions_of

pytestmark = pytest.mark.kafka

EXAMPLES = 10
PACKAGES = {
    "metadata_records": "org.apache.kafka.common.metadata.",
    "group_records": "org.apache.kafka.coordinator.group.generated.",
    "share_group_records": "org.apache.kafka.coordinator.group.generated.",
    "streams_group_records": "org.apache.kafka.coordinator.group.generated.",
    "txn_records": "org.apache.kafka.coordinator.transaction.generated.",
    "share_records": "org.apache.kafka.coordinator.share.generated.",
    "raft": "org.apache.kafka.raft.generated.",
}
OTHER_NAMES = {"ControlRecordType": "ControlRecordTypeSchema"}


def java_class(cls: type[Message]) -> str:
    module = cls.__module__.rpartition(".")[2]
    if module in PACKAGES:
        return PACKAGES[module] + cls.__name__
    suffix = "Data" if cls.API_KEY >= 0 or module == "headers" else ""
    return f"org.apache.kafka.common.message.{OTHER_NAMES.get(cls.__name__, cls.__name__)}{suffix}"


def test_kafka_reads_what_we_write_and_writes_the_same(kafka: Kafka) -> None:
    rng = random.Random("echo")
    sent = []
    for cls in all_messages():
        for version in versions_of(cls):
            for _ in range(EXAMPLES):
                message: Message = random_struct(cls, version, rng)
                if cls.is_flexible(version) and rng.random() < 0.3:
                    message.unknown_tags = {rng.randrange(20, 300): rng.randbytes(3)}
                data = message.encode(version)
                assert cls.decode(data, version) == message
                sent.append((java_class(cls), version, data.hex()))
    source = Path(__file__).with_name("EchoMessages.java")
    lines = "".join(f"{name} {version} {data}\n" for name, version, data in sent)
    done = subprocess.run(kafka.command(str(source)), input=lines, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    for (name, version, written), answer in zip(sent, done.stdout.splitlines(), strict=True):
        assert answer == f"0 {written}", f"{name} v{version}"
