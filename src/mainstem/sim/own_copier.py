"""Our own client's transactions: two members of a group copy what they read to another topic, exactly once.

What was read, its copies and the group's position go together: a copy says which record it is of, so that at the end,
by the log of the copies, its markers and the position of the group,
- each record before the position has one committed copy, and no record has two (T5, T9),
- no record at or past it has any (T9).
A member that fails, or aborts, begins anew with what its group has committed; so does who takes up a dead one's work.

In runs in which no acknowledgement may be lost: else a power loss may take a copy and leave the position. A run that
goes on with another disk promises nothing of the kind, nor does a log that is damaged: it may begin anew.
"""

import asyncio
import contextlib
from random import Random
from typing import TYPE_CHECKING, Final

from mainstem.client.consumer import AsyncConsumer
from mainstem.client.errors import KafkaError
from mainstem.client.producer import AsyncProducer
from mainstem.client.types import OffsetAndMetadata, TopicPartition
from mainstem.core.txn.states import TV2
from mainstem.protocol.errors import ErrorCode
from mainstem.sim.client import NoAnswer, SimClient
from mainstem.sim.committed import check_given, committed_between
from mainstem.sim.group_members import fetch_committed, find_coordinator
from mainstem.sim.ledger import Place, Send, Violation
from mainstem.sim.own_client import QUICK, RESTARTED_S
from mainstem.sim.txn_workload import fetch_committed_records
from mainstem.sim.workloads import client_ms

if TYPE_CHECKING:
    from mainstem.sim.world import World

SHARE: Final = 0.4
TOPIC: Final = "copied"
GROUP: Final = "copiers"
_SOURCE: Final = "log"
_PARTITIONS: Final = 2
_COPIERS: Final = 2
_NAPS: Final = 0.2
_REGRETS: Final = 0.1
_ATTEMPTS: Final = 100

REACHED: Final = (
    "own copier committed",
    "own copier began anew",
    "copy checked",
)
"""What each campaign must have counted of all this."""


def comes(world: "World") -> bool:
    """Whether a run has them. Drawn apart, so that the others are as they were. Positions must not expire."""
    is_fit = world.is_transactional and world.durable and not world.is_for_users
    return is_fit and not world.tuning.expires_offsets and Random(f"{world.seed}:copiers").random() < SHARE


def topics(world: "World", tiny: dict[str, str]) -> dict[str, tuple[int, dict[str, str]]]:
    return {TOPIC: (_PARTITIONS, tiny | {"retention.ms": "-1"})} if comes(world) else {}


def add_copiers(world: "World") -> None:
    if not comes(world):
        return
    for index in range(_COPIERS):
        name = f"own-copier{index}"
        if world.txn_shape.level < TV2:
            world.network.in_time.add(name)
        world.add_client(name, lambda client, rng: OwnCopier(world, client, rng).run())


class _RegretError(Exception):
    """A transaction is aborted of which all has been sent."""


class OwnCopier:
    def __init__(self, world: "World", client: SimClient, rng: Random) -> None:
        self.world = world
        self.name = client.name
        self.rng = rng
        self._number = 0

    async def run(self) -> None:
        while not self.world.is_stopping:
            try:
                await self._work()
            except (KafkaError, _RegretError) as error:
                self.world.count("own copier began anew")
                self.world.trace("own copier failed", self.name, type(error).__name__)
            await asyncio.sleep(self.rng.random() * RESTARTED_S)

    async def _work(self) -> None:
        producer = AsyncProducer(
            rng=Random(self.rng.random()),
            clock=lambda: client_ms(self.world),
            transactional_id=self.name.rstrip("'"),
            transaction_timeout_ms=3000,
            max_block_ms=5000,
            **QUICK,
        )
        consumer = AsyncConsumer(
            rng=Random(self.rng.random()),
            clock=lambda: client_ms(self.world),
            group_id=GROUP,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            enable_auto_commit=False,
            session_timeout_ms=1500,
            heartbeat_interval_ms=300,
            fetch_max_wait_ms=100,
            default_api_timeout_ms=3000,
            **QUICK,
        )
        try:
            await producer.start()
            await producer.init_transactions()
            await consumer.start()
            await consumer.subscribe([_SOURCE])
            while not self.world.is_stopping:
                await self._copy(producer, consumer)
        finally:
            for each in (consumer, producer):
                with contextlib.suppress(KafkaError):
                    await each.close(timeout_ms=2000)

    async def _copy(self, producer: AsyncProducer, consumer: AsyncConsumer) -> None:
        records = await consumer.poll(200, max_records=self.rng.choice((1, 5, 100)))
        if not records:
            return
        position: dict[TopicPartition, OffsetAndMetadata] = {}
        async with producer.transaction() as transaction:
            for record in records:
                place = (TOPIC, self.rng.randrange(_PARTITIONS))
                value = self._value(place, (record.topic, record.partition), record.offset)
                await producer.send(TOPIC, value, partition=place[1])
                position[TopicPartition(record.topic, record.partition)] = OffsetAndMetadata(
                    record.offset + 1, "", record.leader_epoch
                )
                if self.rng.random() < _NAPS:
                    await asyncio.sleep(self.rng.random() * 0.1)
            await transaction.send_offsets(position, consumer.group_metadata())
            if self.rng.random() < _REGRETS:
                raise _RegretError
        self.world.count("own copier committed")

    def _value(self, to: Place, of: Place, offset: int) -> bytes:
        """One that no other attempt has, and which says what it is of."""
        self._number += 1
        value = f"{self.name}.{self._number}:{of[0]}:{of[1]}:{offset}".encode()
        self.world.ledger.sent(Send(to, value, None, self.name, self._number, ordered=False))
        return value


async def check_copies(world: "World", client: SimClient) -> None:
    """When nothing is open any more."""
    is_same_disk = not (world.counts["X6 older disk"] or world.counts["X7 empty disk"])
    if not comes(world) or not is_same_disk:
        return
    copied: dict[tuple[Place, int], bytes] = {}
    for index in range(_PARTITIONS):
        for value in await _read(world, client, (TOPIC, index)):
            _, topic, partition, offset = value.decode().split(":")
            of = ((topic, int(partition)), int(offset))
            if of in copied and of[0] not in world.ledger.damaged:
                raise Violation("T5 a record is copied once", f"{of} has the copies {copied[of]!r} and {value!r}")
            copied[of] = value
    for place in ((_SOURCE, 0), (_SOURCE, 1)):
        if place not in world.ledger.damaged:
            position = await _position(world, client, place)
            _check(world, place, {offset for whose, offset in copied if whose == place}, position)


def _check(world: "World", place: Place, copied: set[int], position: int) -> None:
    written = world.written.find(place)
    assert written is not None
    there = {offset for offset, _ in committed_between(written.batches, 0, max(position, 0))}
    if copied != there:
        raise Violation(
            "T9 a position goes with its transaction",
            f"{GROUP} is at {position} of {place}: of {sorted(there - copied)[:5]} before that there is no copy, and "
            f"of {sorted(copied - there)[:5]} there is one",
        )
    world.counts["copy checked"] += len(copied)


async def _read(world: "World", client: SimClient, place: Place) -> list[bytes]:
    """What a reader of committed records is given of all that is there, which is what the markers say."""
    values: list[bytes] = []
    offset = 0
    broker = world.process.broker
    assert broker is not None
    end = broker.partitions.find(*place).last_stable_offset
    while offset < end:
        try:
            await client.connected()
            life = client.life
            code, records, after = await fetch_committed_records(client, place, offset)
        except NoAnswer:
            continue
        check_given(world, place, offset, after, records, life, "")
        if code is not ErrorCode.NONE or after == offset:
            break
        values += [value for _, value in records]
        offset = after
    return values


async def _position(world: "World", client: SimClient, place: Place) -> int:
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(NoAnswer):
            await find_coordinator(client, GROUP)
            found = await fetch_committed(client, GROUP, *place)
            if found is not None:
                return found
        await asyncio.sleep(0.1)
    raise Violation("G9 the coordinator answers", f"the offsets of {GROUP} cannot be read")
