"""Records and offsets of partitions, and the producers that partitions know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mainstem.client.admin_base import AdminBase, by_topic
from mainstem.client.admin_types import OffsetSpec, ProducerDescription
from mainstem.client.connection import BrokerConnection
from mainstem.client.errors import KafkaError, error_for
from mainstem.client.types import OffsetAndTimestamp, TopicPartition
from mainstem.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from mainstem.protocol.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from mainstem.protocol.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)

UP_TO_END = -1
"""In `delete_records`: everything up to the high watermark."""


class RecordsAdmin(AdminBase):
    async def list_offsets(
        self,
        partitions: Mapping[TopicPartition, OffsetSpec | int],
        *,
        read_committed: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Offsets of partitions: the latest, the earliest, or the first from a time in milliseconds on.

        The offset is -1 where no record is that late.
        """

        async def ask(
            connection: BrokerConnection, asked: list[TopicPartition]
        ) -> dict[TopicPartition, OffsetAndTimestamp | KafkaError]:
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=1 if read_committed else 0,
                topics=[
                    ListOffsetsTopic(
                        name=name,
                        partitions=[
                            ListOffsetsPartition(
                                partition_index=index, timestamp=int(partitions[TopicPartition(name, index)])
                            )
                            for index in each
                        ],
                    )
                    for name, each in by_topic(asked).items()
                ],
                timeout_ms=self.options.request_timeout_ms,
            )
            answer = await connection.ask(request, ListOffsetsResponse)
            return {
                TopicPartition(topic.name, each.partition_index): OffsetAndTimestamp(
                    each.offset, each.timestamp, each.leader_epoch
                )
                if each.error_code == 0
                else _error(each.error_code, None, connection, topic.name, each.partition_index)
                for topic in answer.topics
                for each in topic.partitions
            }

        return await self._on_leaders(partitions, ask, timeout_ms, "listing offsets")

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset of the first record of each."""
        found = await self.list_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST), timeout_ms=timeout_ms)
        return {tp: each.offset for tp, each in found.items()}

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset that the next record of each will have, as far as consumers may see."""
        found = await self.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST), timeout_ms=timeout_ms)
        return {tp: each.offset for tp, each in found.items()}

    async def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Deletes the records below an offset, -1 for all; the first offset that each partition then has."""

        async def ask(
            connection: BrokerConnection, asked: list[TopicPartition]
        ) -> dict[TopicPartition, int | KafkaError]:
            request = DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(
                        name=name,
                        partitions=[
                            DeleteRecordsPartition(partition_index=index, offset=before[TopicPartition(name, index)])
                            for index in each
                        ],
                    )
                    for name, each in by_topic(asked).items()
                ],
                timeout_ms=self.options.request_timeout_ms,
            )
            answer = await connection.ask(request, DeleteRecordsResponse)
            return {
                TopicPartition(topic.name, each.partition_index): each.low_watermark
                if each.error_code == 0
                else _error(each.error_code, None, connection, topic.name, each.partition_index)
                for topic in answer.topics
                for each in topic.partitions
            }

        return await self._on_leaders(before, ask, timeout_ms, "deleting records")

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, list[ProducerDescription]]:
        """The idempotent and transactional producers that the leader of each partition knows."""

        async def ask(
            connection: BrokerConnection, asked: list[TopicPartition]
        ) -> dict[TopicPartition, list[ProducerDescription] | KafkaError]:
            request = DescribeProducersRequest(
                topics=[TopicRequest(name=name, partition_indexes=each) for name, each in by_topic(asked).items()]
            )
            answer = await connection.ask(request, DescribeProducersResponse)
            found: dict[TopicPartition, list[ProducerDescription] | KafkaError] = {}
            for topic in answer.topics:
                for each in topic.partitions:
                    tp = TopicPartition(topic.name, each.partition_index)
                    if each.error_code != 0:
                        found[tp] = _error(each.error_code, each.error_message, connection, tp.topic, tp.partition)
                        continue
                    found[tp] = [
                        ProducerDescription(
                            one.producer_id,
                            one.producer_epoch,
                            one.last_sequence,
                            one.last_timestamp,
                            one.coordinator_epoch,
                            one.current_txn_start_offset,
                        )
                        for one in each.active_producers
                    ]
            return found

        return await self._on_leaders(partitions, ask, timeout_ms, "describing producers")


def _error(code: int, message: str | None, connection: BrokerConnection, topic: str, partition: int) -> KafkaError:
    return error_for(code, message, broker=connection.name, topic=topic, partition=partition)
