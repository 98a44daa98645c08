"""`mainstem` as people run it: in this process for speed, in a pipe, and in a terminal of its own (a pty).

The build is the one that this test run imports. In a terminal it has a width, a TERM, and a keyboard that types `keys`.
"""

import contextlib
import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any, NamedTuple

import mainstem
from mainstem.cli.main import main

WAIT_S = 60.0
_COLOR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Ended(NamedTuple):
    """How a command ended: its exit code, and what it wrote."""

    code: int
    out: str
    err: str = ""

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Shell:
    """Runs commands against one cluster."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.environment = {
            **{key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS")},
            "PYTHONPATH": str(Path(mainstem.__file__).parents[1]),
            "MAINSTEM_BOOTSTRAP": bootstrap,
            "TERM": "xterm-256color",
        }

    def run(self, *words: str, stdin: bytes = b"") -> Ended:
        """In this process, with everything redirected."""
        out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
        before = os.environ.get("MAINSTEM_BOOTSTRAP"), sys.stdin
        os.environ["MAINSTEM_BOOTSTRAP"] = self.bootstrap
        sys.stdin = io.TextIOWrapper(io.BytesIO(stdin), "utf-8")
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = main(list(words))
        finally:
            sys.stdin = before[1]
            os.environ.pop("MAINSTEM_BOOTSTRAP")
            if before[0] is not None:
                os.environ["MAINSTEM_BOOTSTRAP"] = before[0]
        out.flush()
        return Ended(code, out.buffer.getvalue().decode(), err.getvalue())

    def check(self, *words: str, stdin: bytes = b"") -> Ended:
        """The same for what must succeed."""
        ended = self.run(*words, stdin=stdin)
        assert ended.code == 0, (words, ended)
        return ended

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "mainstem", *words]

    def pipe(self, *words: str, stdin: bytes = b"") -> Ended:
        """As a process of its own between two pipes."""
        done = subprocess.run(
            self.command(*words), input=stdin, capture_output=True, env=self.environment, timeout=WAIT_S
        )
        return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *words: str, **options: Any) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(self.command(*words), env=self.environment, **options)

    def terminal(self, *words: str, keys: bytes = b"", after: bytes = b"", columns: int = 140) -> Ended:
        """In a terminal; `keys` are typed once `after` is on the screen. The output is what the terminal was sent."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        process = subprocess.Popen(
            self.command(*words),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=self.environment,
            start_new_session=True,
            preexec_fn=_sit_down,
        )
        os.close(slave)
        try:
            seen = _watch(master, keys, after)
            return Ended(process.wait(WAIT_S), seen.decode("utf-8", "replace").replace("\r\n", "\n"))
        finally:
            process.kill()
            process.wait(WAIT_S)
            os.close(master)


def _sit_down() -> None:
    """Has Ctrl-C on this keyboard be an interrupt, also where the tests run behind an `&`, which ignores it."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _watch(master: int, keys: bytes, after: bytes) -> bytes:
    seen = b""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        if keys and after in seen:
            os.write(master, keys)
            keys = b""
        if not select.select([master], [], [], 0.1)[0]:
            continue
        try:
            chunk = os.read(master, 65536)
        except OSError:  # everybody else has closed it
            break
        if not chunk:
            break
        seen += chunk
    return seen


def plain(text: str) -> str:
    """What a person sees of what a terminal was sent."""
    return _COLOR.sub("", text)
