"""Two-phase commit by the client (KIP-939): a prepared transaction outlives its client and every time-out."""

import pytest

from mainstem.core.txn.machine import Producer
from mainstem.core.txn.states import EPOCH_MAX, TV1, TV2
from mainstem.protocol.errors import ErrorCode
from tests.unit.core.txn.harness import A, B, Harness

FENCED = ErrorCode.PRODUCER_FENCED


def prepared() -> tuple[Harness, Producer]:
    h = Harness(two_phase_commit=True)
    who = h.given(two_phase=True)
    h.add(who)
    return h, who


def test_it_is_refused_where_it_is_not_enabled() -> None:
    h = Harness()
    assert h.init(two_phase=True) is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert h.init(keep=True) is ErrorCode.UNSUPPORTED_VERSION


def test_nothing_is_kept_where_records_have_no_place_for_two_identities() -> None:
    h = Harness(server_version=0, two_phase_commit=True)
    who = h.given(two_phase=True)
    h.add(who, version=TV1)
    assert h.init(two_phase=True, keep=True) is ErrorCode.UNSUPPORTED_VERSION
    assert h.end(who, version=TV1) == Producer(-1, -1)


def test_its_transaction_has_no_time_out() -> None:
    h, _ = prepared()
    h.pass_time(365 * 24 * 3_600_000)
    assert h.state == "Ongoing"
    other = Harness(two_phase_commit=True)
    other.given(keep=True, timeout_ms=1_000)
    assert other.txn.timeout_ms == 1_000, "only Enable2Pc takes the time-out away"


def test_who_comes_back_for_a_two_phase_commit_has_no_time_out_whoever_began() -> None:
    """What is prepared from now on must outlive everything, and so must what was found."""
    h = Harness(two_phase_commit=True)
    h.add(h.given(timeout_ms=60_000))
    back = h.given(two_phase=True, keep=True)
    h.pass_time(120_000)
    assert h.state == "Ongoing"
    after = h.end(back)
    assert isinstance(after, Producer)
    h.add(after)
    h.pass_time(120_000)
    assert h.state == "Ongoing"


def test_who_comes_back_without_two_phase_commit_has_a_time_out_from_then_on() -> None:
    """T12: nobody else would ever end what such a client leaves open."""
    h, _ = prepared()
    h.pass_time(600_000)
    h.given(timeout_ms=60_000, keep=True)
    h.pass_time(59_000)
    assert h.state == "Ongoing", "it is long past its begin, but the client has just come back"
    back = h.given(timeout_ms=60_000, keep=True)
    h.pass_time(59_000)
    after = h.end(back)
    assert isinstance(after, Producer), "the time runs anew for each who comes back"
    h.add(after)
    h.pass_time(75_000)
    assert h.state == "CompleteAbort", "and the next transaction has it, too"


def test_a_transaction_that_was_kept_and_left_again_is_aborted_in_time() -> None:
    h, _ = prepared()
    back = h.given(timeout_ms=60_000, keep=True)
    h.pass_time(75_000)
    assert (h.state, h.markers[0][2]) == ("CompleteAbort", False)
    assert h.end(back) is ErrorCode.INVALID_TXN_STATE


def test_who_comes_back_is_told_of_the_transaction_and_may_commit_it() -> None:
    h, who = prepared()
    back = h.given(two_phase=True, keep=True)
    assert back == Producer(who.producer_id, 1, who.producer_id, 0)
    assert h.end(who) is FENCED
    assert h.add(back, B) is ErrorCode.INVALID_TXN_STATE
    assert h.add(who, B) is FENCED
    after = h.end(back)
    assert after == Producer(who.producer_id, 2)
    assert h.markers == [(who.producer_id, 1, True, (A,), TV2)]
    assert h.end(back) == after, "a repeat"
    assert h.add(after) is ErrorCode.NONE


def test_coming_back_again_fences_whoever_came_back_before() -> None:
    h, who = prepared()
    first = h.given(two_phase=True, keep=True)
    second = h.given(two_phase=True, keep=True)
    assert second == Producer(who.producer_id, 2, who.producer_id, 0)
    assert h.end(first) is FENCED
    assert h.init((first.producer_id, first.epoch), two_phase=True, keep=True) is FENCED
    assert h.end(second, False) == Producer(who.producer_id, 3)
    assert h.markers[0][2] is False


def test_a_new_coordinator_knows_both_identities() -> None:
    h, who = prepared()
    back = h.given(two_phase=True, keep=True)
    other = h.taken_over()
    assert other.end(who) is FENCED
    assert other.end(back) == Producer(who.producer_id, 2)


@pytest.mark.parametrize("commit", [True, False])
def test_who_came_back_is_known_after_a_downgrade(commit: bool) -> None:
    """T4: the record of level 0 has no place for a second identity, and the first would be the client's again."""
    h, who = prepared()
    back = h.given(two_phase=True, keep=True)
    h.machine.server_version = 0
    h.holds_markers = True
    assert h.end(back, commit, version=TV1) == Producer(-1, -1)
    h = h.taken_over()
    assert h.markers == [(who.producer_id, who.epoch, commit, (A,), TV1)]
    assert h.add(who, version=TV1) is FENCED
    assert h.add(back, version=TV1) is ErrorCode.NONE


def test_a_time_out_after_a_downgrade_fences_who_came_back() -> None:
    h, who = prepared()
    back = h.given(timeout_ms=60_000, keep=True)
    h.machine.server_version = 0
    h.pass_time(120_000)
    assert h.state == "CompleteAbort"
    assert h.add(who, version=TV1) is h.add(back, version=TV1) is FENCED
    again = h.given()
    assert again.epoch > back.epoch


def test_who_came_back_adds_nothing_and_is_told_so_by_leaders_too() -> None:
    h, _ = prepared()
    back = h.given(two_phase=True, keep=True)
    assert h.verify(back, A) is h.add(back, A) is ErrorCode.INVALID_TXN_STATE


def test_without_keeping_it_is_aborted() -> None:
    h, who = prepared()
    back = h.given(two_phase=True, keep=True)
    assert h.init(two_phase=True) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert h.state == "CompleteAbort"
    assert h.end(back, True) is ErrorCode.INVALID_TXN_STATE
    assert h.given(two_phase=True) == Producer(who.producer_id, 3)


def test_keeping_what_is_not_there_is_an_ordinary_start() -> None:
    h = Harness(two_phase_commit=True)
    first = h.given(two_phase=True, keep=True)
    assert (first.epoch, first.ongoing_producer_id, first.ongoing_epoch) == (0, -1, -1)
    assert h.given(two_phase=True, keep=True).epoch == 1


def test_epochs_that_are_used_up_by_coming_back_rotate_the_producer_id() -> None:
    h, who = prepared()
    h.given(two_phase=True, keep=True)
    h.set(next_producer_epoch=EPOCH_MAX - 1)
    back = h.given(two_phase=True, keep=True)
    assert (back.epoch, back.ongoing_producer_id, back.ongoing_epoch) == (0, who.producer_id, 0)
    assert back.producer_id != who.producer_id
    assert h.end(back) == Producer(back.producer_id, 1)
    assert h.markers == [(who.producer_id, 1, True, (A,), TV2)]


def test_the_last_epoch_of_who_came_back_ends_into_a_new_producer_id() -> None:
    h, who = prepared()
    h.given(two_phase=True, keep=True)
    h.set(next_producer_epoch=EPOCH_MAX - 1)
    last = Producer(who.producer_id, EPOCH_MAX - 1)
    after = h.end(last)
    assert isinstance(after, Producer)
    assert after.epoch == 0
    assert after.producer_id != who.producer_id
    assert h.end(last) == after


def test_the_last_epoch_of_who_came_back_under_another_producer_id_knows_its_repeat() -> None:
    h, who = prepared()
    h.given(two_phase=True, keep=True)
    h.set(next_producer_id=77, next_producer_epoch=EPOCH_MAX - 1)
    last = Producer(77, EPOCH_MAX - 1)
    after = h.end(last)
    assert isinstance(after, Producer)
    assert after.epoch == 0
    assert after.producer_id not in (who.producer_id, last.producer_id)
    assert h.end(last) == after
    assert h.taken_over().end(last) == after
