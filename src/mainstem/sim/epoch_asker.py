"""Who asks where a leader's term ends (KIP-320), as clients do that want to know whether a log was cut.

It comes when the broker has been started once more and nobody has written since: the term in force has no batch, and
must be known all the same (P9, KAFKA-7415). Who names an older term than that is told so, and who names a later one,
too (P11).
"""

import contextlib
from random import Random
from typing import TYPE_CHECKING, Final

from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k23_offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from mainstem.sim.client import NoAnswer, SimClient
from mainstem.sim.ledger import Place, Violation

if TYPE_CHECKING:
    from mainstem.sim.world import World

SHARE: Final = 0.4
_CLIENT: Final = -1


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
        world.count("end of a term asked for")
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


async def _ask(client: SimClient, place: Place, current: int, wanted: int) -> EpochEndOffset:
    partition = OffsetForLeaderPartition(partition=place[1], current_leader_epoch=current, leader_epoch=wanted)
    topic = OffsetForLeaderTopic(topic=place[0], partitions=[partition])
    request = OffsetForLeaderEpochRequest(replica_id=_CLIENT, topics=[topic])
    return (await client.ask(request, 4, OffsetForLeaderEpochResponse)).topics[0].partitions[0]
