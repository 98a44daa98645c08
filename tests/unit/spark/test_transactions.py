"""The requests of transactions, where brokers are away for a moment."""

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest

from mainstem.client.cluster import Cluster
from mainstem.client.errors import NoBrokersAvailableError
from mainstem.client.options import ProducerOptions
from mainstem.protocol.api import ApiKey
from mainstem.spark.transactions import Transactions


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
