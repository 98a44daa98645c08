"""What others lost, kept for ever, or could not get past when they compacted a log."""

import pytest

from mainstem.core.log.producers import Origin
from mainstem.protocol.batch import BatchView
from mainstem.protocol.control import ControlType, control_key
from mainstem.protocol.records import iterate_records
from mainstem.storage.cleaner import Cleaner
from mainstem.storage.open_files import OpenFiles
from tests.support.compaction import DAY_MS, PARTITION, CompactedLog, committed_of, compacted, table_of
from tests.support.log_files import check_folder
from tests.support.logs import DIRECTORY, NOW_MS, append, batch, file_contents, open_in, read_all


def headers(made: CompactedLog) -> list[tuple[int, int]]:
    """Base offset and number of records of each batch, but the filler."""
    return [
        (each.base_offset, each.record_count)
        for each in read_all(made.log)
        if each.is_control or each.record_count == 0 or next(iterate_records(each)).key != b"filler"
    ]


def test_kafka_4529_a_tombstone_lives_its_retention_after_it_was_first_cleaned_whatever_its_timestamp() -> None:
    for timestamp in (NOW_MS - 100 * DAY_MS, NOW_MS, NOW_MS + 3_000_000):
        made = CompactedLog(delete_retention_ms=DAY_MS)
        made.put((b"a", b"1"), timestamp=timestamp)
        made.put((b"a", None), timestamp=timestamp)
        made.roll_and_clean(NOW_MS)
        made.roll_and_clean(NOW_MS + DAY_MS - 1)
        assert made.written() == [(1, b"a", None)]
        made.roll_and_clean(NOW_MS + DAY_MS)
        assert made.written() == []


def test_kafka_4529_a_tombstone_outlives_a_value_that_an_earlier_cleaning_could_not_reach() -> None:
    """The tombstone did not fit the map: it has no say yet, and no horizon that could run out before it had."""
    made = CompactedLog(buffer_bytes=24 * 4, delete_retention_ms=0)
    made.put((b"a", b"1"))
    made.put((b"b", b"1"), (b"c", b"1"), (b"d", b"1"))
    made.put((b"a", None))
    made.roll()
    while True:
        assert table_of(made.log).get(b"a") in (None, b"1")
        if made.clean(NOW_MS + 10) is None:
            break
        if b"a" in [key for _, key, _ in made.written()]:
            values = [value for _, key, value in made.written() if key == b"a"]
            assert values != [b"1"], "the tombstone went and the value stayed"
    assert b"a" not in table_of(made.log)


def test_kafka_13194_a_record_past_the_high_watermark_supersedes_nothing() -> None:
    made = CompactedLog()
    made.put((b"a", b"committed"))
    made.log.roll(NOW_MS)
    data = batch(b"uncommitted", key=b"a")
    made.log.append_as_leader(data, 0, len(data), 0, NOW_MS)
    made.log.update_high_watermark(1)
    made.log.roll(NOW_MS)
    made.log.flush(NOW_MS)
    made.clean()
    assert made.written()[0] == (0, b"a", b"committed")
    made.log.truncate_to(1, NOW_MS)
    assert made.table() == {b"a": b"committed"}


def test_kafka_13194_a_watermark_inside_an_inactive_segment_keeps_all_of_it_uncleaned() -> None:
    made = CompactedLog()
    made.put((b"a", b"1"))
    made.put((b"a", b"2"))
    made.roll()
    made.log.high_watermark = 1
    assert made.clean() is None
    assert len(made.written()) == 2


def test_an_open_transaction_stops_the_cleaner_where_it_begins() -> None:
    made = CompactedLog()
    made.put((b"a", b"1"))
    made.put((b"a", b"2"))
    made.log.roll(NOW_MS)
    made.put_as(7, (b"a", b"3"), transactional=True)
    made.roll()
    made.clean()
    assert made.written() == [(1, b"a", b"2"), (2, b"a", b"3")]
    assert made.cleaner.offsets[PARTITION] == 2


def test_a_value_does_not_go_for_one_that_is_not_durable() -> None:
    made = CompactedLog()
    made.put((b"a", b"1"))
    made.roll()
    made.put((b"a", b"2"))
    made.log.roll(NOW_MS)
    made.clean()
    assert made.written() == [(0, b"a", b"1"), (1, b"a", b"2")]
    made.log.flush(NOW_MS)
    made.clean()
    assert made.written() == [(1, b"a", b"2")]


def test_kafka_14055_a_users_key_that_looks_like_a_markers_removes_no_marker() -> None:
    made = CompactedLog(delete_retention_ms=0)
    for commit in (True, False):
        made.put_as(7, (b"a", b"%d" % commit), transactional=True)
        made.end(7, commit)
    made.put((control_key(ControlType.COMMIT), b"x"), (control_key(ControlType.ABORT), b"y"))
    made.roll_and_clean()
    controls = [each.base_offset for each in read_all(made.log) if each.is_control and each.record_count]
    assert controls == [1, 3]
    assert made.table()[b"a"] == b"1"
    made.reopen()
    assert made.table()[b"a"] == b"1"


def test_kafka_14055_a_follower_of_a_compacted_leader_comes_to_the_same_transactions() -> None:
    made = CompactedLog()
    made.put_as(7, (b"a", b"1"), transactional=True)
    made.end(7, True)
    made.put_as(7, (b"a", b"aborted"), transactional=True)
    made.end(7, False)
    made.put_as(7, (b"b", b"2"), transactional=True)
    made.end(7, True)
    made.roll_and_clean()
    follower = open_in(made.disk, compacted(), directory="/data/follower-0")
    for each in read_all(made.log):
        data = each.to_bytes()
        follower.append_as_follower(data, 0, len(data), each.leader_epoch, NOW_MS)
    follower.update_high_watermark(follower.log_end)
    assert follower.last_stable_offset == follower.log_end
    assert follower.first_unstable_offset == -1
    assert table_of(follower) == table_of(made.log) == {b"a": b"1", b"b": b"2", b"filler": b""}


def test_markers_go_after_their_data_and_their_horizon_and_the_index_with_them() -> None:
    made = CompactedLog(delete_retention_ms=1000)
    made.put_as(7, (b"a", b"1"), transactional=True)
    made.end(7, False)
    made.put_as(8, (b"a", b"2"), transactional=True)
    made.end(8, True)
    made.put((b"a", b"3"))
    made.log.producers.states.clear()  # both expired: no last batch has to stay
    made.roll_and_clean()
    assert headers(made) == [(1, 1), (3, 1), (4, 1)]
    assert [each.first_offset for each in made.log.aborted_transactions(0, 100)] == [0]
    made.roll_and_clean()
    assert [each.has_delete_horizon for each in read_all(made.log)[:3]] == [True, True, False]
    assert made.log.aborted_transactions(0, 100) == []
    made.roll_and_clean(NOW_MS + 999)
    assert headers(made) == [(1, 1), (3, 1), (4, 1)]
    made.roll_and_clean(NOW_MS + 1000)
    assert headers(made) == [(4, 1)]


@pytest.mark.parametrize("commit", [True, False])
def test_kafka_8351_a_transaction_over_several_groups_of_segments_keeps_its_marker(commit: bool) -> None:
    made = CompactedLog(segment_bytes=200, delete_retention_ms=0)
    for number in range(6):
        made.put_as(7, (b"k%d" % number, b"v" * 50), transactional=True)
    made.end(7, commit)
    made.put((b"last", b"1"))
    made.roll()
    assert len(made.log.segments) > 3
    before = committed_of(made.log)
    for _ in range(3):
        made.roll_and_clean(NOW_MS)
        kept = [each for each in committed_of(made.log) if each.key != b"filler"]
        assert kept == before
        if commit:
            assert 6 in [each.base_offset for each in read_all(made.log) if each.record_count]
        made.reopen()
        assert made.log.first_unstable_offset == -1


def test_kafka_13727_the_aborted_index_covers_the_part_that_did_not_fit_the_map() -> None:
    made = CompactedLog(buffer_bytes=24 * 4, delete_retention_ms=0)
    made.put((b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    made.put((b"d", b"1"), (b"e", b"1"))
    made.put_as(7, (b"a", b"aborted"), transactional=True)
    made.put((b"f", b"1"), (b"g", b"1"), (b"h", b"1"))
    made.end(7, False)
    made.put((b"i", b"1"))
    made.roll()
    before = table_of(made.log)
    rounds = 0
    while made.clean() is not None:
        rounds += 1
        assert table_of(made.log) == before
        made.reopen()
        made.cleaner = Cleaner(made.files, made.cleaner.offsets, 24 * 4)
        assert table_of(made.log) == before
        assert made.log.last_stable_offset == made.log.log_end
    assert rounds > 1


@pytest.mark.parametrize("clean", [True, False])
def test_kafka_5490_a_producer_goes_on_after_its_last_record_was_compacted_away(clean: bool) -> None:
    made = CompactedLog()
    sent = batch(b"1", b"2", b"3", key=b"a", producer_id=7, epoch=0, sequence=0)
    first = append(made.log, sent)
    made.put((b"a", b"newer"))
    made.roll_and_clean()
    assert headers(made)[0] == (0, 0)
    empty = read_all(made.log)[0]
    assert (empty.last_offset, empty.base_sequence, empty.last_sequence) == (2, 0, 2)
    for name in made.disk.list_directory(DIRECTORY):
        if name.endswith(".snapshot"):
            made.disk.remove(f"{DIRECTORY}/{name}")
    made.log.recovery_point = 0
    made.reopen(clean=clean)
    again = append(made.log, sent)
    assert again.is_duplicate
    assert (again.base_offset, again.last_offset) == (first.base_offset, first.last_offset)
    append(made.log, batch(b"4", key=b"a", producer_id=7, epoch=0, sequence=3))


def test_kafka_5490_the_epoch_that_only_a_marker_tells_survives() -> None:
    made = CompactedLog(delete_retention_ms=0)
    made.put_as(7, (b"a", b"1"), transactional=True)
    made.end(7, True, epoch=3)  # a higher epoch: the sequences before it are forgotten
    made.put((b"a", b"2"))
    for _ in range(3):
        made.roll_and_clean()
    made.log.recovery_point = 0
    made.reopen()
    producer = made.log.producers.states.get(7)
    assert producer is None or producer.epoch >= 0
    assert (1, 0) in headers(made) or (1, 1) in headers(made)


def test_kafka_8335_batches_of_a_producer_that_went_on_do_not_pile_up_empty() -> None:
    made = CompactedLog(delete_retention_ms=0)
    for number in range(20):
        made.put_as(7, (b"a", b"%d" % number), transactional=True)
        made.end(7, True)
    for _ in range(4):
        made.roll_and_clean()
    # The last value, and the marker that ends its transaction.
    assert headers(made) == [(38, 1), (39, 1)]


def test_kafka_7385_a_batch_that_kept_no_record_is_cleaned_again_without_harm() -> None:
    made = CompactedLog()
    made.put_as(7, (b"a", b"1"))
    made.put((b"a", b"2"))
    for _ in range(4):
        made.roll_and_clean()
        assert headers(made) == [(0, 0), (1, 1)]
    made.put_as(7, (b"b", b"1"))
    made.roll_and_clean()
    assert (0, 0) not in headers(made)


def test_the_last_batch_of_a_cleaning_stays_and_says_where_the_log_goes_on() -> None:
    made = CompactedLog()
    made.put((b"a", b"1"))
    made.put((b"b", b"1"))
    made.put_as(7, (b"a", b"aborted"), transactional=True)
    made.end(7, False)
    made.put_as(7, (b"a", b"aborted"), transactional=True)
    offset = made.end(7, False)
    made.roll()
    made.clean()
    assert read_all(made.log)[-1].last_offset == offset
    made.reopen(clean=True)
    assert made.log.log_end == offset + 1


def test_kafka_8764_offsets_that_are_missing_do_not_hold_the_cleaner_up() -> None:
    """A follower of a compacted log has gaps, also at the end of a segment, where nothing is left to be read."""
    made = CompactedLog()
    for offset in (0, 5, 17):
        data = batch(b"v%d" % offset, key=b"k%d" % offset, base_offset=offset, leader_epoch=0)
        made.log.append_as_follower(data, 0, len(data), 0, NOW_MS)
    made.log.update_high_watermark(18)
    made.roll()
    data = batch(b"v", key=b"k", base_offset=100, leader_epoch=0)
    made.log.append_as_follower(data, 0, len(data), 0, NOW_MS)
    made.log.update_high_watermark(101)
    made.roll()
    assert len(made.clean_all()) == 1
    assert made.cleaner.offsets[PARTITION] == made.log.log_end == 101
    assert made.clean() is None
    made.cleaner.offsets[PARTITION] = 50  # in the gap
    assert len(made.clean_all()) == 1


def test_kafka_8764_a_checkpoint_before_the_log_start_is_reset() -> None:
    made = CompactedLog()
    for number in range(6):
        made.put((b"a", b"%d" % number))
        made.log.roll(NOW_MS)
    made.log.flush(NOW_MS)
    made.cleaner.offsets[PARTITION] = 1
    made.log.advance_log_start(4)
    made.log.delete_old_segments(NOW_MS)
    made.clean()
    assert made.cleaner.offsets[PARTITION] == 6
    assert made.written() == [(5, b"a", b"5")]


def test_kafka_3330_a_truncation_makes_dirty_what_is_written_after_it() -> None:
    made = CompactedLog()
    made.put((b"a", b"1"))
    made.put((b"b", b"1"), (b"b", b"2"), (b"b", b"3"))
    made.roll_and_clean()
    assert made.cleaner.offsets[PARTITION] == 5
    assert made.cleaner.before_truncation(PARTITION, made.log, 2)
    assert not made.cleaner.before_truncation(PARTITION, made.log, 3)
    made.log.truncate_to(2, NOW_MS)
    made.put((b"a", b"2"), (b"x", b"1"), (b"y", b"1"), (b"z", b"1"))
    made.roll_and_clean()
    assert (0, b"a", b"1") not in made.written()
    made.cleaner.offsets[PARTITION] = made.log.log_end + 1
    made.clean()
    assert made.cleaner.offsets[PARTITION] == made.log.log_end


def test_kafka_2118_every_stop_during_a_swap_leaves_a_log_that_can_be_cleaned_again() -> None:
    """kill -9 after each change to the disk that a cleaning makes."""
    made = CompactedLog(segment_bytes=500)
    for number in range(30):
        made.put((b"k%d" % (number % 4), b"v%d" % number))
        if number % 10 == 9:
            made.put_as(7, (b"t%d" % number, b"v"), transactional=True)
            made.end(7, number != 19)
    made.roll()
    table, end, point = made.table(), made.log.log_end, made.log.recovery_point
    disks = []
    made.disk.after_change = lambda disk: disks.append(disk.fork())
    made.clean()
    made.disk.after_change = None
    assert len(disks) > 100
    for disk in disks:
        disk.kill()
        files = OpenFiles(disk, 100)
        log = open_in(disk, made.config, recovery_point=point, files=files)
        assert (table_of(log), log.log_end) == (table, end)
        check_folder(file_contents(disk), complete=False, from_the_start=False)
        cleaner = Cleaner(files, {})
        candidate = cleaner.choose({PARTITION: log}, NOW_MS)
        assert candidate is not None
        assert cleaner.clean(candidate, NOW_MS).is_done
        assert table_of(log) == table
        names = disk.list_directory(DIRECTORY)
        assert not [name for name in names if name.endswith((".cleaned", ".swap"))]


def test_kafka_12520_a_swap_that_was_interrupted_does_not_cost_the_producers_their_state() -> None:
    made = CompactedLog()
    for number in range(5):
        made.put_as(7, (b"k%d" % number, b"v"))
        made.put_as(8, (b"k%d" % number, b"w"))
        made.log.roll(NOW_MS)
    made.log.flush(NOW_MS)
    disks = []
    made.disk.after_change = lambda disk: disks.append(disk.fork())
    made.clean()
    for disk in disks:
        disk.kill()
        log = open_in(disk, made.config, recovery_point=10)
        assert f"{10:020}.snapshot" in disk.list_directory(DIRECTORY)
        for producer_id in (7, 8):
            producer = log.producers.states.get(producer_id)
            assert producer is not None
            assert producer.last_sequence == 4


def test_redpanda_28730_nothing_counts_as_clean_before_all_of_it_is_swapped_in() -> None:
    made = CompactedLog(segment_bytes=300)
    for number in range(30):
        made.put((b"k%d" % (number % 4), b"v%d" % number))
    made.roll()
    candidate = made.cleaner.choose({PARTITION: made.log}, NOW_MS)
    assert candidate is not None
    cleaning = made.cleaner.begin(candidate, NOW_MS)
    while cleaning.turn(NOW_MS):
        assert PARTITION not in made.cleaner.offsets
        while cleaning.step():
            pass
    assert made.cleaner.end(PARTITION)


def test_a_marker_keeps_the_time_it_was_written_when_it_gets_a_horizon() -> None:
    made = CompactedLog(delete_retention_ms=1000)
    made.end(7, True)
    made.roll_and_clean()
    found = BatchView(read_all(made.log)[0].to_bytes(), 0)
    assert found.has_delete_horizon
    assert found.max_timestamp == NOW_MS
    assert found.is_control
    assert next(iterate_records(found)).timestamp == NOW_MS


def test_coordinators_append_to_compacted_logs_while_they_are_cleaned() -> None:
    made = CompactedLog()
    made.put((b"group", b"1"))
    made.log.append_as_leader(data := batch(b"2", key=b"group"), 0, len(data), 0, NOW_MS, Origin.COORDINATOR)
    made.log.update_high_watermark(made.log.log_end)
    made.roll_and_clean()
    assert made.table()[b"group"] == b"2"
