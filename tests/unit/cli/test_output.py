import json

import pytest

from mainstem.cli.output import Column, Output, Progress, name, number

COLUMNS = [name("topic"), number("partitions"), Column("isr")]
ROWS: list[dict[str, object]] = [
    {"topic": "orders", "partitions": 12, "isr": (1, 2), "more": b"\xff"},
    {"topic": "x", "partitions": None, "isr": ()},
]


def test_plain_columns_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    Output().table(COLUMNS, ROWS)
    assert capsys.readouterr().out == "TOPIC   PARTITIONS  ISR\norders          12  1,2\nx                -  -\n"


def test_json_has_every_key_and_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    Output(is_json=True).table(COLUMNS, ROWS, "nothing")
    found = json.loads(capsys.readouterr().out)
    assert found[0] == {"topic": "orders", "partitions": 12, "isr": [1, 2], "more": "\\xff"}
    Output(is_json=True).table(COLUMNS, [], "nothing")
    assert json.loads(capsys.readouterr().out) == []


def test_an_empty_result_is_said_beside_the_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    Output().table(COLUMNS, [], "there are no topics")
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "there are no topics\n")
    Output(is_quiet=True).table(COLUMNS, [], "there are no topics")
    assert capsys.readouterr().err == ""


def test_fields_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    Output().fields([("id", 1), ("state", None)], "orders")
    assert capsys.readouterr().out == "orders\n  id     1\n  state  -\n"


def test_colour_where_it_is_asked_for(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    Output(color=True).table(COLUMNS, ROWS)
    shown = capsys.readouterr().out
    Output(color=True).draw(COLUMNS, [])
    assert capsys.readouterr().out, "the headings of a table without rows"
    assert "\x1b[1;36morders\x1b[0m" in shown
    assert "PARTITIONS" in shown, "a heading is not cut, however narrow it is"


def test_progress_that_nobody_watches_only_counts() -> None:
    with Output().progress("reading", 10) as bar:
        bar.advance(3)
        bar.advance()
    assert bar.done == 4
    assert Progress().done == 0


def test_a_script_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    Output().confirm("delete it?", is_agreed=False)
