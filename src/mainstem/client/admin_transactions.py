"""Producers and transactions: who writes to a partition, what is open, and ending what hangs.

A transaction is ended in one of two ways. `fence_producers` takes the transactional id over, so that its coordinator
aborts what is open: the usual way. `abort_transaction` writes the abort marker straight to one partition, for a
transaction that no coordinator knows any more and that holds back read_committed consumers (KIP-664).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mainstem.client.admin_base import AdminBase, outcome
from mainstem.client.cluster import CoordinatorKind
from mainstem.client.connection import BrokerConnection
from mainstem.client.errors import InvalidRequestError, KafkaError, error_for
from mainstem.client.types import TopicPartition
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from mainstem.protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from mainstem.protocol.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from mainstem.protocol.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from mainstem.protocol.messages.k66_list_transactions import ListTransactionsRequest, ListTransactionsResponse


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer that a partition remembers. `transaction_start` is -1 while it has none open there."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start: int


@dataclass(frozen=True, slots=True)
class TransactionListing:
    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """`start_time_ms` is -1 while nothing is open."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_time_ms: int
    partitions: tuple[TopicPartition, ...]


class TransactionAdmin(AdminBase):
    async def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, list[ProducerState]]:
        async def ask(
            connection: BrokerConnection, theirs: dict[str, list[int]]
        ) -> dict[TopicPartition, list[ProducerState] | KafkaError]:
            topics = [TopicRequest(name=topic, partition_indexes=at) for topic, at in theirs.items()]
            answer = await connection.ask(DescribeProducersRequest(topics=topics), DescribeProducersResponse)
            results: dict[TopicPartition, list[ProducerState] | KafkaError] = {}
            for topic in answer.topics:
                for each in topic.partitions:
                    states = [
                        ProducerState(
                            one.producer_id,
                            one.producer_epoch,
                            one.last_sequence,
                            one.last_timestamp,
                            one.coordinator_epoch,
                            one.current_txn_start_offset,
                        )
                        for one in each.active_producers
                    ]
                    tp = TopicPartition(topic.name, each.partition_index)
                    results[tp] = outcome(
                        states, each.error_code, each.error_message, topic=tp.topic, partition=tp.partition
                    )
            return results

        async def attempt(asked: list[TopicPartition]) -> dict[TopicPartition, list[ProducerState] | KafkaError]:
            return await self._by_leader(asked, ask)

        return await self._each(partitions, attempt, "describing producers")

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """Every transactional id that a coordinator knows, by id; the arguments leave out others."""
        wanted_states, wanted_ids = list(states), list(producer_ids)

        async def attempt(nodes: list[int]) -> dict[int, list[TransactionListing] | KafkaError]:
            results: dict[int, list[TransactionListing] | KafkaError] = {}
            for node_id in nodes:
                connection = await self.cluster.node(node_id)
                request = ListTransactionsRequest(
                    state_filters=wanted_states,
                    producer_id_filters=wanted_ids,
                    duration_filter=longer_than_ms,
                    transactional_id_pattern=pattern,
                )
                try:
                    answer = await connection.ask(request, ListTransactionsResponse)
                except ValueError as error:  # a filter that this broker's version has no field for
                    raise error_for(ErrorCode.UNSUPPORTED_VERSION, str(error), broker=connection.name) from error
                if answer.unknown_state_filters:
                    unknown = ", ".join(answer.unknown_state_filters)
                    raise InvalidRequestError(f"no transaction is ever in state {unknown}", broker=connection.name)
                found = [
                    TransactionListing(each.transactional_id, each.producer_id, each.transaction_state, node_id)
                    for each in answer.transaction_states
                ]
                results[node_id] = outcome(found, answer.error_code, "listing transactions", broker=connection.name)
            return results

        nodes = await self._once(self._brokers, "listing transactions")
        found = await self._each(nodes, attempt, "listing transactions")
        return sorted((each for listed in found.values() for each in listed), key=lambda one: one.transactional_id)

    async def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        async def ask(
            connection: BrokerConnection, theirs: list[str]
        ) -> dict[str, TransactionDescription | KafkaError]:
            answer = await connection.ask(
                DescribeTransactionsRequest(transactional_ids=theirs), DescribeTransactionsResponse
            )
            results: dict[str, TransactionDescription | KafkaError] = {}
            for each in answer.transaction_states:
                described = TransactionDescription(
                    each.transactional_id,
                    connection.node_id,
                    each.producer_id,
                    each.producer_epoch,
                    each.transaction_state,
                    each.transaction_timeout_ms,
                    each.transaction_start_time_ms,
                    tuple(TopicPartition(topic.topic, at) for topic in each.topics for at in sorted(topic.partitions)),
                )
                message = f"transactional id {each.transactional_id}"
                results[each.transactional_id] = outcome(described, each.error_code, message, broker=connection.name)
            return results

        async def attempt(asked: list[str]) -> dict[str, TransactionDescription | KafkaError]:
            return await self._by_coordinator(CoordinatorKind.TRANSACTION, asked, ask)

        return await self._each(transactional_ids, attempt, "describing transactions")

    async def abort_transaction(
        self, partition: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> None:
        """Writes an abort marker to one partition for a transaction that hangs there."""

        async def ask(
            connection: BrokerConnection, theirs: dict[str, list[int]]
        ) -> dict[TopicPartition, KafkaError | None]:
            marker = WritableTxnMarker(
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                transaction_result=False,
                topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=at) for topic, at in theirs.items()],
                coordinator_epoch=coordinator_epoch,
            )
            answer = await connection.ask(WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse)
            return {
                TopicPartition(topic.name, each.partition_index): outcome(
                    None, each.error_code, broker=connection.name, topic=topic.name, partition=each.partition_index
                )
                for written in answer.markers
                for topic in written.topics
                for each in topic.partitions
            }

        async def attempt(asked: list[TopicPartition]) -> dict[TopicPartition, KafkaError | None]:
            return await self._by_leader(asked, ask)

        await self._each([partition], attempt, "aborting a transaction")

    async def fence_producers(self, transactional_ids: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Takes transactional ids over: what is open is aborted, and producers that use them are fenced.

        Gives the producer id and the new epoch of each (KIP-588).
        """

        async def attempt(asked: list[str]) -> dict[str, tuple[int, int] | KafkaError]:
            results: dict[str, tuple[int, int] | KafkaError] = {}
            for each in asked:
                connection = await self._coordinator(CoordinatorKind.TRANSACTION, each)
                request = InitProducerIdRequest(transactional_id=each, transaction_timeout_ms=1)
                answer = await connection.ask(request, InitProducerIdResponse)
                found = (answer.producer_id, answer.producer_epoch)
                message = f"transactional id {each}"
                results[each] = outcome(found, answer.error_code, message, broker=connection.name)
            return results

        return await self._each(transactional_ids, attempt, "fencing producers")
