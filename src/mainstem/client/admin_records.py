"""Records seen from outside: which offsets a partition has, by position or by time, and deleting from its front."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final

from mainstem.client.admin_base import AdminBase, outcome
from mainstem.client.connection import BrokerConnection
from mainstem.client.errors import KafkaError, UnsupportedVersionError
from mainstem.client.types import OffsetAndTimestamp, TopicPartition
from mainstem.protocol.api import ApiKey
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


class OffsetSpec(IntEnum):
    """Positions that have a name. A time in milliseconds (0 or more) stands for the first record from then on."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


_FIRST_VERSION: Final = {OffsetSpec.MAX_TIMESTAMP: 7, OffsetSpec.EARLIEST_LOCAL: 8, OffsetSpec.LATEST_TIERED: 9}

ALL_RECORDS: Final = -1
"""To `delete_records`: everything up to the high watermark."""


class RecordAdmin(AdminBase):
    async def list_offsets(
        self, specs: Mapping[TopicPartition, OffsetSpec | int], *, read_committed: bool = False
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """The offset that each spec stands for; -1 where there is none, as for a time after the last record.

        With `read_committed` LATEST is the last stable offset: up to there no transaction is open.
        """

        async def ask(
            connection: BrokerConnection, theirs: dict[str, list[int]]
        ) -> dict[TopicPartition, OffsetAndTimestamp | KafkaError]:
            version = connection.version_for(ApiKey.LIST_OFFSETS)
            topics = []
            for topic, partitions in theirs.items():
                wanted = [
                    ListOffsetsPartition(partition_index=at, timestamp=specs[TopicPartition(topic, at)])
                    for at in partitions
                ]
                topics.append(ListOffsetsTopic(name=topic, partitions=wanted))
                if any(_first_version(each.timestamp) > version for each in wanted):
                    raise UnsupportedVersionError("the broker is too old for that spec", broker=connection.name)
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=int(read_committed),
                topics=topics,
                timeout_ms=self.options.request_timeout_ms,
            )
            answer = await connection.ask(request, ListOffsetsResponse, version=version)
            return {
                TopicPartition(topic.name, each.partition_index): outcome(
                    OffsetAndTimestamp(each.offset, each.timestamp, each.leader_epoch),
                    each.error_code,
                    broker=connection.name,
                    topic=topic.name,
                    partition=each.partition_index,
                )
                for topic in answer.topics
                for each in topic.partitions
            }

        async def attempt(
            asked: list[TopicPartition],
        ) -> dict[TopicPartition, OffsetAndTimestamp | KafkaError]:
            return await self._by_leader(asked, ask)

        return await self._each(specs, attempt, "listing offsets")

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset that the next record of each partition will have, as far as consumers may see."""
        found = await self.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
        return {tp: each.offset for tp, each in found.items()}

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        found = await self.list_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))
        return {tp: each.offset for tp, each in found.items()}

    async def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Deletes records below an offset (or `ALL_RECORDS`), for good; the first offset that each has now."""
        limit_ms = self.options.request_timeout_ms if timeout_ms is None else timeout_ms

        async def ask(
            connection: BrokerConnection, theirs: dict[str, list[int]]
        ) -> dict[TopicPartition, int | KafkaError]:
            request = DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(
                        name=topic,
                        partitions=[
                            DeleteRecordsPartition(partition_index=at, offset=before[TopicPartition(topic, at)])
                            for at in partitions
                        ],
                    )
                    for topic, partitions in theirs.items()
                ],
                timeout_ms=limit_ms,
            )
            answer = await connection.ask(request, DeleteRecordsResponse)
            return {
                TopicPartition(topic.name, each.partition_index): outcome(
                    each.low_watermark,
                    each.error_code,
                    broker=connection.name,
                    topic=topic.name,
                    partition=each.partition_index,
                )
                for topic in answer.topics
                for each in topic.partitions
            }

        async def attempt(asked: list[TopicPartition]) -> dict[TopicPartition, int | KafkaError]:
            return await self._by_leader(asked, ask)

        return await self._each(before, attempt, "deleting records", timeout_ms)


def _first_version(spec: int) -> int:
    return _FIRST_VERSION.get(OffsetSpec(spec), 1) if spec < 0 else 1
