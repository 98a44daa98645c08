"""The log as a whole: appending, reading, rolling, truncating, deleting, closing and opening again."""

import pytest

from mainstem.protocol.errors import ErrorCode, RemoteError
from tests.support.logs import NOW_MS, append, batch, config, new_disk, open_in, read_all, read_batches


def test_what_was_appended_is_read_back_with_its_offsets_and_epoch() -> None:
    log = open_in(new_disk())
    first = append(log, batch(b"a", b"b"), leader_epoch=3)
    second = append(log, batch(b"c"), leader_epoch=4)
    assert (first.base_offset, first.last_offset, second.base_offset) == (0, 1, 2)
    read = read_all(log)
    assert [(found.base_offset, found.last_offset, found.leader_epoch) for found in read] == [(0, 1, 3), (2, 2, 4)]
    assert all(found.computed_crc() == found.crc for found in read)
    assert [(entry.epoch, entry.start_offset) for entry in log.epochs.entries()] == [(3, 0), (4, 2)]


def test_a_read_inside_a_batch_begins_with_the_whole_batch() -> None:
    log = open_in(new_disk())
    append(log, batch(b"a", b"b", b"c"))
    append(log, batch(b"d"))
    assert read_batches(log, 2)[0].base_offset == 0


def test_a_closed_log_opens_with_the_same_batches_and_goes_on() -> None:
    disk = new_disk()
    settings = config(segment_bytes=300)
    log = open_in(disk, settings)
    for number in range(20):
        append(log, batch(b"%d" % number))
    log.close(NOW_MS)
    again = open_in(disk, settings, clean=True, recovery_point=20)
    assert [found.base_offset for found in read_all(again)] == list(range(20))
    assert append(again, batch(b"next")).base_offset == 20


def test_an_offset_outside_the_log_is_out_of_range() -> None:
    log = open_in(new_disk())
    append(log, batch(b"a"))
    for offset in (-1, 2):
        with pytest.raises(RemoteError) as raised:
            log.read(offset, 100, log.log_end)
        assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(1, 100, log.log_end).size == 0
