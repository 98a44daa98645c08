"""What the driver of the sink decides on, and what not."""

import asyncio
import time
from typing import Any, cast

import pytest

from mainstem.client.cluster import Cluster
from mainstem.client.options import ProducerOptions
from mainstem.spark.decisions import FINISHED, Decision, DecisionLog
from mainstem.spark.exactly_once import LEAST_LEFT_MS, Coordinator, SinkError
from mainstem.spark.transactions import NO_TIMEOUT_MS, ONGOING, Described, Transactions, Triple

LIMIT_MS = 900_000
WINNER = Triple("mainstem-sink.q.x.0", 7, 3)


class OneOpen:
    """The winner's transaction, open since some time ago."""

    def __init__(self, timeout_ms: int, left_ms: float) -> None:
        started_ms = time.time() * 1000 + left_ms - timeout_ms
        self._found = Described(WINNER, ONGOING, timeout_ms, int(started_ms))

    async def ongoing(self, prefix: str) -> list[str]:
        return [WINNER.transactional_id]

    async def describe(self, ids: Any) -> dict[str, Described]:
        return {WINNER.transactional_id: self._found}

    async def timeout_ms(self) -> int:
        return LIMIT_MS


def check(timeout_ms: int, left_ms: float) -> None:
    driver = Coordinator(
        cast("Cluster", None),
        ProducerOptions(),
        "mainstem-sink.q",
        cast("Transactions", OneOpen(timeout_ms, left_ms)),
        cast("DecisionLog", None),
    )
    assert asyncio.run(driver._check(5, [WINNER])) == []


@pytest.mark.parametrize(("timeout_ms", "least_ms"), [(LIMIT_MS, LEAST_LEFT_MS), (40_000, 20_000)])
def test_a_transaction_that_is_about_to_time_out_is_not_decided_on(timeout_ms: int, least_ms: int) -> None:
    """What is decided must be committed in the time that is left, by another driver if this one dies."""
    check(timeout_ms, least_ms + 10_000)
    with pytest.raises(SinkError, match=r"batch 5 of .* is about to time out; nothing of the batch was written\."):
        check(timeout_ms, least_ms - 1)


def test_a_transaction_without_a_time_out_is_decided_on_however_old_it_is() -> None:
    check(NO_TIMEOUT_MS, -1)


class AllOpen:
    """Transactions that can be ended, and whose markers are there once somebody waits for them."""

    def __init__(self, order: list[str]) -> None:
        self._order = order

    async def end(self, triple: Triple, commit: bool) -> int:
        self._order.append("end")
        return 0

    async def wait_until_complete(self, triples: Any) -> None:
        assert list(triples) == [WINNER]
        self._order.append("markers are there")


def test_a_batch_is_finished_when_its_markers_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """EndTxn is answered before that, and who reads right after a write is to see its rows."""
    order: list[str] = []
    driver = Coordinator(
        cast("Cluster", None),
        ProducerOptions(),
        "mainstem-sink.q",
        cast("Transactions", AllOpen(order)),
        cast("DecisionLog", None),
    )

    async def produce(triple: Triple, kind: str, value: bytes | None) -> None:
        order.append(kind)

    monkeypatch.setattr(driver, "_produce", produce)
    asyncio.run(driver._finish(Decision(5, "x", (), (WINNER,), ((),))))
    assert order == ["end", "markers are there", FINISHED]
