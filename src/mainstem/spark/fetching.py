"""Reading ranges of offsets from brokers as Arrow batches, in a task.

One fetch is always under way while Spark takes the batches of the one before: the broker's answer then waits in the
socket. Fetches name one partition each and no session: a task reads ranges one after the other, and each to its end.

A range ends at an offset that was there when the query was planned, so a fetch never waits for new records. Offsets may
be missing in it, after compaction or where transactions ended: what counts is how far the batches reach. With
`read_committed`, batches of transactions that were aborted are left out.
"""

import asyncio
import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from mainstem.client.cluster import Cluster
from mainstem.client.errors import (
    KafkaError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    OffsetOutOfRangeError,
    error_for,
)
from mainstem.client.metadata import BrokerAddress
from mainstem.client.options import ConsumerOptions
from mainstem.client.types import TopicPartition
from mainstem.protocol.api import ApiKey
from mainstem.protocol.batch import BatchView, iterate_batches
from mainstem.protocol.columns import MAX_BODY_BYTES, Columns, decode_columns
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchTopic,
    encode_fetch_request,
    read_fetch_response,
)
from mainstem.protocol.schema import ZERO_UUID
from mainstem.spark.bounds import DataLossError
from mainstem.spark.loop import Runner
from mainstem.spark.offsets import EARLIEST
from mainstem.spark.questions import isolation, list_offsets, only_partition
from mainstem.spark.splits import Range

if TYPE_CHECKING:
    import pyarrow as pa

BY_NAME: Final = 12
"""The last version of Fetch that names topics."""

WAITED_ELSEWHERE_S: Final = 86_400.0
"""An answer may lie in the socket as long as Spark takes for a batch; we wait for it with a time-out of our own."""

BATCH_BYTES: Final = 8 << 20
"""Where decompression makes more of a fetch than this, it becomes several Arrow batches."""

ToArrow = Callable[[Columns, Range], "pa.RecordBatch"]


class AbortedFilter:
    """Says which batches belong to aborted transactions, given the list that came with them. Sees batches in order."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._waiting = [(int(each.first_offset), int(each.producer_id)) for each in aborted]
        heapq.heapify(self._waiting)
        self._open: set[int] = set()

    def __call__(self, batch: BatchView) -> bool:
        while self._waiting and self._waiting[0][0] <= batch.last_offset:
            self._open.add(heapq.heappop(self._waiting)[1])
        if not batch.is_transactional:
            return False
        if batch.is_control:
            # Any marker of the producer ends what was open; control batches give no rows in any case.
            self._open.discard(batch.producer_id)
            return False
        return batch.producer_id in self._open


class Fetched:
    """The records of one answer, `frame[start:end]`, and the offset after the last whole batch of them."""

    __slots__ = ("aborted", "end", "frame", "reach", "start")

    def __init__(self, frame: bytes, part: FetchPartitionResponse) -> None:
        self.frame = frame
        self.start = int(part.records_start)
        self.end = self.start + int(part.records_size)
        self.aborted = part.aborted or []
        self.reach = -1
        for batch in iterate_batches(frame, self.start, self.end):
            self.reach = int(batch.next_offset)


def decode_some(
    buffer: bytes,
    bounds: tuple[int, int, int, int],
    aborted: Iterable[AbortedTransaction] | None,
    check_crcs: bool,
    limit: int,
) -> Columns:
    """Records of the bytes and offsets in `bounds`: up to `limit` bytes of them, or one batch where it has more.

    Whoever compresses well puts into a batch of a megabyte many times that.
    """
    start, end, position, end_offset = bounds
    while True:
        skip = AbortedFilter(aborted) if aborted is not None else None
        try:
            return decode_columns(buffer, start, end, position, end_offset, skip, check_crcs, limit)
        except RemoteError as error:
            if error.code != ErrorCode.MESSAGE_TOO_LARGE or limit >= MAX_BODY_BYTES:
                raise
            limit *= 2


UnderWay = asyncio.Task[tuple[int, bytes]]


class RangeReader:
    def __init__(self, runner: Runner, options: ConsumerOptions, fail_on_data_loss: bool, poll_timeout_ms: int) -> None:
        self._runner = runner
        self._options = options
        self._fail_on_data_loss = fail_on_data_loss
        self._timeout_ms = poll_timeout_ms
        self._cluster: Cluster = runner.cluster(options)
        self._isolation = isolation(self._cluster)

    def read(self, ranges: Iterable[Range], to_arrow: ToArrow) -> Iterator["pa.RecordBatch"]:
        todo = [each for each in ranges if each.size > 0]
        under_way: UnderWay | None = None
        try:
            for nth, found in enumerate(todo):
                following = todo[nth + 1] if nth + 1 < len(todo) else None
                position = found.start
                while position < found.end:
                    if under_way is None:
                        under_way = self._begin(found, position)
                    task, under_way = under_way, None
                    try:
                        fetched = self._runner.run(self._finish(task, found, position))
                    except OffsetOutOfRangeError as error:
                        position = self._after_loss(found, position, error)
                        continue
                    if fetched.reach < found.end:
                        under_way = self._begin(found, fetched.reach)
                    elif following is not None:
                        under_way = self._begin(following, following.start)
                    reach = min(fetched.reach, found.end)
                    while position < reach:
                        columns = self._decode(fetched, position, found.end)
                        # Where it says of nothing more, the rest is a hole: what comes next lies past the range.
                        position = int(columns.next_offset) if columns.next_offset > position else reach
                        if columns.count:
                            yield to_arrow(columns, found)
        finally:
            if under_way is not None:
                under_way.cancel()

    def fetch(self, found: Range, position: int) -> Fetched:
        """One answer, with the batches from the one that has `position`, or comes next after it, on."""
        return self._runner.run(self._finish(self._begin(found, position), found, position))

    def _decode(self, fetched: Fetched, position: int, end: int) -> Columns:
        aborted = fetched.aborted if self._isolation else None
        bounds = (fetched.start, fetched.end, position, end)
        limit = max(BATCH_BYTES, fetched.end - fetched.start)
        return decode_some(fetched.frame, bounds, aborted, self._options.check_crcs, limit)

    def _after_loss(self, found: Range, position: int, error: KafkaError) -> int:
        """Where to go on when records are gone and that is accepted; the end where nothing of the range is left."""
        first = self._runner.run(self._first(found))
        if self._fail_on_data_loss:
            raise DataLossError(found.where, position, first, "ends before it" if first <= position else "") from error
        return first if first > position else found.end

    async def _first(self, found: Range) -> int:
        return (await list_offsets(self._cluster, {found.where: EARLIEST}))[found.where]

    def _begin(self, found: Range, position: int) -> UnderWay:
        async def begin() -> UnderWay:
            task = asyncio.ensure_future(self._fetch(found, position))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            # One turn of the loop, so that the request leaves now.
            await asyncio.sleep(0)
            return task

        return self._runner.run(begin())

    async def _fetch(self, found: Range, position: int) -> tuple[int, bytes]:
        """Sends one fetch; the version it was sent in, and the frame of its answer."""
        where = TopicPartition(found.topic, found.partition)
        leader = self._cluster.leader(where)
        if leader is None:
            await self._cluster.metadata([found.topic])
            leader = self._cluster.leader(where)
        if leader is None:
            self._cluster.request_update()
            raise LeaderNotAvailableError("it has no leader now", topic=found.topic, partition=found.partition)
        connection = await self._cluster.node(leader.leader)
        version = connection.version_for(ApiKey.FETCH, BY_NAME)
        part = FetchPartition(found.partition, position, self._options.max_partition_fetch_bytes)
        request = FetchRequest(
            self._options.fetch_max_wait_ms,
            self._options.fetch_min_bytes,
            self._options.fetch_max_bytes,
            [FetchTopic(found.topic, ZERO_UUID, [part])],
        )
        request.isolation_level = self._isolation
        # No rack is named: the leader would send us to a replica nearby, and that may not have all of the range yet.
        frame = encode_fetch_request(request, version, 0, self._options.client_id)
        return version, await connection.send_frame(ApiKey.FETCH, version, [frame], timeout_s=WAITED_ELSEWHERE_S)

    async def _finish(self, under_way: UnderWay, found: Range, position: int) -> Fetched:
        task: UnderWay | None = under_way

        async def attempt() -> Fetched:
            nonlocal task
            work, task = task or asyncio.ensure_future(self._fetch(found, position)), None
            try:
                version, frame = await asyncio.wait_for(work, self._options.request_timeout_ms / 1000)
            except TimeoutError as error:
                self._drop_connection(found)
                raise KafkaTimeoutError(
                    f"a fetch was not answered within {self._options.request_timeout_ms} ms",
                    topic=found.topic,
                    partition=found.partition,
                ) from error
            return self._judge(version, frame, found, position)

        return await self._cluster.retrying(attempt, self._timeout_ms, f"fetching from offset {position}")

    def _judge(self, version: int, frame: bytes, found: Range, position: int) -> Fetched:
        _, response = read_fetch_response(frame, version)
        part = only_partition(response, found.where)
        where = TopicPartition(found.topic, found.partition)
        if part.error_code:
            endpoints = [
                BrokerAddress(int(each.node_id), each.host, int(each.port), each.rack)
                for each in response.node_endpoints or ()
            ]
            self._cluster.note_leader(where, int(part.leader_id), int(part.leader_epoch), endpoints)
            self._cluster.note_error(where, int(part.error_code))
            raise error_for(int(part.error_code), "fetch", topic=found.topic, partition=found.partition)
        fetched = Fetched(frame, part)
        known = part.last_stable_offset if self._isolation else part.high_watermark
        if part.records_size == 0 and known >= found.end:
            # It knows of the end and has nothing before it: compaction took what was there.
            fetched.reach = found.end
        if fetched.reach <= position:
            # The end was there when the query was planned: a leader that just changed may not know of it yet.
            raise LeaderNotAvailableError(
                f"no records at offset {position}, though the log reached {found.end}",
                topic=found.topic,
                partition=found.partition,
            )
        return fetched

    def _drop_connection(self, found: Range) -> None:
        leader = self._cluster.leader(TopicPartition(found.topic, found.partition))
        connection = None if leader is None else self._cluster.connected(leader.leader)
        if connection is not None:
            connection.close()
