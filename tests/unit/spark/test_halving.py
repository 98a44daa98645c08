"""Two halves of a batch have its rows as they were, and its sequences."""

import pytest

from mainstem.protocol.batch import BatchView
from mainstem.protocol.columns import decode_columns, encode_columns
from mainstem.protocol.compression import CODEC_NAMES
from mainstem.protocol.records import iterate_records
from mainstem.spark.halving import halves

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
LAST_SEQUENCE = 0x7FFFFFFF


@pytest.mark.parametrize("codec", CODEC_NAMES)
@pytest.mark.parametrize("has_headers", [True, False])
def test_halves_have_the_same_rows(codec: str, has_headers: bool) -> None:
    headers = pa.array([None, [], [{"key": "a", "value": b"x"}], None, [{"key": "b", "value": None}]], HEADERS)
    (batch,) = encode_columns(
        pa.array([b"k", None, b"", b"l", b"m"]),
        pa.array([None, b"v", b"w" * 300, b"", b"z"]),
        pa.array([7, 3, 9_000_000_000_000_000, 0, 8]),
        headers if has_headers else None,
        codec=CODEC_NAMES.index(codec),
        producer_id=5,
        producer_epoch=2,
        base_sequence=LAST_SEQUENCE,
        transactional=True,
    )
    whole = BatchView(batch, 0)
    first, second = (BatchView(half, 0) for half in halves(whole, decode_columns(batch), None))
    found = [
        (each.key, each.value, each.timestamp, list(each.headers or ()))
        for half in (first, second)
        for each in iterate_records(half)
    ]
    assert found == [
        (each.key, each.value, each.timestamp, list(each.headers or ())) for each in iterate_records(whole)
    ]
    for half in (first, second):
        half.check(half.end)
        assert (half.producer_id, half.producer_epoch, half.codec) == (5, 2, whole.codec)
        assert half.is_transactional
    # They start again at 0.
    assert (first.record_count, first.base_sequence, second.base_sequence) == (2, LAST_SEQUENCE, 1)


def test_halves_of_a_batch_without_sequences_have_none() -> None:
    (batch,) = encode_columns(None, pa.array([b"a", b"b"]), timestamp=1)
    made = halves(BatchView(batch, 0), decode_columns(batch), None)
    assert [BatchView(half, 0).base_sequence for half in made] == [-1, -1]
