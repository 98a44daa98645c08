"""The streaming reader: from offsets that Spark keeps in its checkpoint to the ranges of each micro-batch.

Spark runs one instance of it for the life of a query, in a process of its own; only `read` runs in workers. Rules:

- A start at the end of the log is pinned. Spark asks for the initial offset twice and writes neither down, so records
  that come in between would be lost. The first micro-batch of such a query is therefore empty: its end, which Spark
  does write down, is the start.
- Partitions that appear later are read from their beginning.
- A topic that is deleted and made anew while the query runs is known by its id, also where it has as many records.
- `maxOffsetsPerTrigger`, `maxBytesPerTrigger`, `minOffsetsPerTrigger` and `maxTriggerDelay` are applied here, for
  Spark has no limit that combines them. Bytes are estimated, by what the records of a partition have on average. With
  `availableNow` nothing after the offsets of the moment it was prepared is read.
- Progress told to a consumer group is for people to see. What counts is the checkpoint.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from mainstem.client.errors import KafkaError
from mainstem.protocol.schema import ZERO_UUID
from mainstem.spark import bounds, questions
from mainstem.spark.bounds import DataLossError
from mainstem.spark.loop import runner
from mainstem.spark.offsets import EARLIEST, LATEST, Offsets, Partition, from_json, names, to_json
from mainstem.spark.options import Kind, SourceOptions
from mainstem.spark.schema import Wanted
from mainstem.spark.source import SplitPartition, read_split, record_bytes
from mainstem.spark.splits import RecordBytes, limit, plan

if TYPE_CHECKING:
    from mainstem.client.cluster import Cluster

log = logging.getLogger(__name__)

OffsetJson = Mapping[str, Mapping[str, int]]

PARTITIONS_AGE_S: Final = 5.0
"""How long a list of partitions is believed: a stream asks for offsets ninety times a second."""

SIZES_AGE_S: Final = 60.0


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, found: Wanted) -> None:
        self._options = options
        self._wanted = found
        self._initial: Offsets | None = None
        self._is_pinned = False
        self._target: Offsets | None = None
        self._latest: Offsets = {}
        self._last_trigger_s: float | None = None
        self._partitions: list[Partition] = []
        self._partitions_at_s = -PARTITIONS_AGE_S
        self._ids: dict[str, bytes] = {}
        self._sizes: RecordBytes | None = None
        self._sizes_at_s = 0.0

    # Offsets

    def initialOffset(self) -> dict[str, dict[str, int]]:
        if self._initial is None:
            self._initial = runner().run(self._starting())
        return to_json(self._initial)

    async def _starting(self) -> Offsets:
        return await bounds.starting_offsets(self._cluster(), self._options, await self._there())

    # Spark 4.1 calls it with nothing, later ones with both.
    def latestOffset(self, start: OffsetJson | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        begin = from_json(start) if start is not None else self._initial or {}
        if self._initial is not None and begin == self._initial and self._needs_pin():
            self._is_pinned = True
            return to_json(begin)
        self._latest = runner().run(self._ends(begin))
        ends = dict(self._latest)
        if self._target is not None:
            # What came after is left for the next run; partitions that are new since are, too.
            ends = {
                where: _until(self._target[where], end, begin.get(where, 0))
                for where, end in ends.items()
                if where in self._target
            }
        new = [where for where in ends if where not in begin]
        # They count for the limits with all that is in them: Spark reads new partitions from their beginning.
        is_limited = not isinstance(self.getDefaultReadLimit(), ReadAllAvailable)
        firsts = runner().run(self._firsts(new)) if new and is_limited else {}
        return to_json(self._admitted(begin, ends, firsts, limit))

    async def _firsts(self, new: list[Partition]) -> Offsets:
        return await questions.list_offsets(self._cluster(), dict.fromkeys(new, EARLIEST), leaves_out_gone=True)

    def _needs_pin(self) -> bool:
        starting = self._options.starting
        at_the_end = (
            starting.kind is Kind.LATEST
            or LATEST in starting.offsets.values()
            or (starting.kind in (Kind.TIMESTAMP, Kind.TIMESTAMPS) and self._options.late_timestamps_start_at_latest)
        )
        return at_the_end and not self._is_pinned

    def _admitted(self, begin: Offsets, ends: Offsets, firsts: Offsets, given: ReadLimit | None) -> Offsets:
        least, most = self._options.min_offsets_per_trigger, self._options.max_offsets_per_trigger
        most_bytes = self._options.max_bytes_per_trigger
        now = time.monotonic()
        if isinstance(given, ReadAllAvailable) and self._target is None:
            least = most = most_bytes = None
        starts = {where: begin.get(where, firsts.get(where, ends[where])) for where in ends}
        waiting = sum(ends[where] - starts[where] for where in ends)
        is_early = (
            self._last_trigger_s is not None
            and (now - self._last_trigger_s) * 1000 < self._options.max_trigger_delay_ms
        )
        if least is not None and self._target is None and waiting < least and is_early:
            return begin
        if most_bytes is not None and waiting > 0:
            within = self._records_within(most_bytes, starts, ends)
            most = within if most is None else min(most, within)
        if most is not None:
            ends = limit(starts, ends, most)
        if ends != begin:
            self._last_trigger_s = now
        return ends

    def _records_within(self, most_bytes: int, starts: Offsets, ends: Offsets) -> int:
        """How many of the records between are about so many bytes, each partition with its share; one at least."""
        record_bytes = runner().run(self._record_bytes(ends))
        sizes = {where: max(0, ends[where] - starts[where]) for where in ends}
        all_bytes = sum(size * record_bytes(where) for where, size in sizes.items())
        return max(1, int(sum(sizes.values()) * min(1.0, most_bytes / max(all_bytes, 1.0))))

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:
        return to_json(self._latest) if self._latest else None

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = runner().run(self._target_ends())

    async def _target_ends(self) -> Offsets:
        return await questions.list_offsets(self._cluster(), dict.fromkeys(await self._there(), LATEST))

    async def _ends(self, begin: Offsets) -> Offsets:
        """Where each partition ends now. One that is gone, shorter than what was read, or made anew is lost data."""
        cluster = self._cluster()
        tries = self._options.fetch_retries
        while True:
            there = await self._there(anew=tries < self._options.fetch_retries)
            ends = await questions.list_offsets(cluster, dict.fromkeys(there, LATEST), leaves_out_gone=True)
            gone = begin.keys() - ends.keys()
            shorter = {where for where in ends if where in begin and ends[where] < begin[where]}
            anew = self._made_anew({topic for topic, _ in begin})
            if not gone and not shorter and not anew:
                return ends
            if tries <= 0 or anew:
                break
            tries -= 1
            await asyncio.sleep(self._options.fetch_retry_interval_ms / 1000)
        others = {where for where in begin if where[0] in anew}
        lost = gone | shorter | others
        if self._options.fail_on_data_loss:
            where = min(lost)
            why = "is gone" if where in gone else f"ends at {ends[where]} now"
            if where in others:
                why = "is another one: the topic was deleted and made anew"
            raise DataLossError(where, begin[where], ends.get(where, 0), why)
        self._ids.update(anew)
        log.warning("records of %s are lost; failOnDataLoss says to go on with what is there", names(lost))
        return ends

    def _made_anew(self, topics: set[str]) -> dict[str, bytes]:
        """Those that are not what this run has read under their names, and their ids, as far as brokers have told."""
        known = self._cluster().cache.topics
        told = {topic: known[topic].topic_id for topic in topics if topic in known}
        return {
            topic: found
            for topic, found in told.items()
            if found != ZERO_UUID and self._ids.setdefault(topic, found) != found
        }

    async def _there(self, *, anew: bool = False) -> list[Partition]:
        now = time.monotonic()
        if anew or not self._partitions or now - self._partitions_at_s >= PARTITIONS_AGE_S:
            self._partitions = await questions.partitions(self._cluster(), self._options.topics)
            self._partitions_at_s = now
        return self._partitions

    def _cluster(self) -> Cluster:
        return runner().cluster(self._options.kafka)

    # Micro-batches

    def partitions(self, start: OffsetJson, end: OffsetJson) -> list[InputPartition]:
        splits = runner().run(self._plan(from_json(start), from_json(end)))
        return [SplitPartition(split) for split in splits]

    async def _plan(self, starts: Offsets, ends: Offsets) -> list[Any]:
        cluster = self._cluster()
        if self._sizes is None and not self._options.fail_on_data_loss:
            # The first batch of a run may have been planned by the run before, with a topic that is gone by now.
            there = await self._firsts([*ends])
            ends = {where: end for where, end in ends.items() if where in there}
        new = [where for where in ends if where not in starts]
        if new:
            first = await questions.list_offsets(cluster, dict.fromkeys(new, EARLIEST))
            # A partition that is new has all that was ever in it still to be read, as Spark's own source sees it.
            begun = [where for where in new if first[where] > 0]
            if begun and self._options.fail_on_data_loss:
                raise DataLossError(begun[0], 0, first[begun[0]])
            starts = {**starts, **first}
        known = {where: starts[where] for where in ends}
        # Whether what is asked for is still there is found out by reading it; asking first would only cost time.
        ranges = bounds.ranges(known, ends, {}, self._options.fail_on_data_loss)
        if not ranges:
            return []
        return plan(
            ranges,
            await self._record_bytes(ends),
            self._options.min_partitions,
            self._options.max_records_per_partition,
            self._options.split_bytes,
        )

    async def _record_bytes(self, ends: Offsets) -> RecordBytes:
        now = time.monotonic()
        if self._sizes is None or now - self._sizes_at_s > SIZES_AGE_S:
            earliest = await questions.list_offsets(self._cluster(), dict.fromkeys(ends, EARLIEST))
            self._sizes = await record_bytes(self._cluster(), earliest, ends)
            self._sizes_at_s = now
        return self._sizes

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_split(self._options, self._wanted, partition)

    def commit(self, end: OffsetJson) -> None:
        """Spark has finished the batch that ends here; it says so while it builds the next one."""
        group = self._options.group_id
        if group is None:
            return
        try:
            runner().run(questions.commit_to_group(self._cluster(), group, from_json(end)))
        except KafkaError as error:
            log.warning("progress was not told to group %s, which changes nothing else: %s", group, error)

    def stop(self) -> None:
        """Spark does not call it reliably; nothing depends on it."""

    def __getstate__(self) -> dict[str, Any]:
        """What goes to workers is what `read` needs."""
        fresh = TopicStreamReader(self._options, self._wanted)
        return dict(fresh.__dict__)


def _until(target: int, end: int, begin: int) -> int:
    """How far to read with `availableNow`."""
    until = min(end, target)
    # A start at the end of the log may be after the target, which was asked for first: a batch never ends before it
    # begins. A log that ends before its start was made anew, and what is lost is accepted: it is gone on from its end.
    return until if end < begin else max(until, begin)
