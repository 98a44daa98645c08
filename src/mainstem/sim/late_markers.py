"""Markers that come once more when their producer has begun its next transaction on the same partition (N10).

Under version 2 the next transaction has the epoch of the marker before it, so that nothing but the leader's look at
what is open keeps a late marker from ending it (KIP-890, T8). Left to chance the two hardly ever meet: by the time that
a producer writes there again, whatever was late of its last marker is long there. So a copy waits for that batch.

Under version 1 nobody could tell: such markers are never held.
"""

import contextlib
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from mainstem.broker.drivers.controller import Deliver
from mainstem.core.txn.states import TV2
from mainstem.protocol.batch import BatchView
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from mainstem.sim.checkers import Checker
from mainstem.sim.draws import squared
from mainstem.sim.ledger import Place
from mainstem.sim.loop import SimLoop
from mainstem.sim.verified import Whose

if TYPE_CHECKING:
    from mainstem.sim.world import World

SHARES: Final = (0.0, 0.6, 0.6)
"""Of the markers of a run, of how many a copy waits."""
_LATER_S: Final = 0.05
"""How long after the batch the copy comes, at most: while most transactions are open."""


@dataclass(frozen=True, slots=True)
class _Held:
    request: WriteTxnMarkersRequest
    version: int
    deliver: Deliver
    loop: SimLoop


class LateMarkers(Checker):
    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self.share = 0.0
        self._rng = Random(f"{world.seed}:late markers")
        self._held: dict[Whose, _Held] = {}
        """By partition, producer and epoch of the marker, which is that of the next transaction."""

    def sent(self, message: WriteTxnMarkersRequest, version: int, deliver: Deliver) -> None:
        """The coordinator sends these to a leader; whatever becomes of that, a copy may come when it should not."""
        loop = self.world.process.loop
        if not self.share or loop is None or self.world.nemesis.is_over:
            return
        for marker in message.markers:
            if marker.transaction_version < TV2 or self._rng.random() >= self.share:
                continue
            for topic in marker.topics:
                for index in topic.partition_indexes:
                    whose = ((topic.name, index), marker.producer_id, marker.producer_epoch)
                    self._held[whose] = _Held(_copy(marker, topic.name, index), version, deliver, loop)

    def appended(self, place: Place, batch: BatchView) -> None:
        if not self._held or batch.is_control or not batch.is_transactional:
            return
        whose = (place, batch.producer_id, batch.producer_epoch)
        held = self._held.pop(whose, None)
        if held is None or held.loop is not self.world.process.loop or self.world.nemesis.is_over:
            return
        held.loop.call_later(squared(self._rng) * _LATER_S, lambda: held.loop.create_task(self._come(held, whose)))

    async def _come(self, held: _Held, whose: Whose) -> None:
        begun = self._open_since(whose)
        with contextlib.suppress(RemoteError):
            answer = await held.deliver(held.request, held.version)
            assert isinstance(answer, WriteTxnMarkersResponse)
            code = answer.markers[0].topics[0].partitions[0].error_code
            is_refused = code == ErrorCode.INVALID_PRODUCER_EPOCH
            if is_refused and begun is not None and begun == self._open_since(whose):
                self.world.count("late marker refused in the next transaction")

    def _open_since(self, whose: Whose) -> int | None:
        transactions = self.world.txn_logs.partitions.get(whose[0])
        return None if transactions is None else transactions.open.get(whose[1])

    def forget(self) -> None:
        self._held.clear()


def _copy(marker: WritableTxnMarker, topic: str, index: int) -> WriteTxnMarkersRequest:
    """Of what goes to one partition."""
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.transaction_result,
                topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.transaction_version,
            )
        ]
    )
