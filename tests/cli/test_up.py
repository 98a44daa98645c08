"""`mainstem up` says what it is, and what it tells people to type works."""

import shlex
from pathlib import Path

from tests.cli.shell import Shell
from tests.support.node import Node


def test_the_commands_that_a_new_broker_suggests_bring_a_first_message_through(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        said = node.log.read_text()
        assert "a streaming log that speaks Kafka's protocol" in said
        assert f"data in {node.data}" in said
        assert f"bootstrap.servers={node.bootstrap}. Ctrl-C stops it." in said
        written, read = (line.strip() for line in said.splitlines() if " greetings " in line)
        shell = Shell(node.bootstrap)
        assert written.startswith("echo hello | ")
        shell.check(*shlex.split(written.partition("|")[2])[1:], stdin=b"hello\n")
        assert shell.check(*shlex.split(read)[1:]).out == "hello\n"
