"""Apache Kafka, our own broker and the clients of other makes as fixtures, for every test of this folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.drivers.client import Client
from tests.compat.drivers.makes import MAKES, find_make
from tests.support.kafka import kafka, kafka_node
from tests.support.node import Node, node

__all__ = ["client", "kafka", "kafka_node", "node"]


@pytest.fixture(params=list(MAKES))
def client(request: pytest.FixtureRequest, node: Node, tmp_path: Path) -> Iterator[Client]:
    """Each make of client in turn, connected to our broker."""
    with Client(find_make(request.param), node.bootstrap, tmp_path / "driver.log") as started:
        yield started
