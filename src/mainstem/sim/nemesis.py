"""What goes wrong in a run. Each seed draws a few kinds of faults (a swarm), and a quarter of the time nothing happens,
so that the broker can recover from what did.

Every fault is counted by its name in the list of `docs/invariants.md`; what a campaign must have seen is in `expected`.
"""

import errno
from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from mainstem.sim.broker_process import ControllerFaults
from mainstem.sim.changes import without_blocks
from mainstem.sim.draws import cubed, squared
from mainstem.sim.faults import Effect, Fault
from mainstem.sim.network import NetworkFaults
from mainstem.sim.rotten_indexes import rotted, strike_last_entries

if TYPE_CHECKING:
    from mainstem.sim.world import World

CLEAN_DEATHS: Final = 0.25
"""Of the starts after a clean stop, how many end at some operation of the disk, if they come to it."""

LAST_DEATHS: Final = 0.5
"""Of the runs whose last stop is a clean one, in how many the start after it may die so."""

SWITCHED_OFF: Final = 0.4
"""Of the machines whose broker was stopped, how many are switched off before it is started again."""

PAUSING_SHARE: Final = 0.2
"""Of the runs, how many have clients that are paused now and then."""

DYING_SHARE: Final = 0.15
"""Of the runs, how many have a start that dies, and the one after it, and some more."""

SINGLE_ERROR_SHARE: Final = 0.15
"""Of the runs, how many have one read or one rename that fails, and none after it."""


LOST_BLOCKS_SHARE: Final = 0.2
"""Of the runs, how many have a power loss that takes single blocks out of the middle of what was not synced."""


class Nemesis:
    def __init__(self, world: "World", rng: Random) -> None:
        self.world = world
        self.rng = rng
        self.families: dict[str, tuple[Callable[[], None], ...]] = {
            "network": (
                self._slow_network,
                self._resets,
                self._lost_answers,
                self._late_requests,
                self._cut,
                self._clog,
            ),
            "broker": (self._stop, self._kill, self._death_at_operation, self._pause),
            "power": (self._power_loss,),
            "processes": (self._client_dies,),
            "clock": (self._clock, self._late_timers),
            "slow disk": (self._slow_disk, self._write_back),
            "sick disk": (self._sick_disk,),
            "rot": (self._rot,),
            "another disk": (self._another_disk, self._lost_checkpoint),
            "controller": (self._controller,),
        }
        if world.is_transactional:
            self.families["peers"] = (self._peers, self._late_requests)
        self.kinds: list[Callable[[], None]] = []
        self._power_is_lost = True
        self._clients_suffer = True
        self._broker_dies = True
        self._disk_fails = True
        self._may_rot = True
        self.allow(self.families)
        self.is_over = False
        self._rotting = rng.choice(world.may_rot())
        self._disks_left = 1
        self._starts = Random(f"{world.seed}:starts after a clean stop")
        self._switched_off = Random(f"{world.seed}:switched off")
        self._pauses = Random(f"{world.seed}:paused clients")
        self._dying = Random(f"{world.seed}:dying starts")
        self._errors = Random(f"{world.seed}:single errors")
        self._blocks = Random(f"{world.seed}:lost blocks")
        self._deaths_left = 0
        """How many starts from now die, one after the other."""

    def allow(self, families: Iterable[str]) -> None:
        """Draws what may go wrong in this run from these families only; ValueError for one that is not known."""
        wanted = list(families)
        unknown = [name for name in wanted if name not in self.families]
        if unknown:
            raise ValueError(f"no faults are called {unknown[0]!r}; there are {', '.join(self.families)}")
        self._power_is_lost = "power" in wanted
        self._clients_suffer = "processes" in wanted
        self._broker_dies = "broker" in wanted
        self._disk_fails = "sick disk" in wanted
        self._may_rot = "rot" in wanted
        kinds = [kind for name in wanted for kind in self.families[name]]
        self.kinds = self.rng.sample(kinds, min(len(kinds), self.rng.randint(2, 7)))
        if self.world.theme == "groups":
            self.kinds += [kind for kind in (self._clock, self._client_dies) if kind in kinds]
        elif self.world.theme == "compaction":
            self.kinds += [kind for kind in (self._clock, self._lost_checkpoint) if kind in kinds]
        if self._peers in kinds and self.rng.random() < 0.5:
            self.kinds.append(self._peers)

    def begin(self) -> None:
        self.world.scheduler.later(self.rng.random() * 1.5, self._turn)
        if self.kinds and self._clients_suffer and self._pauses.random() < PAUSING_SHARE:
            self.world.scheduler.later(self._pauses.random() * 2, self._pause_client)
        if self.kinds and self._broker_dies and self._dying.random() < DYING_SHARE:
            self.world.scheduler.later(0.3 + self._dying.random() * 4, self._die_again_and_again)
        if self.kinds and self._disk_fails and self._errors.random() < SINGLE_ERROR_SHARE:
            self.world.scheduler.later(0.2 + self._errors.random() * 4, self._single_error)
        if self.kinds and self._power_is_lost and self._blocks.random() < LOST_BLOCKS_SHARE:
            self.world.scheduler.later(1 + self._blocks.random() * 3, self._blocks_lost)

    def _turn(self) -> None:
        if self.is_over:
            return
        process = self.world.process
        if not process.is_up:
            self.switch_off()
            if self._may_rot:
                strike_last_entries(self.world)
            if process.died_of == "stopped" and self._starts.random() < CLEAN_DEATHS:
                # X5 where nothing is to be recovered: it must not look clean for that (KAFKA-10471).
                self.world.count("X5 death after a clean stop")
                process.crash_after = self._starts.randrange(120)
                process.crash_is_power_loss = self._starts.random() < 0.5
            self._die_starting()
            self.world.restart()
        elif self.kinds and self.rng.random() < 0.75:
            self.rng.choice(self.kinds)()
        usual_s = 0.05 + squared(self.rng) * 1.5
        self.world.scheduler.later(0.05 if self._deaths_left else usual_s, self._turn)

    def switch_off(self) -> None:
        """A machine may be switched off once its broker has stopped: what that has written is synced, all of it."""
        process = self.world.process
        may_be = self.kinds and self._power_is_lost and process.died_of == "stopped"
        # A log whose disk has failed is left as it is by a stop, too.
        if may_be and not self.world.had_disk_error and self._switched_off.random() < SWITCHED_OFF:
            self.world.count("X3 switched off after a clean stop")
            process.reboot()

    def dooms_the_last_start(self) -> bool:
        """X5 after the last clean stop, in some runs, too: whether the next start is to die."""
        rng = Random(f"{self.world.seed}:last start")
        if not (self.kinds and self._broker_dies) or rng.random() >= LAST_DEATHS:
            return False
        self.world.process.crash_after = rng.randrange(120)
        self.world.process.crash_is_power_loss = self._power_is_lost and rng.random() < 0.5
        return True

    def _until(self, seconds: float, undo: "object") -> None:
        assert callable(undo)
        self.world.scheduler.later(seconds, undo)

    # Network

    def _quiet(self) -> None:
        self.world.network.faults = NetworkFaults()

    def _slow_network(self) -> None:
        self.world.network.faults.slow_share = self.rng.choice((0.05, 0.3))
        self.world.network.faults.slow_s = self.rng.choice((0.1, 1.0))
        self._until(1.5, self._quiet)

    def _resets(self) -> None:
        numbers = list(self.world.network.connections)
        for number in self.rng.sample(numbers, min(len(numbers), 1 + self.rng.randrange(3))):
            self.world.count("N4 reset")
            self.world.network.reset(number, "reset")

    def _lost_answers(self) -> None:
        self.world.network.faults.lose_answer_share = self.rng.choice((0.02, 0.2))
        self._until(1.5, self._quiet)

    def _late_requests(self) -> None:
        self.world.network.faults.zombie_share = self.rng.choice((0.02, 0.1))
        self._until(1.5, self._quiet)

    def _cut(self) -> None:
        name = self.rng.choice(list(self.world.clients))
        seconds = 0.1 + self.rng.random() * 3
        if self.rng.random() < 0.5:
            self.world.count("N6 one-way cut")
            ends = [(name, "broker"), ("broker", name)]
            self.world.network.cut(*self.rng.choice(ends), seconds)
        else:
            self.world.count("N9 client cut off")
            self.world.network.cut(name, "broker", seconds)
            self.world.network.cut("broker", name, seconds)

    def _clog(self) -> None:
        """One client after the other, and back again in another order."""
        self.world.count("N11 clogged one by one")
        names = list(self.world.clients)
        self.rng.shuffle(names)
        for number, name in enumerate(names):
            seconds = 0.2 + self.rng.random() * 1.5
            self._until(number * 0.1, partial(self._clog_one, name, seconds))

    def _clog_one(self, name: str, seconds: float) -> None:
        if not self.is_over:
            self.world.network.cut(name, "broker", seconds)
            self.world.network.cut("broker", name, seconds)

    # Processes

    def _stop(self) -> None:
        if self.world.process.is_serving:
            self.world.count("X1 stop")
            self.world.process.stop()

    def _kill(self) -> None:
        self.world.count("X2 kill")
        self.world.kill()

    def _power_loss(self) -> None:
        self.world.count("X3 power loss")
        self.world.power_loss()

    def _blocks_lost(self) -> None:
        """S4, S5: files have their names and sizes, and some batches their length and not all of their bytes."""
        if self.is_over:
            return
        if self.world.process.is_up:
            self.world.count("X3 power loss")
            self.world.power_loss(without_blocks)
        else:
            self._until(0.1, self._blocks_lost)

    def _death_at_operation(self) -> None:
        process = self.world.process
        process.crash_is_power_loss = self.world.needs_reboot or self.rng.random() < 0.5
        process.crash_after = self.rng.randrange(30)
        if self.rng.random() < 0.5:
            # In the middle of its next start (X5).
            self.world.kill()
            process.crash_after = self.rng.randrange(120)
            self.world.restart()

    def _die_again_and_again(self) -> None:
        """X5, by design: what one start has begun to mend the next one finds half done, and dies as well."""
        if not self.is_over:
            self._deaths_left = self._dying.randint(2, 5)
            is_power_loss = self._power_is_lost and self._dying.random() < 0.5
            if self.world.process.is_up:
                (self.world.power_loss if is_power_loss else self.world.kill)()

    def _die_starting(self) -> None:
        world, process = self.world, self.world.process
        if process.died_of in ("kill -9", "power loss") and process.life > world.served_life + 1:
            world.count("X5 death in one start after the other")
        if self._deaths_left:
            self._deaths_left -= 1
            process.crash_after = self._dying.randrange(self._dying.choice((20, 120, 400)))
            process.crash_is_power_loss = self._power_is_lost and self._dying.random() < 0.5

    def _pause(self) -> None:
        loop = self.world.process.loop
        if loop is not None and not loop.is_paused:
            stalled = self.rng.random() < 0.4
            self.world.count("X10 stall" if stalled else "X4 pause")
            self.world.trace("pause", int(stalled))
            loop.pause(stalled=stalled)
            self._until(self.rng.choice((0.05, 0.5, 3.0)), loop.resume)

    def _pause_client(self) -> None:
        """Longer than some time-outs: what was due meanwhile comes all at once, by a clock that has moved on."""
        if self.is_over:
            return
        name = self._pauses.choice(list(self.world.clients))
        loop = self.world.clients[name][0]
        if not loop.is_paused:
            self.world.count("X4 client paused")
            self.world.trace("client paused", name)
            loop.pause()
            self._until(self._pauses.choice((0.1, 0.7, 3.0)), loop.resume)
        self.world.scheduler.later(0.2 + self._pauses.random() * 1.5, self._pause_client)

    def _client_dies(self) -> None:
        self.world.count("client died")
        self.world.replace_client(self.rng.choice(list(self.world.clients)))

    # Clock

    def _clock(self) -> None:
        self.world.count("K2 clock jump")
        clock = self.world.process.clock
        wanted = clock.skew_ms + self.rng.choice((-600_000, -5_000, -2_000, 50, 70_000, 600_000, 3_000_000))
        by_ms = max(-1_500_000, min(wanted, 10_000_000)) - clock.skew_ms
        if by_ms < 0:
            self.world.count("K2 clock set back")
        clock.jump(by_ms)
        self.world.trace("clock", clock.skew_ms)

    def _late_timers(self) -> None:
        loop = self.world.process.loop
        if loop is not None:
            self.world.count("K3 late timers")
            rng = Random(self.rng.random())
            loop.lateness = lambda: cubed(rng) * 0.4

            def undo() -> None:
                loop.lateness = None

            self._until(1.5, undo)

    # Disk

    def _another_disk(self) -> None:
        if self._disks_left:
            self._disks_left -= 1
            if self.rng.random() < 0.4:
                self.world.empty_disk()
            else:
                self.world.take_image()
                self._until(0.3 + self.rng.random() * 2, self._older_disk)

    def _older_disk(self) -> None:
        if not self.is_over:
            self.world.older_disk()

    def _lost_checkpoint(self) -> None:
        """As administrators do it to a cleaner that is stuck: the broker is down, and the file is removed.

        Now and then the machine's clock is behind when it comes back, so that what was cleaned is too young to be.
        """
        found = self.world.disk.files("cleaner-offset-checkpoint")
        if found and not self.world.disk_is_sick:  # nobody removes anything from a disk that fails
            self.world.count("cleaner checkpoint lost")
            self.world.kill()
            if self.rng.random() < 0.5:
                self.world.count("K2 clock jump")
                self.world.process.clock.jump(-self.rng.choice((500, 1_000, 2_000, 3_000)))
            for path in found:
                self.world.disk.remove(path)
                self.world.disk.sync_directory(path.rpartition("/")[0])

    def _rot(self) -> None:
        """One partition of a run rots, no more: then the others tell that they are not concerned.

        Its segments, indexes and snapshots: a small text file that makes no sense is, as in Kafka, a sick directory.
        """
        world = self.world
        place = self._rotting
        part = f"/{place[0]}-{place[1]}/"

        def is_rotting(path: str) -> bool:
            return part in path and path.endswith(("log", "index", "snapshot"))

        kind = self.rng.randrange(4)
        if kind == 0:
            world.arm(
                "S9 bit flipped on the way", Fault(Effect.FLIP_BIT, "read", is_rotting, skip=self.rng.randrange(8) // 2)
            )
            self._until(2.0, world.cure_disk)
        elif kind == 1:
            world.arm("S11 misdirected write", Fault(Effect.MISDIRECT, "write", is_rotting, skip=self.rng.randrange(8)))
            self._until(1.0, world.cure_disk)
        else:
            files = [path for path in world.disk.files(part) if is_rotting(path) and world.disk.peek(path)]
            if files:
                path = self.rng.choice(files)
                size = len(world.disk.peek(path))
                if kind == 2:
                    world.count("S9 bit flipped on the disk")
                    world.disk.flip_bit(path, self.rng.randrange(size * 8))
                else:
                    world.count("S10 file cut short")
                    world.kill()
                    world.disk.cut_file(path, self.rng.randrange(size))
                rotted(world, path)

    def _sick_disk(self) -> None:
        path = self.rng.choice((".log", "index", "index", "checkpoint", "/log-", "/keyed-", "__consumer_offsets", ""))
        # An index is written far less often than the log beside it: one that fails between two of these (KAFKA-7866)
        # has to fail soon, and in a write, or it never does.
        skip = self.rng.randrange(3 if path == "index" else 12)
        kind = self.rng.randrange(3 if path == "index" else 5)
        if kind == 4:
            path = self.rng.choice(("/data/", "/more/", "/more/"))
            self.world.arm("S13 directory gone", Fault(Effect.FAIL, None, path, skip=skip, times=-1))
        elif kind == 0:
            self.world.arm("S1 write fails", Fault(Effect.FAIL, "write", path, skip=skip))
        elif kind == 1:
            self.world.arm("S2 disk full", Fault(Effect.FAIL, "write", path, error=errno.ENOSPC, skip=skip, times=20))
        elif kind == 2:
            self.world.arm("S3 short write", Fault(Effect.SHORT_WRITE, "write", path, skip=skip))
        else:
            self.world.arm("S6 failed fsync", Fault(Effect.FAIL_SYNC_AND_DROP, None, path, skip=skip))
        self._until(1.0, self.world.cure_disk)
        # Whoever watches over the broker starts it again some time after its directory has failed.
        self._until(1.0 + self.rng.random(), self.world.kill_if_sick)

    def _single_error(self) -> None:
        """A sector that cannot be read, or a name that cannot be changed, once: whatever was to follow it may not."""
        if self.is_over or self.world.disk_is_sick:
            return
        rng = self._errors
        operation = rng.choice(("read", "rename"))
        path = rng.choice(("", "", ".log", "index", "snapshot", "checkpoint", "/__"))
        self.world.arm(f"S1 {operation} fails", Fault(Effect.FAIL, operation, path, skip=rng.randrange(6)))
        self._until(2.0, self.world.cure_disk)
        self._until(2.0 + rng.random(), self.world.kill_if_sick)

    def _slow_disk(self) -> None:
        loop = self.world.process.loop
        if loop is not None:
            self.world.count("S12 slow disk")
            rng, scheduler = Random(self.rng.random()), self.world.scheduler
            usual, until = loop.disk_delay, scheduler.now + 1.5
            # It ends by itself: another may begin meanwhile, and would put back what it found.
            loop.disk_delay = lambda: rng.random() * 0.3 if scheduler.now < until else usual()

    def _write_back(self) -> None:
        self.world.count("kernel wrote back")
        self.world.disk.write_back(self.rng, self.rng.random())

    # Inside the cluster

    def _peers(self) -> None:
        """Messages between the coordinator of transactions and the leaders of partitions."""
        faults = self.world.process.peer_faults = ControllerFaults()
        faults.delay_share, faults.drop_share = self.rng.choice(((0.5, 0.0), (0.2, 0.3), (0.0, 0.3)))
        faults.repeat_share, faults.lose_answer_share = self.rng.choice(((0.5, 0.0), (0.2, 0.3), (0.0, 0.2)))
        faults.late_share = self.rng.choice((0.0, 0.2))

        def undo() -> None:
            self.world.process.peer_faults = ControllerFaults()

        self._until(1.5, undo)

    def _controller(self) -> None:
        faults = self.world.process.controller_faults
        faults.delay_share, faults.drop_share = self.rng.choice(((0.5, 0.0), (0.2, 0.3), (0.0, 0.5)))
        faults.repeat_share, faults.lose_answer_share = self.rng.choice(((0.5, 0.0), (0.2, 0.3), (0.0, 0.3)))

        def undo() -> None:
            faults.delay_share = faults.drop_share = faults.repeat_share = faults.lose_answer_share = 0.0

        self._until(2.0, undo)
