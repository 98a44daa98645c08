"""Who gets which producer id and epoch, and who is fenced."""

import pytest

from mainstem.core.txn.machine import Producer
from mainstem.core.txn.states import EPOCH_MAX, TV1, TV2
from mainstem.protocol.errors import ErrorCode
from tests.unit.core.txn.harness import A, B, Harness

FENCED = ErrorCode.PRODUCER_FENCED
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_new_id_gets_a_fresh_producer_id_and_each_later_client_the_next_epoch() -> None:
    h = Harness()
    first = h.given()
    assert first.epoch == 0
    assert h.given() == Producer(first.producer_id, 1)
    assert h.given(tid="other").producer_id != first.producer_id
    assert h.add(first) is FENCED


def test_a_retry_of_init_producer_id_gets_the_epoch_it_was_given() -> None:
    h = Harness()
    first = h.given()
    second = h.given((first.producer_id, 0))
    assert h.given((first.producer_id, 0)) == second == Producer(first.producer_id, 1)
    assert h.given((first.producer_id, 1)).epoch == 2
    assert h.init((first.producer_id, 0)) is FENCED


def test_another_client_ends_the_retries_of_the_one_before() -> None:
    h = Harness()
    first = h.given()
    h.given((first.producer_id, 0))
    h.given()
    assert h.init((first.producer_id, 0)) is FENCED
    assert h.init((first.producer_id + 1, 0)) is FENCED


def test_a_take_over_that_could_not_be_written_leaves_the_retries_of_the_client_before() -> None:
    h = Harness()
    first = h.given()
    second = h.given((first.producer_id, 0))
    h.fail_with = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert h.init() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    h.fail_with = None
    assert h.given((first.producer_id, 0)) == second
    h.given()
    assert h.init((first.producer_id, 0)) is FENCED


def test_nothing_is_remembered_of_an_id_that_expired() -> None:
    h = Harness(expiration_ms=10_000, expiration_check_ms=1_000)
    first = h.given()
    h.given((first.producer_id, 0))
    assert h.machine.store.last_epoch("t") == 0
    h.pass_time(20_000)
    assert not h.machine.store.all
    assert h.machine.store.last_epoch("t") == -1
    assert h.given().epoch == 0


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_past_the_limit_is_refused(timeout_ms: int) -> None:
    assert Harness().init(timeout_ms=timeout_ms) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert Harness().given(timeout_ms=900_000).epoch == 0


def test_an_empty_transactional_id_is_an_invalid_request() -> None:
    h = Harness()
    assert h.init(tid="") is ErrorCode.INVALID_REQUEST
    assert h.add(Producer(1, 0), tid="") is ErrorCode.INVALID_REQUEST
    assert h.end(Producer(1, 0), tid="") is ErrorCode.INVALID_REQUEST


def test_an_unknown_id_has_no_producer() -> None:
    h = Harness()
    assert h.add(Producer(1, 0)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert h.verify(Producer(1, 0), A) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert h.end(Producer(1, 0)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_init_producer_id_aborts_what_is_open_and_is_to_be_tried_again() -> None:
    h = Harness()
    old = h.given()
    h.add(old)
    assert h.init() is CONCURRENT
    assert h.markers == [(old.producer_id, 1, False, (A,), TV2)]
    new = h.given()
    assert new == Producer(old.producer_id, 2)
    assert h.end(old) is FENCED
    assert h.add(old) is FENCED


def test_nothing_is_fenced_by_a_fence_that_could_not_be_written() -> None:
    """KAFKA-9666: each failed attempt raised the epoch, until none was left."""
    h = Harness()
    old = h.given()
    h.add(old)
    h.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    for _ in range(3):
        assert h.init() is ErrorCode.NOT_ENOUGH_REPLICAS
    h.fail_with = None
    assert (h.state, h.txn.producer_epoch) == ("Ongoing", 0)
    assert isinstance(h.end(old), Producer)


def test_before_version_two_a_fence_raises_the_epoch_and_the_end_does_not() -> None:
    h = Harness(server_version=1)
    old = h.given()
    h.add(old, version=TV1)
    assert h.init() is CONCURRENT
    assert h.markers == [(old.producer_id, 1, False, (A,), TV1)]
    assert h.given() == Producer(old.producer_id, 2)


def test_when_epochs_are_used_up_the_producer_id_is_another() -> None:
    h = Harness()
    first = h.given()
    h.set(producer_epoch=EPOCH_MAX - 2)
    last = h.given()
    assert last == Producer(first.producer_id, EPOCH_MAX - 1)
    rotated = h.given((last.producer_id, last.epoch))
    assert rotated.epoch == 0
    assert rotated.producer_id != first.producer_id
    assert h.given((last.producer_id, last.epoch)) == rotated, "a retry of the same"
    assert h.add(last) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_while_a_transaction_completes_its_id_is_busy() -> None:
    h = Harness()
    h.holds_markers = True
    who = h.given()
    h.add(who)
    after = h.end(who)
    assert isinstance(after, Producer)
    assert h.init() is CONCURRENT
    assert h.init((after.producer_id, after.epoch)) is CONCURRENT
    assert h.add(after, B) is CONCURRENT
    assert h.verify(after, A) is CONCURRENT
    for commit in (True, False):
        assert h.end(who, commit) is CONCURRENT
        assert h.end(after, commit) is CONCURRENT
    h.write_markers()
    assert h.add(after, B) is ErrorCode.NONE


def test_verification_knows_the_partitions_of_the_open_transaction() -> None:
    h = Harness()
    who = h.given()
    h.add(who, A, version=TV1)
    assert h.verify(who, A, B) == [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE]
    assert h.verify(Producer(who.producer_id, 7), A) is FENCED
    h.end(who, version=TV1)
    assert h.verify(who, A) == [ErrorCode.TRANSACTION_ABORTABLE]


def test_adding_a_partition_again_writes_nothing() -> None:
    h = Harness()
    who = h.given()
    h.add(who, A, B)
    before = len(h.log)
    assert h.add(who, B) is ErrorCode.NONE
    assert len(h.log) == before
    assert h.txn.partitions == (A, B)


def test_a_list_costs_what_is_listed_and_what_is_asked_for_not_their_product() -> None:
    """Whoever names many producers must not hold up everybody else."""
    compared = 0

    class Id(int):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return super().__eq__(other)

        __hash__ = int.__hash__

    h = Harness()
    for number in range(100):
        h.given(tid=f"t{number}")
    wanted = [Id(number) for number in (1007, *range(5000, 5200))]
    found = h.take(h.machine.list_transactions(None, [], wanted, -1, None, h.now_ms))
    assert isinstance(found, list)
    assert [txn.transactional_id for txn in found] == ["t7"]
    assert compared < 1000
