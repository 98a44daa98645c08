"""What stands between a broker's sockets and its router in a test: delays, errors, lost connections.

Faults are told from the test's thread and take effect with the next request. They belong to one API each, by Kafka's
name for it ("Produce", "Fetch", "JoinGroup"); "*" is every API but ApiVersions, without which a client does nothing.
"""

from __future__ import annotations

import asyncio
import difflib
import threading
from collections import Counter
from collections.abc import Callable
from typing import Final

from mainstem.net.connection import Exchange, Handler
from mainstem.protocol.api import APIS, ApiKey
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.headers import RequestHeader, read_request_header
from mainstem.protocol.rpc import decode_request_body, encode_response
from mainstem.testing.answers import error_answer

EVERY: Final = "*"
NODE_ID: Final = 1
_NEVER_FAILS: Final = frozenset({int(ApiKey.API_VERSIONS)})


def api_keys(name: str) -> list[int]:
    """The keys that a name stands for."""
    if name == EVERY:
        return [key for key in APIS if key not in _NEVER_FAILS]
    plain = name.replace("_", "").lower()
    for key, api in APIS.items():
        if api.name.lower() == plain:
            return [key]
    near = difflib.get_close_matches(name, [api.name for api in APIS.values()], 1, 0.5)
    raise ValueError(f"there is no API {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))


def error_code(error: ErrorCode | int | str) -> ErrorCode:
    if isinstance(error, str):
        found = ErrorCode.__members__.get(error.upper())
        if found is None:
            near = difflib.get_close_matches(error.upper(), list(ErrorCode.__members__), 1, 0.5)
            raise ValueError(f"there is no error {error!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        return found
    return ErrorCode(error)


class _Fault:
    __slots__ = ("act", "left")

    def __init__(self, act: Callable[[Exchange, RequestHeader], None], left: int | None) -> None:
        self.act = act
        self.left = left


class Faults:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._delays: dict[int, float] = {}
        self._faults: dict[int, list[_Fault]] = {}
        self._seen: Counter[int] = Counter()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handler: Handler | None = None

    def around(self, loop: asyncio.AbstractEventLoop) -> Callable[[Handler], Handler]:
        """Puts these faults before a broker's router; a broker that is started again gets the same."""

        def put(handler: Handler) -> Handler:
            self._loop, self._handler = loop, handler
            return self.handle

        return put

    # Told by tests

    def delay(self, api: str, seconds: float) -> None:
        with self._lock:
            for key in api_keys(api):
                self._delays[key] = seconds

    def fail(self, api: str, error: ErrorCode | int | str, times: int | None) -> None:
        code = error_code(error)
        self._add(api, lambda exchange, header: self._answer_error(exchange, header, code), times)

    def disconnect(self, api: str, times: int | None, *, carried_out: bool) -> None:
        self._add(api, self._lose_answer if carried_out else self._lose_request, times)

    def _add(self, api: str, act: Callable[[Exchange, RequestHeader], None], times: int | None) -> None:
        if times is not None and times < 1:
            raise ValueError(f"times is {times}; it is at least 1, or None for always")
        keys = api_keys(api)
        fault = _Fault(act, times)
        with self._lock:
            for key in keys:
                self._faults.setdefault(key, []).append(fault)

    def clear(self) -> None:
        with self._lock:
            self._delays.clear()
            self._faults.clear()

    def requests(self, api: str) -> int:
        """How many requests of an API have come so far."""
        with self._lock:
            return sum(self._seen[key] for key in api_keys(api))

    # On the broker's loop

    def handle(self, exchange: Exchange) -> None:
        assert self._handler is not None
        assert self._loop is not None
        try:
            header = read_request_header(exchange.frame)
        except RemoteError:
            self._handler(exchange)
            return
        with self._lock:
            self._seen[header.api_key] += 1
            seconds = self._delays.get(header.api_key, 0.0)
            act = self._next_fault(header.api_key)
        if seconds > 0:
            self._loop.call_later(seconds, self._carry_on, exchange, header, act)
        else:
            self._carry_on(exchange, header, act)

    def _next_fault(self, key: int) -> Callable[[Exchange, RequestHeader], None] | None:
        faults = self._faults.get(key)
        while faults:
            fault = faults[0]
            if fault.left is None:
                return fault.act
            if fault.left > 0:
                fault.left -= 1
                return fault.act
            faults.pop(0)
        return None

    def _carry_on(
        self, exchange: Exchange, header: RequestHeader, act: Callable[[Exchange, RequestHeader], None] | None
    ) -> None:
        assert self._handler is not None
        if act is None:
            self._handler(exchange)
        else:
            act(exchange, header)

    def _answer_error(self, exchange: Exchange, header: RequestHeader, code: ErrorCode) -> None:
        try:
            request = decode_request_body(exchange.frame, header)
            host, _, port = exchange.connection.local.rpartition(":")
            answer = error_answer(request, header.api_version, code, NODE_ID, (host, int(port)))
        except RemoteError:
            answer = None
        if answer is None:  # what cannot be told is no success
            exchange.close()
            return
        exchange.respond([encode_response(answer, header.api_version, header.correlation_id)])

    def _lose_request(self, exchange: Exchange, header: RequestHeader) -> None:
        exchange.connection.abort()

    def _lose_answer(self, exchange: Exchange, header: RequestHeader) -> None:
        """Has the request carried out on nobody's behalf: the connection is gone before the answer."""
        assert self._handler is not None
        self._handler(exchange)
        exchange.connection.abort()
