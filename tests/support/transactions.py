"""A transactional client that speaks in plain messages, of either transaction version."""

import time
from collections.abc import Callable

from mainstem.protocol.batch import iterate_batches
from mainstem.protocol.builder import BatchBuilder
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from mainstem.protocol.messages.k01_fetch import PartitionData
from mainstem.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from mainstem.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from mainstem.protocol.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
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
from mainstem.protocol.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from mainstem.protocol.records import iterate_records
from tests.support.raw import Peer

TIMESTAMP = int(time.time() * 1000)
"""Now: a marker has the broker's time, and a segment that spans years is rolled."""


def newest(low: int, high: int) -> int:
    return high


class TxnClient:
    """One producer. `epoch` follows what it is told. `tv2` chooses which versions its requests may have, and `pick` one
    of them."""

    def __init__(self, peer: Peer, transactional_id: str, tv2: bool = True) -> None:
        self.peer = peer
        self.transactional_id = transactional_id
        self.tv2 = tv2
        self.producer_id = -1
        self.epoch = -1
        self.pick: Callable[[int, int], int] = newest
        self.sequences: dict[tuple[str, int], int] = {}

    def copy(self) -> "TxnClient":
        """The same producer, as it is now: what it sends later is late."""
        other = TxnClient(self.peer, self.transactional_id, self.tv2)
        other.producer_id, other.epoch, other.sequences = self.producer_id, self.epoch, dict(self.sequences)
        other.pick = self.pick
        return other

    async def find(self) -> None:
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=[self.transactional_id])
        answer = await self.peer.ask(request, 6, FindCoordinatorResponse)
        assert answer.coordinators[0].error_code == 0, answer

    async def init(
        self, timeout_ms: int = 60_000, expected: tuple[int, int] = (-1, -1), **options: bool
    ) -> InitProducerIdResponse:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=expected[0],
            producer_epoch=expected[1],
            **options,
        )
        version = 6 if options else self.pick(0 if expected == (-1, -1) else 3, 5)
        while True:
            answer = await self.peer.ask(request, version, InitProducerIdResponse)
            if answer.error_code not in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
                break
        if answer.error_code == 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return answer

    async def begin(self) -> None:
        await self.find()
        answer = await self.init()
        assert answer.error_code == 0, answer

    async def add(self, *places: tuple[str, int]) -> ErrorCode:
        topics = [AddPartitionsToTxnTopic(name=topic, partitions=[index]) for topic, index in places]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=topics,
        )
        answer = await self.peer.ask(request, self.pick(0, 3), AddPartitionsToTxnResponse)
        return ErrorCode(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def produce_request(self, topic: str, *values: bytes, partition: int = 0) -> ProduceRequest:
        sequence = self.sequences.get((topic, partition), 0)
        builder = BatchBuilder(
            producer_id=self.producer_id, producer_epoch=self.epoch, base_sequence=sequence, transactional=True
        )
        for value in values:
            builder.append(TIMESTAMP, None, value)
        self.sequences[topic, partition] = sequence + len(values)
        return ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=5000,
            topic_data=[
                TopicProduceData(
                    name=topic, partition_data=[PartitionProduceData(index=partition, records=builder.build())]
                )
            ],
        )

    @property
    def produce_version(self) -> int:
        return 12 if self.tv2 else self.pick(3, 11)

    async def send(self, topic: str, *values: bytes, partition: int = 0) -> ErrorCode:
        """Produces; a client of version 1 must have added the partition."""
        request = self.produce_request(topic, *values, partition=partition)
        answer = await self.peer.ask(request, self.produce_version, ProduceResponse)
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    async def write(self, topic: str, *values: bytes, partition: int = 0) -> None:
        """Adds the partition if need be, and produces."""
        if not self.tv2:
            assert await self.add((topic, partition)) is ErrorCode.NONE
        code = await self.send(topic, *values, partition=partition)
        assert code is ErrorCode.NONE, code

    async def end(self, commit: bool = True) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        answer = await self.peer.ask(request, 5 if self.tv2 else self.pick(0, 4), EndTxnResponse)
        if answer.error_code == 0 and self.tv2:
            if (answer.producer_id, answer.producer_epoch) != (self.producer_id, self.epoch):
                self.sequences.clear()
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return ErrorCode(answer.error_code)

    async def end_and_wait(self, commit: bool = True) -> ErrorCode:
        code = await self.end(commit)
        await self.settled()
        return code

    async def describe(self) -> TransactionState:
        request = DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
        return (await self.peer.ask(request, 0, DescribeTransactionsResponse)).transaction_states[0]

    async def settled(self) -> str:
        """The state, once nothing is being completed."""
        while True:
            found = await self.describe()
            if found.error_code == 0 and not found.transaction_state.startswith("Prepare"):
                return found.transaction_state

    async def commit_offset(self, group: str, topic: str, offset: int) -> ErrorCode:
        if not self.tv2:
            add = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=group,
            )
            added = await self.peer.ask(add, self.pick(0, 4), AddOffsetsToTxnResponse)
            if added.error_code:
                return ErrorCode(added.error_code)
        return await self.send_offset(group, topic, offset)

    def offset_request(
        self, group: str, topics: list[tuple[str, list[int]]], offset: int, metadata: str | None = "m"
    ) -> TxnOffsetCommitRequest:
        """Commits the same offset for all of these partitions."""
        return TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=index, committed_offset=offset, committed_metadata=metadata
                        )
                        for index in indexes
                    ],
                )
                for topic, indexes in topics
            ],
        )

    async def send_offset(self, group: str, topic: str, offset: int) -> ErrorCode:
        request = self.offset_request(group, [(topic, [0])], offset)
        answer = await self.peer.ask(request, 5 if self.tv2 else self.pick(0, 4), TxnOffsetCommitResponse)
        return ErrorCode(answer.topics[0].partitions[0].error_code)


async def latest(peer: Peer, topic: str, isolation: int) -> int:
    """The end of a topic's first partition, for readers of all records or of committed ones."""
    wanted = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation, topics=[ListOffsetsTopic(name=topic, partitions=wanted)]
    )
    return (await peer.ask(request, 7, ListOffsetsResponse)).topics[0].partitions[0].offset


async def find_group(peer: Peer, group: str) -> None:
    answer = await peer.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 6, FindCoordinatorResponse)
    assert answer.coordinators[0].error_code == 0, answer
    # It is named before it has read what it knows, and says so until then.
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    offsets = await peer.ask(request, 9, OffsetFetchResponse)
    assert offsets.groups[0].error_code == 0, offsets


async def committed_offset(peer: Peer, group: str, topic: str, require_stable: bool = False) -> int | ErrorCode:
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
            )
        ],
        require_stable=require_stable,
    )
    answer = await peer.ask(request, 9, OffsetFetchResponse)
    if answer.groups[0].error_code != ErrorCode.NONE:
        return ErrorCode(answer.groups[0].error_code)
    found = answer.groups[0].topics[0].partitions[0]
    return ErrorCode(found.error_code) if found.error_code else found.committed_offset


def committed_values(found: PartitionData, is_sorted: bool = True) -> list[bytes]:
    """What a read_committed consumer makes of a fetch: it drops what the aborted list says, up to the marker.

    The list is sorted by first offset, but for Kafka's, which is in the order of the markers."""
    data = bytes(found.records or b"")
    aborted = sorted((one.first_offset, one.producer_id) for one in found.aborted_transactions or [])
    listed = [(one.first_offset, one.producer_id) for one in found.aborted_transactions or []]
    assert not is_sorted or aborted == listed, "unsorted"
    dropping: set[int] = set()
    values: list[bytes] = []
    for batch in iterate_batches(data, 0, len(data)):
        while aborted and aborted[0][0] <= batch.base_offset:
            dropping.add(aborted.pop(0)[1])
        if batch.is_control:
            dropping.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in dropping):
            values += [record.value or b"" for record in iterate_records(batch)]
    return values


async def read_committed(peer: Peer, topic: str, is_sorted: bool = True) -> list[bytes]:
    """Everything a read_committed consumer sees from the beginning."""
    values: list[bytes] = []
    offset = 0
    while True:
        found = await peer.fetch(topic, offset, isolation_level=1)
        data = bytes(found.records or b"")
        batches = list(iterate_batches(data, 0, len(data)))
        if not batches:
            return values
        values += committed_values(found, is_sorted)
        offset = batches[-1].next_offset
