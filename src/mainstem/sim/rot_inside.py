"""Rot where nobody's records are: in the logs of coordinators and in the metadata. It comes last in some runs, when all
else was judged, because little can be asked of a cluster after it.

The broker is stopped or killed, one file is damaged (S9, S10), and the broker is started once more. What must hold:

- Of a damaged log of a coordinator: the broker starts, no other log is shorter than it was, and the coordinator knows
  what it knew or cannot be had. What it was told last may be cut off by the start after a kill, where the damage is
  past the recovery point; an offset that nobody committed is never told.
- Of damaged metadata: the broker says why it does not start, or it comes back with topics that there were together at
  some moment before. As Kafka does it, the metadata log is cut at damage past its last snapshot.
- Nothing fails without a word.

Drawn from a stream of its own.
"""

import asyncio
import contextlib
from random import Random
from typing import TYPE_CHECKING, Final

from mainstem.core.controller.image import ClusterImage
from mainstem.core.txn.states import Transaction
from mainstem.protocol.batch import iterate_batches
from mainstem.protocol.messages.record_framing import decode_metadata_record
from mainstem.protocol.records import iterate_records
from mainstem.protocol.schema import Message
from mainstem.sim.checkers.metadata_replays import FOLDER
from mainstem.sim.client import NoAnswer, SimClient
from mainstem.sim.disk import SimDisk
from mainstem.sim.group_ledger import GONE
from mainstem.sim.group_members import fetch_committed, find_coordinator
from mainstem.sim.ledger import Place, Violation
from mainstem.sim.written import OFFSETS_TOPIC, STATE_TOPIC
from mainstem.storage.metadata_snapshot import decode_snapshot, parse_file_name

if TYPE_CHECKING:
    from mainstem.sim.world import World

EXPECTED: Final = ("S9 rot in the log of a coordinator", "S9 rot in the metadata")
"""Faults that each campaign must have seen of all this."""

REACHED: Final = (
    "damaged coordinator could not be had",
    "damaged coordinator knew what it had known",
    "damaged metadata refused",
    "damaged metadata taken",
)
"""Rare branches that each campaign must have taken."""

PROMISE: Final = "D4 rot in the cluster's own logs is told, or does no harm"
SHARE: Final = 0.25
"""Of the runs, how many end so."""
_START_S: Final = 30.0
_TRIES: Final = 5
_PAUSE_S: Final = 0.2
_GROUPS_MAX: Final = 3
_OF_LOGS: Final = ("log", "index", "snapshot")


def comes(seed: int) -> bool:
    return Random(f"{seed}:rot inside").random() < SHARE


class RotInside:
    def __init__(self, world: "World") -> None:
        self._world = world
        self._rng = Random(f"{world.seed}:what rots inside")
        broker = world.process.broker
        assert broker is not None
        self._ends = {(each.topic, each.index): each.log.log_end for each in broker.partitions}
        self._offsets = {
            (group, place): world.offsets_follow.offset(group, place) for group, place in world.observer.committed
        }
        self._txns = {
            index: dict(shard.machine.store.all)
            for index, shard in broker.transactions.runtime.shards.items()
            if shard.is_serving
        }
        self._was_stopped = self._rng.random() < 0.5

    def run(self) -> None:
        self._look_away()
        self._end()
        is_metadata = self._rng.random() < 0.5
        parts = (FOLDER,) if is_metadata else (f"/{OFFSETS_TOPIC}-", f"/{STATE_TOPIC}-")
        path = self._pick([path for part in parts for path in self._world.disk.files(part)], is_metadata)
        if not path:
            return
        topics = topics_ever(self._world.disk) if is_metadata else []
        self._damage(path)
        self._world.count(EXPECTED[1] if is_metadata else EXPECTED[0])
        process = self._world.process
        process.start()
        self._world.run_until(lambda: process.is_serving or not process.is_up, _START_S, "the broker starts or stops")
        if is_metadata:
            self._judge_metadata(path, topics)
        else:
            self._judge_coordinator(path)

    def _look_away(self) -> None:
        """Checkers follow what was written; from now on something else is there."""
        process = self._world.process
        process.on_start = lambda: None
        process.on_served = lambda broker: None
        process.on_death = lambda how: None
        process.after_step = None
        if process.loop is not None:
            process.loop.after_step = None
        self._world.disk.on_operation = process._operation

    def _end(self) -> None:
        process = self._world.process
        if self._was_stopped:
            process.stop()
            self._world.run_until(lambda: not process.is_up, _START_S, "the broker stops")
        else:
            process.kill()

    # The damage

    def _pick(self, paths: list[str], is_metadata: bool) -> str:
        there = [path for path in paths if self._world.disk.peek(path)]
        if not is_metadata:
            # Not what was set aside, nor a copy.
            folders = {path: path.rsplit("/", 2)[-2] for path in there}
            there = [path for path in there if path.endswith(_OF_LOGS) and folders[path].rpartition("-")[2].isdigit()]
        # By chance alone it would mostly be an index, of which there are many and which is built anew.
        wanted = (
            self._rng.choice((".log", "quorum-state", "")) if is_metadata else self._rng.choice((".log", ".log", ""))
        )
        chosen = [path for path in there if path.endswith(wanted)] or there
        return self._rng.choice(chosen) if chosen else ""

    def _damage(self, path: str) -> None:
        disk, rng = self._world.disk, self._rng
        size = len(disk.peek(path).rstrip(b"\0")) or 1
        if rng.random() < 0.7:
            disk.flip_bit(path, rng.randrange(size * 8))
        else:
            disk.cut_file(path, rng.randrange(size))
        self._world.trace("rot inside", path)

    # What comes of it

    def _judge_metadata(self, path: str, topics: list[frozenset[bytes]]) -> None:
        process = self._world.process
        if not process.is_serving:
            if not process.died_of:
                raise Violation(PROMISE, f"{path} is damaged, and the broker ended without a word")
            self._world.count("damaged metadata refused")
            return
        assert process.broker is not None
        if frozenset(process.broker.image.topics_by_id) not in topics:
            names = sorted(process.broker.image.topics)
            raise Violation(PROMISE, f"{path} is damaged; there are the topics {names}, which there never were")
        self._world.count("damaged metadata taken")

    def _judge_coordinator(self, path: str) -> None:
        process = self._world.process
        if not process.is_serving:
            raise Violation(PROMISE, f"{path} is damaged, and the broker does not start: {process.died_of}")
        broker = process.broker
        assert broker is not None
        topic, _, index = path.rsplit("/", 2)[-2].rpartition("-")
        damaged = (topic, int(index))
        for place, end in self._ends.items():
            log = broker.partitions.dirs.logs.get(place)
            if place == damaged or place in self._world.ledger.damaged or log is None:
                continue
            if log.log_end < end:
                raise Violation(PROMISE, f"{path} is damaged, and {place} ends at {log.log_end}; it ended at {end}")
        if topic == STATE_TOPIC:
            self._world.run_for(1.0)
            self._judge_transactions(damaged)
        else:
            self._world.observe(self._judge_offsets(damaged), 60.0, "G9 the coordinator answers")

    def _judge_transactions(self, damaged: Place) -> None:
        broker = self._world.process.broker
        assert broker is not None
        shard = broker.transactions.runtime.shards.get(damaged[1])
        if shard is None or not shard.is_serving:
            self._world.count("damaged coordinator could not be had")
            return
        before, now = self._txns.get(damaged[1]), dict(shard.machine.store.all)
        if before is None or not self._was_stopped:
            return  # the start may have cut what was past the recovery point
        changed = [each for each in dict.fromkeys((*before, *now)) if not _is_later(before.get(each), now.get(each))]
        if changed:
            name = changed[0]
            raise Violation(PROMISE, f"{damaged} is damaged; {name} was {before.get(name)}, and is {now.get(name)}")
        self._world.count("damaged coordinator knew what it had known")

    async def _judge_offsets(self, damaged: Place) -> None:
        client = self._world.observing_client()
        for group, place in list(self._offsets)[:_GROUPS_MAX]:
            found = await self._ask(client, group, place)
            if found is None:
                self._world.count("damaged coordinator could not be had")
                continue
            allowed = {self._offsets[group, place]}
            if self._world.offsets_may_expire:
                allowed.add(GONE)
            if not self._was_stopped:
                allowed |= {GONE, *self._world.offsets_follow.ever(group, place)}
                allowed |= {each.offset for each in self._world.txns.txns if each.offset is not None}
            if found not in allowed:
                raise Violation(
                    PROMISE,
                    f"{damaged} is damaged; {group} is said to be at {found} of {place}, it was at "
                    f"{self._offsets[group, place]}",
                )
            self._world.count("damaged coordinator knew what it had known")
        client.close()

    async def _ask(self, client: SimClient, group: str, place: Place) -> int | None:
        for _ in range(_TRIES):
            with contextlib.suppress(NoAnswer):
                await find_coordinator(client, group)
                found = await fetch_committed(client, group, *place)
                if found is not None:
                    return found
            await asyncio.sleep(_PAUSE_S)
        return None


def topics_ever(disk: SimDisk) -> list[frozenset[bytes]]:
    """The ids of the topics that there were at each moment that a snapshot or the log tells of."""
    snapshots = {0: ""}
    logs: dict[int, str] = {}
    for path in disk.files(FOLDER):
        name = path.rpartition("/")[2]
        found = parse_file_name(name)
        if found is not None:
            snapshots[found.end_offset] = path
        elif name.endswith(".log"):
            logs[int(name.removesuffix(".log"))] = path
    logged: list[tuple[int, list[Message]]] = []
    for _, path in sorted(logs.items()):
        data = disk.peek(path)
        for batch in iterate_batches(data, 0, len(data)):
            if not batch.is_control:
                values = [record.value or b"" for record in iterate_records(batch)]
                logged.append((batch.base_offset, [decode_metadata_record(value)[0] for value in values]))
    ever: list[frozenset[bytes]] = [frozenset()]
    for start, path in snapshots.items():
        image = ClusterImage()
        if path:
            for value in decode_snapshot(path, disk.peek(path)).values:
                image.replay(decode_metadata_record(value)[0])
        ever.append(frozenset(image.topics_by_id))
        if start < min(logs):
            continue  # the log's beginning went with a later snapshot, and its rest means nothing without that
        for base_offset, records in logged:
            if base_offset >= start:
                image.replay_all(records)
                ever.append(frozenset(image.topics_by_id))
    return ever


def _is_later(before: Transaction | None, now: Transaction | None) -> bool:
    """Whether it is the same, or its own coordinator may have gone on with it: ended it, completed it, forgotten it."""
    if before is None or now is None:
        return now is None
    return now == before or now.updated_ms >= before.updated_ms
