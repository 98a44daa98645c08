"""What some runs have and others have not, so that what is rare by itself meets: logs of coordinators that are
compacted within seconds, groups that commit both in transactions and without, transactional topics that lose their
beginning, offsets that expire, writes that a power loss may take in halves, partitions that are moved, and few files
for flushes, which wait for each other then.

Drawn from a stream of its own, so that the runs without are what they would be.
"""

from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from mainstem.sim.faults import Effect, Fault
from mainstem.sim.ledger import Place
from mainstem.sim.written import OFFSETS_TOPIC, STATE_TOPIC

if TYPE_CHECKING:
    from mainstem.sim.world import World

TRIMMED: Final = "txnshort"
"""The transactional topic that loses its beginning, in runs that have one."""
SHARED_GROUP: Final = "shared-group"
RETENTION_MS: Final = 60_000
_SPLITS_AT_ONCE: Final = 20
_MOVING_SHARE: Final = 0.25
_FEW_FILES_SHARE: Final = 0.2
_DIRECTORIES: Final = ("/data", "/more", "/third")

EXPECTED: Final = ("S3 split write",)
"""Faults that each campaign must have seen of all this."""

REACHED: Final = (
    "log of a coordinator compacted",
    "empty marker in the log of a coordinator",
    "start of a log with transactions moved",
    "committed reader out of range",
    "plain commit kept over an earlier one of a transaction",
    "group deleted while a transaction had its offset",
    "group loaded that open transactions alone have",
    "offset of a transaction expired",
    "offset past its time kept for a transaction",
    "age of what is cleaned checked",
)
"""Rare branches that each campaign must have taken."""


@dataclass(frozen=True, slots=True)
class Tuning:
    compacts_coordinators: bool = False
    """Whether the logs of coordinators have tiny segments, and nothing in them outlives its second cleaning."""
    shares_groups: bool = False
    """Whether all transactional clients commit offsets of one group, which others commit and delete as well."""
    scatters_groups: bool = False
    """Whether each transaction that commits an offset does so for a group of its own, which nobody knew before."""
    trims_transactions: bool = False
    """Whether retention and DeleteRecords touch a topic with transactions, under the eyes of slow readers."""
    expires_offsets: bool = False
    """Whether the broker's clock passes `offsets.retention.minutes`, to a hair, while clients work."""
    splits_writes: bool = False
    """Whether one write of the broker's may be two for the disk."""
    directories: int = 1
    """How many log directories partitions are moved between (`movers`); with one none is, whatever there is."""

    flush_files_max: int | None = None
    """How many files flushes may have open together, where they are to wait their turn."""

    @property
    def is_about_offsets(self) -> bool:
        """Whether transactions have offsets more often than not, and for longer."""
        return self.shares_groups or self.scatters_groups

    def group_of(self, transactional_id: str, number: int) -> str:
        """The group that a client commits the offset of its so many'th transaction for."""
        if self.shares_groups:
            return SHARED_GROUP
        return f"{transactional_id}-group{number if self.scatters_groups else ''}"

    def places(self, usual: tuple[Place, ...]) -> tuple[Place, ...]:
        """Where transactional clients write."""
        return (*usual, (TRIMMED, 0), (TRIMMED, 0)) if self.trims_transactions else usual

    def settings(self) -> dict[str, str]:
        """The broker's, as far as this decides them."""
        settings: dict[str, str] = {}
        if self.expires_offsets:
            settings["offsets.retention.minutes"] = str(RETENTION_MS // 60_000)
        if self.trims_transactions or self.directories > 1:
            settings["log.retention.check.interval.ms"] = "100"
        if self.directories > 1:
            settings["log.dirs"] = ",".join(_DIRECTORIES[: self.directories])
        return settings


def draw_tuning(seed: int, is_transactional: bool) -> Tuning:
    rng = Random(f"{seed}:tuning")
    compacts = rng.random() < (0.4 if is_transactional else 0.1)
    shares = is_transactional and rng.random() < (0.7 if compacts else 0.3)
    scatters = is_transactional and not shares and rng.random() < 0.4
    trims = is_transactional and rng.random() < 0.3
    expires = rng.random() < (0.6 if shares else 0.12)
    splits = rng.random() < 0.12
    return Tuning(compacts, shares, scatters, trims, expires, splits, _directories(seed), _flush_files(seed))


def _directories(seed: int) -> int:
    rng = Random(f"{seed}:directories")
    return rng.choice((2, 2, 3)) if rng.random() < _MOVING_SHARE else 1


def _flush_files(seed: int) -> int | None:
    rng = Random(f"{seed}:files of flushes")
    return rng.choice((1, 1, 5, 12)) if rng.random() < _FEW_FILES_SHARE else None


def internal_topics(tuning: Tuning, seed: int, is_transactional: bool) -> dict[str, tuple[int, dict[str, str]]]:
    """Those that somebody creates ahead of the broker, with how many partitions and with which settings."""
    if not tuning.compacts_coordinators:
        return {}
    rng = Random(f"{seed}:internal topics")
    settings = {
        "cleanup.policy": "compact",
        "internal.segment.bytes": rng.choice(("300", "600")),
        "segment.index.bytes": "400",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": rng.choice(("0", "0", "400")),
    }
    names = (OFFSETS_TOPIC, STATE_TOPIC) if is_transactional else (OFFSETS_TOPIC,)
    return dict.fromkeys(names, (1, settings))


def begin(world: "World", tuning: Tuning) -> None:
    """Has done to a run what is done at certain times."""
    rng = Random(f"{world.seed}:tuned faults")
    if tuning.expires_offsets:
        for at_s in (1.0, 3.5):
            by_ms = RETENTION_MS + rng.choice((-1500, -300, 500, 10_000))
            world.scheduler.later(at_s + rng.random() * 2, partial(_jump, world, by_ms))
    if tuning.trims_transactions:
        world.scheduler.later(rng.random(), partial(_slow_down, world, Random(f"{world.seed}:slow lookups")))
    if tuning.splits_writes:
        world.scheduler.later(rng.random() * 2, partial(_split, world, rng))


def _jump(world: "World", by_ms: int) -> None:
    if not world.nemesis.is_over:
        world.count("K2 clock jump")
        world.process.clock.jump(by_ms)
        world.trace("clock", world.process.clock.skew_ms)


def _slow_down(world: "World", rng: Random) -> None:
    """Who looks something up in a thread finds, when it is back, that segments have gone meanwhile."""
    loop = world.process.loop
    if world.nemesis.is_over:
        return
    if loop is not None and world.process.is_serving:
        world.count("S12 slow disk")
        usual, until = loop.disk_delay, world.scheduler.now + 0.7
        # It ends by itself: a slow disk of the nemesis's may begin or end meanwhile, and put back what it found.
        loop.disk_delay = lambda: rng.random() * 0.1 if world.scheduler.now < until else usual()
    world.scheduler.later(1.0 + rng.random() * 0.5, partial(_slow_down, world, rng))


def _split(world: "World", rng: Random) -> None:
    """Of the next writes to segments each is two. Nobody is told: that is no error of the disk's."""
    if world.nemesis.is_over:
        return
    if not world.disk.faults:
        fault = Fault(Effect.SPLIT_WRITE, path=".log", times=_SPLITS_AT_ONCE)
        fault.on_strike = lambda operation, path: world.count("S3 split write")
        world.disk.faults.append(fault)
    world.scheduler.later(1 + rng.random(), partial(_split, world, rng))
