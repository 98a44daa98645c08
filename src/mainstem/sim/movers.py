"""Partitions on their way between log directories (KIP-113), in some runs, while all else goes on and goes wrong.

One client asks for moves of data and of internal partitions, back and forth, and for what the directories hold. What it
is told must make sense whenever it is told: each directory once, each partition in one of them, a copy in another one.
When everything is healed it asks once more for each partition: these moves end, and nothing of any copy is left over.

A move ends in a few renames, which chance alone hardly ever meets: in some of these runs the process dies, or a
directory fails, right there. Nor does a clean stop often come while one is under way: in some runs whoever moves
partitions stops the broker as soon as a move has begun.

Drawn from streams of their own, so that the runs without are what they would be.
"""

import asyncio
import contextlib
from collections.abc import Iterable
from random import Random
from typing import TYPE_CHECKING, Final

from mainstem.broker.log_moves import PIECE_BYTES
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from mainstem.protocol.messages.k35_describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from mainstem.sim.client import NoAnswer, SimClient
from mainstem.sim.faults import Effect, Fault
from mainstem.sim.ledger import Place, Violation
from mainstem.sim.written import OFFSETS_TOPIC, STATE_TOPIC

if TYPE_CHECKING:
    from mainstem.sim.world import World

EXPECTED: Final = ("death at the end of a move", "directory failed at the end of a move")
"""Faults that each campaign must have seen of all this."""

REACHED: Final = (
    "move finished",
    "move of an internal partition finished",
    "move cancelled by another",
    "move refused",
    "move interrupted by a stop",
    "move interrupted by a kill",
    "move interrupted by a power loss",
    "move interrupted by an offline directory",
    "move resumed at a start",
    "batch appended beside a move",
    "start moved beside a move",
    "partition in two directories at a start",
    "copy described",
    "last move finished",
)
"""Rare branches that each campaign must have taken."""

PROMISE: Final = "D8 a move ends"
DESCRIBED: Final = "D8 directories are described"
FUTURE: Final = "-future"
_NOWHERE: Final = "/nowhere"
_LATE_S: Final = 4.0
"""When a request that was sent before everything was healed has come, or never will (N10)."""
_STOPS_SHARE: Final = 0.6
"""Of the runs with moves, how many have a clean stop in the middle of one."""
_ROUNDS: Final = 400
_ROUND_S: Final = 0.1
_MAY_REFUSE: Final = frozenset(
    {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER}
)

Described = dict[str, DescribeLogDirsResult]


def begin_moves(world: "World") -> None:
    """Has partitions moved in this run, if it is one of those."""
    if world.tuning.directories < 2:
        return
    rng = Random(f"{world.seed}:moves")
    world.moves.piece_bytes = rng.choice((1, 300, PIECE_BYTES))
    world.moves.set_pace()
    before = world.process.on_start

    def starting() -> None:
        before()
        world.moves.starting()

    world.process.on_start = starting
    if rng.random() < 0.6:
        SwapFaults(world, rng)
    world.add_client("mover", lambda client, own: Mover(world, client, own).run())


class SwapFaults:
    """What goes wrong while a copy takes a log's place."""

    def __init__(self, world: "World", rng: Random) -> None:
        self._world = world
        self._rng = rng
        before = world.disk.on_operation
        assert before is not None
        self._before = before
        world.disk.on_operation = self._operation

    def _operation(self, operation: str, path: str, position: int, size: int) -> None:
        self._before(operation, path, position, size)
        if self._world.nemesis.is_over or FUTURE not in path:
            return
        # A copy is closed, with a snapshot, before it is renamed: what is struck there is struck before or after it.
        if (operation == "rename" and path.endswith(FUTURE)) or (operation == "write" and path.endswith(".snapshot")):
            drawn = self._rng.random()
            if drawn < 0.3:
                self._die()
            elif drawn < 0.4:
                self._fail()

    def _die(self) -> None:
        world = self._world
        world.count("death at the end of a move")
        world.process.crash_is_power_loss = world.needs_reboot or self._rng.random() < 0.6
        world.process.crash_after = self._rng.randrange(24)

    def _fail(self) -> None:
        world = self._world
        broker = world.process.broker
        if broker is None or world.disk_is_sick:
            return
        directory = self._rng.choice(broker.partitions.dirs.directories)
        fault = Fault(Effect.FAIL, None, f"{directory.path}/", skip=self._rng.randrange(12), times=-1)
        world.arm("directory failed at the end of a move", fault)
        world.scheduler.later(0.7, world.cure_disk)
        world.scheduler.later(0.7 + self._rng.random(), world.kill_if_sick)


class Mover:
    def __init__(self, world: "World", client: SimClient, rng: Random) -> None:
        self.world = world
        self.client = client
        self.rng = rng
        self._paths: list[str] = []
        internal = [(OFFSETS_TOPIC, 0), (OFFSETS_TOPIC, 1)]
        if world.is_transactional:
            internal += [(STATE_TOPIC, 0), (STATE_TOPIC, 1)]
        self._lasting = [(topic, index) for topic, (count, _) in world.topics.items() for index in range(count)]
        self._places = [*self._lasting, *self._lasting, *internal, ("churn0", 0), ("churn1", 0)]
        stops = Random(f"{world.seed}:stops amid moves")
        self._stops_left = 1 if stops.random() < _STOPS_SHARE else 0

    async def run(self) -> None:
        while not self.world.is_stopping:
            with contextlib.suppress(NoAnswer):
                if not self._paths or self.rng.random() < 0.3:
                    await self._describe()
                else:
                    await self._move_some()
            await asyncio.sleep(self.rng.random() * self.rng.choice((0.02, 0.3, 1.0)))
        await asyncio.sleep(_LATE_S)
        await self._move_a_last_time()

    # Asking

    async def _move_some(self) -> None:
        if self.rng.random() < 0.03:
            await self._move_nowhere()
            return
        count = self.rng.choice((1, 1, 2, len(self._places)))
        wanted = {place: self.rng.choice(self._paths) for place in self.rng.sample(self._places, count)}
        for place, code in (await self._ask(wanted)).items():
            if code is ErrorCode.NONE:
                continue
            self.world.count("move refused")
            is_sick = self.world.had_disk_error or code is not ErrorCode.KAFKA_STORAGE_ERROR
            if code not in _MAY_REFUSE or not is_sick:
                raise Violation(PROMISE, f"a move of {place} to {wanted[place]} was refused with {code.name}")
        if self._stops_left and self.world.moves.is_any_under_way and not self.world.nemesis.is_over:
            self._stops_left -= 1
            self.world.count("X1 stop")
            self.world.process.stop()

    async def _move_nowhere(self) -> None:
        place = self.rng.choice(self._lasting)
        code = (await self._ask({place: _NOWHERE}))[place]
        if code is not ErrorCode.LOG_DIR_NOT_FOUND:
            raise Violation(PROMISE, f"a move of {place} to no directory of the broker's was answered with {code.name}")

    async def _ask(self, wanted: dict[Place, str]) -> dict[Place, ErrorCode]:
        dirs: dict[str, dict[str, list[int]]] = {}
        for (topic, index), path in wanted.items():
            dirs.setdefault(path, {}).setdefault(topic, []).append(index)
        request = AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(
                    path=path,
                    topics=[AlterReplicaLogDirTopic(name=name, partitions=found) for name, found in topics.items()],
                )
                for path, topics in dirs.items()
            ]
        )
        answer = await self.client.ask(request, 2, AlterReplicaLogDirsResponse)
        codes = {
            (topic.topic_name, each.partition_index): ErrorCode(each.error_code)
            for topic in answer.results
            for each in topic.partitions
        }
        if codes.keys() != wanted.keys():
            raise Violation(PROMISE, f"moves of {list(wanted)} were asked for, and of {list(codes)} it was answered")
        return codes

    # Looking

    async def _describe(self) -> Described:
        answer = await self.client.ask(DescribeLogDirsRequest(topics=None), 4, DescribeLogDirsResponse)
        described = {result.log_dir: result for result in answer.results}
        if len(described) != len(answer.results) or len(described) != self.world.tuning.directories:
            raise Violation(DESCRIBED, f"they are {[result.log_dir for result in answer.results]}")
        check_described(described, self.world.had_disk_error)
        if futures_in(described):
            self.world.count("copy described")
        self._paths = sorted(described)
        return described

    # The end

    async def _move_a_last_time(self) -> None:
        """Every move that is begun now ends, and those before have ended when it has."""
        described: Described = {}
        wanted: dict[Place, str] = {}
        # A batch at a time, from a slow disk, a long log takes longer than anybody waits.
        self.world.moves.piece_bytes = PIECE_BYTES
        self.world.moves.set_pace()
        for _ in range(_ROUNDS):
            with contextlib.suppress(NoAnswer):
                described = await self._describe()
                places = [place for place in places_in(described) if place in self._places]
                moving = [place for place in places if place not in wanted and self._is_sound(place)]
                if moving:
                    asked = {place: self.rng.choice(self._paths) for place in moving}
                    codes = await self._ask(asked)
                    wanted |= {place: asked[place] for place, code in codes.items() if code is ErrorCode.NONE}
                elif self._is_settled(described, wanted):
                    self.world.moves.is_settled = True
                    return
            await asyncio.sleep(_ROUND_S)
        found = places_in(described)
        late = [f"{place} to {path}, it is in {found.get(place)}" for place, path in wanted.items()]
        raise Violation(
            PROMISE,
            f"asked for: {'; '.join(late)}; copies {futures_in(described)}; left over {self.world.moves.left_over()}",
        )

    def _is_sound(self, place: Place) -> bool:
        return place not in self.world.ledger.damaged and not place[0].startswith("churn")

    def _is_settled(self, described: Described, wanted: dict[Place, str]) -> bool:
        if futures_in(described) or self.world.moves.left_over():
            return False
        found = places_in(described)
        missing = [place for place in self._lasting if self._is_sound(place) and place not in wanted]
        if missing or any(found.get(place) != path for place, path in wanted.items() if self._is_sound(place)):
            return False
        self.world.count("last move finished")
        return True


def check_described(described: Described, may_be_offline: bool) -> None:
    """Whether the answer makes sense: the directories by their paths."""
    homes: dict[Place, str] = {}
    copies: dict[Place, str] = {}
    for path, result in described.items():
        if result.error_code != ErrorCode.NONE:
            if result.topics or not may_be_offline:
                raise Violation(DESCRIBED, f"{path} has {ErrorCode(result.error_code).name} and {len(result.topics)}")
            continue
        for topic in result.topics:
            for each in topic.partitions:
                place = (topic.name, each.partition_index)
                seen = copies if each.is_future_key else homes
                if seen.setdefault(place, path) != path or each.partition_size < 0 or each.offset_lag < 0:
                    raise Violation(DESCRIBED, f"{place} is in {seen[place]}, and {each} in {path}")
    for place, path in copies.items():
        if homes.get(place, path) == path:
            raise Violation(DESCRIBED, f"a copy of {place} is in {path}, and the log in {homes.get(place)}")


def places_in(described: Described) -> dict[Place, str]:
    """Where each partition is."""
    return dict(_entries(described, is_future=False))


def futures_in(described: Described) -> dict[Place, str]:
    """Where each copy is."""
    return dict(_entries(described, is_future=True))


def _entries(described: Described, *, is_future: bool) -> Iterable[tuple[Place, str]]:
    for path, result in described.items():
        for topic in result.topics:
            for each in topic.partitions:
                if each.is_future_key == is_future:
                    yield (topic.name, each.partition_index), path
