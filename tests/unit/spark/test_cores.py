"""How many tasks run at once is known where a session says so, and taken for this machine's cores where none does."""

import os

import pytest

from mainstem.spark import cores


@pytest.mark.parametrize(
    ("settings", "number"),
    [
        ({"spark.master": "local"}, 1),
        ({"spark.master": "local[3]"}, 3),
        ({"spark.master": "local[3,2]"}, 3),
        ({"spark.master": "local[ 3 , 2 ]"}, 3),
        ({"spark.master": "local[*]"}, os.cpu_count()),
        ({"spark.master": "local[*,2]"}, os.cpu_count()),
        ({"spark.master": "local[3]", "spark.default.parallelism": "7"}, 7),
        ({"spark.master": "spark://host:7077"}, None),
        ({"spark.master": "spark://host:7077", "spark.default.parallelism": "70"}, 70),
        ({"spark.master": "local-cluster[2,3,1024]"}, None),
        ({}, None),
    ],
)
def test_what_a_session_tells(settings: dict[str, str], number: int | None) -> None:
    assert cores.of_session(settings) == number


def test_what_was_said_counts_and_else_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cores.VARIABLE, "12")
    assert cores.here() == 12
    monkeypatch.delenv(cores.VARIABLE)
    assert cores.here() == os.cpu_count()
