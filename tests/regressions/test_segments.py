"""Segments and their names: KAFKA-6388, KAFKA-13603, KAFKA-6264, KAFKA-4451, KAFKA-3968, KAFKA-5634, KAFKA-9835."""

import pytest

from mainstem.core.log.producers import Origin
from mainstem.storage.reading import ReadJob
from tests.support.logs import (
    DIRECTORY,
    NOW_MS,
    append,
    batch,
    config,
    marker,
    new_disk,
    open_in,
    read_all,
    read_batches,
)

SIZE = len(batch(b"00"))


def test_kafka_6388_an_empty_segment_whose_index_is_full_is_rolled_onto_itself() -> None:
    # Room for no entry at all: every segment is full from the start.
    log = open_in(new_disk(), config(segment_index_bytes=4))
    for number in range(3):
        append(log, batch(b"%02d" % number))
    assert [found.base_offset for found in read_all(log)] == [0, 1, 2]


def test_kafka_6388_leftovers_of_a_new_segments_name_are_emptied() -> None:
    disk = new_disk()
    log = open_in(disk, config(segment_bytes=SIZE * 2))
    for number in range(2):
        append(log, batch(b"%02d" % number))
    for extension in (".log", ".index", ".timeindex", ".txnindex"):
        disk.open(f"{DIRECTORY}/{2:020}{extension}", create=True).write_at(0, [b"x" * 100])
    append(log, batch(b"02"))
    assert [found.base_offset for found in read_all(log)] == [0, 1, 2]
    assert disk.file_size(f"{DIRECTORY}/{2:020}.index") == 0
    assert not disk.exists(f"{DIRECTORY}/{2:020}.txnindex")


def test_kafka_13603_a_segment_without_its_index_is_opened_and_gets_one() -> None:
    disk = new_disk()
    settings = config(index_interval_bytes=0)
    log = open_in(disk, settings)
    append(log, batch(b"00"))
    log.close(NOW_MS)
    disk.remove(f"{DIRECTORY}/{0:020}.index")
    log = open_in(disk, settings, clean=True, recovery_point=1)
    assert append(log, batch(b"01")).base_offset == 1
    assert [found.base_offset for found in read_all(log)] == [0, 1]


@pytest.mark.parametrize("gap", [2**31 - 1, 2**31, 2**31 + 5, 2**40])
def test_kafka_6264_and_4451_offsets_too_far_apart_for_one_segment_get_another(gap: int) -> None:
    disk = new_disk()
    settings = config(index_interval_bytes=0)
    log = open_in(disk, settings)
    offsets = [0, 1, gap, gap + 1]
    for offset in offsets:
        data = batch(b"00", base_offset=offset, leader_epoch=0)
        log.append_as_follower(data, 0, len(data), 0, NOW_MS)
    assert [found.base_offset for found in read_all(log)] == offsets
    for segment in log.segments:
        assert segment.offset_index.last_offset - segment.base_offset < 2**31
    assert read_batches(log, 2)[0].base_offset == gap
    log.close(NOW_MS)
    again = open_in(disk, settings, clean=True, recovery_point=gap + 2)
    assert [found.base_offset for found in read_all(again)] == offsets


def test_kafka_6264_one_fetch_may_span_more_offsets_than_a_segment() -> None:
    log = open_in(new_disk())
    data = b"".join(batch(b"00", base_offset=offset, leader_epoch=0) for offset in (0, 2**33, 2**33 + 1))
    log.append_as_follower(data, 0, len(data), 0, NOW_MS)
    assert [found.base_offset for found in read_all(log)] == [0, 2**33, 2**33 + 1]


def test_kafka_3968_a_segments_name_is_durable_when_anything_in_it_is_called_so() -> None:
    disk = new_disk()
    settings = config(segment_bytes=SIZE * 2)
    log = open_in(disk, settings)
    for number in range(5):
        append(log, batch(b"%02d" % number))
    log.flush(NOW_MS)
    assert log.recovery_point == 5
    disk.power_loss()
    names = [name for name in disk.list_directory(DIRECTORY) if name.endswith(".log")]
    assert names == [f"{offset:020}.log" for offset in (0, 2, 4)]


def test_kafka_5634_no_segment_goes_before_it_is_committed() -> None:
    log = open_in(new_disk(), config(segment_bytes=SIZE * 2, retention_ms=1, retention_bytes=0), high_watermark=0)
    data = batch(b"00", timestamp=NOW_MS - 1000)
    for _ in range(6):
        log.append_as_leader(data, 0, len(data), 0, NOW_MS)
    assert log.delete_old_segments(NOW_MS) == 0
    log.update_high_watermark(3)
    assert log.delete_old_segments(NOW_MS) == 1
    assert (log.log_start, log.high_watermark) == (2, 3)


def test_kafka_9835_a_read_up_to_the_high_watermark_never_sees_what_is_appended_meanwhile() -> None:
    log = open_in(new_disk(), config(segment_bytes=SIZE * 100, index_interval_bytes=0), high_watermark=0)
    data = batch(b"00")
    for _ in range(70):
        log.append_as_leader(data, 0, len(data), 0, NOW_MS)
    log.update_high_watermark(3)
    job = log.begin_read(0, 1 << 20, log.high_watermark)
    for _ in range(70):  # the roll at the end included
        log.append_as_leader(data, 0, len(data), 0, NOW_MS)
    assert isinstance(job, ReadJob)
    job.run()
    found = log.finish_read(job)
    assert not isinstance(found, ReadJob)
    assert found.size == SIZE * 3
    found.release()


def test_kafka_9835_a_read_up_to_the_end_stops_where_the_end_was() -> None:
    disk = new_disk()
    log = open_in(disk)
    data = batch(b"00")
    for _ in range(100):
        append(log, data)
    job = log.begin_read(0, 1 << 20, log.high_watermark)
    assert isinstance(job, ReadJob)
    append(log, data)
    job.run()
    found = log.finish_read(job)
    assert not isinstance(found, ReadJob)
    assert found.size == SIZE * 100
    found.release()


def test_a_transaction_index_that_recovery_wrote_anew_is_durable_when_its_segment_is_left_behind() -> None:
    """Recovery rewrites it, the next batch rolls exactly at the recovery point, and nothing looks back again."""
    disk = new_disk()
    log = open_in(disk)
    append(log, batch(b"a", producer_id=7, epoch=0, sequence=0, transactional=True))
    append(log, marker(7, 0, commit=False), origin=Origin.COORDINATOR)
    log.flush(NOW_MS)
    end = log.log_end
    disk.kill()
    log = open_in(disk, recovery_point=end)
    log.roll(NOW_MS)
    append(log, batch(b"b"))
    disk.kill()
    log = open_in(disk, recovery_point=end)
    log.flush(NOW_MS)
    disk.power_loss_keeping({})
    log = open_in(disk, recovery_point=end)
    assert [aborted.producer_id for aborted in log.aborted_transactions(0, end)] == [7]
