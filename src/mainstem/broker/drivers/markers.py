"""Brings the ends of transactions to the partitions' leaders, as often as it takes.

One task a transaction: it sends WriteTxnMarkers to each leader, takes out the partitions that have the marker, and
tries the others again. A marker that is written twice does no harm.

- A partition whose topic is gone needs no marker.
- A partition that has seen a later epoch of the producer, which cannot be, is left out and logged: the transaction must
  not wait for it for ever (T12). Kafka gives up on the whole transaction there.
- A partition that has seen a marker of a later coordinator tells that this one is no longer it: it stops.

In the same way it tells leaders that an open transaction has passed to another client, and is to get nothing more.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mainstem.core.controller.states import NO_LEADER
from mainstem.core.txn.states import FENCE, PREPARE_COMMIT, Place, Transaction
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

log = logging.getLogger(__name__)

_VERSION: Final = 2
_BACKOFF_S: Final = 0.02
_BACKOFF_MAX_S: Final = 1.0


class _FencedError(Exception):
    """Another coordinator has taken over."""


class MarkerSender:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._tasks: dict[asyncio.Task[None], None] = {}

    def send(
        self, txn: Transaction, coordinator_epoch: int, is_wanted: Callable[[], bool], done: Callable[[], None]
    ) -> None:
        """Calls `done` when every partition has the marker; stops when it is not wanted any more."""
        task = self._broker.loop.create_task(self._send(txn, coordinator_epoch, is_wanted, done))
        self._tasks[task] = None
        task.add_done_callback(self._finished)

    def _finished(self, task: "asyncio.Task[None]") -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            log.error("failed to end a transaction", exc_info=task.exception())

    def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()

    async def fence(self, txn: Transaction, coordinator_epoch: int, is_wanted: Callable[[], bool]) -> bool:
        """Whether every partition of an open transaction knows that nothing more of it may come."""
        return await self._bring(txn, coordinator_epoch, FENCE, is_wanted)

    async def _send(
        self, txn: Transaction, coordinator_epoch: int, is_wanted: Callable[[], bool], done: Callable[[], None]
    ) -> None:
        if await self._bring(txn, coordinator_epoch, txn.client_version, is_wanted):
            done()

    async def _bring(
        self, txn: Transaction, coordinator_epoch: int, version: int, is_wanted: Callable[[], bool]
    ) -> bool:
        missing = dict.fromkeys(txn.partitions)
        backoff_s = _BACKOFF_S
        while is_wanted():
            try:
                for node_id, places in self._by_leader(missing).items():
                    for place in await self._send_to(node_id, places, txn, coordinator_epoch, version):
                        missing.pop(place, None)
            except _FencedError:
                return False
            if not missing:
                return is_wanted()
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, _BACKOFF_MAX_S)
        return False

    def _by_leader(self, missing: dict[Place, None]) -> dict[int, list[Place]]:
        """Where the markers go; partitions that are gone are taken out, those without a leader must wait."""
        by_leader: dict[int, list[Place]] = {}
        for place in list(missing):
            state = self._broker.image.partition(*place)
            if state is None:
                del missing[place]
            elif state.leader != NO_LEADER:
                by_leader.setdefault(state.leader, []).append(place)
        return by_leader

    async def _send_to(
        self, node_id: int, places: list[Place], txn: Transaction, coordinator_epoch: int, version: int
    ) -> list[Place]:
        """The partitions that need no marker any more."""
        by_topic: dict[str, list[int]] = {}
        for topic, index in places:
            by_topic.setdefault(topic, []).append(index)
        request = WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=txn.producer_id,
                    producer_epoch=txn.producer_epoch,
                    transaction_result=txn.state is PREPARE_COMMIT,
                    topics=[WritableTxnMarkerTopic(name=name, partition_indexes=ids) for name, ids in by_topic.items()],
                    coordinator_epoch=coordinator_epoch,
                    transaction_version=version,
                )
            ]
        )
        try:
            answer = await self._broker.peers.send(node_id, request, _VERSION)
        except RemoteError as error:
            log.debug("markers are sent again: %s", error, extra={"node": node_id})
            return []
        assert isinstance(answer, WriteTxnMarkersResponse)
        return [
            (topic.name, result.partition_index)
            for marker in answer.markers
            for topic in marker.topics
            for result in topic.partitions
            if self._is_done(ErrorCode(result.error_code), txn, topic.name, result.partition_index)
        ]

    def _is_done(self, code: ErrorCode, txn: Transaction, topic: str, index: int) -> bool:
        if code is ErrorCode.NONE:
            return True
        where = {"transactional_id": txn.transactional_id, "partition": f"{topic}-{index}"}
        if code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            log.warning("another coordinator ends a transaction", extra=where)
            raise _FencedError
        if code is ErrorCode.INVALID_PRODUCER_EPOCH:
            log.error("a partition has seen a later epoch than that of the transaction that ends", extra=where)
            return True
        log.debug("a marker is sent again: %s", code.name, extra=where)
        return False
