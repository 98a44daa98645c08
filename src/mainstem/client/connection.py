"""One connection to one broker: requests out, their answers back in the same order.

- `open` connects and asks which versions the broker speaks; what an API is then sent in is the highest that both know
  (`version_for`). A broker that does not know our ApiVersions answers in v0 which it knows (KIP-511).
- Requests are pipelined. A broker answers in the order in which it was asked, so the next answer belongs to the oldest
  request; one that does not is the end of the connection.
- A request that is not answered in its time ends the connection, as in Kafka's clients: the answer may come yet, and
  everything behind it waits. Whoever waits for another answer then gets `DisconnectedError`.
- Giving up waiting (a cancelled task) changes nothing on the wire; the answer is dropped when it comes.

Hot APIs have codecs of their own and hand over whole frames with `send_frame`; everything else goes by `ask`.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final, TypeVar

from mainstem._version import VERSION
from mainstem.client.errors import (
    CorruptRecordError,
    DisconnectedError,
    KafkaError,
    KafkaTimeoutError,
    UnsupportedVersionError,
    error_for,
)
from mainstem.protocol.api import APIS, ApiKey
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.framing import FrameReceiver, SharedBuffer
from mainstem.protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from mainstem.protocol.rpc import decode_response, encode_request
from mainstem.protocol.schema import Message

M = TypeVar("M", bound=Message)
Chunk = bytes | bytearray | memoryview

DEFAULT_TIMEOUT_S: Final = 30.0
MAX_FRAME_BYTES: Final = 0x7FFFFFFF
RECEIVE_BYTES: Final = 4 << 20
"""What a client receives into: room for the answer to a fetch of a few partitions, which then is copied once."""
_CORRELATION_ID_AT: Final = 8
_ERROR_CODE_AT: Final = 4
_ID: Final = Struct(">i")
_ERROR: Final = Struct(">h")


class _Pending:
    """A request that waits for its answer."""

    __slots__ = ("api_key", "correlation_id", "future", "timer")

    def __init__(self, api_key: int, correlation_id: int, future: asyncio.Future[bytes]) -> None:
        self.api_key = api_key
        self.correlation_id = correlation_id
        self.future = future
        self.timer: asyncio.TimerHandle | None = None


class BrokerConnection(asyncio.BufferedProtocol):
    """Made by `open`. `node_id` is the broker's, negative for a bootstrap address whose id is not known."""

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str | None,
        *,
        node_id: int = -1,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        shared: SharedBuffer | None = None,
        socket_buffers: tuple[int, int] = (-1, -1),
        on_lost: Callable[[BrokerConnection], None] | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self.node_id = node_id
        self.client_id = client_id
        self.timeout_s = timeout_s
        self.versions: dict[int, tuple[int, int]] = {}
        """The first and last version of each API that the broker speaks."""
        self.features: dict[str, int] = {}
        """The finalized level of each feature, as the broker told when the connection was made."""
        self.lost: KafkaError | None = None
        """Why the connection is no more, None while it is there."""
        self.is_writable = True
        """False while the broker takes in less than we have sent."""
        self._loop = asyncio.get_running_loop()
        self.last_used_s = self._loop.time()
        self._on_lost = on_lost
        self._socket_buffers = socket_buffers
        self._receiver = FrameReceiver(shared or SharedBuffer(RECEIVE_BYTES), MAX_FRAME_BYTES)
        self._transport: Any = None
        self._pending: deque[_Pending] = deque()
        self._last_id = 0

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        client_id: str | None = "mainstem",
        *,
        node_id: int = -1,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        setup_timeout_s: float = 10.0,
        shared: SharedBuffer | None = None,
        socket_buffers: tuple[int, int] = (-1, -1),
        on_lost: Callable[[BrokerConnection], None] | None = None,
    ) -> BrokerConnection:
        """Connects and learns the broker's versions; DisconnectedError or KafkaTimeoutError where that fails.

        `socket_buffers` are the system's, to send from and to receive into; -1 leaves them to the system.
        """
        connection = cls(
            host,
            port,
            client_id,
            node_id=node_id,
            timeout_s=timeout_s,
            shared=shared,
            socket_buffers=socket_buffers,
            on_lost=on_lost,
        )
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(setup_timeout_s):
                await loop.create_connection(lambda: connection, host, port)
                await connection._negotiate()
        except TimeoutError as error:
            connection._end(KafkaTimeoutError("no connection in time", broker=connection.name))
            raise KafkaTimeoutError(f"no connection within {setup_timeout_s:g} s", broker=connection.name) from error
        except KafkaError as error:
            connection._end(error)
            raise
        except OSError as error:
            raise DisconnectedError(f"cannot connect: {error}", broker=connection.name) from error
        except BaseException:
            connection.close()
            raise
        return connection

    # What people ask

    @property
    def name(self) -> str:
        """The broker, for a person to read."""
        address = f"{self.host}:{self.port}"
        return address if self.node_id < 0 else f"{self.node_id} at {address}"

    @property
    def is_open(self) -> bool:
        return self._transport is not None and self.lost is None

    @property
    def in_flight(self) -> int:
        """Requests that have not been answered."""
        return len(self._pending)

    def has_api(self, api_key: int) -> bool:
        return api_key in self.versions

    def version_for(self, api_key: int, max: int | None = None) -> int:
        """The highest version of an API that the broker and we speak, up to `max`."""
        api = APIS[api_key]
        first, last = self.versions.get(api_key, (0, -1))
        version = min(last, api.max_version) if max is None else min(last, api.max_version, max)
        if version < first or version < api.min_version:
            theirs = f"v{first} to v{last}" if last >= first else "no version"
            ours = f"v{api.min_version} to v{api.max_version if max is None else max}"
            raise UnsupportedVersionError(f"{api.name}: the broker has {theirs}, this client {ours}", broker=self.name)
        return version

    async def send(self, request: Message, *, version: int | None = None, timeout_s: float | None = None) -> Message:
        """Sends a request and waits for its answer, in the version given or the highest that both speak."""
        api_key = request.API_KEY
        if version is None:
            version = self.version_for(api_key)
        frame = encode_request(request, version, 0, self.client_id)
        answer = await self.send_frame(api_key, version, [frame], timeout_s=timeout_s)
        try:
            return decode_response(answer, api_key, version)[1]
        except RemoteError as error:
            self._end(self._malformed(str(error)))
            raise self._malformed(str(error)) from error

    async def ask(
        self, request: Message, kind: type[M], *, version: int | None = None, timeout_s: float | None = None
    ) -> M:
        """The same for a caller who says what the answer is."""
        answer = await self.send(request, version=version, timeout_s=timeout_s)
        assert isinstance(answer, kind), f"{type(request).__name__} is not answered by {kind.__name__}"
        return answer

    def send_frame(
        self,
        api_key: int,
        version: int,
        chunks: Sequence[Chunk],
        *,
        timeout_s: float | None = None,
        is_answered: bool = True,
    ) -> asyncio.Future[bytes]:
        """Sends a whole frame, its size included, and gives the frame of the answer without its size.

        The correlation id is filled in here; any will do in what is given. A frame that the broker does not answer
        (Produce with acks=0) gives an empty result at once.
        """
        future: asyncio.Future[bytes] = self._loop.create_future()
        if self._transport is None or self.lost is not None:
            lost = self.lost
            future.set_exception(DisconnectedError(lost.message if lost else "not connected", broker=self.name))
            return future
        self._last_id = self._last_id + 1 & 0x7FFFFFFF
        head = bytes(chunks[0])
        stamped = head[:_CORRELATION_ID_AT] + _ID.pack(self._last_id) + head[_CORRELATION_ID_AT + 4 :]
        if is_answered:
            pending = _Pending(api_key, self._last_id, future)
            wait_s = self.timeout_s if timeout_s is None else timeout_s
            pending.timer = self._loop.call_later(wait_s, self._expire, pending, wait_s)
            self._pending.append(pending)
        else:
            future.set_result(b"")
        self.last_used_s = self._loop.time()
        if len(chunks) == 1:
            self._transport.write(stamped)
        else:
            self._transport.writelines([stamped, *chunks[1:]])
        return future

    def close(self) -> None:
        """Ends it now. Whoever waits for an answer gets DisconnectedError."""
        self._end(DisconnectedError("the client closed the connection", broker=self.name))

    # What the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        under = transport.get_extra_info("socket")
        for option, size in zip((socket.SO_SNDBUF, socket.SO_RCVBUF), self._socket_buffers, strict=True):
            if size >= 0 and under is not None:
                under.setsockopt(socket.SOL_SOCKET, option, size)
        if self.lost is not None:  # given up while it was being made
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receiver.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        for frame in self._receiver.received(nbytes):
            self._take(frame)
        if self._receiver.refused is not None:
            self._end(self._malformed(str(self._receiver.refused)))

    def pause_writing(self) -> None:
        self.is_writable = False

    def resume_writing(self) -> None:
        self.is_writable = True

    def connection_lost(self, exc: Exception | None) -> None:
        self._receiver.close()
        reason = f"the connection was lost: {exc}" if exc else "the broker closed the connection"
        self._end(DisconnectedError(reason, broker=self.name))

    # Inside

    async def _negotiate(self) -> None:
        version = APIS[ApiKey.API_VERSIONS].max_version
        answer = await self._api_versions(version)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            known = {api.api_key: api.max_version for api in answer.api_keys}
            answer = await self._api_versions(min(version, known.get(ApiKey.API_VERSIONS, 0)))
        if answer.error_code != 0:
            raise error_for(answer.error_code, "ApiVersions", broker=self.name)
        self.versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        self.features = {each.name: each.max_version_level for each in answer.finalized_features}

    async def _api_versions(self, version: int) -> ApiVersionsResponse:
        request = ApiVersionsRequest(client_software_name="mainstem", client_software_version=VERSION)
        frame = encode_request(request, version, 0, self.client_id)
        answer = await self.send_frame(ApiKey.API_VERSIONS, version, [frame])
        try:
            if len(answer) >= 6 and _ERROR.unpack_from(answer, _ERROR_CODE_AT)[0] == ErrorCode.UNSUPPORTED_VERSION:
                version = 0
            decoded = decode_response(answer, ApiKey.API_VERSIONS, version)[1]
        except RemoteError as error:
            raise self._malformed(str(error)) from error
        assert isinstance(decoded, ApiVersionsResponse)
        return decoded

    def _take(self, frame: bytes) -> None:
        if self.lost is not None:
            return
        if not self._pending or len(frame) < 4:
            self._end(self._malformed("an answer that nobody asked for"))
            return
        pending = self._pending[0]
        (correlation_id,) = _ID.unpack_from(frame)
        if correlation_id != pending.correlation_id:
            self._end(self._malformed(f"answer {correlation_id} where {pending.correlation_id} was due"))
            return
        self._pending.popleft()
        if pending.timer is not None:
            pending.timer.cancel()
        self.last_used_s = self._loop.time()
        if not pending.future.done():
            pending.future.set_result(frame)

    def _expire(self, pending: _Pending, wait_s: float) -> None:
        late = KafkaTimeoutError(f"{APIS[pending.api_key].name} was not answered within {wait_s:g} s", broker=self.name)
        if not pending.future.done():
            pending.future.set_exception(late)
        self._end(DisconnectedError(f"given up: {late.message}", broker=self.name))

    def _end(self, reason: KafkaError) -> None:
        if self.lost is not None:
            return
        self.lost = reason
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        pending, self._pending = self._pending, deque()
        for each in pending:
            if each.timer is not None:
                each.timer.cancel()
            if not each.future.done():
                each.future.set_exception(DisconnectedError(reason.message, broker=self.name))
        if self._on_lost is not None:
            self._on_lost(self)

    def _malformed(self, message: str) -> KafkaError:
        return CorruptRecordError(f"the broker's answer makes no sense: {message}", broker=self.name)
