"""Producer ids, from blocks that the controller gives to this broker (KIP-730).

An id is given once, ever: a block that was asked for and not used up is lost when the broker stops. The next block is
asked for when a tenth of the current one is left, so that nobody waits for it as a rule.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from mainstem.broker.logfmt import if_unforeseen
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k67_allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

log = logging.getLogger(__name__)

_VERSION: Final = 0
_PREFETCH_BELOW: Final = 0.1
_NO_BLOCK: Final = range(0)


class ProducerIds:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._current = _NO_BLOCK
        self._next = _NO_BLOCK
        self._prefetch_at = 0
        """How many are left of the current block when the next one is asked for."""
        self._fetching: asyncio.Task[None] | None = None

    async def take(self) -> int:
        """An id that nobody has. RemoteError, which clients may try again after, where the controller gives none."""
        while not self._current:
            if self._next:
                self._begin(self._next)
                self._next = _NO_BLOCK
            else:
                await asyncio.shield(self._fetch())
        taken = self._current[0]
        self._current = self._current[1:]
        if len(self._current) <= self._prefetch_at and not self._next and self._fetching is None:
            self._fetch()
        return taken

    def _begin(self, block: range) -> None:
        self._current = block
        self._prefetch_at = int(len(block) * _PREFETCH_BELOW)

    def _fetch(self) -> "asyncio.Task[None]":
        if self._fetching is None:
            self._fetching = self._broker.loop.create_task(self._allocate())
            self._fetching.add_done_callback(self._fetched)
        return self._fetching

    def _fetched(self, task: "asyncio.Task[None]") -> None:
        self._fetching = None
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            log.warning("the controller gave no producer ids: %s", error, exc_info=if_unforeseen(error))

    async def _allocate(self) -> None:
        broker = self._broker
        request = AllocateProducerIdsRequest(broker_id=broker.node_id, broker_epoch=broker.broker_epoch)
        try:
            answer = await broker.controller.send(request, _VERSION)
        except RemoteError as error:
            raise RemoteError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error.message) from error
        assert isinstance(answer, AllocateProducerIdsResponse)
        if answer.error_code != ErrorCode.NONE or answer.producer_id_len <= 0:
            raise RemoteError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode(answer.error_code).name)
        self._next = range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len)
