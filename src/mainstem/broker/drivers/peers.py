"""Messages between brokers: what a partition's leader asks of a transaction coordinator, and the other way round.

A message goes to a broker by its id and is answered by the same module that answers it from the network. To this
broker itself that is a call; `carry` is the one place where it could be anything else, and where a simulator delays,
drops or repeats. Other brokers cannot be reached yet.
"""

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from mainstem.broker.context import RequestContext
from mainstem.broker.drivers.controller import Carry, carry_directly
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.schema import Message

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

Handle = Callable[["Broker", RequestContext, Any], Message | Awaitable[Message]]


class Peers:
    def __init__(self, broker: "Broker", handlers: dict[int, Handle], carry: Carry = carry_directly) -> None:
        self._broker = broker
        self._handlers = handlers
        self._carry = carry

    async def send(self, node_id: int, message: Message, version: int) -> Message:
        """The answer of that broker. RemoteError where there is none: the message may have arrived all the same."""
        if node_id != self._broker.node_id:
            raise RemoteError(ErrorCode.NETWORK_EXCEPTION, f"broker {node_id} cannot be reached")
        return await self._carry(message, version, self._deliver)

    async def _deliver(self, message: Message, version: int) -> Message:
        broker = self._broker
        listener = broker.config.listeners[0].listener
        context = RequestContext(message.API_KEY, version, 0, f"broker-{broker.node_id}", 0, listener, "peer:0")
        answer = self._handlers[message.API_KEY](broker, context, message)
        return await answer if isawaitable(answer) else answer
