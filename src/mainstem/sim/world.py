"""One run: a broker, its machine, its clients and everything that goes wrong, all from one seed.

Every part draws from a stream of its own (`Random(f"{seed}:net")`), so that a change of one does not reshuffle the
others. First clients work while the nemesis does its worst; then everything is healed, clients finish, the broker is
restarted once more, and all that can be read is read.

Every third seed has transactions: clients of both versions, a compacted topic among those they write to, and messages
between coordinator and leaders that are lost, late and repeated. The others are as they would be without.

`durable` seeds run with `log.flush.interval.messages=1`: then no power loss may take anything that was acknowledged or
read. In the others a power loss may take what was not yet synced, and only that.
"""

import asyncio
import contextlib
import gc
import logging
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Coroutine
from random import Random
from typing import IO, Any, Final

from mainstem.broker.app import Broker
from mainstem.broker.config import BrokerConfig
from mainstem.core.log.validation import CODECS
from mainstem.protocol.batch import BatchView
from mainstem.protocol.errors import ErrorCode
from mainstem.sim import cast, rot_inside, rotten_indexes
from mainstem.sim.admin import Admin, create_topics
from mainstem.sim.at_the_end import checkers_at_the_end
from mainstem.sim.broker_process import BrokerProcess, ControllerFaults, Survivors
from mainstem.sim.changes import random_survivors
from mainstem.sim.checkers import Checker
from mainstem.sim.checkers.appended_once import AppendedOnce
from mainstem.sim.checkers.checkpoints_are_whole import CheckpointsAreWhole
from mainstem.sim.checkers.compaction_keeps import CompactionKeeps
from mainstem.sim.checkers.coordinator_replays import CoordinatorReplays
from mainstem.sim.checkers.crash_keeps import CrashKeeps, Ends
from mainstem.sim.checkers.durable_stays import DurableStays
from mainstem.sim.checkers.failed_directory import FailedDirectory
from mainstem.sim.checkers.group_log import GroupLog
from mainstem.sim.checkers.ids_are_known import IdsAreKnown
from mainstem.sim.checkers.log_order import LogOrder
from mainstem.sim.checkers.markers_are_decisions import MarkersAreDecisions
from mainstem.sim.checkers.markers_outlive import MarkersOutlive
from mainstem.sim.checkers.metadata_replays import MetadataReplays
from mainstem.sim.checkers.moves_end import MovesEnd
from mainstem.sim.checkers.no_hanging_transactions import NoHangingTransactions
from mainstem.sim.checkers.offsets_follow import OffsetsFollow
from mainstem.sim.checkers.old_epochs_are_over import OldEpochsAreOver
from mainstem.sim.checkers.producer_ids import ProducerIdsAreNew
from mainstem.sim.checkers.producer_ids_rotate import ProducerIdsRotate
from mainstem.sim.checkers.producers_are_known import ProducersAreKnown
from mainstem.sim.checkers.producers_outlive import ProducersOutlive
from mainstem.sim.checkers.settings_are_in_force import SettingsAreInForce
from mainstem.sim.checkers.sound_stays import SoundStays
from mainstem.sim.checkers.stable_offset import StableOffset
from mainstem.sim.checkers.times_are_found import TimesAreFound
from mainstem.sim.checkers.torn_transactions import TornTransactions
from mainstem.sim.checkers.what_goes_is_due import WhatGoesIsDue
from mainstem.sim.client import NoAnswer, SimClient
from mainstem.sim.complaints import listening
from mainstem.sim.disk import SimDisk
from mainstem.sim.faults import Effect, Fault
from mainstem.sim.group_ledger import GroupLedger
from mainstem.sim.group_shards import term_of
from mainstem.sim.late_markers import LateMarkers
from mainstem.sim.ledger import Ledger, Place, Send, Violation
from mainstem.sim.lines import Lines
from mainstem.sim.loop import Scheduler, SimClock, SimLoop, make_loop
from mainstem.sim.movers import begin_moves
from mainstem.sim.nemesis import Nemesis
from mainstem.sim.network import Network
from mainstem.sim.observer import Observer
from mainstem.sim.settings import draw_config, draw_topics
from mainstem.sim.steps import Steps
from mainstem.sim.swap_faults import begin_swap_faults
from mainstem.sim.trace import Trace
from mainstem.sim.tuning import TRIMMED, Tuning, begin, draw_tuning, internal_topics
from mainstem.sim.txn_ledger import TxnLedger
from mainstem.sim.txn_logs import TxnLogs
from mainstem.sim.txn_shape import TxnShape, age, draw_shape
from mainstem.sim.txn_workload import PLACES, coordinator_is_there
from mainstem.sim.watch import Watch
from mainstem.sim.workloads import COMPACTED
from mainstem.sim.written import Written

ADDRESS: Final = ("broker", 9092)
SAFETY_S: Final = 6.0
"""How long things go wrong in a run of somebody else's code, and at most in one of ours."""
LENGTHS_S: Final = (3.0, 4.0, SAFETY_S)
"""How long they do in ours. Most bugs show in a short run, and more of those can be had; some need the time."""
TXN_LENGTHS_S: Final = (3.0, 3.0, 4.0)
"""The same with transactions: a second of theirs costs twice as much, and they begin and end several times in it."""
TRANSACTIONAL_EVERY: Final = 3
TIMEOUTS_ARE_OVER_MS: Final = 20_000_000
"""How far the clock is put forward at the end, so that no transaction waits for a time it was set back from."""
LIVENESS_S: Final = 60.0
COLD_SHARE: Final = 0.25
"""Of the runs, how many read from the disk what is not in the kernel's cache."""
NEVER_CREATED: Final = frozenset(
    {
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
    }
)
"""What is said of a topic that no broker creates, however often it is asked."""

A_DAY_MS: Final = 86_400_000
"""How long a broker remembers a silent producer, if nobody says otherwise."""


class Result:
    def __init__(self, seed: int, counts: Counter[str], digest: str, violation: Violation | None, story: list[str]):
        self.seed = seed
        self.counts = counts
        self.digest = digest
        self.violation = violation
        self.story = story


class World:
    is_for_users = False
    """Whether the clients, the topics and the settings are somebody else's (`mainstem.testing.simulation`)."""

    def __init__(self, seed: int, trace_file: IO[str] | None = None) -> None:
        self.seed = seed
        self.is_transactional = seed % TRANSACTIONAL_EVERY == TRANSACTIONAL_EVERY - 1
        self.txn_shape = self._txn_shape()
        self.tuning = self._tuning()
        self.txn_places = self.tuning.places(PLACES)
        self.producer_expiration_ms = self._producer_expiration_ms()
        self.counts: Counter[str] = Counter()
        rng = Random(f"{seed}:shape")
        self.theme = rng.choice(("", "", "", "groups", "compaction"))
        """What the run is about, if about anything: rare things have to meet, and chance alone takes too long."""
        self.scheduler = Scheduler(Random(f"{seed}:sched"))
        self._trace = Trace(self.scheduler, trace_file)
        self.trace: Callable[..., None] = self._trace.event
        self.network = Network(self.scheduler, Random(f"{seed}:net"), self.trace, self.count)
        self.network.pipe_bytes = rng.choice((1500, 256 << 10))
        self.durable = rng.random() < 0.5
        self.pace_s = rng.choice((0.5, 1.0, 2.0))
        self.member_vanishes = rng.choice((0.0, 0.05, 0.2))
        clock = SimClock(self.scheduler)
        self.disk = SimDisk(Random(f"{seed}:disk"), clock.wall_ms)
        self.disk.make_directories("/")
        self.disk.is_cold = self._cold_reads()
        self.process = BrokerProcess(
            str(seed), self.scheduler, self.network, self.disk, self._config(rng), self.trace, self.count, clock
        )
        self.process.transaction_version = self.txn_shape.level
        self.process.flush_files_max = self.tuning.flush_files_max
        self.process.clock.skew_ms = rng.choice((0, 0, -600_000, -3_000, 5_000, 300_000))
        if self.process.clock.skew_ms:
            self.count("K1 skewed clock")
        self.process.on_death = self._died
        self.process.on_served = self._served
        self.ledger = Ledger(self.count)
        self.ledger.loses_nothing = self.durable
        self.groups = GroupLedger(self.count)
        self.groups.loses_nothing = self.durable
        self.groups.term_of = lambda group: term_of(self.process.broker, group)
        self.txns = TxnLedger(self.count)
        self.txns.loses_nothing = self.durable
        self.written = Written(self.disk, self.ledger.damaged.__contains__)
        self.written.on_reopened = self._reopened
        self.lines = Lines(self)
        self.topics = self._topics(rng)
        self.ledger.durable_topics = self._topics_with("flush.messages", "1")
        self.ledger.codecs = {
            topic: CODECS[configs["compression.type"]]
            for topic, (_, configs) in self.topics.items()
            if "compression.type" in configs
        }
        self.ledger.append_time_topics = self._topics_with("message.timestamp.type", "LogAppendTime")
        self.segment_ages = {
            name: int(configs["segment.ms"]) for name, (_, configs) in self.topics.items() if "segment.ms" in configs
        }
        self.clients: dict[str, tuple[SimLoop, Callable[[SimClient, Random], Coroutine[Any, Any, None]]]] = {}
        self.is_stopping = False
        self.is_healed = False
        self.needs_reboot = False
        """After a failed fsync the kernel's pages are not to be trusted until the machine is started anew."""
        self.had_disk_error = False
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._awaited: asyncio.Task[None] | None = None
        self._loops: list[SimLoop] = []
        self._violation: Violation | None = None
        self.served_life = 0
        """Which life of the broker has come through its start, the last time one has."""
        self._producer_ids = ProducerIdsAreNew(self)
        self._producer_ids_rotate = ProducerIdsRotate(self)
        self._failed_directory = FailedDirectory(self)
        self._crash_keeps = CrashKeeps(self)
        producers_are_known = ProducersAreKnown(self)
        self.appended_once = AppendedOnce(self)
        self.ledger.may_be_twice = self._may_be_twice
        self.what_goes = WhatGoesIsDue(self)
        self.times_are_found = TimesAreFound(self)
        durable_stays = DurableStays(self)
        self.moves = MovesEnd(self, self._crash_keeps)
        checkpoints = CheckpointsAreWhole(self)
        self._producers_outlive = producers_outlive = ProducersOutlive(self)
        sound_stays = SoundStays(self)

        def starting() -> None:
            for checker in (checkpoints, durable_stays, producers_outlive, sound_stays):
                checker.starting()

        self.process.on_start = starting
        self.offsets_follow = OffsetsFollow(self)
        self.log_order = LogOrder(self)
        self.log_order.on_start = self.what_goes.moved
        self.watch = Watch(self)
        stepped: list[Checker] = [
            self.log_order,
            self._crash_keeps,
            MetadataReplays(self),
            SettingsAreInForce(self),
            CompactionKeeps(self),
            self._failed_directory,
            CoordinatorReplays(self),
            NoHangingTransactions(self),
            StableOffset(self),
            MarkersOutlive(self),
            producers_are_known,
            self.offsets_follow,
            self.moves,
            *self.watch.stepped,
        ]
        self.txn_logs = TxnLogs(self)
        self.process.markers_in = self.txn_logs.markers_in
        self.late_markers = LateMarkers(self)
        self.process.on_markers = self.late_markers.sent
        # Those before the logs of transactions judge a batch by what was before it.
        self._following: list[Checker] = [
            TornTransactions(self),
            self.appended_once,
            GroupLog(self),
            self.offsets_follow,
            OldEpochsAreOver(self),
            MarkersAreDecisions(self),
            self._producer_ids_rotate,
            IdsAreKnown(self),
            producers_are_known,
            *self.watch.following,
            self.late_markers,
            self.txn_logs,
        ]
        self.checkers: list[Checker] = [
            *dict.fromkeys((*stepped, *self._following)),
            self.what_goes,
            durable_stays,
            checkpoints,
            producers_outlive,
            sound_stays,
            self.times_are_found,
            self._producer_ids,
            *checkers_at_the_end(self),
        ]
        steps = Steps(
            self.process, self.written, stepped, self._following, self._failed_directory, self._fail, self.trace
        )
        self.written.on_appended = steps.appended
        self.process.after_step = steps.after_step
        self.disk.on_operation = steps.operation
        self.observer = Observer(self)
        self.nemesis = Nemesis(self, Random(f"{seed}:nemesis"))
        self.admins: list[Admin] = []
        self._image: tuple[SimDisk, Ends, dict[str, bytes]] | None = None

    # The shape of a run

    def _txn_shape(self) -> TxnShape:
        return draw_shape(self.seed) if self.is_transactional else TxnShape()

    def _tuning(self) -> Tuning:
        return draw_tuning(self.seed, self.is_transactional)

    def _producer_expiration_ms(self) -> int:
        """In some runs the broker forgets producers soon (C5). Drawn apart, so that others are as they were."""
        rng = Random(f"{self.seed}:expiration")
        return rng.choice((700, 1500, 3000)) if rng.random() < 0.2 else A_DAY_MS

    def _cold_reads(self) -> Callable[[str, int, int], bool] | None:
        """In some runs the kernel has let pages go: who reads them waits in a thread, and all goes on meanwhile."""
        rng = Random(f"{self.seed}:cold")
        is_drawn = rng.random() < COLD_SHARE
        if not is_drawn and not self.tuning.trims_transactions:
            return None
        share = rng.choice((0.05, 0.3, 1.0)) if is_drawn else 0.0

        def is_cold(path: str, position: int, size: int) -> bool:
            if rng.random() >= share and TRIMMED not in path:
                return False
            self.count("S12 cold read")
            return True

        return is_cold

    def _safety_s(self) -> float:
        """For how long things go wrong. What compaction leaves has to be compacted again before that can go wrong."""
        if self.is_for_users or self.theme == "compaction":
            return SAFETY_S
        return Random(f"{self.seed}:length").choice(TXN_LENGTHS_S if self.is_transactional else LENGTHS_S)

    @property
    def producers_expire(self) -> bool:
        return self.producer_expiration_ms < A_DAY_MS

    def _config(self, rng: Random) -> BrokerConfig:
        return draw_config(self, rng)

    def _topics(self, rng: Random) -> dict[str, tuple[int, dict[str, str]]]:
        return draw_topics(self, rng)

    def _topics_with(self, name: str, value: str) -> frozenset[str]:
        return frozenset(topic for topic, (_, configs) in self.topics.items() if configs.get(name) == value)

    def is_keyed(self, topic: str) -> bool:
        return topic in COMPACTED

    def may_trim(self, topic: str) -> bool:
        """Whether records may be removed from the topic's beginning."""
        return topic in ("short", TRIMMED)

    def may_rot(self) -> list[Place]:
        return [("log", 1), ("short", 0), ("keyed", 0)]

    def count(self, what: str) -> None:
        self.counts[what] += 1

    # What goes wrong

    def restart(self) -> None:
        if not self.process.is_up:
            if self.needs_reboot:
                self.process.reboot()
                self.needs_reboot = False
            self.process.start()

    def kill(self) -> None:
        if self.needs_reboot:
            self.power_loss()
        else:
            self.process.kill()

    def power_loss(self, survivors: Survivors = random_survivors) -> None:
        self.needs_reboot = False
        self.process.power_loss(survivors)

    def arm(self, name: str, fault: Fault) -> None:
        fault.on_strike = lambda operation, path: self._struck(name, fault, operation, path)
        self.disk.faults.append(fault)

    def _struck(self, name: str, fault: Fault, operation: str, path: str) -> None:
        self.count(name)
        self.trace("struck", name, operation, path)
        if fault.effect in (Effect.FLIP_BIT, Effect.MISDIRECT):
            rotten_indexes.rotted(self, path)
            return
        self.had_disk_error = True
        if fault.effect is Effect.FAIL_SYNC_AND_DROP:
            self.needs_reboot = True
        self._failed_directory.struck(operation, path)

    def damage(self, place: Place) -> None:
        """The bytes of a partition are no longer what was written: nothing is promised of it but its checksums."""
        self.trace("damaged", *place)
        self.had_disk_error = True
        self.ledger.damage(place)

    @property
    def disk_is_sick(self) -> bool:
        """Whether something fails on it. A write that is two is no failure."""
        return any(fault.effect is not Effect.SPLIT_WRITE for fault in self.disk.faults)

    def cure_disk(self) -> None:
        self.disk.faults.clear()

    # Another disk

    def take_image(self) -> None:
        """What an administrator, or the cloud, may bring back some day."""
        broker = self.process.broker
        if self.process.is_serving and broker is not None and not self.had_disk_error:
            self.trace("image taken")
            self._image = (self.disk.fork(), self._crash_keeps.ends(broker), self._producers_outlive.by_start)

    def older_disk(self) -> None:
        """X6: the machine comes back with its disk as it was when the image was taken."""
        if self._image is None:
            return
        image, ends, by_start = self._image
        self.count("X6 older disk")
        self._change_disk(image)
        self._crash_keeps.expect(ends)
        self._producers_outlive.expect(by_start)

    def empty_disk(self) -> None:
        """X7: a new disk, formatted; somebody creates the topics again."""
        self.count("X7 empty disk")
        empty = SimDisk(Random(0), self.process.clock.wall_ms)
        self.process.format(empty)
        self._image = None
        self._change_disk(empty)
        self.add_client(f"founder{self.process.life}", lambda client, rng: self._found(client))

    def _change_disk(self, image: SimDisk) -> None:
        self.trace("another disk")
        self.process.come_back_with(image)
        self.needs_reboot = False
        self.ledger.forget()
        self.groups.forget(self.process.life + 1)
        self.txns.forget()
        self.written.forget()
        for checker in self.checkers:
            checker.forget()
        for name in list(self.clients):
            self.replace_client(name)

    def kill_if_sick(self) -> None:
        broker = self.process.broker
        if self.nemesis.is_over or not self.process.is_serving or broker is None:
            return
        if broker.partitions.dirs.any_offline:
            self.trace("restarted for its disk")
            self.kill()

    # What the broker does

    def _reopened(self, place: Place, end: int, kept: list[BatchView], lost: list[BatchView]) -> None:
        if lost:
            self.count("log came back shorter")
            self.trace("came back shorter", f"{place[0]}-{place[1]}", end, len(lost))
            self.ledger.cut(place, self.process.life, end)
        for checker in self._following:
            checker.reopened(place, end, kept, lost)

    def _died(self, how: str) -> None:
        if self.needs_reboot:
            how = "power loss"
        if self.process.broker is not None:
            self.written.look(self.process.broker, not self.process.is_serving)
        self.written.died()
        if how.startswith("cannot start"):
            self.count("start failed on a sick disk")
            if not self.disk_is_sick and not self.had_disk_error:
                self._fail(Violation("the broker starts", how))
        elif how.startswith(("fatal", "could not stop")) and not self.had_disk_error:
            self._fail(Violation("nothing fails unnoticed", how))
        try:
            for checker in self.checkers:
                checker.died(self.process.broker, how)
        except Violation as violation:
            self._fail(violation)

    def _served(self, broker: Broker) -> None:
        self.served_life = self.process.life
        try:
            for checker in self.checkers:
                checker.served(broker)
        except Violation as violation:
            self._fail(violation)

    def _fail(self, violation: Violation) -> None:
        if self._violation is None:
            self._violation = violation
            self.scheduler.is_decided = True

    def given_producer_id(self, producer_id: int, epoch: int) -> None:
        self._producer_ids.given(producer_id, epoch)
        self._producer_ids_rotate.given(producer_id)

    def reader_reset(self, place: Place, offset: int) -> None:
        self.trace("reader out of range", f"{place[0]}-{place[1]}", offset)
        if place in self.ledger.damaged or self.may_trim(place[0]) or self.ledger.was_cut_below(place, offset):
            return
        raise Violation("a reader keeps its place", f"{offset} of {place} was read up to, and is out of range")

    def is_sound(self, place: Place) -> bool:
        """Whether nothing has happened to a partition that takes back what was said of it."""
        return place not in self.ledger.damaged and not self.ledger.was_cut(place)

    def _may_be_twice(self, send: Send) -> bool:
        """Our own producer begins anew, under another epoch, with what a forgetful broker says is out of order."""
        if send.value in self.appended_once.excused:
            return True
        return send.is_sent_anew and self.producers_expire and self.appended_once.has_forgotten(send.place[0])

    def may_be_torn(self, producer_id: int, epoch: int = 0) -> bool:
        """Whether a power loss may have taken a part of a transaction of this producer, under this epoch or since."""
        return self.txns.is_torn_at(producer_id, epoch)

    def may_be_gone(self, names: list[str]) -> bool:
        return all(name.startswith("churn") for name in names)

    def admin_topics(self) -> dict[str, bool | None]:
        return self.admins[-1].topics if len(self.admins) == 1 else {}

    def admin_settings(self) -> str | None:
        """What the administrator has set for the first topic, where somebody can tell."""
        return self.admins[-1].message_bytes_max if len(self.admins) == 1 else None

    # Clients

    def _loop(self, name: str) -> SimLoop:
        loop = make_loop(self.scheduler, Random(f"{self.seed}:client:{name}"), name, self.network)
        self._loops.append(loop)
        return loop

    def add_client(self, name: str, work: Callable[[SimClient, Random], Coroutine[Any, Any, None]]) -> None:
        loop = self._loop(name)
        self.clients[name] = (loop, work)
        client = SimClient(loop, name, ADDRESS)
        client.is_damaged = self.ledger.damaged.__contains__
        client.difference = self.ledger.difference
        client.judge = self._failed_directory.judge
        self._tasks[name] = loop.create_task(self._watched(work(client, Random(f"{self.seed}:workload:{name}"))))

    async def _watched(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Violation as violation:
            self._fail(violation)

    def replace_client(self, name: str) -> None:
        """It dies where it stands; another takes up its work under a new name."""
        loop, work = self.clients.pop(name)
        self.trace("client died", name)
        loop.abandon()
        self.network.process_died(loop)
        del self._tasks[name]
        self._awaited = None
        if name in self.network.in_time:
            self.network.in_time.add(f"{name}'")
        self.add_client(f"{name}'", work)

    async def _age_ids(self) -> None:
        client = self.observing_client()
        names = list(cast.transactional(self)[1])
        await coordinator_is_there(client, names[0])
        await age(self, names)
        client.close()

    def _add_clients(self) -> None:
        cast.add_clients(self)
        begin_moves(self)
        begin_swap_faults(self)

    # A run

    def run(self) -> Result:
        enabled = gc.isenabled()
        gc.disable()
        previous = logging.root.manager.disable
        # What a dead process had begun and never ran is nobody's mistake.
        quiet = warnings.catch_warnings()
        quiet.__enter__()
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            with listening(self.scheduler.failures.append, lambda: self.had_disk_error):
                self._run()
        except Violation as violation:
            self._fail(violation)
        except Exception:
            # A mistake of the simulator's own, perhaps. What led to it is as good to know as with any other.
            self._fail(Violation("no run ends in an exception", traceback.format_exc(limit=-8)))
        finally:
            # What is let go now runs its last lines, which are no part of the run.
            logging.disable(logging.CRITICAL)
            result = Result(self.seed, self.counts, self._trace.digest, self._violation, self._story())
            self._trace.end()
            self._end()
            quiet.__exit__(None, None, None)
            logging.disable(previous)
            if enabled:
                gc.enable()
        return result

    def _story(self) -> list[str]:
        return self._trace.story("" if self._violation is None else self._violation.what)

    def _run(self) -> None:
        self.process.format()
        self.process.start()
        self.run_until(lambda: self.process.is_serving, 10, "the broker starts")
        self.observe(self._create_topics(), 20, "topics can be created")
        if self.txn_shape.is_aged:
            self.observe(self._age_ids(), 20, "an id can be used")
        self._add_clients()
        self.nemesis.begin()
        begin(self, self.tuning)
        self.run_for(self._safety_s())
        self._heal()
        self.is_stopping = True
        self._finish()
        self.observe(self.observer.watch_groups(), LIVENESS_S, "G9 the coordinator answers")
        if self.is_transactional:
            self.process.clock.jump(TIMEOUTS_ARE_OVER_MS)
            self.observe(self.observer.transactions_end(), LIVENESS_S, "T12 every transaction ends")
        self._restart_once_more()
        self.observe(self._read_everything(), LIVENESS_S, "P12 what is there can be read")
        assert self.process.broker is not None
        for checker in self.checkers:
            checker.at_end(self.process.broker)
        if not self.is_for_users and rot_inside.comes(self.seed):
            rot_inside.RotInside(self).run()
        assert self.process.loop is not None
        if any(not loop.is_dead and loop.has_unseen for loop in (*self._loops, self.process.loop)):
            gc.collect()
        self._check()
        self.counts["acknowledged"] += self.ledger.acked_count
        self.counts["read"] += self.ledger.read_count

    def _finish(self) -> None:
        """Lets the clients come to their end."""
        self.run_until(self._all_done, LIVENESS_S, "P12 clients finish")

    def _check(self) -> None:
        if self._violation is not None:
            raise self._violation
        for failure in self.scheduler.failures:
            raise self._unnoticed(failure)
        for name, task in self._tasks.items():
            error = task.exception() if task.done() and not task.cancelled() else None
            if error is not None:
                raise AssertionError(f"the workload of {name} failed") from error

    def _unnoticed(self, failure: str) -> Violation:
        """What is to be said of something that failed with nobody to see it."""
        return Violation("nothing fails unnoticed", failure)

    def _all_done(self) -> bool:
        """Whether all clients are. Asked at every instant; who was not done the last time mostly still is not."""
        if self._awaited is not None and not self._awaited.done():
            return False
        self._awaited = next((task for task in self._tasks.values() if not task.done()), None)
        return self._awaited is None

    def run_until(self, is_over: Callable[[], bool], seconds: float, promise: str) -> None:
        done = self.scheduler.run_until(is_over, self.scheduler.now + seconds)
        self._check()
        if not done:
            waiting = [name for name, task in self._tasks.items() if not task.done()]
            raise Violation(promise, f"not within {seconds} s of simulated time; waiting: {waiting}")

    def observe(self, work: Coroutine[Any, Any, None], seconds: float, promise: str) -> None:
        task = self._loop("observer").create_task(work)
        self.run_until(task.done, seconds, promise)
        task.result()

    def run_for(self, seconds: float) -> None:
        self.scheduler.run_for(seconds)
        self._check()

    @property
    def offsets_may_expire(self) -> bool:
        """Whether a minute without a member, by the broker's clock, is enough."""
        return self.process.config.given.get("offsets.retention.minutes") == "1"

    def observing_client(self) -> SimClient:
        """One on the loop of whoever observes now."""
        client = SimClient(self._loops[-1], "observer", ADDRESS)
        client.difference = self.ledger.difference
        client.judge = self._failed_directory.judge
        return client

    async def _read_everything(self) -> None:
        await self.observer.read_everything()

    async def _create_topics(self) -> None:
        client = self.observing_client()
        await self._found(client)
        client.close()

    async def _found(self, client: SimClient) -> None:
        """Creates the topics, however often it takes."""
        internal = internal_topics(self.tuning, self.seed, self.is_transactional)
        missing = self.topics | internal
        while missing:
            with contextlib.suppress(NoAnswer):
                for name, (code, why) in (await create_topics(client, missing)).items():
                    if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                        del missing[name]
                    elif code in NEVER_CREATED:
                        what = f"not {name!r}, as it is asked for: {code.name}: {why}"
                        raise Violation("topics can be created", what)
            await asyncio.sleep(0.05)

    def _heal(self) -> None:
        self.trace("heal")
        self.nemesis.is_over = True
        self.network.heal()
        self.cure_disk()
        process = self.process
        process.crash_after = None
        faults = process.controller_faults
        faults.delay_share = faults.drop_share = faults.repeat_share = faults.lose_answer_share = 0.0
        process.peer_faults = ControllerFaults()
        process.late_word_share = process.slow_marker_share = 0.0
        if process.loop is not None and process.loop.is_paused:
            process.loop.resume()
        if process.is_up and (self.needs_reboot or self.had_disk_error):
            self.kill()
        self.run_until(lambda: process.is_serving or not process.is_up, 30, "the broker starts or stops")
        if process.is_stopping:
            self.run_until(lambda: not process.is_up, 30, "the broker stops")
        self.restart()
        self.run_until(lambda: process.is_serving, 30, "the broker starts")
        self.is_healed = True

    def _restart_once_more(self) -> None:
        how = Random(f"{self.seed}:last").choice(("stop", "kill", "power loss", "nothing"))
        self.trace("last", how)
        if how == "stop":
            self.process.stop()
            self.run_until(lambda: not self.process.is_up, 60, "the broker stops")
            self.nemesis.switch_off()
            if self.nemesis.dooms_the_last_start():
                self._die_in_the_last_start()
        elif how == "kill":
            self.process.kill()
        elif how == "power loss":
            self.process.power_loss()
        if not self.is_for_users:
            rotten_indexes.strike(self)
        if how != "nothing":
            self.process.start()
            self.run_until(lambda: self.process.is_serving, 30, "the broker starts")

    def _die_in_the_last_start(self) -> None:
        process = self.process
        process.start()
        self.run_until(lambda: process.is_serving or not process.is_up, 30, "the broker starts")
        if process.is_up:
            process.kill()
        else:
            self.count("X5 death in the last start")

    def _end(self) -> None:
        """Lets go of everything, without a word about what was abandoned."""
        loops = [*self._loops, *self.process.past_loops]
        if self.process.loop is not None:
            loops.append(self.process.loop)
        for loop in loops:
            loop.abandon()
        hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
        try:
            for loop in loops:
                for task in loop.abandoned:
                    _close(task)
                loop.abandoned.clear()
            self._tasks.clear()
            self.clients.clear()
        finally:
            sys.unraisablehook = hook


def _close(task: "asyncio.Task[Any]") -> None:
    """Ends a coroutine here, not whenever the collector comes by; one that wants to wait once more is told again."""
    coroutine = task.get_coro()
    for _ in range(10):
        try:
            coroutine.close()
            return
        except BaseException:
            continue


def run_seed(seed: int, trace_file: IO[str] | None = None) -> Result:
    return World(seed, trace_file).run()
