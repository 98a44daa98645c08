"""Producer state: sequences, epochs, transactions and what is stable."""

from collections.abc import Callable
from random import Random

import pytest

from mainstem.core.log.producers import Origin, ProducerStates
from mainstem.protocol.errors import RemoteError

NOW_MS = 1000


class Partition:
    """Appends as a log does: check, then apply."""

    def __init__(self) -> None:
        self.states = ProducerStates()
        self.end = 0

    def send(
        self,
        producer: int,
        epoch: int,
        sequence: int,
        count: int = 1,
        transactional: bool = False,
        now_ms: int = NOW_MS,
    ) -> int:
        last = (sequence + count - 1) & 0x7FFFFFFF
        duplicate = self.states.find_duplicate(producer, epoch, sequence, last)
        if duplicate is not None:
            return duplicate.first_offset
        self.states.check_data(Origin.CLIENT, producer, epoch, sequence, transactional)
        base, self.end = self.end, self.end + count
        self.states.apply_data(producer, epoch, last, base, self.end - 1, now_ms, transactional)
        self.states.end_offset = self.end
        return base

    def end_transaction(
        self, producer: int, epoch: int, commit: bool = True, coordinator: int = 0, version: int = 0
    ) -> int | None:
        """The last stable offset that the transaction index would get."""
        self.states.check_marker(producer, epoch, coordinator, version, Origin.COORDINATOR)
        offset, self.end = self.end, self.end + 1
        completed = self.states.apply_marker(producer, epoch, coordinator, not commit, offset, NOW_MS)
        if completed is None:
            return None
        stable = self.states.last_stable_offset_after(completed)
        self.states.complete(completed)
        return stable


def test_sequences_follow_each_other() -> None:
    partition = Partition()
    assert [partition.send(7, 0, sequence, 2) for sequence in (0, 2, 4)] == [0, 2, 4]
    for wrong in (5, 7, 100):
        with pytest.raises(RemoteError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
            partition.send(7, 0, wrong)
    assert partition.send(7, 0, 6) == 6


def test_an_unknown_producer_may_start_anywhere() -> None:
    assert Partition().send(7, 3, 41) == 0


def test_an_unknown_producer_has_an_epoch_or_minus_one() -> None:
    partition = Partition()
    for epoch in (-2, -0x8000):
        for sequence in (0, 1):
            with pytest.raises(RemoteError, match="INVALID_PRODUCER_EPOCH"):
                partition.send(7, epoch, sequence)
    assert partition.states.get(7) is None


def test_who_has_no_epoch_goes_on_anywhere_until_it_has_one() -> None:
    partition = Partition()
    assert [partition.send(7, -1, sequence) for sequence in (0, 1, 5, 3)] == [0, 1, 2, 3]
    assert partition.send(7, -1, 0) == 0, "it came before"
    with pytest.raises(RemoteError, match="INVALID_PRODUCER_EPOCH"):
        partition.send(7, -2, 4)
    assert partition.send(7, 0, 9) == 4
    with pytest.raises(RemoteError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
        partition.send(7, 0, 11)


def test_the_last_five_batches_are_recognized_and_no_more() -> None:
    partition = Partition()
    for sequence in range(6):
        partition.send(7, 0, sequence)
    assert [partition.send(7, 0, sequence) for sequence in range(1, 6)] == [1, 2, 3, 4, 5]
    with pytest.raises(RemoteError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
        partition.send(7, 0, 0)
    assert partition.end == 6


def test_a_retry_must_match_at_both_ends() -> None:
    partition = Partition()
    partition.send(7, 0, 0, 3)
    with pytest.raises(RemoteError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
        partition.send(7, 0, 0, 2)


def test_an_older_epoch_is_fenced_and_a_newer_one_starts_at_zero() -> None:
    partition = Partition()
    partition.send(7, 1, 0)
    with pytest.raises(RemoteError, match="INVALID_PRODUCER_EPOCH"):
        partition.send(7, 0, 1)
    with pytest.raises(RemoteError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
        partition.send(7, 2, 1)
    assert partition.send(7, 2, 0) == 1
    # What the older epoch sent is no duplicate any more.
    with pytest.raises(RemoteError, match="INVALID_PRODUCER_EPOCH"):
        partition.send(7, 1, 0)


def test_a_check_that_fails_changes_nothing() -> None:
    partition = Partition()
    partition.send(7, 1, 0, transactional=True)
    with pytest.raises(RemoteError, match="INVALID_TXN_STATE"):
        partition.send(7, 1, 1)
    with pytest.raises(RemoteError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
        partition.send(7, 2, 9, transactional=True)
    producer = partition.states.get(7)
    assert producer is not None
    assert (producer.epoch, producer.last_sequence, producer.txn_first_offset) == (1, 0, 0)


def test_the_oldest_open_transaction_holds_back_what_is_stable() -> None:
    partition = Partition()
    partition.send(1, 0, 0, transactional=True)
    partition.send(2, 0, 0, transactional=True)
    assert partition.states.first_unstable_offset == 0
    assert partition.end_transaction(1, 0) == 1, "the other one is open from offset 1"
    # The marker at 2 is not yet below the high watermark.
    assert partition.states.first_unstable_offset == 0
    partition.states.on_high_watermark(2)
    assert partition.states.first_unstable_offset == 0
    partition.states.on_high_watermark(3)
    assert partition.states.first_unstable_offset == 1
    assert partition.end_transaction(2, 0) == 4
    partition.states.on_high_watermark(4)
    assert partition.states.first_unstable_offset == -1


def test_a_marker_without_a_transaction_completes_nothing() -> None:
    partition = Partition()
    assert partition.end_transaction(1, 0) is None
    partition.send(1, 0, 0, transactional=True)
    partition.end_transaction(1, 0)
    assert partition.end_transaction(1, 0) is None


def test_markers_are_fenced_by_producer_and_coordinator_epoch() -> None:
    partition = Partition()
    partition.send(1, 3, 0, transactional=True)
    with pytest.raises(RemoteError, match="INVALID_PRODUCER_EPOCH"):
        partition.end_transaction(1, 2)
    partition.end_transaction(1, 3, coordinator=5)
    with pytest.raises(RemoteError, match="TRANSACTION_COORDINATOR_FENCED"):
        partition.end_transaction(1, 3, coordinator=4)


def test_under_transaction_version_2_a_marker_has_the_next_epoch() -> None:
    partition = Partition()
    partition.send(1, 3, 0, transactional=True)
    with pytest.raises(RemoteError, match="INVALID_PRODUCER_EPOCH"):
        partition.end_transaction(1, 3, version=2)
    assert partition.end_transaction(1, 4, version=2) is not None
    # A retry of the same marker is written again, not refused.
    assert partition.end_transaction(1, 4, version=2) is None
    assert partition.send(1, 4, 0, transactional=True) == 3


def test_silent_producers_are_forgotten_unless_a_transaction_is_open() -> None:
    partition = Partition()
    partition.send(1, 0, 0, now_ms=0)
    partition.send(2, 0, 0, transactional=True, now_ms=0)
    partition.send(3, 0, 0, now_ms=50)
    assert partition.states.expire(100, 100) == [1]
    assert partition.states.get(2) is not None


def test_replication_is_applied_without_being_judged() -> None:
    states = ProducerStates()
    states.apply_data(1, 5, 9, 0, 9, NOW_MS, False)
    states.check_data(Origin.REPLICATION, 1, 4, 0, False)
    states.check_marker(1, 4, -1, 0, Origin.REPLICATION)


def in_snapshot_order(states: ProducerStates, breathe: Callable[[], None] | None = None) -> list[int]:
    return [each.producer_id for some in states.capture().in_snapshot_order(breathe) for each in some]


def test_snapshots_list_producers_in_the_order_of_javas_hash_map() -> None:
    states = ProducerStates()
    for producer_id in (33, 17, 2, 1, 1 << 32):
        states.apply_data(producer_id, 0, 0, 0, 0, NOW_MS, False)
    # Sixteen slots: 33, 17, 1 and 2^32 (whose halves fold to 1) share slot 1, in the order they came.
    assert in_snapshot_order(states) == [33, 17, 1, 1 << 32, 2]
    for producer_id in range(100, 108):
        states.apply_data(producer_id, 0, 0, 0, 0, NOW_MS, False)
    # More than twelve make it thirty-two.
    assert in_snapshot_order(states) == [33, 1, 1 << 32, 2, 100, 101, 102, 103, 104, 105, 106, 107, 17]


def test_thousands_of_producers_are_put_in_the_same_order_some_at_a_time() -> None:
    rng, states, breaths = Random(1), ProducerStates(), [0]
    ids = list(dict.fromkeys(rng.choice([rng.randrange(4000), rng.randrange(1 << 62)]) for _ in range(9000)))
    for producer_id in ids:
        states.apply_data(producer_id, 0, 0, 0, 0, NOW_MS, False)

    def slot(producer_id: int) -> int:
        folded = (producer_id ^ (producer_id >> 32)) & 0xFFFFFFFF
        return (folded ^ (folded >> 16)) & 16383

    def breathe() -> None:
        breaths[0] += 1

    assert in_snapshot_order(states, breathe) == sorted(ids, key=slot)
    assert breaths[0] >= 16


def test_what_was_captured_stays_as_it_was_while_producers_go_on() -> None:
    states = ProducerStates()
    states.apply_data(1, 0, 4, 0, 4, NOW_MS, False)
    states.apply_data(2, 0, 4, 5, 9, NOW_MS, True)
    states.apply_data(3, 0, 4, 10, 14, NOW_MS, False)
    states.end_offset = 15
    captured = states.capture()
    states.apply_data(1, 0, 9, 15, 19, NOW_MS + 1, False)
    ended = states.apply_marker(2, 1, 7, True, 20, NOW_MS + 1)
    assert ended is not None
    states.complete(ended)
    states.forget(3)
    states.apply_data(4, 0, 4, 21, 25, NOW_MS + 1, False)
    states.add_older(1, [])
    one, two, three = captured.producers
    assert (captured.end_offset, len(captured)) == (15, 3)
    assert (one.last_offset, one.last_timestamp, len(one.batches)) == (4, NOW_MS, 1)
    assert (two.epoch, two.coordinator_epoch, two.txn_first_offset) == (0, -1, 5)
    assert three.last_offset == 14
    assert [producer.last_offset for producer in states.all()] == [19, -1, 25]
    assert in_snapshot_order(states) == [1, 2, 4]
