"""`mainstem produce`, `consume` and `groups`: records in, records out, and how far who is."""

import json
import time
from pathlib import Path
from uuid import uuid4

import pytest

from tests.cli.shell import Shell


def test_lines_become_records_and_records_lines(shell: Shell, topic: str) -> None:
    said = shell.check("produce", topic, "--partition", "1", stdin=b"one\ntwo\n\nlast")
    assert said.out == ""
    assert said.err.startswith(f"4 records to {topic} in ")
    assert shell.check("consume", topic, "--from-beginning").out == "one\ntwo\n\nlast\n"


def test_keys_headers_and_tombstones(shell: Shell, topic: str) -> None:
    words = ["--key-separator", ":", "-H", "from=test", "-H", "n=1", "--null", "NULL", "-p", "0", "--print"]
    sent = shell.check("produce", topic, *words, stdin=b"a:1:2\nb:NULL\n")
    assert sent.out == "0 0\n0 1\n"
    first, second = map(json.loads, shell.check("consume", topic, "--from-beginning", "--json").lines)
    assert (first["key"], first["value"], first["headers"]) == ("a", "1:2", {"from": "test", "n": "1"})
    assert (second["key"], second["value"]) == ("b", None)


def test_what_is_consumed_as_json_can_be_produced_again(shell: Shell, topic: str) -> None:
    lines = b'{"key": "k", "value": {"a": [1, 2]}, "headers": {"h": "v"}, "partition": 1, "timestamp": 1600000000000}\n'
    lines += b'{"value": {"base64": "//4="}, "partition": 1, "headers": {"\\udcff": "not UTF-8"}}\n'
    shell.check("produce", topic, "--json", stdin=lines)
    first = shell.check("consume", topic, "--from-beginning", "--json")
    records = [json.loads(line) for line in first.lines]
    assert records[0]["value"] == '{"a":[1,2]}'
    assert records[0]["timestamp"] == 1_600_000_000_000
    assert (records[1]["value"], records[1]["headers"]) == ({"base64": "//4="}, {"\udcff": "not UTF-8"})
    shell.check("records", "delete", topic, "--all")
    shell.check("produce", topic, "--json", stdin=first.out.encode())
    again = [json.loads(line) for line in shell.check("consume", topic, "--from-beginning", "--json").lines]
    kept = ("key", "value", "headers", "partition", "timestamp")
    assert [[each[name] for name in kept] for each in again] == [[each[name] for name in kept] for each in records]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_come_back_whole(shell: Shell, topic: str, codec: str) -> None:
    lines = b"".join(b"%d\n" % number for number in range(500))
    shell.check("produce", topic, "-z", codec, "-p", "0", stdin=lines)
    assert shell.check("consume", topic, "--from-beginning").out.encode() == lines


def test_where_reading_begins_and_ends(shell: Shell, topic: str) -> None:
    stamped = b"".join(
        b'{"value": "%d", "timestamp": %d, "partition": 0}\n' % (at, 1_600_000_000_000 + at) for at in range(10)
    )
    shell.check("produce", topic, "--json", stdin=stamped)

    def values(*words: str) -> list[int]:
        return [int(line) for line in shell.check("consume", topic, *words).lines]

    assert values("--from-beginning") == list(range(10))
    assert values("--from-offset", "7") == [7, 8, 9]
    assert values("--last", "2") == [8, 9]
    assert values("--from-beginning", "--max", "3") == [0, 1, 2]
    assert values("--from-time", "1600000000006") == [6, 7, 8, 9]
    assert values("--from-time", "2030-01-01T00:00:00Z") == []
    assert values("--from-beginning", "--partition", "1") == []
    assert values("--idle", "50ms") == []
    assert values("--from-beginning", "--follow", "--max", "10") == list(range(10))
    assert shell.run("consume", topic, "--from-beginning", "--partition", "9").code == 4
    assert shell.run("consume", "nowhere", "--from-beginning").code == 4


def test_a_template_says_how_a_record_is_written(shell: Shell, topic: str) -> None:
    shell.check("produce", topic, "-k", "=", "-p", "1", stdin=b"a=1\n")
    shown = shell.check("consume", topic, "--from-beginning", "--format", "{partition}:{offset} {key} -> {value}")
    assert shown.out == "1:0 a -> 1\n"
    assert "the fields are {topic}" in shell.run("consume", topic, "--format", "{nix}").err
    assert shell.run("consume", topic, "--format", "nix").code == 2


def test_files_are_read_and_written(shell: Shell, topic: str, tmp_path: Path) -> None:
    source, lines, table = tmp_path / "in.txt", tmp_path / "out.jsonl", tmp_path / "out.parquet"
    source.write_text("".join(f"{number}\n" for number in range(1000)))
    shell.check("produce", topic, str(source), "-p", "0")
    shell.check("consume", topic, "--from-beginning", "-o", str(lines))
    assert [json.loads(line)["value"] for line in lines.read_text().splitlines()] == [str(at) for at in range(1000)]
    shell.check("consume", topic, "--from-beginning", "--max", "700", "-o", str(table))
    parquet = pytest.importorskip("pyarrow.parquet")
    found = parquet.read_table(table)
    assert found.column_names == ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
    assert found.column("value").to_pylist() == [b"%d" % at for at in range(700)]
    assert shell.run("consume", topic, "--from-beginning", "--format", "parquet").code == 2
    assert shell.run("produce", topic, str(tmp_path / "missing")).code == 4
    assert shell.run("consume", "nowhere", "--from-beginning", "-o", str(lines)).code == 4
    assert lines.stat().st_size > 0, "a file is not emptied for a topic that is not there"


@pytest.mark.parametrize("name", ["out.parquet", "out.jsonl", "out"])
def test_a_file_that_cannot_be_written_is_named(shell: Shell, topic: str, tmp_path: Path, name: str) -> None:
    shell.check("produce", topic, stdin=b"1\n")
    path = tmp_path / "nowhere" / name
    ended = shell.run("consume", topic, "--from-beginning", "--output", str(path))
    assert (ended.code, ended.err) == (4, f"mainstem: there is no {path}\n")


def test_a_mistake_in_a_line_is_named_by_its_number(shell: Shell, topic: str) -> None:
    assert "line 2 is not JSON" in shell.run("produce", topic, "--json", stdin=b'{"value": "1"}\n{oops\n').err
    assert "line 1 has no ':'" in shell.run("produce", topic, "-k", ":", stdin=b"no separator\n").err
    assert "batch_siz" in shell.run("produce", topic, "-X", "batch.siz=1", stdin=b"").err
    began = time.monotonic()
    ended = shell.run("produce", topic, "--partition", "9", stdin=b"1\n")
    assert (ended.code, ended.err) == (4, f"mainstem: topic {topic} has no partition 9\n")
    assert time.monotonic() - began < 10
    ended = shell.run("produce", f"new-{uuid4().hex[:8]}", stdin=b"1\n")
    assert (ended.code, "--create lets the cluster create it" in ended.err) == (4, True)


def test_a_topic_is_created_where_that_was_said(shell: Shell) -> None:
    name = f"new-{uuid4().hex[:8]}"
    shell.check("produce", name, "--create", stdin=b"1\n")
    assert shell.check("consume", name, "--from-beginning").out == "1\n"


def test_a_group_reads_on_where_it_was_and_can_be_set_back(shell: Shell, topic: str) -> None:
    group = f"readers-{uuid4().hex[:8]}"
    shell.check("produce", topic, "-p", "0", stdin=b"".join(b"%d\n" % at for at in range(10)))
    assert shell.check("consume", topic, "-g", group, "--max", "4").lines == ["0", "1", "2", "3"]
    (whole,) = json.loads(shell.check("groups", "describe", group, "--json").out)
    assert (whole["state"], whole["lag"]) == ("Empty", 6)
    assert shell.check("consume", topic, "-g", group).lines == ["4", "5", "6", "7", "8", "9"]
    assert group in [row["group"] for row in json.loads(shell.check("groups", "list", "--json").out)]
    assert group not in shell.check("groups", "list", "--state", "Stable").out

    def reset(*words: str) -> list[tuple[int, int | None, int]]:
        rows = json.loads(shell.check("groups", "reset", group, "--topic", topic, *words, "--json").out)
        return [(row["partition"], row["offset"], row["new_offset"]) for row in rows]

    assert reset("--to-earliest", "--dry-run")[0] == (0, 10, 0)
    assert reset("--to-offset", "3", "--partition", "0") == [(0, 10, 3)]
    assert reset("--shift-by", "-1", "--partition", "0") == [(0, 3, 2)]
    assert shell.check("consume", topic, "-g", group, "--max", "1").out == "2\n"
    assert reset("--to-latest")[0][2] == 10
    assert reset("--to-time", "1h")[0][2] == 0
    assert shell.run("groups", "reset", group, "--to-latest").code == 2
    shell.check("groups", "delete", group)
    assert shell.run("groups", "describe", group).code == 4
    assert shell.run("groups", "delete", group).code == 4


@pytest.mark.parametrize("form", ["raw", "parquet"])
def test_what_could_not_be_written_is_read_again_by_the_group(shell: Shell, topic: str, form: str) -> None:
    shell.check("produce", topic, "-p", "0", stdin=b"1\n2\n")
    group = f"g-{uuid4().hex[:8]}"
    ended = shell.run("consume", topic, "--group", group, "--format", form, "--output", "/dev/full")
    assert ended.code == 1
    assert "No space left" in ended.err
    assert shell.check("consume", topic, "--group", group).lines == ["1", "2"]
    assert shell.check("consume", topic, "--group", group).lines == []


def test_a_group_that_is_at_work_is_shown_and_not_reset(shell: Shell, topic: str) -> None:
    group = f"busy-{uuid4().hex[:8]}"
    shell.check("produce", topic, "-p", "0", stdin=b"1\n")
    import subprocess

    reader = shell.start("consume", topic, "-g", group, "--follow", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"1\n"
        (whole,) = json.loads(shell.check("groups", "describe", group, "--json").out)
        assert whole["state"] == "Stable"
        (member,) = whole["members"]
        assert member["partitions"] == [f"{topic}:0", f"{topic}:1"]
        assert "127.0.0.1" in member["host"]
        refused = shell.run("groups", "reset", group, "--topic", topic, "--to-earliest")
        assert (refused.code, "has 1 member; stop its consumers first" in refused.err) == (1, True)
        assert shell.run("groups", "delete", group).code == 1
    finally:
        reader.terminate()
        reader.communicate(timeout=30)
