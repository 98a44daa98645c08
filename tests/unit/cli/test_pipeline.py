"""What `mainstem pipeline` is told wrong, and says before Spark takes its time to start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mainstem.cli import pipeline
from mainstem.cli.main import main


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(given: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(pipeline, "_session", started)


TRANSFORM = ["transform", "orders", "large", "--sql", "select * from input"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["audit", "orders", "--within", "key"], "--within: says within what numbers count; say which with --sequence"),
        (["audit", "orders", "--against", "copy", "--identity", "key"], "--identity: is for one topic by itself"),
        (["audit", "orders", "--against-lake", "lake", "--sequence", "key"], "--sequence: is for one topic by itself"),
        (["audit", "orders", "--against-bootstrap", "other:9092"], "name that with --against"),
        (["audit", "orders", "--against-lake", "lake", "--against-bootstrap", "b:1"], "name that with --against"),
        (["audit", "orders", "--report", "/"], "--report: / is a folder; name a file in it"),
        (["lake", "orders", "lake", "--max-records", "x"], "'x' is not a number of 0 or more"),
        (["lake", "orders", "lake", "--bad-topic", "broken"], "--bad-topic needs --schema"),
        ([*TRANSFORM, "--checkpoint", "new", "--max-records", "-5"], "'-5' is not a number of 0 or more"),
        ([*TRANSFORM, "--checkpoint", "new", "--keep-malformed"], "--keep-malformed needs --schema"),
        ([*TRANSFORM, "--checkpoint", "new", "--watermark", "at"], "--watermark is COLUMN:LATE, as in at:10m"),
        ([*TRANSFORM, "--checkpoint", "new", "--watermark", ":10m"], "--watermark is COLUMN:LATE, as in at:10m"),
        ([*TRANSFORM, "--checkpoint", "new", "--watermark", "at:"], "--watermark is COLUMN:LATE, as in at:10m"),
    ],
)
def test_what_makes_no_sense_is_told_before_spark_starts(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An option that would go without notice is such a thing, too: a reader of the result believes that it counted."""
    assert main(["pipeline", *words]) == 2
    assert sentence in capsys.readouterr().err


def test_a_file_is_not_taken_for_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    for words in (["lake", "orders", str(file)], [*TRANSFORM, "--checkpoint", str(file)]):
        assert main(["pipeline", *words]) == 1
        assert f"{file} is no folder; name one, or one that is to be made" in capsys.readouterr().err
    assert file.read_text() == "mine"


@pytest.mark.parametrize(
    ("schema", "what"),
    [
        ("idbigint", "idbigint has no type"),
        ("id bigint, amount", "amount has no type"),
        ("id bigint,", "there is a comma too many"),
    ],
)
def test_a_schema_without_types_is_a_sentence_before_spark_starts(
    schema: str, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    for words in (["lake", "orders", str(tmp_path)], [*TRANSFORM, "--checkpoint", str(tmp_path)]):
        assert main(["pipeline", *words, "--schema", schema]) == 1
        (told,) = capsys.readouterr().err.splitlines()
        expected = f"schema: '{schema}' does not name fields and their types, as 'id bigint, at timestamp' does: {what}"
        assert told.endswith(expected)


@pytest.mark.parametrize(
    "words",
    [
        ["lake", "orders", "lake"],
        ["lake", "orders", "lake", "--schema", "id bigint"],
        [*TRANSFORM, "--checkpoint", "new"],
        ["audit", "orders"],
    ],
)
@pytest.mark.parametrize("packages", [["pyspark", "py4j"], ["pyspark", "py4j", "pyarrow", "numpy", "pandas"]])
def test_a_missing_package_is_one_sentence(words: list[str], packages: list[str], tmp_path: Path) -> None:
    """In a process of its own: what was imported before would be found, whatever is missing."""
    program = (
        "import sys; sys.modules.update(dict.fromkeys(sys.argv[1].split(',')));"
        "from mainstem.cli.main import main; sys.exit(main(sys.argv[2:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, ",".join(packages), "pipeline", *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stderr == "mainstem: PySpark is not installed: pip install 'mainstem[spark]'\n"
    assert done.returncode == 2
    assert list(tmp_path.iterdir()) == []
