"""Topics that are created for whoever needs them."""

import asyncio
import gc
from typing import Any

import pytest

from mainstem.broker.topic_creation import TopicCreation
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k19_create_topics import CreatableTopicResult, CreateTopicsResponse
from mainstem.protocol.schema import Message

from .fake_broker import FakeBroker, FakeController, run


class SlowController(FakeController):
    def __init__(self) -> None:
        super().__init__()
        self.may_answer = asyncio.Event()

    async def send(self, message: Message, version: int) -> Message:
        await self.may_answer.wait()
        return await super().send(message, version)


def test_a_creation_that_fails_is_no_surprise_when_who_asked_for_it_is_gone() -> None:
    """The loop reported an error that nobody had looked at, with a traceback in the broker's log."""

    async def story(broker: FakeBroker) -> None:
        reported: list[dict[str, Any]] = []
        broker.loop.set_exception_handler(lambda loop, context: reported.append(context))
        broker.controller = controller = SlowController()
        controller.answer = lambda request: RemoteError(ErrorCode.REQUEST_TIMED_OUT)
        creation = TopicCreation(broker.as_broker)
        asking = broker.loop.create_task(creation.ensure("t"))
        await asyncio.sleep(0)
        asking.cancel()  # the connection is closed
        await asyncio.wait([asking])
        del asking
        controller.may_answer.set()
        while not controller.sent:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        gc.collect()
        assert reported == []

        with pytest.raises(RemoteError):
            await creation.ensure("t")
        created = CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=0, error_message=None)])
        controller.answer = lambda request: created
        assert await creation.ensure("t") is ErrorCode.NONE

    run(story)
