import pytest

from mainstem.cli import failures
from mainstem.client import errors


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (failures.UserError("wrong"), 2, "wrong"),
        (FileNotFoundError(2, "No such file", "/x"), 4, "there is no /x"),
        (PermissionError(13, "Permission denied", "/x"), 1, "/x: Permission denied"),
        (errors.InvalidOptionError("acks is 7"), 2, "acks is 7"),
        (errors.UnknownTopicOrPartitionError(topic="a"), 4, "there is no topic a"),
        (errors.UnknownTopicOrPartitionError(topic="a", partition=3), 4, "topic a has no partition 3"),
        (errors.GroupIdNotFoundError("group g"), 4, "there is no group g"),
        (errors.GroupIdNotFoundError("Group g not found."), 4, "Group g not found"),
        (errors.GroupNotEmptyError("group g"), 1, "group g has members; stop its consumers first"),
        (errors.TransactionalIdNotFoundError("transactional id t"), 4, "there is no transactional id t"),
        (errors.KafkaTimeoutError("late"), 3, "late; a retry can help"),
        (errors.DisconnectedError("gone"), 3, "NETWORK_EXCEPTION: gone; a retry can help"),
        (errors.PolicyViolationError("no", topic="a"), 1, "POLICY_VIOLATION: no (topic a); a retry cannot help"),
        (RuntimeError("what"), 1, "this is a bug: RuntimeError: what; MAINSTEM_DEBUG=1 shows where"),
    ],
)
def test_an_error_has_a_code_and_a_sentence(error: Exception, code: int, sentence: str) -> None:
    found = failures.describe(error)
    assert found[:2] == (code, sentence)


def test_a_broker_that_is_not_there_comes_with_a_way_out() -> None:
    code, sentence, more = failures.describe(errors.NoBrokersAvailableError("no broker answers; tried x:1"))
    assert code == 3
    assert "`mainstem up` starts one here" in sentence
    assert more == {"error": "NoBrokersAvailableError", "retriable": True}


def test_others_that_failed_are_told_too() -> None:
    error = errors.TopicExistsError(topic="a")
    error.add_note("also: b failed")
    assert failures.describe(error)[1].splitlines()[1] == "b failed"
    both = failures.together([errors.TopicExistsError(topic="a"), errors.UnknownTopicOrPartitionError(topic="b")])
    assert both.code == 4
    assert len(str(both).splitlines()) == 2
