"""How long a command waits for a broker that takes a connection and says nothing."""

import socket
import time

import pytest

from mainstem.cli.main import main


@pytest.mark.parametrize(
    "command",
    [["topics", "list"], ["produce", "orders"], ["consume", "orders"], ["doctor"]],
    ids=lambda words: words[0],
)
def test_the_timeout_bounds_the_first_connection(command: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began_s = time.monotonic()
        code = main([*command, "--timeout", "300ms", "--bootstrap", f"127.0.0.1:{silent.getsockname()[1]}"])
        assert time.monotonic() - began_s < 5
    assert code != 0
    told = capfd.readouterr()
    assert "within 0.3 s" in told.out + told.err
