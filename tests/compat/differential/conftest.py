"""Kafka and our broker side by side, for the comparisons of transactions: started once for each module, which leaves
them as it likes."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.kafka import Kafka, KafkaNode
from tests.support.node import Node

SETTINGS = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
"""One coordinator of each kind: a start is quick, and one log has it all."""
EXPIRATION = {
    "transactional.id.expiration.ms": "4000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "300",
    "producer.id.expiration.ms": "1500",
    "producer.id.expiration.check.interval.ms": "300",
}
TIME_OUTS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}


@contextmanager
def both(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory, settings: dict[str, str]) -> Iterator[tuple[int, int]]:
    """Their port and ours."""
    with (
        KafkaNode(kafka, tmp_path_factory.mktemp("kafka"), SETTINGS | settings) as theirs,
        Node(tmp_path_factory.mktemp("mainstem"), SETTINGS | settings) as ours,
    ):
        yield theirs.port, ours.port


@pytest.fixture(scope="module")
def ports(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    with both(kafka, tmp_path_factory, TIME_OUTS) as found:
        yield found


@pytest.fixture(scope="module")
def forgetful(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """Nodes on which everything expires within seconds."""
    with both(kafka, tmp_path_factory, EXPIRATION) as found:
        yield found
