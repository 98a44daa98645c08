"""What a consumer makes of answers about the offsets of its group."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from mainstem.client.commits import Commits, Coordinator, GroupMetadata
from mainstem.client.errors import CoordinatorNotAvailableError
from mainstem.client.types import OffsetAndMetadata, TopicPartition
from mainstem.protocol.messages.k08_offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from mainstem.protocol.messages.k09_offset_fetch import OffsetFetchResponse
from mainstem.protocol.schema import Message

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
OFFSETS = {FIRST: OffsetAndMetadata(3), SECOND: OffsetAndMetadata(4)}


def commits_that_are_told(answer: Message) -> Commits:
    async def ask(request: Message, kind: type[Message], *, version: int) -> Message:
        return answer

    connection: Any = SimpleNamespace(ask=ask, name="broker:9092 (node 1)", version_for=lambda key, last: last)

    async def once(attempt: Callable[[Any], Awaitable[Any]], *rest: object) -> Any:
        return await attempt(connection)

    forgetful: Any = SimpleNamespace(forget_coordinator=lambda kind, key: None)
    coordinator: Any = Coordinator(forgetful, forgetful, "g")
    coordinator.retrying = once
    return Commits(coordinator, lambda: GroupMetadata("g"))


def test_a_commit_that_the_answer_says_nothing_of_is_tried_again() -> None:
    told = OffsetCommitResponsePartition(partition_index=0, error_code=0)
    some = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[told])])
    for answer, missing in ((OffsetCommitResponse(topics=[]), 0), (some, 1)):
        with pytest.raises(CoordinatorNotAvailableError, match="the answer says nothing of it") as caught:
            asyncio.run(commits_that_are_told(answer).commit(OFFSETS, 1000))
        assert caught.value.retriable
        assert (caught.value.topic, caught.value.partition) == ("t", missing)


def test_committed_offsets_that_the_answer_says_nothing_of_are_asked_for_again() -> None:
    with pytest.raises(CoordinatorNotAvailableError, match="the answer says nothing of it") as caught:
        asyncio.run(commits_that_are_told(OffsetFetchResponse(groups=[])).committed([FIRST], 1000))
    assert caught.value.retriable
