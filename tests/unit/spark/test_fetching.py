"""How a task reads from a leader that does not give what it was asked for at once, and from one that is not there.

And how often it asks and decodes where offsets are missing: by what there is to read, not by what is not there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

import pyarrow as pa

from mainstem.client.errors import KafkaError, NoBrokersAvailableError
from mainstem.client.metadata import LeaderAndEpoch
from mainstem.client.options import ConsumerOptions
from mainstem.protocol.batch import BatchView
from mainstem.protocol.columns import Columns, encode_columns
from mainstem.protocol.compression import NONE, ZSTD
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.fetch import (
    AbortedTransaction,
    FetchPartitionResponse,
    FetchResponse,
    FetchTopicResponse,
    encode_fetch_response,
    read_fetch_request,
)
from mainstem.protocol.headers import read_request_header
from mainstem.protocol.schema import ZERO_UUID
from mainstem.spark import fetching, questions
from mainstem.spark.bounds import DataLossError
from mainstem.spark.fetching import BATCH_BYTES, RangeReader, decode_some
from mainstem.spark.loop import Runner
from mainstem.spark.offsets import Offsets
from mainstem.spark.options import Topics
from mainstem.spark.splits import Range
from tests.support.kafka import free_port
from tests.support.logs import batch, marker

T = TypeVar("T")
VERSION = 12
TRIES = 3
END = 100_000
"""Where a log of holes ends."""


class Leader:
    """Answers as Kafka's: nothing while the client is over its quota, no records to who can have them nearby."""

    name = "a leader"

    def __init__(
        self,
        over_quota: int = 0,
        value_bytes: int = 1,
        codec: int = NONE,
        is_compacted: bool = False,
        behind: int = 0,
        committed_behind: bool = False,
        first: int | None = None,
    ) -> None:
        self.over_quota = over_quota
        self.is_compacted = is_compacted
        self.behind = behind
        self.committed_behind = committed_behind
        self.first = first
        self.values = [bytes([letter]) * value_bytes for letter in b"abc"]
        self.codec = codec

    def version_for(self, api_key: int, most: int) -> int:
        return VERSION

    async def send_frame(self, api_key: int, version: int, frame: Sequence[bytes], timeout_s: float) -> bytes:
        request = b"".join(frame)[4:]
        asked = read_fetch_request(request, read_request_header(request).body_at, version)
        if self.over_quota > 0:
            self.over_quota -= 1
            return _framed(FetchResponse([]))
        if self.is_compacted or self.behind > 0:
            end = 3 if self.is_compacted else 1
            self.behind -= 1
            part = FetchPartitionResponse(0, 0, 3 if self.committed_behind else end, 0)
            part.last_stable_offset = end
            return _framed(FetchResponse([FetchTopicResponse("t", ZERO_UUID, [part])]))
        offset = int(asked.topics[0].partitions[0].fetch_offset)
        if self.first is not None and offset != self.first:
            part = FetchPartitionResponse(0, int(ErrorCode.OFFSET_OUT_OF_RANGE), -1, 0)
            return _framed(FetchResponse([FetchTopicResponse("t", ZERO_UUID, [part])]))
        (records,) = encode_columns(None, pa.array(self.values), codec=self.codec, max_batch_bytes=1 << 30)
        part = FetchPartitionResponse(0, 0, 3, 0 if asked.rack_id else len(records))
        part.preferred_read_replica = 2 if asked.rack_id else -1
        return _framed(FetchResponse([FetchTopicResponse("t", ZERO_UUID, [part])]), records)


class LeaderOfALog(Leader):
    """Has these batches, each at its offset, and gives those from an offset on that are not past a number of bytes."""

    def __init__(self, *batches: tuple[int, bytes], bytes_at_once: int = 1 << 20) -> None:
        super().__init__()
        self.batches = [offset.to_bytes(8, "big") + data[8:] for offset, data in batches]
        self.bytes_at_once = bytes_at_once
        self.aborted: list[AbortedTransaction] = []
        self.asked: list[int] = []

    async def send_frame(self, api_key: int, version: int, frame: Sequence[bytes], timeout_s: float) -> bytes:
        request = b"".join(frame)[4:]
        asked = read_fetch_request(request, read_request_header(request).body_at, version)
        offset = int(asked.topics[0].partitions[0].fetch_offset)
        self.asked.append(offset)
        wanted = [data for data in self.batches if BatchView(data, 0).next_offset > offset]
        records = b"".join(wanted)[: self.bytes_at_once]
        part = FetchPartitionResponse(0, 0, END, len(records))
        part.last_stable_offset = END
        part.aborted = self.aborted if asked.isolation_level else None
        return _framed(FetchResponse([FetchTopicResponse("t", ZERO_UUID, [part])]), records)


def _framed(response: FetchResponse, records: bytes = b"") -> bytes:
    pieces = encode_fetch_response(response, VERSION, 0)
    return b"".join(piece if isinstance(piece, bytes) else records for piece in pieces)[4:]


class OneLeader:
    """As much of a cluster as a reader needs."""

    def __init__(self, leader: Leader, options: ConsumerOptions) -> None:
        self.options = options
        self._leader = leader

    def leader(self, where: object) -> LeaderAndEpoch:
        return LeaderAndEpoch(1, 0)

    def note_leader(self, *_: object) -> None:
        """It is always the same."""

    def note_error(self, *_: object) -> None:
        """It changes nothing here."""

    async def node(self, node_id: int) -> Leader:
        return self._leader

    async def retrying(self, attempt: Callable[[], Awaitable[T]], timeout_ms: float, what: str) -> T:
        for _ in range(TRIES):
            try:
                return await attempt()
            except KafkaError as error:
                if not error.retriable:
                    raise
        raise AssertionError(f"{TRIES} tries were not enough")


class RunnerOf(Runner):
    def __init__(self, leader: Leader) -> None:
        super().__init__()
        self._of = leader

    def cluster(self, options: Any) -> Any:
        return OneLeader(self._of, options)


def values(
    leader: Leader, start: int = 0, end: int = 3, fail_on_data_loss: bool = True, given: Mapping[str, str] | None = None
) -> list[bytes]:
    reader = RangeReader(RunnerOf(leader), ConsumerOptions.from_kwargs(given or {}), fail_on_data_loss, 1000)
    found = reader.read([Range("t", 0, start, end)], lambda columns, where: columns.to_arrow(("value",), "t", 0))
    return [value for batch in found for value in batch.column("value").to_pylist()]


def test_a_leader_that_answers_with_nothing_over_a_quota_is_asked_again() -> None:
    assert values(Leader(over_quota=2)) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_a_range_of_which_compaction_left_nothing_is_read_at_once(level: str) -> None:
    assert values(Leader(is_compacted=True), given={"isolation.level": level}) == []


def test_a_leader_that_does_not_know_of_the_end_yet_is_asked_again() -> None:
    leader = Leader(behind=2)
    assert values(leader) == [b"a", b"b", b"c"]
    assert leader.behind == 0


def test_a_batch_that_expands_to_more_than_is_decoded_at_once_is_read() -> None:
    leader = Leader(value_bytes=BATCH_BYTES, codec=ZSTD)
    assert values(leader) == leader.values


def test_batches_that_expand_to_more_than_is_decoded_at_once_are_all_read(decoded: list[int]) -> None:
    large = [letter * (BATCH_BYTES // 2 + 1) for letter in (b"a", b"b", b"c")]
    leader = LeaderOfALog(*((nth, batch(value, codec=ZSTD)) for nth, value in enumerate(large)))
    assert values(leader) == large
    assert decoded == [0, 1, 2]


def test_a_leader_that_does_not_know_yet_what_is_committed_is_asked_again() -> None:
    """That all replicas have the records says nothing of the transactions that they are in."""
    leader = Leader(behind=2, committed_behind=True)
    assert values(leader, given={"isolation.level": "read_committed"}) == [b"a", b"b", b"c"]
    assert leader.behind == 0


@pytest.mark.parametrize("first", [0, 2, 3, 50])
def test_what_is_gone_is_passed_over_where_that_is_accepted(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records before `first` are gone, or the log now ends before the range."""

    async def list_offsets(*_: object) -> Offsets:
        return {("t", 0): first}

    monkeypatch.setattr(fetching, "list_offsets", list_offsets)
    leader = Leader(first=first)
    assert values(leader, start=1, fail_on_data_loss=False) == ([b"c"] if first == 2 else [])
    with pytest.raises(DataLossError):
        values(leader, start=1)


def test_who_names_a_rack_reads_from_the_leader_all_the_same() -> None:
    assert values(Leader(), given={"client.rack": "here"}) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("order", [1, -1])
def test_what_was_aborted_is_left_out_in_whatever_order_a_leader_lists_it(order: int) -> None:
    def by(producer: int, value: bytes) -> bytes:
        return batch(value, producer_id=producer, epoch=0, sequence=0, transactional=True)

    leader = LeaderOfALog(
        *((0, by(7, b"gone")), (1, by(8, b"gone, too")), (2, marker(7, 0, False)), (3, by(7, b"kept"))),
        *((4, marker(8, 0, False)), (5, marker(7, 0, True))),
    )
    leader.aborted = [AbortedTransaction(7, 0), AbortedTransaction(8, 1)][::order]
    assert values(leader, 0, 6, given={"isolation.level": "read_committed"}) == [b"kept"]


def test_what_comes_next_is_asked_for_while_the_records_before_it_are_taken() -> None:
    first, second, third = batch(b"a"), batch(b"b"), batch(b"c")
    leader = LeaderOfALog((0, first), (1, second), (2, third), bytes_at_once=len(first))
    reader = RangeReader(RunnerOf(leader), ConsumerOptions(), True, 1000)
    ranges = [Range("t", 0, 0, 2), Range("t", 0, 2, 3)]
    taken = reader.read(ranges, lambda columns, where: columns.to_arrow(("value",), "t", 0))
    for asked in ([0, 1], [0, 1, 2], [0, 1, 2]):
        next(taken)
        assert leader.asked == asked


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """From which offset on, each time that a frame was decoded."""
    positions: list[int] = []

    def noting(buffer: bytes, bounds: tuple[int, int, int, int], *others: Any) -> Columns:
        positions.append(bounds[2])
        return decode_some(buffer, bounds, *others)

    monkeypatch.setattr(fetching, "decode_some", noting)
    return positions


FEW = 4
"""So often an answer is asked for and decoded where there are one or two of them."""


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        pytest.param(0, 90_001, [b"a", b"b"], id="in the middle"),
        pytest.param(0, 90_000, [b"a"], id="at the end"),
        pytest.param(10, 90_000, [], id="the whole range"),
        pytest.param(10, 90_001, [b"b"], id="at the start"),
        pytest.param(0, END, [b"a", b"b"], id="at the end of the log"),
        pytest.param(90_001, END, [], id="nothing but the end of the log"),
    ],
)
def test_a_hole_of_offsets_is_passed_in_one_step(
    start: int, end: int, expected: list[bytes], decoded: list[int]
) -> None:
    leader = LeaderOfALog((0, batch(b"a")), (90_000, batch(b"b")))
    assert values(leader, start, end) == expected
    assert len(decoded) < FEW
    assert len(leader.asked) < FEW


def test_a_hole_is_passed_in_one_step_where_answers_are_small(decoded: list[int]) -> None:
    first, second = batch(b"a"), batch(b"b")
    leader = LeaderOfALog((0, first), (40_000, second), (90_000, second), bytes_at_once=len(first))
    assert values(leader, 0, 90_000) == [b"a", b"b"]
    assert (leader.asked, decoded) == ([0, 1, 40_001], [0, 1, 40_001])


def test_what_only_markers_are_in_is_passed_in_one_step(decoded: list[int]) -> None:
    markers = [(offset, marker(7, 0, True)) for offset in (10_000, 20_000, 30_000)]
    leader = LeaderOfALog((0, batch(b"a")), *markers, (90_000, batch(b"b")))
    assert values(leader, 0, 90_000) == [b"a"]
    assert len(decoded) < FEW
    assert values(LeaderOfALog(*markers), 5_000, END) == []
    assert len(decoded) < 2 * FEW


def test_what_was_aborted_is_passed_in_one_step(decoded: list[int]) -> None:
    mine = [(offset, batch(b"gone", producer_id=7, epoch=0, sequence=0, transactional=True)) for offset in (10, 20_000)]
    leader = LeaderOfALog((0, batch(b"a")), *mine, (20_001, marker(7, 0, False)), (90_000, batch(b"b")))
    leader.aborted = [AbortedTransaction(7, 10)]
    assert values(leader, 0, 90_000, given={"isolation.level": "read_committed"}) == [b"a"]
    assert values(leader, 0, 90_001, given={"isolation.level": "read_committed"}) == [b"a", b"b"]
    assert len(decoded) < 2 * FEW
    assert values(leader, 0, 90_000) == [b"a", b"gone", b"gone"]


def test_an_address_where_no_broker_ever_answered_is_told_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "FIRST_CONTACT_MS", 300)
    here, address = Runner(), f"127.0.0.1:{free_port()}"
    cluster = here.cluster(ConsumerOptions(bootstrap_servers=address))
    with pytest.raises(NoBrokersAvailableError, match=f"kafka.bootstrap.servers: {address} did not answer in"):
        here.run(questions.partitions(cluster, Topics(names=("t",))))
    here.run(cluster.close())
