"""What the nouns of the admin stand on: who is asked, what is tried again, and how several failures are told.

- A question about several things is answered for each. Where one was asked about and it failed, its error is raised;
  where several were, `SomeFailedError`, which is an ExceptionGroup: it has every error, and what did succeed.
  `except* TopicExistsError` therefore does the right thing for one and for many.
- What failed and may succeed on a retry is tried again within `default_api_timeout_ms`, and only that. A topic that is
  not there is told at once: to whoever administers a cluster this is an answer, not a delay (as in Kafka's Admin).
- Leaders, coordinators and the controller are looked up for each call. Nothing here is hot, and what an admin does is
  often the very thing that moves them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Self, TypeVar, cast

from mainstem.client.cluster import Cluster, CoordinatorKind
from mainstem.client.connection import BrokerConnection
from mainstem.client.errors import (
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    UnknownServerError,
    error_for,
    raise_for,
)
from mainstem.client.options import AdminOptions
from mainstem.client.types import TopicPartition
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from mainstem.protocol.schema import Message

K = TypeVar("K")
V = TypeVar("V")
M = TypeVar("M", bound=Message)

Attempt = Callable[[list[K]], Awaitable[Mapping[K, V | KafkaError]]]
"""Tries something for each of the keys, and says for each what came of it."""

_ANSWERS_AT_ONCE: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.ELECTION_NOT_NEEDED}
)
"""Codes that a retry could cure in theory, and that are nevertheless what somebody who asks wants to know."""


class SomeFailedError(KafkaError, ExceptionGroup[KafkaError]):
    """Of several things that were asked for, some failed. `errors` has why, `done` has what the others gave."""

    errors: Mapping[Any, KafkaError]
    done: Mapping[Any, Any]

    def __new__(cls, errors: Mapping[Any, KafkaError], done: Mapping[Any, Any]) -> Self:
        made = super().__new__(cls, f"{len(errors)} of {len(errors) + len(done)} failed", list(errors.values()))
        made.errors = errors
        made.done = done
        return made

    def __init__(self, errors: Mapping[Any, KafkaError], done: Mapping[Any, Any]) -> None:
        # A group has its message already, read-only: what KafkaError's own constructor would set is set here.
        self.broker = self.topic = self.partition = self.code = None

    @property
    def retriable(self) -> bool:
        return all(error.retriable for error in self.errors.values())

    def __str__(self) -> str:
        return f"{self.message}: " + "; ".join(map(str, self.errors.values()))

    def derive(self, excs: Sequence[KafkaError]) -> SomeFailedError:  # type: ignore[override]
        kept = {key: error for key, error in self.errors.items() if any(error is each for each in excs)}
        return SomeFailedError(kept, self.done)

    def __reduce__(self) -> tuple[object, ...]:
        return SomeFailedError, (self.errors, self.done)


class AdminBase:
    """The connection to the cluster, and how questions are asked."""

    def __init__(self, *, rng: random.Random | None = None, **options: Any) -> None:
        self.options = AdminOptions.from_kwargs(options)
        self._rng = rng or random.Random()
        self._started: Cluster | None = None
        self._is_stale = True
        """Whether brokers and controller have to be asked for before they are believed."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Makes it ready. Connects to nobody yet."""
        if self._started is not None:
            raise IllegalStateError("the admin was started before")
        self._started = Cluster(self.options, self._rng)

    async def close(self) -> None:
        if self._started is not None:
            await self._started.close()

    @property
    def cluster(self) -> Cluster:
        """The cluster as this admin sees it."""
        if self._started is None:
            raise IllegalStateError("the admin is not started: use it with `async with`")
        return self._started

    # Trying

    async def _each(
        self, keys: Iterable[K], attempt: Attempt[K, V], what: str, timeout_ms: float | None = None
    ) -> dict[K, V]:
        """What `attempt` gives for each key, those tried again that a retry can help."""
        asked = list(dict.fromkeys(keys))
        time = asyncio.get_running_loop().time
        limit_ms = self.options.default_api_timeout_ms if timeout_ms is None else timeout_ms
        deadline = time() + limit_ms / 1000
        pauses, tries_left = self.cluster.backoff(), self.options.retries
        pending, last = asked, dict[K, KafkaError]()
        done, failed = dict[K, V](), dict[K, KafkaError]()
        while pending:
            found = await self._try(pending, attempt, deadline)
            if found is not None:
                last = {}
                for key in pending:
                    outcome = found.get(key)
                    if outcome is None and key not in found:
                        failed[key] = UnknownServerError(f"{what}: the broker did not answer for {key}")
                    elif not isinstance(outcome, KafkaError):
                        done[key] = cast(V, outcome)
                    elif outcome.retriable and outcome.code not in _ANSWERS_AT_ONCE and tries_left > 0:
                        last[key] = outcome
                    else:
                        failed[key] = outcome
                pending = list(last)
            pause_s = pauses.next_s()
            if pending and time() + pause_s >= deadline:
                failed.update({key: _late(what, limit_ms, last.get(key)) for key in pending})
                break
            if pending:
                tries_left -= 1
                self._is_stale = True
                await asyncio.sleep(pause_s)
        if failed:
            raise next(iter(failed.values())) if len(asked) == 1 else SomeFailedError(failed, done)
        return {key: done[key] for key in asked}

    async def _try(self, keys: list[K], attempt: Attempt[K, V], deadline: float) -> Mapping[K, V | KafkaError] | None:
        """One attempt; None when the time was up before it ended."""
        try:
            async with asyncio.timeout_at(deadline) as limit:
                return await attempt(keys)
        except KafkaError as error:
            return dict.fromkeys(keys, error)
        except TimeoutError:
            if not limit.expired():
                raise
            return None

    async def _once(self, attempt: Callable[[], Awaitable[V]], what: str) -> V:
        """The same for a question about one thing."""

        async def for_one(_: list[None]) -> dict[None, V | KafkaError]:
            return {None: await attempt()}

        return (await self._each([None], for_one, what))[None]

    # Whom to ask

    async def _refresh(self) -> None:
        if self._is_stale or not self.cluster.cache.brokers:
            await self.cluster.update()
            self._is_stale = False

    async def _any(self) -> BrokerConnection:
        await self._refresh()
        return await self.cluster.any_node()

    async def _controller(self) -> BrokerConnection:
        await self._refresh()
        return await self.cluster.controller()

    async def _brokers(self) -> list[int]:
        """The ids of all brokers, as they are now."""
        self._is_stale = True
        await self._refresh()
        return sorted(self.cluster.cache.brokers)

    async def _coordinator(self, kind: CoordinatorKind, key: str) -> BrokerConnection:
        await self._refresh()
        self.cluster.forget_coordinator(kind, key)
        return await self.cluster.coordinator(kind, key)

    async def _by_coordinator(
        self,
        kind: CoordinatorKind,
        keys: Sequence[str],
        ask: Callable[[BrokerConnection, list[str]], Awaitable[Mapping[str, V | KafkaError]]],
    ) -> dict[str, V | KafkaError]:
        """Asks each coordinator about what it coordinates, all at once."""
        found = await asyncio.gather(*(self._coordinator(kind, key) for key in keys), return_exceptions=True)
        groups: dict[int, list[str]] = {}
        connections: dict[int, BrokerConnection] = {}
        outcomes: dict[str, V | KafkaError] = {}
        for key, each in zip(keys, found, strict=True):
            if isinstance(each, KafkaError):
                outcomes[key] = each
            elif isinstance(each, BaseException):
                raise each
            else:
                groups.setdefault(id(each), []).append(key)
                connections[id(each)] = each
        answers = await asyncio.gather(
            *(_or_error(ask(connections[at], theirs), theirs) for at, theirs in groups.items())
        )
        for answer in answers:
            outcomes.update(answer)
        return outcomes

    async def _by_leader(
        self,
        partitions: Sequence[TopicPartition],
        ask: Callable[[BrokerConnection, dict[str, list[int]]], Awaitable[Mapping[TopicPartition, V | KafkaError]]],
    ) -> dict[TopicPartition, V | KafkaError]:
        """Asks each leader about its partitions, all at once; they come as topics with their partitions."""
        topics = await self._topics({tp.topic for tp in partitions})
        leaders: dict[int, list[TopicPartition]] = {}
        outcomes: dict[TopicPartition, V | KafkaError] = {}
        for tp in partitions:
            error, leader = _leader_of(topics, tp)
            if error is not None:
                outcomes[tp] = error
            else:
                leaders.setdefault(leader, []).append(tp)

        async def ask_one(leader: int, theirs: list[TopicPartition]) -> Mapping[TopicPartition, V | KafkaError]:
            return await ask(await self.cluster.node(leader), by_topic(theirs))

        answers = await asyncio.gather(*(_or_error(ask_one(at, theirs), theirs) for at, theirs in leaders.items()))
        for answer in answers:
            outcomes.update(answer)
        return outcomes

    async def _topics(self, names: Collection[str] | None) -> dict[str, MetadataResponseTopic]:
        """What a broker says of these topics now, or of all; nothing is created by asking."""
        connection = await self._any()
        request = MetadataRequest(
            topics=None if names is None else [MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=False,
        )
        response = await connection.ask(request, MetadataResponse)
        raise_for(response.error_code, "Metadata", broker=connection.name)
        return {topic.name: topic for topic in response.topics if topic.name is not None}


async def _or_error(answer: Awaitable[Mapping[K, V | KafkaError]], keys: Iterable[K]) -> Mapping[K, V | KafkaError]:
    """A broker that fails takes only its own with it."""
    try:
        return await answer
    except KafkaError as error:
        return dict.fromkeys(keys, error)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped


def outcome(value: V, code: int, message: str | None = None, **where: Any) -> V | KafkaError:
    """The value, or the error that the broker gave in its place."""
    return value if code == 0 else error_for(code, message, **where)


def _leader_of(topics: Mapping[str, MetadataResponseTopic], tp: TopicPartition) -> tuple[KafkaError | None, int]:
    topic = topics.get(tp.topic)
    if topic is None or topic.error_code:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error_code
        return error_for(code, topic=tp.topic), -1
    for partition in topic.partitions:
        if partition.partition_index == tp.partition:
            if partition.leader_id < 0:
                code = partition.error_code or ErrorCode.LEADER_NOT_AVAILABLE
                return error_for(code, topic=tp.topic, partition=tp.partition), -1
            return None, partition.leader_id
    message = f"the topic has partitions 0 to {len(topic.partitions) - 1}"
    return error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message, topic=tp.topic, partition=tp.partition), -1


def _late(what: str, limit_ms: float, last: KafkaError | None) -> KafkaTimeoutError:
    text = f"{what} did not succeed within {limit_ms:g} ms"
    if last is None:
        return KafkaTimeoutError(text)
    name = f"{last.code.name}: " if last.code else ""
    late = KafkaTimeoutError(
        f"{text}; the last try: {name}{last.message}", broker=last.broker, topic=last.topic, partition=last.partition
    )
    late.__cause__ = last
    return late
