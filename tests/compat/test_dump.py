"""`mainstem dump` and Kafka's `kafka-dump-log` read the same things out of the same files."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mainstem.cli.main import main
from mainstem.client.admin_types import NewTopic
from mainstem.client.sync_admin import Admin
from mainstem.client.sync_producer import Producer
from tests.support.kafka import Kafka
from tests.support.node import Node

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition with batches of every codec, index entries and a producer snapshot, cleanly closed."""
    with Node(tmp_path_factory.mktemp("dumped")) as node:
        with Admin(bootstrap_servers=node.bootstrap) as admin:
            admin.create_topics([NewTopic("orders", 1, 1, {"index.interval.bytes": "500"})])
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            with Producer(bootstrap_servers=node.bootstrap, compression_type=codec, linger_ms=0) as producer:
                for at in range(20):
                    headers: list[tuple[str, bytes | None]] = [("codec", codec.encode())]
                    producer.send(
                        "orders", b"v" * 50, b"k%d" % at, timestamp_ms=1_600_000_000_000 + at, headers=headers
                    )
                    if at % 5 == 0:
                        producer.flush()
        node.stop()
        return node.data / "orders-0"


def ours(capsys: pytest.CaptureFixture[str], path: Path, *words: str) -> list[dict[str, Any]]:
    assert main(["dump", str(path), "--json", *words]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def theirs(kafka: Kafka, path: Path, *words: str) -> list[dict[str, str]]:
    """Lines of `name: value` pairs; what the tool says besides is left out."""
    shown = kafka.dump_log_segments("--files", str(path), *words)
    return [dict(re.findall(r"(\w+): (\S+)", line)) for line in shown.splitlines() if re.match(r"[\w|]+.*: ", line)]


def test_batches_and_records(kafka: Kafka, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "00000000000000000000.log"
    found = ours(capsys, path, "--records")
    lines = theirs(kafka, path, "--print-data-log")
    batches = [line for line in lines if "baseOffset" in line]
    assert len(batches) == len(found) > 20
    for row, line in zip(found, batches, strict=True):
        assert (row["base_offset"], row["last_offset"]) == (int(line["baseOffset"]), int(line["lastOffset"]))
        assert (row["count"], row["position"], row["size"]) == (
            int(line["count"]),
            int(line["position"]),
            int(line["size"]),
        )
        assert (row["producer_id"], row["producer_epoch"], row["base_sequence"]) == (
            int(line["producerId"]),
            int(line["producerEpoch"]),
            int(line["baseSequence"]),
        )
        assert (row["codec"], row["crc"], row["leader_epoch"]) == (
            line["compresscodec"].lower(),
            int(line["crc"]),
            int(line["partitionLeaderEpoch"]),
        )
        assert row["crc_ok"] == (line["isvalid"] == "true")
        assert row["max_timestamp"] == int(line["CreateTime"])
    records = [line for line in lines if "keySize" in line or "keysize" in line]
    mine = [record for row in found for record in row["records"]]
    assert len(records) == len(mine) == 100
    for record, line in zip(mine, records, strict=True):
        assert (record["offset"], record["timestamp"]) == (int(line["offset"]), int(line["CreateTime"]))
        assert (record["key"], record["value"]) == (line["key"], line["payload"])


def test_indexes(kafka: Kafka, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "00000000000000000000.index"
    found = [(row["offset"], row["position"]) for row in ours(capsys, path)]
    assert found == [(int(line["offset"]), int(line["position"])) for line in theirs(kafka, path) if "position" in line]
    assert len(found) > 5
    path = folder / "00000000000000000000.timeindex"
    times = [(row["timestamp"], row["offset"]) for row in ours(capsys, path)]
    assert times == [
        (int(line["timestamp"]), int(line["offset"])) for line in theirs(kafka, path) if "timestamp" in line
    ]
    assert times


def test_producers(kafka: Kafka, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = folder.glob("*.snapshot")
    names = ("producer_id", "producer_epoch", "last_sequence", "last_offset", "coordinator_epoch")
    found = sorted([row[name] for name in names] for row in ours(capsys, path))
    keys = ("producerId", "producerEpoch", "lastSequence", "lastOffset", "coordinatorEpoch")
    assert found == sorted([int(line[key]) for key in keys] for line in theirs(kafka, path) if "producerId" in line)
    assert len(found) == 5


def test_metadata(kafka: Kafka, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder.parent / "__cluster_metadata-0" / "00000000000000000000.log"
    shown = kafka.dump_log_segments("--cluster-metadata-decoder", "--files", str(path))
    expected = [
        (int(found[1]), found[2]) for found in re.finditer(r'\| offset: (\d+) .*?payload: \{"type":"(\w+)"', shown)
    ]
    told = [
        (record["offset"], re.sub(r"(?<!^)(?=[A-Z])", "_", record["type"].split()[0]).upper())
        for row in ours(capsys, path, "--records")
        for record in row["records"]
        if "control" not in row["flags"]
    ]
    assert told == expected
    assert len(told) > 3
