"""Our own client as a workload: its producer and its consumer on a simulated loop, with what they promise checked.

Both are the product's code, told the time and given randomness by the world. What they say is noted in the ledgers as
that of raw requests is. Which life of the broker an answer came from they do not tell; where that matters, because a
power loss may have taken what was acknowledged, only answers that cannot be of an earlier life are noted.
"""

import asyncio
import contextlib
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mainstem.client.consumer import AsyncConsumer
from mainstem.client.errors import KafkaError, KafkaTimeoutError
from mainstem.client.listeners import RebalanceListener
from mainstem.client.producer import AsyncProducer
from mainstem.client.types import OffsetAndMetadata, RecordMetadata, TopicPartition
from mainstem.protocol.errors import ErrorCode
from mainstem.sim.client import OFFSET_IS_TOLD, SimClient
from mainstem.sim.committed import committed_between
from mainstem.sim.draws import squared
from mainstem.sim.ledger import Place, Send, Violation
from mainstem.sim.workloads import client_ms
from mainstem.sim.written import OFFSETS_TOPIC

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

HASTE_SHARE: Final = 0.5
SHORT_MS: Final = (700, 1000, 2000)
"""Within which time some producers give up: what they know nothing of may be there, once and in its place."""

NOT_SENT: Final = "it was not sent"
"""What our client says of a batch that nobody can have."""

HASTY_PACE_S: Final = 0.3
ROUNDS_MAX: Final = 8
"""How many rounds of records a producer that gives up has under way at most."""

AUTO_COMMIT_SHARE: Final = 0.3
STATIC_SHARE: Final = 0.3

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
        self._haste = haste = Random(f"{world.seed}:haste:{client.name}")
        self._delivery_ms = haste.choice(SHORT_MS) if haste.random() < HASTE_SHARE else DELIVERY_TIMEOUT_MS
        # Where little fits into a message some batches are larger, which the broker refuses; no segment is smaller.
        self._segment_bytes = int(world.topics[topic][1]["internal.segment.bytes"])
        self._is_bulky = "max.message.bytes" in world.topics[topic][1]

    @property
    def is_hasty(self) -> bool:
        """Whether it gives up while things go wrong, not only what stays wrong."""
        return self._delivery_ms < DELIVERY_TIMEOUT_MS

    async def run(self) -> None:
        counts = (1, 3, 10)
        options: dict[str, Any] = {
            "linger_ms": self.rng.choice((0, 5, 50)),
            "batch_size": min(self.rng.choice((200, 16_384)), self._segment_bytes - 100),
            # While they wait batches grow up to this, and one that is larger than a segment is refused for good.
            "max_request_size": self._segment_bytes - 100,
            "compression_type": self.rng.choice(("none", "gzip", "lz4")),
            "delivery_timeout_ms": self._delivery_ms,
        }
        if self._is_bulky:
            counts = (1, 10, 20)
            options |= {"linger_ms": 50, "compression_type": "none"}
        if self.is_hasty:
            # With as long for a request as for all, what is given up is in flight; with less it has been sent again.
            longest_ms = self._delivery_ms - options["linger_ms"]
            options["request_timeout_ms"] = self._haste.choice((300, min(1500, longest_ms)))
        async with AsyncProducer(
            rng=Random(self.rng.random()), clock=lambda: client_ms(self.world), **(QUICK | options)
        ) as producer:
            under_way: list[asyncio.Future[Any]] = []
            while not self.world.is_stopping:
                sending = asyncio.gather(*(self._send(producer) for _ in range(self.rng.choice(counts))))
                if self.is_hasty:
                    # It goes on meanwhile: behind what it gives up there is what it does not, which may be there too.
                    under_way = [each for each in under_way if not each.done() or each.result() is None]
                    under_way.append(sending)
                if not self.is_hasty or len(under_way) > ROUNDS_MAX:
                    await sending
                if producer.accumulator.batch_limit(self.topic) < options["max_request_size"]:
                    self.world.count("own producer split a batch")
                pace_s = HASTY_PACE_S if self.is_hasty else self.world.pace_s
                await asyncio.sleep(squared(self.rng) * pace_s)
            await asyncio.gather(*under_way)

    async def _send(self, producer: AsyncProducer) -> None:
        self._number += 1
        place = (self.topic, self.rng.randrange(self.partitions))
        value = f"{self.name}.{self._number}.".encode() + b"y" * self.rng.choice((0, 0, 100))
        if self._is_bulky:
            value += b"z" * 200
        # Of one partition, that is: each is asked about alone.
        self.world.ledger.sent(Send(place, value, None, self.name, self._number, ordered=True, is_sent_anew=True))
        life = self.world.process.life
        try:
            metadata: RecordMetadata = await (await producer.send(place[0], value, partition=place[1]))
        except KafkaError as error:
            self.world.count("own producer failed")
            if self.is_hasty and isinstance(error, KafkaTimeoutError):
                self.world.count("own producer gave up")
                if NOT_SENT not in str(error):
                    self.world.count("own producer gave up what was sent")
                return
            # What is lost of one partition may cost the producer its epoch, and so what it has under way to others.
            sound = all(self.world.is_sound((self.topic, each)) for each in range(self.partitions))
            if sound and not self.world.appended_once.has_forgotten(self.topic):
                raise Violation("T1 our producer delivers", f"{self.name}: {type(error).__name__}: {error}") from error
            return
        if metadata.offset < 0:
            raise Violation(OFFSET_IS_TOLD, f"{self.name} was told no offset of {value!r} in {place}")
        if self.world.durable or life == self.world.process.life:
            self.world.count("own producer acknowledged")
            self.world.ledger.acked(value, metadata.offset, self.world.process.life)
            self.world.trace("acked", self.name, f"{place[0]}-{place[1]}", metadata.offset)


class OwnGroup:
    """What the members of one group have in common: what they read, and how far any of them was given it."""

    def __init__(self, name: str, topic: str, *, is_committed: bool) -> None:
        self.name = name
        self.topic = topic
        self.is_committed = is_committed
        """Whether its topic has transactions, of which it reads what is committed."""
        self.given_to: dict[Place, int] = {}


class OwnConsumer:
    """A member of a group: reads, commits now and then, and comes and goes."""

    def __init__(self, world: "World", client: SimClient, rng: Random, group: OwnGroup) -> None:
        self.world = world
        self.name = client.name
        self.rng = rng
        self.group = group
        self._next: dict[Place, int] = {}
        self._epochs: dict[Place, int] = {}
        """Of each partition the leader epoch of the last record: what a log that was cut is told by (KIP-320)."""
        self._starts: dict[Place, _Start] = {}
        """Of the partitions that it was given and has read nothing of yet."""
        ways = Random(f"{world.seed}:ways:{client.name.rstrip(chr(39))}")
        self._commits_by_itself = ways.random() < AUTO_COMMIT_SHARE
        # Whoever takes up a dead consumer's work is the same static member.
        self._instance = client.name.rstrip("'") if ways.random() < STATIC_SHARE else None
        self._leaves = ways.choice((0.02, 0.1, 0.2))

    async def run(self) -> None:
        while not self.world.is_stopping:
            consumer = AsyncConsumer(
                rng=Random(self.rng.random()),
                clock=lambda: client_ms(self.world),
                group_id=self.group.name,
                group_instance_id=self._instance,
                auto_offset_reset="earliest",
                isolation_level="read_committed" if self.group.is_committed else "read_uncommitted",
                enable_auto_commit=self._commits_by_itself,
                auto_commit_interval_ms=300,
                session_timeout_ms=1500,
                heartbeat_interval_ms=300,
                max_poll_interval_ms=4000,
                fetch_max_wait_ms=100,
                default_api_timeout_ms=3000,
                partition_assignment_strategy=[self.rng.choice(("range", "cooperative-sticky"))],
                **QUICK,
            )
            self._next.clear()
            self._starts.clear()
            try:
                await consumer.start()
                await consumer.subscribe([self.group.topic], listener=_Notes(self))
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
                self._epochs[place] = record.leader_epoch
            if self._next and not self._commits_by_itself and self.rng.random() < 0.4:
                await self._commit(consumer)
            if self.rng.random() < self._leaves:
                return  # leaves, and joins anew
            await asyncio.sleep(self.rng.random() * 0.2)

    # What it is given

    def assigned(self, place: Place) -> None:
        """It begins where the group is, as it asks for that from now on."""
        self._next.pop(place, None)
        self._starts[place] = _Start(len(self.world.groups.course(self.group.name, place)) - 1, self._end(place))

    def revoked(self, place: Place) -> None:
        """Where it was read to is of no interest once it is another's."""
        self._next.pop(place, None)
        self._starts.pop(place, None)

    def _note(self, place: Place, offset: int, value: bytes | None) -> None:
        assert value is not None
        start = self._starts.pop(place, None)
        expected = self._next.get(place)
        self._next[place] = offset + 1
        self.group.given_to[place] = max(self.group.given_to.get(place, 0), offset + 1)
        self.world.count("own consumer read")
        if value not in self.world.ledger.sends:
            raise Violation("phantom", f"{place} has {value!r} at {offset}, which nobody sent")
        if self.group.is_committed:
            self.world.txns.seen(place, offset, value)
        if not self.world.is_sound(place):
            return
        self.world.ledger.read(place, offset, value, self.world.process.life)
        if expected is not None:
            first = self._first_from(place, expected, offset)
            if offset != first:
                what = "poll-skip" if first is not None and offset > first else "nonmonotonic-poll"
                raise Violation(what, f"{self.name} at {expected} of {place} was given {offset}")
        elif start is not None:
            self._check_start(place, start, offset)

    def _first_from(self, place: Place, position: int, given: int) -> int | None:
        """The first record that it may be given from a position on, if that is not past the one that it was given."""
        if not self.group.is_committed:
            return position if position <= given else None
        written = self.world.written.find(place)
        if written is None or not written.is_known:
            return given
        found = committed_between(written.batches, position, given + 1)
        return found[0][0] if found else None

    def _check_start(self, place: Place, start: "_Start", offset: int) -> None:
        """P10: who takes over a partition begins where its group is; at the beginning, where that is nowhere.

        A position past the end, which the log of an older disk may have, is none. One of a term that ended before it
        was of records that are gone, and the log goes on where that term ended (KIP-320).
        """
        if any(topic == OFFSETS_TOPIC for topic, _ in self.world.ledger.damaged):
            return
        told = self.world.groups.course(self.group.name, place)[start.since :]
        where = f"{self.group.name} was at {[each.offset for each in told]}"
        positions = [max(each.offset, 0) for each in told]
        if any(each.offset > start.log_end for each in told):
            positions.append(0)
        ends = [(each.offset, self._end_of_term(place, each.leader_epoch)) for each in told]
        positions += [end for offset, end in ends if end < offset]
        firsts = [self._first_from(place, each, offset) for each in positions]
        if offset not in firsts:
            # Before all of them is what was read before; after one of them is what nobody has read.
            is_skip = all(first is not None and first < offset for first in firsts)
            raise Violation(
                "poll-skip" if is_skip else "nonmonotonic-poll",
                f"{self.name} was given {offset} of {place} first, and {where}",
            )
        read_to = self.group.given_to[place]
        if min(positions) > read_to:
            raise Violation(
                "poll-skip", f"{self.group.name} is at {positions} of {place}, and has read up to {read_to}"
            )
        if told[0].offset > 0:
            self.world.count("own consumer began where its group was")

    def _end(self, place: Place) -> int:
        written = self.world.written.find(place)
        return 0 if written is None else written.end

    def _end_of_term(self, place: Place, leader_epoch: int) -> int:
        """Where the first batch of a later one begins; the end of the log, where there is none."""
        written = self.world.written.find(place)
        batches = [] if written is None else written.batches
        later = (batch.base_offset for batch in batches if batch.leader_epoch > leader_epoch)
        return next(later, self._end(place))

    async def _commit(self, consumer: AsyncConsumer) -> None:
        life = self.world.process.life
        commits = [
            self.world.groups.committing(self.group.name, -1, self.name, place, offset, life)
            for place, offset in self._next.items()
        ]
        await consumer.commit(
            {
                TopicPartition(*each.place): OffsetAndMetadata(each.offset, each.tag, self._epochs[each.place])
                for each in commits
            }
        )
        for commit in commits:
            self.world.groups.committed(commit, ErrorCode.NONE)
        self.world.count("own consumer committed")


class _Start(NamedTuple):
    """What was known of a partition when it was assigned."""

    since: int
    """Which of all offsets that the group had there was the last."""
    log_end: int


class _Notes(RebalanceListener):
    """Tells a consumer which partitions come and go."""

    def __init__(self, consumer: OwnConsumer) -> None:
        self._consumer = consumer

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self._consumer.assigned((each.topic, each.partition))

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self._consumer.revoked((each.topic, each.partition))
