"""Loses power at every step of a workload, in every way, and recovers (D1 to D7).

A workload runs once on a simulated disk that is copied after each change. For each copy, everything that power loss
may leave of the unsynced changes is tried: all prefixes, all subsets of up to three changes kept or missing, writes
torn at 512 bytes or left as zeros. Each disk is then opened, and:

- the log must be one that the model allows, with all that was durable (D3, D4), in order (D1, D2), its indexes right
  (D6); no start may refuse the disk, since nothing that was durable is damaged;
- opened again, nothing has changed;
- power lost in the middle of the recovery (a few of the ways, drawn at random), and recovered again, it is a log that
  the model allows, and none shorter than what was durable.

After kill -9 the log must hold everything that was appended. What a dead process wrote and did not sync is still only
in the cache: power lost in the start after it, or right after that, must leave a log that the model allows (a few of
the ways, drawn at random). Disks that look alike are tried once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from mainstem.core.log.config import LogConfig
from mainstem.sim.changes import WHOLE, Kept, every_survival
from mainstem.sim.disk import SimDisk
from tests.support.log_world import CONFIG, PARTITION, TOPIC, Expected, Operation, World, files_on, open_directories


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    before: Sequence[Operation]
    """What was done, and made durable, before the part that is looked at."""
    operations: Sequence[Operation]
    config: LogConfig = CONFIG


@dataclass(frozen=True, slots=True)
class Moment:
    """The disk after one change, and what the model promised then."""

    operation: int
    disk: SimDisk
    expected: Expected
    written_end: int
    """The log end: what kill -9 must leave."""
    now_ms: int


@dataclass
class Tally:
    moments: int = 0
    disks: int = 0
    alike: int = 0
    recoveries: int = 0


def moments_of(workload: Workload) -> list[Moment]:
    world = World(config=workload.config)
    world.run(workload.before)
    moments: list[Moment] = []
    number = end = 0

    def take(disk: SimDisk) -> None:
        nonlocal end
        log = world.dirs.logs.get((TOPIC, PARTITION))
        end = log.log_end if log is not None else end
        moments.append(Moment(number, disk.fork(), world.expected.copy(), end, world.now_ms))

    take(world.disk)
    world.disk.after_change = take
    for operation in workload.operations:
        world.step(operation)
        take(world.disk)
        number += 1
    world.disk.after_change = None
    return moments


def crashes_of(moment: Moment) -> Iterator[Kept]:
    return every_survival(moment.disk.unsynced())


def run(workload: Workload, share: float = 1.0, seed: int = 0) -> Tally:
    """Tries all crashes of the workload, or a random share of them."""
    rng = Random(f"{workload.name}:{seed}")
    tally = Tally()
    seen: set[tuple[int, int]] = set()
    for moment in moments_of(workload):
        tally.moments += 1
        after_kill = _try_kill(workload, moment)
        for disk, survivors in rng.sample(after_kill, min(len(after_kill), 20 if share >= 1.0 else 1)):
            _try_power_loss_after_kill(workload, moment, disk, survivors)
        for kept in crashes_of(moment):
            if share < 1.0 and rng.random() >= share:
                continue
            crashed = moment.disk.fork()
            crashed.power_loss_keeping(kept)
            key = (moment.operation, crashed.fingerprint())
            if key in seen:
                tally.alike += 1
                continue
            seen.add(key)
            tally.disks += 1
            try:
                tally.recoveries += _try(workload, moment, crashed, rng, deep=share >= 1.0)
            except Exception as error:
                error.add_note(_describe(workload, moment, kept))
                raise
    return tally


def _describe(workload: Workload, moment: Moment, kept: Kept) -> str:
    changes = moment.disk.unsynced()
    lines = [f"{workload.name}: power lost in operation {moment.operation}: {workload.operations[moment.operation]}"]
    for index, change in enumerate(changes):
        fate = "lost" if index not in kept else "kept" if kept[index] is WHOLE else repr(kept[index])
        lines.append(f"  {fate:6} {change!r}")
    return "\n".join(lines)


def _try_kill(workload: Workload, moment: Moment) -> list[tuple[SimDisk, Kept]]:
    """The ways to lose power during the start after it and behind that, and what each would keep."""
    disk = moment.disk.fork()
    disk.kill()
    during = [disk.fork()]
    disk.after_change = lambda changed: during.append(changed.fork())
    expected = moment.expected.copy()
    target = expected.histories[-1][-1].next_offset if expected.histories[-1] else expected.empty_end
    expected.durable_end = max(expected.durable_end, min(moment.written_end, target))
    try:
        expected.check(disk, open_directories(disk, workload.config, moment.now_ms).logs[TOPIC, PARTITION])
    except Exception as error:
        error.add_note(f"{workload.name}: kill -9 in operation {workload.operations[moment.operation]}")
        raise
    return [(one, kept) for one in during for kept in every_survival(one.unsynced(), subset_max=1)]


def _try_power_loss_after_kill(workload: Workload, moment: Moment, disk: SimDisk, kept: Kept) -> None:
    crashed = disk.fork()
    crashed.power_loss_keeping(kept)
    try:
        moment.expected.check(crashed, open_directories(crashed, workload.config, moment.now_ms).logs[TOPIC, PARTITION])
    except Exception as error:
        operation = workload.operations[moment.operation]
        error.add_note(f"{workload.name}: kill -9 in operation {operation}, then power lost in the start after it")
        raise


def _try(workload: Workload, moment: Moment, crashed: SimDisk, rng: Random, deep: bool) -> int:
    during: list[SimDisk] = []
    again = crashed.fork()
    again.after_change = lambda disk: during.append(disk.fork())
    dirs = open_directories(again, workload.config, moment.now_ms)
    again.after_change = None
    log = dirs.logs[TOPIC, PARTITION]
    kept = moment.expected.check(again, log)
    # A clean start leaves the files alone, and the recovery after it writes some of them anew.
    was_clean = dirs.directories[0].previous_stop.clean
    state = (log.log_start, log.log_end, log.epochs.entries(), {} if was_clean else files_on(again))
    recoveries = 2

    again.kill()
    log = open_directories(again, workload.config, moment.now_ms).logs[TOPIC, PARTITION]
    now = (log.log_start, log.log_end, log.epochs.entries(), {} if was_clean else files_on(again))
    assert now == state, "the second recovery differs"
    assert moment.expected.check(again, log) == kept

    interruptions = [
        (disk, survivors) for disk in during for survivors in every_survival(disk.unsynced(), subset_max=1)
    ]
    for disk, survivors in rng.sample(interruptions, min(len(interruptions), 6 if deep else 1)):
        interrupted = disk.fork()
        interrupted.power_loss_keeping(survivors)
        log = open_directories(interrupted, workload.config, moment.now_ms).logs[TOPIC, PARTITION]
        moment.expected.check(interrupted, log)
        recoveries += 1
    return recoveries
