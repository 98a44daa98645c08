"""Compressed batches are trusted on their way in: what a faulty producer put inside must hurt nobody later."""

import struct

from crc32c import crc32c

from mainstem.protocol.batch import HEADER_BYTES, BatchView
from mainstem.protocol.builder import BatchBuilder
from tests.support.logs import NOW_MS, append, batch, new_disk, open_in


def broken_inside(timestamp: int) -> bytes:
    """A batch whose header and CRC hold and whose compressed records are garbage."""
    builder = BatchBuilder(codec=2)
    builder.append(timestamp, b"k", b"v")
    whole = builder.build()
    body = whole[21:HEADER_BYTES] + b"\xff" * (len(whole) - HEADER_BYTES)
    return whole[:17] + struct.pack(">I", crc32c(body)) + body


def test_a_batch_broken_inside_is_passed_over_when_an_offset_is_looked_up_by_time() -> None:
    log = open_in(new_disk())
    BatchView(broken_inside(NOW_MS), 0).check(10_000)
    append(log, broken_inside(NOW_MS))
    append(log, batch(b"v", timestamp=NOW_MS + 1))
    found = log.offset_for_timestamp(NOW_MS, log.log_end)
    assert found is not None
    assert (found.offset, found.timestamp) == (1, NOW_MS + 1)
    assert all(ref.pins == 0 for segment in log.segments for ref in segment.refs())
