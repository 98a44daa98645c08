"""One broker as a process on a simulated machine: started, stopped, killed, cut from its power, paused.

The broker's code is the product's own. Each start is a life of its own, with a loop and randomness of its own; the disk
and the wall clock belong to the machine and outlive it.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from random import Random
from typing import Final

from mainstem.broker.app import Broker
from mainstem.broker.config import BrokerConfig
from mainstem.broker.drivers.controller import Deliver
from mainstem.broker.features import TRANSACTION_VERSION
from mainstem.broker.format import format_directories
from mainstem.core.controller.features import DEFAULT_FEATURES
from mainstem.core.txn.states import TV2
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k24_add_partitions_to_txn import AddPartitionsToTxnRequest
from mainstem.protocol.messages.k27_write_txn_markers import WriteTxnMarkersRequest
from mainstem.protocol.schema import Message
from mainstem.sim.changes import Change, Torn, describe_loss, random_survivors
from mainstem.sim.disk import SimDisk
from mainstem.sim.loop import ProcessDied, Scheduler, SimClock, SimLoop, make_loop
from mainstem.sim.network import Network
from mainstem.sim.verified import Whose, verified_by
from mainstem.storage.errors import StorageError

Survivors = Callable[[Sequence[Change], Random], dict[int, Torn]]
"""Draws what a power loss keeps."""

CLUSTER_ID: Final = "AAECAwQFBgcICQoLDA0ODw"
SLOW_MARKER_S: Final = 2.0


class ControllerFaults:
    """How badly messages inside the cluster travel."""

    def __init__(self) -> None:
        self.late_share = 0.0
        """Of messages between brokers, how many arrive after their sender has given up on them (N10)."""
        self.delay_share = 0.0
        self.drop_share = 0.0
        self.lose_answer_share = 0.0
        self.repeat_share = 0.0


class BrokerProcess:
    def __init__(
        self,
        seed: str,
        scheduler: Scheduler,
        network: Network,
        disk: SimDisk,
        config: BrokerConfig,
        trace: Callable[..., None],
        count: Callable[[str], None],
        clock: SimClock | None = None,
    ) -> None:
        self.name = "broker"
        self.disk = disk
        self.clock = clock or SimClock(scheduler)
        self.broker: Broker | None = None
        self.loop: SimLoop | None = None
        self.life = 0
        self.is_serving = False
        self.is_stopping = False
        self.start_error: BaseException | None = None
        self.transaction_version = TV2
        """What a disk is formatted with."""
        self.flush_files_max: int | None = None
        """How many files flushes may have open together, where those are few."""
        self.judge_delay: Callable[[], float] | None = None
        """How long the threads take that judge batches, where they have much to do."""
        self.controller_faults = ControllerFaults()
        self.peer_faults = ControllerFaults()
        self.late_word_share = 0.0
        """Of a coordinator's words that a batch may be taken, how many come when much may have happened since."""
        self.slow_marker_share = 0.0
        """Of the markers that it sends, how many take longer than it takes to begin and to end the next transaction."""
        self.markers_in: Callable[[Iterable[Whose]], int] = lambda whose: 0
        """How many markers of these have been written."""
        self.on_markers: Callable[[WriteTxnMarkersRequest, int, Deliver], None] = lambda message, version, deliver: None
        """Called with markers that a coordinator sends, and how they are delivered."""
        self.died_of: str = ""
        self.on_start: Callable[[], None] = lambda: None
        """Called before each start, when the disk is as the start will find it."""
        self.on_served: Callable[[Broker], None] = lambda broker: None
        """Called when a start is through, before any client is answered by it."""
        self.on_death: Callable[[str], None] = lambda how: None
        """Called just before the process dies, while what it knew can still be looked at."""
        self.after_step: Callable[[], None] | None = None
        """Called after each step of the process, while it lives."""
        self.crash_after: int | None = None
        """How many disk operations from now the process dies, if it is to."""
        self.crash_is_power_loss = False
        self.past_loops: list[SimLoop] = []
        self._seed = seed
        self._scheduler = scheduler
        self._network = network
        self.config = config
        self._trace = trace
        self._count = count
        self._rng = Random(f"{seed}:process")
        self._carry_rng = Random(f"{seed}:carry")
        disk.on_operation = self._operation

    @property
    def is_up(self) -> bool:
        return self.loop is not None and not self.loop.is_dead

    # Start and stop

    def format(self, disk: SimDisk | None = None) -> None:
        format_directories(
            disk or self.disk, Random(f"{self._seed}:format"), self.config, self.clock.wall_ms(), CLUSTER_ID,
            ignore_formatted=True, features=DEFAULT_FEATURES | {TRANSACTION_VERSION: self.transaction_version},
        )  # fmt: skip

    def start(self) -> None:
        assert not self.is_up, "it runs already"
        self.life += 1
        self.died_of = ""
        self.start_error = None
        self.broker = None
        self._trace("start", self.life)
        self.on_start()
        loop = make_loop(self._scheduler, Random(f"{self._seed}:threads:{self.life}"), self.name, self._network)
        loop.life = self.life
        loop.after_step = self.after_step
        self.loop = loop
        loop.create_task(self._run(loop))

    async def _run(self, loop: SimLoop) -> None:
        def on_fatal(error: BaseException) -> None:
            """Meanwhile the step that failed goes on, and what else is ready."""
            loop.call_soon(self._exited, f"fatal: {error}")

        try:
            broker = Broker(
                loop,
                self.disk,
                self.clock,
                Random(f"{self._seed}:broker:{self.life}"),
                self.config,
                CLUSTER_ID,
                on_fatal=on_fatal,
                carry=self._carry,
                carry_to_peer=self._carry_to_peer,
            )
            if self.flush_files_max is not None:
                broker.partitions.flush_turns.files_max = self.flush_files_max
            if self.judge_delay is not None:
                loop.busy, loop.busy_delay = broker.partitions.judges, self.judge_delay
            self.broker = broker
            await broker.start()
        except (ValueError, OSError, StorageError) as error:
            self.start_error = error
            self._exited(f"cannot start: {error}")
            return
        self.is_serving = True
        self._trace("serving", self.life, len(broker.partitions))
        self.on_served(broker)

    def stop(self) -> None:
        """The clean stop; the process is gone some time later."""
        if self.is_serving and not self.is_stopping and self.loop is not None:
            self._trace("stop", self.life)
            self.is_stopping = True
            self.loop.create_task(self._stop(self.loop))

    async def _stop(self, loop: SimLoop) -> None:
        assert self.broker is not None
        try:
            await self.broker.stop()
        except StorageError as error:
            self._exited(f"could not stop cleanly: {error}")
            return
        self._died("stopped")
        self.disk.kill()

    # Death

    def _exited(self, why: str) -> None:
        """The process ends itself, without a clean stop."""
        if self.is_up:
            self._count("exited by itself")
            self._died(why)
            self.disk.kill()

    def kill(self) -> None:
        if self.is_up:
            self._died("kill -9")
            self.disk.kill()

    def power_loss(self, survivors: Survivors = random_survivors) -> None:
        if self.is_up:
            self._died("power loss")
        self.reboot(survivors)

    def reboot(self, survivors: Survivors = random_survivors) -> None:
        """The machine is started anew: of what was not synced a part is there."""
        changes = self.disk.unsynced()
        kept = survivors(changes, self._rng)
        self._trace("reboot", len(changes), len(kept))
        for what in describe_loss(changes, kept):
            self._count(what)
        self.disk.power_loss_keeping(kept)

    def come_back_with(self, image: SimDisk) -> None:
        """The machine gets another disk, with what is on this image of one."""
        self.kill()
        self.disk.restore(image)
        self.died_of = "another disk"  # however it stopped, not all of what is there now was synced

    def _died(self, how: str) -> None:
        assert self.loop is not None
        self._trace("died", self.life, how)
        self.on_death(how)
        self.died_of = how
        self.loop.abandon()
        self.loop.after_step = None
        self.past_loops.append(self.loop)
        self._network.process_died(self.loop)
        self.is_serving = False
        self.is_stopping = False
        self.crash_after = None

    def _operation(self, operation: str, path: str, position: int, size: int) -> None:
        self._trace("disk", operation, path, position, size)
        if self.crash_after is not None:
            self.comes_nearer_to_its_death()

    def comes_nearer_to_its_death(self) -> None:
        """By one operation of the disk, which is its last one if its time has come."""
        if self.crash_after is None or not self.is_up:
            return
        self.crash_after -= 1
        if self.crash_after < 0:
            starting = not self.is_serving
            self._count("X5 death while starting" if starting else "death at a disk operation")
            if self.crash_is_power_loss:
                self.power_loss()
            else:
                self.kill()
            raise ProcessDied

    # The way to the controller

    def _carry(self, message: Message, version: int, deliver: Deliver) -> Awaitable[Message]:
        faults = self.controller_faults
        if faults.delay_share or faults.drop_share or faults.lose_answer_share or faults.repeat_share:
            return self._carry_badly(message, version, deliver, faults, "controller")
        return deliver(message, version)

    def _carry_to_peer(self, message: Message, version: int, deliver: Deliver) -> Awaitable[Message]:
        faults = self.peer_faults
        if isinstance(message, WriteTxnMarkersRequest):
            self.on_markers(message, version, deliver)
            if self.slow_marker_share and self._carry_rng.random() < self.slow_marker_share:
                return self._carry_slowly(message, version, deliver)
        share = self.late_word_share
        if share and isinstance(message, AddPartitionsToTxnRequest) and self._carry_rng.random() < share:
            return self._answer_late(message, version, deliver)
        if not (faults.delay_share or faults.drop_share or faults.lose_answer_share or faults.late_share):
            return deliver(message, version)
        if self._may_come_late(message) and self._carry_rng.random() < faults.late_share:
            return self._carry_late(message, version, deliver)
        return self._carry_badly(message, version, deliver, faults, "peer")

    async def _carry_slowly(self, message: Message, version: int, deliver: Deliver) -> Message:
        self._count("marker delayed for long")
        await asyncio.sleep(self._carry_rng.random() * SLOW_MARKER_S)
        return await deliver(message, version)

    async def _answer_late(self, message: AddPartitionsToTxnRequest, version: int, deliver: Deliver) -> Message:
        answer = await deliver(message, version)
        self._count("peer answer delayed")
        verified = verified_by(message, answer)
        before = self.markers_in(verified)
        await asyncio.sleep(self._carry_rng.random() * 0.5)
        if self.markers_in(verified) > before:
            self._count("marker between verification and append")
        return answer

    @staticmethod
    def _may_come_late(message: Message) -> bool:
        """Under transaction version 1 nobody can tell a late marker from one of the next transaction (T8)."""
        if isinstance(message, WriteTxnMarkersRequest):
            return all(marker.transaction_version >= TV2 for marker in message.markers)
        return True

    async def _carry_late(self, message: Message, version: int, deliver: Deliver) -> Message:
        self._count("peer message late")
        loop = asyncio.get_running_loop()
        loop.call_later(
            0.1 + self._carry_rng.random() * 2, lambda: loop.create_task(self._deliver_late(message, version, deliver))
        )
        await asyncio.sleep(0.1)
        raise RemoteError(ErrorCode.NETWORK_EXCEPTION, "the peer did not answer")

    async def _deliver_late(self, message: Message, version: int, deliver: Deliver) -> None:
        with contextlib.suppress(RemoteError):
            await deliver(message, version)

    async def _carry_badly(
        self, message: Message, version: int, deliver: Deliver, faults: ControllerFaults, whose: str
    ) -> Message:
        rng = self._carry_rng
        if rng.random() < faults.delay_share:
            self._count(f"{whose} message delayed")
            await asyncio.sleep(rng.random() * 0.5)
        if rng.random() < faults.drop_share:
            self._count(f"{whose} message dropped")
            await asyncio.sleep(0.5)
            raise RemoteError(ErrorCode.REQUEST_TIMED_OUT, f"the {whose} did not answer")
        answer = await deliver(message, version)
        if rng.random() < faults.repeat_share:
            self._count(f"{whose} message repeated")
            await asyncio.sleep(rng.random() * 0.1)
            answer = await deliver(message, version)
        if rng.random() < faults.lose_answer_share:
            self._count(f"{whose} answer lost")
            await asyncio.sleep(0.5)
            raise RemoteError(ErrorCode.REQUEST_TIMED_OUT, f"the {whose}'s answer was lost")
        return answer
