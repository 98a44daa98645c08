"""What segment files are read as, where no Spark is needed to tell."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

import pyarrow as pa

from mainstem.protocol.columns import encode_columns
from mainstem.protocol.compression import ZSTD
from mainstem.spark.fetching import BATCH_BYTES
from mainstem.spark.options import source_options
from mainstem.spark.schema import default_schema, wanted
from mainstem.spark.segment_source import SegmentReader, _log_start
from mainstem.storage.checkpoint import LOG_STARTS
from mainstem.storage.offline import Folder


@pytest.mark.parametrize("end", ["", "/"])
def test_records_that_were_deleted_stay_so_however_their_folder_is_spelled(tmp_path: Path, end: str) -> None:
    (tmp_path / LOG_STARTS).write_text("0\n1\nt 0 17\n")
    assert _log_start(Folder("t", 0, f"{tmp_path / 't-0'}{end}")) == 17


def test_a_batch_that_expands_to_more_than_is_decoded_at_once_is_read(tmp_path: Path) -> None:
    values = [letter * BATCH_BYTES for letter in (b"a", b"b", b"c")]
    (batch,) = encode_columns(None, pa.array(values), codec=ZSTD, max_batch_bytes=1 << 30)
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020}.log").write_bytes(batch)
    options = source_options({"path": str(tmp_path)}, streaming=False)
    reader = SegmentReader(options, wanted(default_schema(options), options))
    found = [value for part in reader.partitions() for rows in reader.read(part) for value in rows["value"].to_pylist()]
    assert found == values


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("subscribe", "t,tt", "subscribe: there is no topic tt in "),
        ("assign", '{"t": [0, 7]}', "assign: there is no partition t-7 in "),
        ("assign", '{"t": [0], "tt": [1]}', "assign: there is no partition tt-1 in "),
    ],
)
def test_one_of_several_that_is_not_there_is_told(tmp_path: Path, option: str, value: str, told: str) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020}.log").write_bytes(b"")
    options = source_options({"path": str(tmp_path), option: value}, streaming=False)
    with pytest.raises(ValueError, match=told):
        SegmentReader(options, wanted(default_schema(options), options)).partitions()
