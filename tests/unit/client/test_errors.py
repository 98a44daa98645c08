import pickle

import pytest

from mainstem.client import errors
from mainstem.client.errors import KafkaError, error_for, raise_for
from mainstem.protocol.errors import ErrorCode


@pytest.mark.parametrize("code", [code for code in ErrorCode if code != ErrorCode.NONE])
def test_every_code_has_an_exception_of_its_own_that_is_a_name_of_the_module(code: ErrorCode) -> None:
    error = error_for(code)
    assert error.code is code
    assert error.retriable is code.retriable
    assert getattr(errors, type(error).__name__) is type(error)


def test_the_text_says_where_it_was_and_whether_a_retry_can_help() -> None:
    error = error_for(6, "moved", broker="1 at h:9092", topic="orders", partition=3)
    assert isinstance(error, errors.NotLeaderOrFollowerError)
    assert str(error) == (
        "NOT_LEADER_OR_FOLLOWER: moved (broker 1 at h:9092, topic orders, partition 3); a retry can help"
    )
    assert str(error_for(37)) == "INVALID_PARTITIONS; a retry cannot help"


def test_a_code_of_a_later_kafka_is_an_unknown_server_error_that_names_it() -> None:
    error = error_for(9999, topic="orders")
    assert isinstance(error, errors.UnknownServerError)
    assert "9999" in str(error)


def test_no_error_raises_nothing() -> None:
    raise_for(0)
    with pytest.raises(errors.TopicExistsError):
        raise_for(36)


def test_errors_of_the_client_are_also_pythons_own() -> None:
    assert issubclass(errors.KafkaTimeoutError, TimeoutError)
    assert issubclass(errors.DisconnectedError, ConnectionError)
    assert issubclass(errors.InvalidOptionError, ValueError)
    assert errors.DisconnectedError("gone").is_stale_metadata


def test_an_error_survives_pickling() -> None:
    error = error_for(3, "who?", broker="1", topic="t", partition=0)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.partition) == (type(error), str(error), 0)
    assert isinstance(copy, KafkaError)
