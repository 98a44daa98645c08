"""How transactions end: the decision, its repeats, time-outs, expiry, and what a coordinator that takes over does."""

import pytest

from mainstem.core.coordinator.effects import Outcome
from mainstem.core.txn import machine
from mainstem.core.txn.machine import Producer
from mainstem.core.txn.states import EPOCH_MAX, TV1, TV2
from mainstem.protocol.errors import ErrorCode
from tests.unit.core.txn.harness import A, B, Harness

NONE_V1 = Producer(-1, -1)
FENCED = ErrorCode.PRODUCER_FENCED
INVALID = ErrorCode.INVALID_TXN_STATE


LEVELS = (0, 1, 2)
"""Of the cluster's `transaction.version`: clients of version 1 work under each."""


def ended(version: int, commit: bool, level: int = TV2) -> tuple[Harness, Producer]:
    """A completed transaction, and who its client was."""
    h = Harness(server_version=level)
    who = h.given()
    h.add(who, A, B, version=version)
    assert isinstance(h.end(who, commit, version=version), Producer)
    assert h.state == ("CompleteCommit" if commit else "CompleteAbort")
    return h, who


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("commit", [True, False])
def test_version_one_keeps_the_epoch_and_answers_a_repeat(commit: bool, level: int) -> None:
    h, who = ended(TV1, commit, level)
    assert h.markers == [(who.producer_id, 0, commit, (A, B), TV1)]
    assert h.end(who, commit, version=TV1) == NONE_V1
    assert h.end(who, not commit, version=TV1) is INVALID
    assert h.end(Producer(who.producer_id, 1), commit, version=TV1) is FENCED
    assert len(h.markers) == 1


@pytest.mark.parametrize("commit", [True, False])
def test_version_two_raises_the_epoch_and_answers_a_repeat_of_the_epoch_before(commit: bool) -> None:
    h, who = ended(TV2, commit)
    after = Producer(who.producer_id, 1)
    assert h.markers == [(who.producer_id, 1, commit, (A, B), TV2)]
    assert h.end(who, commit) == after
    assert h.end(who, not commit) is INVALID
    assert h.end(after, True) is INVALID
    assert len(h.markers) == 1


def test_version_two_aborts_what_was_never_begun_and_raises_the_epoch() -> None:
    h = Harness()
    who = h.given()
    assert h.end(who, True) is INVALID
    after = h.end(who, False)
    assert after == Producer(who.producer_id, 1)
    assert h.end(who, False) == after, "a repeat"
    assert h.end(after, False) == Producer(who.producer_id, 2)
    assert all(not places for _, _, _, places, _ in h.markers)


def test_version_two_fences_the_repeat_of_an_empty_transaction() -> None:
    h = Harness()
    h.given()
    again = h.given()
    before = Producer(again.producer_id, again.epoch - 1)
    assert h.end(before, True) is FENCED
    assert h.end(before, False) is FENCED


def test_version_one_ends_nothing_that_was_never_begun() -> None:
    h = Harness()
    who = h.given()
    assert h.end(who, True, version=TV1) is INVALID
    assert h.end(who, False, version=TV1) is INVALID


def test_a_late_end_cannot_end_the_next_transaction() -> None:
    """The flaw that KIP-890 mends (T8): under version 2 it is answered as what it was."""
    h, who = ended(TV2, True)
    after = Producer(who.producer_id, 1)
    h.add(after, B)
    assert h.end(who, True) is FENCED
    assert h.end(who, False) is FENCED
    assert h.state == "Ongoing"


def test_nobody_may_name_a_higher_epoch() -> None:
    """KAFKA-9600."""
    h = Harness()
    who = h.given()
    h.add(who)
    for version in (TV1, TV2):
        assert h.end(Producer(who.producer_id, 1), version=version) is FENCED


@pytest.mark.parametrize("commit", [True, False])
def test_the_last_epoch_ends_into_a_new_producer_id_and_knows_its_repeat(commit: bool) -> None:
    h = Harness()
    who = h.given()
    h.set(producer_epoch=EPOCH_MAX - 1)
    last = Producer(who.producer_id, EPOCH_MAX - 1)
    h.add(last)
    h.holds_markers = True
    after = h.end(last, commit)
    assert isinstance(after, Producer)
    assert after.epoch == 0
    assert after.producer_id != who.producer_id
    assert h.init((after.producer_id, 0)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert h.add(after) is ErrorCode.CONCURRENT_TRANSACTIONS, "it has its next identity already (KAFKA-18575)"
    h.write_markers()
    assert h.markers == [(who.producer_id, EPOCH_MAX, commit, (A,), TV2)]
    assert h.end(last, commit) == after
    assert h.taken_over().end(last, commit) == after
    assert h.end(Producer(who.producer_id, 5), commit) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert h.given((last.producer_id, last.epoch)) == after
    assert h.add(after) is ErrorCode.NONE


def test_a_transaction_whose_time_is_up_is_aborted_and_its_client_fenced() -> None:
    """KAFKA-6119: without another epoch the client would go on."""
    for server_version in LEVELS:
        h = Harness(server_version=server_version)
        who = h.given(timeout_ms=5_000)
        h.add(who, version=TV1)
        h.pass_time(4_000)
        h.add(who, B, version=TV1)
        h.pass_time(1_000)
        assert h.state == "Ongoing"
        h.pass_time(15_001)
        assert h.state == "CompleteAbort"
        assert h.markers[0][1:4] == (1, False, (A, B))
        assert h.end(who, version=TV1) is FENCED
        assert h.add(who, version=TV1) is FENCED


def test_a_client_of_version_two_learns_of_a_time_out_as_of_another_end() -> None:
    h = Harness()
    who = h.given(timeout_ms=1_000)
    h.add(who)
    h.pass_time(20_000)
    assert h.end(who, True) is INVALID
    assert h.end(who, False) == Producer(who.producer_id, 1)


def test_a_time_out_at_the_last_epoch_rotates_the_producer_id() -> None:
    """KAFKA-20090: at the highest epoch there is still an end."""
    h = Harness()
    who = h.given(timeout_ms=1_000)
    h.set(producer_epoch=EPOCH_MAX - 1)
    h.add(Producer(who.producer_id, EPOCH_MAX - 1))
    h.pass_time(20_000)
    assert h.markers[0][:2] == (who.producer_id, EPOCH_MAX)
    assert h.txn.producer_epoch == 0
    assert h.txn.producer_id != who.producer_id


def test_a_transaction_at_the_highest_epoch_can_still_be_aborted() -> None:
    h = Harness()
    who = h.given()
    h.add(who)
    h.set(producer_epoch=EPOCH_MAX)
    assert h.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert h.markers[0][:2] == (who.producer_id, EPOCH_MAX)
    assert h.given().epoch == 1


def test_a_transaction_that_moved_on_is_not_aborted_for_the_one_that_was_late() -> None:
    """The order to abort may come late: by then its client has ended that one and begun the next."""
    h = Harness()
    who = h.given(timeout_ms=1_000)
    h.add(who)
    late = h.txn
    after = h.end(who)
    assert isinstance(after, Producer)
    h.now_ms += 20_000
    h.add(after)
    assert h.take(h.machine.abort_timed_out(None, late, h.now_ms)) is False
    assert h.state == "Ongoing"
    assert h.take(h.machine.abort_timed_out(None, h.txn, h.now_ms)) is True
    assert h.state == "CompleteAbort"


def test_ids_expire_when_nothing_is_under_way() -> None:
    h = Harness(expiration_ms=10_000, expiration_check_ms=1_000)
    who = h.given(tid="t", timeout_ms=900_000)
    h.add(who)
    h.given(tid="idle")
    h.pass_time(11_000)
    assert list(h.machine.store.all) == ["t"]
    h.end(who)
    h.pass_time(9_000)
    assert list(h.machine.store.all) == ["t"]
    h.pass_time(2_000)
    assert not h.machine.store.all
    assert h.end(who) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert not h.taken_over().machine.store.all


def test_many_ids_expire_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a long rest it may be all of them at once, and the broker has others to serve."""
    monkeypatch.setattr(machine, "EXPIRE_MAX", 10)
    h = Harness(expiration_ms=1_000, expiration_check_ms=100_000)
    for number in range(35):
        h.given(tid=f"t{number}")
    sizes: list[int] = []
    take = h.take

    def counted(outcome: Outcome) -> object:
        sizes.append(len(outcome.records))
        return take(outcome)

    monkeypatch.setattr(h, "take", counted)
    h.pass_time(100_000 + 3 * machine.EXPIRE_MORE_MS)
    assert [size for size in sizes if size] == [10, 10, 10, 5]
    assert not h.machine.store.all


def test_whoever_takes_over_goes_on_with_what_was_decided() -> None:
    h = Harness()
    h.holds_markers = True
    who = h.given()
    h.add(who, A, B)
    h.end(who)
    other = h.taken_over()
    assert other.markers == [(who.producer_id, 1, True, (A, B), TV2)]
    assert other.state == "CompleteCommit"
    assert other.end(who) == Producer(who.producer_id, 1)


@pytest.mark.parametrize("level", LEVELS)
def test_every_transaction_completes_at_every_level(level: int) -> None:
    """T12: ended by its client, by the next client, by a time-out, and by a coordinator that takes over."""
    h = Harness(server_version=level)
    who = h.given(timeout_ms=5_000)
    for commit in (True, False):
        h.add(who, B, A, version=TV1)
        assert h.end(who, commit, version=TV1) == NONE_V1
        assert h.state == ("CompleteCommit" if commit else "CompleteAbort")
    h.add(who, version=TV1)
    assert h.init(timeout_ms=5_000) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert h.state == "CompleteAbort"
    who = h.given(timeout_ms=5_000)
    h.add(who, version=TV1)
    h.pass_time(20_000)
    assert h.state == "CompleteAbort"
    who = h.given()
    h.add(who, version=TV1)
    h.holds_markers = True
    h.end(who, version=TV1)
    other = h.taken_over()
    assert (other.state, len(other.markers)) == ("CompleteCommit", 1)
    h.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    h.write_markers()
    h.fail_with = None
    h.pass_time(1_000)
    assert h.state == "CompleteCommit"


def test_what_was_decided_at_one_level_completes_at_another() -> None:
    for before, after in ((2, 0), (0, 2), (1, 0)):
        h = Harness(server_version=before)
        h.holds_markers = True
        who = h.given()
        h.add(who, version=TV1)
        h.end(who, version=TV1)
        h.machine.server_version = after
        h.write_markers()
        assert h.state == "CompleteCommit"


def test_version_two_needs_records_that_have_a_place_for_it() -> None:
    """At level 0 there is none: whatever would be written is refused, the transaction stays as it is."""
    h = Harness(server_version=0)
    who = h.given()
    assert h.add(who) is h.end(who, False) is ErrorCode.UNSUPPORTED_VERSION
    assert h.state == "Empty"
    h.add(who, A, version=TV1)
    assert h.add(who, A) is ErrorCode.NONE, "it is there already"
    assert h.add(who, B) is h.end(who) is ErrorCode.UNSUPPORTED_VERSION
    assert h.end(who, version=TV1) == NONE_V1
    assert h.state == "CompleteCommit"


def test_what_version_two_decided_completes_after_a_downgrade() -> None:
    h = Harness()
    h.holds_markers = True
    who = h.given()
    h.add(who)
    after = h.end(who)
    h.machine.server_version = 0
    h.write_markers()
    assert h.state == "CompleteCommit"
    assert isinstance(after, Producer)
    assert h.add(after, version=TV1) is ErrorCode.NONE
    h.holds_markers = False
    assert h.end(after, version=TV1) == NONE_V1
    h.machine.server_version = 2
    h.add(after)
    h.machine.server_version = 0
    assert h.end(after, False, version=TV1) == NONE_V1
    assert h.state == "CompleteAbort"


def test_an_end_that_could_not_be_written_down_is_not_an_end() -> None:
    h = Harness()
    who = h.given()
    h.add(who)
    h.fail_with = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert h.end(who) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (h.state, h.markers) == ("Ongoing", [])
    h.fail_with = None
    assert h.end(who, False) == Producer(who.producer_id, 1)


def test_a_completion_that_cannot_be_written_is_tried_again() -> None:
    """KAFKA-9749: it was left in PrepareCommit for good."""
    h = Harness()
    h.holds_markers = True
    who = h.given()
    h.add(who)
    h.end(who)
    h.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    h.write_markers()
    assert h.state == "PrepareCommit"
    h.pass_time(1_000)
    h.fail_with = None
    h.pass_time(1_000)
    assert h.state == "CompleteCommit"


def test_markers_that_were_written_for_an_older_end_complete_nothing() -> None:
    """KAFKA-16352, 10080: a completion that came twice took the next transaction's place."""
    h = Harness()
    h.holds_markers = True
    who = h.given()
    h.add(who)
    after = h.end(who)
    late = h.pending[0]
    h.write_markers()
    assert isinstance(after, Producer)
    h.add(after)
    h.take(h.machine.markers_written(late, h.now_ms))
    assert h.state == "Ongoing"
    h.end(after)
    h.take(h.machine.markers_written(late, h.now_ms))
    assert h.state == "PrepareCommit"
