"""Lets the first batch of a transaction in: the partition's leader asks the coordinator before it takes it (KIP-890).

A client of transaction version 2 (Produce 12, TxnOffsetCommit 5) does not add partitions itself: the leader has them
added. For older ones the leader verifies that they were. What the coordinator says is the answer for the partition, in
the words that the client of that version knows.

While a producer's first batch waits, its later requests wait behind it: they would be out of order.
"""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mainstem.broker.topic_creation import TRANSACTION_STATE
from mainstem.core.controller.states import NO_LEADER
from mainstem.core.log.verification import NO_GUARD
from mainstem.core.txn.states import Place
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.java import coordinator_partition
from mainstem.protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

_VERIFY_VERSION: Final = 4
_ADD_VERSION: Final = 5
_FIRST_BACKOFF_S: Final = 0.001


class ProducerBatch(NamedTuple):
    """What the leader must know of a batch that may begin a transaction."""

    producer_id: int
    epoch: int
    first_sequence: int


class Admitted:
    """What may be appended: guards by partition, and why others may not."""

    __slots__ = ("errors", "guards")

    def __init__(self) -> None:
        self.guards: dict[Place, int] = {}
        self.errors: dict[Place, RemoteError] = {}


class Verification:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._waiting: dict[int, asyncio.Task[None]] = {}
        """The last request of a producer that waits, by producer id."""
        self._retry_backoff_s = broker.config.get_int("add.partitions.to.txn.retry.backoff.ms", at_least=1) / 1000
        self._retry_max_s = broker.config.get_int("add.partitions.to.txn.retry.backoff.max.ms", at_least=0) / 1000

    def is_waiting(self, producer_id: int) -> bool:
        return producer_id in self._waiting

    def run_in_order(self, producer_id: int, work: Coroutine[Any, Any, None]) -> None:
        """Runs `work` when what the producer sent before is done. It must not fail."""
        task = self._broker.loop.create_task(self._after(self._waiting.get(producer_id), work))
        self._waiting[producer_id] = task
        task.add_done_callback(lambda done: self._done(producer_id, done))

    async def _after(self, before: "asyncio.Task[None] | None", work: Coroutine[Any, Any, None]) -> None:
        try:
            if before is not None and not before.done():
                await asyncio.wait([before])
            await work
        finally:
            work.close()

    def close(self) -> None:
        """Nobody is let in any more."""
        for task in list(self._waiting.values()):
            task.cancel()

    def _done(self, producer_id: int, task: "asyncio.Task[None]") -> None:
        if self._waiting.get(producer_id) is task:
            del self._waiting[producer_id]

    async def admit(
        self,
        transactional_id: str,
        batches: dict[Place, ProducerBatch],
        raises_epoch: bool,
        knows_abortable: bool = True,
    ) -> Admitted:
        """Asks the coordinator about the partitions whose batch would begin a transaction there.

        `raises_epoch` is transaction version 2; `knows_abortable` is whether the client knows TRANSACTION_ABORTABLE.
        """
        admitted = Admitted()
        asked: dict[Place, ProducerBatch] = {}
        for place, batch in batches.items():
            try:
                partition = self._broker.partitions.find(*place)
                if not raises_epoch and not partition.log.verifies_transactions:
                    continue
                guard = partition.begin_verification(batch.producer_id, batch.epoch, batch.first_sequence, raises_epoch)
            except RemoteError as error:
                admitted.errors[place] = error
                continue
            if guard != NO_GUARD:
                admitted.guards[place] = guard
                asked[place] = batch
        if asked:
            batch = next(iter(asked.values()))
            codes = await self._ask_until_ready(transactional_id, batch, list(asked), raises_epoch)
            for place, code in codes.items():
                if code is not ErrorCode.NONE:
                    admitted.errors[place] = _as_told(code, knows_abortable)
                    del admitted.guards[place]
        return admitted

    async def _ask_until_ready(
        self, transactional_id: str, batch: ProducerBatch, places: list[Place], raises_epoch: bool
    ) -> dict[Place, ErrorCode]:
        """The last transaction may still be completing when a client of version 2 begins the next: that is waited for
        a little, as most often it is done at once."""
        loop = self._broker.loop
        until = loop.time() + self._retry_max_s
        backoff_s = _FIRST_BACKOFF_S
        while True:
            codes = await self._ask(transactional_id, batch, places, raises_epoch)
            busy = any(code is ErrorCode.CONCURRENT_TRANSACTIONS for code in codes.values())
            if not busy or not raises_epoch or loop.time() >= until:
                return codes
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, self._retry_backoff_s)

    async def _ask(
        self, transactional_id: str, batch: ProducerBatch, places: list[Place], raises_epoch: bool
    ) -> dict[Place, ErrorCode]:
        by_topic: dict[str, list[int]] = {}
        for topic, index in places:
            by_topic.setdefault(topic, []).append(index)
        request = AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=transactional_id,
                    producer_id=batch.producer_id,
                    producer_epoch=batch.epoch,
                    verify_only=not raises_epoch,
                    topics=[AddPartitionsToTxnTopic(name=name, partitions=ids) for name, ids in by_topic.items()],
                )
            ]
        )
        try:
            coordinator = self._coordinator(transactional_id)
            answer = await self._broker.peers.send(
                coordinator, request, _ADD_VERSION if raises_epoch else _VERIFY_VERSION
            )
        except RemoteError as error:
            return dict.fromkeys(places, error.code)
        assert isinstance(answer, AddPartitionsToTxnResponse)
        if answer.error_code != ErrorCode.NONE:
            return dict.fromkeys(places, ErrorCode(answer.error_code))
        return {
            (topic.name, result.partition_index): ErrorCode(result.partition_error_code)
            for transaction in answer.results_by_transaction
            for topic in transaction.topic_results
            for result in topic.results_by_partition
        }

    def _coordinator(self, transactional_id: str) -> int:
        topic = self._broker.image.topics.get(TRANSACTION_STATE)
        if topic is not None:
            leader = topic.partitions[coordinator_partition(transactional_id, len(topic.partitions))].leader
            if leader != NO_LEADER:
                return leader
        raise RemoteError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{TRANSACTION_STATE} has no leader")


def _as_told(code: ErrorCode, knows_abortable: bool) -> RemoteError:
    if code is ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    elif code is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        code = ErrorCode.INVALID_TXN_STATE
    return RemoteError(code, "the partition could not be added to the transaction, or is not part of it")
