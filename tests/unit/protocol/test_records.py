"""Malformed records are refused with INVALID_RECORD, and an independent decoder reads what we read.

Each malformed case was sent to Kafka 4.3.1 too; where its answer differs, the module's docstring says how.
"""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from librt.strings import BytesWriter

from mainstem.protocol.batch import BatchView
from mainstem.protocol.builder import BatchBuilder, encode_header
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.records import Record, RecordScan, iterate_records, walk_records
from mainstem.protocol.varint import (
    I64_MAX,
    I64_MIN,
    add_i64,
    read_varint,
    read_varlong,
    subtract_i64,
    varint_size,
    write_varint,
)


def varint(value: int) -> bytes:
    writer = BytesWriter()
    write_varint(writer, value)
    return writer.getvalue()


def record(
    offset_delta: int = 0,
    timestamp: bytes = b"\x00",
    key: bytes = b"\x02k",
    value: bytes = b"\x02v",
    headers: bytes = b"\x00",
    length: bytes | None = None,
    attributes: int = 0,
) -> bytes:
    body = bytes([attributes]) + timestamp + varint(offset_delta) + key + value + headers
    return (varint(len(body)) if length is None else length) + body


def batch_of(body: bytes, count: int, last_delta: int | None = None) -> BatchView:
    delta = max(count - 1, 0) if last_delta is None else last_delta
    return BatchView(encode_header(body, 0, -1, 0, delta, 0, 0, -1, -1, -1, count) + body, 0)


OVERLONG = b"\x80\x80\x80\x80\x80\x01"

MALFORMED = {
    "negative length": (record(length=varint(-1)), 1),
    "length past the batch": (record(length=varint(100)), 1),
    "length far too short": (record(length=varint(3)), 1),
    "length too short by one": (record(length=varint(7)), 1),
    "length too long by one": (record(length=varint(9)) + b"\x00", 1),
    "length zero": (b"\x00", 1),
    "length of one, attributes only": (b"\x02\x00", 1),
    "overlong length": (record(length=OVERLONG), 1),
    "overlong timestamp delta": (record(timestamp=b"\x80" * 10 + b"\x01"), 1),
    "overlong key length": (record(key=OVERLONG), 1),
    "key past the record": (record(key=b"\x64k"), 1),
    "key of the largest length": (record(key=varint(2**31 - 1)), 1),
    "value past the record": (record(value=b"\x78v"), 1),
    "negative header count": (record(headers=b"\x01"), 1),
    "more headers than bytes": (record(headers=varint(100000)), 1),
    "fewer headers than counted": (record(headers=b"\x06\x02a\x01"), 1),
    "negative header key length": (record(headers=b"\x02\x01\x00"), 1),
    "header key past the record": (record(headers=b"\x02\x50a\x00"), 1),
    "header value past the record": (record(headers=b"\x02\x02a\x28"), 1),
    "bytes after the headers": (record(headers=b"\x00xx"), 1),
    "fewer records than counted": (record(), 2),
    "more records than counted": (record() + record(1), 1),
    "bytes after the last record": (record() + b"\x00\x00", 1),
    "a negative count": (record(), -1),
    "the largest count": (record(), 2**31 - 1),
    "no record where one is counted": (b"", 1),
    "a record where none is counted": (record(), 0),
}

WRONG_DELTAS = {
    "a gap": record(0) + record(2),
    "the same twice": record(0) + record(0),
    "backwards": record(1) + record(0),
    "a negative delta": record(-1) + record(0),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_record_is_invalid(name: str) -> None:
    body, count = MALFORMED[name]
    with pytest.raises(RemoteError) as caught:
        walk_records(body, 0, len(body), count)
    assert caught.value.code == ErrorCode.INVALID_RECORD
    with pytest.raises(RemoteError) as caught:
        list(iterate_records(batch_of(body, count)))
    assert caught.value.code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("name", MALFORMED)
def test_a_walk_stays_inside_its_range_whatever_lies_around_it(name: str) -> None:
    body, count = MALFORMED[name]
    buffer = record() + body + record() * 50
    start = len(record())
    with pytest.raises(RemoteError):
        walk_records(buffer, start, start + len(body), count)


@pytest.mark.parametrize("name", WRONG_DELTAS)
def test_a_producers_offsets_run_from_zero_without_a_gap(name: str) -> None:
    body = WRONG_DELTAS[name]
    with pytest.raises(RemoteError) as caught:
        walk_records(body, 0, len(body), 2)
    assert caught.value.code == ErrorCode.INVALID_RECORD


def test_offsets_with_gaps_are_read_as_compaction_left_them() -> None:
    assert [r.offset for r in iterate_records(batch_of(WRONG_DELTAS["a gap"], 2, last_delta=9))] == [0, 2]


@pytest.mark.parametrize(
    "body",
    [
        record(key=b"\x03"),
        record(value=b"\x03"),
        record(headers=b"\x02\x02a\x03"),
        record(attributes=255),
        record(headers=b"\x02\x04\xff\xfe\x01"),
    ],
    ids=["key length -2", "value length -2", "header value length -2", "attributes", "header key not UTF-8"],
)
def test_what_kafka_lets_pass_passes(body: bytes) -> None:
    walk_records(body, 0, len(body), 1)
    assert len(list(iterate_records(batch_of(body, 1)))) == 1


def test_a_header_key_that_is_not_utf8_survives_a_round_trip() -> None:
    body = record(headers=b"\x02\x04\xff\xfe\x01")
    [read] = iterate_records(batch_of(body, 1))
    builder = BatchBuilder()
    builder.append(0, read.key, read.value, read.headers)
    assert builder.build().endswith(body)


def test_a_walk_tells_what_the_validator_asks() -> None:
    builder = BatchBuilder()
    for timestamp, key in ((50, b"a"), (70, b"b"), (20, None), (70, b"d")):
        builder.append(timestamp, key, b"x")
    data = builder.build()
    summary = walk_records(data, 61, len(data), 4, 50)
    assert (summary.min_timestamp, summary.max_timestamp, summary.max_timestamp_at) == (20, 70, 1)
    assert (summary.has_null_key, summary.has_null_value) == (True, False)


def test_a_walk_compares_timestamps_also_where_their_deltas_wrap() -> None:
    builder = BatchBuilder()
    for timestamp in ((1 << 63) - 1, -2, 5, -(1 << 63)):
        builder.append(timestamp, b"k", b"v")
    data = builder.build()
    summary = walk_records(data, 61, len(data), 4, (1 << 63) - 1)
    assert (summary.min_timestamp, summary.max_timestamp, summary.max_timestamp_at) == (-(1 << 63), (1 << 63) - 1, 0)


def test_a_record_may_have_very_many_headers() -> None:
    headers: list[tuple[str, bytes | None]] = [("", None)] * 100_000
    builder = BatchBuilder()
    builder.append(0, None, None, headers)
    data = builder.build()
    walk_records(data, 61, len(data), 1)
    [read] = iterate_records(BatchView(data, 0))
    assert read.headers == headers


def test_a_batch_that_claims_more_than_its_buffer_holds_is_refused() -> None:
    data = batch_of(record(), 1).to_bytes()[:-1]
    with pytest.raises(RemoteError):
        list(iterate_records(BatchView(data, 0)))


@given(st.integers(I64_MIN, I64_MAX) | st.integers(-300, 300))
def test_varints_of_every_size_are_read_back(value: int) -> None:
    data = varint(value)
    assert len(data) == varint_size(value) <= 10
    assert read_varlong(data, 0, len(data)) == (value, len(data))
    if -(2**31) <= value < 2**31:
        assert read_varint(data, 0, len(data)) == (value, len(data))
    for reader in (read_varint, read_varlong):
        for cut in range(len(data)):
            with pytest.raises(RemoteError):
                reader(data, 0, cut)


def test_bits_past_the_last_are_dropped_as_java_drops_them() -> None:
    assert read_varint(b"\xff\xff\xff\xff\x7f", 0, 5) == (-(2**31), 5)
    assert read_varlong(b"\xff" * 9 + b"\x7f", 0, 10) == (I64_MIN, 10)


@given(st.integers(I64_MIN, I64_MAX), st.integers(I64_MIN, I64_MAX))
@settings(max_examples=300)
def test_sums_wrap_as_in_java(a: int, b: int) -> None:
    def wrapped(n: int) -> int:
        return (n - I64_MIN) % 2**64 + I64_MIN

    assert add_i64(a, b) == wrapped(a + b)
    assert subtract_i64(a, b) == wrapped(a - b)


def test_sums_wrap_at_the_very_ends() -> None:
    for a in (I64_MIN, I64_MIN + 1, -1, 0, 1, I64_MAX - 1, I64_MAX):
        for b in (I64_MIN, I64_MIN + 1, -1, 0, 1, I64_MAX - 1, I64_MAX):
            assert add_i64(a, b) == (a + b - I64_MIN) % 2**64 + I64_MIN
            assert subtract_i64(a, b) == (a - b - I64_MIN) % 2**64 + I64_MIN


Items = list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]
payloads = st.none() | st.binary(max_size=400)
items_strategy = st.lists(
    st.tuples(
        st.integers(0, 2**60),
        payloads,
        payloads,
        st.lists(st.tuples(st.text(max_size=10), payloads), max_size=3),
    ),
    min_size=1,
    max_size=30,
)


@given(items_strategy, st.integers(0, 4))
@settings(max_examples=60, deadline=None)
def test_kafka_python_reads_what_we_build(items: Items, codec: int) -> None:
    builder = BatchBuilder(codec, producer_id=5, producer_epoch=1, base_sequence=0)
    for timestamp, key, value, headers in items:
        builder.append(timestamp, key, value, headers)
    theirs = DefaultRecordBatch(builder.build())
    assert theirs.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in theirs] == [
        (offset, *item) for offset, item in enumerate(items)
    ]


@given(items_strategy, st.integers(0, 4))
@settings(max_examples=60, deadline=None)
def test_we_read_what_kafka_python_builds(items: Items, codec: int) -> None:
    theirs = DefaultRecordBatchBuilder(2, codec, 0, 5, 1, 0, 1 << 20)
    for offset, (timestamp, key, value, headers) in enumerate(items):
        theirs.append(offset, timestamp, key, value, headers)
    data = bytes(theirs.build())
    batch = BatchView(data, 0)
    batch.check(len(data))
    assert list(iterate_records(batch)) == as_records(items)


@given(items_strategy, st.integers(0, 4), st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_place_is_that_of_the_record(items: Items, codec: int, is_log_append_time: bool) -> None:
    theirs = DefaultRecordBatchBuilder(2, codec, 0, 5, 1, 0, 1 << 20)
    for offset, (timestamp, key, value, headers) in enumerate(items):
        theirs.append(offset, timestamp, key, value, headers)
    data = bytearray(theirs.build())
    data[22] |= 8 if is_log_append_time else 0
    scan = RecordScan(BatchView(bytes(data), 0))
    seen = []
    while scan.advance():
        seen.append((scan.place(), scan.record()))
    assert [place for place, _record in seen] == [(record.offset, record.timestamp) for _place, record in seen]
    assert len(seen) == len(items)


def as_records(items: Sequence[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]) -> list[Record]:
    return [Record(offset, *item) for offset, item in enumerate(items)]
