"""What clients do in a run: produce, read, commit, administer. Each notes in the ledger what it did and saw.

A request that was not answered may have been carried out: an idempotent producer sends it again with the same sequence
until it knows; a plain one never does, so that no value can rightly be there twice.
"""

import asyncio
import contextlib
from random import Random
from typing import TYPE_CHECKING, Final

from mainstem.protocol.batch import iterate_batches
from mainstem.protocol.builder import BatchBuilder
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from mainstem.protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from mainstem.protocol.produce import ProducePartitionResponse
from mainstem.protocol.records import Record, iterate_records
from mainstem.sim.client import NoAnswer, NotSent, SimClient
from mainstem.sim.draws import squared
from mainstem.sim.ledger import Place, Send, Violation
from mainstem.sim.loop import EPOCH_MS

if TYPE_CHECKING:
    from mainstem.sim.world import World

RETRIABLE: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }
)
SEQUENCE_ERRORS: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)


PRODUCE_VERSION: Final = 9
"""The one of those that have no transactions."""

SEQUENCE_END: Final = 1 << 31
"""Sequences are below this, and begin at 0 again."""

COMPACTED: Final = frozenset({"keyed", "txnkeyed"})
"""The topics that are."""

UNANSWERED_S: Final = 0.15
"""How long a reader that was not answered waits before it asks again."""

RETRIES_SLOW_DOWN: Final = 5
"""After so many attempts a producer's pauses between them no longer grow."""

REMEMBERED: Final = 5
"""Of a producer's batches on a partition, how many of the last a broker knows again, also after a restart."""

TOMBSTONE_ID: Final = "id"
"""The header that tells one tombstone from another: it has no value that could."""

DRESSED_SHARE: Final = 0.3
"""Of the producers, how many send keys and headers that nobody asks for."""

Records = list[tuple[int, bytes | None, bytes]]
"""Offset, key, and what the ledger knows a record by: its value, or a tombstone's header."""


def client_ms(world: "World") -> int:
    """The right time; the broker's clock may show another."""
    return EPOCH_MS + int(world.scheduler.now * 1000)


def identity(record: Record) -> bytes:
    if record.value is not None:
        return record.value
    return next((value or b"" for name, value in record.headers if name == TOMBSTONE_ID), b"")


class Batch:
    """Records on their way to one partition."""

    __slots__ = ("data", "first_life", "sends", "sequence")

    def __init__(self, data: bytes, sends: list[Send], sequence: int) -> None:
        self.data = data
        self.sends = sends
        self.sequence = sequence
        self.first_life = -1
        """The life of the broker that it was first sent to."""


class Producer:
    def __init__(
        self, world: "World", client: SimClient, rng: Random, topic: str, partitions: int, *, idempotent: bool
    ) -> None:
        self.world = world
        self.client = client
        self.rng = rng
        self.topic = topic
        self.partitions = partitions
        self.idempotent = idempotent
        self._producer_id = -1
        self._epoch = -1
        self._begun = -1
        """How many producer ids it was given before this one."""
        self._sequences: dict[int, int] = {}
        self._number = 0
        self._keys = rng.choice((3, 6, 60))
        self._tombstones = rng.choice((0.0, 0.2, 0.5))
        self._skew_ms = rng.choice((0, 0, 0, -30_000, 2_000))
        """Its own clock may be wrong (K1); later than the broker's by more than a little is refused."""
        self._times = Random(f"{world.seed}:times:{client.name}")
        self._spread_ms = self._times.choice((1, 1, 300))
        """By how much the times of the records in a batch differ, in whatever order."""
        self._odd = Random(f"{world.seed}:odd:{client.name}")
        self._first_sequence = SEQUENCE_END - self._odd.randrange(1, 40) if self._odd.random() < 0.25 else 0
        """Some begin where sequences are about to begin anew (C6, KAFKA-7692)."""
        self._dress = Random(f"{world.seed}:dress:{client.name}")
        self._is_dressed = self._dress.random() < DRESSED_SHARE
        """Whether its records have keys and headers that nobody asks for."""
        self._packs = Random(f"{world.seed}:packs:{client.name}")
        self._settled: dict[int, list[Batch]] = {}
        """By partition, the last batches that the broker has acknowledged: as many as it must know again."""

    async def run(self) -> None:
        while not self.world.is_stopping:
            if self.idempotent and self._producer_id < 0:
                await self._init()
                continue
            partition = self.rng.randrange(self.partitions)
            if self.idempotent:
                await self._produce_until_known(partition)
                if self._producer_id >= 0 and partition in self._settled and self._odd.random() < 0.04:
                    await self._storm(partition, self._odd.choice(self._settled[partition]))
            else:
                await self._produce_once(partition)
            await asyncio.sleep(squared(self.rng) * self.world.pace_s)
            if self.idempotent and self.world.producers_expire and self._odd.random() < 0.15:
                await asyncio.sleep(self.world.producer_expiration_ms / 1000 * (1 + self._odd.random()))

    async def _init(self) -> None:
        answer: InitProducerIdResponse | None = None
        with contextlib.suppress(NoAnswer):
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            answer = await self.client.ask(request, 4, InitProducerIdResponse)
        if answer is not None and answer.error_code == ErrorCode.NONE:
            self.world.given_producer_id(answer.producer_id, answer.producer_epoch)
            self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
            self._begun += 1
            self._sequences.clear()
            self._settled.clear()
        else:
            await asyncio.sleep(0.1)

    def _batch(self, partition: int) -> Batch:
        count = 1 + int(squared(self.rng) * 4)
        sequence = self._sequences.get(partition, self._first_sequence)
        codec = self.world.lines.codec_of(self.topic, self._packs)
        builder = BatchBuilder(codec)
        if self.idempotent:
            builder = BatchBuilder(
                codec, producer_id=self._producer_id, producer_epoch=self._epoch, base_sequence=sequence
            )
        sends = []
        for _ in range(count):
            self._number += 1
            padding = self.rng.choice((0, 0, 20, 200))
            value = f"{self.client.name}.{self._number}.".encode() + b"x" * padding
            send = Send(
                (self.topic, partition), value, None, self.client.name, self._number, self.idempotent, begun=self._begun
            )
            now_ms = client_ms(self.world) + self._skew_ms - self._times.randrange(self._spread_ms)
            if self.world.is_keyed(self.topic):
                send.key = f"k{self.rng.randrange(self._keys)}".encode()
                send.is_tombstone = self.rng.random() < self._tombstones
            send.headers = self._headers(send)
            send.timestamp_ms = now_ms
            if send.is_tombstone:
                self.world.count("tombstone sent")
                send.headers.append((TOMBSTONE_ID, value))
            builder.append(now_ms, send.key, None if send.is_tombstone else value, send.headers)
            self.world.ledger.sent(send)
            sends.append(send)
        self._sequences[partition] = (sequence + count) % SEQUENCE_END
        if self._sequences[partition] < sequence:
            self.world.count("C6 sequences began anew")
        return Batch(builder.build(), sends, sequence)

    def _headers(self, send: Send) -> list[tuple[str, bytes | None]]:
        """Those of a record, and where nothing is made of keys one of those, too."""
        if not self._is_dressed:
            return []
        if send.key is None and self._dress.random() < 0.7:
            send.key = b"key" * self._dress.randrange(4)
        return [
            (f"header {at}", self._dress.choice((None, b"", send.value[:8]))) for at in range(self._dress.randrange(3))
        ]

    async def _send(self, partition: int, batch: Batch, acks: int = -1) -> "asyncio.Future[ProducePartitionResponse]":
        return await self.client.send_batch((self.topic, partition), batch.data, PRODUCE_VERSION, acks=acks)

    async def _produce_once(self, partition: int) -> None:
        batch = self._batch(partition)
        acks = self.rng.choice((-1, -1, 1, 0))
        try:
            sent = await self._send(partition, batch, acks)
            life = self.client.life
            if acks == 0:
                self.world.count("acks=0")
                return
            answer = await self.client.answer(sent, ProducePartitionResponse)
        except NoAnswer:
            return
        self._note(batch, answer, life, acks)

    async def _produce_until_known(self, partition: int) -> None:
        """Up to five batches in flight; those without an answer go again, in order, as they were."""
        waiting = [self._batch(partition) for _ in range(self.rng.choice((1, 1, 2, 3, 5)))]
        attempts = 0
        while waiting:
            attempts += 1
            if attempts > 1:
                self.world.count("batch sent again")
            if self.world.is_healed and (self.topic, partition) in self.world.ledger.damaged:
                return
            if attempts > 400 and self.world.is_healed:
                raise Violation("P12 produce is answered", f"{self.client.name} cannot produce to {self.topic}")
            if await self._attempt(partition, waiting):
                return
            if waiting:
                await asyncio.sleep(self.rng.random() * min(attempts, RETRIES_SLOW_DOWN) * 0.1)

    async def _attempt(self, partition: int, waiting: list[Batch]) -> bool:
        """Sends all that wait, takes those out that are settled; whether the producer must begin anew."""
        sent = []
        try:
            for batch in waiting:
                sent.append(await self._send(partition, batch))
                if batch.first_life < 0:
                    batch.first_life = self.client.life
        except NotSent:
            pass
        life = self.client.life
        for future in sent:
            try:
                answer = await self.client.answer(future, ProducePartitionResponse)
            except NoAnswer:
                return False
            batch = waiting[0]
            code = ErrorCode(answer.error_code)
            if code in RETRIABLE:
                # Those behind it in the pipeline are out of order now: all go again. Their answers tell nothing new.
                self.client.close()
                if partition not in self._settled and len(sent) > 1:
                    # One of those may be the first that a partition sees which is made just now, whatever its sequence.
                    self.world.count("producer began anew beside its topic")
                    self._producer_id = -1
                    return True
                return False
            if code in SEQUENCE_ERRORS:
                return self._sequence_lost(partition, batch, code)
            self._note(batch, answer, life, -1)
            if code != ErrorCode.NONE:
                self._producer_id = -1  # the sequence has a hole now
                return True
            settled = self._settled.setdefault(partition, [])
            settled.append(batch)
            del settled[:-REMEMBERED]
            waiting.pop(0)
        return False

    async def _storm(self, partition: int, batch: Batch) -> None:
        """C1: one of the last batches again and again, though it was acknowledged. It has the offset it had (T1)."""
        self.world.count("C1 retry storm")
        try:
            sent = [await self._send(partition, batch) for _ in range(3)]
            life = self.client.life
            for future in sent:
                answer = await self.client.answer(future, ProducePartitionResponse)
                code = ErrorCode(answer.error_code)
                if code in SEQUENCE_ERRORS:
                    self._sequence_lost(partition, batch, code)
                    return
                if code == ErrorCode.NONE:
                    self._note(batch, answer, life, -1)
        except NoAnswer:
            pass

    def _came_before_its_topic(self, place: Place, batch: Batch) -> bool:
        """Whether its topic was made anew, after an empty disk (X7), between this batch and one that was sent later.

        Who is not known may begin anywhere, as in Kafka: the second was taken, and the first is out of order then.
        """
        written = self.world.written.find(place)
        if written is None or not self.world.counts["X7 empty disk"]:
            return False
        own = [each for each in written.batches if each.producer_id == self._producer_id]
        return bool(own) and own[0].producer_epoch == self._epoch and own[0].base_sequence > batch.sequence

    def _sequence_lost(self, partition: int, batch: Batch, code: ErrorCode) -> bool:
        """The broker knows another sequence: rightly so only if it lost some of it with its power.

        Or if it was started anew since, and this batch, which it had, has been removed: then it knows the last of a
        producer's batches, and not that this one was there before. Or if it has forgotten the producer meanwhile.
        """
        world = self.world
        place = (self.topic, partition)
        key = (self._producer_id, self._epoch, batch.sequence)
        if place in world.ledger.damaged or world.written.has_lost(place, self._producer_id):
            self.world.count("producer began anew after a loss")
        elif batch.first_life < self.client.life and world.written.is_removed(place, *key):
            world.count("retry of a batch that is gone")
        elif world.appended_once.may_be_out_of_order(place, self._producer_id, batch.sequence):
            world.count("C5 out of order after expiry")
        elif self._came_before_its_topic(place, batch):
            world.count("batch that came before its topic")
        else:
            raise Violation(
                "T1 a batch in order is taken",
                f"{self.client.name} sent sequence {batch.sequence} to {self.topic}-{partition}: {code.name}",
            )
        self._producer_id = -1
        return True

    def _note(self, batch: Batch, found: ProducePartitionResponse, life: int, acks: int) -> None:
        if found.error_code != ErrorCode.NONE:
            self.world.count(f"refused: {ErrorCode(found.error_code).name}")
            return
        # With one replica acks=1 says as much as acks=all: the record is where this broker keeps what it acknowledges.
        for index, send in enumerate(batch.sends):
            self.world.ledger.acked(send.value, found.base_offset + index, life)
        place = batch.sends[0].place
        last = found.base_offset + len(batch.sends) - 1
        if acks == 1:
            self.world.count("acknowledged with acks=1")
        if acks == -1 or self.world.ledger.is_durable(place):
            self.world.watch.acknowledged.acked(place, last, life)
        self.world.trace("acked", self.client.name, f"{self.topic}-{place[1]}", found.base_offset)


async def fetch(
    client: SimClient, place: Place, offset: int, *, max_wait_ms: int = 100, max_bytes: int = 1 << 20
) -> tuple[ErrorCode, int, int, Records, int]:
    """Error, log start, high watermark, the records from `offset` on, and where to go on: a batch may be empty."""
    fetched = await client.fetch(place, offset, max_wait_ms=max_wait_ms, max_bytes=max_bytes)
    found, data = fetched.partition, fetched.data
    records: Records = []
    next_offset = offset
    try:
        for batch in iterate_batches(data, 0, len(data)):
            batch.check(len(data))
            if batch.next_offset <= next_offset:
                client.complain("nonmonotonic-poll", place, f"asked for {offset}, got the batch at {batch.base_offset}")
            next_offset = max(next_offset, batch.next_offset)
            if not batch.is_control:
                for record in iterate_records(batch):
                    if record.offset >= offset:
                        value = identity(record)
                        records.append((record.offset, record.key, value))
                        odd = client.difference(place, batch, record, value)
                        if odd:
                            client.complain("P10 a record is as it was sent", place, f"{record.offset}: {odd}")
    except RemoteError as error:
        client.complain("what is read has a sound checksum", place, f"{offset}: {error.message}")
    if found.error_code == ErrorCode.NONE and next_offset == offset:
        check_got_on(client, place, offset, found.high_watermark)
    return ErrorCode(found.error_code), found.log_start_offset, found.high_watermark, records, next_offset


def check_got_on(client: SimClient, place: Place, offset: int, visible_end: int) -> None:
    """A fetch from `offset` brought nothing: however few bytes are asked for, the first batch comes whole (KIP-74).

    Compaction may have left nothing before the end, where a start has found that end further back than it was.
    """
    if offset < visible_end and place[0] not in COMPACTED:
        client.complain("P12 a fetch gets on", place, f"{offset} was asked for, up to {visible_end} can be read")


def take(world: "World", place: Place, records: Records, offset: int, start: int, high: int, life: int) -> None:
    """Notes what a poll from `offset` on brought, and that nothing was passed over or shown too early."""
    for at, _, value in records:
        # An offset lies before what the checksum covers: rot may change it and not be noticed.
        if at >= high and place not in world.ledger.damaged:
            raise Violation("P10 nobody reads past the high watermark", f"{place}: {at} read, it is {high}")
        if at > offset >= start and not world.is_keyed(place[0]) and place not in world.ledger.damaged:
            raise Violation("poll-skip", f"{place}: a reader at {offset} was given {at}, the start is {start}")
        world.ledger.read(place, at, value, life)
        offset = at + 1


class Reader:
    """Follows one partition and notes what it sees; begins again at the start when out of range."""

    def __init__(self, world: "World", client: SimClient, rng: Random, place: Place) -> None:
        self.world = world
        self.client = client
        self.rng = rng
        self.place = place

    async def run(self) -> None:
        offset = 0
        while not self.world.is_stopping:
            is_answered = False
            with contextlib.suppress(NoAnswer):
                size = self.rng.choice((1, 200, 1 << 20))
                await self.client.connected()
                life = self.client.life
                code, start, high, records, after = await fetch(self.client, self.place, offset, max_bytes=size)
                is_answered = True
            if not is_answered:
                await asyncio.sleep(UNANSWERED_S)
                continue
            if code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self.world.count("reader out of range")
                self.world.reader_reset(self.place, offset)
                offset = 0 if self.rng.random() < 0.5 else max(start, 0)
                found = await self._log_start()
                offset = found if found is not None else offset
            elif code == ErrorCode.NONE:
                take(self.world, self.place, records, offset, start, high, life)
                offset = after
            if code != ErrorCode.NONE or not records:
                await asyncio.sleep(self.rng.random() * self.world.pace_s)
            else:
                await asyncio.sleep(self.rng.random() * self.world.pace_s / 2)

    async def _log_start(self) -> int | None:
        try:
            return await list_offset(self.client, self.place, -2)
        except NoAnswer:
            return None


async def list_offset(client: SimClient, place: Place, timestamp: int) -> int | None:
    found = await find_offset(client, place, timestamp)
    return found.offset if found is not None else None


async def find_offset(client: SimClient, place: Place, timestamp: int) -> ListOffsetsPartitionResponse | None:
    wanted = [ListOffsetsPartition(partition_index=place[1], timestamp=timestamp)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=place[0], partitions=wanted)])
    answer = await client.ask(request, 7, ListOffsetsResponse)
    found = answer.topics[0].partitions[0]
    return found if found.error_code == ErrorCode.NONE else None


async def read_all(client: SimClient, place: Place) -> tuple[int, int, Records]:
    """Everything a partition has, with its start and its end; for when nothing goes wrong any more."""
    for _ in range(200):
        try:
            start = await list_offset(client, place, -2)
            end = await list_offset(client, place, -1)
            if start is None or end is None:
                await asyncio.sleep(0.1)
                continue
            records: Records = []
            offset = start
            while offset < end:
                code, _, _, found, after = await fetch(client, place, offset)
                if code != ErrorCode.NONE or after == offset:
                    break
                records += found
                offset = after
            else:
                return start, end, records
        except NoAnswer:
            pass
        await asyncio.sleep(0.1)
    raise Violation("P12 what is there can be read", f"{place} cannot be read after everything was healed")
