"""Our broker as a process of its own: `mainstem up` from the build under test, on a free port, with its own data.

The build is the one that this test run imports, interpreted or compiled. The port and the data stay over `stop`,
`kill` and `start`, so that clients find the same broker again. Only processes that were started here are ended, each
by its own handle.
"""

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import mainstem
from tests.support.kafka import free_port

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Node:
    """One broker. `home` gets its data and what it logs."""

    def __init__(
        self,
        home: Path,
        settings: Mapping[str, str] | None = None,
        port: int | None = None,
        files_max: int | None = None,
    ) -> None:
        """`files_max` is how many files the system lets it open, where that is fewer than it lets us."""
        self._home = home
        self._settings = dict(settings or {})
        self._files_max = files_max
        self._process: subprocess.Popen[bytes] | None = None
        self.data = home / "data"
        self.log = home / "broker.log"
        self.port = port or free_port()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> float:
        """Starts it and waits for its `ready` line; the seconds that took."""
        assert not self.is_running
        self._home.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "mainstem", "up", "--port", str(self.port), "--data-dir", str(self.data)]
        for key, value in self._settings.items():
            command += ["--set", f"{key}={value}"]
        if self._files_max is not None:
            command = ["sh", "-c", f'ulimit -n {self._files_max} && exec "$0" "$@"', *command]
        environment = {**os.environ, "PYTHONPATH": str(Path(mainstem.__file__).parents[1])}
        began = time.monotonic()
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                cwd=self._home,
            )
        line = self._read_line(began + START_TIMEOUT_S)
        if not line.startswith(b"ready "):
            self.kill()
            raise RuntimeError(f"the broker did not start, it said {line!r}: {self.log.read_text()[-4000:]}")
        return time.monotonic() - began

    def _read_line(self, deadline: float) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        line = b""
        while not line.endswith(b"\n"):
            readable, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(self._process.stdout.fileno(), 4096) if readable else b""
            if not chunk:
                break
            line += chunk
        return line

    def stop(self) -> int:
        """A clean stop by SIGTERM; the exit status."""
        assert self._process is not None
        self._process.terminate()
        try:
            return self._process.wait(STOP_TIMEOUT_S)
        finally:
            self.kill()

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._process = None

    def restart(self) -> float:
        self.stop()
        return self.start()

    def rss_bytes(self) -> int:
        """What it holds in memory now."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * _PAGE_BYTES

    def cpu_s(self) -> float:
        """The seconds of processor time it has used, user and system."""
        after_name = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(after_name[11]) + int(after_name[12])) / _TICKS_PER_S

    def __enter__(self) -> "Node":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A running broker for the whole session. Tests that stop it, or look at its files, make one of their own."""
    with Node(tmp_path_factory.mktemp("mainstem")) as started:
        yield started
