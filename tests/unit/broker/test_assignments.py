"""The controller is told where replicas are, however often it takes."""

import asyncio

from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k73_assign_replicas_to_dirs import AssignReplicasToDirsRequest
from mainstem.protocol.schema import Message

from .fake_broker import FakeBroker, run


def test_what_is_wrong_while_the_controller_is_told_is_told_after_it() -> None:
    """It was, unless an earlier message had been lost: then the metadata went on to name another directory."""

    async def story(broker: FakeBroker) -> None:
        topic_id = await broker.create_topic("t", 2)
        told: list[int] = []
        failures = 1

        def answer(message: Message) -> Message | RemoteError:
            nonlocal failures
            assert isinstance(message, AssignReplicasToDirsRequest)
            if failures:
                failures -= 1
                return RemoteError(ErrorCode.REQUEST_TIMED_OUT)
            found = [each.partition_index for one in message.directories for each in one.topics[0].partitions]
            told.extend(found)
            if found == [0]:
                broker.assignments.check(topic_id, 1)
            return broker.assign(message)

        broker.controller.answer = answer
        broker.assignments.check(topic_id, 0)
        while told != [0, 1]:
            await asyncio.sleep(0.001)

    run(story)
