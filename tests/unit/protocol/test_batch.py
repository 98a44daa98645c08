"""The batch header view, against a batch that Kafka wrote."""

import struct

import pytest
from crc32c import crc32c

from mainstem.protocol.batch import HEADER_BYTES, BatchView, iterate_batches
from mainstem.protocol.errors import ErrorCode, RemoteError


def make_batch(
    body: bytes = b"", *, base_offset: int = 0, magic: int = 2, base_sequence: int = -1, delta: int = 0
) -> bytes:
    crced = struct.pack(">hiqqqhii", 0, delta, 10, 20, 7, 3, base_sequence, delta + 1) + body
    return struct.pack(">qiiBI", base_offset, len(crced) + 9, 5, magic, crc32c(crced)) + crced


def test_the_view_reads_every_field_where_it_lies() -> None:
    batch = BatchView(b"xx" + make_batch(b"abc", base_offset=100, base_sequence=4, delta=2), 2)
    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (100, 102, 103)
    assert (batch.size, batch.end) == (HEADER_BYTES + 3, HEADER_BYTES + 5)
    assert (batch.leader_epoch, batch.magic, batch.record_count) == (5, 2, 3)
    assert (batch.base_timestamp, batch.max_timestamp) == (10, 20)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence) == (7, 3, 4, 6)
    batch.check(batch.end)


def test_a_stamp_replaces_offset_and_epoch_and_leaves_the_crc_valid() -> None:
    original = make_batch(b"abc")
    stamped = BatchView(original, 0).stamp(12345678901, 9) + original[16:]
    batch = BatchView(stamped, 0)
    assert (batch.base_offset, batch.leader_epoch) == (12345678901, 9)
    batch.check(len(stamped))


def test_sequences_start_again_at_zero_after_the_largest_int() -> None:
    assert BatchView(make_batch(base_sequence=2**31 - 1, delta=1), 0).last_sequence == 0


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda b: b[:-1], ErrorCode.CORRUPT_MESSAGE),
        (lambda b: b[:-1] + b"!", ErrorCode.CORRUPT_MESSAGE),
        (lambda b: b[:8] + struct.pack(">i", -1) + b[12:], ErrorCode.CORRUPT_MESSAGE),
        (lambda b: b[:16] + b"\x01" + b[17:], ErrorCode.INVALID_RECORD),
        (lambda b: b[:16] + b"\x03" + b[17:], ErrorCode.CORRUPT_MESSAGE),
        (lambda b: b[:60], ErrorCode.CORRUPT_MESSAGE),
    ],
    ids=["truncated", "bit rot", "negative length", "old magic", "magic to come", "half a header"],
)
def test_a_damaged_batch_is_refused_with_kafkas_error(damage, code) -> None:  # type: ignore[no-untyped-def]
    data = damage(make_batch(b"abc"))
    with pytest.raises(RemoteError) as caught:
        BatchView(data, 0).check(len(data))
    assert caught.value.code == code


def test_iteration_leaves_out_a_torn_batch_at_the_end() -> None:
    data = make_batch(base_offset=0) + make_batch(base_offset=1) + make_batch(base_offset=2)[:-1]
    assert [b.base_offset for b in iterate_batches(data, 0, len(data))] == [0, 1]
