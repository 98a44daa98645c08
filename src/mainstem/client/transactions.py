"""A producer's transactions: who it is to its coordinator, what the open transaction has touched, how it ends.

    UNINITIALIZED -> READY               init: the coordinator gives an id and fences whoever had it before
    READY -> IN_TRANSACTION              begin
    IN_TRANSACTION -> ENDING -> READY    commit or abort
    IN_TRANSACTION -> ABORTABLE          a record or an offset could not be written: only abort is left
    ABORTABLE -> ENDING -> READY         abort
    any -> FATAL                         fenced by another producer, or not allowed: only close is left

Two protocols, chosen by the finalized feature `transaction.version` (KIP-890):
- before 2, each partition and group is added to the transaction before anything is written to it, and an aborted
  transaction that lost a batch, or dropped one that had been sent, is followed by asking for a new epoch (KIP-360);
- from 2 on, writing adds them, and the end of a transaction answers with a new epoch.

Sending and its waits are the sender's and the producer's; here is what the coordinator is told, in what order.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum, auto
from typing import Final, Protocol, TypeVar

from mainstem.client.accumulator import PartitionQueue
from mainstem.client.batches import ProducerBatch
from mainstem.client.cluster import Cluster, CoordinatorKind
from mainstem.client.commits import check_offsets
from mainstem.client.connection import BrokerConnection
from mainstem.client.errors import IllegalStateError, InvalidTxnStateError, KafkaError, error_for, raise_for
from mainstem.client.idempotence import Idempotence
from mainstem.client.options import ProducerOptions
from mainstem.client.types import OffsetAndMetadata, TopicPartition
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from mainstem.protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from mainstem.protocol.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from mainstem.protocol.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from mainstem.protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

T = TypeVar("T")

_FATAL: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
"""After these nothing this producer does can succeed. (A fenced epoch that a broker, not the coordinator, tells of
ends the transaction only: the coordinator may have aborted it for its time-out.)"""

_ADD_PARTITIONS_MAX: Final = 3  # later versions are between brokers
_V1_END_TXN_MAX: Final = 4
_V1_TXN_OFFSET_COMMIT_MAX: Final = 4


class GroupMetadata(Protocol):
    """What a consumer says of its membership, so that offsets of a member that is gone are refused (KIP-447)."""

    @property
    def group_id(self) -> str: ...
    @property
    def generation_id(self) -> int: ...
    @property
    def member_id(self) -> str: ...
    @property
    def group_instance_id(self) -> str | None: ...


class State(Enum):
    UNINITIALIZED = auto()
    READY = auto()
    IN_TRANSACTION = auto()
    ABORTABLE = auto()
    ENDING = auto()
    FATAL = auto()


class TransactionManager:
    def __init__(
        self, cluster: Cluster, options: ProducerOptions, idempotence: Idempotence, wake: Callable[[], None]
    ) -> None:
        assert options.transactional_id is not None
        self._cluster = cluster
        self._options = options
        self._id = options.transactional_id
        self._idempotence = idempotence
        self._wake = wake
        self.state = State.UNINITIALIZED
        self.error: KafkaError | None = None
        """Why the transaction can only be aborted, or the producer only closed."""
        self._is_v2 = False
        self._added: set[TopicPartition] = set()
        self._to_add: set[TopicPartition] = set()
        self._adding: asyncio.Task[None] | None = None
        self._groups: set[str] = set()
        self._is_begun = False
        """Whether the coordinator knows of the open transaction."""
        self._may_be_begun = False
        """Whether it was told of it and did not answer."""
        self._bump_needed = False
        self._commit_asked = False
        """Whether the coordinator was asked to commit the open transaction, and may have done it."""

    @property
    def is_v2(self) -> bool:
        return self._is_v2

    @property
    def is_aborting(self) -> bool:
        """Whether what is not written yet need not be any more."""
        return self.state in (State.ABORTABLE, State.FATAL)

    @property
    def is_known_not_to_be_committed(self) -> bool:
        """Whether the open transaction can only be aborted, or nobody has asked yet to commit it."""
        return self.state is State.ABORTABLE or (self.state is State.IN_TRANSACTION and not self._commit_asked)

    # What the sender asks

    def may_send(self, queue: PartitionQueue) -> bool:
        """Whether a batch may go to this partition now; if it has to be added first, that begins."""
        if self.state is not State.IN_TRANSACTION:
            return False
        if self._is_v2:
            self._is_begun = True
            return True
        tp = TopicPartition(queue.topic, queue.partition)
        if tp in self._added:
            return True
        self._to_add.add(tp)
        if self._adding is None:
            # A pass asks about every partition that is ready; they are added together after it.
            self._adding = self._cluster.spawn(self._add_partitions(), "add partitions to the transaction")
        return False

    def batch_failed(self, batch: ProducerBatch, error: KafkaError) -> None:
        """A record of the transaction could not be written: it cannot be committed any more."""
        self._bump_needed = True
        self._fail(error, is_from_coordinator=False)

    def sequence_lost(self) -> None:
        """A batch that was sent before is dropped with its transaction: the next one needs an epoch of its own."""
        self._bump_needed = True

    def _fail(self, error: KafkaError, *, is_from_coordinator: bool) -> None:
        is_fatal = error.code in _FATAL and (
            is_from_coordinator or error.code not in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE)
        )
        if is_fatal:
            self.state = State.FATAL
            self.error = error
        elif self.state is State.IN_TRANSACTION:
            self.state = State.ABORTABLE
            self.error = error
        self._wake()

    # What people ask

    def check_can_send(self) -> KafkaError | None:
        """Why a record cannot be taken at this moment."""
        if self.state is State.IN_TRANSACTION:
            return None
        if self.error is not None:
            return self.error
        return IllegalStateError("a transactional producer sends within a transaction: begin one first")

    async def init(self) -> None:
        """Takes the transactional id: finishes or aborts what its last owner left, and fences it."""
        if self.state is not State.UNINITIALIZED:
            raise IllegalStateError("init_transactions was called before")
        await self._init_producer_id()
        self.state = State.READY

    def begin(self) -> None:
        if self.state is State.UNINITIALIZED:
            raise IllegalStateError("call init_transactions first")
        self._raise_if_failed()
        if self.state is not State.READY:
            raise IllegalStateError("a transaction is open already; commit or abort it first")
        self.state = State.IN_TRANSACTION
        self._added.clear()
        self._to_add.clear()
        self._groups.clear()
        self._is_begun = False
        self._may_be_begun = False
        self._commit_asked = False

    def check_can_commit(self) -> None:
        self._raise_if_failed()
        if self.state is not State.IN_TRANSACTION:
            raise IllegalStateError("there is no transaction to commit")

    def begin_abort(self) -> None:
        """From now on it cannot be committed, also where whoever aborts it stops waiting."""
        self._raise_if_fatal()
        if self.state not in (State.IN_TRANSACTION, State.ABORTABLE):
            raise IllegalStateError("there is no transaction to abort")
        self.state = State.ABORTABLE

    def _raise_if_failed(self) -> None:
        if self.error is not None:
            raise self.error

    def _raise_if_fatal(self) -> None:
        if self.state is State.FATAL:
            self._raise_if_failed()

    async def end(self, *, commit: bool) -> None:
        """Tells the coordinator how it ends, when every record is answered."""
        if commit:
            self._raise_if_failed()
        self.state = State.ENDING
        try:
            if self._adding is not None:
                # Or the coordinator would begin a transaction that nobody ends, and fence us when its time is up.
                await asyncio.wait([self._adding])
                self._raise_if_fatal()
            self._commit_asked = commit
            if self._is_begun:
                await self._end(commit)
            elif self._may_be_begun:
                with contextlib.suppress(InvalidTxnStateError):  # it was not
                    await self._end(commit)
            # Whoever has to ask again asks for what is left: the epoch that it ended under may be gone by then.
            self._is_begun = self._may_be_begun = False
            if self._bump_needed and not self._is_v2:
                await self._init_producer_id()
            self._bump_needed = False
        except KafkaError as error:
            if error.code in _FATAL:
                self._fail(error, is_from_coordinator=True)
            else:
                # Whether it ended is not known; it can be asked for again.
                self.state = State.IN_TRANSACTION if commit else State.ABORTABLE
                if error.code == ErrorCode.TRANSACTION_ABORTABLE:
                    self._fail(error, is_from_coordinator=True)
            raise
        except asyncio.CancelledError:
            self.state = State.IN_TRANSACTION if commit else State.ABORTABLE
            raise
        self.state = State.READY
        self.error = None

    async def _end(self, commit: bool) -> None:
        async def ask(connection: BrokerConnection) -> EndTxnResponse:
            request = EndTxnRequest(
                transactional_id=self._id,
                producer_id=self._idempotence.producer_id,
                producer_epoch=self._idempotence.epoch,
                committed=commit,
            )
            version = connection.version_for(request.API_KEY, None if self._is_v2 else _V1_END_TXN_MAX)
            answer = await connection.ask(request, EndTxnResponse, version=version)
            raise_for(answer.error_code, f"transaction {self._id!r}", broker=connection.name)
            return answer

        answer = await self._ask_coordinator(ask, f"{'committing' if commit else 'aborting'} {self._id!r}")
        if self._is_v2 and answer.producer_id >= 0:
            self._idempotence.set_id(answer.producer_id, answer.producer_epoch)

    async def send_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata) -> None:
        """Has a group's offsets committed with the transaction."""
        self._raise_if_failed()
        if self.state is not State.IN_TRANSACTION:
            raise IllegalStateError("offsets are sent within a transaction: begin one first")
        if not offsets:
            return
        check_offsets(offsets)
        try:
            if not self._is_v2 and group.group_id not in self._groups:
                self._may_be_begun = True
                await self._add_group(group.group_id)
                self._groups.add(group.group_id)
            self._is_begun = True
            await self._commit_offsets(offsets, group)
        except KafkaError as error:
            self._fail(error, is_from_coordinator=error.code != ErrorCode.INVALID_PRODUCER_EPOCH)
            raise

    # What the coordinators are told

    async def _init_producer_id(self) -> None:
        known = self._idempotence

        async def ask(connection: BrokerConnection) -> InitProducerIdResponse:
            request = InitProducerIdRequest(
                transactional_id=self._id,
                transaction_timeout_ms=self._options.transaction_timeout_ms,
                producer_id=known.producer_id,
                producer_epoch=known.epoch,
            )
            answer = await connection.ask(request, InitProducerIdResponse)
            raise_for(answer.error_code, f"transactional id {self._id!r}", broker=connection.name)
            self._is_v2 = connection.features.get("transaction.version", 0) >= 2
            return answer

        answer = await self._ask_coordinator(ask, f"taking the transactional id {self._id!r}")
        known.set_id(answer.producer_id, answer.producer_epoch)

    async def _add_partitions(self) -> None:
        try:
            while self._to_add and self.state is State.IN_TRANSACTION:
                await asyncio.sleep(0)  # let the pass that asked come to its end
                asked = sorted(self._to_add)
                self._may_be_begun = True
                await self._ask_coordinator(lambda connection, asked=asked: self._add(connection, asked), "")  # type: ignore[misc]
                self._added.update(asked)
                self._to_add.difference_update(asked)
                self._is_begun = True
        except KafkaError as error:
            self._fail(error, is_from_coordinator=True)
        finally:
            self._adding = None
            self._wake()

    async def _add(self, connection: BrokerConnection, asked: list[TopicPartition]) -> None:
        topics: dict[str, list[int]] = {}
        for tp in asked:
            topics.setdefault(tp.topic, []).append(tp.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._idempotence.producer_id,
            v3_and_below_producer_epoch=self._idempotence.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=each) for name, each in topics.items()],
        )
        version = connection.version_for(request.API_KEY, _ADD_PARTITIONS_MAX)
        answer = await connection.ask(request, AddPartitionsToTxnResponse, version=version)
        errors = [
            error_for(
                each.partition_error_code, broker=connection.name, topic=topic.name, partition=each.partition_index
            )
            for topic in answer.results_by_topic_v3_and_below
            for each in topic.results_by_partition
            if each.partition_error_code not in (ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED)
        ]
        if errors:
            raise next((error for error in errors if not error.retriable), errors[0])

    async def _add_group(self, group_id: str) -> None:
        async def ask(connection: BrokerConnection) -> None:
            request = AddOffsetsToTxnRequest(
                transactional_id=self._id,
                producer_id=self._idempotence.producer_id,
                producer_epoch=self._idempotence.epoch,
                group_id=group_id,
            )
            answer = await connection.ask(request, AddOffsetsToTxnResponse)
            raise_for(answer.error_code, f"group {group_id!r}", broker=connection.name)

        await self._ask_coordinator(ask, f"adding group {group_id!r} to the transaction")

    async def _commit_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata) -> None:
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for tp, position in offsets.items():
            topics.setdefault(tp.topic, []).append(
                TxnOffsetCommitRequestPartition(
                    partition_index=tp.partition,
                    committed_offset=position.offset,
                    committed_leader_epoch=position.leader_epoch,
                    committed_metadata=position.metadata,
                )
            )

        async def ask() -> None:
            connection = await self._cluster.coordinator(CoordinatorKind.GROUP, group.group_id)
            request = TxnOffsetCommitRequest(
                transactional_id=self._id,
                group_id=group.group_id,
                producer_id=self._idempotence.producer_id,
                producer_epoch=self._idempotence.epoch,
                generation_id=group.generation_id,
                member_id=group.member_id,
                group_instance_id=group.group_instance_id,
                topics=[TxnOffsetCommitRequestTopic(name=name, partitions=each) for name, each in topics.items()],
            )
            version = connection.version_for(request.API_KEY, None if self._is_v2 else _V1_TXN_OFFSET_COMMIT_MAX)
            try:
                answer = await connection.ask(request, TxnOffsetCommitResponse, version=version)
                for topic in answer.topics:
                    for each in topic.partitions:
                        raise_for(
                            each.error_code,
                            f"group {group.group_id!r}",
                            broker=connection.name,
                            topic=topic.name,
                            partition=each.partition_index,
                        )
            except KafkaError as error:
                if error.is_lost_coordinator or not connection.is_open:
                    self._cluster.forget_coordinator(CoordinatorKind.GROUP, group.group_id)
                raise

        await self._cluster.retrying(ask, self._options.max_block_ms, f"committing offsets of {group.group_id!r}")

    async def _ask_coordinator(self, ask: Callable[[BrokerConnection], Awaitable[T]], what: str) -> T:
        async def attempt() -> T:
            connection = await self._cluster.coordinator(CoordinatorKind.TRANSACTION, self._id)
            try:
                return await ask(connection)
            except KafkaError as error:
                if error.is_lost_coordinator or not connection.is_open:
                    self._cluster.forget_coordinator(CoordinatorKind.TRANSACTION, self._id)
                raise

        return await self._cluster.retrying(attempt, self._options.max_block_ms, what or "the transaction")
