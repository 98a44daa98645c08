"""The high watermark of a leader."""

from mainstem.core.replication.leader import LeaderState


def leader(in_sync: tuple[int, ...] = (1,), min_in_sync: int = 1, replicas: tuple[int, ...] = (1,)) -> LeaderState:
    return LeaderState(1, 5, replicas, in_sync, min_in_sync=min_in_sync, log_end=10, high_watermark=10)


def test_a_lone_replica_commits_what_it_wrote() -> None:
    state = leader()
    assert state.wrote(12)
    assert state.high_watermark == 12
    assert not state.wrote(12)


def test_the_high_watermark_waits_for_every_replica_in_sync() -> None:
    state = leader(in_sync=(1, 2), replicas=(1, 2, 3))
    assert not state.wrote(20)
    assert state.high_watermark == 10


def test_the_high_watermark_stands_while_too_few_are_in_sync() -> None:
    state = leader(min_in_sync=2, replicas=(1, 2, 3))
    assert not state.has_enough_in_sync
    assert not state.wrote(12)
    assert state.set_min_in_sync(1)
    assert state.high_watermark == 12


def test_the_minimum_is_never_more_than_there_are_replicas() -> None:
    state = leader(min_in_sync=3)
    assert state.has_enough_in_sync
    assert state.wrote(11)


def test_a_restored_high_watermark_never_passes_the_log_end() -> None:
    state = LeaderState(1, 5, (1,), (1,), min_in_sync=1, log_end=7, high_watermark=9)
    assert state.high_watermark == 7


def test_settings_that_change_show_nothing_that_a_start_found_and_has_not_synced() -> None:
    state = LeaderState(1, 5, (1,), (1,), min_in_sync=1, log_end=17, high_watermark=11)
    assert not state.set_min_in_sync(1)
    assert state.wrote(13)
    assert state.high_watermark == 13
    assert state.epoch_start == 17
