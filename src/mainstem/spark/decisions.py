"""The decision log: which batch of which sink has happened, in a compacted topic of one partition.

A record's key is what it says and of which sink: see `key_of`. The value of a decision names the batch, the run that
decided it, the runs that it took over from, the transactions that make up the batch and the offsets they wrote. It is
written in a transaction whose transactional id is the sink, so of two drivers only the one that came last can write.
That a run was given up is a decision, too, under a key of its own. That b is finished is noted without a transaction:
it is true for good once it is true, whoever says it. A sink that is never used again, as that of a write without a
name, is forgotten: its keys get a record without a value, and compaction takes them.

Every process that writes reads all sinks' records, so one that cannot be read is an error only for who asks about its
sink.

Reading does not use `read_committed`: a decision of another sink that hangs open would hide later ones of ours.
Instead the markers are followed: a decision counts when its producer's commit marker has been seen. After
`InitProducerId` on the sink has succeeded, every decision of that sink has its marker.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from mainstem.client.cluster import Cluster
from mainstem.client.errors import KafkaError, LeaderNotAvailableError, TopicExistsError, error_for, raise_for
from mainstem.client.metadata import LeaderAndEpoch
from mainstem.client.types import TopicPartition
from mainstem.protocol.api import ApiKey
from mainstem.protocol.batch import iterate_batches
from mainstem.protocol.control import parse_end_marker
from mainstem.protocol.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchTopic,
    encode_fetch_request,
    read_fetch_response,
)
from mainstem.protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from mainstem.protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from mainstem.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from mainstem.protocol.records import iterate_records
from mainstem.protocol.schema import ZERO_UUID
from mainstem.spark.offsets import EARLIEST, LATEST, Partition
from mainstem.spark.questions import list_offsets, only_partition
from mainstem.spark.transactions import Triple

log = logging.getLogger(__name__)

TOPIC: Final = "mainstem-sink.decisions"
WHERE: Final[Partition] = (TOPIC, 0)
DECIDED: Final = "decided"
FINISHED: Final = "finished"
GIVEN_UP: Final = "given-up"
VALUE_BYTES_MAX: Final = 31 << 20
"""How large a decision may be before it is compressed. Brokers of Mainstem open batches of up to 32 MiB."""

RECORD_BYTES_MAX: Final = 16 << 20
"""How large compressed: offsets are digits, of which compression leaves less than half."""

_ROOM: Final = {
    "max.message.bytes": str(RECORD_BYTES_MAX),
    # A batch that is larger than a segment is refused, whatever the topic takes.
    "segment.bytes": str(RECORD_BYTES_MAX),
}
_ROLL: Final = {
    # Every process that writes reads the topic from its start, and the segment that is written to is never compacted.
    # Large as it may grow, time keeps it small.
    "segment.ms": "60000",
}
CONFIGS: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", **_ROOM, **_ROLL}
TIMEOUT_MS: Final = 60_000
ENLARGED_WITHIN_MS: Final = 10_000
SUPERSEDED_MAX: Final = 1000
_BY_NAME: Final = 12
_TOPIC_RESOURCE: Final = 2
_SET: Final = 0
_VERSION: Final = 2

Written = tuple[str, int, int, int]
"""Topic, partition, first and last offset."""


class UnreadableError(ValueError):
    """What the log says of a sink was not written by us, or by a newer version."""


def key_of(kind: str, sink: str) -> str:
    """What a record says comes first: a sink may have any name."""
    return f"{kind}/{sink}"


@dataclass(frozen=True, slots=True)
class Decision:
    batch: int
    run: str
    superseded: tuple[str, ...]
    transactions: tuple[Triple, ...]
    written: tuple[tuple[Written, ...], ...]
    """What each transaction wrote."""
    query: str = ""
    """The streaming query whose batch it is; empty for a write that is no part of one."""
    is_finished: bool = field(default=False, compare=False)

    def to_bytes(self) -> bytes:
        topics = sorted({topic for some in self.written for topic, *_ in some})
        return json.dumps(
            {
                "version": _VERSION,
                "batch": self.batch,
                "run": self.run,
                "query": self.query,
                "superseded": self.superseded,
                "transactions": self.transactions,
                "topics": topics,
                "written": _packed(self.written, topics),
            },
            separators=(",", ":"),
        ).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> Decision:
        read: dict[str, Any] = json.loads(value)
        match read["version"]:
            case 2:
                written = _unpacked(read["written"], [str(each) for each in read["topics"]])
            case 1:  # named topic, partition, first and last offset of each in full
                written = tuple(tuple((t, int(p), int(f), int(e)) for t, p, f, e in some) for some in read["written"])
            case newer:
                raise ValueError(f"a decision of version {newer}: a newer Mainstem wrote it; upgrade this one")
        return cls(
            batch=int(read["batch"]),
            run=str(read["run"]),
            superseded=tuple(read["superseded"]),
            transactions=tuple(Triple(*each) for each in read["transactions"]),
            written=written,
            query=str(read["query"]),
        )


def _packed(written: tuple[tuple[Written, ...], ...], topics: list[str]) -> list[list[list[Any]]]:
    """For each transaction and topic: which topic, then partitions, first offsets and lengths as three lists.

    A batch of many tasks names each partition many times. Partitions are told by how many were left out before them,
    offsets by how far they are from where the transaction before has ended: both are small, and much alike.
    """
    nth = {topic: number for number, topic in enumerate(topics)}
    ends: dict[Partition, int] = defaultdict(int)
    packed = []
    for some in written:
        groups: list[list[Any]] = []
        for topic, parts in groupby(some, itemgetter(0)):
            skipped, gaps, lengths = [], [], []
            following = 0
            for _, number, first, last in parts:
                skipped.append(number - following)
                gaps.append(first - ends[topic, number])
                lengths.append(last - first)
                following = number + 1
                ends[topic, number] = last + 1
            groups.append([nth[topic], skipped, gaps, lengths])
        packed.append(groups)
    return packed


def _unpacked(packed: list[list[list[Any]]], topics: list[str]) -> tuple[tuple[Written, ...], ...]:
    ends: dict[Partition, int] = defaultdict(int)
    written = []
    for groups in packed:
        some: list[Written] = []
        for nth, *columns in groups:
            topic = topics[nth]
            following = 0
            for skipped, gap, length in zip(*columns, strict=True):
                number = following + int(skipped)
                first = ends[topic, number] + int(gap)
                last = first + int(length)
                some.append((topic, number, first, last))
                following = number + 1
                ends[topic, number] = last + 1
        written.append(tuple(some))
    return tuple(written)


class DecisionLog:
    """One reader of it; reads on from where it was."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._next = -1
        # As they were written: those of other sinks may name thousands of tasks, and nobody asks for them here.
        self._decided: dict[str, bytes] = {}
        self._finished: dict[str, int] = {}
        self._unreadable: dict[str, str] = {}
        self._given_up: dict[str, bytes] = {}
        self._open: dict[int, dict[tuple[str, str], bytes]] = {}
        self._forgotten: set[str] = set()
        self._is_there = False
        self._sure_of: LeaderAndEpoch | None = None

    async def ensure(self) -> None:
        """Makes the topic where it is not there, and has it take large decisions where it was made when it did not."""
        if self._is_there:
            return

        async def attempt() -> None:
            await self._cluster.update()
            self._cluster.want([TOPIC])
            await self._cluster.update()
            if self._cluster.leader(TopicPartition(*WHERE)) is not None:
                return
            connection = await self._cluster.controller()
            request = CreateTopicsRequest(
                topics=[
                    CreatableTopic(
                        name=TOPIC,
                        num_partitions=1,
                        replication_factor=-1,
                        assignments=[],
                        configs=[CreatableTopicConfig(name=name, value=value) for name, value in CONFIGS.items()],
                    )
                ]
            )
            answer = await connection.ask(request, CreateTopicsResponse)
            for each in answer.topics:
                with suppress(TopicExistsError):
                    raise_for(each.error_code, each.error_message or f"making {TOPIC}", broker=connection.name)
            raise LeaderNotAvailableError("it was just made", topic=TOPIC)

        await self._cluster.retrying(attempt, TIMEOUT_MS, f"making {TOPIC}")
        try:
            await self._cluster.retrying(self._enlarge, ENLARGED_WITHIN_MS, f"setting configs of {TOPIC}")
        except KafkaError as error:
            # Most batches are small. One that is not says itself that it was refused.
            wanted = ", ".join(f"{name}={value}" for name, value in _ROOM.items())
            log.warning("%s may refuse batches of very many tasks and partitions; set %s: %s", TOPIC, wanted, error)
        self._is_there = True

    async def _enlarge(self) -> None:
        small = {name: value for name, value in (await self._configs()).items() if value < int(_ROOM[name])}
        if not small:
            return
        connection = await self._cluster.controller()
        # What somebody has set higher stays. A segment that is large by now is rolled by time.
        wanted = {name: _ROOM[name] for name in small} | (_ROLL if "segment.bytes" in small else {})
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=_TOPIC_RESOURCE,
                    resource_name=TOPIC,
                    configs=[
                        AlterableConfig(name=name, config_operation=_SET, value=value) for name, value in wanted.items()
                    ],
                )
            ],
            validate_only=False,
        )
        answer = await connection.ask(request, IncrementalAlterConfigsResponse)
        for each in answer.responses:
            raise_for(each.error_code, each.error_message or f"setting configs of {TOPIC}", broker=connection.name)
        # Brokers follow the controller: one that leads takes large batches a moment later.
        raise LeaderNotAvailableError("its configs were just set", topic=TOPIC)

    async def _configs(self) -> dict[str, int]:
        """What limits the size of a decision now, as its leader has it."""
        leader = self._cluster.leader(TopicPartition(*WHERE))
        if leader is None:
            raise LeaderNotAvailableError("it has no leader now", topic=TOPIC, partition=0)
        connection = await self._cluster.node(leader.leader)
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=_TOPIC_RESOURCE, resource_name=TOPIC, configuration_keys=list(_ROOM)
                )
            ]
        )
        answer = await connection.ask(request, DescribeConfigsResponse)
        for result in answer.results:
            raise_for(result.error_code, result.error_message or f"reading configs of {TOPIC}", broker=connection.name)
        return {each.name: int(each.value) for result in answer.results for each in result.configs if each.value}

    async def last(self, sink: str) -> Decision | None:
        """The last decision of a sink, as of now."""
        await self._read_on()
        written = self._decided.get(sink)
        if written is None:
            return None
        try:
            if sink in self._unreadable:
                raise ValueError(self._unreadable[sink])
            found = Decision.from_bytes(written)
        except (ValueError, LookupError, TypeError) as error:
            raise UnreadableError(f"what {TOPIC} says of {sink} cannot be read: {error}") from error
        is_finished = self._finished.get(sink, -1) >= found.batch
        return replace(found, is_finished=is_finished)

    def is_given_up(self, sink: str, run: str) -> bool:
        """Whether the driver of a run has given it up, as of the last question about a sink."""
        return self._given_up.get(sink) == run.encode()

    async def sinks(self) -> list[str]:
        """Those that have decided; none where there was no sink yet. Asking makes no topic."""
        self._cluster.want([TOPIC])
        await self._cluster.update()
        if TOPIC not in self._cluster.cache.topics:
            return []
        await self._read_on()
        return sorted(self._decided.keys() - self._forgotten)

    async def all(self) -> dict[str, Decision]:
        """The last decision of every sink. One that cannot be read hides no other."""
        found: dict[str, Decision] = {}
        for sink in await self.sinks():
            try:
                last = await self.last(sink)
            except UnreadableError as error:
                log.warning("%s", error)
                continue
            if last is not None:
                found[sink] = last
        return found

    async def _read_on(self) -> None:
        if self._next < 0:
            self._next = (await list_offsets(self._cluster, {WHERE: EARLIEST}))[WHERE]
        while True:
            await self._read_to_high_watermark()
            leader = self._cluster.leader(TopicPartition(*WHERE))
            if leader is not None and leader == self._sure_of:
                return
            # One that is new may not know yet how far the log is committed. It does when it tells the end (KIP-207).
            await list_offsets(self._cluster, {WHERE: LATEST})
            self._sure_of = leader

    async def _read_to_high_watermark(self) -> None:
        while True:
            part, frame = await self._cluster.retrying(self._fetch, TIMEOUT_MS, f"reading {TOPIC}")
            before = self._next
            start = int(part.records_start)
            for batch in iterate_batches(frame, start, start + int(part.records_size)):
                if batch.next_offset <= self._next:
                    continue
                self._take(batch)
                self._next = int(batch.next_offset)
            if self._next >= part.high_watermark:
                return
            if self._next == before:
                # Compaction may have left nothing up to the high watermark of the moment.
                await asyncio.sleep(0.01)

    def _take(self, batch: Any) -> None:
        batch.check(batch.end)
        marker = parse_end_marker(batch) if batch.is_control else None
        if marker is not None:
            pending = self._open.pop(int(marker.producer_id), {})
            for (kind, sink), value in pending.items() if marker.commit else ():
                (self._decided if kind == DECIDED else self._given_up)[sink] = value
            return
        if batch.is_control:
            return
        for record in iterate_records(batch):
            kind, _, sink = (record.key or b"").decode(errors="replace").partition("/")
            if kind not in (DECIDED, FINISHED, GIVEN_UP):
                continue  # not of ours
            if record.value is None:
                # Still told to who asks for it: a task of it that comes late has nothing to write.
                if kind == DECIDED:
                    self._forgotten.add(sink)
                elif kind == FINISHED:
                    self._unreadable.pop(sink, None)
            elif kind == FINISHED:
                self._note_finished(sink, bytes(record.value))
            else:
                self._open.setdefault(int(batch.producer_id), {})[kind, sink] = bytes(record.value)

    def _note_finished(self, sink: str, value: bytes) -> None:
        try:
            batch = int(value)
        except ValueError as error:
            self._unreadable[sink] = str(error)
            return
        self._unreadable.pop(sink, None)
        self._finished[sink] = max(self._finished.get(sink, -1), batch)

    async def _fetch(self) -> tuple[FetchPartitionResponse, bytes]:
        leader = self._cluster.leader(TopicPartition(*WHERE))
        if leader is None:
            self._cluster.want([TOPIC])
            self._cluster.request_update(now=True)
            raise LeaderNotAvailableError("it has no leader now", topic=TOPIC, partition=0)
        connection = await self._cluster.node(leader.leader)
        version = connection.version_for(ApiKey.FETCH, _BY_NAME)
        topic = FetchTopic(TOPIC, ZERO_UUID, [FetchPartition(0, self._next, 1 << 20)])
        request = FetchRequest(0, 0, 1 << 20, [topic])
        frame = encode_fetch_request(request, version, 0, self._cluster.options.client_id)
        answer = await connection.send_frame(ApiKey.FETCH, version, [frame])
        _, response = read_fetch_response(answer, version)
        part = only_partition(response, WHERE)
        if part.error_code:
            self._cluster.note_error(TopicPartition(*WHERE), int(part.error_code))
            raise error_for(int(part.error_code), f"reading {TOPIC}", topic=TOPIC, partition=0)
        return part, answer
