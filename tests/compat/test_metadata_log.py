"""The metadata log is Kafka's: either system opens what the other wrote, and the controllers decide alike."""

import asyncio
import re
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from mainstem.broker.drivers.quorum import FOLDER
from mainstem.core.controller.image import ClusterImage
from mainstem.protocol.batch import iterate_batches
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k19_create_topics import CreateTopicsResponse
from mainstem.protocol.messages.metadata_records import NoOpRecord, PartitionRecord, RegisterBrokerRecord, TopicRecord
from mainstem.protocol.messages.record_framing import decode_metadata_record
from mainstem.protocol.records import iterate_records
from mainstem.protocol.rpc import decode_response, encode_request
from mainstem.protocol.schema import Message
from mainstem.protocol.uuids import uuid_to_text
from mainstem.storage.metadata_snapshot import find_snapshots
from mainstem.storage.posix import PosixFileSystem
from tests.compat.controller_requests import all_cases, create, topic
from tests.support.kafka import Kafka, KafkaNode
from tests.support.metadata_node import InlineLoop, MetadataNode

pytestmark = pytest.mark.kafka

T = TypeVar("T")

ANSWERED_BY_THE_BROKER = {"logger"}
"""What our broker answers without asking its controller."""


def run(work: Callable[[asyncio.AbstractEventLoop], Awaitable[T]]) -> T:
    loop = InlineLoop()
    try:
        return loop.run_until_complete(asyncio.wait_for(work(loop), 120))
    finally:
        loop.close()


def written(data: Path) -> list[Message]:
    """Every metadata record in the log of a directory."""
    found = []
    for path in sorted((data / FOLDER).glob("*.log")):
        raw = path.read_bytes()
        for batch in iterate_batches(raw, 0, len(raw)):
            if not batch.is_control:
                found += [decode_metadata_record(each.value or b"")[0] for each in iterate_records(batch)]
    return found


class Kafkas:
    """One connection to a Kafka node's controller."""

    def __init__(self, home: Path) -> None:
        settings = (home / "server.properties").read_text()
        match = re.search(r"CONTROLLER://127\.0\.0\.1:(\d+)", settings)
        assert match is not None
        self._socket = socket.create_connection(("127.0.0.1", int(match[1])), 30)

    def ask(self, request: Message, version: int) -> Message:
        self._socket.sendall(encode_request(request, version, 1, "test"))
        return decode_response(self._receive(*struct.unpack(">i", self._receive(4))), request.API_KEY, version)[1]

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            assert more, "Kafka closed the connection"
            data += more
        return data

    def close(self) -> None:
        self._socket.close()


def comparable(answer: Message) -> str:
    """An answer without what two systems cannot share: ids, and the words of their messages."""
    text = re.sub(r"<ErrorCode\.\w+: (-?\d+)>", r"\1", repr(answer))
    text = re.sub(r"topic_id=<(?!QEBA)[^>]*>", "topic_id=…", text)
    text = re.sub(r"error_message=(\"[^\"]*\"|'[^']*')", "error_message=…", text)
    # Kafka shuffles these, or lists them in the order of a hash table.
    for unordered in ("DeletableTopicResult", "AlterConfigsResourceResponse", "ReplicaElectionResult"):
        items = re.findall(rf"{unordered}\([^()]*\)", text)
        if len(items) > 1:
            return "".join(sorted(items))
    return text


def comparable_records(records: list[Message]) -> list[str]:
    """What was written from the first topic on, up to the last request, with topics by name and directories alike."""
    first = next(at for at, record in enumerate(records) if isinstance(record, TopicRecord))
    names: dict[str, str] = {}
    for record in records:
        if isinstance(record, TopicRecord):
            names[f"<{uuid_to_text(record.topic_id)}>"] = f"<{record.name}>"
    found = []
    for record in records[first:]:
        if isinstance(record, NoOpRecord):
            continue
        text = repr(record)
        if "in_controlled_shutdown=1" in text:
            break
        for topic_id, name in names.items():
            text = text.replace(topic_id, name)
        found.append(re.sub(r"directories=\[[^]]*\]", "directories=…", text))
    return found


def test_the_same_requests_get_the_same_answers_and_leave_the_same_records(kafka: Kafka, tmp_path: Path) -> None:
    theirs: dict[str, str] = {}
    with KafkaNode(kafka, tmp_path / "kafka") as node:
        controller = Kafkas(tmp_path / "kafka")
        for label, request, version in all_cases():
            theirs[label] = comparable(controller.ask(request, version))
        controller.close()
        node.stop()

    async def ask_ours(loop: asyncio.AbstractEventLoop) -> dict[str, str]:
        (tmp_path / "ours").mkdir()
        ours = MetadataNode(loop, PosixFileSystem(), str(tmp_path / "ours"))
        await ours.start()
        answers = {}
        for label, request, version in all_cases():
            answer = await ours.channel.send(request, version)
            answers[label] = comparable(type(answer).decode(answer.encode(version), version))
        await ours.stop()
        return answers

    ours = run(ask_ours)
    assert ours.keys() == theirs.keys()
    for label in ours.keys() - ANSWERED_BY_THE_BROKER:
        assert ours[label] == theirs[label], label
    assert comparable_records(written(tmp_path / "ours")) == comparable_records(written(tmp_path / "kafka" / "data"))


async def our_life(
    loop: asyncio.AbstractEventLoop, data: Path, name: str, clean: bool, **settings: str
) -> MetadataNode:
    """Opens the directory, creates one topic, and stops or is killed."""
    data.mkdir(parents=True, exist_ok=True)
    node = MetadataNode(loop, PosixFileSystem(), str(data), **settings)  # type: ignore[arg-type]
    await node.start()
    answer = await node.channel.send(create(topic(name, 3, 1, configs={"retention.ms": "123456"})), 7)
    assert isinstance(answer, CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.NONE
    if clean:
        await node.stop()
    else:
        node.abandon()
    return node


def topics_of(node: KafkaNode) -> dict[str, int]:
    """The topics that clients see, with their number of partitions that have a leader."""
    listed = AdminClient({"bootstrap.servers": node.bootstrap}).list_topics(timeout=30).topics
    return {
        name: sum(1 for part in found.partitions.values() if part.leader == 1)
        for name, found in listed.items()
        if not name.startswith("__")
    }


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_kafka_opens_our_directory_and_we_open_it_again(kafka: Kafka, tmp_path: Path, clean: bool) -> None:
    node = KafkaNode(kafka, tmp_path)
    ours = run(lambda loop: our_life(loop, node.data, "ours", clean))
    with node:
        assert topics_of(node) == {"ours": 3}
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        for done in admin.create_topics([NewTopic("theirs", 2, 1)]).values():
            done.result(30)
        node.stop() if clean else node.kill()
    again = run(lambda loop: our_life(loop, node.data, "again", clean))
    assert set(again.image.topics) == {"ours", "theirs", "again"}
    assert again.image.topics["ours"].topic_id == ours.image.topics["ours"].topic_id
    assert again.image.config(2, "ours") == {"retention.ms": "123456"}
    assert again.lifecycle.epoch > ours.lifecycle.epoch
    epochs = [ours.quorum.machine.epoch, again.quorum.machine.epoch]
    assert epochs == [1, 3], "Kafka led in between"


def test_kafka_starts_from_our_snapshot(kafka: Kafka, tmp_path: Path) -> None:
    node = KafkaNode(kafka, tmp_path)
    small = {"metadata_log_max_record_bytes_between_snapshots": "1", "metadata_max_retention_bytes": "1"}
    for name in ("one", "two", "three"):
        run(lambda loop, name=name: our_life(loop, node.data, name, True, **small))  # type: ignore[misc]
    snapshots = sorted(path.name for path in (node.data / FOLDER).glob("*.checkpoint"))
    assert len(snapshots) == 1
    assert not snapshots[0].startswith("0" * 20)
    assert not (node.data / FOLDER / f"{0:020d}.log").exists()
    with node:
        assert topics_of(node) == {"one": 3, "two": 3, "three": 3}
        node.stop()


def test_kafkas_tool_reads_our_log_and_snapshots(kafka: Kafka, tmp_path: Path) -> None:
    run(lambda loop: our_life(loop, tmp_path, "orders", True, metadata_log_max_record_bytes_between_snapshots="2000"))
    for path in [*(tmp_path / FOLDER).glob("*.log"), *(tmp_path / FOLDER).glob("*.checkpoint")]:
        dump = kafka.dump_log_segments("--cluster-metadata-decoder", "--files", str(path))
        assert "isvalid: false" not in dump
        assert not re.search("(?i)exception|error|mismatch", dump), dump
    whole = kafka.dump_log_segments(
        "--cluster-metadata-decoder", "--files", str(min((tmp_path / FOLDER).glob("*.log")))
    )
    for kind in ("LeaderChange", "KRaftVoters", "BEGIN_TRANSACTION_RECORD", "REGISTER_BROKER_RECORD", "TOPIC_RECORD"):
        assert kind in whole


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_we_open_kafkas_directory(kafka: Kafka, tmp_path: Path, clean: bool) -> None:
    with KafkaNode(kafka, tmp_path) as node:
        controller = Kafkas(tmp_path)
        controller.ask(create(topic("theirs", 4, 1, configs={"cleanup.policy": "compact"})), 7)
        controller.close()
        node.stop() if clean else node.kill()
    before = written(node.data)
    found = run(lambda loop: our_life(loop, node.data, "ours", True))
    assert set(found.image.topics) == {"theirs", "ours"}
    assert found.image.config(2, "theirs") == {"cleanup.policy": "compact"}
    partitions = [record for record in before if isinstance(record, PartitionRecord)]
    registered = [record for record in before if isinstance(record, RegisterBrokerRecord)]
    state = found.image.partition("theirs", 0)
    assert state is not None
    assert list(state.directories) == partitions[0].directories == registered[0].log_dirs
    assert found.lifecycle.epoch > registered[-1].broker_epoch
    with node:
        assert topics_of(node) == {"theirs": 4, "ours": 3}
        node.stop()


def test_kafkas_snapshots_hold_what_its_log_says(kafka: Kafka, tmp_path: Path) -> None:
    with KafkaNode(kafka, tmp_path, {"metadata.log.max.record.bytes.between.snapshots": "1500"}) as node:
        controller = Kafkas(tmp_path)
        for _, request, version in all_cases():
            controller.ask(request, version)
        controller.close()
        node.stop()
    replayed = ClusterImage()
    replayed.replay_all(written(node.data))
    snapshots = find_snapshots(PosixFileSystem(), str(node.data / FOLDER))
    assert len(snapshots) > 1

    async def load(loop: asyncio.AbstractEventLoop) -> list[bytes]:
        return list(MetadataNode(loop, PosixFileSystem(), str(node.data)).image.encoded_records())

    assert run(load) == list(replayed.encoded_records())
