"""What segment files are read as, where no Spark is needed to tell."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from mainstem.spark.segment_source import _log_start
from mainstem.storage.checkpoint import LOG_STARTS
from mainstem.storage.offline import Folder


@pytest.mark.parametrize("end", ["", "/"])
def test_records_that_were_deleted_stay_so_however_their_folder_is_spelled(tmp_path: Path, end: str) -> None:
    (tmp_path / LOG_STARTS).write_text("0\n1\nt 0 17\n")
    assert _log_start(Folder("t", 0, f"{tmp_path / 't-0'}{end}")) == 17
