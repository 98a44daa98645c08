"""Bugs that transactions had elsewhere, each as one case that must not come back. Those that need a whole node are in
`tests/scenarios/test_transactions.py`, those of the coordinator alone in `tests/unit/core/txn`."""

import pytest

from mainstem.core.log.producers import EPOCH_MAX, Origin, ProducerStates
from mainstem.protocol.errors import ErrorCode, RemoteError

P = 3


def refused(states: ProducerStates, epoch: int, coordinator_epoch: int, version: int) -> ErrorCode:
    try:
        states.check_marker(P, epoch, coordinator_epoch, version, Origin.COORDINATOR)
    except RemoteError as error:
        return error.code
    return ErrorCode.NONE


def open_transaction(epoch: int) -> ProducerStates:
    states = ProducerStates()
    states.apply_data(P, epoch, 0, 0, 0, 100, True)
    return states


def test_kafka_9144_a_marker_keeps_its_producer_from_expiring_and_an_older_coordinator_out() -> None:
    states = open_transaction(0)
    ended = states.apply_marker(P, 0, 5, False, 1, 5_000)
    assert ended is not None
    states.complete(ended)
    assert states.expire(5_999, 1_000) == []
    assert refused(states, 0, 4, 0) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert states.expire(6_000, 1_000) == [P]


def test_kafka_9144_a_producer_with_an_open_transaction_never_expires() -> None:
    assert open_transaction(0).expire(1 << 40, 1) == []


def test_kafka_19999_a_marker_that_is_written_again_is_taken_and_a_late_one_is_not() -> None:
    states = open_transaction(4)
    assert refused(states, 4, 0, 2) is ErrorCode.INVALID_PRODUCER_EPOCH, "of the transaction before"
    assert refused(states, 5, 0, 2) is ErrorCode.NONE
    ended = states.apply_marker(P, 5, 0, False, 1, 100)
    assert ended is not None
    states.complete(ended)
    assert refused(states, 5, 0, 2) is ErrorCode.NONE, "the same once more"
    states.apply_data(P, 5, 0, 2, 2, 100, True)
    assert refused(states, 5, 0, 2) is ErrorCode.INVALID_PRODUCER_EPOCH, "and late, when the next has begun"


def test_kafka_20090_a_transaction_at_the_highest_epoch_can_be_ended() -> None:
    assert refused(open_transaction(EPOCH_MAX), EPOCH_MAX, 0, 2) is ErrorCode.NONE


@pytest.mark.parametrize("version", [0, 2])
def test_a_marker_of_a_lower_epoch_is_refused(version: int) -> None:
    assert refused(open_transaction(4), 3, 0, version) is ErrorCode.INVALID_PRODUCER_EPOCH
