"""Where a partition ends for readers of committed records, by what ListOffsets tells them (T6, KAFKA-5522).

Asked when all is healed and clients have left, and before the clock is put forward: transactions that somebody has left
open are open then. What is right is the broker's last stable offset, which has a checker of its own; and of moments,
that nothing at or past it is found.
"""

import contextlib
from typing import TYPE_CHECKING

from mainstem.broker.partition import Partition
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from mainstem.sim.checkers.times_are_found import NOT_FOUND, first_at
from mainstem.sim.client import NoAnswer, SimClient
from mainstem.sim.ledger import Place, Violation

if TYPE_CHECKING:
    from mainstem.sim.world import World

LATEST = -1


async def ask_stable_ends(world: "World", client: SimClient) -> None:
    broker = world.process.broker
    assert broker is not None
    for place in dict.fromkeys(world.txn_places):
        partition = broker.partitions.get(*place)
        if partition is None or place in world.ledger.damaged:
            continue
        with contextlib.suppress(NoAnswer):
            before, high = partition.last_stable_offset, partition.high_watermark
            found = await _ask(client, place, LATEST)
            after = partition.last_stable_offset
            if found is not None and not before <= found <= after:
                raise Violation(
                    "T6 committed records end where they are stable",
                    f"{place[0]}-{place[1]}: a reader of committed records is told the end {found}, it is {before}",
                )
            if found is not None and found < high:
                world.count("stable end told before the high watermark")
            if not world.may_trim(place[0]) and not world.is_keyed(place[0]) and place not in world.ledger.mistimed:
                await _ask_for_the_last_moment(world, client, partition)


async def _ask_for_the_last_moment(world: "World", client: SimClient, partition: Partition) -> None:
    times = world.times_are_found.times(partition.log)
    moment = max((timestamp for _, timestamp in times), default=0)
    first = first_at(times, moment)
    before = partition.last_stable_offset
    found = await _ask(client, (partition.topic, partition.index), moment)
    if found is None or before != partition.last_stable_offset:
        return  # somebody has ended a transaction meanwhile
    wanted = first if first < before else NOT_FOUND
    if found != wanted:
        raise Violation(
            "T6 committed records end where they are stable",
            f"{partition}: {moment} is said to be at {found}, not {wanted}; stable it is up to {before}",
        )


async def _ask(client: SimClient, place: Place, timestamp: int) -> int | None:
    wanted = [ListOffsetsPartition(partition_index=place[1], timestamp=timestamp)]
    topic = ListOffsetsTopic(name=place[0], partitions=wanted)
    request = ListOffsetsRequest(replica_id=-1, isolation_level=1, topics=[topic])
    answer = await client.ask(request, 7, ListOffsetsResponse)
    found = answer.topics[0].partitions[0]
    return found.offset if found.error_code == ErrorCode.NONE else None
