"""Disks that fail while a batch is appended: KAFKA-6683, KAFKA-7866, KAFKA-10778."""

import errno

import pytest

from mainstem.core.log.producers import Origin
from mainstem.protocol.errors import ErrorCode
from mainstem.sim.faults import Effect, Fault
from mainstem.storage.errors import StorageError
from tests.support.logs import NOW_MS, append, batch, config, marker, new_disk, open_in, read_all


def test_kafka_6683_producer_state_is_not_moved_by_an_append_that_failed() -> None:
    disk = new_disk()
    log = open_in(disk)
    append(log, batch(b"a", producer_id=1, epoch=0, sequence=0))
    disk.faults.append(Fault(Effect.FAIL, "write", ".log", errno.ENOSPC))
    with pytest.raises(StorageError):
        append(log, batch(b"b", producer_id=1, epoch=0, sequence=1, transactional=True))
    producer = log.producers.states.get(1)
    assert producer is not None
    assert (producer.last_sequence, producer.txn_first_offset, log.log_end) == (0, -1, 1)
    # A snapshot taken now would hold nothing past the log.
    assert log.producers.states.end_offset == 1


@pytest.mark.parametrize("file", [".index", ".timeindex", ".txnindex"])
def test_kafka_7866_an_index_that_cannot_be_written_never_leads_to_an_offset_given_twice(file: str) -> None:
    disk = new_disk()
    settings = config(index_interval_bytes=0)
    log = open_in(disk, settings)
    append(log, batch(b"a", producer_id=1, epoch=0, sequence=0, transactional=True))
    append(log, batch(b"b", producer_id=1, epoch=0, sequence=1, transactional=True))
    disk.faults.append(Fault(Effect.FAIL, "write", file))
    with pytest.raises(StorageError):
        append(log, marker(1, 0, False, timestamp=NOW_MS + 5), origin=Origin.COORDINATOR)
    assert log.log_end == 3, "the batch is in the file"
    with pytest.raises(StorageError):
        append(log, batch(b"c", producer_id=1, epoch=0, sequence=2))
    disk.faults.clear()
    log.abandon()
    again = open_in(disk, settings)
    assert [found.base_offset for found in read_all(again)] == [0, 1, 2]
    assert [found.first_offset for found in again.aborted_transactions(0, 3)] == [0]


@pytest.mark.parametrize("effect", [Effect.FAIL, Effect.SHORT_WRITE])
def test_kafka_10778_nothing_is_appended_after_a_failed_write(effect: Effect) -> None:
    disk = new_disk()
    log = open_in(disk)
    append(log, batch(b"a"))
    disk.faults.append(Fault(effect, "write", ".log"))
    with pytest.raises(StorageError) as first:
        append(log, batch(b"b"))
    assert first.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    for attempt in (
        lambda: append(log, batch(b"c")),
        lambda: log.begin_flush(NOW_MS),
        lambda: log.roll(NOW_MS),
        lambda: log.read(0, 100, 1),
        lambda: log.delete_old_segments(NOW_MS),
        lambda: log.truncate_to(0, NOW_MS),
    ):
        with pytest.raises(StorageError) as later:
            attempt()
        assert later.value is first.value
    writes = disk.counts["write"]
    log.close(NOW_MS)
    assert disk.counts["write"] == writes, "a failed log is left as it is"
    assert [found.base_offset for found in read_all(open_in(disk))] == [0]


def test_kafka_10778_a_failed_sync_is_never_tried_again() -> None:
    disk = new_disk()
    log = open_in(disk)
    append(log, batch(b"a"))
    disk.faults.append(Fault(Effect.FAIL_SYNC_AND_DROP, "sync", ".log"))
    job = log.begin_flush(NOW_MS)
    job.run()
    with pytest.raises(StorageError):
        log.finish_flush(job)
    assert log.recovery_point == 0
    syncs = disk.counts["sync"]
    with pytest.raises(StorageError):
        log.flush(NOW_MS)
    log.close(NOW_MS)
    assert disk.counts["sync"] == syncs
