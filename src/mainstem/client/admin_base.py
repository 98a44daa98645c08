"""How an admin asks: the controller, a coordinator, the leader of each partition, every broker; again where that helps.

Every method retries while the error says that a retry can help, up to `default_api_timeout_ms` or its own `timeout_ms`.
Where a call is about several things all of them are tried; the first error is raised, with a note of the others.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from mainstem.client.cluster import Cluster, CoordinatorKind
from mainstem.client.connection import BrokerConnection
from mainstem.client.errors import (
    IllegalStateError,
    KafkaError,
    LeaderNotAvailableError,
    UnknownTopicOrPartitionError,
)
from mainstem.client.options import AdminOptions
from mainstem.client.types import TopicPartition

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


class AdminBase:
    def __init__(self, *, rng: random.Random | None = None, **options: Any) -> None:
        self.options = AdminOptions.from_kwargs(options)
        self._rng = rng or random.Random()
        self._started: Cluster | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Makes it ready. Connects to nobody yet."""
        if self._started is not None:
            raise IllegalStateError("the admin was started before")
        self._started = Cluster(self.options, self._rng)

    async def close(self) -> None:
        if self._started is not None:
            await self._started.close()

    async def connect(self) -> None:
        """Connects to whichever broker answers, without a retry; NoBrokersAvailableError where none does.

        Nobody has to call it. It is for those who want to know at once that nobody is there.
        """
        await self._cluster.any_node()

    @property
    def _cluster(self) -> Cluster:
        if self._started is None:
            raise IllegalStateError("the admin is not started: use it with `async with`")
        return self._started

    async def _retrying(self, attempt: Callable[[], Awaitable[T]], timeout_ms: float | None, what: str) -> T:
        limit_ms = self.options.default_api_timeout_ms if timeout_ms is None else timeout_ms
        return await self._cluster.retrying(attempt, limit_ms, what, self.options.retries)

    async def _on_any(self, ask: Callable[[BrokerConnection], Awaitable[T]], timeout_ms: float | None, what: str) -> T:
        async def attempt() -> T:
            return await ask(await self._cluster.any_node())

        return await self._retrying(attempt, timeout_ms, what)

    async def _on_node(
        self,
        node_id: int | None,
        ask: Callable[[BrokerConnection], Awaitable[T]],
        timeout_ms: float | None,
        what: str,
    ) -> T:
        """One broker by its id; None for any."""
        if node_id is None:
            return await self._on_any(ask, timeout_ms, what)

        async def attempt() -> T:
            if node_id not in self._cluster.cache.brokers:
                await self._cluster.update()
            return await ask(await self._cluster.node(node_id))

        return await self._retrying(attempt, timeout_ms, what)

    async def _on_controller(
        self, ask: Callable[[BrokerConnection], Awaitable[T]], timeout_ms: float | None, what: str
    ) -> T:
        async def attempt() -> T:
            return await ask(await self._cluster.controller())

        return await self._retrying(attempt, timeout_ms, what)

    async def _on_coordinator(
        self,
        kind: CoordinatorKind,
        key: str,
        ask: Callable[[BrokerConnection], Awaitable[T]],
        timeout_ms: float | None,
        what: str,
    ) -> T:
        async def attempt() -> T:
            connection = await self._cluster.coordinator(kind, key)
            try:
                return await ask(connection)
            except KafkaError as error:
                if error.is_lost_coordinator or not connection.is_open:
                    self._cluster.forget_coordinator(kind, key)
                raise

        return await self._retrying(attempt, timeout_ms, what)

    async def _on_every_broker(
        self, ask: Callable[[BrokerConnection], Awaitable[T]], timeout_ms: float | None, what: str
    ) -> dict[int, T]:
        """What each broker answers, by its id."""

        async def update() -> None:
            await self._cluster.update()

        await self._retrying(update, timeout_ms, what)

        async def one(node_id: int) -> T:
            async def attempt() -> T:
                return await ask(await self._cluster.node(node_id))

            return await self._retrying(attempt, timeout_ms, what)

        ids = sorted(self._cluster.cache.brokers)
        return dict(zip(ids, await asyncio.gather(*map(one, ids)), strict=True))

    async def _on_leaders(
        self,
        partitions: Iterable[TopicPartition],
        ask: Callable[[BrokerConnection, list[TopicPartition]], Awaitable[Mapping[TopicPartition, T | KafkaError]]],
        timeout_ms: float | None,
        what: str,
    ) -> dict[TopicPartition, T]:
        """Asks the leader of each partition, and again where it leads no more, until each is answered for good."""
        found: dict[TopicPartition, T] = {}
        failed: dict[TopicPartition, KafkaError] = {}
        left = list(dict.fromkeys(partitions))

        async def attempt() -> None:
            topics = {tp.topic for tp in left}
            await self._cluster.metadata(topics, self.options.request_timeout_ms)
            by_node: dict[int, list[TopicPartition]] = {}
            for tp in left:
                leader = self._cluster.leader(tp)
                if leader is None:
                    raise self._without_leader(tp)
                by_node.setdefault(leader.leader, []).append(tp)
            for node_id, asked in by_node.items():
                answers = await ask(await self._cluster.node(node_id), asked)
                for tp, answer in answers.items():
                    if not isinstance(answer, KafkaError):
                        found[tp] = answer
                    elif not answer.retriable:
                        failed[tp] = answer
                    else:
                        continue
                    left.remove(tp)
                again = [answers[tp] for tp in left if isinstance(answers.get(tp), KafkaError)]
                for error in again:
                    assert isinstance(error, KafkaError)
                    raise error

        await self._retrying(attempt, timeout_ms, what)
        raise_first(failed)
        return found

    def _without_leader(self, tp: TopicPartition) -> KafkaError:
        topic = self._cluster.cache.topics.get(tp.topic)
        if topic is not None and tp.partition not in topic.partitions:
            return UnknownTopicOrPartitionError(
                f"the topic has {len(topic.partitions)} partitions", topic=tp.topic, partition=tp.partition
            )
        return LeaderNotAvailableError("there is no leader", topic=tp.topic, partition=tp.partition)


def raise_first(failed: Mapping[Any, KafkaError]) -> None:
    """Raises the first error; where there are others it carries a note of each."""
    errors = list(failed.values())
    if not errors:
        return
    first = errors[0]
    for other in errors[1:]:
        first.add_note(f"also: {other}")
    raise first


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The partitions of each topic."""
    topics: dict[str, list[int]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    return topics
