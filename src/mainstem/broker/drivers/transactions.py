"""The transaction coordinator of this broker: it finds the shard of a transactional id, asks it, and does as ordered.

Every method returns what the machine answers, or raises the RemoteError that the API turns into its answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from mainstem.broker.config import BrokerConfig
from mainstem.broker.drivers.coordinator import CoordinatorRuntime, PartitionLog, Shard
from mainstem.broker.drivers.markers import MarkerSender
from mainstem.broker.features import TRANSACTION_VERSION
from mainstem.broker.topic_creation import TRANSACTION_STATE
from mainstem.core.controller.image import ClusterImage, ImageDelta
from mainstem.core.coordinator.effects import Outcome
from mainstem.core.txn.config import TxnConfig
from mainstem.core.txn.machine import (
    AbortTimedOut,
    Client,
    InitBy,
    NeedsProducerIdError,
    Producer,
    SendMarkers,
    TxnMachine,
    check_init,
)
from mainstem.core.txn.states import NO_ID, Place, Transaction
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.java import coordinator_partition

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

log = logging.getLogger(__name__)

T = TypeVar("T")
Step = Callable[[TxnMachine, asyncio.Future[object], int], Outcome]
StepWithId = Callable[[TxnMachine, asyncio.Future[object], int, int], Outcome]


def txn_config(config: BrokerConfig) -> TxnConfig:
    return TxnConfig(
        timeout_max_ms=config.get_int("transaction.max.timeout.ms", at_least=1),
        expiration_ms=config.get_int("transactional.id.expiration.ms", at_least=1),
        expiration_check_ms=config.get_int("transaction.remove.expired.transaction.cleanup.interval.ms", at_least=1),
        timeout_check_ms=config.get_int("transaction.abort.timed.out.transaction.cleanup.interval.ms", at_least=1),
        two_phase_commit=config.get_bool("transaction.two.phase.commit.enable"),
    )


class Transactions:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.config = txn_config(broker.config)
        self._markers = MarkerSender(broker)
        self._fence_timeout_s = broker.config.get_int("request.timeout.ms", at_least=1) / 1000
        self._aborting: dict[asyncio.Task[None], None] = {}
        self.runtime: CoordinatorRuntime[TxnMachine] = CoordinatorRuntime(
            broker.loop, broker.clock, TRANSACTION_STATE, self._make_machine, carry_out=self._carry_out
        )

    @property
    def server_version(self) -> int:
        """The finalized `transaction.version`; what was never finalized is 0."""
        return self._broker.features.finalized().get(TRANSACTION_VERSION, 0)

    def _make_machine(self) -> TxnMachine:
        return TxnMachine(self.config, self.server_version)

    def follow(self, image: ClusterImage, delta: ImageDelta) -> None:
        """Takes on and gives up shards as the partitions of the topic are led here or not; follows the features."""
        for topic_id, index in delta.partitions:
            topic = image.topics_by_id.get(topic_id)
            if topic is not None and topic.name == TRANSACTION_STATE:
                partition = self._broker.partitions.get(TRANSACTION_STATE, index)
                if partition is not None and partition.leader is not None:
                    held = PartitionLog(self._broker.loop, partition)
                    self.runtime.elected(index, partition.leader.epoch, held)
                else:
                    self.runtime.resigned(index)
        removed = any(topic.name == TRANSACTION_STATE for topic in delta.removed_topics.values())
        if removed and TRANSACTION_STATE not in image.topics:
            self.runtime.close()
        for shard in self.runtime.shards.values():
            shard.machine.server_version = self.server_version

    def close(self) -> None:
        self._markers.close()
        for task in list(self._aborting):
            task.cancel()
        self.runtime.close()

    # What machines order

    def _carry_out(self, shard: Shard[TxnMachine], what: object) -> None:
        match what:
            case SendMarkers(txn):
                self._markers.send(
                    txn,
                    shard.epoch,
                    lambda: shard.is_serving,
                    lambda: shard.tell(lambda machine, now_ms: machine.markers_written(txn, now_ms)),
                )
            case AbortTimedOut(txns):
                task = self._broker.loop.create_task(self._abort_timed_out(shard, txns))
                self._aborting[task] = None
                task.add_done_callback(lambda done: self._aborting.pop(done, None))
            case _:
                raise AssertionError(f"{what!r} is not an order of transactions")

    async def _abort_timed_out(self, shard: Shard[TxnMachine], txns: tuple[Transaction, ...]) -> None:
        for txn in txns:
            try:
                await self._ask_with_id(shard, partial(_abort, txn))
            except RemoteError as error:
                # It is still open, and the next look finds it again.
                log.warning(
                    "could not abort a transaction: %s", error, extra={"transactional_id": txn.transactional_id}
                )

    # Asking

    def _shard(self, transactional_id: str) -> Shard[TxnMachine]:
        topic = self._broker.image.topics.get(TRANSACTION_STATE)
        if topic is None:
            raise RemoteError(ErrorCode.NOT_COORDINATOR, f"{TRANSACTION_STATE} does not exist yet")
        return self.runtime.shard(coordinator_partition(transactional_id, len(topic.partitions)))

    async def _ask_with_id(self, shard: Shard[TxnMachine], step: StepWithId) -> object:
        """Asks, and asks again with a fresh producer id where one is needed."""
        try:
            asked = shard.ask(lambda machine, ticket, now_ms: step(machine, ticket, now_ms, NO_ID))
        except NeedsProducerIdError:
            fresh_id = await self._broker.producer_ids.take()
            asked = shard.ask(lambda machine, ticket, now_ms: step(machine, ticket, now_ms, fresh_id))
        return await asked

    async def _ask(self, kind: type[T], transactional_id: str, step: Step) -> T:
        if not transactional_id:
            raise RemoteError(ErrorCode.INVALID_REQUEST, "a transactional id is not empty")
        answer = await self._shard(transactional_id).ask(step)
        assert isinstance(answer, kind), f"{answer!r} is not a {kind.__name__}"
        return answer

    async def init_producer_id(self, by: InitBy) -> Producer:
        check_init(by, self.config)
        shard = self._shard(by.transactional_id)
        answer = await self._ask_with_id(
            shard,
            lambda machine, ticket, now_ms, fresh_id: machine.init_producer_id(ticket, by, now_ms, fresh_id),
        )
        assert isinstance(answer, Producer)
        if answer.ongoing_producer_id != NO_ID:
            await self._fence(shard, by.transactional_id, answer)
        return answer

    async def _fence(self, shard: Shard[TxnMachine], transactional_id: str, given: Producer) -> None:
        """Sees to it that whoever had the transaction before adds nothing more to it, before anyone is told that it
        passed to another client (T4). That it did is written: a leader that loses the fence asks this coordinator."""
        txn = await self.describe(transactional_id)
        if (txn.client_id, txn.client_epoch) != (given.producer_id, given.epoch):
            return  # Yet another client has come, or it has ended: this one will hear that it is fenced itself.
        until = self._broker.loop.time() + self._fence_timeout_s
        if not await self._markers.fence(
            txn, shard.epoch, lambda: shard.is_serving and self._broker.loop.time() < until
        ):
            raise RemoteError(ErrorCode.CONCURRENT_TRANSACTIONS, "not every partition could be told: try again")

    async def add_partitions(self, client: Client, places: tuple[Place, ...]) -> None:
        await self._ask(
            ErrorCode,
            client.transactional_id,
            lambda machine, ticket, now_ms: machine.add_partitions(ticket, client, places, now_ms),
        )

    async def verify_partitions(self, client: Client, places: tuple[Place, ...]) -> list[ErrorCode]:
        return await self._ask(
            list,
            client.transactional_id,
            lambda machine, ticket, now_ms: machine.verify_partitions(ticket, client, places),
        )

    async def end(self, client: Client, commit: bool) -> Producer:
        if not client.transactional_id:
            raise RemoteError(ErrorCode.INVALID_REQUEST, "a transactional id is not empty")
        answer = await self._ask_with_id(
            self._shard(client.transactional_id),
            lambda machine, ticket, now_ms, fresh_id: machine.end(ticket, client, commit, now_ms, fresh_id),
        )
        assert isinstance(answer, Producer)
        return answer

    async def describe(self, transactional_id: str) -> Transaction:
        return await self._ask(
            Transaction,
            transactional_id,
            lambda machine, ticket, now_ms: machine.describe(ticket, transactional_id),
        )

    async def list_transactions(
        self,
        states: Iterable[str],
        producer_ids: Iterable[int],
        duration_ms: int,
        is_named: Callable[[str], object] | None,
    ) -> list[Transaction]:
        """The transactions of every shard here; RemoteError while one is loading, whose own would be missing."""
        shards = list(self.runtime.shards.values())
        if any(shard.is_loading for shard in shards):
            raise RemoteError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "transactions are still being read")
        asked = [
            shard.ask(
                lambda machine, ticket, now_ms: machine.list_transactions(
                    ticket, states, producer_ids, duration_ms, is_named, now_ms
                )
            )
            for shard in shards
            if shard.is_serving
        ]
        found: list[Transaction] = []
        for answer in asked:
            listed = await answer
            assert isinstance(listed, list)
            found += listed
        return found


def _abort(
    txn: Transaction, machine: TxnMachine, ticket: asyncio.Future[object], now_ms: int, fresh_id: int
) -> Outcome:
    return machine.abort_timed_out(ticket, txn, now_ms, fresh_id)
