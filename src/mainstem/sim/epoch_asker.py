"""Who asks where a leader's term ends (KIP-320), as clients do that want to know whether a log was cut.

It comes when the broker has been started once more and nobody has written since: the term in force has no batch, and
must be known all the same (P9, KAFKA-7415). It asks for the end of every older term that has batches in the log, and of
one that has none, and in which term the log's first and last offsets are. Who names an older term than the one in force
as the leader's is told so, and who names a later one, too (P11).
"""

import contextlib
from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, Final

from mainstem.broker.partition import Partition
from mainstem.protocol.batch import BatchView
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k23_offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from mainstem.sim.checkers.terms_are_told import batches_of, check_end, check_epoch, known_from
from mainstem.sim.client import NoAnswer, SimClient
from mainstem.sim.ledger import Place, Violation
from mainstem.sim.workloads import find_offset

if TYPE_CHECKING:
    from mainstem.sim.world import World

REACHED: Final = ("end of a term asked for", "end of an older term asked for", "epoch of an end asked for")
"""Rare branches that each campaign must have taken."""

SHARE: Final = 0.4
_CLIENT: Final = -1
_LATEST: Final = -1
_EARLIEST: Final = -2


def comes(seed: int) -> bool:
    return Random(f"{seed}:epochs").random() < SHARE


async def ask_epochs(world: "World", client: SimClient) -> None:
    places = [place for place in world.observer.finals if place not in world.ledger.damaged]
    broker = world.process.broker
    if not places or broker is None:
        return
    place = Random(f"{world.seed}:epoch of").choice(places)
    partition = broker.partitions.find(*place)
    leader = partition.check_leader()
    epoch = leader.epoch
    end = partition.log.log_end
    with contextlib.suppress(NoAnswer):
        found = await _ask(client, place, epoch, epoch)
        if partition.leader is not leader:
            return
        told = (ErrorCode(found.error_code), found.leader_epoch)
        if told != (ErrorCode.NONE, epoch) or not end <= found.end_offset <= partition.log.log_end:
            raise Violation(
                "P9 a term is known from its beginning",
                f"{place[0]}-{place[1]} is led in epoch {epoch} and ends at {end}; told was {told[0].name}, epoch "
                f"{told[1]}, end {found.end_offset}",
            )
        world.count(REACHED[0])
        await _ask_older(world, client, partition, epoch)
        await _ask_both_ends(world, client, partition)
        for named, expected in (
            (epoch - 1, ErrorCode.FENCED_LEADER_EPOCH),
            (epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ):
            code = ErrorCode((await _ask(client, place, named, 0)).error_code) if named >= 0 else expected
            if code is not expected and partition.leader is leader:
                raise Violation(
                    "P11 who names another term is told",
                    f"{place[0]}-{place[1]} is led in epoch {epoch}; who named {named} was told {code.name}",
                )


async def _ask_older(world: "World", client: SimClient, partition: Partition, current: int) -> None:
    place = (partition.topic, partition.index)
    start, end = _known_from(world, partition), partition.log.log_end
    batches = [each for each in batches_of(world.disk, partition.log) if each.next_offset > start]
    for epoch in _older(batches, current, Random(f"{world.seed}:epoch without a batch")):
        found = await _ask(client, place, current, epoch)
        if found.error_code != ErrorCode.NONE or _known_from(world, partition) != start:
            return
        check_end(str(partition), batches, (start, end), epoch, (found.leader_epoch, found.end_offset))
        world.count(REACHED[1])


def _older(batches: list[BatchView], current: int, rng: Random) -> Iterator[int]:
    """The terms before this one that have batches, and one that has none."""
    there = {each.leader_epoch for each in batches}
    yield from sorted(there - {current})
    without = [epoch for epoch in range(current) if epoch not in there]
    if without:
        yield rng.choice(without)


def _known_from(world: "World", partition: Partition) -> int:
    return known_from(partition.log, world.may_trim(partition.topic))


async def _ask_both_ends(world: "World", client: SimClient, partition: Partition) -> None:
    place = (partition.topic, partition.index)
    leader = partition.check_leader()
    batches = batches_of(world.disk, partition.log)
    found = await find_offset(client, place, _EARLIEST)
    known = _known_from(world, partition)
    if found is not None and check_epoch(str(partition), batches, known, found.offset, found.leader_epoch):
        world.count(REACHED[2])
    found = await find_offset(client, place, _LATEST)
    if found is not None and found.leader_epoch != leader.epoch and partition.leader is leader:
        raise Violation(
            "P9 an offset has the epoch of its batch",
            f"{partition}: its end is said to be of epoch {found.leader_epoch}, it is led in {leader.epoch}",
        )


async def _ask(client: SimClient, place: Place, current: int, wanted: int) -> EpochEndOffset:
    partition = OffsetForLeaderPartition(partition=place[1], current_leader_epoch=current, leader_epoch=wanted)
    topic = OffsetForLeaderTopic(topic=place[0], partitions=[partition])
    request = OffsetForLeaderEpochRequest(replica_id=_CLIENT, topics=[topic])
    return (await client.ask(request, 4, OffsetForLeaderEpochResponse)).topics[0].partitions[0]
