"""Columns hold what the records hold, whichever way they go, and only what is asked for."""

import datetime
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.protocol.batch import BatchView, iterate_batches
from mainstem.protocol.builder import BatchBuilder, recompress
from mainstem.protocol.columns import FIELDS, decode_columns, encode_columns
from mainstem.protocol.control import EndMarker, build_end_marker
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.records import Record, iterate_records, walk_records
from tests.support.cleaned import retain
from tests.unit.protocol.test_builder import GOLDEN
from tests.unit.protocol.test_records import MALFORMED, batch_of

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

Item = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def batch(items: list[Item], base_offset: int = 0, codec: int = 0, **settings: Any) -> bytes:
    builder = BatchBuilder(codec, base_offset, **settings)
    for item in items:
        builder.append(*item)
    return builder.build()


def numbered(first: int, count: int) -> list[Item]:
    return [(1000 + n, b"k%d" % n, b"v%d" % n, []) for n in range(first, first + count)]


def records_of(data: bytes) -> list[Record]:
    return [r for b in iterate_batches(data, 0, len(data)) if not b.is_control for r in iterate_records(b)]


def rows_as_records(table: pa.RecordBatch) -> list[Record]:
    return [
        Record(
            row["offset"],
            row["timestamp"],
            row["key"],
            row["value"],
            [(h["key"], h["value"]) for h in row["headers"] or []],
        )
        for row in table.set_column(
            table.schema.get_field_index("timestamp"), "timestamp", table.column("timestamp").view(pa.int64())
        ).to_pylist()
    ]


def decoded(data: bytes, **options: Any) -> list[Record]:
    columns = decode_columns(data, **options)
    table = columns.to_arrow(["offset", "timestamp", "key", "value", "headers"], timestamp_unit="ms")
    table.validate(full=True)
    return rows_as_records(table)


payloads = st.none() | st.binary(max_size=300)
header_lists = st.lists(st.tuples(st.text(max_size=8), payloads), max_size=3)
item_lists = st.lists(
    st.tuples(st.integers(-(2**63), 2**63 - 1), payloads, payloads, header_lists), min_size=1, max_size=12
)


@given(st.lists(st.tuples(item_lists, st.integers(0, 4)), min_size=1, max_size=4))
@settings(max_examples=100, deadline=None)
def test_columns_hold_what_the_records_hold(groups: list[tuple[list[Item], int]]) -> None:
    data = b""
    offset = 0
    for items, codec in groups:
        data += batch(items, offset, codec)
        offset += len(items)
    assert decoded(data) == records_of(data)
    assert decode_columns(data).next_offset == offset


@given(item_lists, st.integers(0, 4), st.integers(80, 2000))
@settings(max_examples=100, deadline=None)
def test_what_is_encoded_from_columns_is_read_back(items: list[Item], codec: int, max_bytes: int) -> None:
    batches = encode_columns(
        pa.array([key for _, key, _, _ in items], pa.binary()),
        pa.array([value for _, _, value, _ in items], pa.binary()),
        pa.array([timestamp for timestamp, _, _, _ in items], pa.int64()),
        pa.array([[{"key": k, "value": v} for k, v in headers] for _, _, _, headers in items], HEADERS),
        codec=codec,
        max_batch_bytes=max_bytes,
    )
    read: list[Item] = []
    for data in batches:
        view = BatchView(data, 0)
        view.check(len(data))
        assert view.base_offset == 0
        assert view.record_count == 1 or len(recompress(view, 0)) <= max_bytes
        body = recompress(view, 0)
        walk_records(body, 61, len(body), view.record_count)
        here = list(iterate_records(view))
        assert view.max_timestamp == max(r.timestamp for r in here)
        read += [(r.timestamp, r.key, r.value, r.headers) for r in here]
    assert read == items


def test_encoding_writes_what_the_builder_writes() -> None:
    items = numbered(0, 500)
    built = batch(items)
    [encoded] = encode_columns(
        pa.array([item[1] for item in items]), pa.array([item[2] for item in items]), pa.array([i[0] for i in items])
    )
    assert encoded == built


@given(
    st.lists(
        st.tuples(st.integers(0, 70), st.sampled_from([0, 1, 7, 8, 63, 64, 65, 200, 256, 257, 8191, 8192])), max_size=80
    ),
    st.booleans(),
    st.integers(80, 20_000),
    st.integers(0, 4),
)
@settings(max_examples=100, deadline=None)
def test_plain_rows_are_written_as_the_builder_writes_them(
    lengths: list[tuple[int, int]], has_keys: bool, max_bytes: int, codec: int
) -> None:
    rows = [(bytes([nth % 256]) * key, bytes([(nth + 7) % 256]) * value) for nth, (key, value) in enumerate(lengths)]
    keys = pa.array([b"before", *(key for key, _ in rows)], pa.binary()).slice(1) if has_keys else None
    values = pa.array([value for _, value in rows], pa.binary())
    at = 0
    for data in encode_columns(keys, values, timestamp=1234, codec=codec, max_batch_bytes=max_bytes):
        view = BatchView(data, 0)
        view.check(len(data))
        here = rows[at : at + view.record_count]
        items: list[Item] = [(1234, key if has_keys else None, value, []) for key, value in here]
        assert data == batch(items, codec=codec)
        assert len(here) == 1 or len(batch(items)) <= max_bytes
        # Another row would have been too much.
        after = rows[at : at + view.record_count + 1]
        more: list[Item] = [(1234, key if has_keys else None, value, []) for key, value in after]
        assert len(after) == len(here) or len(batch(more)) > max_bytes
        at += view.record_count
    assert at == len(rows)


def test_plain_rows_have_offsets_of_every_size() -> None:
    [data] = encode_columns(None, pa.array([b"v"] * 10_000), timestamp=0)
    assert data == batch([(0, None, b"v", [])] * 10_000)


def test_the_schema_is_sparks() -> None:
    table = decode_columns(batch(numbered(5, 2), base_offset=7)).to_arrow(topic="events", partition=3)
    assert table.schema.names == list(FIELDS)
    assert [str(field.type) for field in table.schema] == [
        "binary",
        "binary",
        "string",
        "int32",
        "int64",
        "timestamp[us, tz=UTC]",
        "int32",
        "list<item: struct<key: string, value: binary>>",
    ]
    assert table.to_pylist()[0] == {
        "key": b"k5",
        "value": b"v5",
        "topic": "events",
        "partition": 3,
        "offset": 7,
        "timestamp": EPOCH + datetime.timedelta(milliseconds=1005),
        "timestampType": 0,
        "headers": None,
    }


def test_only_the_columns_asked_for_are_built() -> None:
    columns = decode_columns(batch(numbered(0, 3)))
    assert columns.to_arrow(["value"]).schema.names == ["value"]
    assert columns.to_arrow([]).num_columns == 0
    assert columns.count == 3
    for field in ("topic", "partition", "colour"):
        with pytest.raises(ValueError, match=field):
            columns.to_arrow([field])
    with pytest.raises(ValueError, match="timestamp unit"):
        columns.to_arrow(["timestamp"], timestamp_unit="ns")


def test_nothing_decodes_to_empty_columns_of_the_right_types() -> None:
    full = decode_columns(batch(numbered(0, 1))).to_arrow(topic="t", partition=0)
    empty = decode_columns(b"").to_arrow(topic="t", partition=0)
    assert empty.num_rows == 0
    assert empty.schema == full.schema
    assert decode_columns(b"").next_offset == -1


def test_offsets_outside_the_range_are_left_out() -> None:
    data = b"".join(batch(numbered(n, 10), n) for n in range(0, 50, 10))
    assert [r.offset for r in decoded(data, from_offset=13, to_offset=27)] == list(range(13, 27))
    assert [r.offset for r in decoded(data, from_offset=20, to_offset=30)] == list(range(20, 30))
    assert decoded(data, from_offset=50) == []
    columns = decode_columns(data, from_offset=13, to_offset=27)
    assert columns.next_offset == 30


def test_a_range_of_the_buffer_is_read_and_a_torn_batch_at_its_end_is_not() -> None:
    parts = [batch(numbered(n, 5), n) for n in (0, 5, 10)]
    data = b"".join(parts)
    start = len(parts[0])
    assert [r.offset for r in decoded(data, start=start, end=len(data) - 1)] == list(range(5, 10))
    with pytest.raises(ValueError, match="no bytes"):
        decode_columns(data, 0, len(data) + 1)


def test_what_compaction_left_keeps_its_offsets() -> None:
    data = retain(BatchView(batch(numbered(0, 10), 100), 0), lambda r: r.offset % 3 == 0, delete_horizon=5)
    assert data is not None
    assert [(r.offset, r.timestamp) for r in decoded(data)] == [(n, 900 + n) for n in (102, 105, 108)]


def test_control_batches_give_no_rows_and_move_the_next_offset() -> None:
    data = batch(numbered(0, 2)) + build_end_marker(EndMarker(1, 0, True, 0, offset=2, timestamp=0))
    columns = decode_columns(data)
    assert (columns.count, columns.next_offset) == (2, 3)


def test_a_hook_sees_every_batch_and_can_leave_out_an_aborted_producer() -> None:
    data = (
        batch(numbered(0, 2), 0, producer_id=1)
        + batch(numbered(2, 2), 2, producer_id=2)
        + build_end_marker(EndMarker(1, 0, False, 0, offset=4, timestamp=0))
        + batch(numbered(5, 1), 5, producer_id=1)
    )
    aborted = {1}
    seen = []

    def skip(view: BatchView) -> bool:
        seen.append(view.base_offset)
        if view.is_control:
            aborted.discard(view.producer_id)
        return view.producer_id in aborted

    columns = decode_columns(data, skip=skip)
    assert columns.to_arrow(["offset"]).column("offset").to_pylist() == [2, 3, 5]
    assert seen == [0, 2, 4, 5]


def test_timestamp_types_follow_their_batches() -> None:
    data = batch(numbered(0, 2)) + batch(numbered(2, 3), 2, log_append_time=77) + batch(numbered(5, 1), 5)
    table = decode_columns(data).to_arrow(["timestamp", "timestampType"], timestamp_unit="ms")
    assert table.column("timestampType").to_pylist() == [0, 0, 1, 1, 1, 0]
    assert table.column("timestamp").view(pa.int64()).to_pylist() == [1000, 1001, 77, 77, 77, 1005]


def test_timestamps_that_microseconds_cannot_hold_become_the_nearest() -> None:
    data = batch([(t, None, b"", []) for t in (2**63 - 1, -(2**63), 1)])
    values = decode_columns(data).to_arrow(["timestamp"]).column(0).view(pa.int64()).to_pylist()
    most = (2**63 - 1) // 1000 * 1000
    assert values == [most, -most, 1000]


def test_header_keys_that_are_not_utf8_get_replacement_characters() -> None:
    data = batch([(0, None, b"", [("\udcff", b"1"), ("good", None)])])
    [headers] = decode_columns(data).to_arrow(["headers"]).column(0).to_pylist()
    assert headers == [{"key": "\ufffd", "value": b"1"}, {"key": "good", "value": None}]


def test_golden_batches_of_every_codec_decode() -> None:
    for name in ("plain", "gzip", "snappy", "lz4", "zstd", "log-append-time", "cleaned-horizon", "cleaned-empty"):
        assert decoded(GOLDEN[name]) == records_of(GOLDEN[name])


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_record_is_invalid(name: str) -> None:
    body, count = MALFORMED[name]
    data = batch_of(body, count).to_bytes()
    with pytest.raises(RemoteError) as caught:
        decode_columns(data).to_arrow(["headers"])
    assert caught.value.code == ErrorCode.INVALID_RECORD


def test_a_batch_that_does_not_match_its_crc_is_refused_unless_nobody_asks() -> None:
    good = batch(numbered(0, 1))
    bad = good.replace(b"v0", b"w0")
    with pytest.raises(RemoteError):
        decode_columns(bad)
    assert decode_columns(bad, check_crcs=False).to_arrow(["value"]).column(0).to_pylist() == [b"w0"]


def test_decompression_stops_at_the_limit_and_goes_on_from_there() -> None:
    data = b"".join(batch([(0, None, bytes(1000), [])] * 10, n, codec=4) for n in (0, 10, 20))
    columns = decode_columns(data, limit=25_000)
    assert (columns.count, columns.next_offset) == (20, 20)
    columns = decode_columns(data, from_offset=20, limit=25_000)
    assert (columns.count, columns.next_offset) == (10, 30)
    with pytest.raises(RemoteError) as caught:
        decode_columns(data, limit=5000)
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    "array",
    [
        pa.array([b"a", None, b"ccc"], pa.binary()),
        pa.array([b"a", None, b"ccc"], pa.large_binary()),
        pa.array(["a", None, "ccc"], pa.string()),
        pa.array(["a", None, "ccc"], pa.large_string()),
        pa.array([b"zz", b"a", None, b"ccc", b"zz"]).slice(1, 3),
        pa.chunked_array([[b"a"], [], [None, b"ccc"]], pa.binary()),
        pa.chunked_array([pa.array([b"x", b"a", None]).slice(1), pa.array([b"ccc"])]),
        pa.array([b"a", None, b"ccc"], pa.binary_view()),
        pa.array(["a", None, "ccc"]).dictionary_encode(),
    ],
    ids=["binary", "large", "string", "large string", "slice", "chunks", "chunks of slices", "view", "dictionary"],
)
def test_every_arrow_type_of_bytes_can_be_encoded(array: pa.Array) -> None:
    [data] = encode_columns(array, array)
    read = list(iterate_records(BatchView(data, 0)))
    assert [r.key for r in read] == [r.value for r in read] == [b"a", None, b"ccc"]


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 255, 256, 257, 5000])
def test_values_of_every_length_are_copied_whole(length: int) -> None:
    values = [bytes(range(256)) * 20][0][:length]
    [data] = encode_columns(None, pa.array([values, values, b"last"]))
    assert [r.value for r in iterate_records(BatchView(data, 0))] == [values, values, b"last"]


def test_absent_columns_are_null_and_one_must_be_there() -> None:
    [data] = encode_columns(None, pa.array([b"v"]), timestamp=5)
    assert list(iterate_records(BatchView(data, 0))) == [Record(0, 5, None, b"v", [])]
    [data] = encode_columns(pa.array([b"k"]), None)
    assert list(iterate_records(BatchView(data, 0))) == [Record(0, -1, b"k", None, [])]
    with pytest.raises(ValueError, match="neither"):
        encode_columns(None, None)
    assert encode_columns(None, pa.array([], pa.binary())) == []


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="value has 1 rows"):
        encode_columns(pa.array([b"a", b"b"]), pa.array([b"a"]))
    with pytest.raises(ValueError, match="timestamps"):
        encode_columns(None, pa.array([b"a"]), pa.array([1, 2]))


def test_timestamps_come_in_any_unit_and_null_takes_the_default() -> None:
    moment = EPOCH + datetime.timedelta(milliseconds=1234)
    for unit in ("ms", "us", "ns"):
        stamps = pa.array([moment, None], pa.timestamp(unit, "UTC"))
        [data] = encode_columns(None, pa.array([b"a", b"b"]), stamps, timestamp=99)
        assert [r.timestamp for r in iterate_records(BatchView(data, 0))] == [1234, 99]
    chunked = pa.chunked_array([[1], [2, 3]], pa.int64()).slice(1)
    [data] = encode_columns(None, pa.array([b"a", b"b"]), chunked)
    assert [r.timestamp for r in iterate_records(BatchView(data, 0))] == [2, 3]


def test_headers_may_be_sliced_chunked_and_null() -> None:
    rows = [None, [], [{"key": "a", "value": None}], [{"key": "b", "value": b"1"}, {"key": "é", "value": b""}]]
    array = pa.array([[{"key": "x", "value": b"x"}], *rows], HEADERS)
    for headers in (array.slice(1), pa.chunked_array([array.slice(1, 2), array.slice(3)])):
        [data] = encode_columns(None, pa.array([b""] * 4), headers=headers)
        assert [r.headers for r in iterate_records(BatchView(data, 0))] == [
            [],
            [],
            [("a", None)],
            [("b", b"1"), ("é", b"")],
        ]
    with pytest.raises(ValueError, match="null in row 0"):
        encode_columns(None, pa.array([b""]), headers=pa.array([[{"key": None, "value": b""}]], HEADERS))


def test_sequences_go_on_from_batch_to_batch_and_wrap() -> None:
    batches = encode_columns(
        None,
        pa.array([bytes(100)] * 5),
        producer_id=9,
        producer_epoch=2,
        base_sequence=2**31 - 2,
        transactional=True,
        max_batch_bytes=300,
    )
    views = [BatchView(data, 0) for data in batches]
    assert [v.record_count for v in views] == [2, 2, 1]
    assert [v.base_sequence for v in views] == [2**31 - 2, 0, 2]
    assert {(v.producer_id, v.producer_epoch, v.is_transactional) for v in views} == {(9, 2, True)}


def test_a_record_larger_than_a_batch_gets_one_to_itself() -> None:
    batches = encode_columns(None, pa.array([b"a", bytes(5000), b"b"]), max_batch_bytes=1000)
    assert [BatchView(data, 0).record_count for data in batches] == [1, 1, 1]


def test_importing_the_module_imports_neither_pyarrow_nor_numpy() -> None:
    script = "import sys, mainstem.protocol.columns; print({'pyarrow', 'numpy'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == "set()"
