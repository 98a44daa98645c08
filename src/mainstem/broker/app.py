"""One node: it joins the machines, the files and the sockets, and owns their start and stop.

Everything it needs of the world comes in: the loop, the file system, the clock and the randomness. Start, in order:
the metadata quorum is loaded and leads; the listeners are bound; the broker registers and catches up with the
metadata, opening its logs and taking its terms of leadership; then it serves. A clean stop is the reverse.

A log directory that fails is told to the controller, and the node goes on with the others. Without the metadata, or
without any directory, it cannot: it stops serving at once and `on_fatal` is called.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from random import Random

from mainstem.broker.apis import served
from mainstem.broker.clock import Clock
from mainstem.broker.config import BrokerConfig, ConfigError, Endpoint
from mainstem.broker.descriptors import Descriptors
from mainstem.broker.drivers.assignments import DirectoryAssignments
from mainstem.broker.drivers.compaction import Compaction
from mainstem.broker.drivers.controller import (
    ActiveController,
    Carry,
    ControllerChannel,
    carry_directly,
    controller_settings,
)
from mainstem.broker.drivers.groups import Groups
from mainstem.broker.drivers.lifecycle import BrokerIdentity, BrokerLifecycle
from mainstem.broker.drivers.peers import Peers
from mainstem.broker.drivers.quorum import MetadataQuorum, QuorumSettings
from mainstem.broker.drivers.transactions import Transactions
from mainstem.broker.drivers.verification import Verification
from mainstem.broker.dynamic_settings import DynamicSettings
from mainstem.broker.features import Features
from mainstem.broker.fetch_sessions import FetchSessions
from mainstem.broker.housekeeping import Housekeeping
from mainstem.broker.log_moves import LogMoves
from mainstem.broker.partitions import Partitions
from mainstem.broker.producer_ids import ProducerIds
from mainstem.broker.router import Router
from mainstem.broker.topic_creation import TopicCreation
from mainstem.core.controller.image import ClusterImage, ImageDelta
from mainstem.core.controller.states import PartitionState
from mainstem.net.connection import Handler
from mainstem.net.listener import Listener
from mainstem.net.sockets import SocketOptions
from mainstem.protocol.api import APIS, ApiKey
from mainstem.protocol.api import Listener as ListenerKind
from mainstem.protocol.framing import SharedBuffer
from mainstem.storage.fs import FileSystem
from mainstem.storage.log_directory import LogDirectory, open_log_directory

log = logging.getLogger(__name__)

LOOKUPS_AT_A_TIME = 2
"""Each may take the 128 MB that a batch may expand to."""

MetadataListener = Callable[[ClusterImage, ImageDelta], None]


class Broker:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        fs: FileSystem,
        clock: Clock,
        rng: Random,
        config: BrokerConfig,
        cluster_id: str,
        *,
        open_files_max: int = 10_000,
        on_fatal: Callable[[BaseException], None] = lambda error: None,
        carry: Carry = carry_directly,
        around: Callable[[Handler], Handler] = lambda handler: handler,
        carry_to_peer: Carry = carry_directly,
    ) -> None:
        """`carry` is how messages reach the controller, `carry_to_peer` how they reach brokers, this one as well; a
        simulator puts its own in.

        `open_files_max` is how many descriptors the files of logs and the connections may have together. `around` may
        put something before the router that sees every request first; a test kit has its faults there.
        """
        self.loop = loop
        self.fs = fs
        self.clock = clock
        self.rng = rng
        self.config = config
        self.node_id = config.node_id
        self.cluster_id = cluster_id
        self.broker_epoch = -1
        self.image = ClusterImage()
        """Committed metadata, as far as this broker has followed it."""
        self._on_fatal = on_fatal
        self._failure: BaseException | None = None
        self.features = Features()
        self.lookups = asyncio.Semaphore(LOOKUPS_AT_A_TIME)
        """Held by who has a batch opened to find a record by its time."""
        self.fetch_max_bytes = config.get_int("fetch.max.bytes", at_least=1024)
        self.fetch_sessions = FetchSessions(
            config.get_int("max.incremental.fetch.session.cache.slots"), rng, clock.wall_ms
        )
        self.partitions = Partitions(
            loop,
            fs,
            clock,
            rng,
            node_id=config.node_id,
            cluster_id=cluster_id,
            log_dirs=config.log_dirs,
            settings=config.given,
            open_files_max=open_files_max,
            producer_expiration_ms=config.get_int("producer.id.expiration.ms", at_least=1),
            on_directory_failure=self._directory_failed,
        )
        self._metadata_only: LogDirectory | None = None
        """The directory of the metadata where it is none of log.dirs: no partitions are there."""
        if config.metadata_dir not in config.log_dirs:
            self._metadata_only = open_log_directory(
                fs, config.metadata_dir, cluster_id, config.node_id, "metadata.log.dir"
            )
        metadata = self._metadata_only or next(
            (one for one in self.partitions.dirs.directories if one.path == config.metadata_dir), None
        )
        if metadata is None:
            why = self.partitions.dirs.unusable[config.metadata_dir]
            raise ValueError(f"metadata.log.dir: {config.metadata_dir} cannot be used: {why}")
        self._quorum = MetadataQuorum(
            loop, fs, clock, QuorumSettings.from_config(config, metadata.directory_id), self._fail
        )
        self._controller = ActiveController(
            loop,
            clock,
            rng,
            self._quorum,
            controller_settings(config, cluster_id),
            idle_interval_ms=config.get_int("metadata.max.idle.interval.ms", at_least=0),
        )
        self.controller = ControllerChannel(self._controller.handle, carry)
        modules = served()
        between_brokers = (ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.WRITE_TXN_MARKERS)
        self.peers = Peers(self, {key: modules[key].handle for key in between_brokers}, carry_to_peer)
        self.verification = Verification(self)
        self.groups = Groups(self)
        self.transactions = Transactions(self)
        self._lifecycle: BrokerLifecycle | None = None
        self.topic_creation = TopicCreation(self)
        self.producer_ids = ProducerIds(self)
        self.log_moves = LogMoves(self)
        self.housekeeping = Housekeeping(loop, clock, config, self.partitions, self._quorum)
        self.compaction = Compaction(loop, clock, config, self.partitions)
        self.assignments = DirectoryAssignments(self)
        self.descriptors = Descriptors(
            open_files_max, self.partitions.open_files, config.get_int("max.connections", at_least=0)
        )
        self._dynamic = DynamicSettings(config, self.descriptors.clients, self.compaction)
        self.metadata_listeners: list[MetadataListener] = [
            self._dynamic.follow,
            self.groups.follow,
            self.transactions.follow,
            self.compaction.follow,
            self.assignments.follow,
        ]
        """Told of each change, in order, after the partitions have followed it."""
        self._router = Router(self, modules)
        self._handler = around(self._router.dispatch)
        self._shared = SharedBuffer()
        self._listeners: dict[str, Listener] = {}

    # Start and stop

    async def start(self) -> None:
        """Returns when clients are served. ValueError, OSError or StorageError where that cannot be.

        StartInterruptedError where `interrupt` came while logs were being opened; `stop` is then to follow.
        """
        try:
            await self._start()
        except Exception:
            # What has failed says more than what came of it.
            self._check_able()
            raise

    async def _start(self) -> None:
        started = self.loop.time()
        await self.loop.run_in_executor(None, self._quorum.load, [self._controller.image])
        self._quorum.follow(self.follow)
        await self._quorum.start()
        self.image = self._quorum.image
        self._dynamic.take(self.image)
        await self.partitions.load(self.image)
        self._check_able()
        await self._controller.activate()
        await self.bind()
        self._lifecycle = BrokerLifecycle(
            self.loop,
            self.rng,
            self.controller,
            BrokerIdentity(
                node_id=self.node_id,
                cluster_id=self.cluster_id,
                endpoints=[(one.listener, one.host, one.port) for one in self.advertised],
                directories=[one.directory_id for one in self.partitions.dirs.online],
                rack=self.config.get("broker.rack"),
                previous_epoch=self.partitions.dirs.previous_broker_epoch,
            ),
            lambda: self._quorum.followed_end - 1,
            self._cordoned,
            heartbeat_interval_ms=self.config.get_int("broker.heartbeat.interval.ms", at_least=1),
        )
        self.broker_epoch = await self._lifecycle.register()
        await self._lifecycle.unfence()
        await self.caught_up()
        self._check_able()
        await self.serve()
        self.housekeeping.start()
        self.compaction.start()
        self.log_moves.resume()
        log.info(
            "serving",
            extra={
                "node": self.node_id,
                "cluster": self.cluster_id,
                "partitions": len(self.partitions),
                "start_ms": int((self.loop.time() - started) * 1000),
            },
        )

    def interrupt(self) -> None:
        """For who wants a start to end before it is done. Past the opening of the logs it takes but moments, and is not
        cut short."""
        self.partitions.interrupt()

    async def stop(self) -> None:
        """The clean stop: leadership is handed over, every log is closed and marked so."""
        if self._lifecycle is not None:
            await self._lifecycle.shut_down()
        self.close_listeners()
        self.verification.close()
        self.transactions.close()
        self.groups.close()
        await self.compaction.stop()
        await self.housekeeping.stop()
        await self.log_moves.stop()
        self.assignments.stop()
        self._controller.stop()
        await self._quorum.stop()
        if self._metadata_only is not None:
            self._metadata_only.leave()
        await self.partitions.close(self.broker_epoch)

    def _cordoned(self) -> list[bytes]:
        """The ids of the directories that take no new partitions."""
        dirs = self.partitions.dirs
        return [one.directory_id for one in dirs.online if one.path in dirs.cordoned]

    # Failing

    def _directory_failed(self, directory: LogDirectory) -> None:
        if self._lifecycle is not None:
            self._lifecycle.directory_failed(directory.directory_id)
            self.assignments.directory_failed(directory)
        error = OSError(f"{directory.path}: {directory.offline}")
        if directory.path == self.config.metadata_dir:
            self._quorum.directory_failed(error)
        elif not self.partitions.dirs.online:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Nobody may go on to believe what this node says. Whoever has failed is still at it: listeners go after."""
        self._failure = self._failure or error
        self.loop.call_soon(self.close_listeners)
        self._on_fatal(error)

    def _check_able(self) -> None:
        """One who has failed already is not to say that it serves, nor anything else of why it cannot."""
        if self._failure is not None:
            raise OSError(str(self._failure)) from self._failure

    # Metadata

    async def follow(self, image: ClusterImage, delta: ImageDelta, offset: int) -> None:
        """Takes over a change of the committed metadata."""
        self.image = image
        self.features.update(image, offset)
        await self.partitions.apply(image, delta)
        if self._lifecycle is not None:
            self._lifecycle.tell_cordoned()
        for listener in self.metadata_listeners:
            listener(image, delta)

    async def caught_up(self) -> None:
        """Returns when this broker has followed all metadata that is committed now: what was created can be used."""
        await self._quorum.caught_up()

    def nodes(self, listener_name: str) -> list[tuple[int, str, int, str | None]]:
        """The brokers that clients of a listener may connect to: id, host, port, rack."""
        found = []
        for broker in self.image.brokers.values():
            if not broker.fenced:
                for endpoint in broker.end_points:
                    if endpoint.name == listener_name:
                        found.append((broker.broker_id, endpoint.host, endpoint.port, broker.rack))
        return found

    def offline_replicas(self, state: PartitionState) -> list[int]:
        """The replicas of a partition that are on no broker that serves, or in a directory that does not."""
        offline = []
        for replica in state.replicas:
            broker = self.image.brokers.get(replica)
            if broker is None or broker.fenced or not broker.has_online_directory(state.directory_of(replica)):
                offline.append(replica)
        return offline

    def advertised_apis(self, listener_name: str) -> dict[int, tuple[int, int]]:
        """The versions told to clients of a listener: those served, but Produce from 0 (KAFKA-18659)."""
        kind = ListenerKind.CONTROLLER if listener_name in self.config.controller_listeners else ListenerKind.BROKER
        ranges: dict[int, tuple[int, int]] = {}
        for key, route in self._router.routes.items():
            unstable = key == ApiKey.INIT_PRODUCER_ID and self.transactions.config.two_phase_commit
            advertised = APIS[key].advertised(kind, unstable)
            if advertised is not None:
                first, last = advertised
                ranges[key] = (min(first, route.min_version), min(last, route.max_version))
        return ranges

    # Listeners

    async def bind(self) -> None:
        """Opens the listening sockets without serving them yet: ports that were free ones are known now."""
        for endpoint in self.config.listeners:
            is_controllers = endpoint.listener in self.config.controller_listeners
            listener = Listener(
                self.loop,
                endpoint.listener,
                self._handler,
                self._shared,
                max_frame_bytes=self.config.get_int("socket.request.max.bytes", at_least=1),
                limit=self.descriptors.controllers if is_controllers else self.descriptors.clients,
                options=socket_options(self.config),
            )
            try:
                await listener.open(endpoint.host, endpoint.port)
            except OSError as error:
                # A loop's own text repeats the address; the system's is shorter.
                reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
                raise ConfigError(f"listeners has {endpoint}, which cannot be bound: {reason}") from error
            self._listeners[endpoint.listener] = listener

    async def serve(self) -> None:
        for listener in self._listeners.values():
            await listener.serve()

    def bound_port(self, listener_name: str) -> int:
        return self._listeners[listener_name].port

    @property
    def advertised(self) -> list[Endpoint]:
        """Where clients are told to connect: a listener bound to a free port is told with the port it got."""
        return [
            Endpoint(each.listener, each.host, each.port or self.bound_port(each.listener))
            for each in self.config.advertised
            if each.listener not in self.config.controller_listeners
        ]

    def drop_threads(self) -> None:
        """For whoever kills it within a process: its threads end with what they are at. The loop must have stopped."""
        self._quorum.drop_thread()
        self.partitions.judges.shutdown(cancel_futures=True)

    def close_listeners(self) -> None:
        for listener in self._listeners.values():
            listener.close()
        self._router.close()


def socket_options(config: BrokerConfig) -> SocketOptions:
    """Buffers are the system's, which sizes them by itself, unless they are set."""

    def buffer_bytes(key: str) -> int:
        return config.get_int(key) if config.is_given(key) else -1

    return SocketOptions(
        buffer_bytes("socket.send.buffer.bytes"),
        buffer_bytes("socket.receive.buffer.bytes"),
        config.get_int("connections.max.idle.ms"),
    )
