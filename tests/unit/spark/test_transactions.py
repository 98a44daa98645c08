"""The requests of transactions, where brokers are away for a moment or not done yet."""

import asyncio
import random
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from mainstem.client.cluster import Cluster
from mainstem.client.errors import NoBrokersAvailableError
from mainstem.client.options import ProducerOptions
from mainstem.protocol.api import ApiKey
from mainstem.spark.transactions import COMPLETE_COMMIT, PREPARING, Described, Transactions, Triple


def test_a_broker_that_is_away_is_waited_for_before_it_is_known_which_transactions_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A decided batch would fail otherwise, at the step that commits it."""
    answers: list[Any] = [
        NoBrokersAvailableError("no broker answers"),
        SimpleNamespace(features={"transaction.version": 2}, versions={ApiKey.END_TXN: (0, 5)}),
    ]

    async def any_node() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def update() -> None:
        pass

    async def story() -> None:
        cluster = Cluster(ProducerOptions(bootstrap_servers="127.0.0.1:1"), random.Random(1))
        monkeypatch.setattr(cluster, "any_node", any_node)
        monkeypatch.setattr(cluster, "update", update)
        assert await Transactions(cluster).is_v2()

    asyncio.run(story())


@pytest.mark.parametrize("preparing", sorted(PREPARING))
def test_who_waits_for_markers_waits_for_those_of_every_transaction(
    monkeypatch: pytest.MonkeyPatch, preparing: str
) -> None:
    """Brokers answer before markers are written, and who reads right after a write is to see it."""
    triples = [Triple("one", 1, 0), Triple("two", 2, 0), Triple("expired", 3, 0)]
    states = {"one": [preparing, COMPLETE_COMMIT], "two": [preparing, preparing, preparing, COMPLETE_COMMIT]}

    async def describe(ids: Iterable[str]) -> dict[str, Described]:
        return {each: Described(Triple(each, 0, 0), states[each].pop(0), 0, 0) for each in ids if each in states}

    async def story() -> None:
        transactions = Transactions(Cluster(ProducerOptions(bootstrap_servers="127.0.0.1:1"), random.Random(1)))
        monkeypatch.setattr(transactions, "describe", describe)
        await transactions.wait_until_complete(triples)

    asyncio.run(story())
    assert states == {"one": [], "two": []}
