"""Batches built here equal those that Kafka's own classes build (golden_batches.txt, by GoldenBatches.java)."""

import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.protocol.batch import HEADER_BYTES, BatchView
from mainstem.protocol.builder import BatchBuilder, empty_batch, encode_header, recompress, rewrite_header
from mainstem.protocol.compression import GZIP
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.records import Record, iterate_records
from tests.support.cleaned import retain
from tests.support.kafka import Kafka, kafka

__all__ = ["kafka"]

GOLDEN = {
    name: bytes.fromhex(data)
    for name, data in (
        line.split() for line in Path(__file__).with_name("golden_batches.txt").read_text().splitlines() if line
    )
}


def fill(builder: BatchBuilder) -> BatchBuilder:
    builder.append(1700000000000, b"k1", b"v1")
    builder.append(1700000000007, None, b"no key")
    builder.append(1699999999990, b"k2", None)
    builder.append(1700000000100, b"", b"", [("trace", b"abc"), ("", None), ("größe", b"")])
    builder.append(1700000000100, b"long", b"x" * 300)
    return builder


def produced(codec: int = 0, base_offset: int = 0, leader_epoch: int = -1) -> bytes:
    builder = BatchBuilder(
        codec,
        base_offset,
        producer_id=4711,
        producer_epoch=3,
        base_sequence=17,
        transactional=True,
        leader_epoch=leader_epoch,
    )
    return fill(builder).build()


def five() -> BatchView:
    return BatchView(produced(base_offset=100, leader_epoch=5), 0)


def appended() -> BatchView:
    return BatchView(fill(BatchBuilder(base_offset=500, log_append_time=1800000000000, leader_epoch=9)).build(), 0)


def keeping(*offsets: int) -> Callable[[Record], bool]:
    return lambda record: record.offset in offsets


def test_an_uncompressed_batch_is_javas_byte_for_byte() -> None:
    assert produced() == GOLDEN["plain"]


def test_the_smallest_batch_is_javas_byte_for_byte() -> None:
    builder = BatchBuilder()
    builder.append(0, None, None)
    assert builder.build() == GOLDEN["smallest"]


def test_timestamp_deltas_wrap_as_javas_do() -> None:
    builder = BatchBuilder()
    for timestamp in (2**63 - 1, 0, -1):
        builder.append(timestamp, b"a", b"b")
    assert builder.build() == GOLDEN["timestamps"]
    assert [r.timestamp for r in iterate_records(BatchView(GOLDEN["timestamps"], 0))] == [2**63 - 1, 0, -1]


def test_a_log_append_time_batch_is_javas_byte_for_byte() -> None:
    assert appended().to_bytes() == GOLDEN["log-append-time"]
    assert {r.timestamp for r in iterate_records(appended())} == {1800000000000}


@pytest.mark.parametrize(("codec", "name"), list(enumerate(["plain", "gzip", "snappy", "lz4", "zstd"])))
def test_javas_compressed_batches_read_as_the_uncompressed_one(codec: int, name: str) -> None:
    golden = BatchView(GOLDEN[name], 0)
    golden.check(len(GOLDEN[name]))
    assert golden.codec == codec
    assert list(iterate_records(golden)) == list(iterate_records(BatchView(produced(), 0)))
    assert recompress(golden, 0) == GOLDEN["plain"]


@pytest.mark.parametrize(
    ("name", "cleaned"),
    [
        ("cleaned-some", lambda: retain(five(), keeping(101, 103))),
        ("cleaned-horizon", lambda: retain(five(), keeping(101, 102), delete_horizon=1700000900100)),
        ("cleaned-empty", lambda: retain(five(), keeping(), keep_empty=True)),
        ("cleaned-log-append-time", lambda: retain(appended(), keeping(501, 503))),
        (
            "cleaned-log-append-time-horizon",
            lambda: retain(appended(), keeping(502), delete_horizon=1900000000007),
        ),
    ],
)
def test_a_cleaned_batch_is_what_kafkas_cleaner_leaves(name: str, cleaned: Callable[[], bytes]) -> None:
    assert cleaned() == GOLDEN[name]


def test_a_delete_horizon_that_is_set_stays_when_the_batch_is_cleaned_again() -> None:
    once = retain(five(), keeping(101, 102, 103), delete_horizon=1700000900100)
    assert once is not None
    assert retain(BatchView(once, 0), keeping(101, 103), delete_horizon=1900000000100) == GOLDEN["cleaned-twice"]


def test_a_delete_horizon_changes_no_timestamp() -> None:
    batch = BatchView(GOLDEN["cleaned-horizon"], 0)
    assert (batch.has_delete_horizon, batch.base_timestamp) == (True, 1700000900100)
    assert [r.timestamp for r in iterate_records(batch)] == [1700000000007, 1699999999990]


def test_a_cleaned_batch_keeps_its_offsets_and_its_producers_last_sequence() -> None:
    before = five()
    data = retain(before, keeping(101))
    assert data is not None
    for after in (BatchView(data, 0), BatchView(empty_batch(before), 0)):
        assert (after.base_offset, after.last_offset) == (before.base_offset, before.last_offset)
        assert (after.producer_id, after.producer_epoch) == (before.producer_id, before.producer_epoch)
        assert after.last_sequence == before.last_sequence == 21
        after.check(after.end)


def test_cleaning_that_removes_nothing_gives_the_same_bytes_and_that_removes_all_gives_none() -> None:
    assert retain(five(), lambda record: True) == five().to_bytes()
    assert retain(five(), lambda record: False) is None


def test_an_empty_batch_has_no_records_in_any_codec() -> None:
    for codec in range(5):
        batch = BatchView(empty_batch(BatchView(produced(codec), 0)), 0)
        assert (batch.size, batch.codec, list(iterate_records(batch))) == (HEADER_BYTES, 0, [])


def test_rewriting_timestamps_clears_bits_that_mean_nothing_yet() -> None:
    """Kafka makes the attributes anew from what it knows of them, and keeps them where it leaves the header alone."""
    builder = BatchBuilder(codec=GZIP, transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    builder.append(5, b"k", b"v")
    sent = bytearray(builder.build())
    sent[21:23] = (GZIP | 0x10 | 0xFF80).to_bytes(2, "big")
    batch = BatchView(bytes(sent), 0)
    for header, attributes in (
        (rewrite_header(batch, log_append_time=9), GZIP | 0x18),
        (rewrite_header(batch, max_timestamp=9), GZIP | 0x10),
        (rewrite_header(batch, base_offset=9), GZIP | 0x10 | 0xFF80),
    ):
        assert int.from_bytes(header[21:23], "big") == attributes


def test_rewriting_a_header_leaves_the_records_and_makes_the_crc_anew() -> None:
    batch = five()
    header = rewrite_header(batch, base_offset=9, leader_epoch=8, log_append_time=1234)
    assert len(header) == HEADER_BYTES
    data = header + batch.buffer[batch.start + HEADER_BYTES : batch.end]
    after = BatchView(data, 0)
    after.check(len(data))
    assert (after.base_offset, after.leader_epoch, after.max_timestamp) == (9, 8, 1234)
    assert {r.timestamp for r in iterate_records(after)} == {1234}
    back = rewrite_header(after, base_offset=100, leader_epoch=5, max_timestamp=batch.max_timestamp)
    assert back == batch.to_bytes()[:HEADER_BYTES]


def test_recompression_makes_deltas_count_from_the_first_record_as_kafka_does() -> None:
    before = BatchView(fill(BatchBuilder(1, base_timestamp=1690000000000)).build(), 0)
    assert recompress(before, 0) == fill(BatchBuilder()).build()
    assert list(iterate_records(BatchView(recompress(before, 4), 0))) == list(iterate_records(before))


def test_offsets_that_do_not_go_up_are_the_batchs_fault() -> None:
    body = b"\x0c\x00\x02\x02\x01\x01\x00" + b"\x0c\x00\x02\x00\x01\x01\x00"
    batch = BatchView(encode_header(body, 0, -1, 0, 1, 0, 0, -1, -1, -1, 2) + body, 0)
    assert [record.offset for record in iterate_records(batch)] == [1, 0]
    with pytest.raises(RemoteError) as caught:
        recompress(batch, 4)
    assert caught.value.code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [0, 3])
def test_recompression_makes_no_delete_horizon_of_what_a_producer_put_there(codec: int) -> None:
    """As in Kafka. The cleaner would take it for one, and a tombstone would go before its time."""
    data = bytearray(produced())
    data[22] |= 0x40
    batch = BatchView(recompress(BatchView(bytes(data), 0), codec), 0)
    assert not batch.has_delete_horizon
    assert batch.to_bytes() == recompress(BatchView(produced(), 0), codec)


def test_recompression_drops_attributes_that_nobody_knows() -> None:
    data = bytearray(produced())
    data[21] |= 0x01
    assert BatchView(bytes(data), 0).attributes == 0x0110
    assert recompress(BatchView(bytes(data), 0), 0) == produced()


def test_a_batch_takes_its_first_record_and_then_no_more_than_fits() -> None:
    builder = BatchBuilder(max_bytes=200)
    assert builder.append(0, None, b"x" * 500)
    assert not builder.append(0, None, b"")
    builder = BatchBuilder(max_bytes=HEADER_BYTES + 14)
    assert builder.append(0, None, None)
    assert builder.size_estimate == HEADER_BYTES + 7
    assert not builder.append(0, None, b"x")
    assert builder.append(0, None, None)
    assert len(builder.build()) == builder.size_estimate == HEADER_BYTES + 14
    assert builder.record_count == 2


def test_offsets_only_go_up_and_stay_within_a_batchs_reach() -> None:
    builder = BatchBuilder(base_offset=10)
    builder.append_at(12, 0, None, b"a")
    for offset in (9, 11, 12, 10 + 2**31):
        with pytest.raises(ValueError, match="offset"):
            builder.append_at(offset, 0, None, b"b")
    builder.append_at(10 + 2**31 - 1, 0, None, b"b")
    batch = BatchView(builder.build(), 0)
    assert [r.offset for r in iterate_records(batch)] == [12, 10 + 2**31 - 1]
    assert batch.last_offset_delta == 2**31 - 1
    with pytest.raises(ValueError, match="last offset"):
        builder.build(last_offset=12)


def test_a_batch_without_a_record_is_refused() -> None:
    with pytest.raises(ValueError, match="neither a record"):
        BatchBuilder().build()


timestamps = st.integers(-(2**63), 2**63 - 1)
payloads = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=10), payloads), max_size=4)
records = st.lists(st.tuples(timestamps, payloads, payloads, headers), min_size=1, max_size=20)


@given(
    records,
    st.integers(0, 4),
    st.integers(0, 2**62),
    st.integers(-1, 2**62),
    st.integers(-1, 2**15 - 1),
    st.integers(-1, 2**31 - 1),
    st.lists(st.integers(1, 50), min_size=20, max_size=20),
)
@settings(max_examples=150, deadline=None)
def test_what_is_built_is_read_back(
    items: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    codec: int,
    base_offset: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    gaps: list[int],
) -> None:
    builder = BatchBuilder(
        codec,
        base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    expected = []
    offset = base_offset
    for (timestamp, key, value, header_list), gap in zip(items, gaps, strict=False):
        assert builder.append_at(offset, timestamp, key, value, header_list)
        expected.append(Record(offset, timestamp, key, value, header_list))
        offset += gap
    data = builder.build()
    batch = BatchView(data, 0)
    batch.check(len(data))
    assert list(iterate_records(batch)) == expected
    assert batch.last_offset == expected[-1].offset
    assert batch.max_timestamp == max(r.timestamp for r in expected)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (
        producer_id,
        producer_epoch,
        base_sequence,
    )
    for other in range(5):
        again = BatchView(recompress(batch, other), 0)
        again.check(again.end)
        assert list(iterate_records(again)) == expected


def java(kafka: Kafka, *arguments: str, given: str = "") -> list[str]:
    source = Path(__file__).with_name("GoldenBatches.java")
    command = kafka.command(str(source), *arguments)
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def as_java_prints(batch: BatchView) -> str:
    def hexed(data: bytes | None) -> str:
        return "-" if data is None else data.hex()

    words = [batch.base_offset, batch.last_offset, batch.record_count, batch.producer_id, batch.producer_epoch]
    line = " ".join(map(str, [*words, batch.base_sequence, batch.max_timestamp]))
    for record in iterate_records(batch):
        line += f" {record.offset},{record.timestamp},{hexed(record.key)},{hexed(record.value)}"
        line += "".join(f",{key.encode().hex()}={hexed(value)}" for key, value in record.headers)
    return line


@pytest.mark.kafka
def test_the_golden_batches_are_what_kafka_writes_today(kafka: Kafka) -> None:
    """Those of other codecs may differ from one Java to the next, and are the same once decompressed."""
    written = {name: bytes.fromhex(data) for name, data in (line.split() for line in java(kafka))}
    assert written.keys() == GOLDEN.keys()
    for name, data in written.items():
        assert recompress(BatchView(data, 0), 0) == recompress(BatchView(GOLDEN[name], 0), 0)


@pytest.mark.kafka
def test_kafka_reads_every_codec_and_level_that_we_write(kafka: Kafka) -> None:
    rng = random.Random(5)
    batches = []
    for codec, level in [(0, None), (1, None), (1, 1), (2, None), (3, None), (3, 1), (3, 17), (4, None), (4, 19)]:
        for count in (1, 3, 50, 2000):
            builder = BatchBuilder(codec, rng.randrange(10**9), producer_id=rng.randrange(-1, 99), level=level)
            for _ in range(count):
                key = rng.choice([None, b"", rng.randbytes(8)])
                value = rng.choice([None, b"x" * rng.randrange(300), rng.randbytes(100)])
                builder.append(rng.randrange(2**41), key, value, rng.choice([[], [("h", None), ("é", b"1")]]))
            batches.append(builder.build())
    read = java(kafka, "read", given="".join(data.hex() + "\n" for data in batches))
    assert read == [as_java_prints(BatchView(data, 0)) for data in batches]
