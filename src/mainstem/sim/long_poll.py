"""A reader that waits for what comes next, for longer than anybody would like to: it is told when it comes (P12). So is
one that reads what is committed, when the transaction is over that was in its way.

When all is healed. Others ask for as little as a tenth of a second, and would not notice that nobody wakes them.
"""

import asyncio
import contextlib
from random import Random
from typing import TYPE_CHECKING, Final

from mainstem.core.txn.states import TV2
from mainstem.protocol.builder import BatchBuilder
from mainstem.protocol.errors import ErrorCode
from mainstem.sim.client import NoAnswer, SimClient
from mainstem.sim.committed import check_given
from mainstem.sim.ledger import Place, Send, Violation
from mainstem.sim.txn_workload import PLACES, GaveUpError, TxnProducer, fetch_committed_records
from mainstem.sim.workloads import PRODUCE_VERSION, client_ms, fetch, list_offset, take

if TYPE_CHECKING:
    from mainstem.sim.world import World

SHARE: Final = 0.3
COMMITS_SHARE: Final = 0.4
_WAIT_S: Final = 20.0
_SOON_S: Final = 5.0
_HEAD_START_S: Final = 0.2
_NAME: Final = "news"
"""The transactional id of the observer."""


def comes(seed: int) -> bool:
    return Random(f"{seed}:long poll").random() < SHARE


async def wait_for_news(world: "World", client: SimClient) -> None:
    place = Random(f"{world.seed}:news of").choice((("log", 0), ("log", 1)))
    if place in world.ledger.damaged:
        return
    reader = client.another(timeout_s=2 * _WAIT_S)
    try:
        end = await list_offset(client, place, -1)
        if end is None:
            return
        reading = client.loop.create_task(fetch(reader, place, end, max_wait_ms=int(_WAIT_S * 1000)))
        await asyncio.sleep(_HEAD_START_S)
        if not await _write(world, client, place):
            return
        written_s = world.scheduler.now
        code, start, high, records, _ = await reading
        waited_s = world.scheduler.now - written_s
        if code is ErrorCode.NONE:
            take(world, place, records, end, start, high, client.life)
            world.count("reader woken")
            if not records or waited_s > _SOON_S:
                raise Violation(
                    "P12 who waits is told", f"a reader at {end} of {place} was told {waited_s:.1f} s after the append"
                )
    except NoAnswer:
        pass
    finally:
        reader.close()


async def _write(world: "World", client: SimClient, place: Place) -> bool:
    value = b"news"
    world.ledger.sent(Send(place, value, None, client.name, 0, ordered=False))
    builder = BatchBuilder()
    builder.append(client_ms(world), None, value)
    found = await client.produce(place, builder.build(), PRODUCE_VERSION)
    if found.error_code != ErrorCode.NONE:
        return False
    world.ledger.acked(value, found.base_offset, client.life)
    world.watch.acknowledged.acked(place, found.base_offset, client.life)
    return True


def comes_for_commits(seed: int) -> bool:
    """Whether somebody waits for a commit, in a run with transactions. Drawn apart, so others are as they were."""
    return Random(f"{seed}:long poll of commits").random() < COMMITS_SHARE


async def wait_for_commit(world: "World", client: SimClient) -> None:
    rng = Random(f"{world.seed}:commit of")
    place = rng.choice(PLACES)
    broker = world.process.broker
    assert broker is not None
    partition = broker.partitions.find(*place)
    end = partition.log.log_end
    if place in world.ledger.damaged or partition.last_stable_offset < end:
        return  # what a power loss has torn may be open for ever
    reader = client.another(timeout_s=2 * _WAIT_S)
    writer = TxnProducer(world, client, rng, _NAME, tv2=world.txn_shape.level >= TV2 and rng.random() < 0.7)
    reading = None
    try:
        await reader.connected()
        life = reader.life
        commit = await writer.opened(place)
        reading = client.loop.create_task(fetch_committed_records(reader, place, end, max_wait_ms=int(_WAIT_S * 1000)))
        await asyncio.sleep(_HEAD_START_S)
        has_waited = not reading.done()  # or somebody else's transaction has ended there
        await commit()
        written_s = world.scheduler.now
        code, records, after = await reading
        waited_s = world.scheduler.now - written_s
        check_given(world, place, end, after, records, life, "")
        for at, value in records:
            world.txns.seen(place, at, value)
        if code is ErrorCode.NONE and has_waited:
            world.count("reader of commits woken")
            if not records or waited_s > _SOON_S:
                raise Violation(
                    "P12 who waits is told",
                    f"a reader of committed records at {end} of {place} was told {waited_s:.1f} s after the commit",
                )
    except (NoAnswer, GaveUpError):
        pass
    finally:
        reader.close()
        if reading is not None:
            with contextlib.suppress(NoAnswer):
                await reading
