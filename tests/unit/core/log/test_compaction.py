"""What is cleanable, which segments become one, and what becomes of transactions' batches."""

from dataclasses import dataclass

from mainstem.core.log.compaction import Cleanable, TransactionTracker, find_cleanable, group_segments, judge
from mainstem.core.log.config import LONG_MAX, LogConfig
from mainstem.core.log.producers import ProducerStates
from mainstem.protocol.batch import BatchView
from mainstem.protocol.control import EndMarker, build_end_marker
from tests.support.logs import NOW_MS, batch


@dataclass(frozen=True)
class FakeSegment:
    base_offset: int
    size: int = 100
    first_timestamp: int = NOW_MS
    newest: int = NOW_MS

    def largest_timestamp(self) -> int:
        return self.newest


def cleanable(
    segments: list[FakeSegment],
    stable_end: int = 1 << 40,
    durable_end: int = 1 << 40,
    checkpoint: int | None = None,
    log_start: int = 0,
    log_end: int = 1000,
    **settings: int,
) -> Cleanable:
    config = LogConfig(cleanup_policy=("compact",), **settings)  # type: ignore[arg-type]
    return find_cleanable(segments, log_start, log_end, stable_end, durable_end, checkpoint, config, NOW_MS)


def three() -> list[FakeSegment]:
    return [FakeSegment(0), FakeSegment(10), FakeSegment(20), FakeSegment(30, 40)]


def test_everything_but_the_active_segment_is_cleanable_at_first() -> None:
    found = cleanable(three())
    assert (found.first_dirty, found.end, found.clean_bytes, found.dirty_bytes) == (0, 30, 0, 300)
    assert found.ratio == 1.0


def test_a_segment_that_reaches_past_the_last_stable_offset_stays_whole() -> None:
    assert cleanable(three(), stable_end=25).end == 20
    assert cleanable(three(), stable_end=20).end == 20
    assert cleanable(three(), stable_end=19).end == 10
    assert cleanable(three(), stable_end=5).dirty_bytes == 0


def test_a_segment_that_is_not_durable_stays_whole() -> None:
    assert cleanable(three(), durable_end=15).end == 10


def test_a_young_segment_and_all_after_it_wait_for_their_lag() -> None:
    segments = [
        FakeSegment(0, newest=NOW_MS - 500),
        FakeSegment(10, newest=NOW_MS - 50),
        FakeSegment(20, newest=NOW_MS - 500),
        FakeSegment(30),
    ]
    assert cleanable(segments, min_compaction_lag_ms=100).end == 10
    assert cleanable(segments, min_compaction_lag_ms=50).end == 30


def test_a_segment_without_records_waits_for_nothing() -> None:
    """Its time is that of its file: where the clock was set back since, everything after it waited as well."""
    segments = [FakeSegment(0, 0, newest=NOW_MS + 600_000), FakeSegment(10, newest=NOW_MS - 500), FakeSegment(20)]
    found = cleanable(segments, min_compaction_lag_ms=100)
    assert (found.end, found.dirty_bytes) == (20, 100)


def test_the_ratio_is_that_of_dirty_bytes_and_must_exceed_the_limit() -> None:
    found = cleanable(three(), checkpoint=20)
    assert (found.clean_bytes, found.dirty_bytes) == (200, 100)
    assert not found.is_due(1 / 3)
    assert found.is_due(0.33)


def test_nothing_is_dirty_up_to_the_checkpoint() -> None:
    found = cleanable(three(), checkpoint=30)
    assert (found.dirty_bytes, found.overdue_ms) == (0, 0)
    assert not found.is_due(0.0)


def test_a_segment_cleaned_in_part_counts_on_both_sides_as_in_kafka() -> None:
    found = cleanable(three(), checkpoint=15)
    assert (found.first_dirty, found.clean_bytes, found.dirty_bytes) == (15, 200, 200)


def test_an_old_record_forces_a_cleaning_below_the_ratio() -> None:
    segments = [FakeSegment(0, 1000), FakeSegment(10, 10, first_timestamp=NOW_MS - 700), FakeSegment(20, 10)]
    found = cleanable(segments, checkpoint=10, max_compaction_lag_ms=600)
    assert found.overdue_ms == 100
    assert found.is_due(0.5)
    assert not cleanable(segments, checkpoint=10, max_compaction_lag_ms=700).is_due(0.5)
    assert not cleanable(segments, checkpoint=10, max_compaction_lag_ms=LONG_MAX).is_due(0.5)


def test_the_oldest_of_the_dirty_segments_says_how_long_it_has_waited() -> None:
    ages = (10_000, 700, 900, 650, 1)
    segments = [FakeSegment(10 * at, first_timestamp=NOW_MS - age) for at, age in enumerate(ages)]
    assert cleanable(segments, checkpoint=10, max_compaction_lag_ms=600).overdue_ms == 300


def test_records_without_a_time_are_not_overdue() -> None:
    """A first timestamp of 0 is what a client without a clock writes; it would be overdue by half a century."""
    segments = [FakeSegment(0, first_timestamp=0), FakeSegment(10, first_timestamp=NOW_MS - 700), FakeSegment(20)]
    assert cleanable(segments, max_compaction_lag_ms=600).overdue_ms == 100
    segments[1] = FakeSegment(10, first_timestamp=-1)
    assert cleanable(segments, max_compaction_lag_ms=600).overdue_ms == 0


def test_overdue_records_that_must_not_be_cleaned_force_nothing() -> None:
    segments = [FakeSegment(0, 100, first_timestamp=1), FakeSegment(10)]
    assert not cleanable(segments, stable_end=5, max_compaction_lag_ms=600).is_due(0.5)


def test_a_checkpoint_outside_the_log_makes_everything_dirty() -> None:
    for checkpoint in (4, 1001):
        found = cleanable(three(), checkpoint=checkpoint, log_start=5)
        assert (found.first_dirty, found.was_reset) == (5, True)
    assert not cleanable(three(), checkpoint=1000).was_reset
    assert not cleanable(three(), checkpoint=5, log_start=5).was_reset


def bases(groups: list[list[FakeSegment]]) -> list[list[int]]:
    return [[segment.base_offset for segment in group] for group in groups]


def test_neighbours_that_fit_together_become_one_segment() -> None:
    segments = [FakeSegment(0, 400), FakeSegment(10, 600), FakeSegment(20, 1), FakeSegment(30, 999), FakeSegment(40)]
    config = LogConfig(internal_segment_bytes=1000)
    assert bases(group_segments(segments, [(0, 0)] * 5, config, 50)) == [[0, 10], [20, 30], [40]]


def test_indexes_bound_a_group_as_well() -> None:
    segments = [FakeSegment(0, 1), FakeSegment(10, 1), FakeSegment(20, 1)]
    config = LogConfig(internal_segment_bytes=1000, segment_index_bytes=100)
    assert bases(group_segments(segments, [(60, 0), (40, 0), (8, 0)], config, 30)) == [[0, 10], [20]]
    assert bases(group_segments(segments, [(0, 60), (0, 41), (0, 12)], config, 30)) == [[0], [10, 20]]


def test_a_group_spans_no_more_offsets_than_a_segment_can() -> None:
    far = (1 << 31) + 5
    config = LogConfig()
    segments = [FakeSegment(0, 1), FakeSegment(10, 1), FakeSegment(far, 1)]
    assert bases(group_segments(segments, [(0, 0)] * 3, config, far + 10)) == [[0], [10], [far]]
    # An empty segment has no offset to keep, and is not left behind for ever.
    segments = [FakeSegment(0, 1), FakeSegment(10, 0), FakeSegment(far, 1)]
    assert bases(group_segments(segments, [(0, 0)] * 3, config, far + 10)) == [[0, 10], [far]]


def data(offset: int, producer_id: int = 7) -> BatchView:
    return BatchView(
        batch(b"v", producer_id=producer_id, epoch=0, sequence=0, transactional=True, base_offset=offset), 0
    )


def end(offset: int, commit: bool, producer_id: int = 7) -> BatchView:
    return BatchView(build_end_marker(EndMarker(producer_id, 0, commit, 0, offset, NOW_MS)), 0)


def test_a_marker_is_spent_once_no_batch_of_its_transaction_comes_before_it() -> None:
    tracker = TransactionTracker()
    assert not tracker.is_aborted_data(data(0))
    assert not tracker.is_spent_marker(end(1, commit=True))
    assert tracker.is_spent_marker(end(2, commit=True))


def test_aborted_data_goes_and_its_marker_stays_in_the_index_until_it_has_gone() -> None:
    tracker = TransactionTracker()
    tracker.add_aborted([(0, 1, 7, 2), (2, 3, 7, 4)])
    assert tracker.is_aborted_data(data(0))
    assert not tracker.is_spent_marker(end(1, commit=False))
    assert tracker.is_spent_marker(end(3, commit=False))
    assert tracker.take_kept() == [(0, 1, 7, 2)]
    assert tracker.take_kept() == []


def test_a_transaction_told_of_twice_is_one() -> None:
    """One that spans segments is in what is collected for each of them."""
    tracker = TransactionTracker()
    tracker.add_aborted([(0, 11, 7, 12)])
    assert tracker.is_aborted_data(data(0))
    tracker.add_aborted([(0, 11, 7, 12)])
    assert tracker.is_aborted_data(data(10))
    assert not tracker.is_spent_marker(end(11, commit=False))
    assert not tracker.is_aborted_data(data(12))
    assert not tracker.is_spent_marker(end(13, commit=True))


def test_other_producers_are_not_concerned() -> None:
    tracker = TransactionTracker()
    tracker.add_aborted([(0, 3, 7, 4)])
    assert not tracker.is_aborted_data(data(0, producer_id=8))
    assert tracker.is_aborted_data(data(1))
    assert not tracker.is_spent_marker(end(2, commit=True, producer_id=8))


def test_the_last_batch_of_a_live_producer_and_of_the_cleaning_stay() -> None:
    states = ProducerStates()
    states.apply_data(7, 0, 4, 20, 24, NOW_MS, True)
    tracker = TransactionTracker()
    last = BatchView(batch(b"v", producer_id=7, epoch=0, sequence=4, base_offset=24), 0)
    other = BatchView(batch(b"v", producer_id=7, epoch=0, sequence=3, base_offset=23), 0)
    assert judge(last, tracker, states, 100, NOW_MS).keeps_empty
    assert not judge(other, tracker, states, 100, NOW_MS).keeps_empty
    assert judge(other, tracker, states, 24, NOW_MS).keeps_empty
    states.expire(NOW_MS * 2, 1)
    assert judge(last, tracker, ProducerStates(), 100, NOW_MS).keeps_empty is False


def test_a_producer_that_only_left_a_marker_keeps_it_for_its_epoch() -> None:
    states = ProducerStates()
    states.apply_marker(7, 0, 0, False, 30, NOW_MS)
    verdict = judge(end(30, commit=True), TransactionTracker(), states, 100, NOW_MS)
    assert verdict.keeps_empty
    assert verdict.is_spent_marker
    assert not verdict.drops_all
