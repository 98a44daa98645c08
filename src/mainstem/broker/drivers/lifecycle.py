"""The broker's side of its registration: it registers, sends heartbeats, is unfenced, shuts down in order (KIP-631).

- One start is one incarnation, with an id of its own; a registration that is repeated carries the same one.
- The broker asks to stay fenced until it is ready to serve, and is unfenced by the controller once it has replayed its
  own registration.
- A controlled shutdown asks until the controller says that the broker may go, or until there is no more time: then it
  goes anyway, and whoever depends on it finds out.
- The epoch of the last clean stop goes with the registration: it proves that nothing unsynced was lost (KIP-966).
- A heartbeat that fails is sent again; nothing else is lost by it.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from mainstem.broker.drivers.controller import PLAINTEXT, ControllerChannel
from mainstem.core.controller.context import SUPPORTED_FEATURES
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k62_broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from mainstem.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from mainstem.protocol.uuids import random_uuid

log = logging.getLogger(__name__)

RETRY_MIN_S: Final = 0.005
RETRY_MAX_S: Final = 0.5
_WORTH_RETRYING: Final = frozenset(
    {
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """What a broker registers as."""

    node_id: int
    cluster_id: str
    endpoints: Sequence[tuple[str, str, int]]
    """What clients are told: name of the listener, host, port."""
    directories: Sequence[bytes]
    """Ids of the log directories that are online."""
    rack: str | None = None
    previous_epoch: int = -1
    """The broker epoch of the last clean stop, -1 where there was none."""


class BrokerLifecycle:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        rng: Random,
        channel: ControllerChannel,
        identity: BrokerIdentity,
        metadata_offset: Callable[[], int],
        cordoned: Callable[[], list[bytes]] = list,
        *,
        heartbeat_interval_ms: int = 2000,
    ) -> None:
        self.identity = identity
        self.epoch = -1
        self.is_fenced = True
        self.incarnation_id = random_uuid(rng)
        self._loop = loop
        self._channel = channel
        self._metadata_offset = metadata_offset
        self._cordoned = cordoned
        self._told_cordoned: list[bytes] = []
        self._interval_s = heartbeat_interval_ms / 1000
        self._ready = False
        self._wants_shutdown = False
        self._offline: dict[bytes, None] = {}
        self._beating: asyncio.Task[None] | None = None
        self._wake: asyncio.Future[None] | None = None
        self._stopped = False

    # -- start -----------------------------------------------------------------------------------------------------

    async def register(self) -> int:
        """Registers this incarnation and begins to send heartbeats; the broker epoch. ValueError where it may not."""
        wait_s = RETRY_MIN_S
        while True:
            code = await self._try_to_register()
            if code == ErrorCode.NONE:
                break
            if code not in _WORTH_RETRYING:
                raise ValueError(f"broker {self.identity.node_id} cannot register: {code.name}")
            log.warning("registration refused, trying again", extra={"error": code.name})
            await self._pause(wait_s)
            wait_s = min(2 * wait_s, RETRY_MAX_S)
        log.info("broker registered", extra={"node": self.identity.node_id, "epoch": self.epoch})
        if self._beating is None:
            self._beating = self._loop.create_task(self._beat())
        return self.epoch

    async def _try_to_register(self) -> ErrorCode:
        identity = self.identity
        request = BrokerRegistrationRequest(
            broker_id=identity.node_id,
            cluster_id=identity.cluster_id,
            incarnation_id=self.incarnation_id,
            listeners=[
                Listener(name=name, host=host, port=port, security_protocol=PLAINTEXT)
                for name, host, port in identity.endpoints
            ],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
            rack=identity.rack,
            log_dirs=[one for one in identity.directories if one not in self._offline],
            previous_broker_epoch=identity.previous_epoch,
        )
        try:
            answer = await self._channel.send(request, BrokerRegistrationRequest.MAX_VERSION)
        except RemoteError as error:
            return error.code
        assert isinstance(answer, BrokerRegistrationResponse)
        code = ErrorCode(answer.error_code)
        if code == ErrorCode.NONE:
            self.epoch = answer.broker_epoch
        return code

    async def unfence(self) -> None:
        """Says that the broker is ready to serve; returns when the controller lets it."""
        self._ready = True
        wait_s = RETRY_MIN_S
        while self.is_fenced and not self._stopped:
            await self.heartbeat()
            if self.is_fenced:
                await self._pause(wait_s)
                wait_s = min(2 * wait_s, RETRY_MAX_S)
        log.info("broker unfenced", extra={"node": self.identity.node_id, "epoch": self.epoch})

    # -- heartbeats ------------------------------------------------------------------------------------------------

    async def heartbeat(self) -> bool:
        """Sends one; whether the controller says that this broker may go."""
        cordoned = self._cordoned()
        request = BrokerHeartbeatRequest(
            broker_id=self.identity.node_id,
            broker_epoch=self.epoch,
            current_metadata_offset=self._metadata_offset(),
            want_fence=not self._ready,
            want_shut_down=self._wants_shutdown,
            offline_log_dirs=list(self._offline),
            cordoned_log_dirs=cordoned,
        )
        try:
            answer = await self._channel.send(request, BrokerHeartbeatRequest.MAX_VERSION)
        except RemoteError as error:
            log.warning("heartbeat failed", extra={"error": error.code.name})
            return False
        assert isinstance(answer, BrokerHeartbeatResponse)
        if answer.error_code == ErrorCode.STALE_BROKER_EPOCH and not self._wants_shutdown:
            # Somebody unregistered us: register again as who we are.
            await self._try_to_register()
            return False
        if answer.error_code != ErrorCode.NONE:
            log.warning("heartbeat refused", extra={"error": ErrorCode(answer.error_code).name})
            return False
        if answer.is_fenced != self.is_fenced and self._ready and not self._wants_shutdown and answer.is_fenced:
            log.warning("broker fenced", extra={"node": self.identity.node_id, "epoch": self.epoch})
        self.is_fenced = answer.is_fenced
        self._told_cordoned = cordoned
        return answer.should_shut_down

    async def _beat(self) -> None:
        while not self._stopped:
            await self._pause(self._interval_s)
            if not self._stopped:
                await self.heartbeat()

    def directory_failed(self, directory_id: bytes) -> None:
        """Tells the controller at once that a log directory is offline."""
        self._offline[directory_id] = None
        self._beat_now()

    def tell_cordoned(self) -> None:
        """Tells the controller at once which directories take no new partitions, if it knows of others (KIP-1066)."""
        if self._beating is not None and self._cordoned() != self._told_cordoned:
            self._beat_now()

    def _beat_now(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _pause(self, seconds: float) -> None:
        wake: asyncio.Future[None] = self._loop.create_future()
        self._wake = wake
        timer = self._loop.call_later(seconds, lambda: None if wake.done() else wake.set_result(None))
        try:
            await wake
        finally:
            timer.cancel()

    # -- stop ------------------------------------------------------------------------------------------------------

    async def shut_down(self, timeout_ms: int = 10_000) -> bool:
        """Hands leadership over; whether the controller let this broker go before the time was up."""
        self._wants_shutdown = True
        deadline = self._loop.time() + timeout_ms / 1000
        wait_s = RETRY_MIN_S
        may_go = await self.heartbeat()
        while not may_go and self._loop.time() < deadline:
            await self._pause(wait_s)
            wait_s = min(2 * wait_s, RETRY_MAX_S)
            may_go = await self.heartbeat()
        self.stop()
        return may_go

    def stop(self) -> None:
        """Sends no more heartbeats."""
        self._stopped = True
        if self._beating is not None:
            self._beating.cancel()
