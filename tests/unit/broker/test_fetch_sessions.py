"""Fetch sessions: how many there are, and how much they remember."""

from random import Random

import pytest

from mainstem.broker.fetch_sessions import NO_SESSION, PARTITIONS_MAX, FetchSession, FetchSessions
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from mainstem.protocol.primitives import ZERO_UUID


class Story:
    def __init__(self, slots: int = 1000) -> None:
        self.now_ms = 0
        self.sessions = FetchSessions(slots, Random(1), lambda: self.now_ms)

    def begin(self, count: int) -> FetchSession | None:
        return self.sessions.begin(asked(count, epoch=0), False)


def asked(count: int, session_id: int = 0, epoch: int = 1, first: int = 0) -> FetchRequest:
    partitions = [FetchPartition(index, 0, 1000) for index in range(first, first + count)]
    request = FetchRequest(500, 1, 1 << 20, [FetchTopic("t", ZERO_UUID, partitions)])
    request.session_id = session_id
    request.session_epoch = epoch
    return request


def test_sessions_remember_so_many_partitions_and_no_more() -> None:
    story = Story()
    begun = []
    while (session := story.begin(100_000)) is not None:
        begun.append(session)
    assert len(begun) == PARTITIONS_MAX // 100_000
    assert story.sessions.partition_count == PARTITIONS_MAX
    # One that grows past the bound is told of what it asked for, and ends.
    grown = story.sessions.enter(asked(10, begun[0].session_id, first=200_000), False)
    assert grown is begun[0]
    assert grown.session_id == NO_SESSION
    assert story.sessions.partition_count == PARTITIONS_MAX - 100_000
    # One that goes on as it is stays, and there is room again for another.
    assert story.sessions.enter(asked(0, begun[1].session_id), False) is begun[1]
    assert begun[1].session_id != NO_SESSION
    assert story.begin(10) is not None
    # What nobody has used for long gives way.
    story.now_ms = 200_000
    assert story.begin(100_000) is not None
    assert story.sessions.partition_count <= PARTITIONS_MAX


def test_a_session_that_ends_gives_its_place_back() -> None:
    story = Story(slots=1)
    first = story.begin(5)
    assert first is not None
    assert story.begin(5) is None
    assert story.sessions.enter(asked(0, first.session_id, epoch=-1), False) is None
    assert (len(story.sessions), story.sessions.partition_count) == (0, 0)
    second = story.begin(3)
    assert second is not None
    assert story.begin(4) is not None, "a larger one takes the place of a smaller one"
    assert (len(story.sessions), story.sessions.partition_count) == (1, 4)
    with pytest.raises(RemoteError) as gone:
        story.sessions.enter(asked(0, second.session_id), False)
    assert gone.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
