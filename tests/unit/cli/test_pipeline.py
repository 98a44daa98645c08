"""What `mainstem pipeline` is told wrong, and says before Spark takes its time to start."""

from __future__ import annotations

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
