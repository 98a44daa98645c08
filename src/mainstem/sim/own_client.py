"""Our own client as a workload: its producer and its consumer on a simulated loop, with what they promise checked.

Both are the product's code, told the time and given randomness by the world. What they say is noted in the ledgers as
that of raw requests is. Which life of the broker an answer came from they do not tell; where that matters, because a
power loss may have taken what was acknowledged, only answers that cannot be of an earlier life are noted.
"""

import asyncio
import contextlib
from random import Random
from typing import TYPE_CHECKING, Any, Final

from mainstem.client.consumer import AsyncConsumer
from mainstem.client.errors import KafkaError
from mainstem.client.listeners import RebalanceListener
from mainstem.client.producer import AsyncProducer
from mainstem.client.types import OffsetAndMetadata, RecordMetadata, TopicPartition
from mainstem.protocol.errors import ErrorCode
from mainstem.sim.client import SimClient
from mainstem.sim.group_members import leader_epoch_of
from mainstem.sim.ledger import Place, Send, Violation
from mainstem.sim.workloads import client_ms

if TYPE_CHECKING:
    from mainstem.sim.world import World

QUICK: dict[str, Any] = {
    "bootstrap_servers": "broker:9092",
    "request_timeout_ms": 1500,
    "reconnect_backoff_ms": 20,
    "reconnect_backoff_max_ms": 200,
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 200,
}
"""Time is short in a run: nobody waits as long as in real life."""

RESTARTED_S: Final = 0.4
"""Within which time somebody starts a consumer anew that has failed: one that fails at once would do nothing else."""

DELIVERY_TIMEOUT_MS: Final = 45_000
"""A log that is found damaged stays offline, and the producer tries until this is over, as it should. It is less than a
run waits for its clients at the end, by more than they pause."""


class OwnProducer:
    """Sends a few records at a time, waits for some of them, and notes where they went."""

    def __init__(self, world: "World", client: SimClient, rng: Random, topic: str, partitions: int) -> None:
        self.world = world
        self.name = client.name
        self.rng = rng
        self.topic = topic
        self.partitions = partitions
        self._number = 0

    async def run(self) -> None:
        async with AsyncProducer(
            rng=Random(self.rng.random()),
            clock=lambda: client_ms(self.world),
            linger_ms=self.rng.choice((0, 5, 50)),
            batch_size=self.rng.choice((200, 16_384)),
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            compression_type=self.rng.choice(("none", "gzip", "lz4")),
            **QUICK,
        ) as producer:
            while not self.world.is_stopping:
                await asyncio.gather(*(self._send(producer) for _ in range(self.rng.choice((1, 3, 10)))))
                await asyncio.sleep(self.rng.random() ** 2 * self.world.pace_s)

    async def _send(self, producer: AsyncProducer) -> None:
        self._number += 1
        place = (self.topic, self.rng.randrange(self.partitions))
        value = f"{self.name}.{self._number}.".encode() + b"y" * self.rng.choice((0, 0, 100))
        # Of one partition, that is: each is asked about alone.
        self.world.ledger.sent(Send(place, value, None, self.name, self._number, ordered=True, is_sent_anew=True))
        life = self.world.process.life
        try:
            metadata: RecordMetadata = await (await producer.send(place[0], value, partition=place[1]))
        except KafkaError as error:
            self.world.count("own producer failed")
            # What is lost of one partition may cost the producer its epoch, and so what it has under way to others.
            sound = all(self.world.is_sound((self.topic, each)) for each in range(self.partitions))
            if sound and not self.world.appended_once.has_forgotten(self.topic):
                raise Violation("T1 our producer delivers", f"{self.name}: {type(error).__name__}: {error}") from error
            return
        if metadata.offset >= 0 and (self.world.durable or life == self.world.process.life):
            self.world.count("own producer acknowledged")
            self.world.ledger.acked(value, metadata.offset, self.world.process.life)
            self.world.trace("acked", self.name, f"{place[0]}-{place[1]}", metadata.offset)


class OwnConsumer:
    """A member of a group: reads, commits now and then, and comes and goes."""

    def __init__(self, world: "World", client: SimClient, rng: Random, group: str, topic: str) -> None:
        self.world = world
        self.name = client.name
        self.rng = rng
        self.group = group
        self.topic = topic
        self._next: dict[Place, int] = {}

    async def run(self) -> None:
        while not self.world.is_stopping:
            consumer = AsyncConsumer(
                rng=Random(self.rng.random()),
                clock=lambda: client_ms(self.world),
                group_id=self.group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                session_timeout_ms=1500,
                heartbeat_interval_ms=300,
                max_poll_interval_ms=4000,
                fetch_max_wait_ms=100,
                default_api_timeout_ms=3000,
                partition_assignment_strategy=[self.rng.choice(("range", "cooperative-sticky"))],
                **QUICK,
            )
            self._next.clear()
            try:
                await consumer.start()
                await consumer.subscribe([self.topic], listener=_Forgets(self._next))
                await self._consume(consumer)
            except KafkaError as error:
                self.world.count("own consumer failed")
                self.world.trace("own consumer failed", self.name, type(error).__name__)
            finally:
                with contextlib.suppress(KafkaError):
                    await consumer.close(timeout_ms=2000)
            await asyncio.sleep(self.rng.random() * RESTARTED_S)

    async def _consume(self, consumer: AsyncConsumer) -> None:
        while not self.world.is_stopping:
            for record in await consumer.poll(200, max_records=self.rng.choice((1, 20, 500))):
                place = (record.topic, record.partition)
                self._note(place, record.offset, record.value)
            if self._next and self.rng.random() < 0.3:
                await self._commit(consumer)
            if self.rng.random() < 0.02:
                return  # leaves, and joins anew
            await asyncio.sleep(self.rng.random() * 0.2)

    def _note(self, place: Place, offset: int, value: bytes | None) -> None:
        assert value is not None
        expected = self._next.get(place)
        self._next[place] = offset + 1
        self.world.count("own consumer read")
        if value not in self.world.ledger.sends:
            raise Violation("phantom", f"{place} has {value!r} at {offset}, which nobody sent")
        if self.world.is_sound(place):
            self.world.ledger.read(place, offset, value, self.world.process.life)
            if expected is not None and offset != expected:
                what = "poll-skip" if offset > expected else "nonmonotonic-poll"
                raise Violation(what, f"{self.name} at {expected} of {place} was given {offset}")

    async def _commit(self, consumer: AsyncConsumer) -> None:
        life = self.world.process.life
        commits = [
            self.world.groups.committing(self.group, -1, self.name, place, offset, life)
            for place, offset in self._next.items()
        ]
        await consumer.commit(
            {
                TopicPartition(*each.place): OffsetAndMetadata(each.offset, each.tag, leader_epoch_of(each.offset))
                for each in commits
            }
        )
        for commit in commits:
            self.world.groups.committed(commit, ErrorCode.NONE)
        self.world.count("own consumer committed")


class _Forgets(RebalanceListener):
    """Where a partition was read to is of no interest once it is another's."""

    def __init__(self, positions: dict[Place, int]) -> None:
        self._positions = positions

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.on_partitions_revoked(partitions)

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self._positions.pop((each.topic, each.partition), None)
