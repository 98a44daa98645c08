"""`mainstem dump` on files that are made here, whole and damaged; beside Kafka's own tool in tests/compat."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from mainstem.cli.dump import kind_of
from mainstem.cli.main import main
from mainstem.core.log.epochs import EpochEntry, LeaderEpochs
from mainstem.protocol.builder import BatchBuilder
from mainstem.protocol.compression import ZSTD
from mainstem.protocol.control import EndMarker, build_end_marker
from mainstem.protocol.messages.metadata_records import TopicRecord
from mainstem.protocol.messages.record_framing import encode_metadata_record
from mainstem.storage.leader_epoch_file import format_leader_epochs
from mainstem.storage.metadata_snapshot import Snapshot, encode_snapshot
from mainstem.storage.names import offset_name
from mainstem.storage.txn_index import AbortedTransaction

TOPIC_ID = bytes(range(16))


def segment(folder: Path, *, base: int = 0) -> Path:
    first = BatchBuilder(base_offset=base, leader_epoch=3, codec=ZSTD)
    first.append(1_600_000_000_000, b"key", b"value", [("h", b"1")])
    first.append(1_600_000_000_001, None, None)
    second = BatchBuilder(
        base_offset=base + 2, producer_id=9, producer_epoch=1, base_sequence=4, transactional=True, leader_epoch=3
    )
    second.append(1_600_000_000_002, b"\xff", b"x")
    marker = build_end_marker(EndMarker(9, 1, False, 7, base + 3, 1_600_000_000_003), 3)
    folder.mkdir(exist_ok=True)
    path = folder / offset_name(base, ".log")
    path.write_bytes(first.build() + second.build() + marker)
    return path


def dumped(capsys: pytest.CaptureFixture[str], *words: object) -> list[dict[str, Any]]:
    assert main(["dump", "--json", *map(str, words)]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_batches_have_what_their_headers_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = segment(tmp_path / "orders-0", base=10)
    first, second, third = dumped(capsys, path)
    assert (first["base_offset"], first["last_offset"], first["count"], first["codec"]) == (10, 11, 2, "zstd")
    assert (first["producer_id"], first["leader_epoch"], first["flags"], first["crc_ok"]) == (None, 3, "", True)
    assert (second["producer_id"], second["producer_epoch"], second["base_sequence"]) == (9, 1, 4)
    assert second["position"] == first["size"]
    assert third["flags"] == "transactional control"
    assert "records" not in first


def test_records_are_shown_on_demand_and_markers_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = segment(tmp_path / "orders-0")
    first, second, third = dumped(capsys, path, "--records")
    assert first["records"][0]["key"] == "key"
    assert first["records"][0]["headers"] == [["h", "1"]]
    assert first["records"][1]["value"] is None
    assert second["records"][0]["key"] == "\\xff"
    assert (third["records"][0]["type"], third["records"][0]["content"]) == ("ABORT", {"coordinator_epoch": 7})
    assert main(["dump", str(path), "--records"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("offsets 0 to 1, 2 records, position 0, ")
    assert shown[1] == "  0  2020-09-13T12:26:40.000Z  key: value  h=1"


def test_a_part_can_be_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = segment(tmp_path / "orders-0")
    assert [row["base_offset"] for row in dumped(capsys, path, "--limit", "2")] == [0, 2]
    assert [row["base_offset"] for row in dumped(capsys, path, "--from-offset", "1")] == [0, 2, 3]
    assert [row["base_offset"] for row in dumped(capsys, path, "--from-offset", "3")] == [3]


def test_damage_is_shown_after_what_is_sound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = segment(tmp_path / "orders-0")
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    assert main(["dump", str(path)]) == 1
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 3
    assert "is damaged" in said.err
    broken = bytearray(whole)
    broken[-1] ^= 1
    path.write_bytes(broken)
    assert main(["dump", str(path), "--json", "--records"]) == 1
    said = capsys.readouterr()
    assert [json.loads(line)["crc_ok"] for line in said.out.splitlines()] == [True, True, False]
    assert "1 batches do not match their CRC" in said.err


def test_indexes_are_read_up_to_their_tail_of_zeros(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    offsets, times, aborted = (tmp_path / offset_name(100, end) for end in (".index", ".timeindex", ".txnindex"))
    offsets.write_bytes(struct.pack(">iiii", 4, 256, 9, 512) + bytes(80))
    assert dumped(capsys, offsets) == [{"offset": 104, "position": 256}, {"offset": 109, "position": 512}]
    times.write_bytes(struct.pack(">qiqi", 1_600_000_000_000, 4, 1_600_000_000_001, 0) + bytes(24))
    assert [(row["timestamp"], row["offset"]) for row in dumped(capsys, times)] == [
        (1_600_000_000_000, 104),
        (1_600_000_000_001, 100),
    ]
    aborted.write_bytes(AbortedTransaction(9, 101, 105, 106).to_bytes())
    (row,) = dumped(capsys, aborted)
    assert (row["producer_id"], row["first_offset"], row["last_offset"], row["last_stable_offset"]) == (
        9,
        101,
        105,
        106,
    )
    aborted.write_bytes(b"odd")
    assert main(["dump", str(aborted)]) == 1


def test_checkpoints_and_small_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    epochs = tmp_path / "leader-epoch-checkpoint"
    epochs.write_bytes(format_leader_epochs(LeaderEpochs([EpochEntry(0, 0), EpochEntry(4, 120)])))
    assert dumped(capsys, epochs) == [{"epoch": 0, "start_offset": 0}, {"epoch": 4, "start_offset": 120}]
    points = tmp_path / "recovery-point-offset-checkpoint"
    points.write_text("0\n1\norders 2 77\n")
    assert dumped(capsys, points) == [{"topic": "orders", "partition": 2, "offset": 77}]
    points.write_text("0\n2\norders 2 77\n")
    assert main(["dump", str(points)]) == 1
    assert "2 entries announced, 1 found" in capsys.readouterr().err
    meta = tmp_path / "meta.properties"
    meta.write_text("#comment\nversion=1\nnode.id=5\n")
    assert dumped(capsys, meta) == [{"field": "version", "value": "1"}, {"field": "node.id", "value": "5"}]


def test_metadata_is_told_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = encode_metadata_record(TopicRecord(name="orders", topic_id=TOPIC_ID), 0)
    path = tmp_path / "00000000000000000007-0000000001.checkpoint"
    path.write_bytes(b"".join(encode_snapshot(Snapshot([record], 5), 1, 9)))
    rows = dumped(capsys, path, "--records")
    told = [(each["type"], each["content"]) for row in rows for each in row["records"]]
    assert told == [
        ("SNAPSHOT_HEADER", {"version": 0, "last_contained_log_timestamp": 5}),
        ("TopicRecord v0", {"name": "orders", "topic_id": "AAECAwQFBgcICQoLDA0ODw"}),
        ("SNAPSHOT_FOOTER", {"version": 0}),
    ]


def test_a_folder_is_all_of_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    segment(tmp_path / "orders-0")
    (tmp_path / "orders-0" / "leader-epoch-checkpoint").write_text("0\n0\n")
    assert main(["dump", str(tmp_path / "orders-0")]) == 0
    assert "leader-epoch-checkpoint" in capsys.readouterr().out
    assert main(["dump", str(tmp_path)]) == 4
    assert main(["dump", str(tmp_path / "nowhere.log")]) == 4
    (tmp_path / "notes.txt").touch()
    assert main(["dump", str(tmp_path / "notes.txt")]) == 2


@pytest.mark.parametrize(
    ("file_name", "kind"),
    [
        ("00000000000000000000.log", "batches"),
        ("00000000000000000000.log.deleted", "batches"),
        ("00000000000000000000.index.swap", "index"),
        ("00000000000000000000.snapshot", "producers"),
        ("00000000000000000007-0000000001.checkpoint", "batches"),
        ("leader-epoch-checkpoint", "epochs"),
        ("replication-offset-checkpoint", "offsets"),
        ("quorum-state", "fields"),
        ("README", None),
    ],
)
def test_the_name_says_what_a_file_holds(file_name: str, kind: str | None) -> None:
    assert kind_of(file_name) == kind
