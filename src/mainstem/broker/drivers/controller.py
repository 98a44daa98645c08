"""Runs the active controller, and carries messages to it.

`ControllerChannel` is the only way to the controller: a message goes in, an answer comes out. In one process that is a
call; `carry` is the one place where it could be anything else, and where a simulator delays, drops or repeats.

A request is decided at once, on everything decided before it; its records are replayed into the controller's own image
and written, and its answer leaves when they are committed. One that writes nothing waits for what it was decided on
(nobody is told of a topic that a crash would take back).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

from mainstem.broker.clock import Clock
from mainstem.broker.config import BrokerConfig
from mainstem.broker.drivers.quorum import MetadataQuorum
from mainstem.broker.settings import SETTINGS
from mainstem.core.controller.context import SUPPORTED_FEATURES, ControllerSettings
from mainstem.core.controller.controller import Controller
from mainstem.core.controller.image import ClusterImage
from mainstem.core.controller.names import METADATA_TOPIC
from mainstem.core.log.config import server_defaults
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages import k70_controller_registration as k70
from mainstem.protocol.messages.k55_describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)
from mainstem.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from mainstem.protocol.messages.metadata_records import NoOpRecord
from mainstem.protocol.schema import Message
from mainstem.protocol.uuids import random_uuid

log = logging.getLogger(__name__)

Deliver = Callable[[Message, int], Awaitable[Message]]
Carry = Callable[[Message, int, Deliver], Awaitable[Message]]

PLAINTEXT: Final = 0
TICKS_PER_SESSION: Final = 6


def carry_directly(message: Message, version: int, deliver: Deliver) -> Awaitable[Message]:
    return deliver(message, version)


def _is_sign_of_life(request: Message) -> bool:
    """A heartbeat that changes nothing tells nobody anything new. Waiting behind a slow disk, or behind a thousand
    partitions being made, it would hold up the next one until the broker counts as gone."""
    return isinstance(request, BrokerHeartbeatRequest) and not request.want_shut_down


class ControllerChannel:
    def __init__(self, deliver: Deliver, carry: Carry = carry_directly) -> None:
        self._deliver = deliver
        self._carry = carry

    async def send(self, message: Message, version: int) -> Message:
        """The controller's answer to a request of that version. RemoteError where it has none."""
        return await self._carry(message, version, self._deliver)


def controller_settings(config: BrokerConfig, cluster_id: str) -> ControllerSettings:
    return ControllerSettings(
        node_id=config.node_id,
        cluster_id=cluster_id,
        default_partitions=config.get_int("num.partitions", at_least=1),
        default_replication_factor=config.get_int("default.replication.factor", at_least=1),
        log_defaults=server_defaults(config.given),
        given=config.given,
        broker_lists={name: one.default or "" for name, one in SETTINGS.items() if one.kind == "list"},
        session_timeout_ms=config.get_int("broker.session.timeout.ms", at_least=1),
        delete_topics=config.get_bool("delete.topic.enable"),
    )


class ActiveController:
    """`image` must be replayed by the quorum's `load`; then `activate`, then `handle`, then `stop`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        rng: Random,
        quorum: MetadataQuorum,
        settings: ControllerSettings,
        *,
        idle_interval_ms: int = 500,
    ) -> None:
        self.image = ClusterImage()
        self._loop = loop
        self._clock = clock
        self._rng = rng
        self._quorum = quorum
        self._controller = Controller(self.image, settings, lambda: random_uuid(rng))
        self._settings = settings
        self._idle_interval_ms = idle_interval_ms
        self._appended_at_ms = 0
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._stopped = False

    # -- start and stop --------------------------------------------------------------------------------------------

    async def activate(self) -> None:
        """Writes what a new controller writes first; returns when it is committed."""
        self._controller.context.kraft_version = self._quorum.machine.voters.kraft_version
        bootstrap = self._quorum.bootstrap_records() if self._controller.needs_bootstrap else []
        records = self._controller.activate(bootstrap)
        if records:
            await self._write(records, atomic=True)
        await self.handle(self._registration(), k70.ControllerRegistrationRequest.MAX_VERSION)
        self._every("sessions", self._settings.session_timeout_ms // TICKS_PER_SESSION, self._check_sessions)
        if self._idle_interval_ms > 0:
            self._every("idle", self._idle_interval_ms, self._write_when_idle)

    def stop(self) -> None:
        self._stopped = True
        for timer in self._timers.values():
            timer.cancel()

    def _registration(self) -> k70.ControllerRegistrationRequest:
        return k70.ControllerRegistrationRequest(
            controller_id=self._settings.node_id,
            incarnation_id=random_uuid(self._rng),
            zk_migration_ready=False,
            listeners=[
                k70.Listener(name=name, host=host, port=port, security_protocol=PLAINTEXT)
                for name, host, port in self._quorum.settings.endpoints
            ],
            features=[
                k70.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
        )

    # -- requests --------------------------------------------------------------------------------------------------

    async def handle(self, request: Message, version: int) -> Message:
        if self._stopped:
            # A message may have been on its way for long, and the log is closed by now (seed 3013530).
            raise RemoteError(ErrorCode.NOT_CONTROLLER, "the controller has stopped")
        if isinstance(request, DescribeQuorumRequest):
            return self._describe_quorum(request)
        decision = self._controller.handle(request, version, self._now_ms(), self._quorum.next_offset)
        if decision.records:
            await self._write(decision.records, decision.atomic)
        elif self._quorum.machine.high_watermark < self._quorum.next_offset and not _is_sign_of_life(request):
            await self._quorum.committed()
        return decision.response

    def _write(self, records: list[Message], atomic: bool) -> "asyncio.Future[None]":
        self.image.replay_all(records)
        self._appended_at_ms = self._now_ms()
        return self._quorum.append(records, self.image.metadata_version, atomic)

    def _now_ms(self) -> int:
        """Time that only rises: sessions must not end because someone sets the clock."""
        return int(self._loop.time() * 1000)

    # -- what nobody asks for --------------------------------------------------------------------------------------

    def _every(self, name: str, interval_ms: int, act: Callable[[], None]) -> None:
        def fire() -> None:
            if not self._stopped:
                act()
                self._timers[name] = self._loop.call_later(interval_ms / 1000, fire)

        self._timers[name] = self._loop.call_later(interval_ms / 1000, fire)

    def _check_sessions(self) -> None:
        records = self._controller.tick(self._now_ms())
        if records:
            log.warning("broker fenced: it was not heard of in time", extra={"records": len(records)})
            self._forget(self._write(records, atomic=False))

    def _write_when_idle(self) -> None:
        """A record now and then, so that followers can tell a quiet leader from a dead one (KIP-835)."""
        if self._now_ms() - self._appended_at_ms >= self._idle_interval_ms:
            self._forget(self._write([NoOpRecord()], atomic=True))

    def _forget(self, done: "asyncio.Future[None]") -> None:
        """Nobody waits for this one; its failure is the quorum's to report."""
        done.add_done_callback(lambda future: None if future.cancelled() else future.exception())

    # -- the quorum ------------------------------------------------------------------------------------------------

    def _describe_quorum(self, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
        topics = []
        for topic in request.topics:
            described = [self._describe_partition(topic.topic_name, one.partition_index) for one in topic.partitions]
            topics.append(ResponseTopicData(topic_name=topic.topic_name, partitions=described))
        nodes = [
            Node(
                node_id=voter.voter_id,
                listeners=[Listener(name=one.name, host=one.host, port=one.port) for one in voter.endpoints],
            )
            for voter in self._quorum.machine.voters.record.voters
        ]
        return DescribeQuorumResponse(error_code=ErrorCode.NONE, topics=topics, nodes=nodes)

    def _describe_partition(self, topic: str, index: int) -> ResponsePartitionData:
        machine = self._quorum.machine
        if topic != METADATA_TOPIC or index != 0:
            return ResponsePartitionData(
                partition_index=index,
                error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                leader_id=0,
                leader_epoch=0,
                high_watermark=0,
                current_voters=[],
                observers=[],
            )
        now_ms = self._clock.wall_ms()
        voters = [
            ReplicaState(
                replica_id=voter.voter_id,
                replica_directory_id=voter.voter_directory_id,
                log_end_offset=machine.log_end,
                last_fetch_timestamp=now_ms,
                last_caught_up_timestamp=now_ms,
            )
            for voter in machine.voters.record.voters
        ]
        return ResponsePartitionData(
            partition_index=index,
            error_code=ErrorCode.NONE,
            leader_id=machine.node_id,
            leader_epoch=machine.epoch,
            high_watermark=machine.high_watermark,
            current_voters=voters,
            observers=[],
        )
