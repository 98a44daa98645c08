"""Offsets that brokers know: the ends of a log, the first offset after a time, where an epoch ended.

Every question goes to the leaders of the partitions it is about, one request to each. What a new leader or a little
time cures is asked again until the deadline; the rest is raised with the partition it is about.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, NamedTuple

from mainstem.client.assignors import by_topic
from mainstem.client.cluster import Cluster
from mainstem.client.connection import BrokerConnection
from mainstem.client.errors import KafkaError, KafkaTimeoutError, LeaderNotAvailableError, error_for
from mainstem.client.types import TopicPartition
from mainstem.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from mainstem.protocol.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

LATEST: Final = -1
EARLIEST: Final = -2
CONSUMER: Final = -1
NO_OFFSET: Final = -1

_BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")


class FoundOffset(NamedTuple):
    """`offset` is -1 where there is no record as late as was asked for."""

    offset: int
    timestamp: int
    leader_epoch: int


class EpochEnd(NamedTuple):
    """The last epoch that is not later than the one asked for, and the offset after its last record; -1 if unknown."""

    leader_epoch: int
    end_offset: int


def timestamp_of(strategy: str, now_ms: int) -> int:
    """What to ask ListOffsets for, for a value of `auto_offset_reset`."""
    if strategy == "earliest":
        return EARLIEST
    if strategy == "latest":
        return LATEST
    found = _DURATION.fullmatch(strategy.removeprefix(_BY_DURATION))
    assert found is not None, f"the options let {strategy!r} pass"
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return max(0, now_ms - int(1000 * (seconds + 60 * (minutes + 60 * (hours + 24 * days)))))


class OffsetFinder:
    def __init__(self, cluster: Cluster, isolation: int) -> None:
        self._cluster = cluster
        self._isolation = isolation
        self._loop = asyncio.get_running_loop()

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int], timeout_ms: float
    ) -> dict[TopicPartition, FoundOffset]:
        """The first offset at or after each timestamp, or an end of the log. Waits for leaders until the time is up."""
        deadline = self._loop.time() + timeout_ms / 1000
        await self._cluster.metadata({tp.topic for tp in wanted}, timeout_ms)
        found: dict[TopicPartition, FoundOffset] = {}
        pauses = self._cluster.backoff()
        last: KafkaError | None = None
        try:
            async with asyncio.timeout_at(deadline):
                while True:
                    rest = {tp: timestamp for tp, timestamp in wanted.items() if tp not in found}
                    got, errors = await self.try_list_offsets(rest)
                    found.update(got)
                    for last in errors.values():
                        if not last.retriable:
                            raise last
                    if len(found) == len(wanted):
                        return found
                    await asyncio.sleep(pauses.next_s())
        except TimeoutError as late:
            if isinstance(late, KafkaError):
                raise
            text = f"no offsets within {timeout_ms:g} ms" + (f"; the last try: {last}" if last is not None else "")
            raise KafkaTimeoutError(text) from last

    async def try_list_offsets(
        self, wanted: Mapping[TopicPartition, int]
    ) -> tuple[dict[TopicPartition, FoundOffset], dict[TopicPartition, KafkaError]]:
        """Asks each leader once; what was found, and what went wrong where."""
        found: dict[TopicPartition, FoundOffset] = {}
        errors: dict[TopicPartition, KafkaError] = {}

        async def ask(connection: BrokerConnection, partitions: list[TopicPartition]) -> None:
            request = ListOffsetsRequest(
                replica_id=CONSUMER,
                isolation_level=self._isolation,
                topics=[
                    ListOffsetsTopic(
                        name=topic,
                        partitions=[
                            ListOffsetsPartition(
                                partition_index=number,
                                current_leader_epoch=self._epoch(TopicPartition(topic, number)),
                                timestamp=wanted[TopicPartition(topic, number)],
                            )
                            for number in numbers
                        ],
                    )
                    for topic, numbers in by_topic(partitions).items()
                ],
                timeout_ms=self._cluster.options.request_timeout_ms,
            )
            answer = await connection.ask(request, ListOffsetsResponse)
            for topic in answer.topics:
                for each in topic.partitions:
                    tp = TopicPartition(topic.name, each.partition_index)
                    if each.error_code == 0:
                        found[tp] = FoundOffset(each.offset, each.timestamp, each.leader_epoch)
                    else:
                        errors[tp] = self._error(tp, each.error_code, "ListOffsets", connection)

        await self._ask_leaders(wanted, ask, errors, found)
        return found, errors

    async def try_epoch_ends(
        self, wanted: Mapping[TopicPartition, int]
    ) -> tuple[dict[TopicPartition, EpochEnd], dict[TopicPartition, KafkaError]]:
        """Where the epochs ended on the leaders of now."""
        found: dict[TopicPartition, EpochEnd] = {}
        errors: dict[TopicPartition, KafkaError] = {}

        async def ask(connection: BrokerConnection, partitions: list[TopicPartition]) -> None:
            request = OffsetForLeaderEpochRequest(
                replica_id=CONSUMER,
                topics=[
                    OffsetForLeaderTopic(
                        topic=topic,
                        partitions=[
                            OffsetForLeaderPartition(
                                partition=number,
                                current_leader_epoch=self._epoch(TopicPartition(topic, number)),
                                leader_epoch=wanted[TopicPartition(topic, number)],
                            )
                            for number in numbers
                        ],
                    )
                    for topic, numbers in by_topic(partitions).items()
                ],
            )
            answer = await connection.ask(request, OffsetForLeaderEpochResponse)
            for topic in answer.topics:
                for each in topic.partitions:
                    tp = TopicPartition(topic.topic, each.partition)
                    if each.error_code == 0:
                        found[tp] = EpochEnd(each.leader_epoch, each.end_offset)
                    else:
                        errors[tp] = self._error(tp, each.error_code, "OffsetForLeaderEpoch", connection)

        await self._ask_leaders(wanted, ask, errors, found)
        return found, errors

    async def _ask_leaders(
        self,
        partitions: Iterable[TopicPartition],
        ask: Callable[[BrokerConnection, list[TopicPartition]], Awaitable[None]],
        errors: dict[TopicPartition, KafkaError],
        found: Mapping[TopicPartition, object],
    ) -> None:
        by_leader: dict[int, list[TopicPartition]] = {}
        for tp in partitions:
            leader = self._cluster.leader(tp)
            if leader is None:
                self._cluster.request_update()
                errors[tp] = self._cluster.cache.errors.get(tp.topic) or LeaderNotAvailableError(
                    "nobody leads it at this moment", topic=tp.topic, partition=tp.partition
                )
            else:
                by_leader.setdefault(leader.leader, []).append(tp)

        async def one(node_id: int, mine: list[TopicPartition]) -> None:
            try:
                await ask(await self._cluster.node(node_id), mine)
            except KafkaError as error:
                self._cluster.request_update()
                for tp in mine:
                    errors[tp] = error
            for tp in mine:
                if tp not in found and tp not in errors:
                    errors[tp] = LeaderNotAvailableError(
                        "the broker left it out of its answer", topic=tp.topic, partition=tp.partition
                    )

        await asyncio.gather(*(one(node_id, mine) for node_id, mine in by_leader.items()))

    def _epoch(self, tp: TopicPartition) -> int:
        leader = self._cluster.leader(tp)
        return -1 if leader is None else leader.epoch

    def _error(self, tp: TopicPartition, code: int, what: str, connection: BrokerConnection) -> KafkaError:
        self._cluster.note_error(tp, code)
        return error_for(code, what, broker=connection.name, topic=tp.topic, partition=tp.partition)
