"""Which offsets a log has lost, by what its batches say of themselves."""

from __future__ import annotations

from typing import Any, cast

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

import pyarrow as pa

from mainstem.client.errors import OffsetOutOfRangeError
from mainstem.protocol.batch import STAMP_BYTES, BatchView
from mainstem.protocol.columns import encode_columns
from mainstem.spark.pipelines.holes import without_batch
from mainstem.spark.splits import Range


def batch(base: int, end: int) -> bytes:
    (found,) = encode_columns(None, pa.array([b"x"] * (end - base)))
    return BatchView(found, 0).stamp(base, 0) + found[STAMP_BYTES:]


class Answer:
    def __init__(self, frame: bytes, reach: int) -> None:
        self.frame, self.start, self.end, self.reach = frame, 0, len(frame), reach


class Log:
    """A log of batches at these offsets, of which an answer has `at_once`; it begins at `begins`."""

    def __init__(self, *spans: tuple[int, int], at_once: int = 2, begins: int = 0) -> None:
        self.spans = spans
        self.at_once = at_once
        self.begins = begins
        self.asked: list[int] = []

    def fetch(self, found: Range, position: int) -> Answer:
        self.asked.append(position)
        if position < self.begins:
            raise OffsetOutOfRangeError("gone")
        told = [each for each in self.spans if each[1] > position][: self.at_once]
        reach = told[-1][1] if told else found.end
        return Answer(b"".join(batch(*each) for each in told), reach)


def lost(log: Log, *gaps: tuple[int, int]) -> list[tuple[int, int]]:
    found = without_batch(cast(Any, log), [Range("t", 0, *each) for each in gaps])
    return [(each.start, each.end) for each in found]


def test_offsets_between_batches_are_lost_and_those_in_a_batch_are_not() -> None:
    log = Log((0, 3), (3, 4), (9, 10), (10, 12))
    assert lost(log, (3, 9), (11, 12)) == [(4, 9)]
    assert lost(log, (2, 20)) == [(4, 9), (12, 20)]
    assert lost(log, (0, 12)) == [(4, 9)]
    assert lost(log, (5, 7)) == [(5, 7)]


def test_one_answer_tells_of_all_gaps_that_it_reaches() -> None:
    log = Log((0, 3), (3, 4), (4, 6), (6, 7), (8, 9), at_once=4)
    assert lost(log, (3, 4), (6, 8)) == [(7, 8)]
    assert log.asked == [3]


def test_what_the_log_no_longer_has_is_not_lost() -> None:
    assert lost(Log((5, 9), begins=5), (2, 4)) == []
