"""Which files of a lake count, however many batches have landed in it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from mainstem.spark.pipelines import lake_lists


@pytest.fixture(autouse=True)
def _disk_that_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def land(root: Path, batches: range) -> None:
    for batch in batches:
        lake_lists.note_batch(root, batch, "q", {"rows": [f"date=1/batch-{batch}"], "bad": []})


def lists(root: Path) -> int:
    return len(list((root / lake_lists.BATCHES).iterdir()))


def test_a_lake_of_very_many_batches_has_few_lists(tmp_path: Path) -> None:
    land(tmp_path, range(1050))
    assert lists(tmp_path) <= 2 * lake_lists.FOLD_AT + 2
    found = lake_lists.read(tmp_path)
    assert found.files == {"rows": sorted(f"date=1/batch-{batch}" for batch in range(1050)), "bad": []}
    assert (found.batch, found.query) == (1049, "q")
    assert all(lake_lists.has_landed(tmp_path, batch) for batch in (0, 500, 999, 1000, 1049))
    assert not lake_lists.has_landed(tmp_path, 1050)


def test_what_was_merged_stays_merged_when_lists_are_folded(tmp_path: Path) -> None:
    land(tmp_path, range(3))
    # Files of a batch have the same names in both tables: those of the other one stay.
    lake_lists.note_batch(tmp_path, 3, "q", {"rows": ["date=1/batch-3"], "bad": ["date=1/batch-0"]})
    lake_lists.note_merged(tmp_path, "rows", ["date=1/merged"], [f"date=1/batch-{batch}" for batch in range(3)])
    expected = {"rows": ["date=1/batch-3", "date=1/merged"], "bad": ["date=1/batch-0"]}
    for _ in range(3):
        assert lake_lists.read(tmp_path).files == expected
        lake_lists.fold(tmp_path)
    # The lists that were folded are gone by now, and with them what says that the parts were replaced.
    assert lists(tmp_path) == 1
    assert lake_lists.read(tmp_path).files == expected


def test_files_that_count_and_are_gone_are_known(tmp_path: Path) -> None:
    assert lake_lists.gone(tmp_path) == {}
    land(tmp_path, range(2))
    for batch in (0, 1, 2):
        file = tmp_path / "rows" / "date=1" / f"batch-{batch}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    assert lake_lists.gone(tmp_path) == {"rows": [], "bad": []}
    (tmp_path / "rows" / "date=1" / "batch-1").unlink()
    assert lake_lists.gone(tmp_path) == {"rows": ["date=1/batch-1"], "bad": []}


def test_an_empty_folder_has_no_files_and_nothing_to_fold(tmp_path: Path) -> None:
    lake_lists.fold(tmp_path)
    assert lake_lists.read(tmp_path).files == {}
    assert not lake_lists.has_landed(tmp_path, 0)


def test_who_reads_while_lists_are_folded_sees_every_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_lists, "FOLD_AT", 20)
    landed = -1
    is_over = threading.Event()

    def work() -> None:
        nonlocal landed
        for batch in range(600):
            land(tmp_path, range(batch, batch + 1))
            landed = batch
        is_over.set()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        while not is_over.is_set():
            before = landed
            assert len(lake_lists.read(tmp_path).files.get("rows", ())) > before
    finally:
        thread.join()
