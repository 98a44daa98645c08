"""A cluster as one client sees it: connections to its brokers, what it knows of them, and who coordinates what.

- Nothing is asked before it is needed. A client starts from `bootstrap_servers`, learns the brokers, and talks to
  those; a connection is opened when someone asks for that node, once for all who ask, after a pause that grows with
  each failure (`reconnect_backoff_ms`).
- Metadata is fetched for the topics that were asked for, again when it gets old (`metadata_max_age_ms`), and soon after
  someone noticed that it is wrong (`request_update`). Whoever needs it anew waits for `next_update`.
- When no broker that is known answers, or none has for `metadata_recovery_rebootstrap_trigger_ms`, the client starts
  again from `bootstrap_servers` (KIP-899, KIP-1102).
- A broker that is asked for what it no longer leads may say who does; that is taken at once (KIP-951).

Everything here is on one loop. Time is the loop's and randomness is given, so it runs in the simulator, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from enum import IntEnum
from random import Random
from typing import Any, TypeVar

from mainstem.client.backoff import Backoff
from mainstem.client.connection import RECEIVE_BYTES, BrokerConnection
from mainstem.client.errors import (
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    NoBrokersAvailableError,
    RebootstrapRequiredError,
    raise_for,
)
from mainstem.client.metadata import BrokerAddress, LeaderAndEpoch, MetadataCache, TopicInfo
from mainstem.client.options import INT32_MAX, CommonOptions
from mainstem.client.types import TopicPartition
from mainstem.protocol.api import ApiKey
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.framing import SharedBuffer
from mainstem.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from mainstem.protocol.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

T = TypeVar("T")


class CoordinatorKind(IntEnum):
    GROUP = 0
    TRANSACTION = 1


class Cluster:
    def __init__(self, options: CommonOptions, rng: Random, *, allow_auto_create: bool = False) -> None:
        self.options = options
        self.cache = MetadataCache()
        self.wants_all_topics = False
        """Whether metadata is kept for every topic, as a subscription by pattern needs."""
        self.updates = 0
        """How many times metadata came."""
        self._rng = rng
        self._allow_auto_create = allow_auto_create
        self._loop = asyncio.get_running_loop()
        self._shared = SharedBuffer(RECEIVE_BYTES)
        self._closed = False
        self._connections: dict[int, BrokerConnection] = {}
        self._connecting: dict[int, asyncio.Task[BrokerConnection]] = {}
        self._reconnects: dict[int, Backoff] = {}
        self._blocked_until: dict[int, float] = {}
        self._coordinators: dict[tuple[CoordinatorKind, str], int] = {}
        self._wanted: dict[str, float] = {}
        """Topics that metadata is kept for, and when each was last asked for."""
        self._tasks: dict[asyncio.Task[Any], None] = {}
        """In the order they were started, so that they end in the same order every time."""
        self._refreshing: asyncio.Task[None] | None = None
        self._refresh_again = False
        self._refresh_backoff = self.backoff()
        self._earliest_refresh_s = 0.0
        self._failing_since_s: float | None = None
        self._last_failure: KafkaError | None = None
        self._aging: asyncio.TimerHandle | None = None
        self._update_waiters: list[asyncio.Future[None]] = []
        self._listeners: list[Callable[[], None]] = []

    async def __aenter__(self) -> Cluster:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends every connection and all work. Whoever waits for something gets an error."""
        if self._closed:
            return
        self._closed = True
        if self._aging is not None:
            self._aging.cancel()
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        for connection in [*self._connections.values()]:
            connection.close()
        await asyncio.gather(*tasks, return_exceptions=True)
        for waiter in self._update_waiters:
            if not waiter.done():
                waiter.set_exception(IllegalStateError("the client is closed"))
                waiter.exception()
        self._update_waiters.clear()

    @property
    def is_closed(self) -> bool:
        return self._closed

    def spawn(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Starts a task that ends with this cluster."""
        task = self._loop.create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        return task

    def backoff(self) -> Backoff:
        """Pauses between the tries of one thing."""
        return Backoff(self.options.retry_backoff_ms, self.options.retry_backoff_max_ms, self._rng)

    # Nodes

    def connected(self, node_id: int) -> BrokerConnection | None:
        """The connection to a node, if there is one now."""
        found = self._connections.get(node_id)
        return found if found is not None and found.is_open else None

    def blocked_s(self, node_id: int) -> float:
        """The seconds until a connection to this node may be tried again."""
        return max(0.0, self._blocked_until.get(node_id, 0.0) - self._loop.time())

    async def node(self, node_id: int) -> BrokerConnection:
        """The connection to a node, opened if need be. NoBrokersAvailableError where the node is not known."""
        if self._closed:
            raise IllegalStateError("the client is closed")
        found = self.connected(node_id)
        if found is not None:
            return found
        task = self._connecting.get(node_id)
        if task is None:
            task = self.spawn(self._connect(node_id), f"connect to {node_id}")
            self._connecting[node_id] = task

            def settled(done: asyncio.Task[BrokerConnection]) -> None:
                self._connecting.pop(node_id, None)
                if not done.cancelled():
                    done.exception()  # whoever waited for it may be gone

            task.add_done_callback(settled)
        return await self.shared(task)

    async def shared(self, task: asyncio.Task[T]) -> T:
        """What a task brings that others wait for, too. IllegalStateError where it ended with this cluster."""
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            # Where both are cancelled, as `close` does it, whoever waits has to end as well.
            if task.cancelled() and waiting is not None and not waiting.cancelling():
                raise IllegalStateError("the client is closed") from None
            raise

    async def any_node(self) -> BrokerConnection:
        """A connection to whichever broker is least busy; NoBrokersAvailableError where none can be had."""
        is_known = bool(self.cache.brokers)
        ids = list(self.cache.brokers) if is_known else [-1 - at for at in range(len(self.options.addresses))]
        there = [found for found in map(self.connected, ids) if found is not None]
        if there:
            return min(there, key=lambda connection: connection.in_flight)
        self._rng.shuffle(ids)
        failures = []
        for node_id in sorted(ids, key=self.blocked_s):
            try:
                return await self.node(node_id)
            except KafkaError as error:
                if self._closed:
                    raise
                failures.append(error)
        if is_known and self.options.metadata_recovery_strategy == "rebootstrap":
            self._rebootstrap()
        tried = ", ".join(str(each.broker) for each in failures)
        raise NoBrokersAvailableError(f"no broker answers; tried {tried}: {failures[-1].message}") from failures[-1]

    async def controller(self) -> BrokerConnection:
        """The broker to send changes of the cluster to."""
        if self.cache.controller_id not in self.cache.brokers:
            await self.update()
        if self.cache.controller_id not in self.cache.brokers:
            raise NoBrokersAvailableError("the cluster has no controller at this moment")
        return await self.node(self.cache.controller_id)

    def _address(self, node_id: int) -> tuple[str, int]:
        if node_id < 0:
            return self.options.addresses[-1 - node_id]
        broker = self.cache.brokers.get(node_id)
        if broker is None:
            self.request_update()
            raise NoBrokersAvailableError("the cluster has no such broker at this moment", broker=str(node_id))
        return broker.host, broker.port

    async def _connect(self, node_id: int) -> BrokerConnection:
        await asyncio.sleep(self.blocked_s(node_id))
        host, port = self._address(node_id)
        options = self.options
        reconnects = self._reconnects.get(node_id)
        if reconnects is None:
            reconnects = Backoff(options.reconnect_backoff_ms, options.reconnect_backoff_max_ms, self._rng)
            self._reconnects[node_id] = reconnects
        setup_ms = min(
            options.socket_connection_setup_timeout_ms << min(reconnects.failures, 10),
            options.socket_connection_setup_timeout_max_ms,
        )
        try:
            connection = await BrokerConnection.open(
                host,
                port,
                options.client_id,
                node_id=node_id,
                timeout_s=options.request_timeout_ms / 1000,
                setup_timeout_s=setup_ms / 1000,
                shared=self._shared,
                socket_buffers=(options.send_buffer_bytes, options.receive_buffer_bytes),
                on_lost=self._connection_lost,
            )
        except KafkaError:
            self._blocked_until[node_id] = self._loop.time() + reconnects.next_s()
            raise
        reconnects.reset()
        self._connections[node_id] = connection
        self._close_when_idle(connection)
        return connection

    def _connection_lost(self, connection: BrokerConnection) -> None:
        node_id = connection.node_id
        if self._connections.get(node_id) is not connection:
            return  # it was never made, or another has taken its place
        del self._connections[node_id]
        reconnects = self._reconnects.get(node_id)
        if reconnects is not None:
            self._blocked_until[node_id] = self._loop.time() + reconnects.next_s()
        if not self._closed and node_id >= 0:
            self.request_update()

    def _close_when_idle(self, connection: BrokerConnection) -> None:
        idle_s = self.options.connections_max_idle_ms / 1000
        if idle_s < 0 or not connection.is_open:
            return
        left_s = connection.last_used_s + idle_s - self._loop.time()
        if left_s > 0 or connection.in_flight:
            self._loop.call_later(max(left_s, idle_s / 10, 0.001), self._close_when_idle, connection)
        else:
            self._connections.pop(connection.node_id, None)
            connection.close()

    def _rebootstrap(self) -> None:
        self.cache.forget_brokers()
        self._coordinators.clear()
        self._failing_since_s = None

    # Metadata

    def leader(self, tp: TopicPartition) -> LeaderAndEpoch | None:
        return self.cache.leader(tp)

    def on_update(self, listener: Callable[[], None]) -> None:
        """Has `listener` called each time metadata came or a leader changed."""
        self._listeners.append(listener)

    def want(self, topics: Iterable[str]) -> None:
        """Keeps metadata for these topics from now on; it is fetched soon where it is not there."""
        now = self._loop.time()
        is_new = False
        for topic in topics:
            is_new = is_new or topic not in self._wanted
            self._wanted[topic] = now
        if is_new:
            self.request_update(now=True)

    def unwant(self, topics: Iterable[str]) -> None:
        for topic in topics:
            self._wanted.pop(topic, None)
            self.cache.forget(topic)

    def touch(self, topic: str) -> None:
        """The topic is in use."""
        if topic in self._wanted:
            self._wanted[topic] = self._loop.time()

    def idle(self, idle_s: float) -> list[str]:
        """The topics that nobody asked for, or touched, in so long."""
        limit = self._loop.time() - idle_s
        return [topic for topic, asked in self._wanted.items() if asked < limit]

    async def metadata(self, topics: Iterable[str], timeout_ms: float | None = None) -> dict[str, TopicInfo]:
        """What is known of these topics, waiting for those that are not known yet.

        Raises the broker's error where a retry cannot help, and where it can but did not in time.
        """
        names = list(topics)
        deadline = self._loop.time() + (self.options.request_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        now = self._loop.time()
        # What is not kept up to date is asked for once before it is believed, and so is an error.
        unkept = {name for name in names if name not in self._wanted}
        for name in names:
            self._wanted[name] = now
        asked_at = self.updates
        while True:
            missing = [name for name in names if name not in self.cache.topics or name in unkept]
            if not missing:
                return {name: self.cache.topics[name] for name in names}
            errors = [self.cache.errors[name] for name in missing if name in self.cache.errors]
            if self.updates > asked_at:
                for error in errors:
                    if not error.retriable:
                        raise error
            try:
                await self.next_update(deadline - self._loop.time(), now=self.updates == asked_at)
            except KafkaTimeoutError as late:
                if errors:
                    raise errors[0] from late
                cause = self._last_failure or late
                raise KafkaTimeoutError(f"no metadata in time: {cause.message}", topic=missing[0]) from cause
            unkept.clear()

    async def all_topics(self) -> dict[str, TopicInfo]:
        """Every topic that there is now."""
        wanted_all, self.wants_all_topics = self.wants_all_topics, True
        try:
            await self.update()
        finally:
            self.wants_all_topics = wanted_all
        return dict(self.cache.topics)

    async def topics(self, names: Iterable[str]) -> tuple[dict[str, TopicInfo], dict[str, KafkaError]]:
        """These topics as they are now, and why others are not there. Creates none and changes nothing that is kept."""
        connection = await self.any_node()
        asked = list(dict.fromkeys(names))
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in asked], allow_auto_topic_creation=False
        )
        found = MetadataCache()
        found.update(await connection.ask(request, MetadataResponse), asked)
        return found.topics, found.errors

    async def update(self) -> None:
        """Fetches metadata now, once; KafkaError where that fails."""
        await self._fetch_metadata()

    async def next_update(self, timeout_s: float, *, now: bool = False) -> None:
        """Asks for metadata and waits until it came; KafkaTimeoutError when it does not in time."""
        if self._closed:
            raise IllegalStateError("the client is closed")
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._update_waiters.append(waiter)
        self.request_update(now=now)
        try:
            async with asyncio.timeout(max(timeout_s, 0)):
                await waiter
        except TimeoutError:
            raise KafkaTimeoutError("no metadata in time") from self._last_failure
        finally:
            if waiter in self._update_waiters:
                self._update_waiters.remove(waiter)

    def request_update(self, *, now: bool = False) -> None:
        """Has metadata fetched soon: at once, or after the pause that keeps clients from asking all the time."""
        if self._closed:
            return
        if now:
            self._earliest_refresh_s = 0.0
        if self._refreshing is None:
            self._refreshing = self.spawn(self._refresh(), "metadata")
        else:
            self._refresh_again = self._refresh_again or now

    def note_error(self, tp: TopicPartition, code: int) -> None:
        """Tells that a broker answered so for a partition: where that means that metadata is stale, it is fetched."""
        if code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH) or _is_stale(code):
            self.request_update()

    def note_leader(self, tp: TopicPartition, leader: int, epoch: int, endpoints: Iterable[BrokerAddress]) -> bool:
        """Takes a leader that an answer named; whether that was news (KIP-951)."""
        for endpoint in endpoints:
            self.cache.add_broker(endpoint)
        moved = self.cache.move_leader(tp, leader, epoch)
        if moved:
            self._tell_listeners()
        return moved

    async def _refresh(self) -> None:
        try:
            while not self._closed:
                await asyncio.sleep(max(0.0, self._earliest_refresh_s - self._loop.time()))
                self._refresh_again = False
                try:
                    await self._fetch_metadata()
                except KafkaError as error:
                    self._refresh_failed(error)
                    continue
                if not self._refresh_again:
                    return
        finally:
            self._refreshing = None

    def _refresh_failed(self, error: KafkaError) -> None:
        now = self._loop.time()
        self._last_failure = error
        if self._failing_since_s is None:
            self._failing_since_s = now
        trigger_s = self.options.metadata_recovery_rebootstrap_trigger_ms / 1000
        is_overdue = now - self._failing_since_s >= trigger_s
        if self.options.metadata_recovery_strategy == "rebootstrap" and (
            is_overdue or isinstance(error, RebootstrapRequiredError)
        ):
            self._rebootstrap()
        self._earliest_refresh_s = now + self._refresh_backoff.next_s()

    async def _fetch_metadata(self) -> None:
        connection = await self.any_node()
        asked = None if self.wants_all_topics else list(self._wanted)
        request = MetadataRequest(
            topics=None if asked is None else [MetadataRequestTopic(name=name) for name in asked],
            allow_auto_topic_creation=self._allow_auto_create and asked is not None,
        )
        response = await connection.ask(request, MetadataResponse)
        raise_for(response.error_code, "Metadata", broker=connection.name)
        if not response.brokers:
            raise NoBrokersAvailableError("the broker knows of no brokers yet", broker=connection.name)
        self.cache.update(response, asked)
        self._adopt(connection)
        self._drop_moved()
        self.updates += 1
        self._failing_since_s = None
        # Topics that are not there yet are asked for less and less often; else there is the least pause.
        if not any(error.retriable for error in self.cache.errors.values()):
            self._refresh_backoff.reset()
        self._earliest_refresh_s = self._loop.time() + self._refresh_backoff.next_s()
        if self._aging is not None:
            self._aging.cancel()
        self._aging = self._loop.call_later(self.options.metadata_max_age_ms / 1000, self.request_update)
        waiters, self._update_waiters = self._update_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._tell_listeners()

    def _tell_listeners(self) -> None:
        for listener in [*self._listeners]:
            listener()

    def _adopt(self, connection: BrokerConnection) -> None:
        """Once it is known which broker is behind a bootstrap address, its connection is that broker's."""
        if connection.node_id >= 0 or not connection.is_open:
            return
        for broker in self.cache.brokers.values():
            if (broker.host, broker.port) == (connection.host, connection.port):
                if self.connected(broker.node_id) is None and broker.node_id not in self._connecting:
                    self._connections.pop(connection.node_id, None)
                    connection.node_id = broker.node_id
                    self._connections[broker.node_id] = connection
                return

    def _drop_moved(self) -> None:
        """Ends connections to brokers that are gone or have another address now."""
        for node_id, connection in [*self._connections.items()]:
            broker = self.cache.brokers.get(node_id)
            if node_id >= 0 and (broker is None or (broker.host, broker.port) != (connection.host, connection.port)):
                del self._connections[node_id]
                connection.close()

    # Coordinators

    async def coordinator(self, kind: CoordinatorKind, key: str) -> BrokerConnection:
        """The broker that coordinates a group or a transactional id, asked for once until it is forgotten."""
        return await self.node(await self.coordinator_id(kind, key))

    async def coordinator_id(self, kind: CoordinatorKind, key: str) -> int:
        """The same for a caller who has connections of its own."""
        node_id = self._coordinators.get((kind, key))
        if node_id is None:
            node_id = await self._find_coordinator(kind, key)
        return node_id

    def forget_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        self._coordinators.pop((kind, key), None)

    async def _find_coordinator(self, kind: CoordinatorKind, key: str) -> int:
        connection = await self.any_node()
        version = connection.version_for(ApiKey.FIND_COORDINATOR)
        if version >= 4:
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        else:
            request = FindCoordinatorRequest(key_type=kind, key=key)
        answer = await connection.ask(request, FindCoordinatorResponse, version=version)
        if version >= 4:
            found = answer.coordinators[0]
            code, message, address = found.error_code, found.error_message, (found.node_id, found.host, found.port)
        else:
            code, message, address = answer.error_code, answer.error_message, (answer.node_id, answer.host, answer.port)
        what = f"the coordinator of {kind.name.lower()} {key!r}"
        raise_for(code, f"{what}: {message}" if message else what, broker=connection.name)
        if address[0] not in self.cache.brokers:
            self.cache.add_broker(BrokerAddress(*address))
        self._coordinators[kind, key] = address[0]
        return address[0]

    # Trying again

    async def retrying(
        self, attempt: Callable[[], Awaitable[T]], timeout_ms: float, what: str = "", retries: int = INT32_MAX
    ) -> T:
        """What `attempt` gives, tried again while its error says that a retry can help and there is time.

        When the time is up the last error is the cause of the KafkaTimeoutError; after so many retries it is raised.
        """
        deadline = self._loop.time() + timeout_ms / 1000
        pauses = self.backoff()
        last: KafkaError | None = None
        while True:
            try:
                async with asyncio.timeout_at(deadline) as limit:
                    return await attempt()
            except KafkaError as error:
                if not error.retriable or self._closed or retries <= 0:
                    raise
                retries -= 1
                if error.is_stale_metadata:
                    self.request_update()
                last = error
            except TimeoutError:
                if not limit.expired():
                    raise
            pause_s = pauses.next_s()
            if self._loop.time() + pause_s >= deadline:
                raise _timed_out(what, timeout_ms, last) from last
            await asyncio.sleep(pause_s)


def _is_stale(code: int) -> bool:
    return KafkaError(code=ErrorCode(code)).is_stale_metadata if code in ErrorCode._value2member_map_ else False


def _timed_out(what: str, timeout_ms: float, last: KafkaError | None) -> KafkaTimeoutError:
    text = f"{what or 'it'} did not succeed within {timeout_ms:g} ms"
    if last is None:
        return KafkaTimeoutError(text)
    return KafkaTimeoutError(
        f"{text}; the last try: {last.code.name + ': ' if last.code else ''}{last.message}",
        broker=last.broker,
        topic=last.topic,
        partition=last.partition,
    )
