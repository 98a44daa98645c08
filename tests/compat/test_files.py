"""The files we write are Kafka's, byte for byte, and each of us opens what the other wrote.

Kafka writes the workload and is stopped cleanly. Its batches are then read out of its segments and appended to a log
of ours with the same settings, one append a batch as Kafka had one produce request a batch; closed, the two folders
must be equal, names and bytes.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from mainstem.core.log.config import parse_log_config
from mainstem.core.log.producers import Origin
from mainstem.protocol.batch import BatchView
from mainstem.protocol.builder import rewrite_header
from mainstem.storage.checkpoint import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, parse_offsets
from mainstem.storage.log import Log
from mainstem.storage.log_directory import LogPlace
from mainstem.storage.log_dirs import LogDirs
from mainstem.storage.meta_properties import read_meta_properties
from mainstem.storage.open_files import OpenFiles
from mainstem.storage.partition_metadata import read_topic_id
from mainstem.storage.posix import PosixFileSystem
from mainstem.storage.recovery import open_log
from tests.compat.workload import TOPICS, create_topics, end_offsets, produce_everything
from tests.support.kafka import Kafka, KafkaNode
from tests.support.log_files import Batch, batches_of, check_folder

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


def open_directory(folder: Path, now_ms: int) -> LogDirs[Log]:
    """All logs of a directory, each with the settings that the workload gave its topic."""
    fs = PosixFileSystem()
    files = OpenFiles(fs, 100)
    meta = read_meta_properties(fs, str(folder))
    assert meta is not None

    def opener(place: LogPlace) -> Log:
        config = parse_log_config(TOPICS.get(place.topic, {}))
        starts = place.log_start, place.recovery_point, place.high_watermark
        return open_log(files, place.folder, config, now_ms, *starts, clean=place.clean, gaps_until=place.gaps_until)

    dirs: LogDirs[Log] = LogDirs(fs, Random(1), [str(folder)], meta.cluster_id, meta.node_id, opener)
    for _ in dirs.load(now_ms):
        pass
    assert not dirs.failed_logs
    assert not dirs.any_offline
    return dirs


@pytest.fixture(scope="module")
def our_data(kafka_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory that we wrote from Kafka's batches, in the order and with the times Kafka had, and closed."""
    ours = tmp_path_factory.mktemp("our-files")
    shutil.copy(kafka_data / "meta.properties", ours)
    now_ms = 1_000_000_000_000
    dirs = open_directory(ours, now_ms)
    for topic in TOPICS:
        theirs = kafka_data / f"{topic}-0"
        topic_id = read_topic_id(PosixFileSystem(), str(theirs))
        assert topic_id is not None
        log = dirs.create(topic, 0, topic_id, is_new=True)
        log.assign_epoch(0)
        for data in (file.read_bytes() for file in sorted(theirs.glob("*.log"))):
            for batch in batches_of(data):
                append_as_kafka_did(log, data[batch.position : batch.position + batch.size], batch)
        log.update_high_watermark(log.log_end)
    dirs.close(broker_epoch=1, now_ms=now_ms)
    return ours


def lead_again(dirs: LogDirs[Log]) -> None:
    """An epoch in which nothing was written is forgotten when a log is opened; its leader notes it again."""
    for log in dirs.logs.values():
        log.assign_epoch(0)


def append_as_kafka_did(log: Log, data: bytes, batch: Batch) -> None:
    view = BatchView(data, 0)
    if view.is_log_append_time:
        # The producer sent CreateTime; the broker put its own time into the header.
        header = rewrite_header(view, base_offset=0, leader_epoch=-1, max_timestamp=view.base_timestamp)
    else:
        header = rewrite_header(view, base_offset=0, leader_epoch=-1)
    sent = header + data[len(header) :]
    origin = Origin.COORDINATOR if batch.is_control else Origin.CLIENT
    result = log.append_as_leader(sent, 0, len(sent), batch.leader_epoch, batch.max_timestamp, origin)
    assert result.base_offset == batch.base_offset


@pytest.mark.parametrize("topic", TOPICS)
def test_a_folder_of_ours_equals_kafkas_byte_for_byte(kafka_data: Path, our_data: Path, topic: str) -> None:
    theirs, ours = files_of(kafka_data / f"{topic}-0"), files_of(our_data / f"{topic}-0")
    assert list(ours) == list(theirs)
    for name in theirs:
        assert ours[name] == theirs[name], f"{topic}: {name} differs"


@pytest.mark.parametrize("name", [RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS])
def test_our_checkpoints_say_what_kafkas_say(kafka_data: Path, our_data: Path, name: str) -> None:
    """Kafka keeps them in a hash map: the lines are the same, their order is its own."""
    theirs, ours = (parse_offsets(name, (folder / name).read_bytes()) for folder in (kafka_data, our_data))
    assert {key: offset for key, offset in theirs.items() if key[0] in TOPICS} == ours


def test_kafkas_dump_tool_reads_ours_without_a_complaint(kafka: Kafka, our_data: Path) -> None:
    logs = sorted(str(file) for file in our_data.glob("*-0/*.log"))
    said = kafka.dump_log_segments("--deep-iteration", "--files", ",".join(logs))
    assert "isvalid: false" not in said
    assert said.count("isvalid: true") == sum(len(check_folder(files_of(our_data / f"{topic}-0"))) for topic in TOPICS)
    indexes = ",".join(sorted(str(file) for file in our_data.glob("*-0/*index")))
    for option in ("--index-sanity-check", "--verify-index-only"):
        said = kafka.dump_log_segments(option, "--files", indexes)
        for complaint in ("Found timestamp mismatch", "Found out of order", "Mismatches in", "Non-consecutive", "fail"):
            assert complaint not in said, said
        if option == "--index-sanity-check":
            kept = [file for file in our_data.glob("*-0/*index") if file.stat().st_size and file.suffix != ".txnindex"]
            assert all(f"{file} passed sanity check." in said for file in kept)
    snapshots = ",".join(sorted(str(file) for file in our_data.glob("*-0/*.snapshot")))
    assert "producerId: " in kafka.dump_log_segments("--files", snapshots)


def test_we_open_what_kafka_closed_and_leave_it_as_it_was(kafka_data: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(kafka_data, moved, ignore=shutil.ignore_patterns("__*"))
    dirs = open_directory(moved, now_ms=1_000_000_000_000)
    assert dirs.previous_broker_epoch >= 0
    assert all(log.recovery_point == log.log_end for log in dirs.logs.values())
    lead_again(dirs)
    dirs.close(broker_epoch=2, now_ms=1_000_000_000_000)
    for topic in TOPICS:
        assert files_of(moved / f"{topic}-0") == files_of(kafka_data / f"{topic}-0"), topic


def test_we_recover_what_kafka_left_behind_after_a_kill(kafka_data: Path, tmp_path: Path) -> None:
    """Without the marker every segment is read again, and what is kept beside the batches is written anew."""
    moved = tmp_path / "moved"
    shutil.copytree(kafka_data, moved, ignore=shutil.ignore_patterns("__*", ".kafka_cleanshutdown", "recovery-*"))
    dirs = open_directory(moved, now_ms=1_000_000_000_000)
    lead_again(dirs)
    dirs.close(broker_epoch=2, now_ms=1_000_000_000_000)
    for topic in TOPICS:
        theirs, ours = files_of(kafka_data / f"{topic}-0"), files_of(moved / f"{topic}-0")
        check_folder(ours)
        for name in theirs:
            if not name.endswith(("index", ".snapshot")):
                assert ours[name] == theirs[name], f"{topic}: {name} differs"


@pytest.mark.timeout(300)
def test_kafka_opens_what_we_closed(kafka: Kafka, kafka_data: Path, our_data: Path, tmp_path: Path) -> None:
    """Our folders in place of its own, with its metadata log: it serves them and stops without changing a byte."""
    home = tmp_path / "kafka"
    shutil.copytree(kafka_data, home / "data")
    for topic in TOPICS:
        shutil.rmtree(home / "data" / f"{topic}-0")
        shutil.copytree(our_data / f"{topic}-0", home / "data" / f"{topic}-0")
    with KafkaNode(kafka, home) as node:
        ends = end_offsets(node.bootstrap)
        node.stop()
    for topic in TOPICS:
        ours = files_of(our_data / f"{topic}-0")
        assert ends[topic] == parse_offsets("", (our_data / RECOVERY_POINTS).read_bytes())[topic, 0]
        theirs = files_of(home / "data" / f"{topic}-0")
        for name, data in ours.items():
            if name.endswith((".log", "index")):
                assert theirs[name] == data, f"{topic}: {name}"
