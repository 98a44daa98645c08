"""Fetched batches become records: all that count, none that do not, and the position is always where to go on."""

import pytest

from mainstem.client.decode import FetchedChunk
from mainstem.client.types import ConsumerRecord
from mainstem.protocol.builder import BatchBuilder
from mainstem.protocol.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from mainstem.protocol.control import EndMarker, build_end_marker
from mainstem.protocol.errors import RemoteError
from mainstem.protocol.fetch import AbortedTransaction


def batch(
    base: int, values: list[bytes], *, codec: int = NONE, producer_id: int = -1, epoch: int = 3, stop: int | None = None
) -> bytes:
    builder = BatchBuilder(
        codec=codec,
        base_offset=base,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        transactional=producer_id >= 0,
        leader_epoch=epoch,
    )
    for number, value in enumerate(values):
        builder.append(1000 + number, b"k%d" % number, value)
    return builder.build(stop)


def marker(base: int, producer_id: int, commit: bool) -> bytes:
    return build_end_marker(EndMarker(producer_id, 0, commit, 0, base, 2000), 3)


def chunk(
    data: bytes, offset: int = 0, aborted: list[AbortedTransaction] | None = None, check_crcs: bool = True
) -> FetchedChunk:
    return FetchedChunk("t", 5, b"before" + data, 6, len(data), offset, aborted, check_crcs)


def all_of(fetched: FetchedChunk, at_a_time: int = 1000) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    while not fetched.is_over:
        fetched.take(at_a_time, records)
    return records


def values(records: list[ConsumerRecord]) -> list[object]:
    return [record.value for record in records]


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("at_a_time", [1, 2, 3, 1000])
def test_every_record_comes_once_and_in_order(codec: int, at_a_time: int) -> None:
    data = batch(10, [b"a", b"b"], codec=codec) + batch(12, [b"c"], codec=codec) + batch(13, [b"d", b"e"], codec=codec)
    fetched = chunk(data, 10)
    records = all_of(fetched, at_a_time)
    assert values(records) == [b"a", b"b", b"c", b"d", b"e"]
    assert [record.offset for record in records] == [10, 11, 12, 13, 14]
    assert fetched.position == fetched.end_offset == 15


def test_a_record_says_where_and_when_it_was_written() -> None:
    builder = BatchBuilder(base_offset=7, leader_epoch=4)
    builder.append(1234, None, None, [("a", b"1"), ("b", None), ("a", b"")])
    (record,) = all_of(chunk(builder.build(), 7))
    assert (record.topic, record.partition, record.offset, record.timestamp) == ("t", 5, 7, 1234)
    assert (record.key, record.value, record.timestamp_type, record.leader_epoch) == (None, None, 0, 4)
    assert record.headers == [("a", b"1"), ("b", None), ("a", b"")]


def test_log_append_time_is_that_of_the_batch() -> None:
    builder = BatchBuilder(base_offset=0, log_append_time=99)
    builder.append(1, None, b"x")
    builder.append(2, None, b"y")
    assert [(each.timestamp, each.timestamp_type) for each in all_of(chunk(builder.build()))] == [(99, 1), (99, 1)]


def test_records_before_the_fetch_offset_are_passed_over() -> None:
    fetched = chunk(batch(0, [b"a", b"b", b"c"]) + batch(3, [b"d"]), 2)
    assert values(all_of(fetched)) == [b"c", b"d"]


def test_a_batch_that_is_cut_off_is_left_to_the_next_fetch() -> None:
    whole, half = batch(0, [b"a"]), batch(1, [b"b"])
    for cut in range(len(half)):
        fetched = chunk(whole + half[:cut])
        assert fetched.end_offset == 1
        assert values(all_of(fetched)) == [b"a"]
        assert fetched.position == 1


def test_the_position_moves_past_what_compaction_took() -> None:
    fetched = chunk(batch(0, [b"a"], stop=9))
    assert values(all_of(fetched)) == [b"a"]
    assert fetched.position == fetched.end_offset == 10


def test_the_position_is_past_the_last_record_that_was_taken() -> None:
    fetched = chunk(batch(0, [b"a", b"b"]) + batch(2, [b"c"]))
    records: list[ConsumerRecord] = []
    for offset in (1, 2, 3):
        assert fetched.take(1, records) == 1
        assert (fetched.position, fetched.position_epoch) == (offset, 3)
    assert fetched.is_over


def test_control_batches_give_no_records() -> None:
    fetched = chunk(batch(0, [b"a"], producer_id=1) + marker(1, 1, commit=True) + batch(2, [b"b"]))
    assert values(all_of(fetched)) == [b"a", b"b"]


def test_a_chunk_of_control_batches_only_still_moves_the_position() -> None:
    fetched = chunk(marker(0, 1, commit=True) + marker(1, 2, commit=False))
    assert all_of(fetched) == []
    assert fetched.position == 2


def test_aborted_transactions_are_left_out_and_committed_ones_of_the_same_producer_are_not() -> None:
    data = b"".join(
        [
            batch(0, [b"lost"], producer_id=1),
            batch(1, [b"other"], producer_id=2),
            marker(2, 1, commit=False),
            batch(3, [b"kept"], producer_id=1),
            marker(4, 2, commit=True),
            marker(5, 1, commit=True),
            batch(6, [b"lost too"], producer_id=1),
            batch(7, [b"plain"]),
            marker(8, 1, commit=False),
        ]
    )
    # Out of order, as some brokers tell them.
    aborted = [AbortedTransaction(1, 6), AbortedTransaction(1, 0)]
    fetched = chunk(data, 0, aborted)
    assert values(all_of(fetched)) == [b"other", b"kept", b"plain"]
    assert fetched.position == 9
    assert len(all_of(chunk(data, 0, None))) == 5


def test_a_transaction_that_began_before_the_fetch_is_left_out_too() -> None:
    data = batch(50, [b"lost"], producer_id=1) + marker(51, 1, commit=False) + batch(52, [b"kept"], producer_id=1)
    assert values(all_of(chunk(data, 50, [AbortedTransaction(1, 3)]))) == [b"kept"]


def test_corruption_is_told_after_the_records_before_it() -> None:
    broken = bytearray(batch(1, [b"bbbb"]))
    broken[-3] ^= 1
    fetched = chunk(batch(0, [b"a"]) + bytes(broken))
    records: list[ConsumerRecord] = []
    with pytest.raises(RemoteError, match="CRC"):
        fetched.take(10, records)
    assert values(records) == [b"a"]
    assert fetched.position == 1
    assert values(all_of(chunk(batch(0, [b"a"]) + bytes(broken), check_crcs=False)))[0] == b"a"


@pytest.mark.parametrize("codec", [NONE, ZSTD])
def test_a_batch_that_counts_more_records_than_it_has_is_refused(codec: int) -> None:
    data = bytearray(batch(0, [b"a", b"b"], codec=codec))
    data[57:61] = (5).to_bytes(4, "big")
    with pytest.raises(RemoteError):
        all_of(chunk(bytes(data), check_crcs=False))


def test_deserializers_see_bytes_and_never_null() -> None:
    builder = BatchBuilder(base_offset=0)
    builder.append(1, b"1", b"x")
    builder.append(1, None, None)
    data = builder.build()
    fetched = FetchedChunk("t", 0, data, 0, len(data), 0, None, True, int, bytes.decode)
    assert [(each.key, each.value) for each in all_of(fetched)] == [(1, "x"), (None, None)]


def test_a_record_that_cannot_be_deserialized_is_met_again_and_those_before_it_are_not() -> None:
    data = batch(0, [b"1", b"2", b"three", b"4"])
    fetched = FetchedChunk("t", 0, data, 0, len(data), 0, None, True, None, int)
    records: list[ConsumerRecord] = []
    for _ in range(2):
        with pytest.raises(ValueError, match="three"):
            fetched.take(10, records)
        assert values(records) == [1, 2]
        assert fetched.position == 2
