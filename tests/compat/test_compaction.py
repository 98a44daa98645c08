"""Kafka's cleaner and ours leave the same records, batches and markers of the same log.

Kafka writes a compacted topic with compaction held off, and is stopped: the folder is copied. Then Kafka, started again
with the cleaner let loose, compacts its copy, and we compact ours. What is left must be the same record by record;
a second round, after the delete horizons have passed, must take the same tombstones and markers.
"""

import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from mainstem.core.log.config import LogConfig, parse_log_config
from mainstem.protocol.batch import BatchView, iterate_batches
from mainstem.protocol.records import iterate_records
from mainstem.storage.cleaner import Cleaner
from mainstem.storage.log import Log
from mainstem.storage.open_files import OpenFiles
from mainstem.storage.posix import PosixFileSystem
from mainstem.storage.recovery import open_log
from tests.support.kafka import Kafka, KafkaNode
from tests.support.log_files import check_folder

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

TOPIC = "compacted"
PARTITION = (TOPIC, 0)
DELETE_RETENTION_MS = 20_000
SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "delete.retention.ms": str(DELETE_RETENTION_MS),
    "index.interval.bytes": "2000",
    "max.message.bytes": "2000000",
}
NODE = {"log.cleaner.backoff.ms": "100", "log.cleaner.dedupe.buffer.size": "4194304"}
HELD_OFF = {**NODE, "log.cleaner.min.compaction.lag.ms": "3600000"}
LET_LOOSE = {**NODE, "log.cleaner.min.cleanable.ratio": "0.0001"}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Row = tuple[int, int, bytes | None, bytes | None]
"""Offset, timestamp, key, value."""


def producer(bootstrap: str, **settings: str | bool) -> Producer:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer({"bootstrap.servers": bootstrap, "linger.ms": 1000, "log_level": 0, **named})


def send(to: Producer, rng: Random, records: int, value_max: int = 3000, keys: int = 60) -> None:
    for _ in range(records):
        key = b"key-%d" % rng.randrange(keys)
        value = None if rng.random() < 0.2 else rng.randbytes(rng.randrange(value_max))
        to.produce(TOPIC, key=key, value=value)
    assert to.flush(60) == 0


def produce(bootstrap: str) -> None:
    rng = Random(7)
    for _ in range(5):
        for codec in CODECS:
            some = producer(bootstrap, compression_type=codec)
            for _ in range(4):
                send(some, rng, rng.randrange(1, 30))
    idempotent = producer(bootstrap, enable_idempotence=True)
    transactional = producer(bootstrap, transactional_id="writer")
    transactional.init_transactions(60)
    for turn in range(12):
        send(idempotent, rng, rng.randrange(1, 5))
        transactional.begin_transaction()
        send(transactional, rng, rng.randrange(1, 20))
        send(idempotent, rng, rng.randrange(1, 5), keys=500)
        send(transactional, rng, rng.randrange(1, 20))
        if turn % 3 == 1:
            transactional.abort_transaction(60)
        else:
            transactional.commit_transaction(60)
    # The last batch of a live producer, of which no record stays.
    for some in (idempotent, producer(bootstrap)):
        some.produce(TOPIC, key=b"written over", value=b"v")
        assert some.flush(60) == 0
    # A segment that ends what is cleaned: large enough to make the one before it inactive.
    plain = producer(bootstrap, compression_type="none")
    for _ in range(4):
        plain.produce(TOPIC, key=b"big", value=rng.randbytes(700_000))
        assert plain.flush(60) == 0


def batches_in(folder: Path) -> list[BatchView]:
    found: list[BatchView] = []
    for file in sorted(folder.glob("*.log")):
        data = file.read_bytes()
        found += list(iterate_batches(data, 0, len(data)))
    return found


def rows_in(folder: Path) -> list[Row]:
    """Every record that is left, markers included."""
    return [
        (record.offset, record.timestamp, record.key, record.value)
        for batch in batches_in(folder)
        for record in iterate_records(batch)
    ]


def shapes_in(folder: Path) -> list[tuple[int, ...]]:
    """The headers but for the sizes, which compression decides, and the horizons, which the clock does."""
    return [
        (
            batch.base_offset,
            batch.last_offset,
            batch.attributes,
            batch.record_count,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.max_timestamp,
            batch.leader_epoch,
        )
        for batch in batches_in(folder)
    ]


def wait_until(what: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "Kafka's cleaner did not get there"
        time.sleep(0.2)


def kafka_cleaned_to(data: Path) -> int:
    for line in (data / "cleaner-offset-checkpoint").read_text().splitlines():
        fields = line.split(" ")
        if fields[:2] == [TOPIC, "0"]:
            return int(fields[2])
    return -1


def active_base(folder: Path) -> int:
    return max(int(file.stem) for file in folder.glob("*.log"))


class Ours:
    """Our copy of the folder."""

    def __init__(self, folder: Path, config: LogConfig, now_ms: int) -> None:
        self.folder = folder
        self.files = OpenFiles(PosixFileSystem(), 100)
        self.log: Log = open_log(self.files, str(folder), config, now_ms, high_watermark=1 << 60)
        self.log.flush(now_ms)
        self.cleaner = Cleaner(self.files, {})

    def clean(self, now_ms: int) -> None:
        candidate = self.cleaner.choose({PARTITION: self.log}, now_ms)
        assert candidate is not None
        cleaning = self.cleaner.clean(candidate, now_ms)
        assert cleaning.is_done, cleaning.failure
        for job in self.log.due_removals(now_ms + (1 << 40)):
            job.run()


def test_both_leave_the_same(kafka: Kafka, tmp_path: Path) -> None:
    with KafkaNode(kafka, tmp_path / "kafka", HELD_OFF) as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=SETTINGS)])[TOPIC].result(60)
        produce(node.bootstrap)
        node.stop()
    theirs, ours = node.data / f"{TOPIC}-0", tmp_path / f"{TOPIC}-0"
    shutil.copytree(theirs, ours)
    before = len(rows_in(theirs))
    with KafkaNode(kafka, tmp_path / "kafka", LET_LOOSE) as node:
        wait_until(lambda: kafka_cleaned_to(node.data) == active_base(theirs))
        wait_until(lambda: not list(theirs.glob("*.cleaned")) and not list(theirs.glob("*.swap")))
        cleaned_to, cleaned_at = kafka_cleaned_to(node.data), time.monotonic()

        config = parse_log_config({**SETTINGS, "min.cleanable.dirty.ratio": "0.0001"})
        mine = Ours(ours, config, int(time.time() * 1000))
        mine.clean(int(time.time() * 1000))
        assert mine.cleaner.offsets[PARTITION] == cleaned_to
        assert rows_in(ours) == rows_in(theirs)
        assert shapes_in(ours) == shapes_in(theirs)
        assert len(rows_in(ours)) < before / 2
        assert any(batch.has_delete_horizon for batch in batches_in(ours))
        assert any(not batch.record_count for batch in batches_in(ours)), "no producer's last batch was emptied"
        theirs_files = {file.name for file in theirs.iterdir() if not file.name.endswith(".deleted")}
        ours_files = {file.name for file in ours.iterdir()}
        assert _segment_files(ours_files) == _segment_files(theirs_files)
        for name in sorted(ours_files):
            if name.endswith(".txnindex"):
                assert (ours / name).read_bytes() == (theirs / name).read_bytes(), name

        # The same again, when tombstones may go.
        time.sleep(max(0.0, DELETE_RETENTION_MS / 1000 + 1 - (time.monotonic() - cleaned_at)))
        _append_to_both(node, mine, theirs)
        wait_until(lambda: kafka_cleaned_to(node.data) == active_base(theirs) > cleaned_to)
        wait_until(lambda: not list(theirs.glob("*.cleaned")) and not list(theirs.glob("*.swap")))
        mine.clean(int(time.time() * 1000))
        assert mine.cleaner.offsets[PARTITION] == kafka_cleaned_to(node.data)
        upper = mine.cleaner.offsets[PARTITION]
        left = [row for row in rows_in(ours) if row[0] < upper]
        assert left == [row for row in rows_in(theirs) if row[0] < upper]
        assert all(value is not None for _, _, _, value in left), "a tombstone outlived its horizon"
        node.stop()

    mine.log.close(int(time.time() * 1000))
    check_folder({file.name: file.read_bytes() for file in ours.iterdir()}, complete=False, from_the_start=False)
    said = kafka.dump_log_segments("--deep-iteration", "--files", ",".join(map(str, sorted(ours.glob("*.log")))))
    assert "isvalid: false" not in said
    assert said.count("isvalid: true") == len(batches_in(ours))
    indexes = ",".join(str(file) for file in sorted(ours.glob("*index")) if file.stat().st_size)
    said = kafka.dump_log_segments("--verify-index-only", "--files", indexes)
    for complaint in ("Found out of order", "Mismatches in", "Non-consecutive", "fail"):
        assert complaint not in said, said
    # The tool looks for an entry's timestamp among the records of its batch; of an empty batch it says -1.
    assert set(re.findall(r"log timestamp: (-?\d+)", said)) <= {"-1"}, said
    _kafka_serves(kafka, node, ours, tmp_path)


def _segment_files(names: set[str]) -> set[str]:
    return {name for name in names if name.endswith((".log", "index"))}


def _append_to_both(node: KafkaNode, mine: Ours, theirs: Path) -> None:
    """Kafka gets two more large records, and we get the bytes that it made of them."""
    some = producer(node.bootstrap)
    end = mine.log.log_end
    for _ in range(3):
        some.produce(TOPIC, key=b"big", value=b"x" * 900_000)
        assert some.flush(60) == 0
    for batch in batches_in(theirs):
        if batch.base_offset >= end:
            data = batch.to_bytes()
            mine.log.append_as_follower(data, 0, len(data), batch.leader_epoch, int(time.time() * 1000))
    mine.log.update_high_watermark(mine.log.log_end)
    mine.log.flush(int(time.time() * 1000))


def _kafka_serves(kafka: Kafka, node: KafkaNode, ours: Path, tmp_path: Path) -> None:
    """Our cleaned folder in place of its own: Kafka opens it and reads the same records to a consumer."""
    theirs = node.data / f"{TOPIC}-0"
    shutil.rmtree(theirs)
    shutil.copytree(ours, theirs)
    controls = {batch.base_offset for batch in batches_in(ours) if batch.is_control}
    expected = {row[0] for row in rows_in(ours)} - controls
    with node:
        command = kafka.command(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", node.bootstrap, "--topic", TOPIC, "--from-beginning", "--timeout-ms", "60000"),
            *("--max-messages", str(len(expected))),
            *("--property", "print.offset=true", "--property", "print.value=false"),
        )
        said = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    offsets = {int(line.split(":")[1]) for line in said.splitlines() if line.startswith("Offset:")}
    assert offsets == expected
