"""KAFKA-7692 and 7693 (sequence overflow), KAFKA-10432, 7415, 10706 (leader epochs), 9892, 9105, 18723."""

import pytest

from mainstem.core.log.producers import Origin
from mainstem.protocol.errors import ErrorCode, RemoteError
from tests.support.logs import DIRECTORY, NOW_MS, append, batch, marker, new_disk, open_in, read_all

LAST = 2**31 - 1


def test_kafka_7692_sequences_go_on_at_zero() -> None:
    disk = new_disk()
    log = open_in(disk)
    append(log, batch(b"a", producer_id=1, epoch=0, sequence=LAST - 1))
    across = batch(b"b", b"c", b"d", producer_id=1, epoch=0, sequence=LAST)
    assert append(log, across).base_offset == 1
    assert append(log, across).is_duplicate
    with pytest.raises(RemoteError):
        append(log, batch(b"e", producer_id=1, epoch=0, sequence=0))
    assert append(log, batch(b"e", producer_id=1, epoch=0, sequence=2)).base_offset == 4


def test_kafka_7692_a_batch_that_ends_at_the_last_sequence_is_followed_by_zero() -> None:
    disk = new_disk()
    log = open_in(disk)
    append(log, batch(b"a", b"b", producer_id=1, epoch=0, sequence=LAST - 1))
    log.close(NOW_MS)
    log = open_in(disk, clean=True, recovery_point=2)
    assert append(log, batch(b"c", producer_id=1, epoch=0, sequence=0)).base_offset == 2


def test_kafka_7692_a_retry_from_before_the_overflow_is_found_after_a_restart() -> None:
    disk = new_disk()
    log = open_in(disk)
    sent = [batch(b"%d" % number, producer_id=1, epoch=0, sequence=(LAST - 1 + number) & LAST) for number in range(4)]
    for data in sent:
        append(log, data)
    log.close(NOW_MS)
    log = open_in(disk, clean=True, recovery_point=4)
    assert [append(log, data).base_offset for data in sent] == [0, 1, 2, 3]


def test_kafka_10432_epoch_zero_is_recovered() -> None:
    disk = new_disk()
    log = open_in(disk)
    append(log, batch(b"a"), leader_epoch=0)
    disk.kill()
    log = open_in(disk)
    assert [(entry.epoch, entry.start_offset) for entry in log.epochs.entries()] == [(0, 0)]


def test_kafka_7415_a_leader_knows_where_its_epoch_begins_before_its_first_batch() -> None:
    disk = new_disk()
    log = open_in(disk)
    append(log, batch(b"a"), leader_epoch=0)
    log.assign_epoch(3)
    log.persist_epochs()
    assert log.end_offset_for(0).end_offset == 1
    assert log.end_offset_for(3).end_offset == 1
    file = disk.open(f"{DIRECTORY}/leader-epoch-checkpoint")
    assert file.read_at(0, 100) == b"0\n2\n0 0\n3 1\n"


def test_kafka_10706_truncating_to_the_end_forgets_an_epoch_that_begins_there() -> None:
    log = open_in(new_disk())
    append(log, batch(b"a"), leader_epoch=0)
    log.assign_epoch(3)
    assert not log.truncate_to(1, NOW_MS)
    assert log.epochs.latest == 0


def test_kafka_9892_snapshots_and_epochs_are_durable_before_the_recovery_point_moves() -> None:
    disk = new_disk()
    log = open_in(disk)
    append(log, batch(b"a", producer_id=1, epoch=0, sequence=0), leader_epoch=2)
    log.roll(NOW_MS)
    append(log, batch(b"b", producer_id=1, epoch=0, sequence=1), leader_epoch=3)
    log.flush(NOW_MS)
    disk.power_loss()
    assert disk.file_size(f"{DIRECTORY}/{1:020}.snapshot") == 10 + 46
    assert disk.open(f"{DIRECTORY}/leader-epoch-checkpoint").read_at(0, 100) == b"0\n2\n2 0\n3 1\n"
    log = open_in(disk, recovery_point=2)
    assert append(log, batch(b"c", producer_id=1, epoch=0, sequence=2)).base_offset == 2


def test_kafka_9105_deleting_records_of_an_open_transaction_moves_what_is_unstable() -> None:
    log = open_in(new_disk())
    append(log, batch(b"a", producer_id=1, epoch=0, sequence=0, transactional=True))
    append(log, batch(b"b", producer_id=1, epoch=0, sequence=1, transactional=True))
    log.advance_log_start(1)
    assert (log.log_start, log.first_unstable_offset, log.last_stable_offset) == (1, 1, 1)
    append(log, marker(1, 0, True), origin=Origin.COORDINATOR)
    assert log.last_stable_offset == 3


def test_kafka_18723_a_follower_takes_nothing_of_a_later_epoch_and_nothing_corrupt() -> None:
    log = open_in(new_disk())
    good = batch(b"a", base_offset=0, leader_epoch=1)
    later = batch(b"b", base_offset=1, leader_epoch=2)
    result = log.append_as_follower(good + later, 0, len(good + later), 1, NOW_MS)
    assert (result.last_offset, log.log_end, log.epochs.latest) == (0, 1, 1)
    corrupt = later[:-1] + b"?"
    with pytest.raises(RemoteError) as raised:
        log.append_as_follower(corrupt, 0, len(corrupt), 2, NOW_MS)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
    assert [found.leader_epoch for found in read_all(log)] == [1]
