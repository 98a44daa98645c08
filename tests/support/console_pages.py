"""The terminal sessions in our documents, run: every `$` line of a page's ```console blocks, top to bottom.

What a command prints is compared with what the page shows, after everything that differs from run to run (ids, times,
durations, what a machine is like) has been taken out of both. With MAINSTEM_WRITE_DOCS=1 the page is written anew
instead, so that what it shows is what was printed.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import mainstem

_BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
_MEASURES = ("mainstem perf", "mainstem doctor")
"""Commands whose figures are the machine's: only their words are compared."""

_VOLATILE = [
    (re.compile(r"\([\w. ]+ ago\)"), "(AGO)"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"), "TIME"),
    (re.compile(r"\b1[5-9]\d{11}\b"), "MILLISECONDS"),
    (re.compile(r"[\w.-]+-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "MEMBER"),
    (re.compile(r"(?<![\w-])[\w-]{22}(?![\w-])"), "ID"),
    (re.compile(r"\d+\.\d+ s( \([\d,]+ a second\))?"), "SECONDS"),
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"interpreted|compiled|CPython [\d.]+"), "BUILD"),
    (re.compile(r"\"crc\": \d+"), "CRC"),
]


class Session:
    """A folder with a `mainstem` on its PATH, in which commands are run one after the other."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self._folder = folder
        tools = folder / ".tools"
        tools.mkdir()
        tool = tools / "mainstem"
        tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mainstem "$@"\n')
        tool.chmod(0o755)
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(Path(mainstem.__file__).parents[1]),
            "PATH": f"{tools}:{os.environ['PATH']}",
            "MAINSTEM_BOOTSTRAP": bootstrap,
            "COLUMNS": "100",
        }

    def run(self, command: str) -> str:
        done = subprocess.run(
            ["sh", "-c", command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=self._environment,
            cwd=self._folder,
            text=True,
            timeout=60,
        )
        return done.stdout.rstrip("\n") + "\n" if done.stdout else ""


def replay(text: str, session: Session) -> str:
    """The page with what its commands print now."""

    def block(found: re.Match[str]) -> str:
        commands = [line for line in found[1].splitlines() if line.startswith("$ ")]
        return "```console\n" + "".join(f"{line}\n{session.run(line[2:])}" for line in commands) + "```"

    return _BLOCK.sub(block, text)


def steady(text: str) -> str:
    """A page without what differs from run to run."""

    def block(found: re.Match[str]) -> str:
        lines, is_measure = [], False
        for line in found[1].splitlines():
            if line.startswith("$ "):
                is_measure = line[2:].startswith(_MEASURES)
            elif is_measure:
                line = " ".join(re.findall(r"[A-Za-z/]{2,}", line.split("  ")[0] if "  " in line.strip() else line))
            for pattern, name in _VOLATILE:
                line = pattern.sub(name, line)
            lines.append(re.sub(r" +", " ", line).strip())
        return "```console\n" + "\n".join(lines) + "\n```"

    return _BLOCK.sub(block, text)
