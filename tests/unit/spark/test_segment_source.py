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
from mainstem.storage.names import LOG, TXN_INDEX
from mainstem.storage.offline import CHUNK_BYTES, Folder
from mainstem.storage.txn_index import AbortedTransaction
from tests.support.logs import batch, marker

FILLER = b"filler"


def write_segment(folder: Path, *batches: tuple[int, bytes], aborted: tuple[AbortedTransaction, ...] = ()) -> None:
    """Batches, each with its offset, and the transactions whose marker is here."""
    folder.mkdir(exist_ok=True)
    base = f"{batches[0][0]:020}"
    (folder / f"{base}{LOG}").write_bytes(b"".join(offset.to_bytes(8, "big") + data[8:] for offset, data in batches))
    if aborted:
        (folder / f"{base}{TXN_INDEX}").write_bytes(b"".join(each.to_bytes() for each in aborted))


def by(producer: int, *values: bytes) -> bytes:
    return batch(*values, producer_id=producer, epoch=0, sequence=0, transactional=True)


def values(path: Path, **given: str) -> list[bytes]:
    options = source_options({"path": str(path), **given}, streaming=False)
    reader = SegmentReader(options, wanted(default_schema(options), options))
    return [value for part in reader.partitions() for rows in reader.read(part) for value in rows["value"].to_pylist()]


def committed(path: Path, **given: str) -> list[bytes]:
    """Without what is there only to fill a chunk."""
    found = values(path, **{"kafka.isolation.level": "read_committed"}, **given)
    return [value for value in found if not value.startswith(FILLER)]


def a_chunk() -> bytes:
    """A batch that is read alone, so that what comes after it is in a chunk of its own."""
    return batch(FILLER * (CHUNK_BYTES // len(FILLER) + 1))


@pytest.mark.parametrize("end", ["", "/"])
def test_records_that_were_deleted_stay_so_however_their_folder_is_spelled(tmp_path: Path, end: str) -> None:
    (tmp_path / LOG_STARTS).write_text("0\n1\nt 0 17\n")
    assert _log_start(Folder("t", 0, f"{tmp_path / 't-0'}{end}")) == 17


def test_a_batch_that_expands_to_more_than_is_decoded_at_once_is_read(tmp_path: Path) -> None:
    large = [letter * BATCH_BYTES for letter in (b"a", b"b", b"c")]
    (data,) = encode_columns(None, pa.array(large), codec=ZSTD, max_batch_bytes=1 << 30)
    write_segment(tmp_path / "t-0", (0, data))
    assert values(tmp_path) == large


def test_batches_that_expand_to_more_than_is_decoded_at_once_are_all_read(tmp_path: Path) -> None:
    large = [letter * (BATCH_BYTES // 2 + 1) for letter in (b"a", b"b", b"c")]
    write_segment(tmp_path / "t-0", *((nth, batch(value, codec=ZSTD)) for nth, value in enumerate(large)))
    assert values(tmp_path) == large


def test_what_a_producer_commits_after_it_has_aborted_is_read_in_every_chunk(tmp_path: Path) -> None:
    write_segment(
        tmp_path / "t-0",
        (0, by(7, b"gone")),
        (1, marker(7, 0, False)),
        (2, by(7, b"kept, in the same chunk")),
        (3, marker(7, 0, True)),
        (4, a_chunk()),
        (5, by(7, b"kept, in a later one")),
        (6, marker(7, 0, True)),
        aborted=(AbortedTransaction(7, 0, 1, 2),),
    )
    assert committed(tmp_path) == [b"kept, in the same chunk", b"kept, in a later one"]


def test_what_was_aborted_is_left_out_of_every_chunk_and_segment_that_it_reaches_into(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    write_segment(folder, (0, by(8, b"kept")), (1, by(7, b"gone")), (2, a_chunk()), (3, by(7, b"gone, too")))
    write_segment(
        folder,
        (4, by(8, b"kept, too")),
        (5, by(7, b"gone as well")),
        (6, marker(7, 0, False)),
        (7, marker(8, 0, True)),
        (8, by(7, b"kept at last")),
        (9, marker(7, 0, True)),
        aborted=(AbortedTransaction(7, 1, 6, 0),),
    )
    kept = [b"kept", b"kept, too", b"kept at last"]
    assert committed(tmp_path) == kept
    assert committed(tmp_path, splitBytes="100") == kept
    assert committed(tmp_path, startingOffsets='{"t": {"0": 3}}') == kept[1:]


def test_reading_stops_before_the_first_transaction_that_is_open(tmp_path: Path) -> None:
    write_segment(
        tmp_path / "t-0",
        (0, by(7, b"done")),
        (1, marker(7, 0, True)),
        (2, by(8, b"open")),
        (3, by(7, b"done, but behind it")),
        (4, marker(7, 0, True)),
    )
    assert committed(tmp_path) == [b"done"]
    assert values(tmp_path) == [b"done", b"open", b"done, but behind it"]


def test_offsets_bound_what_is_read_of_several_segments(tmp_path: Path) -> None:
    for base in (0, 3, 6):
        write_segment(tmp_path / "t-0", (base, batch(*(b"%d" % nth for nth in range(base, base + 3)))))
    for start in range(9):
        for end in range(start, 10):
            found = values(
                tmp_path, startingOffsets=f'{{"t": {{"0": {start}}}}}', endingOffsets=f'{{"t": {{"0": {end}}}}}'
            )
            assert found == [b"%d" % nth for nth in range(start, end)]


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
