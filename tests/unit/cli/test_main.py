"""The frame: help at once, words that are wrong, exit codes, and what is imported for it."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

import mainstem
from mainstem.cli.main import COMMANDS, build, declare, main
from mainstem.client.errors import NoBrokersAvailableError

ENVIRONMENT = {"PYTHONPATH": str(Path(mainstem.__file__).parents[1]), "PATH": "/usr/bin:/bin"}


def test_help_answers_in_a_fifth_of_a_second() -> None:
    """Processor time, of the best of some: what else the machine does is not the question."""
    script = "import resource, sys; from mainstem.cli.main import main\n"
    script += "try: main(['--help'])\nexcept SystemExit: pass\n"
    script += "used = resource.getrusage(resource.RUSAGE_SELF); print(used.ru_utime + used.ru_stime, file=sys.stderr)"
    taken = []
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, "-c", script], env=ENVIRONMENT, capture_output=True, text=True, timeout=60
        )
        assert "COMMAND" in done.stdout
        taken.append(float(done.stderr))
    assert min(taken) < 0.2, taken


def test_help_loads_neither_client_nor_broker_nor_rich() -> None:
    script = "import sys; from mainstem.cli.main import main\n"
    script += "try: main(['--help'])\nexcept SystemExit: pass\n"
    script += (
        "heavy = ('rich', 'asyncio', 'uvloop', 'mainstem.client', 'mainstem.broker', 'mainstem.protocol', 'pyarrow')\n"
    )
    script += "sys.exit(', '.join(name for name in heavy if name in sys.modules) or 0)"
    done = subprocess.run([sys.executable, "-c", script], env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"usage: mainstem {command}" in capsys.readouterr().out


def test_every_option_says_what_it_does() -> None:
    _, commands = build()
    for command, parser in commands.items():
        declare(parser, command)
        for action in parser._actions:
            verbs = action.choices if isinstance(action.choices, dict) else {}
            for verb in verbs.values():
                unsaid = [
                    each
                    for each in verb._actions
                    if not each.help and not each.choices and each.dest not in ("key", "pair", "topic", "partition")
                ]
                assert not unsaid, (command, verb.prog, unsaid)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["topcs"], "there is no command 'topcs'; did you mean 'topics'?"),
        (["topics", "lst"], "there is no command 'lst'; did you mean 'list'?"),
        (["topics", "create"], "the following arguments are required: topic"),
        (["topics", "create", "a", "-p", "0"], "argument -p/--partitions: '0' is not a number of 1 or more"),
        (["topics", "alter", "a"], "nothing to alter; give --partitions, --config or --delete-config"),
        (["groups", "reset", "g", "--to-latest"], "say which topics: --topic NAME, or --all-topics"),
        (["transactions", "abort"], "give either a transactional id, or --topic, --partition and --start-offset"),
        (["transactions", "abort", "--topic", "a"], "a transaction that hangs is named by all of"),
        (["consume", "a", "-g", "g", "--last", "1"], "a group begins where it left off"),
        (["consume", "a", "--json", "--format", "raw"], "--json is --format json"),
        (["topics", "list", "--bootstrap", "nowhere:port"], "bootstrap_servers has 'nowhere:port'"),
        (["topics", "list", "--frobnicate"], "unrecognized arguments: --frobnicate"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("mainstem: ")
    assert sentence in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize("words", [[], ["topics"]])
def test_a_command_that_is_not_finished_shows_help(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert "usage: mainstem" in capsys.readouterr().out


def test_nobody_there_is_exit_code_3_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    assert main(["topics", "list", "-b", "127.0.0.1:1"]) == 3
    assert time.monotonic() - began < 10
    assert "Is the broker running?" in capsys.readouterr().err
    assert main(["--json", "-b", "127.0.0.1:1", "groups", "list"]) == 3
    told = json.loads(capsys.readouterr().err)
    assert (told["exit_code"], told["retriable"]) == (3, True)


def test_the_cluster_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MAINSTEM_BOOTSTRAP", "127.0.0.1:2")
    assert main(["topics", "list"]) == 3
    assert "127.0.0.1:2" in capsys.readouterr().err


def test_the_version_names_the_build(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith(f"mainstem {mainstem.__version__} (")


def test_a_traceback_is_there_for_who_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSTEM_DEBUG", "1")
    with pytest.raises(NoBrokersAvailableError):
        main(["topics", "list", "-b", "127.0.0.1:1"])


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_whoever_closes_a_stream_before_gets_the_same_exit_code(closed: str) -> None:
    """A socket would be given its number, and be taken for the stream."""
    command = f"exec {sys.executable} -m mainstem topics list --bootstrap 127.0.0.1:1 {closed}"
    done = subprocess.run(["sh", "-c", command], env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
