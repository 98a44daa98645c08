"""What a decision says survives the way through its record; what a newer version wrote is refused; none is missed."""

import asyncio
import json
import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mainstem.client.cluster import Cluster
from mainstem.client.metadata import LeaderAndEpoch
from mainstem.spark import decisions
from mainstem.spark.decisions import Decision, DecisionLog
from mainstem.spark.offsets import Partition
from mainstem.spark.transactions import Triple


def test_a_decision_reads_as_it_was_written() -> None:
    made = Decision(
        batch=7,
        run="r",
        superseded=("a", "b"),
        transactions=(Triple("sink.x.0", 12, 3), Triple("sink.y.0", 13, 0), Triple("sink.z.0", 14, 0)),
        written=((("t", 0, 5, 9), ("t", 1, 0, 0)), (), (("u", 7, 3, 3), ("t", 1, 9, 12), ("t", 0, 1, 4))),
        query="q",
    )
    assert Decision.from_bytes(made.to_bytes()) == made


def test_a_decision_of_a_newer_version_is_refused() -> None:
    with pytest.raises(ValueError, match="a decision of version 3: a newer Mainstem wrote it"):
        Decision.from_bytes(json.dumps({"version": 3}).encode())


def test_a_decision_that_names_every_offset_in_full_is_read_still() -> None:
    """A batch that was decided by version 1 is finished by this one."""
    value = {
        "version": 1,
        "batch": 7,
        "run": "r",
        "query": "q",
        "superseded": ["a"],
        "transactions": [["sink.x.0", 12, 3]],
        "written": [[["t", 0, 5, 9], ["u", 1, 0, 0]]],
    }
    written = ((("t", 0, 5, 9), ("u", 1, 0, 0)),)
    read = Decision.from_bytes(json.dumps(value).encode())
    assert read == Decision(7, "r", ("a",), (Triple("sink.x.0", 12, 3),), written, "q")


def test_a_decision_of_many_tasks_and_partitions_takes_few_bytes_for_each() -> None:
    """All writers read it."""
    rng = random.Random(1)
    ends = [rng.randrange(10**6, 10**7) for _ in range(700)]
    written = []
    for _ in range(200):
        begins = [end + rng.choice((0, 0, rng.randrange(50))) for end in ends]
        ends = [begin + rng.randrange(1, 100) for begin in begins]
        written.append(
            tuple(
                ("orders", number, first, end - 1) for number, (first, end) in enumerate(zip(begins, ends, strict=True))
            )
        )
    triples = tuple(Triple(f"sink.{nth}", 10**6 + nth, 0) for nth in range(200))
    made = Decision(0, "run", (), triples, tuple(written))
    assert len(made.to_bytes()) < 10 * 200 * 700
    assert Decision.from_bytes(made.to_bytes()) == made


class NewLeader:
    """A cluster in which one knows how far the log is committed only when it has told where that ends."""

    def __init__(self) -> None:
        self.records = b""
        self.epoch = 0
        self._told = 0

    def fails_over(self, records: bytes) -> None:
        self.records = records
        self.epoch += 1

    def leader(self, _: object) -> LeaderAndEpoch:
        return LeaderAndEpoch(1, self.epoch)

    async def retrying(self, attempt: Any, *_: object) -> Any:
        return await attempt()

    async def list_offsets(self, _: object, wanted: dict[Partition, int]) -> dict[Partition, int]:
        self._told = self.epoch
        return dict.fromkeys(wanted, 0)

    async def fetch(self) -> tuple[Any, bytes]:
        is_there = bool(self.records) and self._told == self.epoch
        size = len(self.records) if is_there else 0
        return SimpleNamespace(records_start=0, records_size=size, high_watermark=int(is_there)), self.records


def test_what_is_decided_is_not_missed_when_its_log_has_a_new_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may believe for a moment that less is committed than is: a batch would be decided a second time."""
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from mainstem.protocol.columns import encode_columns

    (records,) = encode_columns(pa.array([b"finished/sink"]), pa.array([b"7"]), timestamp=0)
    cluster = NewLeader()
    log = DecisionLog(cast("Cluster", cluster))
    monkeypatch.setattr(log, "_fetch", cluster.fetch)
    monkeypatch.setattr(decisions, "list_offsets", cluster.list_offsets)

    async def story() -> None:
        await log.last("sink")
        assert log._finished == {}
        cluster.fails_over(records)
        await log.last("sink")
        assert log._finished == {"sink": 7}

    asyncio.run(story())
