"""What a decision says survives the way through its record; what a newer version wrote is refused."""

import json

import pytest

from mainstem.spark.decisions import Decision
from mainstem.spark.transactions import Triple


def test_a_decision_reads_as_it_was_written() -> None:
    made = Decision(
        batch=7,
        run="r",
        superseded=("a", "b"),
        transactions=(Triple("sink.x.0", 12, 3), Triple("sink.y.0", 13, 0)),
        written=((("t", 0, 5, 9), ("t", 1, 0, 0)), ()),
        query="q",
    )
    assert Decision.from_bytes(made.to_bytes()) == made


def test_a_decision_of_a_newer_version_is_refused() -> None:
    with pytest.raises(ValueError, match="a decision of version 2: a newer Mainstem wrote it"):
        Decision.from_bytes(json.dumps({"version": 2}).encode())
