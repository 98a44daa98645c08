"""A fetch session names what changed, and starts anew after any doubt (KIP-227)."""

from mainstem.client.fetch_session import FetchSession, Wanted
from mainstem.client.types import TopicPartition
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.fetch import FetchTopic, ForgottenTopic

ID = b"i" * 16
OTHER_ID = b"o" * 16


def tp(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def want(offset: int, topic_id: bytes = ID) -> Wanted:
    return Wanted(offset, 0, 1000, topic_id)


def named(topics: list[FetchTopic]) -> dict[int, int]:
    return {int(each.partition): int(each.fetch_offset) for topic in topics for each in topic.partitions}


def forgotten(topics: list[ForgottenTopic]) -> list[tuple[bytes, int]]:
    return [(topic.topic_id, number) for topic in topics for number in topic.partitions]


def established() -> FetchSession:
    session = FetchSession()
    session.next_request({tp(0): want(0), tp(1): want(0)}, True)
    assert session.answered(7, 0)
    return session


def test_the_first_request_names_everything() -> None:
    session = FetchSession()
    changed, gone = session.next_request({tp(0): want(5), tp(1): want(6)}, True)
    assert (named(changed), gone) == ({0: 5, 1: 6}, [])
    assert (session.session_id, session.epoch) == (0, 0)
    assert session.answered(7, 0)
    assert (session.session_id, session.epoch) == (7, 1)


def test_later_requests_name_what_changed_and_what_is_to_be_forgotten() -> None:
    session = established()
    changed, gone = session.next_request({tp(0): want(0), tp(1): want(9), tp(2): want(1)}, True)
    assert (named(changed), gone) == ({1: 9, 2: 1}, [])
    assert session.answered(7, 0)
    assert session.epoch == 2
    changed, gone = session.next_request({tp(1): want(9)}, True)
    assert (named(changed), forgotten(gone)) == ({}, [(ID, 0), (ID, 2)])


def test_a_topic_that_was_made_anew_takes_the_place_of_the_old_one() -> None:
    session = established()
    changed, gone = session.next_request({tp(0): want(0, OTHER_ID), tp(1): want(0)}, True)
    assert (named(changed), forgotten(gone)) == ({0: 0}, [(ID, 0)])


def test_a_session_that_the_broker_does_not_know_starts_anew() -> None:
    session = established()
    session.next_request({tp(0): want(1)}, True)
    assert not session.answered(0, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    changed, _ = session.next_request({tp(0): want(1), tp(1): want(0)}, True)
    assert named(changed) == {0: 1, 1: 0}
    assert (session.session_id, session.epoch) == (0, 0)


def test_a_session_out_of_step_is_replaced_by_name() -> None:
    session = established()
    session.next_request({tp(0): want(1)}, True)
    assert not session.answered(0, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    session.next_request({tp(0): want(1)}, True)
    assert (session.session_id, session.epoch) == (7, 0)


def test_a_broker_without_room_for_a_session_is_sent_full_requests() -> None:
    session = FetchSession()
    for _ in range(3):
        changed, _ = session.next_request({tp(0): want(1), tp(1): want(2)}, True)
        assert named(changed) == {0: 1, 1: 2}
        assert session.answered(0, 0)


def test_a_session_does_not_change_from_ids_to_names() -> None:
    session = established()
    changed, gone = session.next_request({tp(0): want(0), tp(1): want(0)}, False)
    assert (named(changed), gone) == ({0: 0, 1: 0}, [])
    assert (session.session_id, session.epoch) == (0, 0)
