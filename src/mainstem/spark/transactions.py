"""The requests of transactions, one by one, as the exactly-once sink needs them.

A producer that keeps a transaction to itself is not enough here: a task opens one, another process ends it. Any process
that knows the transactional id, the producer id and the epoch may.

Where the cluster has transactions of version 2 (KIP-890), producing adds a partition by itself and ending one bumps the
epoch; where not, partitions are added first. `EndTxn` is answered before the markers are written; `wait_until_complete`
waits for them.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from mainstem.client.cluster import Cluster, CoordinatorKind
from mainstem.client.connection import BrokerConnection
from mainstem.client.errors import (
    ConcurrentTransactionsError,
    InvalidTxnTimeoutError,
    KafkaError,
    KafkaTimeoutError,
    error_for,
    raise_for,
)
from mainstem.protocol.api import ApiKey
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from mainstem.protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from mainstem.protocol.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from mainstem.protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from mainstem.protocol.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from mainstem.protocol.messages.k66_list_transactions import ListTransactionsRequest, ListTransactionsResponse
from mainstem.spark.offsets import Partition

R = TypeVar("R")

TIMEOUT_MS: Final = 60_000
DEFAULT_MAX_TIMEOUT_MS: Final = 900_000
LEAST_TIMEOUT_MS: Final = 60_000
NO_TIMEOUT_MS: Final = 0x7FFFFFFF
"""What a transaction of two-phase commit has."""

BROKER_RESOURCE: Final = 4
MAX_TIMEOUT_KEY: Final = "transaction.max.timeout.ms"
_INIT: Final = 5
_INIT_TWO_PHASE: Final = 6
_ADD_PARTITIONS_BY_CLIENTS: Final = 3
_END_V1: Final = 4
_END_V2: Final = 5
_SOON_S: Final = 0.002

EMPTY: Final = "Empty"
ONGOING: Final = "Ongoing"
COMPLETE_COMMIT: Final = "CompleteCommit"
PREPARING: Final = frozenset({"PrepareCommit", "PrepareAbort", "PrepareEpochFence"})


class Triple(NamedTuple):
    """One transaction, for whoever is to end it."""

    transactional_id: str
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Described:
    triple: Triple
    state: str
    timeout_ms: int
    started_ms: int


class Transactions:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._max_timeout_ms: int | None = None

    async def is_v2(self) -> bool:
        connection = await self._any_node()
        return (
            connection.features.get("transaction.version", 0) >= 2
            and connection.versions.get(ApiKey.END_TXN, (0, 0))[1] >= _END_V2
        )

    async def init(self, transactional_id: str, *, two_phase: bool = False) -> Triple:
        """Takes the id over: whatever is open under it is aborted first. Waits until that has happened.

        A transaction of `two_phase` has no time-out (KIP-939); ValueError where the brokers do not offer that.
        """
        timeout_ms = await self.timeout_ms()
        while True:
            try:
                return await self._asked(
                    transactional_id, lambda connection: self._init(connection, transactional_id, two_phase)
                )
            except InvalidTxnTimeoutError:
                if timeout_ms <= LEAST_TIMEOUT_MS:
                    raise
                timeout_ms = self._max_timeout_ms = max(LEAST_TIMEOUT_MS, timeout_ms // 2)

    async def _init(self, connection: BrokerConnection, transactional_id: str, two_phase: bool) -> Triple:
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=await self.timeout_ms(),
            enable2_pc=two_phase,
        )
        version = connection.version_for(ApiKey.INIT_PRODUCER_ID, _INIT_TWO_PHASE if two_phase else _INIT)
        if two_phase and version < _INIT_TWO_PHASE:
            raise ValueError(
                f"twoPhaseCommit: broker {connection.name} does not offer two-phase commit; set "
                "transaction.two.phase.commit.enable=true on brokers of Mainstem, or leave the option out"
            )
        answer = await connection.ask(request, InitProducerIdResponse, version=version)
        raise_for(answer.error_code, f"InitProducerId of {transactional_id}", broker=connection.name)
        return Triple(transactional_id, answer.producer_id, answer.producer_epoch)

    async def init_idempotent(self) -> Triple:
        """A producer id without transactions, whose epoch is never anybody else's."""

        async def attempt() -> Triple:
            connection = await self._cluster.any_node()
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
            version = connection.version_for(ApiKey.INIT_PRODUCER_ID, _INIT)
            answer = await connection.ask(request, InitProducerIdResponse, version=version)
            raise_for(answer.error_code, "InitProducerId", broker=connection.name)
            return Triple("", answer.producer_id, answer.producer_epoch)

        return await self._cluster.retrying(attempt, TIMEOUT_MS, "getting a producer id")

    async def add_partitions(self, triple: Triple, partitions: Iterable[Partition]) -> None:
        """Only where `is_v2` is false."""
        topics: dict[str, list[int]] = defaultdict(list)
        for topic, number in sorted(partitions):
            topics[topic].append(number)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=triple.transactional_id,
            v3_and_below_producer_id=triple.producer_id,
            v3_and_below_producer_epoch=triple.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=numbers) for topic, numbers in topics.items()
            ],
        )

        async def attempt(connection: BrokerConnection) -> None:
            version = connection.version_for(ApiKey.ADD_PARTITIONS_TO_TXN, _ADD_PARTITIONS_BY_CLIENTS)
            answer = await connection.ask(request, AddPartitionsToTxnResponse, version=version)
            failed = [
                error_for(
                    part.partition_error_code, "AddPartitionsToTxn", topic=topic.name, partition=part.partition_index
                )
                for topic in answer.results_by_topic_v3_and_below
                for part in topic.results_by_partition
                if part.partition_error_code not in (0, ErrorCode.OPERATION_NOT_ATTEMPTED)
            ]
            if failed:
                raise failed[0]

        await self._asked(triple.transactional_id, attempt)

    async def end(self, triple: Triple, commit: bool) -> int:
        """The error code of ending it, 0 when it is done or has been. What can be tried again has been."""
        version = _END_V2 if await self.is_v2() else _END_V1

        async def attempt(connection: BrokerConnection) -> int:
            request = EndTxnRequest(
                transactional_id=triple.transactional_id,
                producer_id=triple.producer_id,
                producer_epoch=triple.epoch,
                committed=commit,
            )
            asked = connection.version_for(ApiKey.END_TXN, version)
            answer = await connection.ask(request, EndTxnResponse, version=asked)
            error = error_for(answer.error_code, "EndTxn", broker=connection.name) if answer.error_code else None
            if error is not None and (error.retriable or error.is_lost_coordinator):
                raise error
            return int(answer.error_code)

        return await self._asked(triple.transactional_id, attempt)

    async def fence(self, triple: Triple) -> None:
        """Aborts what is open, and has nothing more come of it, also where nothing was begun yet.

        Version 2 raises the epoch with every end. Before that only `InitProducerId` does.
        """
        if await self.is_v2():
            await self.end(triple, False)
        else:
            await self.init(triple.transactional_id)

    async def ongoing(self, prefix: str) -> list[str]:
        """The ids that begin with `prefix` and have an open transaction, on any broker."""
        return await self.listed(prefix, [ONGOING])

    async def listed(self, prefix: str, states: list[str]) -> list[str]:
        """The ids that begin with `prefix` and are in one of `states`, on any broker."""
        await self._any_node()

        async def ask(node: int) -> list[str]:
            connection = await self._cluster.node(node)
            request = ListTransactionsRequest(state_filters=states, producer_id_filters=[])
            answer = await connection.ask(request, ListTransactionsResponse)
            raise_for(answer.error_code, "ListTransactions", broker=connection.name)
            return [each.transactional_id for each in answer.transaction_states]

        async def attempt() -> list[str]:
            lists = await asyncio.gather(*(ask(node) for node in self._cluster.cache.brokers))
            return sorted({found for some in lists for found in some if found.startswith(prefix)})

        return await self._cluster.retrying(attempt, TIMEOUT_MS, "listing transactions")

    async def describe(self, ids: Iterable[str]) -> dict[str, Described]:
        """Those of the ids that there are."""

        async def ask(transactional_id: str) -> list[Described]:
            async def attempt(connection: BrokerConnection) -> list[Described]:
                request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
                answer = await connection.ask(request, DescribeTransactionsResponse)
                found = []
                for each in answer.transaction_states:
                    if each.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                        continue
                    raise_for(each.error_code, f"DescribeTransactions of {transactional_id}", broker=connection.name)
                    triple = Triple(each.transactional_id, each.producer_id, each.producer_epoch)
                    found.append(
                        Described(
                            triple,
                            each.transaction_state,
                            each.transaction_timeout_ms,
                            each.transaction_start_time_ms,
                        )
                    )
                return found

            return await self._asked(transactional_id, attempt)

        lists = await asyncio.gather(*(ask(each) for each in ids))
        return {each.triple.transactional_id: each for some in lists for each in some}

    async def wait_until_complete(self, triples: Iterable[Triple]) -> None:
        """Returns when none of them is between its end and its markers."""
        waiting = {triple.transactional_id for triple in triples}
        deadline = asyncio.get_running_loop().time() + TIMEOUT_MS / 1000
        pause_s = _SOON_S
        while waiting:
            described = await self.describe(waiting)
            waiting = {each.triple.transactional_id for each in described.values() if each.state in PREPARING}
            if not waiting:
                return
            if asyncio.get_running_loop().time() > deadline:
                raise KafkaTimeoutError(f"the markers of {', '.join(sorted(waiting))} were not written in a minute")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.1)

    async def timeout_ms(self) -> int:
        """How long transactions here may take, the longest that brokers allow: they stay open until it is decided."""
        if self._max_timeout_ms is None:
            self._max_timeout_ms = await self._ask_max_timeout_ms()
        return self._max_timeout_ms

    async def _ask_max_timeout_ms(self) -> int:
        connection = await self._any_node()
        node = connection.node_id if connection.node_id >= 0 else min(self._cluster.cache.brokers)
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=BROKER_RESOURCE, resource_name=str(node), configuration_keys=[MAX_TIMEOUT_KEY]
                )
            ]
        )
        try:
            answer = await (await self._cluster.node(node)).ask(request, DescribeConfigsResponse)
        except KafkaError:
            return DEFAULT_MAX_TIMEOUT_MS
        for result in answer.results:
            for config in result.configs:
                if result.error_code == 0 and config.name == MAX_TIMEOUT_KEY and config.value:
                    return int(config.value)
        return DEFAULT_MAX_TIMEOUT_MS

    async def _any_node(self) -> BrokerConnection:
        """Where one is known, all are. They may be away for a moment, at any step."""

        async def attempt() -> BrokerConnection:
            connection = await self._cluster.any_node()
            if not self._cluster.cache.brokers:
                await self._cluster.update()
            return connection

        return await self._cluster.retrying(attempt, TIMEOUT_MS, "reaching a broker")

    async def _asked(self, transactional_id: str, attempt: Callable[[BrokerConnection], Awaitable[R]]) -> R:
        """Asks the coordinator, a new one where it has moved, and again soon while the id's last transaction ends."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + TIMEOUT_MS / 1000
        pause_s = _SOON_S
        pauses = self._cluster.backoff()
        while True:
            try:
                connection = await self._cluster.coordinator(CoordinatorKind.TRANSACTION, transactional_id)
                return await attempt(connection)
            except ConcurrentTransactionsError as error:
                last: KafkaError = error
                wait_s, pause_s = pause_s, min(2 * pause_s, 0.1)
            except KafkaError as error:
                if not error.retriable and not error.is_lost_coordinator:
                    raise
                self._cluster.forget_coordinator(CoordinatorKind.TRANSACTION, transactional_id)
                last, wait_s = error, pauses.next_s()
            if loop.time() + wait_s > deadline:
                raise KafkaTimeoutError(f"the coordinator of {transactional_id} did not do it in a minute") from last
            await asyncio.sleep(wait_s)
