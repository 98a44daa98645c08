import json
from pathlib import Path

import pytest

from mainstem.cli.doctor import OK, PROBLEM, _files, config, disk
from mainstem.cli.main import main

SETTINGS = """process.roles=broker,controller
node.id=3
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:9093
"""


def settings_in(folder: Path, more: str = "") -> Path:
    path = folder / "server.properties"
    path.write_text(f"{SETTINGS}log.dirs={folder / 'data'}\n{more}")
    return path


def test_a_config_that_is_right_and_formatted_is_ok(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = settings_in(tmp_path)
    found = list(config(path))
    assert [(each.check, each.result) for each in found] == [(str(path), OK), ("directory", PROBLEM)]
    assert found[1].advice == f"mainstem format --config {path}"
    assert main(["format", "--config", str(path)]) == 0
    assert all(each.result != PROBLEM or each.check == "disk" for each in config(path))


def test_a_config_of_another_node_is_a_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = settings_in(tmp_path)
    assert main(["format", "--config", str(path)]) == 0
    path.write_text(path.read_text().replace("node.id=3", "node.id=4"))
    assert any("belongs to node 3, the file says 4" in each.found for each in config(path))


def test_a_config_that_makes_no_sense_is_a_problem(tmp_path: Path) -> None:
    path = settings_in(tmp_path, "num.partitions=many\n")
    (found,) = config(path)
    assert found.result == PROBLEM
    assert "num.partitions" in found.found


def test_few_open_files_are_told() -> None:
    assert _files(1_000_000, 1_000_000).result == OK
    assert _files(256, 1_000_000).result == PROBLEM
    assert "ulimit -n to 100,000" in _files(256, 1_000_000).advice
    assert "hard limit" in _files(10_000, 10_000).advice


def test_a_disk_is_looked_at(tmp_path: Path) -> None:
    assert str(tmp_path) in disk("machine", tmp_path).found


def test_the_exit_code_says_whether_there_is_a_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["doctor", "--json", "--data-dir", str(tmp_path), "-b", "127.0.0.1:1"]
    assert main(words) == 1
    found = json.loads(capsys.readouterr().out)
    assert {"area", "check", "result", "found", "advice"} == set(found[0])
    assert (found[-1]["check"], found[-1]["result"]) == ("broker", "problem")
    code = main([*words, "--no-broker"])
    assert code == int(any(each["result"] == "problem" for each in json.loads(capsys.readouterr().out)))
