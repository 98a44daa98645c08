"""From a frame to the module that answers it, and back to a frame.

As in Kafka, a request that cannot be parsed, an unknown API, one that is not for this listener and an unsupported
version end the connection; only ApiVersions answers an unknown version, so that a client can step down (KIP-511). A
handler that fails by our own fault is logged with what it was doing; its peer gets UNKNOWN_SERVER_ERROR where the
response can say so and is disconnected where it can't. Other connections notice nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from types import CoroutineType, ModuleType
from typing import TYPE_CHECKING, Any

from mainstem.broker.context import RequestContext
from mainstem.net.connection import Exchange
from mainstem.protocol.api import Listener, find_api
from mainstem.protocol.blank import blank
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.fields import parse_versions
from mainstem.protocol.headers import RequestHeader, read_request_header
from mainstem.protocol.rpc import decode_request_body, encode_response, encode_unsupported_api_versions
from mainstem.protocol.schema import Message

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

log = logging.getLogger(__name__)


class Route:
    __slots__ = ("handle", "handle_frame", "is_for_brokers", "is_for_controllers", "max_version", "min_version", "name")

    def __init__(self, module: ModuleType) -> None:
        api = find_api(module.API_KEY)
        self.name = api.name
        self.is_for_brokers = Listener.BROKER in api.listeners
        self.is_for_controllers = Listener.CONTROLLER in api.listeners
        self.min_version: int = module.MIN_VERSION
        self.max_version: int = module.MAX_VERSION
        self.handle: Callable[[Any, RequestContext, Any], Any] | None = getattr(module, "handle", None)
        self.handle_frame: Callable[[Any, RequestContext, Exchange], None] | None = getattr(
            module, "handle_frame", None
        )


class Router:
    def __init__(self, broker: "Broker", modules: dict[int, ModuleType]) -> None:
        self._broker = broker
        self._loop = broker.loop
        self._controller_listeners = frozenset(broker.config.controller_listeners)
        self.routes = {key: Route(module) for key, module in modules.items()}
        self._running: dict[asyncio.Task[Any], Coroutine[Any, Any, Message]] = {}

    def dispatch(self, exchange: Exchange) -> None:
        """Takes one request; answers it now or later."""
        try:
            header = read_request_header(exchange.frame)
        except RemoteError as error:
            self._refuse(exchange, error)
            return
        route = self.routes.get(header.api_key)
        if header.is_unsupported_api_versions:
            exchange.respond([encode_unsupported_api_versions(header.correlation_id)])
            return
        if route is None or not route.min_version <= header.api_version <= route.max_version:
            self._refuse(
                exchange,
                RemoteError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"API key {header.api_key} version {header.api_version} is not served",
                ),
            )
            return
        connection = exchange.connection
        listener = connection.listener_name
        if not (route.is_for_controllers if listener in self._controller_listeners else route.is_for_brokers):
            self._refuse(exchange, RemoteError(ErrorCode.INVALID_REQUEST, f"{route.name} is not for {listener}"))
            return
        context = RequestContext(
            header.api_key,
            header.api_version,
            header.correlation_id,
            header.client_id,
            header.body_at,
            listener,
            connection.peer,
        )
        if route.handle_frame is not None:
            try:
                route.handle_frame(self._broker, context, exchange)
            except RemoteError as error:
                self._refuse(exchange, error)
            except Exception:
                self._failed(exchange, context, route, None)
            return
        self._handle_message(exchange, header, context, route)

    def _handle_message(self, exchange: Exchange, header: RequestHeader, context: RequestContext, route: Route) -> None:
        assert route.handle is not None
        try:
            request = decode_request_body(exchange.frame, header)
        except RemoteError as error:
            self._refuse(exchange, error)
            return
        exchange.frame = b""
        try:
            answer = route.handle(self._broker, context, request)
        except RemoteError as error:
            self._answer_error(exchange, context, route, error.code)
            return
        except Exception:
            self._failed(exchange, context, route, request)
            return
        if isinstance(answer, CoroutineType):
            task = self._loop.create_task(self._await(answer, exchange, context, route, request))
            self._running[task] = answer
            task.add_done_callback(self._finished)
        else:
            self._answer(exchange, context, answer)

    async def _await(
        self,
        coroutine: Coroutine[Any, Any, Message],
        exchange: Exchange,
        context: RequestContext,
        route: Route,
        request: Message,
    ) -> None:
        try:
            answer = await coroutine
        except RemoteError as error:
            self._answer_error(exchange, context, route, error.code)
        except Exception:
            self._failed(exchange, context, route, request)
        else:
            self._answer(exchange, context, answer)

    def _finished(self, task: "asyncio.Task[Any]") -> None:
        self._running.pop(task).close()  # it has not begun where the task was cancelled before its first turn

    def close(self) -> None:
        """Cancels what is still being answered, in the order it came."""
        for task in list(self._running):
            task.cancel()

    def _answer(self, exchange: Exchange, context: RequestContext, response: Message) -> None:
        try:
            frame = encode_response(response, context.api_version, context.correlation_id)
        except Exception:
            # The peer would wait for ever, and so would all that it sends after this.
            log.exception(
                "failed to encode a response",
                extra={"response": type(response).__name__, "version": context.api_version, "peer": context.peer},
            )
            exchange.close()
            return
        exchange.respond([frame])

    def _answer_error(self, exchange: Exchange, context: RequestContext, route: Route, code: ErrorCode) -> None:
        """An error for the request as a whole, where its response has a place for one in this version."""
        response = find_api(context.api_key).response
        spec = response.FIELDS.get("error_code")
        first, last = parse_versions(spec.versions if spec is not None else "none")
        if not first <= context.api_version <= last:
            self._refuse(exchange, RemoteError(code, f"in answer to {route.name}"))
            return
        answer = blank(response)
        answer.error_code = code  # type: ignore[attr-defined]
        self._answer(exchange, context, answer)

    def _refuse(self, exchange: Exchange, error: RemoteError) -> None:
        log.warning("ended a connection: %s", error, extra={"peer": exchange.connection.peer})
        exchange.close()

    def _failed(self, exchange: Exchange, context: RequestContext, route: Route, request: Message | None) -> None:
        log.exception(
            "failed to answer a request",
            extra={
                "api": route.name,
                "version": context.api_version,
                "client": context.client_id,
                "peer": context.peer,
            },
        )
        if exchange.is_answered:
            exchange.connection.abort()
        elif request is None:
            exchange.close()
        else:
            self._answer_error(exchange, context, route, ErrorCode.UNKNOWN_SERVER_ERROR)
