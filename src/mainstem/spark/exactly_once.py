"""How a batch of the sink happens once: tasks write in transactions of their own, the driver decides, then ends them.

1. Write (task): produce in a transaction, flush, leave it open; tell the driver which one it was.
2. Decide (driver): take over the sink's own transactional id, read the last decision L, finish it; check that every
   transaction of the batch is still open and has time left; write the decision. This write is the only point at which
   the batch happens.
3. Finish: commit the transactions, wait for their markers, note the batch as finished, abort what is left over.

A crash before the decision leaves open transactions, which the next commit or their time-out aborts; one after it
leaves a decision that whoever comes next finishes. Transactions of tasks are ended by their exact id, producer id and
epoch.

Spark does not wait for tasks that still run when a batch is given up, or whose attempt lost to another, and may kill
them at any moment. So that none of them leaves a transaction open that nobody ends: a task makes its producer id known
(`InitProducerId`), then reads the decisions, and produces only where its batch is undecided and its run not given up.
The driver decides either of the two, then looks for what tasks of its run have open or could still begin, and fences
that. Whoever comes too late for the driver to see it sees the decision.

A driver ends nothing of a run that may come after its own: what that has open may be decided on at any time. Of a run
that is superseded nothing will be. Nor, once a batch is decided, of any other run's that was open before and is of no
later batch. A stream has nothing open of a later batch before this one is decided; of writes that the user named, two
can run at once, so their transactions carry the version in their names.

`step` is called before each numbered point, for tests that crash there.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from mainstem.client.cluster import Cluster
from mainstem.client.errors import (
    KafkaError,
    KafkaTimeoutError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
    error_for,
)
from mainstem.client.options import ProducerOptions
from mainstem.client.types import TopicPartition
from mainstem.protocol.api import ApiKey
from mainstem.protocol.batch import iterate_batches
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.fetch import FetchPartition, FetchRequest, FetchTopic, encode_fetch_request, read_fetch_response
from mainstem.protocol.schema import ZERO_UUID
from mainstem.spark.decisions import (
    DECIDED,
    FINISHED,
    GIVEN_UP,
    SUPERSEDED_MAX,
    TOPIC,
    VALUE_BYTES_MAX,
    WHERE,
    Decision,
    DecisionLog,
    Written,
    key_of,
)
from mainstem.spark.producing import Sender
from mainstem.spark.questions import only_partition
from mainstem.spark.transactions import EMPTY, NO_TIMEOUT_MS, ONGOING, Transactions, Triple

LEAST_LEFT_MS: Final = 60_000
"""A transaction with less than this before its time-out, or half of that where it is short, is not decided on."""

COMPRESSED_FROM_BYTES: Final = 64 << 10
"""A decision of more than this has many tasks, whose names and offsets are much alike."""

SINK_PREFIX: Final = "mainstem-sink."
_TASK_ID: Final = re.compile(r"(.+)\.([0-9a-f]{16})[0-9a-f]{16}(?:\.v(\d+))?\.\d+")
"""A sink, a run, a worker process, the version of a write that is no stream's, a slot: see `task_id`."""
_UNCERTAIN: Final = (
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)
_BY_NAME: Final = 12


class SinkError(Exception):
    """A batch that did not, or may not have, happened; the text says why and what to do."""


class LostError(SinkError):
    """A decided batch of which rows are gone. It is told to every run, until somebody says that they know."""

    def __init__(self, sink: str, batch: int, lost: Sequence[Written]) -> None:
        super().__init__(
            f"batch {batch} of {sink} was decided, but these rows were lost: {places(lost)}. Their transaction timed "
            "out or was aborted before it could be committed. Write them again from the source; to go on without them "
            f"run `mainstem pipeline finish --accept-loss {sink}`, or begin with a new checkpoint, sinkId or txnAppId"
        )


def places(written: Iterable[Written]) -> str:
    return ", ".join(f"{topic}-{number} offsets {first} to {last}" for topic, number, first, last in written)


@dataclass(frozen=True, slots=True)
class Staged:
    """What one task wrote: its transaction and where its rows are."""

    triple: Triple
    written: tuple[Written, ...]


def no_step(name: str) -> None:
    pass


async def open_transactions(transactions: Transactions) -> dict[str, int]:
    """How many transactions of tasks each sink has open now."""
    names = [sink_of(each) for each in await transactions.ongoing(SINK_PREFIX)]
    return dict(Counter(name for name in names if name is not None))


def sink_of(transactional_id: str) -> str | None:
    """The sink that a task's transaction belongs to; None where it is no task's."""
    found = _TASK_ID.fullmatch(transactional_id)
    return None if found is None else found[1]


def task_id(sink: str, run_and_worker: str, version: int | None, slot: int) -> str:
    """The name of a task's transaction. A stream's has no version: its names are used again in later batches."""
    return f"{sink}.{run_and_worker}" + ("" if version is None else f".v{version}") + f".{slot}"


def is_later(transactional_id: str, batch: int) -> bool:
    """Whether a task's transaction is of a write that comes after this one, and may be decided on after it."""
    found = _TASK_ID.fullmatch(transactional_id)
    return found is not None and found[3] is not None and int(found[3]) > batch


def name_of_run(run: str) -> str:
    """How a run is named in the transactional ids of its tasks."""
    return hashlib.sha256(run.encode()).hexdigest()[:16]


def of_another_query(sink: str, batch: int, last: Decision) -> SinkError:
    """Batches of one number are one batch only where they are of one query: what is taken for a replay is left out."""
    return SinkError(
        f"batch {batch} of {sink} was written by another query, {last.query}; two queries must not share a sink. "
        "Name another with sinkId, or leave that option out"
    )


def given_up(sink: str, batch: int) -> SinkError:
    return SinkError(f"batch {batch} of {sink} was given up while a task of it still wrote; nothing of it was written")


def ended_early(sink: str, batch: int, transactional_id: str, state: str, timeout_ms: int) -> SinkError:
    return SinkError(
        f"batch {batch} of {sink}: the transaction {transactional_id} of a task {state}; nothing of the batch was "
        f"written. A batch may take {timeout_ms} ms, which is the brokers' transaction.max.timeout.ms: it took longer, "
        "or someone aborted it. Raise that limit, or set twoPhaseCommit where brokers have it enabled, and run again "
        "with the same checkpoint: all is written once. A checkpoint keeps to the batch that it has planned. A new one "
        "with fewer rows a batch (maxOffsetsPerTrigger; --max-records of the pipelines) writes again what was written "
        "from the beginning on, unless it starts where the old one was (startingOffsets; --starting-offsets)"
    )


def too_many(sink: str, decision: Decision, size: int) -> SinkError:
    pairs = sum(len(some) for some in decision.written)
    return SinkError(
        f"batch {decision.batch} of {sink}: the decision on it names {pairs} pairs of a task and a partition in {size} "
        f"bytes, which is more than the topic {TOPIC} takes; nothing of the batch was written. Have fewer tasks write, "
        "with coalesce before the write, or set guarantee to at_least_once"
    )


def rewound(sink: str, batch: int, last: Decision) -> SinkError:
    return SinkError(
        f"batch {batch} of {sink} comes after batch {last.batch} was written: the checkpoint was rewound, or copied "
        "while another query went on with it. Start with a new checkpoint, or name another sink with sinkId"
    )


class Coordinator:
    """The driver's side of one sink."""

    def __init__(
        self,
        cluster: Cluster,
        options: ProducerOptions,
        sink: str,
        transactions: Transactions,
        decisions: DecisionLog,
        step: Callable[[str], None] = no_step,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._sink = sink
        self._transactions = transactions
        self._decisions = decisions
        self._step = step

    async def commit(self, batch: int, run: str, staged: Sequence[Staged], query: str = "") -> None:
        self._step("decide")
        own, last = await self._take_over(batch, run)
        if self._decisions.is_given_up(self._sink, run):
            # Spark gave up waiting for this commit and has aborted the batch elsewhere.
            raise given_up(self._sink, batch)
        if last is not None and last.batch >= batch:
            await self._abort([each.triple for each in staged if each.triple not in last.transactions])
            if last.batch == batch and last.query != query:
                raise of_another_query(self._sink, batch, last)
            if last.batch > batch and query:
                # Two drivers: the other one went past this batch between the tasks' look at the decisions and now.
                raise rewound(self._sink, batch, last)
            return
        if not staged:
            return
        garbage = await self._check(batch, [each.triple for each in staged])
        superseded: tuple[str, ...] = ()
        if last is not None:
            before = [*last.superseded, *([last.run] if last.run != run else [])]
            superseded = tuple(before[-SUPERSEDED_MAX:])
        decision = Decision(
            batch,
            run,
            superseded,
            tuple(each.triple for each in staged),
            tuple(each.written for each in staged),
            query,
        )
        self._step("write-decision")
        await self._decide_on(own, decision)
        self._step("decided")
        _, late = await asyncio.gather(self._finish(decision), self._late(own, decision))
        await self._fence(late)
        await self._abort(garbage)

    async def abort(self, batch: int, run: str, staged: Sequence[Staged]) -> None:
        own, last = await self._own_and_last(batch, run)
        try:
            await self._finish_last(last)
        finally:
            # Whatever became of the batch before: what this run has open would hold back readers.
            await self._give_up(own, last, batch, run, staged)

    async def _give_up(
        self, own: Triple, last: Decision | None, batch: int, run: str, staged: Sequence[Staged]
    ) -> None:
        await self._decide(own, batch, GIVEN_UP, run.encode())
        await self._transactions.wait_until_complete([own])  # from its marker on, tasks find it
        kept = () if last is None else last.transactions
        ours = [each.triple for each in staged if each.triple not in kept]
        others = await self._of_runs([run, *(() if last is None else last.superseded)])
        await self._fence(list(dict.fromkeys([*ours, *(each for each in others if each not in kept)])))

    async def forget(self) -> None:
        """Leaves nothing of a sink that is finished and never used again, once the topic is compacted."""
        await self._forget(DECIDED, FINISHED)

    async def forget_given_up(self) -> None:
        """The same of one that has decided nothing."""
        await self._forget(GIVEN_UP)

    async def _forget(self, *kinds: str) -> None:
        for kind in kinds:
            await self._produce(Triple("", -1, -1), kind, None)

    async def recover(self, *, accept_loss: bool = False) -> tuple[Decision | None, list[Written]]:
        """Finishes what was decided and left; the last decision. For a command, when no driver comes back.

        Where rows of it were lost that is an error, or with `accept_loss` what is told besides.
        """
        await self._decisions.ensure()
        await self._transactions.init(self._sink)
        last = await self._decisions.last(self._sink)
        if last is None or last.is_finished:
            return last, []
        return last, await self._finish(last, accept_loss=accept_loss)

    async def abandon(self) -> tuple[list[Triple], LostError | None]:
        """Finishes what was decided, then aborts what is still open; what that was. For a query that is given up:

        transactions of two-phase commit have no time-out, and hold readers of what is committed back for good. That
        rows of the decided batch were lost is told, and changes nothing of that.
        """
        failure: SinkError | KafkaError | None = None
        try:
            await self.recover()
        except (SinkError, KafkaError) as error:
            failure = error
        last = await self._decisions.last(self._sink)
        kept = () if last is None else last.transactions
        described = await self._transactions.describe(await self._open())
        left = [each.triple for each in described.values() if each.state == ONGOING and each.triple not in kept]
        await self._abort(left)
        if failure is not None and not isinstance(failure, LostError):
            raise failure
        return left, failure

    async def _open(self) -> list[str]:
        """What tasks of this sink have open. Another sink's name may begin with this one's: `orders`, `orders.eu`."""
        listed = await self._transactions.ongoing(self._sink + ".")
        return [each for each in listed if sink_of(each) == self._sink]

    async def _of_runs(self, runs: Iterable[str], but: Iterable[str] = ()) -> list[Triple]:
        """What tasks of these runs have open, or could still begin."""
        names = {name_of_run(run) for run in runs}
        listed = await self._transactions.listed(self._sink + ".", [EMPTY, ONGOING])
        found = [(each, _TASK_ID.fullmatch(each)) for each in listed]
        ids = {each for each, parts in found if parts is not None and parts[1] == self._sink and parts[2] in names}
        described = await self._transactions.describe(sorted(ids.difference(but)))
        return [each.triple for each in described.values() if each.state in (EMPTY, ONGOING)]

    async def _late(self, own: Triple, decision: Decision) -> list[Triple]:
        """What attempts that lost have open or could still begin, when tasks find the decision."""
        winners = [triple.transactional_id for triple in decision.transactions]
        try:
            await self._transactions.wait_until_complete([own])
            return await self._of_runs([decision.run], but=winners)
        except KafkaError:
            return []  # it is decided all the same; the next commit aborts them, or their time-out

    async def _take_over(self, batch: int, run: str) -> tuple[Triple, Decision | None]:
        """Step 2a: from here on no other driver can decide for this sink unless it takes over in turn."""
        own, last = await self._own_and_last(batch, run)
        await self._finish_last(last)
        return own, last

    async def _own_and_last(self, batch: int, run: str) -> tuple[Triple, Decision | None]:
        await self._decisions.ensure()
        own = await self._transactions.init(self._sink)
        last = await self._decisions.last(self._sink)
        if last is not None and run in last.superseded:
            raise SinkError(
                f"batch {batch} of {self._sink}: another run of the query has taken over (run {last.run}); this "
                "one must end. Two queries must not share a checkpoint"
            )
        return own, last

    async def _finish_last(self, last: Decision | None) -> None:
        if last is not None and not last.is_finished:
            self._step("finish-last")
            await self._finish(last)

    async def _check(self, batch: int, winners: list[Triple]) -> list[Triple]:
        """Step 2b: what is left over of tasks that lost. Fails where a winner is not open with time to spare."""
        listed = [each for each in await self._open() if not is_later(each, batch)]
        ids = sorted({*listed, *(triple.transactional_id for triple in winners)})
        described = await self._transactions.describe(ids)
        now_ms = time.time() * 1000
        for triple in winners:
            found = described.get(triple.transactional_id)
            if found is None or found.state != ONGOING or found.triple != triple:
                state = "unknown" if found is None else f"{found.state} at epoch {found.triple.epoch}"
                raise await self._ended_early(batch, triple, f"is {state}")
            least_ms = min(LEAST_LEFT_MS, found.timeout_ms / 2)
            if found.timeout_ms < NO_TIMEOUT_MS and found.started_ms + found.timeout_ms - now_ms < least_ms:
                raise await self._ended_early(batch, triple, "is about to time out")
        return [each.triple for each in described.values() if each.state == ONGOING and each.triple not in winners]

    async def _ended_early(self, batch: int, triple: Triple, state: str) -> SinkError:
        timeout_ms = await self._transactions.timeout_ms()
        return ended_early(self._sink, batch, triple.transactional_id, state, timeout_ms)

    async def _decide_on(self, own: Triple, decision: Decision) -> None:
        value = decision.to_bytes()
        if len(value) > VALUE_BYTES_MAX:
            raise too_many(self._sink, decision, len(value))
        try:
            await self._decide(own, decision.batch, DECIDED, value)
        except (RecordTooLargeError, RecordBatchTooLargeError) as error:
            raise too_many(self._sink, decision, len(value)) from error

    async def _decide(self, own: Triple, batch: int, kind: str, value: bytes) -> None:
        """Step 2c. Only who has taken over last can."""
        await self._produce(own, kind, value)
        self._step("end-decision")
        code = await self._transactions.end(own, True)
        if code:
            raise SinkError(
                f"batch {batch} of {self._sink}: the decision was refused, another driver has taken over"
            ) from error_for(code, "EndTxn of the decision")

    async def _produce(self, producer: Triple, kind: str, value: bytes | None) -> None:
        import pyarrow as pa

        options = self._options
        if len(value or b"") > COMPRESSED_FROM_BYTES:
            options = replace(options, compression_type="gzip")
        sender = Sender(self._cluster, options, producer, self._transactions)
        await sender.begin()
        now_ms = int(time.time() * 1000)
        key = key_of(kind, self._sink).encode()
        sender.encode(WHERE, pa.array([key]), pa.array([value], pa.binary()), None, None, now_ms)
        await sender.flush()

    async def _finish(self, decision: Decision, *, accept_loss: bool = False) -> list[Written]:
        """Step 3; what was lost. That is an error unless it is accepted, after all else was committed."""
        pairs = list(zip(decision.transactions, decision.written, strict=True))

        async def one(triple: Triple, written: tuple[Written, ...]) -> list[Written]:
            self._step("commit-one")
            code = await self._transactions.end(triple, True)
            if code == 0:
                return []
            if code not in _UNCERTAIN:
                raise error_for(code, f"committing {triple.transactional_id}")
            return [each for each in written if not await self._is_there(triple, each)]

        lost = [each for some in await asyncio.gather(*(one(*pair) for pair in pairs)) for each in some]
        self._step("wait-markers")
        await self._transactions.wait_until_complete(decision.transactions)
        if lost and not accept_loss:
            raise LostError(self._sink, decision.batch, sorted(lost))
        self._step("note-finished")
        await self._produce(Triple("", -1, -1), FINISHED, str(decision.batch).encode())
        return sorted(lost)

    async def _is_there(self, triple: Triple, written: Written) -> bool:
        """Whether what was written is there for readers of what is committed."""
        topic, number, first, last = written
        where = TopicPartition(topic, number)

        async def attempt() -> bool:
            leader = self._cluster.leader(where)
            if leader is None:
                await self._cluster.metadata([topic])
                leader = self._cluster.leader(where)
            if leader is None:
                raise KafkaTimeoutError("it has no leader now", topic=topic, partition=number)
            connection = await self._cluster.node(leader.leader)
            version = connection.version_for(ApiKey.FETCH, _BY_NAME)
            request = FetchRequest(
                0, 0, 1 << 20, [FetchTopic(topic, ZERO_UUID, [FetchPartition(number, first, 1 << 16)])]
            )
            request.isolation_level = 1
            frame = encode_fetch_request(request, version, 0, self._options.client_id)
            answer = await connection.send_frame(ApiKey.FETCH, version, [frame])
            _, response = read_fetch_response(answer, version)
            part = only_partition(response, (topic, number))
            if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                return False
            if part.error_code:
                self._cluster.note_error(where, int(part.error_code))
                raise error_for(int(part.error_code), "looking for what was written", topic=topic, partition=number)
            if part.last_stable_offset <= last:
                # Something is still open before it: its own markers, or another's transaction.
                raise KafkaTimeoutError("a transaction is still open there", topic=topic, partition=number)
            start = int(part.records_start)
            for batch in iterate_batches(answer, start, start + int(part.records_size)):
                if batch.base_offset <= first < batch.next_offset:
                    aborted = any(
                        each.producer_id == triple.producer_id and each.first_offset <= first
                        for each in part.aborted or ()
                    )
                    return bool(batch.producer_id == triple.producer_id) and not aborted
            return False

        return await self._cluster.retrying(attempt, LEAST_LEFT_MS, "looking for what was written")

    async def _abort(self, triples: Sequence[Triple]) -> None:
        """Ends what is left over. That it is gone already is fine."""
        await self._ended(triples, [self._transactions.end(triple, False) for triple in triples])

    async def _fence(self, triples: Sequence[Triple]) -> None:
        """The same for tasks that may still run: nothing more comes of them."""
        await self._ended(triples, [self._transactions.fence(triple) for triple in triples])

    async def _ended(self, triples: Sequence[Triple], ending: Sequence[Awaitable[object]]) -> None:
        for outcome in await asyncio.gather(*ending, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, KafkaError):
                raise outcome
        # Until their markers are there they hold back who reads what is committed; what was decided is so all the same.
        with suppress(KafkaError):
            await self._transactions.wait_until_complete(triples)
