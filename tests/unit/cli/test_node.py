"""`mainstem up`, `broker` and `format`: what is wrong is one sentence that says what to change."""

import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from mainstem.broker import partitions
from mainstem.broker.app import Broker
from mainstem.broker.config import BrokerConfig
from mainstem.cli import node
from mainstem.cli.main import main
from mainstem.storage.log import Log
from mainstem.storage.open_files import OpenFiles
from mainstem.storage.recovery import open_log
from tests.scenarios.test_failing_directories import create, until
from tests.support.raw import Peer, run_with_node

FILE = """process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0
controller.listener.names=CONTROLLER
log.dirs={}
# caf\u00e9
"""


def test_up_on_every_address_says_how_clients_are_told_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "--host", "0.0.0.0", "--port", "1234", "--data-dir", str(tmp_path)]) == 2
    assert "--set advertised.listeners=PLAINTEXT://ADDRESS:1234" in capsys.readouterr().err


def test_an_address_that_cannot_be_bound_is_told_with_its_setting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "log_to_stderr", lambda: None)  # which would outlive this test
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["up", "--port", str(port), "--data-dir", str(tmp_path)]) == 2
    sentence = f"mainstem: listeners has PLAINTEXT://127.0.0.1:{port}, which cannot be bound: Address already in use"
    assert capsys.readouterr().err.splitlines()[-1] == sentence


def test_a_directory_that_is_none_is_told_with_its_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.touch()
    for path in (file, file / "below"):
        assert main(["up", "--port", "0", "--data-dir", str(path)]) == 2
        assert capsys.readouterr().err == f"mainstem: log.dirs has {path}, which cannot be used: Not a directory\n"


def test_up_takes_several_directories_and_a_host_of_ipv6(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configs: list[BrokerConfig] = []

    def run(config: BrokerConfig, what: str) -> int:
        configs.append(config)
        return 0

    monkeypatch.setattr(node, "_run", run)
    monkeypatch.chdir(tmp_path)
    assert main(["up", "--host", "::1", "--port", "1234", "--data-dir", "a, b"]) == 0
    assert configs[0].log_dirs == (f"{tmp_path}/a", f"{tmp_path}/b")
    assert configs[0].advertised[0].address == "[::1]:1234"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_logs_are_opened_is_heard_between_two_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    """A recovery of all of them may take hours."""
    many = 40

    async def create_topics(broker: Broker, peer: Peer) -> None:
        await create(peer, "big", many)
        await until("all are here", lambda: len(broker.partitions) == many)

    run_with_node(tmp_path, create_topics)
    monkeypatch.setattr(node, "log_to_stderr", lambda: None)
    opened: list[str] = []

    def open_and_interrupt(files: OpenFiles, folder: str, *given: Any) -> Log:
        opened.append(folder)
        if len(opened) == 3:
            os.kill(os.getpid(), number)
        time.sleep(0.06)  # a log that had to be recovered
        return open_log(files, folder, *given)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(partitions, "open_log", open_and_interrupt)
        assert main(["up", "--port", "0", "--data-dir", str(tmp_path)]) == 0
    assert 3 <= len(opened) <= 10  # the loop takes a few turns to hear of it
    assert "ready" not in capsys.readouterr().out
    assert not (tmp_path / ".kafka_cleanshutdown").exists()

    async def all_are_there(broker: Broker, peer: Peer) -> None:
        assert len(broker.partitions) == many
        assert (await peer.produce("big", b"x")).base_offset == 0

    run_with_node(tmp_path, all_are_there)


def test_a_file_of_settings_need_not_be_utf_8_and_one_that_is_missing_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(FILE.format(tmp_path / "data"), encoding="latin-1")
    assert main(["format", "--config", str(file)]) == 0
    assert main(["format", "--config", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err == f"mainstem: --config {tmp_path}/none: No such file or directory\n"


def test_a_cluster_id_is_a_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "server.properties"
    file.write_text(FILE.format(tmp_path / "data"), encoding="latin-1")
    assert main(["format", "--config", str(file), "--cluster-id", "a b"]) == 2
    assert "the cluster id is 'a b'" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_a_directory_whose_disk_is_not_mounted_is_not_taken_for_a_new_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(FILE.format(tmp_path / "a"), encoding="latin-1")
    assert main(["format", "--config", str(file)]) == 0
    (tmp_path / "b").mkdir()
    assert main(["up", "--port", "0", "--data-dir", f"{tmp_path}/a,{tmp_path}/b"]) == 2
    said = capsys.readouterr().err
    assert f"{tmp_path}/b, which is not formatted though others are: is its disk mounted?" in said
    assert list((tmp_path / "b").iterdir()) == []
