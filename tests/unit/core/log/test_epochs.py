"""Leader epochs: monotone in both, and Kafka's answers to OffsetForLeaderEpoch."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from mainstem.core.log.epochs import EpochEnd, EpochEntry, LeaderEpochs


def epochs_of(*pairs: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs([EpochEntry(epoch, start) for epoch, start in pairs])


def pairs(epochs: LeaderEpochs) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in epochs.entries()]


def test_an_epoch_that_wrote_nothing_gives_way_to_the_next() -> None:
    epochs = epochs_of((1, 0), (2, 10))
    epochs.assign(3, 10)
    assert pairs(epochs) == [(1, 0), (3, 10)]


def test_an_entry_that_is_known_changes_nothing() -> None:
    epochs = epochs_of((1, 0), (2, 10))
    assert not epochs.assign(2, 15)
    assert epochs.version == 0
    assert epochs.assign(2, 5)
    assert pairs(epochs) == [(1, 0), (2, 5)]


def test_the_end_of_an_epoch_is_where_the_next_one_begins() -> None:
    epochs = epochs_of((2, 10), (5, 20), (6, 30))
    assert epochs.end_offset_for(2, 40) == EpochEnd(2, 20)
    assert epochs.end_offset_for(6, 40) == EpochEnd(6, 40)
    # Epochs in between that this log never saw end where the last one before them does.
    assert epochs.end_offset_for(4, 40) == EpochEnd(2, 20)
    # Older than anything known: the reader must begin where the log does.
    assert epochs.end_offset_for(1, 40) == EpochEnd(1, 10)
    assert epochs.end_offset_for(7, 40) == EpochEnd(-1, -1)
    assert epochs.end_offset_for(-1, 40) == EpochEnd(-1, -1)
    assert epochs_of().end_offset_for(0, 40) == EpochEnd(-1, -1)


def test_moving_the_start_keeps_the_epoch_that_it_falls_into() -> None:
    epochs = epochs_of((2, 10), (5, 20), (6, 30))
    epochs.truncate_from_start(25)
    assert pairs(epochs) == [(5, 25), (6, 30)]
    epochs.truncate_from_start(30)
    assert pairs(epochs) == [(6, 30)]
    epochs.truncate_from_start(5)
    assert pairs(epochs) == [(6, 30)]
    epochs.truncate_from_start(100)
    assert pairs(epochs) == [(6, 100)]


def test_cutting_the_end_forgets_the_epochs_that_begin_there() -> None:
    epochs = epochs_of((2, 10), (5, 20), (6, 30))
    epochs.truncate_from_end(30)
    assert pairs(epochs) == [(2, 10), (5, 20)]
    epochs.truncate_from_end(5)
    assert pairs(epochs) == []
    assert epochs.latest == -1


def test_the_epoch_of_an_offset() -> None:
    epochs = epochs_of((2, 10), (5, 20))
    assert [epochs.epoch_for(offset) for offset in (9, 10, 19, 20, 99)] == [-1, 2, 2, 5, 5]
    assert [epochs.previous_epoch(epoch) for epoch in (2, 5, 6)] == [-1, 2, 5]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 50)), max_size=30))
def test_entries_rise_in_both_whatever_is_assigned(assigned: list[tuple[int, int]]) -> None:
    epochs = epochs_of()
    for epoch, start in assigned:
        epochs.assign(epoch, start)
        assert epochs.latest == epoch or epochs.entries()[-1].epoch == epochs.latest
        found = pairs(epochs)
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(found))
