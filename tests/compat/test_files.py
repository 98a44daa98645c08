"""The files we write are Kafka's, byte for byte, and each of us opens what the other wrote.

Kafka writes the workload and is stopped cleanly. Its batches are then read out of its segments and appended to a log
of ours with the same settings, one append a batch as Kafka had one produce request a batch; closed, the two folders
must be equal, names and bytes.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.workload import TOPICS, create_topics, produce_everything
from tests.support.kafka import Kafka, KafkaNode
from tests.support.log_files import check_folder

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def kafka_data(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A log directory that Kafka wrote and closed."""
    with KafkaNode(kafka, tmp_path_factory.mktemp("kafka-files")) as node:
        create_topics(node.bootstrap)
        produce_everything(node.bootstrap)
        node.stop()
        yield node.data


def files_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def test_the_workload_reaches_every_kind_of_file(kafka_data: Path) -> None:
    folders = {topic: files_of(kafka_data / f"{topic}-0") for topic in TOPICS}
    for topic in ("plain", "index-full", "timed", "idempotent", "transactions"):
        assert len([name for name in folders[topic] if name.endswith(".log")]) > 1, topic
    assert any(name.endswith(".txnindex") for name in folders["transactions"])
    assert any(name.endswith(".snapshot") and len(data) > 100 for name, data in folders["idempotent"].items())


@pytest.mark.parametrize("topic", TOPICS)
def test_our_reading_of_the_format_is_kafkas(kafka_data: Path, topic: str) -> None:
    check_folder(files_of(kafka_data / f"{topic}-0"))
