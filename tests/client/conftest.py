"""What the client is tested against: our broker in `make test`, and Apache Kafka where a campaign asks for it."""

import pytest

from tests.support.kafka import kafka, kafka_node
from tests.support.node import node

__all__ = ["bootstrap", "kafka", "kafka_node", "node"]


@pytest.fixture(params=["mainstem", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.campaign])])
def bootstrap(request: pytest.FixtureRequest) -> str:
    """The address of a broker that runs for the whole session."""
    found = request.getfixturevalue("node" if request.param == "mainstem" else "kafka_node").bootstrap
    assert isinstance(found, str)
    return found
