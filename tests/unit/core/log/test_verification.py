"""What lets the first batch of a transaction in, and what takes that right away (KIP-890)."""

import pytest

from mainstem.core.log.verification import NO_GUARD, Verifications
from mainstem.protocol.errors import ErrorCode, RemoteError

P = 7


def code_of(check: object, *arguments: object) -> ErrorCode:
    assert callable(check)
    with pytest.raises(RemoteError) as raised:
        check(*arguments)
    return raised.value.code


def test_a_batch_without_a_guard_or_with_another_is_refused() -> None:
    entries = Verifications()
    assert code_of(entries.check, P, NO_GUARD) is ErrorCode.INVALID_TXN_STATE
    guard = entries.begin(P, 0, 0, False, 0)
    entries.check(P, guard)
    assert code_of(entries.check, P, NO_GUARD) is ErrorCode.INVALID_TXN_STATE
    assert code_of(entries.check, P, guard + 1) is ErrorCode.INVALID_TXN_STATE
    assert code_of(entries.check, P + 1, guard) is ErrorCode.INVALID_TXN_STATE


def test_a_marker_takes_the_right_away_for_good() -> None:
    """KAFKA-14884: an entry that is made anew is another one."""
    entries = Verifications()
    guard = entries.begin(P, 0, 0, False, 0)
    entries.appended(P, 0, is_marker=True)
    assert code_of(entries.check, P, guard) is ErrorCode.INVALID_TXN_STATE
    again = entries.begin(P, 0, 0, False, 0)
    assert again != guard
    assert code_of(entries.check, P, guard) is ErrorCode.INVALID_TXN_STATE


def test_the_marker_of_the_last_transaction_leaves_the_next_of_version_two() -> None:
    """KAFKA-18575."""
    entries = Verifications()
    guard = entries.begin(P, 0, 4, True, 0)
    entries.appended(P, 4, is_marker=True)
    entries.check(P, guard)
    entries.appended(P, 5, is_marker=True)
    assert code_of(entries.check, P, guard) is ErrorCode.INVALID_TXN_STATE


def test_requests_that_wait_together_share_a_guard_and_the_lowest_sequence_is_first() -> None:
    """KAFKA-14904 and its like: the second batch may not begin the transaction."""
    entries = Verifications()
    guard = entries.begin(P, 5, 0, False, 0)
    assert entries.begin(P, 3, 0, False, 0) == guard
    assert code_of(entries.check_sequence, P, 5, True) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    entries.check_sequence(P, 3, True)
    entries.begin(P, 9, 1, False, 0)
    entries.check_sequence(P, 9, True)


def test_version_two_begins_at_sequence_zero_where_the_producer_is_not_known() -> None:
    entries = Verifications()
    entries.begin(P, 2, 0, True, 0)
    assert code_of(entries.check_sequence, P, 2, False) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    entries.check_sequence(P, 2, True)


def test_entries_of_producers_that_never_came_back_expire() -> None:
    entries = Verifications()
    entries.begin(P, 0, 0, False, 1000)
    entries.expire(1999, 1000)
    assert len(entries) == 1
    entries.expire(2000, 1000)
    assert len(entries) == 0


def test_nobody_is_fenced_where_no_transaction_was_taken_over() -> None:
    """Also not who names a producer without an epoch, as Kafka takes it."""
    entries = Verifications()
    entries.check_fence(P, -1)
    entries.fence(P, 3)
    entries.check_fence(P + 1, -1)
    assert code_of(entries.check_fence, P, -1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert code_of(entries.check_fence, P, 3) is ErrorCode.INVALID_PRODUCER_EPOCH
    entries.check_fence(P, 4)
