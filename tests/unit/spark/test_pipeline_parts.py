"""What the pipelines are made of, without Spark."""

from __future__ import annotations

import dataclasses
import io
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mainstem.spark.pipelines import audit, held_back, lake, plots, progress, transform
from mainstem.spark.pipelines.lake_folder import day_column


@pytest.mark.parametrize(
    ("given", "spelled"),
    [("10m", "10 minutes"), (" 30s", "30 seconds"), ("2 h", "2 hours"), ("1d", "1 days"), ("10 minutes", "10 minutes")],
)
def test_a_lateness_is_spelled_as_spark_knows_it(given: str, spelled: str) -> None:
    assert transform.interval(given) == spelled


def test_a_field_called_date_is_not_taken_for_the_day_of_its_folder() -> None:
    assert day_column(["id", "at"]) == "date"
    assert day_column(["id", "Date"]) == "_date"


@pytest.mark.parametrize("schema", ["", "  "])
def test_a_schema_without_a_field_is_a_sentence(schema: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="schema: is empty; name the fields of the JSON value"):
        lake.Lake("127.0.0.1:9092", "orders", tmp_path, schema)
    with pytest.raises(ValueError, match="schema: is empty"):
        transform.Transform("127.0.0.1:9092", "orders", "large", tmp_path, schema)


def test_bounds_and_options_that_make_no_sense_are_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="max_offsets_per_trigger: must be 1 or more, or 0 for no bound; it is -1"):
        lake.Lake("127.0.0.1:9092", "orders", tmp_path, max_offsets_per_trigger=-1)
    with pytest.raises(ValueError, match="keep_malformed: needs a schema"):
        transform.Transform("127.0.0.1:9092", "orders", "large", tmp_path, keep_malformed=True)


@pytest.mark.parametrize(
    "schema",
    ["id bigint", "id: bigint, at timestamp", "`a b` bigint", "d decimal(5,2)", "o struct<a: int, b: int>", "n:int"],
)
def test_a_schema_of_fields_is_left_to_spark(schema: str, tmp_path: Path) -> None:
    assert lake.Lake("127.0.0.1:9092", "orders", tmp_path, schema).schema == schema


PROGRESS: dict[str, Any] = {
    "batchId": 3,
    "numInputRows": 1200,
    "processedRowsPerSecond": 600.0,
    "durationMs": {"triggerExecution": 2000},
    "sources": [{"endOffset": {"t": {"0": 10}}, "latestOffset": {"t": {"0": 15, "1": 2}}}],
    "sink": {"numOutputRows": 1100},
}


def test_progress_tells_rows_in_and_out_lag_and_time() -> None:
    assert progress.describe(PROGRESS, 5000) == (
        "batch 3: 1,200 rows in, 1,100 rows out (5,000 in all, 600/s), lag 7, took 2,000 ms"
    )


def test_progress_has_a_record_once_however_often_a_statement_names_its_input() -> None:
    twice = {**PROGRESS, "numInputRows": 2400, "observedMetrics": {"mainstem.input": {"records": 1200}}}
    assert progress.describe(twice, 5000) == progress.describe(PROGRESS, 5000)


@pytest.mark.parametrize(
    ("most", "watermark", "found"),
    [(None, None, None), (None, ("at", "1 hour"), 0), (0, None, 0), (7, None, 7), (7, ("at", "1 hour"), 7)],
)
def test_batches_of_a_job_with_a_watermark_are_bounded_only_where_that_is_asked_for(
    most: int | None, watermark: tuple[str, str] | None, found: int | None, tmp_path: Path
) -> None:
    job = transform.Transform("127.0.0.1:9092", "a", "b", tmp_path, watermark=watermark, max_offsets_per_trigger=most)
    assert transform.most_records(job) == found


def test_rows_that_are_too_late_are_told_with_what_would_have_them(tmp_path: Path) -> None:
    unbounded = transform.Transform("127.0.0.1:9092", "a", "b", tmp_path, watermark=("at", "1 hour"))
    told = transform.warning_of_late(unbounded, 1200)
    assert "1,200 rows of a came later than the watermark of 1 hour allows and are not in b" in told
    assert "allow more of it (--watermark), with another target" in told
    bounded = dataclasses.replace(unbounded, max_offsets_per_trigger=7)
    assert "(--watermark), or take all that waits in one batch (--max-records 0)," in transform.warning_of_late(
        bounded, 1
    )


def test_rows_that_spark_does_not_count_are_told_by_who_wrote_them() -> None:
    assert "1,200 rows in, 4,900 rows out in all (" in progress.describe(PROGRESS, 5000, 4900)


def test_what_waits_for_an_open_transaction_is_told_by_partition() -> None:
    assert held_back.told({}) == ""
    assert held_back.told({("t", 0): 1501}) == "1,501 offsets of t-0 wait for an open transaction"
    many = {("t", number): 10 for number in range(6)}
    assert held_back.told(many).endswith("10 offsets of t-2, 30 of 3 more partitions wait for an open transaction")


def test_what_a_query_waits_for_is_told_without_names_of_classes() -> None:
    spark_says = "Getting offsets from org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatch@6b42d555"
    assert progress.doing(spark_says) == "Getting offsets"
    assert progress.doing("Waiting for data to arrive") == "Waiting for data to arrive"


def test_outside_of_a_terminal_lines_do_not_come_faster_than_one_can_read() -> None:
    out = io.StringIO()
    line = progress.Line(out, quiet=False)
    for nth in range(50):
        line.show(f"line {nth}")
    assert out.getvalue() == "line 0\n"
    line.show("done", is_last=True)
    line.clear()
    assert out.getvalue() == "line 0\ndone\n"


def test_an_audit_tells_when_in_words_of_a_calendar() -> None:
    assert audit.moment(1_767_225_600_500) == "2026-01-01 00:00:00 UTC"
    assert audit.moment(9 * 10**18) == "9,000,000,000,000,000,000 ms"


def test_the_figure_of_an_axis_has_room_for_millions() -> None:
    label = r'<text x="([\d.]+)" y="[\d.]+" text-anchor="(\w+)">12,345,678</text>'
    found = re.search(label, plots.bars("n", ["a"], [12_345_678]))
    assert found is not None
    assert (float(found[1]) >= 0, found[2]) == (True, "start")


def test_no_line_of_a_plot_runs_through_its_legend() -> None:
    """Most of them rise: they end at the top right."""
    plot = plots.lines("n", ["a", "b"], {"sent": [0, 2], "landed": [0, 1]})
    legend = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" text-anchor="end" fill="[^"]+">\w+</text>', plot)
    assert len({x for x, _ in legend}) == 2
    heights = [float(each.split(",")[1]) for line in re.findall(r'points="([^"]*)"', plot) for each in line.split()]
    assert max(float(y) for _, y in legend) < min(heights)


class Query:
    """As Spark's, that somebody interrupts while it runs."""

    def __init__(self) -> None:
        self.isActive = True
        self.lastProgress = None
        self.recentProgress = [{"batchId": 0, "numInputRows": 7, "observedMetrics": {}}]

    @property
    def status(self) -> dict[str, str]:
        os.kill(os.getpid(), signal.SIGINT)
        return {"message": "Waiting for data to arrive"}

    def stop(self) -> None:
        self.isActive = False

    def exception(self) -> None:
        return None


def test_an_interrupt_ends_an_endless_pipeline_in_good_order() -> None:
    query: Any = Query()
    before = signal.getsignal(signal.SIGINT)
    assert progress.Watcher(quiet=True).follow({"copy": query}, is_endless=True) == {"copy": 7}
    assert not query.isActive
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_stops_the_query_of_a_pipeline_that_was_not_done() -> None:
    query: Any = Query()
    with pytest.raises(KeyboardInterrupt):
        progress.Watcher(quiet=True).follow({"copy": query})
    assert not query.isActive


def test_a_long_batch_tells_what_it_is_at_and_since_when_and_what_is_left_out() -> None:
    query: Any = Query()
    query.recentProgress[0]["observedMetrics"] = {"mainstem.input": {"records": 5000, "malformed": 1200}}
    query.recentProgress[0]["stateOperators"] = [{"numRowsDroppedByWatermark": nth} for nth in (0, 1034)]
    out = io.StringIO()
    watcher = progress.Watcher(out)
    left_out = "1,200 malformed records left out; 1,034 rows too late for the watermark left out"
    # Spark's own number has a record as often as a statement names its input.
    query.recentProgress[0]["numInputRows"] = 10_000
    assert watcher.follow({"copy": query}, is_endless=True) == {"copy": 5000}
    assert out.getvalue().splitlines() == [
        f"copy: {left_out}; Waiting for data to arrive, 0 s",
        f"copy: {left_out}",
    ]
    assert (watcher.malformed, watcher.late) == (1200, 1034)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """As in a terminal: what a script starts in the background ignores interrupts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_who_cannot_wait_for_the_end_interrupts_twice() -> None:
    with progress.Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.came
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
