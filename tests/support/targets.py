"""What the client is tested against: our own broker, and Apache Kafka of two generations, each one node.

`make test` runs the suite against our broker; `make test-client` against all three. Kafka's are marked `campaign`, and
skipped where Java or Maven is missing.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from tests.support.kafka import OLDER_VERSION, VERSION, Kafka, KafkaNode, missing
from tests.support.node import Node

NAMES = ("mainstem", "kafka43", "kafka39")
_VERSIONS = {"kafka43": VERSION, "kafka39": OLDER_VERSION}
_CAMPAIGN = (pytest.mark.campaign, pytest.mark.kafka)
# With `--dist loadgroup` the tests of one target run in one process, which starts it once.
PARAMS = [
    pytest.param(name, marks=(pytest.mark.xdist_group(name), *(() if name == "mainstem" else _CAMPAIGN)))
    for name in NAMES
]


class Broker(Protocol):
    """What `Node` and `KafkaNode` have in common."""

    @property
    def bootstrap(self) -> str: ...
    def start(self) -> object: ...
    def stop(self) -> object: ...
    def kill(self) -> None: ...


def make_target(name: str, home: Path, settings: dict[str, str] | None = None, port: int | None = None) -> Broker:
    """A broker of that kind, not started."""
    if name == "mainstem":
        return Node(home, {"offsets.topic.num.partitions": "1", **(settings or {})}, port)
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    kafka = Kafka(version=_VERSIONS[name])
    kafka.fetch()
    return KafkaNode(kafka, home, settings)


class Target:
    """A running broker to test against, for the whole session."""

    def __init__(self, name: str, broker: Broker) -> None:
        self.name = name
        self.bootstrap = broker.bootstrap

    @property
    def is_kafka(self) -> bool:
        return self.name != "mainstem"


@pytest.fixture(scope="session", params=PARAMS)
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    name: str = request.param
    broker = make_target(name, tmp_path_factory.mktemp(f"{name}-{os.getpid()}"))
    broker.start()
    try:
        yield Target(name, broker)
    finally:
        broker.kill()
