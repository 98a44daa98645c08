"""Requests that the controller answers: sent on as they came, and their answers passed back.

A controller that cannot be reached is an error for each thing that was asked for, as Kafka has it, because few of
these responses have a place for one error of all. So is a time-out that has passed before anything was done, which is
how Kafka takes one of zero or less.
"""

from typing import TYPE_CHECKING, TypeVar

from mainstem.broker.context import RequestContext
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.schema import Message

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

R = TypeVar("R", bound=Message)


async def forward(
    broker: "Broker", context: RequestContext, request: Message, response: type[R], timeout_ms: int = 1
) -> R | RemoteError:
    """The controller's answer, or why there is none."""
    if timeout_ms <= 0:
        return RemoteError(ErrorCode.REQUEST_TIMED_OUT, "")
    try:
        answer = await broker.controller.send(request, context.api_version)
    except RemoteError as error:
        return error
    assert isinstance(answer, response), f"{type(request).__name__} was answered with {type(answer).__name__}"
    # Whoever asked sees on this broker at once what the controller has done, and need not ask again.
    await broker.caught_up()
    return answer
