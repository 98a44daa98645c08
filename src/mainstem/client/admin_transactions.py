"""Transactions: listed, described, aborted where their producer is gone, and producers fenced."""

from __future__ import annotations

from collections.abc import Iterable

from mainstem.client.admin_base import AdminBase, raise_first
from mainstem.client.admin_types import TransactionDescription, TransactionListing
from mainstem.client.cluster import CoordinatorKind
from mainstem.client.connection import BrokerConnection
from mainstem.client.errors import (
    IllegalStateError,
    InvalidRequestError,
    KafkaError,
    UnsupportedVersionError,
    raise_for,
)
from mainstem.client.types import TopicPartition
from mainstem.protocol.api import ApiKey
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


class TransactionsAdmin(AdminBase):
    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
        timeout_ms: float | None = None,
    ) -> list[TransactionListing]:
        """The transactional ids that the coordinators know: all, or those in a state, of a producer, or that old.

        `pattern` is a regular expression that the ids match (Kafka 4.1 and later).
        """
        wanted_states, wanted_ids = list(states), list(producer_ids)

        async def ask(connection: BrokerConnection) -> list[TransactionListing]:
            version = connection.version_for(ApiKey.LIST_TRANSACTIONS)
            if longer_than_ms >= 0 and version < 1:
                raise UnsupportedVersionError("the broker cannot choose transactions by age", broker=connection.name)
            if pattern is not None and version < 2:
                raise UnsupportedVersionError("the broker cannot choose transactions by id", broker=connection.name)
            request = ListTransactionsRequest(
                state_filters=wanted_states,
                producer_id_filters=wanted_ids,
                duration_filter=longer_than_ms,
                transactional_id_pattern=pattern,
            )
            answer = await connection.ask(request, ListTransactionsResponse, version=version)
            raise_for(answer.error_code, "listing transactions", broker=connection.name)
            if answer.unknown_state_filters:
                states = ", ".join(answer.unknown_state_filters)
                raise InvalidRequestError(f"no transaction is ever in state {states}", broker=connection.name)
            return [
                TransactionListing(each.transactional_id, each.producer_id, each.transaction_state)
                for each in answer.transaction_states
            ]

        found = await self._on_every_broker(ask, timeout_ms, "listing transactions")
        return sorted({each for listings in found.values() for each in listings})

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout_ms: float | None = None
    ) -> dict[str, TransactionDescription]:
        """State, producer and partitions of each. TransactionalIdNotFoundError where the coordinator knows none."""
        described: dict[str, TransactionDescription] = {}
        failed: dict[str, KafkaError] = {}
        for name in transactional_ids:

            async def ask(connection: BrokerConnection, name: str = name) -> TransactionDescription:
                request = DescribeTransactionsRequest(transactional_ids=[name])
                answer = await connection.ask(request, DescribeTransactionsResponse)
                each = answer.transaction_states[0]
                raise_for(each.error_code, f"transactional id {name!r}", broker=connection.name)
                return TransactionDescription(
                    name,
                    connection.node_id,
                    each.transaction_state,
                    each.producer_id,
                    each.producer_epoch,
                    each.transaction_timeout_ms,
                    each.transaction_start_time_ms,
                    [TopicPartition(topic.topic, index) for topic in each.topics for index in topic.partitions],
                )

            try:
                described[name] = await self._on_coordinator(
                    CoordinatorKind.TRANSACTION, name, ask, timeout_ms, f"describing transaction {name!r}"
                )
            except KafkaError as error:
                failed[name] = error
        raise_first(failed)
        return described

    async def abort_transaction(
        self, tp: TopicPartition, start_offset: int, *, timeout_ms: float | None = None
    ) -> None:
        """Ends a transaction that hangs on one partition, whose coordinator has forgotten it (KIP-664).

        It is named by the partition and the offset at which it begins there, as `describe_producers` tells it.
        """

        async def ask(
            connection: BrokerConnection, asked: list[TopicPartition]
        ) -> dict[TopicPartition, bool | KafkaError]:
            request = DescribeProducersRequest(topics=[TopicRequest(name=tp.topic, partition_indexes=[tp.partition])])
            answer = await connection.ask(request, DescribeProducersResponse)
            partition = answer.topics[0].partitions[0]
            raise_for(partition.error_code, partition.error_message, topic=tp.topic, partition=tp.partition)
            found = [one for one in partition.active_producers if one.current_txn_start_offset == start_offset]
            if not found:
                raise IllegalStateError(
                    f"no transaction that begins at offset {start_offset} is open",
                    topic=tp.topic,
                    partition=tp.partition,
                )
            marker = WritableTxnMarker(
                producer_id=found[0].producer_id,
                producer_epoch=found[0].producer_epoch,
                transaction_result=False,
                topics=[WritableTxnMarkerTopic(name=tp.topic, partition_indexes=[tp.partition])],
                coordinator_epoch=max(found[0].coordinator_epoch, 0),
            )
            written = await connection.ask(WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse)
            result = written.markers[0].topics[0].partitions[0]
            raise_for(result.error_code, "aborting", broker=connection.name, topic=tp.topic, partition=tp.partition)
            return {tp: True}

        await self._on_leaders([tp], ask, timeout_ms, "aborting a transaction")

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout_ms: float | None = None
    ) -> dict[str, tuple[int, int]]:
        """Fences whoever uses these transactional ids and aborts what they have open; producer id and new epoch."""
        fenced: dict[str, tuple[int, int]] = {}
        failed: dict[str, KafkaError] = {}
        for name in transactional_ids:

            async def ask(connection: BrokerConnection, name: str = name) -> tuple[int, int]:
                request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1)
                answer = await connection.ask(request, InitProducerIdResponse)
                raise_for(answer.error_code, f"transactional id {name!r}", broker=connection.name)
                return answer.producer_id, answer.producer_epoch

            try:
                fenced[name] = await self._on_coordinator(
                    CoordinatorKind.TRANSACTION, name, ask, timeout_ms, f"fencing {name!r}"
                )
            except KafkaError as error:
                failed[name] = error
        raise_first(failed)
        return fenced
