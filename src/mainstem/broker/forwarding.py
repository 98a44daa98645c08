"""Requests that the controller answers: sent on as they came, and their answers passed back.

A controller that cannot be reached is an error for each thing that was asked for, as Kafka has it, because few of
these responses have a place for one error of all. So is a time-out that has passed before anything was done, which is
how Kafka takes one of zero or less. Where the time is up later, the answer is REQUEST_TIMED_OUT and the change goes on:
whoever asked must look what came of it.
"""

import asyncio
from typing import TYPE_CHECKING, TypeVar

from mainstem.broker.context import RequestContext
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.schema import Message

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

R = TypeVar("R", bound=Message)


async def forward(
    broker: "Broker", context: RequestContext, request: Message, response: type[R], timeout_ms: int | None = None
) -> R | RemoteError:
    """The controller's answer, or why there is none. Without a time-out it is waited for."""
    if timeout_ms is not None and timeout_ms <= 0:
        return RemoteError(ErrorCode.REQUEST_TIMED_OUT, "")
    deadline = None if timeout_ms is None else broker.loop.time() + timeout_ms / 1000
    asked = broker.loop.create_task(broker.controller.send(request, context.api_version))
    if not await _is_done(broker, asked, deadline):
        return RemoteError(ErrorCode.REQUEST_TIMED_OUT, "")
    try:
        answer = asked.result()
    except RemoteError as error:
        return error
    assert isinstance(answer, response), f"{type(request).__name__} was answered with {type(answer).__name__}"
    # Whoever asked sees on this broker at once what the controller has done, and need not ask again.
    await _is_done(broker, broker.loop.create_task(broker.caught_up()), deadline)
    return answer


async def _is_done(broker: "Broker", task: "asyncio.Task[R] | asyncio.Task[None]", deadline: float | None) -> bool:
    """Whether it came to its end in time; it goes on if not, and what becomes of it then is nobody's to hear."""
    task.add_done_callback(lambda done: None if done.cancelled() else done.exception())
    left = None if deadline is None else max(deadline - broker.loop.time(), 0)
    await asyncio.wait([task], timeout=left)
    return task.done()
