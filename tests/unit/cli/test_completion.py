import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mainstem
from mainstem.cli.completion import candidates
from mainstem.cli.main import COMMANDS, main


def test_commands_verbs_and_options_are_offered() -> None:
    assert candidates([], "to") == ["topics"]
    assert set(candidates([], "")) >= set(COMMANDS)
    assert candidates(["topics"], "d") == ["describe", "delete"]
    assert "--partitions" in candidates(["topics", "create"], "--")
    assert candidates(["produce", "orders", "--acks"], "") == ["all", "0", "1"]
    assert candidates(["configs", "show"], "t") == ["topic"]
    assert candidates(["completion"], "f") == ["fish"]
    assert candidates(["nowhere"], "") == []
    assert candidates(["topics", "nowhere"], "") == []


def test_a_word_that_is_no_number_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "words", "first"]) == 2
    assert "'first' is not the number of the word" in capsys.readouterr().err


def test_a_name_to_be_made_up_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSTEM_BOOTSTRAP", "127.0.0.1:1")
    assert candidates(["topics", "create"], "") == []


def test_where_nobody_answers_there_is_nothing_to_offer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSTEM_BOOTSTRAP", "127.0.0.1:1")
    assert candidates(["topics", "describe"], "") == []


def test_the_bash_script_is_bash(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    subprocess.run(["bash", "-n"], input=script, text=True, check=True, timeout=30)
    # The real thing, with a stand-in for the command that it asks.
    script += "mainstem() { echo topics; echo produce; }\n"
    script += 'COMP_WORDS=(mainstem to); COMP_CWORD=1; _mainstem; echo "${COMPREPLY[@]}"\n'
    done = subprocess.run(["bash"], input=script, text=True, capture_output=True, check=True, timeout=30)
    assert done.stdout == "topics\n"


@pytest.fixture
def command(tmp_path: Path) -> dict[str, str]:
    """An environment in which `mainstem` is the build under test."""
    script = tmp_path / "bin" / "mainstem"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mainstem "$@"\n')
    script.chmod(0o755)
    source = str(Path(mainstem.__file__).parents[1])
    return {"PATH": f"{script.parent}:/usr/bin:/bin", "PYTHONPATH": source, "HOME": str(tmp_path)}


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_the_zsh_script_completes_in_zsh(command: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zsh"]) == 0
    # What zsh gives a completion function and what it takes from it, without a keyboard in between.
    script = 'compdef() { : }\ncompadd() { shift; print -l -- "$@" }\n_files() { print files }\n'
    script += capsys.readouterr().out
    script += "words=(mainstem topics d) CURRENT=3; _mainstem\n"
    script += "words=(mainstem produce orders --acks '') CURRENT=5; _mainstem\n"
    script += "words=(mainstem dump '') CURRENT=3; _mainstem\n"
    done = subprocess.run(["zsh", "-f"], input=script, text=True, capture_output=True, env=command, timeout=60)
    assert done.stderr == ""
    assert done.stdout.split() == ["describe", "delete", "all", "0", "1", "files"]


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_the_fish_script_completes_in_fish(command: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "fish"]) == 0
    script = capsys.readouterr().out
    script += 'complete -C "mainstem topics d"; echo; complete -C "mainstem produce orders --acks "\n'
    done = subprocess.run(
        ["fish", "--no-config"], input=script, text=True, capture_output=True, env=command, timeout=60
    )
    verbs, acks = done.stdout.split("\n\n")
    assert set(verbs.split()) >= {"describe", "delete"}
    assert set(acks.split()) >= {"all", "0", "1"}


def test_words_are_printed_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "words", "2", "topics", "c"]) == 0
    assert capsys.readouterr().out == "create\n"
