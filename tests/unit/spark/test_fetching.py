"""How a task reads from a leader that does not give what it was asked for at once, and from one that is not there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

import pyarrow as pa

from mainstem.client.errors import KafkaError, NoBrokersAvailableError
from mainstem.client.metadata import LeaderAndEpoch
from mainstem.client.options import ConsumerOptions
from mainstem.protocol.columns import encode_columns
from mainstem.protocol.compression import NONE, ZSTD
from mainstem.protocol.fetch import (
    FetchPartitionResponse,
    FetchResponse,
    FetchTopicResponse,
    encode_fetch_response,
    read_fetch_request,
)
from mainstem.protocol.headers import read_request_header
from mainstem.protocol.schema import ZERO_UUID
from mainstem.spark import questions
from mainstem.spark.fetching import BATCH_BYTES, RangeReader
from mainstem.spark.loop import Runner
from mainstem.spark.options import Topics
from mainstem.spark.splits import Range
from tests.support.kafka import free_port

T = TypeVar("T")
VERSION = 12
TRIES = 3


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
    ) -> None:
        self.over_quota = over_quota
        self.is_compacted = is_compacted
        self.behind = behind
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
            part = FetchPartitionResponse(0, 0, end, 0)
            part.last_stable_offset = end
            return _framed(FetchResponse([FetchTopicResponse("t", ZERO_UUID, [part])]))
        (records,) = encode_columns(None, pa.array(self.values), codec=self.codec, max_batch_bytes=1 << 30)
        part = FetchPartitionResponse(0, 0, 3, 0 if asked.rack_id else len(records))
        part.preferred_read_replica = 2 if asked.rack_id else -1
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


def values(leader: Leader, **options: str) -> list[bytes]:
    reader = RangeReader(RunnerOf(leader), ConsumerOptions.from_kwargs(options), True, 1000)
    found = reader.read([Range("t", 0, 0, 3)], lambda columns, where: columns.to_arrow(("value",), "t", 0))
    return [value for batch in found for value in batch.column("value").to_pylist()]


def test_a_leader_that_answers_with_nothing_over_a_quota_is_asked_again() -> None:
    assert values(Leader(over_quota=2)) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_a_range_of_which_compaction_left_nothing_is_read_at_once(level: str) -> None:
    assert values(Leader(is_compacted=True), **{"isolation.level": level}) == []


def test_a_leader_that_does_not_know_of_the_end_yet_is_asked_again() -> None:
    leader = Leader(behind=2)
    assert values(leader) == [b"a", b"b", b"c"]
    assert leader.behind == 0


def test_a_batch_that_expands_to_more_than_is_decoded_at_once_is_read() -> None:
    leader = Leader(value_bytes=BATCH_BYTES, codec=ZSTD)
    assert values(leader) == leader.values


def test_who_names_a_rack_reads_from_the_leader_all_the_same() -> None:
    assert values(Leader(), **{"client.rack": "here"}) == [b"a", b"b", b"c"]


def test_an_address_where_no_broker_ever_answered_is_told_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "FIRST_CONTACT_MS", 300)
    here, address = Runner(), f"127.0.0.1:{free_port()}"
    cluster = here.cluster(ConsumerOptions(bootstrap_servers=address))
    with pytest.raises(NoBrokersAvailableError, match=f"kafka.bootstrap.servers: {address} did not answer in"):
        here.run(questions.partitions(cluster, Topics(names=("t",))))
    here.run(cluster.close())
