"""Transactional clients: they write to several partitions, commit a group's position, and commit, abort or vanish.

Clients of both transaction versions. Under version 1 a broker cannot tell a late request from one of the next
transaction (T8): such a client asks for a new epoch after each request that was not answered, and none of its requests
is delivered after its connection has died. A client of version 2 needs no such care.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from random import Random
from typing import TYPE_CHECKING, Final

from mainstem.core.txn.states import EPOCH_MAX, ONGOING, TV2
from mainstem.protocol.batch import iterate_batches
from mainstem.protocol.builder import BatchBuilder
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from mainstem.protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from mainstem.protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from mainstem.protocol.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from mainstem.protocol.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from mainstem.protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from mainstem.protocol.produce import ProducePartitionResponse
from mainstem.protocol.records import iterate_records
from mainstem.protocol.schema import Message
from mainstem.sim.client import A, NoAnswer, SimClient
from mainstem.sim.committed import check_given
from mainstem.sim.draws import squared
from mainstem.sim.group_members import fetch_offset, find_coordinator, leader_epoch_of
from mainstem.sim.ledger import Place, Send, Violation
from mainstem.sim.txn_ledger import Pair, Txn
from mainstem.sim.txn_logs import OnPartition
from mainstem.sim.txn_shape import ID_EXPIRATION_MS
from mainstem.sim.workloads import RETRIABLE, UNANSWERED_S, check_got_on, client_ms, list_offset
from mainstem.sim.written import OFFSETS_TOPIC
from mainstem.sim.zombies import Owner, is_fenced

if TYPE_CHECKING:
    from mainstem.sim.world import World

TRY_AGAIN: Final = RETRIABLE | {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}
ATTEMPTS_MAX: Final = 25
ABORT_KEY: Final = b"\x00\x00\x00\x00"
COMMIT_KEY: Final = b"\x00\x00\x00\x01"
"""What the keys of markers are; users may use them too (KAFKA-14055)."""
FAR_AHEAD: Final = 1000
_AWAY_MAX_S: Final = 2.0
_IDLE_SHARE: Final = 0.15
_RESTART_SHARE: Final = 0.5
_HEAD_START_S: Final = 0.1
"""How long after a batch its client may abort: long enough for a leader to ask the coordinator about it."""
_RECOVERS: Final = 0.6
"""Of the clients that cannot go on as they are, how many name what they have been given, as Kafka's do (KIP-360)."""
_ENDS_FIRST: Final = 0.8
_EMPTY_ABORTS: Final = 0.12
"""Of the transactions of version 2, how many have nothing that their coordinator knows of when they are aborted."""
_LATE_S: Final = 0.5
_UNHEARD: Final = 0.1
"""Of the answers that a transaction is over, how many are as good as lost: the client asks again."""
PLACES: Final = (("txn", 0), ("txn", 1), ("txnkeyed", 0))
"""Where transactional clients write."""


class GaveUpError(Exception):
    """The transaction cannot go on: its client begins anew."""


class TxnProducer:
    def __init__(
        self,
        world: "World",
        client: SimClient,
        rng: Random,
        name: str,
        *,
        tv2: bool,
        is_rival: bool = False,
        prepares: bool = False,
    ) -> None:
        self.world = world
        self.client = client
        self.rng = rng
        self.transactional_id = name
        self.group = ""
        self.tv2 = tv2
        self.is_rival = is_rival
        """Whether another has the same id, and neither knows of the other (C2)."""
        self.prepares = prepares
        """Whether its transactions have no time-out, and it may come back to one that it left (KIP-939)."""
        self._keys = Random(f"{world.seed}:keys:{client.name}")
        self._odd = Random(f"{world.seed}:odd:{client.name}")
        self._in_flight = Random(f"{world.seed}:in flight:{client.name}")
        self._restarts = Random(f"{world.seed}:restarts:{client.name}")
        self._idle = Random(f"{world.seed}:idle:{client.name}")
        self._early = Random(f"{world.seed}:early offsets:{client.name}")
        self._stable = Random(f"{world.seed}:stable:{client.name}")
        self._recovers = Random(f"{world.seed}:recovers:{client.name}")
        self._packs = Random(f"{world.seed}:packs:{client.name}")
        self._again = Random(f"{world.seed}:again:{client.name}")
        self._is_recovering = False
        """Whether it asks for the next epoch before it goes on, and names the one that it has."""
        self._to_leader = client.another()
        """Leader and coordinator are seldom one broker: what is sent to the one does not wait for the other."""
        self._read_to: dict[Place, int] = {}
        self.producer_id = -1
        self.epoch = -1
        self._number = 0
        self._sequences: dict[Place, int] = {}
        self._added: dict[Place, None] = {}
        self._missed_answer = False
        self._txn: Txn | None = None
        self._old_end: EndTxnRequest | None = None
        """How the last transaction was ended: under version 2 this may come again at any time."""

    async def run(self) -> None:
        while not self.world.is_stopping:
            try:
                if self.producer_id < 0:
                    await self._init()
                elif self._is_recovering:
                    await self._recover()
                await self._transaction()
            except GaveUpError:
                self._begin_anew()
                if self._txn is not None:
                    self.world.txns.ending(self._txn)
                self.world.count("transaction given up")
            await asyncio.sleep(squared(self.rng) * self.world.pace_s)
            if self.world.txn_shape.forgets and self._idle.random() < _IDLE_SHARE:
                # Long enough that the coordinator may have forgotten the id: what comes next is refused.
                await asyncio.sleep((0.5 + self._idle.random()) * ID_EXPIRATION_MS / 1000)
        if self.prepares:
            await self._init(settles=True)  # nobody else would ever end what it left open

    async def opened(self, place: Place) -> Callable[[], Awaitable[None]]:
        """Returns when one transaction, besides those of `run`, is open there, with what commits it."""
        await self._init(settles=True)
        txn = self.world.txns.begin(self.client.name, self.transactional_id, self.group, (self.producer_id, self.epoch))
        await self._write(txn, place)
        return lambda: self._end(txn, commit=True)

    # Asking

    async def _ask(self, request: Message, version: int, kind: type[A]) -> A | None:
        try:
            return await self.client.ask(request, version, kind)
        except NoAnswer:
            self._missed_answer = True
            return None

    async def _pause(self) -> None:
        await asyncio.sleep(0.02 + self.rng.random() * 0.1)

    def _begin_anew(self) -> None:
        """It cannot go on under its epoch: it asks for the next one, or takes its id as who has just begun."""
        self._is_recovering = self.producer_id >= 0 and self._recovers.random() < _RECOVERS
        if not self._is_recovering:
            self.producer_id = -1

    async def _recover(self) -> None:
        """As Kafka's producer after an error that it can abort: EndTxn, then InitProducerId with what it has (KIP-360).

        Under version 2 the EndTxn has raised the epoch already. One that does without has its coordinator abort.
        """
        self._is_recovering = False
        txn = self._txn
        if txn is not None and not txn.commit_sent and self._recovers.random() < _ENDS_FIRST:
            with contextlib.suppress(GaveUpError):
                await self._end(txn, commit=False)
                if self.tv2:
                    self.world.count("went on after an error under the epoch of its abort")
                    return
        await self._init(names=True)

    async def _init(self, *, keeps: bool = False, settles: bool = False, names: bool = False) -> InitProducerIdResponse:
        """Takes the id. What is open is aborted, or kept; one that settles does not give up when all is over.

        One that names what it has, and is refused because another has taken it, is as one that has just begun.
        """
        named = (self.producer_id, self.epoch) if names else None
        find = FindCoordinatorRequest(key_type=1, coordinator_keys=[self.transactional_id])
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.rng.choice((700, 3000)),
            enable2_pc=self.prepares,
            keep_prepared_txn=keeps,
        )
        if named is not None:
            request.producer_id, request.producer_epoch = named
            self.producer_id = -1  # what it has is not what it is to be given
        for _ in range(400):
            found = await self._ask(find, 4, FindCoordinatorResponse)
            if found is not None and found.coordinators[0].error_code == ErrorCode.NONE:
                if not keeps:
                    self.world.txns.asking(self.transactional_id)
                owner = None if named is None else Owner(self.world, self.client, self.transactional_id, named)
                answer = await self._ask(request, 6 if self.prepares else 4, InitProducerIdResponse)
                if answer is not None and not keeps:
                    self.world.txns.was_answered(self.transactional_id)
                if answer is not None and answer.error_code == ErrorCode.NONE:
                    self._take(answer.producer_id, answer.producer_epoch, after=named)
                    self._missed_answer = False
                    if named is not None:
                        self.world.count("next epoch given for the last one")
                    elif self.is_rival:
                        self.world.count("C2 id taken from a living client")
                    return answer
                if owner is not None and answer is not None and is_fenced(answer.error_code):
                    owner.was_refused()
                    named = None
                    request.producer_id = request.producer_epoch = -1
            if self.world.is_stopping and not settles:
                raise GaveUpError
            await self._pause()
        raise Violation("T12 an id can be taken over", f"{self.transactional_id} is never given a producer id")

    def _take(self, producer_id: int, epoch: int, after: Pair | None = None) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.world.txns.given((producer_id, epoch), self.client.name, self.transactional_id, after)
            self._sequences.clear()
        self.producer_id, self.epoch = producer_id, epoch

    # One transaction

    async def _transaction(self) -> None:
        rng = self.rng
        pair = (self.producer_id, self.epoch)
        self.group = self.world.tuning.group_of(self.transactional_id, len(self.world.txns.txns))
        txn = self._txn = self.world.txns.begin(self.client.name, self.transactional_id, self.group, pair)
        self._added.clear()
        if self.tv2 and self._in_flight.random() < _EMPTY_ABORTS:
            await self._abort_nothing(txn)
            return
        if self.world.tuning.is_about_offsets and self._early.random() < 0.7:
            await self._commit_offset(txn)
            await asyncio.sleep(squared(self._early) * self.world.pace_s)
        for number in range(rng.choice((1, 1, 2, 3))):
            if number:
                await asyncio.sleep(squared(rng) * self.world.pace_s / 2)
            await self._write(txn, rng.choice(self.world.txn_places))
            if self._odd.random() < 0.4:
                await self._read(txn, self._odd.choice(PLACES))
        if rng.random() < 0.4 and txn.offset is None:
            await self._commit_offset(txn)
            if self._stable.random() < 0.3:
                await self._look_at_offset(txn)
        if self.tv2 and self._old_end is not None and rng.random() < 0.15:
            await self._ask(self._old_end, 5, EndTxnResponse)
            self.world.count("N10 end of the transaction before")
            await self._write(txn, rng.choice(self.world.txn_places))
        fate = rng.random()
        if fate < 0.05:
            self.world.count("transaction left open")
            raise GaveUpError
        if fate < 0.1:
            await self._claim_higher_epoch()
        if self.prepares and self._keys.random() < 0.4:
            await self._come_back(txn)
            await self._end(txn, commit=fate < 0.75)
        elif fate > (0.9 if self.tv2 else 0.75):
            await self._abort_in_flight(txn)
        else:
            await self._end(txn, commit=fate < 0.75)
        if self._missed_answer and not self.tv2:
            self._begin_anew()

    async def _come_back(self, txn: Txn) -> None:
        """The client is gone when everything is written; who comes back takes the transaction as it is (KIP-939).

        It may have been away for longer than any time-out, and the broker be another when its predecessor writes again.
        """
        before = (self.producer_id, self.epoch)
        sequences = dict(self._sequences)
        await asyncio.sleep(squared(self._keys) * _AWAY_MAX_S)
        answer = await self._init(keeps=True, settles=True)
        ongoing = (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch)
        if ongoing != before and self.world.txns.may_be_taken(self.transactional_id):
            raise GaveUpError
        if ongoing != before and not txn.is_torn:
            raise Violation(
                "T8 a prepared transaction is kept",
                f"{self.transactional_id} left transaction {txn.number} open as {before}, and found {ongoing}",
            )
        self.world.count("prepared transaction kept")
        await asyncio.sleep(squared(self._keys) * _AWAY_MAX_S)
        if self._restarts.random() < _RESTART_SHARE:
            await self._see_a_restart()
        await self._write_as_before(before, sequences)

    async def _see_a_restart(self) -> None:
        """The leader is another now, which knows no more than its log: a fence is not in there."""
        if not self.world.nemesis.is_over:
            self.world.count("X2 kill")
            self.world.kill()
        while not self.world.process.is_serving:
            await asyncio.sleep(0.05)

    async def _write_as_before(self, before: tuple[int, int], sequences: dict[Place, int]) -> None:
        """The one who left it is not dead after all: what it sends now is no part of anything (T4)."""
        place = self._keys.choice(PLACES)
        self._number += 1
        value = f"{self.client.name}.{self._number}".encode()
        self.world.ledger.sent(Send(place, value, b"a", self.client.name, self._number, ordered=False))
        builder = BatchBuilder(
            producer_id=before[0],
            producer_epoch=before[1],
            base_sequence=sequences.get(place, 0),
            transactional=True,
        )
        builder.append(client_ms(self.world), b"a", value)
        await self._produce(place, builder.build())
        self.world.count("old epoch after a kept transaction")

    async def _read(self, txn: Txn, place: Place) -> None:
        """Reads what others have committed, as part of the transaction: who read from whom is checked (G1c)."""
        offset = self._read_to.get(place, 0)
        try:
            await self.client.connected()
            life = self.client.life
            code, records, after = await fetch_committed_records(self.client, place, offset, max_wait_ms=0)
        except NoAnswer:
            self._missed_answer = True
            return
        check_given(self.world, place, offset, after, records, life, "int-")
        self._read_to[place] = 0 if code is ErrorCode.OFFSET_OUT_OF_RANGE else after
        for at, value in records:
            self.world.txns.seen(place, at, value)
            if value in txn.values and not txn.is_torn:
                raise Violation("precommitted-read", f"{self.client.name} has read {value!r} before its commit")
            txn.reads[value] = None

    async def _abort_in_flight(self, txn: Txn) -> None:
        """Aborts while a batch is on its way: whenever that arrives, it is part of this transaction or refused.

        On one connection the abort would wait for the batch's answer, and nothing could come between the coordinator's
        word that the batch may be taken and its append (KAFKA-14884). Under version 2 the client goes on under the
        epoch that the abort has given it.
        """
        place = self.rng.choice(self.world.txn_places)
        if not self.tv2:
            await self._add(place)
        batch, _ = self._batch(txn, place)
        try:
            sent = await self._send(self._to_leader, place, batch)
        except NoAnswer:
            self._missed_answer = True
            sent = None
        gave_up: GaveUpError | None = None
        try:
            await asyncio.sleep(squared(self._in_flight) * _HEAD_START_S)
            await self._end(txn, commit=False)
        except GaveUpError as error:
            gave_up = error
        if sent is not None:
            try:
                await self._to_leader.answer(sent, ProducePartitionResponse)
            except NoAnswer:
                self._missed_answer = True
        if gave_up is not None:
            raise gave_up
        self.world.count("aborted with a batch on its way")
        if not self.tv2:
            self._begin_anew()  # whether its sequence was used is not known

    async def _abort_nothing(self, txn: Txn) -> None:
        """Aborts before its coordinator knows of anything: the only batch is on its way, and comes in the next one.

        Nothing but the epoch that such an abort raises keeps it out of there (KIP-890).
        """
        place = self._in_flight.choice(self.world.txn_places)
        batch, _ = self._batch(txn, place)
        asyncio.get_running_loop().create_task(self._arrive_late(place, batch))
        await self._end(txn, commit=False)
        self.world.count("went on after an abort of nothing")

    async def _arrive_late(self, place: Place, batch: bytes) -> None:
        """The batch was sent before, and its connection is slow. Whatever its answer is, nobody waits for it."""
        client = self.client.another()
        await asyncio.sleep(self._in_flight.random() * _LATE_S)
        with contextlib.suppress(NoAnswer):
            await client.answer(await self._send(client, place, batch), ProducePartitionResponse)
        client.close()

    async def _write(self, txn: Txn, place: Place) -> None:
        if not self.tv2:
            await self._add(place)
        batch, sends = self._batch(txn, place)
        for _ in range(ATTEMPTS_MAX):
            found = await self._produce(place, batch)
            if found is not None:
                if found.error_code == ErrorCode.NONE:
                    # Under an epoch that was given before, an answer may be about somebody else's batch.
                    if place[0] == "txn" and not txn.is_torn:
                        life = self.client.life
                        for index, send in enumerate(sends):
                            self.world.ledger.acked(send.value, found.base_offset + index, life)
                        self.world.watch.acknowledged.acked(place, found.base_offset + len(sends) - 1, life)
                    return
                self._go_on_after(ErrorCode(found.error_code))
            await self._pause()
        raise GaveUpError

    def _batch(self, txn: Txn, place: Place) -> tuple[bytes, list[Send]]:
        count = self.rng.choice((1, 2, 3))
        sequence = self._sequences.get(place, 0)
        builder = BatchBuilder(
            self.world.lines.codec_of(place[0], self._packs),
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        sends = []
        for _ in range(count):
            self._number += 1
            value = f"{self.client.name}.{self._number}".encode()
            key = None
            if place[0] == "txnkeyed":
                key = self.rng.choice((COMMIT_KEY, b"a", b"b"))
                if key == COMMIT_KEY:
                    key = self._keys.choice((COMMIT_KEY, ABORT_KEY))
            send = Send(place, value, key, self.client.name, self._number, ordered=True)
            self.world.ledger.sent(send)
            self.world.txns.wrote(txn, value, place)
            builder.append(client_ms(self.world), key, value)
            sends.append(send)
        self._sequences[place] = sequence + count
        return builder.build(), sends

    async def _produce(self, place: Place, batch: bytes) -> ProducePartitionResponse | None:
        try:
            return await self.client.answer(await self._send(self.client, place, batch), ProducePartitionResponse)
        except NoAnswer:
            self._missed_answer = True
            return None

    async def _send(self, client: SimClient, place: Place, batch: bytes) -> "asyncio.Future[ProducePartitionResponse]":
        version = 12 if self.tv2 else 11
        return await client.send_batch(place, batch, version, transactional_id=self.transactional_id)

    def _go_on_after(self, code: ErrorCode) -> None:
        if code not in TRY_AGAIN:
            self.world.count(f"transaction refused: {code.name}")
            raise GaveUpError

    async def _add(self, place: Place) -> None:
        if place in self._added:
            return
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=place[0], partitions=[place[1]])],
        )
        for _ in range(ATTEMPTS_MAX):
            answer = await self._ask(request, 3, AddPartitionsToTxnResponse)
            if answer is not None:
                code = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
                if code == ErrorCode.NONE:
                    self._added[place] = None
                    return
                self._go_on_after(ErrorCode(code))
            await self._pause()
        raise GaveUpError

    async def _commit_offset(self, txn: Txn) -> None:
        txn.offset = txn.number
        add = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=self.group,
        )
        commit = self._offset_request(txn)
        is_added = self.tv2
        for _ in range(ATTEMPTS_MAX):
            code = None
            try:
                await find_coordinator(self.client, self.group)
            except NoAnswer:
                self._missed_answer = True
            if not is_added:
                added = await self._ask(add, 3, AddOffsetsToTxnResponse)
                if added is not None:
                    is_added = added.error_code == ErrorCode.NONE
                    code = ErrorCode(added.error_code)
            if is_added:
                answer = await self._ask(commit, 5 if self.tv2 else 3, TxnOffsetCommitResponse)
                code = None if answer is None else ErrorCode(answer.topics[0].partitions[0].error_code)
                if code is not None:
                    self._offset_answered(commit, code)
                if code is ErrorCode.NONE:
                    return
            if code is not None:
                self._go_on_after(code)
            await self._pause()
        raise GaveUpError

    def _offset_answered(self, commit: TxnOffsetCommitRequest, code: ErrorCode) -> None:
        """For who commits as a member of the group (`txn_members`)."""

    def _offset_request(self, txn: Txn) -> TxnOffsetCommitRequest:
        assert txn.offset is not None
        return TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=self.group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name="log",
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=0,
                            committed_offset=txn.offset,
                            committed_leader_epoch=leader_epoch_of(txn.offset),
                            committed_metadata=txn.tag,
                        )
                    ],
                )
            ],
        )

    async def _look_at_offset(self, txn: Txn) -> None:
        """T9: who asks for what is stable is told to wait while the transaction is open, by what its logs say."""

        def is_open() -> bool:
            known = self.world.txn_logs.current(txn.pair[0])
            return (
                known is not None
                and known.state is ONGOING
                and (known.producer_id, known.producer_epoch) == txn.pair
                and any(txn.pair[0] in each.open for each in self._offset_logs())
            )

        def is_staged() -> bool:
            # Who deletes the group takes its staged offsets, too.
            return is_open() and self.world.offsets_follow.is_staged(self.group, ("log", 0), txn.pair[0])

        was_open = is_staged()
        try:
            await self.client.connected()
            life = self.client.life
            code, offset = await fetch_offset(self.client, self.group, "log", 0, require_stable=True)
        except NoAnswer:
            self._missed_answer = True
            return
        if not was_open or not is_staged() or txn.is_torn or life != self.world.process.life:
            return
        self.world.count("unstable offset looked at")
        if code is ErrorCode.NONE:
            raise Violation(
                "T9 offsets are part of the transaction",
                f"{self.group} is said to be at {offset} for good, and transaction {txn.number} is open",
            )

    def _offset_logs(self) -> list[OnPartition]:
        found = self.world.txn_logs.partitions
        return [each for place, each in found.items() if place[0] == OFFSETS_TOPIC]

    def _end_request(self, commit: bool, ahead: int = 0) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=min(self.epoch + ahead, EPOCH_MAX),
            committed=commit,
        )

    async def _claim_higher_epoch(self) -> None:
        """KAFKA-9600: no client chooses its epoch."""
        answer = await self._ask(self._end_request(True, FAR_AHEAD), 5 if self.tv2 else 3, EndTxnResponse)
        if answer is not None:
            self.world.count("higher epoch claimed")
            if answer.error_code == ErrorCode.NONE:
                raise Violation(
                    "T4 a client does not choose its epoch",
                    f"{self.transactional_id} ended a transaction with an epoch that it was never given",
                )

    async def _end(self, txn: Txn, commit: bool) -> None:
        txn.commit_sent = commit
        self.world.txns.ending(txn)
        request = self._old_end = self._end_request(commit)
        for _ in range(400):
            asked = self.world.watch.ends.asking(self.client, request, self.tv2)
            answer = await self._ask(request, 5 if self.tv2 else 3, EndTxnResponse)
            if answer is not None:
                if answer.error_code not in TRY_AGAIN:
                    await asked.was_answered(answer)
                if answer.error_code == ErrorCode.NONE:
                    if self._again.random() < _UNHEARD:
                        await self._pause()
                        continue
                    txn.is_committed = commit
                    self.world.count("transaction committed" if commit else "transaction aborted")
                    if self.world.txn_shape.level < TV2:
                        self.world.count(f"transaction.version {self.world.txn_shape.level}")
                    self.world.trace("ended", self.client.name, txn.number, commit)
                    if self.tv2:
                        self._take(answer.producer_id, answer.producer_epoch, after=txn.pair)
                    return
                self._go_on_after(ErrorCode(answer.error_code))
            await self._pause()
        raise Violation("T12 every transaction ends", f"{self.transactional_id} cannot end transaction {txn.number}")


async def coordinator_is_there(client: SimClient, transactional_id: str) -> None:
    """Returns when the id has a coordinator; the first who asks has its topic created."""
    find = FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id])
    while True:
        with contextlib.suppress(NoAnswer):
            found = await client.ask(find, 4, FindCoordinatorResponse)
            if found.coordinators[0].error_code == ErrorCode.NONE:
                return
        await asyncio.sleep(0.05)


class CommittedReader:
    """Follows one partition and sees only what is committed; begins again where a restart or retention puts it."""

    def __init__(self, world: "World", client: SimClient, rng: Random, place: Place) -> None:
        self.world = world
        self.client = client
        self.rng = rng
        self.place = place

    async def run(self) -> None:
        offset = 0
        is_trimmed = self.world.may_trim(self.place[0])
        while not self.world.is_stopping:
            is_answered = False
            with contextlib.suppress(NoAnswer):
                if is_trimmed:
                    # Where records are deleted, it likes to be where that happens next.
                    offset = await list_offset(self.client, self.place, -2) or 0
                size = self.rng.choice((1, 300, 1 << 20))
                await self.client.connected()
                life = self.client.life
                code, records, after = await fetch_committed_records(self.client, self.place, offset, max_bytes=size)
                is_answered = True
            if not is_answered:
                await asyncio.sleep(UNANSWERED_S)
                continue
            check_given(self.world, self.place, offset, after, records, life, "")
            if code is ErrorCode.OFFSET_OUT_OF_RANGE and is_trimmed:
                self.world.count("committed reader out of range")
            offset = 0 if code is ErrorCode.OFFSET_OUT_OF_RANGE else after
            for at, value in records:
                self.world.txns.seen(self.place, at, value)
            await asyncio.sleep(self.rng.random() * (0.1 if is_trimmed else self.world.pace_s / 2))


async def fetch_committed_records(
    client: SimClient, place: Place, offset: int, *, max_wait_ms: int = 100, max_bytes: int = 1 << 20
) -> tuple[ErrorCode, list[tuple[int, bytes]], int]:
    """What a consumer with isolation.level=read_committed makes of a fetch, and where it goes on."""
    fetched = await client.fetch(place, offset, max_wait_ms=max_wait_ms, max_bytes=max_bytes, is_committed=True)
    found, data = fetched.partition, fetched.data
    aborted = [(one.first_offset, one.producer_id) for one in found.aborted or []]
    if aborted != sorted(aborted, key=lambda one: one[0]):
        raise Violation("T5 aborted transactions are sorted", f"{place}: {aborted}")
    dropping: dict[int, None] = {}
    asked = offset
    records: list[tuple[int, bytes]] = []
    for batch in iterate_batches(data, 0, len(data)):
        if batch.next_offset <= offset:
            client.complain("nonmonotonic-poll", place, f"at {offset}, got the batch at {batch.base_offset}")
        while aborted and aborted[0][0] <= batch.last_offset:
            dropping[aborted.pop(0)[1]] = None
        if batch.is_control:
            dropping.pop(batch.producer_id, None)
        elif not (batch.is_transactional and batch.producer_id in dropping):
            for record in iterate_records(batch):
                if record.offset >= offset and record.value is not None:
                    records.append((record.offset, record.value))
        offset = max(offset, batch.next_offset)
    if found.error_code == ErrorCode.NONE and asked == offset:
        check_got_on(client, place, asked, found.last_stable_offset)
    return ErrorCode(found.error_code), records, offset
