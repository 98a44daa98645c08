import subprocess

import pytest

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


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "mainstem completion words" in capsys.readouterr().out


def test_words_are_printed_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "words", "2", "topics", "c"]) == 0
    assert capsys.readouterr().out == "create\n"
