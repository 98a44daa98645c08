"""Every command in a terminal of its own: colour, tables, questions, progress, and no traceback, ever."""

import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from uuid import uuid4

import pytest

from mainstem.client.sync_producer import Producer
from mainstem.protocol.builder import BatchBuilder
from mainstem.testing import Cluster
from tests.cli.shell import Shell, plain


def test_a_table_has_colour_and_fits_the_terminal(shell: Shell, topic: str) -> None:
    shown = shell.terminal("topics", "list", topic, columns=100)
    assert shown.code == 0
    assert "\x1b[1;36m" in shown.out
    assert topic in plain(shown.out)
    assert all(len(line) <= 100 for line in plain(shown.out).splitlines())
    assert "\x1b[" not in shell.terminal("topics", "list", topic, "--no-color").out


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        (["topics", "describe", "{topic}"], "PARTITION"),
        (["topics", "create", "{topic}", "--if-not-exists"], "exists already"),
        (["topics", "alter", "{topic}", "--config", "retention.ms=5000"], "altered"),
        (["configs", "show", "topic", "{topic}", "--all"], "cleanup.policy"),
        (["configs", "set", "topic", "{topic}", "retention.ms=6000"], "altered"),
        (["configs", "unset", "topic", "{topic}", "retention.ms"], "altered"),
        (["groups", "list"], ""),
        (["records", "delete", "{topic}", "--all", "--dry-run"], "nothing was changed"),
        (["consume", "{topic}", "--from-beginning"], "0:0"),
        (["doctor"], "checks: "),
        (["completion", "bash"], "complete -o default -F _mainstem mainstem"),
        (["perf", "produce", "-n", "500"], "p99"),
        (["perf", "consume", "-n", "500"], "throughput"),
        (["perf", "latency", "-n", "5"], "p99"),
        (["--help"], "COMMAND"),
        (["--version"], "mainstem"),
    ],
)
def test_a_command_in_a_terminal(shell: Shell, filled: str, words: list[str], seen: str) -> None:
    shown = shell.terminal(*(word.replace("{topic}", filled) for word in words))
    assert shown.code == 0, shown.out
    assert seen in plain(shown.out)
    assert "Traceback" not in shown.out


@pytest.fixture(scope="module")
def filled(shell: Shell) -> str:
    name = f"filled-{uuid4().hex[:8]}"
    shell.check("topics", "create", name)
    shell.check("produce", name, "--create", "-k", ":", stdin=b"key:value\n")
    return name


def test_what_cannot_be_undone_is_asked_first(shell: Shell) -> None:
    name = f"precious-{uuid4().hex[:8]}"
    shell.check("topics", "create", name)
    kept = shell.terminal("topics", "delete", name, keys=b"n\n", after=b"[y/N]")
    assert kept.code == 1
    assert "nothing was changed" in plain(kept.out)
    gone = shell.terminal("topics", "delete", name, keys=b"y\n", after=b"[y/N]")
    assert gone.code == 0
    assert f"deleted {name}" in plain(gone.out)


def test_a_reset_shows_its_plan_and_asks(shell: Shell, filled: str) -> None:
    group = f"readers-{uuid4().hex[:8]}"
    words = ["groups", "reset", group, "--topic", filled, "--to-earliest"]
    shown = shell.terminal(*words, keys=b"y\n", after=b"[y/N]")
    assert shown.code == 0
    assert "NEW OFFSET" in plain(shown.out)
    described = shell.terminal("groups", "describe", group)
    assert "Empty" in plain(described.out)
    assert shell.terminal("groups", "describe", group, "--members").code == 0
    assert "deleted" in plain(shell.terminal("groups", "delete", group, "--yes").out)


def test_a_transaction_is_shown_and_aborted_when_that_was_agreed_to(shell: Shell, topic: str) -> None:
    name = f"txn-{uuid4().hex[:8]}"
    with Producer(bootstrap_servers=shell.bootstrap, transactional_id=name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"x", partition=0).result(30)
        listed = shell.terminal("transactions", "list")
        assert listed.code == 0
        assert re.search(rf"{name} +Ongoing", plain(listed.out))
        described = shell.terminal("transactions", "describe", name)
        assert described.code == 0
        assert f"{topic}:0" in plain(described.out)
        assert shell.terminal("transactions", "abort", name, keys=b"n\n", after=b"[y/N]").code == 1
        aborted = shell.terminal("transactions", "abort", name, keys=b"y\n", after=b"[y/N]")
        assert aborted.code == 0
        assert f"aborted {name}: 1 partition" in plain(aborted.out)
        producer.close(timeout_ms=0)


def test_a_file_is_shown(shell: Shell, tmp_path: Path) -> None:
    builder = BatchBuilder()
    builder.append(1_700_000_000_000, b"key", b"value")
    segment = tmp_path / "00000000000000000000.log"
    segment.write_bytes(builder.build())
    for words, seen in (
        (["dump"], "SEQUENCE"),
        (["dump", "--records"], "key: value"),
        (["dump", "--json"], '"crc_ok"'),
    ):
        shown = shell.terminal(*words, str(segment))
        assert shown.code == 0
        assert seen in plain(shown.out)
    segment.write_bytes(builder.build() + bytes(range(1, 80)))
    damaged = shell.terminal("dump", str(segment))
    assert damaged.code == 1
    assert "is damaged" in plain(damaged.out)


def test_long_work_shows_how_far_it_is(shell: Shell, topic: str, tmp_path: Path) -> None:
    shell.check("produce", topic, stdin=b"".join(b"%d\n" % at for at in range(5000)))
    shown = plain(shell.terminal("consume", topic, "--from-beginning", "-o", str(tmp_path / "out.txt")).out)
    assert "reading" in shown
    assert "/5000 records" in shown
    assert f"5,000 records of {topic} to" in shown.splitlines()[-1]
    assert "sending" in plain(shell.terminal("perf", "produce", topic, "-n", "2000").out)


def test_lines_that_are_typed_are_sent(shell: Shell, topic: str) -> None:
    typed = shell.terminal("produce", topic, "-p", "0", keys=b"hello\nworld\n\x04")
    assert typed.code == 0
    assert f"2 records to {topic}" in plain(typed.out)
    assert shell.check("consume", topic, "--from-beginning").out == "hello\nworld\n"


def test_ctrl_c_ends_quietly(shell: Shell, topic: str) -> None:
    shell.check("produce", topic, "-p", "0", stdin=b"first\n")
    stopped = shell.terminal("consume", topic, "--from-beginning", "--follow", keys=b"\x03", after=b"first")
    assert stopped.code == 130
    assert "Traceback" not in stopped.out


def test_ctrl_c_does_not_wait_for_a_broker_that_does_not_answer() -> None:
    with Cluster(topics={"orders": 1}) as cluster:
        cluster.delay("Produce", 60)
        process = Shell(cluster.bootstrap).start("produce", "orders", stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            assert process.stdin is not None
            process.stdin.write(b"first\n")
            process.stdin.flush()
            while not cluster.requests("Produce"):
                assert process.poll() is None
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            _, told = process.communicate(timeout=15)
        finally:
            process.kill()
        assert (process.returncode, told) == (130, b"")


def test_a_mistake_is_red_and_one_line(shell: Shell) -> None:
    shown = shell.terminal("topics", "lst")
    assert shown.code == 2
    assert "\x1b[31mmainstem:\x1b[0m there is no command 'lst'; did you mean 'list'?" in shown.out


def test_a_pipe_that_is_closed_early_is_no_error(shell: Shell, topic: str) -> None:
    shell.check("produce", topic, "-p", "0", stdin=b"".join(b"%d\n" % at for at in range(20_000)))
    reader = shell.start("consume", topic, "--from-beginning", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert reader.stdout is not None
    assert reader.stderr is not None
    assert reader.stdout.readline() == b"0\n"
    reader.stdout.close()
    said = reader.stderr.read()
    reader.stderr.close()
    assert reader.wait(30) == 0
    assert b"Traceback" not in said
    assert b"BrokenPipe" not in said


def test_commands_work_between_pipes(shell: Shell, topic: str) -> None:
    sent = shell.pipe("produce", topic, "--partition", "0", stdin=b"a\nb\n")
    assert (sent.code, sent.out) == (0, "")
    read = shell.pipe("consume", topic, "--from-beginning")
    assert (read.code, read.out) == (0, "a\nb\n")
    nobody = shell.pipe("topics", "list", "--bootstrap", "127.0.0.1:1")
    assert nobody.code == 3
    assert nobody.err.startswith("mainstem: no broker answers; tried 127.0.0.1:1")
    assert len(nobody.err.splitlines()) == 1


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_a_session_in_tmux(shell: Shell, tmp_path: Path) -> None:
    name = f"tmux-{uuid4().hex[:8]}"
    tmux = ["tmux", "-L", name, "-f", "/dev/null"]
    command = " ".join(shell.command())
    script = tmp_path / "session.sh"
    script.write_text(
        f"""export PYTHONPATH={shell.environment["PYTHONPATH"]} MAINSTEM_BOOTSTRAP={shell.bootstrap}
        {command} topics create {name} -p 2
        printf 'k:v\\n' | {command} produce {name} -k : -p 1
        {command} topics describe {name}
        {command} consume {name} --from-beginning
        echo the end: $?
        sleep 60"""
    )
    size = ["-x", "140", "-y", "40"]
    subprocess.run([*tmux, "new-session", "-d", *size, "sh", str(script)], check=True, timeout=30)
    try:
        deadline = time.monotonic() + 60
        screen = ""
        while "the end: 0" not in screen and time.monotonic() < deadline:
            time.sleep(0.1)
            shown = subprocess.run(
                [*tmux, "capture-pane", "-p"], check=True, capture_output=True, text=True, timeout=30
            )
            screen = shown.stdout
        assert "the end: 0" in screen, screen
        assert f"created {name}: 2 partitions, 1 replica" in screen
        assert "PARTITION  LEADER  EPOCH" in screen, screen
        assert "1:0" in screen
    finally:
        subprocess.run([*tmux, "kill-server"], check=False, timeout=30)
